"""Tables of typed graphs: types beside numbers, numbers counted within their types; and names of nodes beside both."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewise.graph.type_table import TypeTable

_NODES = ("source", "receiver", "node", "index_to")
_NAMED = ("index", *_NODES)
BETWEEN = "__"
"""Between the parts of an edge type in a table: `user__rates__movie`."""

Columns = Mapping[str, np.ndarray]
NodeNames = Sequence[str] | Mapping[str, Sequence[str]] | None
"""A name for every node; of a typed graph by node type."""


def typed_columns(table: Columns, types: Sequence[TypeTable]) -> dict[str, np.ndarray]:
    """A table of unions with the types beside the numbers (`edge_type`, `source_type`, …), numbers counted within them.

    `types` is one table, or one for each graph: then the column `position` says which graph a row is about.

    >>> types = TypeTable("movie", (("user", 3), ("movie", 2)), ((("user", "rates", "movie"), 4),))
    >>> typed_columns({"source": np.array([3]), "column": np.array([2])}, [types])["source_type"].tolist()
    ['user']
    """
    found: dict[str, np.ndarray] = {}
    for name, numbers in table.items():
        if name == "index" and types[0].explained:
            found["index_type"] = np.full(len(numbers), types[0].explained, dtype=object).astype(str)
        elif name == "column":
            found["edge_type"], numbers = _located(numbers, table, [_edge_starts(one) for one in types])
        elif _is_node(name):
            found[f"{name}_type"], numbers = _located(numbers, table, [_node_starts(one) for one in types])
        found[name] = numbers
    return found


def _is_node(name: str) -> bool:
    """Whether a column holds nodes: the ends of an edge, or a step of a walk, `node_0`."""
    return name in _NODES or (name.startswith("node_") and name.removeprefix("node_").isdecimal())


def _node_starts(types: TypeTable) -> list[tuple[str, int]]:
    return sorted(((name, types.node_range(name).start) for name in types.node_types), key=lambda one: one[1])


def _edge_starts(types: TypeTable) -> list[tuple[str, int]]:
    return [(BETWEEN.join(kind), types.edge_range(kind).start) for kind in types.edge_types]


def _located(numbers: np.ndarray, table: Columns, types: list[list[tuple[str, int]]]) -> tuple[np.ndarray, np.ndarray]:
    """The type of each number, and the number within it; a type begins at its start, all graphs have the same types.

    A type without nodes begins where the next one does: of types that begin at or before a number the last one counts.
    """
    starts = np.array([[start for _, start in one] for one in types], dtype=np.int64)  # [graphs, types]
    starts = starts[table["position"] if len(types) > 1 else np.zeros(len(numbers), dtype=np.int64)]  # [rows, types]
    kind = (numbers[:, None] >= starts).sum(axis=1) - 1
    texts = np.array([text for text, _ in types[0]], dtype=str)
    if not len(numbers):
        return np.zeros(0, dtype=str), numbers
    return texts[kind], numbers - np.take_along_axis(starts, kind[:, None], axis=1)[:, 0]


def union_columns(
    column: np.ndarray, edge_type: np.ndarray, position: np.ndarray, types: Sequence[TypeTable]
) -> np.ndarray:
    """`[n]`: columns of the union, from those of `typed_columns`."""
    known = {text: place for place, (text, _) in enumerate(_edge_starts(types[0]))}
    starts = np.array([[start for _, start in _edge_starts(one)] for one in types], dtype=np.int64)
    texts, which = np.unique(edge_type.astype(str), return_inverse=True)
    kind = np.array([known[str(text)] for text in texts], dtype=np.int64)[which.reshape(-1)]
    return column + starts[position if len(types) > 1 else np.zeros(len(column), dtype=np.int64), kind]


def named_columns(columns: Columns, node_names: NodeNames, node_ids: NodeNames = None) -> dict[str, np.ndarray]:
    """The table with names and ids of targets, sources and receivers as columns (`index_name`, `index_id`, …), where known."""
    found = dict(columns)
    for ending, texts in (("name", node_names), ("id", node_ids)):
        nodes = [name for name in columns if name in _NAMED or _is_node(name)] if texts is not None else []
        if isinstance(texts, Mapping):
            nodes = [name for name in nodes if f"{name}_type" in columns]
        found |= {f"{name}_{ending}": _names(columns, name, texts) for name in nodes}
    return found


def _names(columns: Columns, name: str, node_names: Any) -> np.ndarray:
    """The names of the nodes in one column; a node type without names has its numbers."""
    numbers = columns[name]
    if not isinstance(node_names, Mapping):
        known, place = np.unique(
            numbers, return_inverse=True
        )  # names may be on disk: only those that are needed are read
        return np.array([str(node_names[int(one)]) for one in known], dtype=str)[place]
    found = numbers.astype(str).astype(object)
    for kind, names in node_names.items():
        rows = columns[f"{name}_type"] == kind
        found[rows] = [str(names[int(number)]) for number in numbers[rows]]
    return found.astype(str)
