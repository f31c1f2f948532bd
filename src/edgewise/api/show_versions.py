"""show_versions(): what is installed here, for a report of a mistake."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from edgewise import __version__
from edgewise.contract import checked

_REQUIREMENT = re.compile(r"^([\w.-]+).*?(?:extra == ['\"](\w+)['\"])?\s*$")


@checked
def show_versions() -> None:
    """Print the versions of Edgewise, Python, and every package that Edgewise needs or can use; nothing is imported for it.

    `edgewise --version` prints the same.

    >>> show_versions()  # doctest: +ELLIPSIS
    edgewise 0...
    python ...
    """
    print("\n".join(version_lines()))


def version_lines() -> list[str]:
    """A line for each package: its version, or the extra that would install it."""
    lines = [f"edgewise {__version__}", f"python {platform.python_version()} ({platform.platform()})"]
    for name, extra in _requirements().items():
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed" + (f" (edgewise[{extra}])" if extra else ""))
    return lines


def _requirements() -> dict[str, str | None]:
    """Package → the extra that brings it; None for what is always needed. A source tree alone names only that."""
    try:
        listed = requires("edgewise") or []
    except PackageNotFoundError:
        listed = ["torch", "torch_geometric", "numpy", "tqdm"]
    found: dict[str, str | None] = {}
    for one in listed:
        match = _REQUIREMENT.match(one)
        if match and match[1].lower() != "edgewise":
            found.setdefault(match[1], match[2])
    return found
