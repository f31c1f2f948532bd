"""Sentence graphs (Graph-SST2) in their public raw format: one text file a table, node features as a pickled array."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import FileError

_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    """Builds numpy arrays and nothing else: a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise FileError(
                f"The node features are a pickle that asks for {module}.{name}; only an array is read from it."
            )
        return super().find_class(module, name)


def read_sentences(folder: Path, name: str = "Graph-SST2") -> tuple[list[Data], Tensor]:
    """The graphs, made undirected, and the part of each: 0 to train on, 1 to validate, 2 to test.

    `*_edge_index.txt` has a line `from to` for each edge, nodes of all graphs numbered on from 0; `*_node_indicator.txt` the
    number of each node's graph, from 1.
    """
    x = torch.from_numpy(_features(folder / f"{name}_node_features.pkl")).float()
    edges = torch.from_numpy(_table(folder, name, "edge_index")).view(-1, 2).t()
    graph = torch.from_numpy(_table(folder, name, "node_indicator")) - 1
    label, part = (torch.from_numpy(_table(folder, name, file)) for file in ("graph_labels", "split_indices"))
    _check(name, x, edges, graph, label, part)
    sizes = torch.bincount(graph, minlength=len(label))
    first = sizes.cumsum(0) - sizes
    edges = torch.cat([edges.flip(0), edges], dim=1)
    edges = edges[:, graph[edges[0]].argsort(stable=True)]
    counts = torch.bincount(graph[edges[0]], minlength=len(label)).tolist()
    parts = zip(x.split(sizes.tolist()), edges.split(counts, dim=1), first.tolist(), label.tolist(), strict=True)
    return [Data(x=rows, edge_index=some - start, y=torch.tensor([y])) for rows, some, start, y in parts], part


def _features(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        found = _ArrayUnpickler(file).load()
    if not isinstance(found, np.ndarray) or found.ndim != 2:
        raise FileError(f"{path.name} holds {type(found).__name__}; needed is an array with a row for each node.")
    return found


def _table(folder: Path, name: str, what: str) -> np.ndarray:
    return np.loadtxt(folder / f"{name}_{what}.txt", dtype=np.int64, ndmin=1)


def _check(name: str, x: Tensor, edges: Tensor, graph: Tensor, label: Tensor, part: Tensor) -> None:
    number = int(graph.max()) + 1
    if len(x) != len(graph) or int(edges.max()) >= len(graph):
        problem = f"{len(x)} rows of features and an edge of node {int(edges.max())} for {len(graph)} nodes"
    elif not len(label) == len(part) == number:
        problem = f"{len(label)} labels and {len(part)} parts for {number} graphs"
    elif bool((graph.diff() < 0).any()):
        problem = "nodes that are not in the order of their graphs"
    elif bool((graph[edges[0]] != graph[edges[1]]).any()):
        problem = "edges between graphs"
    else:
        return
    raise FileError(f"The raw files of {name} do not fit together: there are {problem}. Fetch them again.")
