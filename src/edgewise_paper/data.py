"""The paper's real data sets, with the parts that are trained on and tested.

`read_node_set` and `read_graph_set` are the front doors. Raw files come from a `Source`: the user's folder, which is never
written to, or PyG's own download into a cache. Graph-SST2, which PyG does not know, is read here (`read_sentences`).
"""

import os
import pickle
import shutil
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, TUDataset, WebKB

from edgewise.arguments import one_of
from edgewise.errors import FileError, InputError
from edgewise.files import VARIABLE, user_cache
from edgewise.random_numbers import seeded

NODE_SETS = ("Cora", "CiteSeer", "Cornell", "Texas", "Wisconsin")
GRAPH_SETS = ("MUTAG", "PROTEINS", "Graph-SST2")
SPLIT = 0  # the paper uses the first of the ten splits of geom-gcn


@dataclass(frozen=True, eq=False)
class NodeSet:
    """One graph whose nodes are classified; `training` and `test` are node numbers."""

    name: str
    data: Data
    training: Tensor
    test: Tensor
    num_classes: int


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs of two classes."""

    name: str
    graphs: list[Data]
    part: Tensor | None = None
    """`[graphs]`: 0 to train on, 1 to validate, 2 to test, where the data set brings its own split."""

    def split(self, seed: int) -> tuple[Tensor, Tensor]:
        """Numbers of the graphs to train on and to test: the data set's own, or 60% and 20% after a shuffle."""
        if self.part is not None:
            return (self.part == 0).nonzero().view(-1), (self.part == 2).nonzero().view(-1)
        with seeded(seed):
            order = torch.randperm(len(self.graphs))
        first, second = int(0.6 * len(order)), int(0.8 * len(order))
        return order[:first], order[second:]


# --- Raw files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Raw:
    """The raw files of a data set."""

    folder: str
    """Under the root, as PyG lays it out."""
    files: tuple[str, ...]
    url: str
    """Where to get them."""


def _splits(name: str) -> tuple[str, ...]:
    """The ten splits of geom-gcn; all are listed because PyG reads all."""
    return tuple(f"{name}_split_0.6_0.2_{number}.npz" for number in range(10))


def _planetoid(name: str) -> Raw:
    """Cora or CiteSeer."""
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    lower = name.lower()
    return Raw(
        f"{name}/geom-gcn/raw",
        (*(f"ind.{lower}.{part}" for part in parts), *_splits(lower)),
        "https://github.com/kimiyoung/planetoid (data/) and https://github.com/bingzhewei/geom-gcn (splits/)",
    )


def _webkb(name: str) -> Raw:
    """Cornell, Texas or Wisconsin."""
    lower = name.lower()
    return Raw(
        f"{lower}/raw",
        ("out1_node_feature_label.txt", "out1_graph_edges.txt", *_splits(lower)),
        f"https://github.com/bingzhewei/geom-gcn (new_data/{lower}/ and splits/)",
    )


def _tu(name: str, *parts: str) -> Raw:
    """A data set of TU Dortmund, with the tables that it has besides the usual four."""
    every = ("A", "graph_indicator", "graph_labels", "node_labels", *parts)
    files = tuple(f"{name}_{part}.txt" for part in every)
    return Raw(f"{name}/raw", files, f"https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip")


def _sentences(name: str) -> Raw:
    """Graph-SST2."""
    files = ("node_features.pkl", "edge_index.txt", "node_indicator.txt", "graph_labels.txt", "split_indices.txt")
    return Raw(
        f"{name}/raw", tuple(f"{name}_{file}" for file in files), "https://github.com/divelab/DIG (xgraph datasets)"
    )


RAW = {
    **{name: _planetoid(name) for name in ("Cora", "CiteSeer")},
    **{name: _webkb(name) for name in ("Cornell", "Texas", "Wisconsin")},
    "MUTAG": _tu("MUTAG", "edge_labels"),
    "PROTEINS": _tu("PROTEINS", "node_attributes"),
    "Graph-SST2": _sentences("Graph-SST2"),
}


class Source:
    """Raw files as PyG wants them: under a root that may be written to.

    Args:
        data: The user's folder; None: the variable EDGEWISE_DATA, and without that PyG downloads into the user's cache.
        cache: The root if the user has a folder; whose files are linked into it.
    """

    def __init__(self, data: Path | None, cache: Path) -> None:
        given = data or os.environ.get(VARIABLE)
        self.given = Path(given).expanduser().resolve() if given else None
        self.root = cache if self.given else user_cache()
        if self.given and not self.given.is_dir():
            raise FileError(f"The data folder {self.given} does not exist. Check --data or the variable {VARIABLE}.")

    def missing(self, name: str) -> list[str]:
        """Names of raw files that are not in the user's folder (without a folder: not in the cache)."""
        raw = RAW[name]
        folder = (self.given or self.root) / raw.folder
        return [file for file in raw.files if not (folder / file).is_file()]

    def prepare(self, name: str) -> Path:
        """A root for PyG with the raw files of `name` in place; the user's files are linked, not touched."""
        one_of("data set", name, RAW, error=InputError)
        if self.given is None:
            return self.root  # PyG downloads what is not there
        raw, missing = RAW[name], self.missing(name)
        if missing:
            raise _incomplete(name, missing, self.given)
        inside = self.root / raw.folder
        inside.mkdir(parents=True, exist_ok=True)
        for file in raw.files:
            _link(self.given / raw.folder / file, inside / file)
        return self.root

    def read(self, name: str, reader: Any) -> Any:
        """Call `reader(root)` without PyG's messages; if a download fails, the error names the files to fetch by hand."""
        root = self.prepare(name)
        try:
            with redirect_stderr(StringIO()):  # PyG reports its own progress there
                return reader(str(root))
        except (OSError, RuntimeError) as error:
            missing = self.missing(name)
            if missing:
                raise _incomplete(name, missing, self.given or self.root, error) from error
            raise


