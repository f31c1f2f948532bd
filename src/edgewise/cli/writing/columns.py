"""Columns into a file whose ending says how: `.csv`, `.parquet` or `.npz`."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.errors import missing_extra
from edgewise.whole_files import write_whole

Columns = Mapping[str, "np.ndarray | Sequence[Any]"]


def write_columns(path: Path, columns: Columns) -> None:
    """Whole, or not at all."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    write_whole(path, lambda file: writers[path.suffix](file, columns))


def _csv(file: Any, columns: Columns) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text)
    rows.writerow(columns)
    rows.writerows(zip(*(_plain(column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()


def _plain(column: "np.ndarray | Sequence[Any]") -> Sequence[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _parquet(file: Any, columns: Columns) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    parquet.write_table(pyarrow.table(dict(columns)), file)


def _npz(file: Any, columns: Columns) -> None:
    np.savez_compressed(file, **dict(columns))  # type: ignore[arg-type]
