"""The machine: versions of packages, and where data sets are found and downloaded to.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("torch", "torch_geometric", "numpy")


@cache
def versions() -> dict[str, str]:
    """Versions of everything that can change a number, for the settings that are written beside results."""
    import edgewise

    found = {"edgewise": edgewise.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree on the path
            found[name] = "unknown"
    return found


VARIABLE = "EDGEWISE_DATA"
"""The environment variable that names a folder with data sets."""


def user_cache() -> Path:
    """The folder where downloads are kept between runs, by the rules of the XDG base directories."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "data"
