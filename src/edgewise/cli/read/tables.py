"""Tables of texts, read from CSV or parquet files: cells by column, and the line of each row for error messages."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.archives import open_parquet, refuse_long_texts
from edgewise.errors import EdgewiseError, FileError, InputError, missing_extra

ENDINGS = (".csv", ".parquet")
"""Of the files that hold tables; where a table is there twice, the first one counts."""
_MOSTLY = 0.5  # a column with more numbers than this is one of numbers, and a text in it a mistake


@dataclass(frozen=True)
class Table:
    """A table, column by column; cells are texts, or what parquet holds."""

    file: Path
    columns: dict[str, list[Any]]
    lines: Sequence[int]
    """For a CSV: the line on which each row ends, since a cell may run over several lines; empty for parquet."""

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """The place of a row, for error messages: `nodes.csv line 7`."""
        return f"{self.file} line {self.lines[row]}" if self.lines else f"{self.file} row {row}"

    def texts(self, column: str) -> list[str]:
        """The cells of a column as texts, without spaces around them; an empty cell is an empty text."""
        return ["" if cell is None else str(cell).strip() for cell in self.columns[column]]


def read_table(folder: Path, name: str) -> Table:
    """Read `name.csv` or, if there is none, `name.parquet` of the folder."""
    for ending, reader in zip(ENDINGS, (_read_csv, _read_parquet), strict=True):
        path = folder / f"{name}{ending}"
        if path.is_file():
            return Table(path, *reader(path))
    raise FileError(f"The folder {folder} has no {name}.csv and no {name}.parquet. Data must have nodes and edges.")


def _read_csv(path: Path) -> tuple[dict[str, list[Any]], list[int]]:
    """The columns by name, and the line of each row; rows must be as long as the header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            found = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as CSV in UTF-8 ({error}).") from error
    if not found:
        raise FileError(f"{path} is empty. It must have a line with the names of the columns, and one for each row.")
    header = [name.strip() for name in found[0][1]]
    for line, row in found:
        if len(row) != len(header):
            raise InputError(f"{path} line {line} must have {len(header)} cells like the header, got {len(row)}.")
    if len(set(header)) != len(header):
        raise InputError(f"{path} has two columns of one name: {', '.join(header)}.")
    columns = {name: [row[place] for _, row in found[1:]] for place, name in enumerate(header)}
    return columns, [line for line, _ in found[1:]]


def _read_parquet(path: Path) -> tuple[dict[str, list[Any]], list[int]]:
    """The columns by name; parquet has no lines."""
    try:
        from pyarrow import ArrowException
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    file = open_parquet(path, texts=True)
    names = file.schema_arrow.names
    if len(set(names)) != len(names):
        raise InputError(f"{path} has two columns of one name: {', '.join(names)}.")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    try:
        for batch in file.iter_batches():
            refuse_long_texts(batch, path)
            for name, cells in zip(batch.schema.names, batch.columns, strict=True):
                columns[name] += cells.to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, EdgewiseError):
            raise
        raise FileError(f"{path} cannot be read as parquet ({error}).") from error
    return columns, []


def numbers(table: Table, column: str) -> Tensor | None:
    """A column as float64 `[rows]`; `None` if it holds texts. A text among numbers is an error that names the line.

    >>> table = Table(Path("nodes.csv"), {"age": ["31", "42"], "name": ["Ann", "Bob"]}, [2, 3])
    >>> numbers(table, "age"), numbers(table, "name")
    (tensor([31., 42.], dtype=torch.float64), None)
    """
    found = [_number(cell) for cell in table.columns[column]]
    bad = [row for row, value in enumerate(found) if value is None]
    if bad and len(bad) >= _MOSTLY * len(found):
        return None
    if bad:
        cell = table.columns[column][bad[0]]
        raise InputError(
            f"{table.where(bad[0])}: column {column} must hold numbers, got {cell!r}. Fill it in, or remove the column."
        )
    return torch.tensor(found, dtype=torch.float64)


def whole_numbers(table: Table, column: str) -> Tensor:
    """A column of row numbers as int64 `[rows]`."""
    found = numbers(table, column)
    if found is None or bool((found != found.round()).any()):
        raise InputError(
            f"{table.file} names nodes in column {column}, but nodes have no column id. Add one, or count from 0."
        )
    return found.long()


def _number(cell: Any) -> float | None:
    """A cell as a finite number; `None` for anything else.

    >>> [_number(cell) for cell in ("2.5", "true", "nan", "red", None)]
    [2.5, 1.0, None, None, None]
    """
    if isinstance(cell, str):
        cell = {"true": "1", "false": "0"}.get(cell.strip().lower(), cell)
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) else None
