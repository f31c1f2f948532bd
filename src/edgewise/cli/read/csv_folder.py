"""A folder as data: its `nodes` and `edges`, each a CSV or a parquet file.

`read_folder` is the way in. A table is read as texts, column by column, with the line of each row for error messages
(`Table`); then columns become features, ids, names, classes, parts and edges by their names. For example, with

    nodes.csv: id,name,age,split     edges.csv: source,target
               a,Ann,31,train                   a,b
               b,Bob,42,test

node 0 is Ann, `x` is `[[31], [42]]`, `--index test` is Bob, and the one edge goes from 0 to 1.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.cli.read.data import PARTS, Graphs
from edgewise.errors import FileError, InputError, missing_extra
from edgewise.files import digest_of

_NAME_COLUMNS, _CLASS_COLUMNS = ("label", "name"), ("y", "class")
_MASK_COLUMNS = {name for part in PARTS for name in (part, f"{part}_mask")}
_NO_FEATURES = {"id", *_NAME_COLUMNS, *_CLASS_COLUMNS, "split", *_MASK_COLUMNS}
_YES = {"1", "true", "yes", "1.0"}
_MOSTLY = 0.5  # a column with more numbers than this is one of numbers, and a text in it a mistake


def read_folder(folder: Path) -> Graphs:
    """The graph of a folder.

    Columns of `nodes`: `id`, `label` or `name`, `y` or `class`, `train`, `val`, `test` or `split` are what they say; every
    other column of numbers is a feature, in the order of the file. Columns of `edges`: `source` and `target` (ids, or row
    numbers from 0 if nodes have none), `weight`; other columns of numbers are edge features. Each table may be a CSV or a
    parquet file. Texts in other columns are left out, and a note names them.

    Raises:
        FileError: A table is missing, or cannot be read.
        InputError: Ids repeat, an edge names a node that is not there, a number is not one; the text names file and line.
    """
    nodes, edges = read_table(folder, "nodes"), read_table(folder, "edges")
    ids = _ids(nodes)
    names = next((nodes.texts(column) for column in _NAME_COLUMNS if column in nodes), None)
    y, class_names = _classes(nodes)
    parts = _parts(nodes)
    x, ignored = _features(nodes, _NO_FEATURES)
    if x is None:
        raise InputError(f"{nodes.file} has no column of numbers for features. Add one, for instance a constant 1.")
    data = Data(
        x=x, edge_index=_edge_index(nodes, edges, ids), **_edge_features(edges), **({} if y is None else {"y": y})
    )
    data.feature_names = [name for name in nodes.columns if name not in {*_NO_FEATURES, *ignored}]
    notes = (f"Columns of texts, not used as features: {', '.join(ignored)}.",) if ignored else ()
    digest = digest_of(nodes.file, edges.file)
    return Graphs(data, "node", digest, ids, names or ids, class_names, parts, notes)


# --- Tables of texts ----------------------------------------------------------------------------------------------------


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
    for ending, reader in ((".csv", _read_csv), (".parquet", _read_parquet)):
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
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    try:
        return parquet.read_table(path).to_pydict(), []
    except (ArrowException, OSError) as error:
        raise FileError(f"{path} cannot be read as parquet ({error}).") from error


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


# --- What the columns mean ----------------------------------------------------------------------------------------------


def _ids(nodes: Table) -> list[str] | None:
    """The column `id`, each value once; `None` without that column."""
    if "id" not in nodes:
        return None
    ids, seen = nodes.texts("id"), set()
    for row, text in enumerate(ids):
        if text in seen:
            raise InputError(f"{nodes.where(row)} repeats the id {text!r}. Each node must have its own.")
        seen.add(text)
    return ids


def _classes(nodes: Table) -> tuple[Tensor | None, list[str] | None]:
    """`y`, and the names of its classes: integers as they are; texts are numbered in the order of the alphabet.

    >>> _classes(Table(Path("nodes.csv"), {"class": ["red", "blue", "red"]}, [2, 3, 4]))
    (tensor([1, 0, 1]), ['blue', 'red'])
    """
    column = next((column for column in _CLASS_COLUMNS if column in nodes), None)
    if column is None:
        return None, None
    found = numbers(nodes, column)
    if found is not None:
        return (found.long() if bool((found == found.round()).all()) else found.float()), None
    texts = nodes.texts(column)
    names = sorted(set(texts))
    place = {name: number for number, name in enumerate(names)}
    return torch.tensor([place[text] for text in texts]), names


def _parts(nodes: Table) -> dict[str, Tensor]:
    """The rows of `train`, `val` and `test`, from a column of each name, or from `split`.

    >>> _parts(Table(Path("nodes.csv"), {"split": ["train", "test", "train"]}, [2, 3, 4]))["train"]
    tensor([0, 2])
    """
    parts = {}
    for part in PARTS:
        column = next((column for column in (part, f"{part}_mask") if column in nodes), None)
        if column is not None:
            chosen = [text.lower() in _YES for text in nodes.texts(column)]
        elif "split" in nodes:
            chosen = [text.lower() == part for text in nodes.texts("split")]
        else:
            continue
        parts[part] = torch.tensor(chosen, dtype=torch.bool).nonzero().view(-1)
    return parts


def _features(table: Table, known: set[str]) -> tuple[Tensor | None, list[str]]:
    """`[rows, columns]` of all columns of numbers that are not `known` for something else; and the columns of texts."""
    columns, ignored = [], []
    for column in table.columns:
        if column in known:
            continue
        found = numbers(table, column)
        if found is None:
            ignored.append(column)
        else:
            columns.append(found)
    return (torch.stack(columns, dim=1).float() if columns else None), ignored


def _edge_index(nodes: Table, edges: Table, ids: list[str] | None) -> Tensor:
    """`[2, edges]`: the rows of `source` and `target`, which are ids, or row numbers if there are no ids."""
    for column in ("source", "target"):
        if column not in edges:
            raise InputError(f"{edges.file} must have the columns source and target, got {', '.join(edges.columns)}.")
    if ids is None:
        ends = torch.stack([whole_numbers(edges, column) for column in ("source", "target")])
        outside = ((ends < 0) | (ends >= nodes.size)).any(dim=0).nonzero().view(-1)
        if len(outside):
            row = int(outside[0])
            raise InputError(
                f"{edges.where(row)} joins {ends[0, row]} and {ends[1, row]}; {nodes.file} has no ids and {nodes.size} "
                f"rows, so nodes are 0 to {nodes.size - 1}."
            )
        return ends
    place = {text: number for number, text in enumerate(ids)}
    return torch.tensor([_places(edges, column, place, nodes.file) for column in ("source", "target")]).view(2, -1)


def _places(edges: Table, column: str, place: dict[str, int], file: Path) -> list[int]:
    """The rows of the nodes that a column names by id; an id that `file` does not have is an error."""
    texts = edges.texts(column)
    found = [place.get(text, -1) for text in texts]
    if -1 in found:
        row = found.index(-1)
        raise InputError(f"{edges.where(row)} names {texts[row]!r} as {column}, which is not an id in {file}.")
    return found


def _edge_features(edges: Table) -> dict[str, Any]:
    """`edge_weight` from `weight`, and `edge_attr` from the other columns of numbers, as far as they exist."""
    found: dict[str, Any] = {}
    if "weight" in edges:
        weight = numbers(edges, "weight")
        if weight is None:
            raise InputError(f"{edges.file}: column weight must hold numbers, got texts.")
        found["edge_weight"] = weight.float()
    attributes, _ = _features(edges, {"source", "target", "weight"})
    return found if attributes is None else found | {"edge_attr": attributes}
