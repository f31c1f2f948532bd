"""Where copied data and trained models are kept between runs."""

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """`EDGEWISE_BENCH_CACHE`, or a folder of the system's temporary one. Delete it to train anew."""
    folder = Path(os.environ.get("EDGEWISE_BENCH_CACHE", Path(tempfile.gettempdir()) / "edgewise-benchmarks"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
