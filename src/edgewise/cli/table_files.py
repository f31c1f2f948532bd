"""Tables that the command line writes: `.csv`, `.parquet`, `.npz`, each whole or not at all.

A text of the data cannot act in a spreadsheet: in a `.csv`, one that begins with `=`, `+`, `-`, `@`, a tab, a carriage return
or an apostrophe gets an apostrophe in front; to read it back, take one away (`plain_cell`). Numbers are never touched.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import missing_extra
from edgewise.files import write_whole

if TYPE_CHECKING:
    import numpy as np

Columns = Mapping[str, "np.ndarray | Sequence[Any]"]
"""A table, column by column."""
_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "'")
_MARK = "'"


def safe_cell(value: Any) -> Any:
    """A cell that no spreadsheet reads as a formula: texts that would be get an apostrophe; numbers stay numbers.

    >>> [safe_cell(value) for value in ("=1+1", "-5 °C", "plain", -5.0, "'quoted'")]
    ["'=1+1", "'-5 °C", 'plain', -5.0, "''quoted'"]
    """
    return f"{_MARK}{value}" if isinstance(value, str) and value.startswith(_ACTIVE) else value


def plain_cell(text: str) -> str:
    """The text that a cell stands for: the inverse of `safe_cell`.

    >>> plain_cell("'=1+1"), plain_cell("plain"), plain_cell("''quoted'")
    ('=1+1', 'plain', "'quoted'")
    """
    return text.removeprefix(_MARK)


def write_columns(path: Path, columns: Columns) -> None:
    """Write a table as `.csv`, `.parquet` or `.npz`, as the ending says: whole, or not at all."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    write_whole(path, lambda file: writers[path.suffix](file, columns))


def _csv(file: Any, columns: Columns) -> None:
    """Write rows of texts in UTF-8, the names of the columns first."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text)
    rows.writerow(safe_cell(name) for name in columns)
    rows.writerows(zip(*(_cells(column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()  # the file is closed by who opened it


def _cells(column: "np.ndarray | Sequence[Any]") -> Sequence[Any]:
    """Python's own numbers, which `csv` writes without the names of numpy's types, and texts that cannot act."""
    plain = column.tolist() if hasattr(column, "tolist") else column
    return [safe_cell(value) for value in plain]


def _parquet(file: Any, columns: Columns) -> None:
    """Write with pyarrow, which the extra `table` brings."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    parquet.write_table(pyarrow.table(dict(columns)), file)


def _npz(file: Any, columns: Columns) -> None:
    """Write an array for every column."""
    import numpy as np

    np.savez_compressed(file, **dict(columns))  # type: ignore[arg-type]
