"""Tables of typed graphs: types beside numbers, numbers counted within their types; and names of nodes beside both."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from edgewise.graph.type_table import TypeTable

_NODES = ("source", "receiver", "node")
_NAMED = ("index", "index_to", *_NODES)
BETWEEN = "__"
"""Between the parts of an edge type in a table: `user__rates__movie`."""

Columns = Mapping[str, np.ndarray]
NodeNames = Sequence[str] | Mapping[str, Sequence[str]] | None
"""A name for every node; of a typed graph by node type."""


def typed_columns(table: Columns, types: TypeTable) -> dict[str, np.ndarray]:
    """A table of the union with the types beside the numbers (`edge_type`, `source_type`, …), numbers counted within them.

    >>> types = TypeTable("movie", (("user", 3), ("movie", 2)), ((("user", "rates", "movie"), 4),))
    >>> typed_columns({"source": np.array([3]), "column": np.array([2])}, types)["source_type"].tolist()
    ['user']
    """
    found: dict[str, np.ndarray] = {}
    for name, numbers in table.items():
        if name == "index":
            found["index_type"] = np.full(len(numbers), types.explained, dtype=object).astype(str)
        elif name == "column":
            kinds = [BETWEEN.join(kind) for kind in types.edge_types]
            found["edge_type"], numbers = _located(kinds, types.edges_of(_tensor(numbers)))
        elif _is_node(name):
            found[f"{name}_type"], numbers = _located(types.node_types, types.nodes_of(_tensor(numbers)))
        found[name] = numbers
    return found


def _is_node(name: str) -> bool:
    """Whether a column holds nodes: the ends of an edge, or a step of a walk, `node_0`."""
    return name in _NODES or (name.startswith("node_") and name.removeprefix("node_").isdecimal())


def _tensor(numbers: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int64))


def _located(texts: Sequence[str], where: tuple[torch.Tensor, torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """The texts of types, and the numbers within them."""
    kind, number = (part.numpy() for part in where)
    return np.array([*texts, ""], dtype=str)[kind] if len(kind) else np.zeros(0, dtype=str), number


def union_columns(column: np.ndarray, edge_type: np.ndarray, types: TypeTable) -> np.ndarray:
    """`[n]`: columns of the union, from those of `typed_columns`."""
    starts = {BETWEEN.join(kind): types.edge_range(kind).start for kind in types.edge_types}
    texts, place = np.unique(edge_type.astype(str), return_inverse=True)
    return column + np.array([starts[str(text)] for text in texts], dtype=np.int64)[place.reshape(-1)]


def named_columns(columns: Columns, node_names: NodeNames) -> dict[str, np.ndarray]:
    """The table with the names of targets, sources and receivers added as columns (`index_name`, …), if there are names."""
    if node_names is None:
        return dict(columns)
    nodes = [name for name in columns if name in _NAMED or _is_node(name)]
    if isinstance(node_names, Mapping):
        nodes = [name for name in nodes if f"{name}_type" in columns]
    return {**columns, **{f"{name}_name": _names(columns, name, node_names) for name in nodes}}


def _names(columns: Columns, name: str, node_names: Any) -> np.ndarray:
    """The names of the nodes in one column; a node type without names has its numbers."""
    numbers = columns[name]
    if not isinstance(node_names, Mapping):
        return np.array(node_names, dtype=str)[numbers]
    found = numbers.astype(str).astype(object)
    for kind, names in node_names.items():
        rows = columns[f"{name}_type"] == kind
        found[rows] = np.array(names, dtype=object)[numbers[rows]]
    return found.astype(str)
