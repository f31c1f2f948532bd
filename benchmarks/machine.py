"""Where and when: a figure without its machine, versions and date does not exist."""

import os
import platform
import resource
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "torch_geometric", "captum", "numpy", "numba")


def describe() -> dict[str, str]:
    return {
        "date": date.today().isoformat(),
        "processor": f"{_processor()}, {os.cpu_count()} cores, one thread used",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def peak_memory() -> float:
    """The largest resident size of this process so far, in GB (10⁹ bytes).

    Linux counts in `ru_maxrss` what the process that started this one had; `VmHWM` is of this program alone.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()
