"""What this machine has: versions of packages, and where data sets are found and kept."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("torch", "torch_geometric", "numpy")


@cache
def versions() -> dict[str, str]:
    """Of everything that can change a number."""
    import edgewise

    found = {"edgewise": edgewise.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree on the path
            found[name] = "unknown"
    return found


VARIABLE = "EDGEWISE_DATA"


def user_cache() -> Path:
    """Where downloads are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "data"
