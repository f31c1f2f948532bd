"""A folder as data: its `nodes` and `edges`, each a CSV or a parquet file; of a typed graph one for each type.

`read_folder` is the way in. A table is read as texts (`tables.py`); then columns become features, ids, names, classes, parts
and edges by their names. For example, with

    nodes.csv: id,name,age,split     edges.csv: source,target
               a,Ann,31,train                   a,b
               b,Bob,42,test

node 0 is Ann, `x` is `[[31], [42]]`, `--index test` is Bob, and the one edge goes from 0 to 1. A folder with `nodes_*` is a
typed graph (`typed_folder.py`); what columns mean is the same.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.cli.read.graphs import PARTS, Graphs, NodeNames
from edgewise.cli.read.tables import Table, numbers, read_table, whole_numbers
from edgewise.errors import InputError
from edgewise.files import digest_of

_NAME_COLUMNS, _CLASS_COLUMNS = ("label", "name"), ("y", "class")
_MASK_COLUMNS = {name for part in PARTS for name in (part, f"{part}_mask")}
_NO_FEATURES = {"id", *_NAME_COLUMNS, *_CLASS_COLUMNS, "split", *_MASK_COLUMNS}
_YES = {"1", "true", "yes", "1.0"}


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
    from edgewise.cli.read.typed_folder import is_typed, read_typed_folder

    if is_typed(folder):
        return read_typed_folder(folder)
    nodes, edges = read_table(folder, "nodes"), read_table(folder, "edges")
    found = read_nodes(nodes)
    attributes, names = read_edge_features(edges)
    data = Data(**found.attributes, edge_index=read_ends(edges, found, found), **attributes)
    if names:
        data.edge_feature_names = names
    called = found.called
    return Graphs(
        data,
        "node",
        digest_of(nodes.file, edges.file),
        called.ids,
        called.names,
        called.class_names,
        called.parts,
        unused_columns([*found.ignored]),
        edge_texts=read_edge_texts(edges),
    )


def unused_columns(columns: list[str]) -> tuple[str, ...]:
    """A note about columns that hold texts, if there are any."""
    return (f"Columns of texts, not used as features: {', '.join(columns)}.",) if columns else ()


# --- A table of nodes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeColumns:
    """What the columns of a table of nodes mean."""

    table: Table
    attributes: dict[str, Any]
    """`x` `[rows, features]`, `feature_names`, and `y` `[rows]` if the table has it."""
    called: NodeNames
    ignored: list[str]
    """Columns of texts that mean nothing."""


def read_nodes(table: Table) -> NodeColumns:
    """The columns of a table of nodes by their names."""
    ids = _ids(table)
    names = next((table.texts(column) for column in _NAME_COLUMNS if column in table), None)
    y, class_names = _classes(table)
    x, ignored = _features(table, _NO_FEATURES)
    if x is None:
        raise InputError(f"{table.file} has no column of numbers for features. Add one, for instance a constant 1.")
    feature_names = [name for name in table.columns if name not in {*_NO_FEATURES, *ignored}]
    attributes = {"x": x, **({} if y is None else {"y": y}), "feature_names": feature_names}
    return NodeColumns(table, attributes, NodeNames(ids, names or ids, class_names, _parts(table)), ignored)


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


# --- A table of edges ---------------------------------------------------------------------------------------------------


def read_ends(edges: Table, sources: NodeColumns, receivers: NodeColumns) -> Tensor:
    """`[2, edges]`: the rows of `source` and `target`, which are ids, or row numbers where nodes have no ids."""
    for column in ("source", "target"):
        if column not in edges:
            raise InputError(f"{edges.file} must have the columns source and target, got {', '.join(edges.columns)}.")
    both = (("source", sources), ("target", receivers))
    return torch.stack(
        [_ends_by_row(edges, *one) if one[1].called.ids is None else _ends_by_id(edges, *one) for one in both]
    )


def _ends_by_row(edges: Table, column: str, nodes: NodeColumns) -> Tensor:
    """`[edges]`: row numbers of nodes without ids."""
    ends, size = whole_numbers(edges, column), nodes.table.size
    outside = ((ends < 0) | (ends >= size)).nonzero().view(-1)
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{edges.where(row)} names {ends[row]} as {column}; {nodes.table.file} has no ids and {size} rows, so nodes are "
            f"0 to {size - 1}."
        )
    return ends


def _ends_by_id(edges: Table, column: str, nodes: NodeColumns) -> Tensor:
    """`[edges]`: the rows of the nodes that a column names by id; an id that the table of nodes does not have is an error."""
    place = {text: number for number, text in enumerate(nodes.called.ids or ())}
    texts = edges.texts(column)
    found = [place.get(text, -1) for text in texts]
    if -1 in found:
        row = found.index(-1)
        raise InputError(
            f"{edges.where(row)} names {texts[row]!r} as {column}, which is not an id in {nodes.table.file}."
        )
    return torch.tensor(found, dtype=torch.long)


def read_edge_texts(edges: Table) -> dict[str, list[str]]:
    """The columns of texts of a table of edges, such as a reference or a date."""
    _, ignored = _features(edges, {"source", "target", "weight"})
    return {name: edges.texts(name) for name in ignored}


def read_edge_features(edges: Table) -> tuple[dict[str, Any], list[str]]:
    """`edge_weight` from `weight`, and `edge_attr` from the other columns of numbers, as far as they exist; their names."""
    found: dict[str, Any] = {}
    if "weight" in edges:
        weight = numbers(edges, "weight")
        if weight is None:
            raise InputError(f"{edges.file}: column weight must hold numbers, got texts.")
        found["edge_weight"] = weight.float()
    known = {"source", "target", "weight"}
    attributes, ignored = _features(edges, known)
    if attributes is not None:
        found["edge_attr"] = attributes
    return found, [name for name in edges.columns if name not in {*known, *ignored}]
