"""`--data`: one graph or several, with the names and parts that come with it.

`read_data` is the way in. It decides by what is given: a folder goes to `tables`, a `.pt` or `.npz` file to `graph_files`, a
name to `named_data`. All of them give a `Graphs`, which is checked here before anything long begins.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from edgewise.errors import FileError, InputError
from edgewise.graph.inputs import read_graph

PARTS = ("train", "val", "test")
_ENDINGS = (".pt", ".npz")


@dataclass(frozen=True, eq=False)
class Graphs:
    """The data, and what is known about it besides tensors."""

    data: Any
    """A `Data`, whose nodes can be explained, or a list of them, each of which can be explained."""
    task: str
    """`"node"` or `"graph"`."""
    digest: str
    """SHA-256 of the files, or of the tensors where there are no files."""
    ids: list[str] | None = None
    """An id for every node, each once: where ids exist, `--index` means these."""
    names: list[str] | None = None
    """A name for every node, to show; names may repeat."""
    class_names: list[str] | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    """`train`, `val`, `test` and the like: the positions of their nodes or graphs."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, such as columns that were not read."""
    model: Callable[[], nn.Module] | None = None
    """Trains a model, if the data set brings one."""

    @property
    def size(self) -> int:
        """How many nodes, or graphs, can be explained."""
        return int(self.data.num_nodes) if self.task == "node" else len(self.data)

    @property
    def labels(self) -> Tensor | None:
        """`[size]`: the class of each node or graph; `None` if the data does not have one for each."""
        if self.task == "node":
            y = self.data.get("y")
            return y.view(-1) if isinstance(y, Tensor) and y.numel() == self.size else None
        parts = [graph.get("y") for graph in self.data]
        if any(not isinstance(y, Tensor) or y.numel() != 1 for y in parts):
            return None
        return torch.cat([y.view(1) for y in parts])

    @property
    def shape_hint(self) -> str:
        """The sizes that a model's factory may ask for, as a sentence: features and classes."""
        graph = self.data if self.task == "node" else self.data[0]
        labels = self.labels
        classes = (
            f" and {int(labels.max()) + 1} classes" if labels is not None and not labels.is_floating_point() else ""
        )
        return f" The data has {graph.x.size(-1) if graph.x.dim() > 1 else 1} features{classes}."


def read_data(given: str, root: Path | None, task: str | None, seed: int) -> Graphs:
    """Read what `--data` names, and check it.

    Args:
        given: A file, a folder or the name of a data set.
        root: The folder of named data sets, see `named_data`.
        task: `"node"`, `"graph"`, or `None` to take what the data is.
        seed: For data sets that are generated.
    """
    path = Path(given).expanduser()
    if path.is_dir():
        from edgewise.cli.read.tables import read_folder

        found = read_folder(path)
    elif path.suffix in _ENDINGS:
        found = _read_file(path)
    elif path.is_file():
        raise FileError(
            f"--data must be a .pt, an .npz, or a folder with nodes.csv and edges.csv; got {path}, which ends in "
            f"{path.suffix!r}."
        )
    else:
        from edgewise.cli.read.named_data import read_named

        found = read_named(given, root, seed)
    return checked(_as_task(found, task))


def _read_file(path: Path) -> Graphs:
    from edgewise.cli.read.graph_files import read_arrays, read_torch

    if not path.is_file():
        raise FileError(f"There is no file {path} with data.")
    return read_arrays(path) if path.suffix == ".npz" else read_torch(path)


def as_graphs(found: Any, digest: str, **more: Any) -> Graphs:
    """What a file held, as `Graphs`: a `Data` is a node task; a batch, a list or a `batch` vector is a graph task."""
    if isinstance(found, Batch):
        return Graphs(found.to_data_list(), "graph", digest, **more)
    if isinstance(found, (list, tuple)):
        return Graphs(list(found), "graph", digest, **more)
    if isinstance(found, Data) and isinstance(found.get("batch"), Tensor) and found.batch.numel():
        return Graphs(split(found), "graph", digest, **more)
    return Graphs(found, "node", digest, **more)


def split(data: Data) -> list[Data]:
    """The graphs that a `batch` vector tells apart, each with its nodes numbered from 0.

    A `y` with an entry for every graph is divided too: with `batch = [0, 0, 1]` and `y = [5, 7]`, the first graph has two
    nodes and `y = [5]`.
    """
    batch, ends = data.batch, data.edge_index
    if bool((batch[ends[0]] != batch[ends[1]]).any()):
        raise InputError("batch and edge_index of the data do not fit: some edges join two graphs.")
    count = int(batch.max()) + 1
    graphs = []
    for graph in range(count):
        part = data.subgraph(batch == graph)
        del part.batch
        if isinstance(data.get("y"), Tensor) and data.y.numel() == count != batch.numel():
            part.y = data.y.view(-1)[graph : graph + 1]
        graphs.append(part)
    return graphs


def _as_task(found: Graphs, task: str | None) -> Graphs:
    """The same data for the task that was asked for: one graph may be either."""
    if task is None or task == found.task:
        return found
    if task == "graph":
        return replace(found, data=[found.data], task="graph", parts={}, ids=None, names=None)
    if task == "node" and len(found.data) == 1:
        return replace(found, data=found.data[0], task="node", parts={})
    if task == "node":
        raise InputError(f"--task node needs one graph, and the data has {len(found.data)}. Use --task graph.")
    return replace(found, task=task)  # unknown: `explain` lists the known ones


def checked(found: Graphs) -> Graphs:
    """Refuse what cannot be explained, and add the parts that the data's masks name."""
    graphs = found.data if isinstance(found.data, list) else [found.data]
    if not graphs:
        raise InputError("The data has no graphs. At least one is required.")
    for number, graph in enumerate(graphs):
        read_graph(graph, "data" if len(graphs) == 1 else f"data[{number}]")
    if found.task != "node" or found.parts:
        return found
    parts, notes = _masks(found.data)
    return replace(found, parts=parts, notes=(*found.notes, *notes))


def _masks(data: Data) -> tuple[dict[str, Tensor], list[str]]:
    """The positions of `train_mask`, `val_mask`, `test_mask`, and a note if they hold several splits."""
    parts: dict[str, Tensor] = {}
    notes: list[str] = []
    for part in PARTS:
        mask = data.get(f"{part}_mask")  # [nodes], or [nodes, splits]
        if not isinstance(mask, Tensor) or mask.size(0) != data.num_nodes:
            continue
        if mask.dim() == 2:
            notes = [f"The data has {mask.size(1)} splits; train, val and test are those of the first."]
            mask = mask[:, 0]
        parts[part] = mask.bool().nonzero().view(-1)
    return parts, notes
