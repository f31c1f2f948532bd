"""Folders that tests read: the checkout, and the raw data sets."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def data_root() -> Path:
    """Where the raw data sets lie: EDGEWISE_DATA, or beside the checkout."""
    return Path(os.environ.get("EDGEWISE_DATA") or ROOT / ".." / "shared" / "data")
