"""The text for a package index: the README with links that work away from the checkout. All else is in pyproject.toml.

An index shows the README alone, so that links into the checkout would lead nowhere. If `[project.urls]` has a `Files` (where
the files of a release can be read, such as https://example.org/edgewise/blob/v0.2.0), links and pictures lead there. Otherwise
links become their words, and pictures with their captions are left out.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")
_CAPTION = re.compile(r"\n\n!\[[^\]]*\]\((?!https?://)[^)\s]+\)\n\n\*[^*]+\*(?=\n\n)")


def index_text(readme: str, files: str | None) -> str:
    """The README for an index.

    >>> index_text("See [the limits](docs/limits.md).", None)
    'See the limits.'
    >>> index_text("See [the limits](docs/limits.md).", "https://example.org/files")
    'See [the limits](https://example.org/files/docs/limits.md).'
    """
    if files is None:
        readme = _CAPTION.sub("", readme)
        return _LINK.sub(lambda link: "" if link[1] else link[2], readme)
    return _LINK.sub(lambda link: f"{link[1]}[{link[2]}]({files.rstrip('/')}/{link[3]})", readme)


if __name__ == "__main__":
    root = Path(__file__).parent
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    setup(
        long_description=index_text((root / "README.md").read_text(encoding="utf-8"), urls.get("Files")),
        long_description_content_type="text/markdown",
    )