def _link(source: Path, link: Path) -> None:
    """Make `link` point to `source`, or be a copy of it."""
    if link.is_file() and link.samefile(source):
        return
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(source)
    except OSError:  # a file system without links
        shutil.copyfile(source, link)


def _incomplete(name: str, missing: list[str], where: Path, reason: Exception | None = None) -> FileError:
    """The error that says which raw files are missing and where to get them."""
    raw = RAW[name]
    listed = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    because = f" (the download failed: {reason})" if reason else ""
    return FileError(
        f"{name} is not complete in {where}{because}. Missing: {listed}. Get the raw files from {raw.url}, put them into "
        f"DIR/{raw.folder}/ and use --data DIR, or set {VARIABLE}=DIR."
    )


# --- Reading a data set ------------------------------------------------------------------------------------------------


def read_node_set(name: str, source: Source) -> NodeSet:
    """Read one of `NODE_SETS`: Cora and CiteSeer with the splits of geom-gcn, or a WebKB graph with its own."""
    if name in ("Cora", "CiteSeer"):
        found = source.read(name, lambda root: Planetoid(root, name, split="geom-gcn"))
    else:
        found = source.read(name, lambda root: WebKB(root, name))
    graph = found[0]
    training, test = (mask[:, SPLIT].bool().nonzero().view(-1) for mask in (graph.train_mask, graph.test_mask))
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    return NodeSet(name, data, training, test, int(graph.y.max()) + 1)


def read_graph_set(name: str, source: Source) -> GraphSet:
    """Read one of `GRAPH_SETS`: molecules, proteins, or sentences in their raw format."""
    if name == "Graph-SST2":
        root = source.prepare(name)
        graphs, part = read_sentences(Path(root) / RAW[name].folder, name)
        return GraphSet(name, graphs, part)
    found = source.read(name, lambda root: TUDataset(root, name))
    return GraphSet(name, [_plain(graph) for graph in found])


def _plain(graph: Data) -> Data:
    """A copy with what the model is given and no more; not a view of the collated graphs."""
    kept = {key: graph[key].clone() for key in ("x", "edge_index", "edge_attr", "y") if graph.get(key) is not None}
    return Data(**kept)


# --- Graph-SST2 in its public raw format: one text file a table, node features as a pickled array ----------------------

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
                f"The node features must be a pickled array, got a pickle that loads {module}.{name}, which is not allowed."
            )
        return super().find_class(module, name)


def read_sentences(folder: Path, name: str = "Graph-SST2") -> tuple[list[Data], Tensor]:
    """The graphs, made undirected, and the part of each, `[graphs]`: 0 to train on, 1 to validate, 2 to test.

    `*_edge_index.txt` has a line `from to` for each edge, with the nodes of all graphs numbered consecutively from 0;
    `*_node_indicator.txt` has the number of each node's graph, from 1.
    """
    x = torch.from_numpy(_features(folder / f"{name}_node_features.pkl")).float()  # [N, d], nodes of all graphs
    edges = torch.from_numpy(_table(folder, name, "edge_index")).view(-1, 2).t()  # [2, E]
    graph = torch.from_numpy(_table(folder, name, "node_indicator")) - 1  # [N]
    label, part = (torch.from_numpy(_table(folder, name, file)) for file in ("graph_labels", "split_indices"))
    _check(name, x, edges, graph, label, part)
    sizes = torch.bincount(graph, minlength=len(label))  # [graphs]
    first = sizes.cumsum(0) - sizes  # the first node of each graph
    edges = torch.cat([edges.flip(0), edges], dim=1)
    edges = edges[:, graph[edges[0]].argsort(stable=True)]
    counts = torch.bincount(graph[edges[0]], minlength=len(label)).tolist()
    parts = zip(x.split(sizes.tolist()), edges.split(counts, dim=1), first.tolist(), label.tolist(), strict=True)
    return [Data(x=rows, edge_index=some - start, y=torch.tensor([y])) for rows, some, start, y in parts], part


def _features(path: Path) -> np.ndarray:
    """The pickled array of node features, `[N, d]`."""
    with path.open("rb") as file:
        found = _ArrayUnpickler(file).load()
    if not isinstance(found, np.ndarray) or found.ndim != 2:
        raise FileError(f"{path.name} must be an array with a row for each node, got {type(found).__name__}.")
    return found


def _table(folder: Path, name: str, what: str) -> np.ndarray:
    """A text file of whole numbers, a line each; two in a line are two columns."""
    return np.loadtxt(folder / f"{name}_{what}.txt", dtype=np.int64, ndmin=1)


def _check(name: str, x: Tensor, edges: Tensor, graph: Tensor, label: Tensor, part: Tensor) -> None:
    """Refuse raw files that do not fit together."""
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
    raise FileError(f"The raw files of {name} do not fit together: they have {problem}. Download them again.")
