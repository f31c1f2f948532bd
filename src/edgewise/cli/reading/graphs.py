"""What `--data` names: one graph, or several, with the names and parts that come with it."""

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
    """A `Data`, whose nodes can be explained, or a list of them, each of which can."""
    task: str
    digest: str
    """SHA-256 of the files; of the tensors, where there are none."""
    ids: list[str] | None = None
    """Of the nodes, each once: `--index` means these where they exist."""
    names: list[str] | None = None
    """Of the nodes, for people; may repeat."""
    class_names: list[str] | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Numbers of the nodes or graphs to train on, validate with, test."""
    notes: tuple[str, ...] = ()
    model: Callable[[], nn.Module] | None = None
    """Trains a model for it, where the data set brings one."""

    @property
    def size(self) -> int:
        """How many nodes, or graphs, can be explained."""
        return int(self.data.num_nodes) if self.task == "node" else len(self.data)

    @property
    def labels(self) -> Tensor | None:
        """`[size]`: the class of each, as far as the data says."""
        if self.task == "node":
            y = self.data.get("y")
            return y.view(-1) if isinstance(y, Tensor) and y.numel() == self.size else None
        parts = [graph.get("y") for graph in self.data]
        if any(not isinstance(y, Tensor) or y.numel() != 1 for y in parts):
            return None
        return torch.cat([y.view(1) for y in parts])

    @property
    def shape_hint(self) -> str:
        """The numbers that a factory may ask for."""
        graph = self.data if self.task == "node" else self.data[0]
        labels = self.labels
        classes = (
            f" and {int(labels.max()) + 1} classes" if labels is not None and not labels.is_floating_point() else ""
        )
        return f" The data has {graph.x.size(-1) if graph.x.dim() > 1 else 1} features{classes}."


def read_data(given: str, root: Path | None, task: str | None, seed: int) -> Graphs:
    """A file, a folder or a name; checked, so that an error names what is wrong before anything long begins."""
    path = Path(given).expanduser()
    if path.is_dir():
        from edgewise.cli.reading.tables import read_folder

        found = read_folder(path)
    elif path.suffix in _ENDINGS:
        found = _read_file(path)
    elif path.is_file():
        raise FileError(
            f"{path} ends in {path.suffix!r}; known are .pt, .npz, and a folder with nodes.csv and edges.csv."
        )
    else:
        from edgewise.cli.reading.named import read_named

        found = read_named(given, root, seed)
    return checked(_as_task(found, task))


def _read_file(path: Path) -> Graphs:
    if not path.is_file():
        raise FileError(f"There is no file {path} with data.")
    if path.suffix == ".npz":
        from edgewise.cli.reading.arrays import read_arrays

        return read_arrays(path)
    from edgewise.cli.reading.torch_files import read_torch

    return read_torch(path)


def as_graphs(found: Any, digest: str, **more: Any) -> Graphs:
    """A `Data` or a batch, a list or tuple of `Data`."""
    if isinstance(found, Batch):
        return Graphs(found.to_data_list(), "graph", digest, **more)
    if isinstance(found, (list, tuple)):
        return Graphs(list(found), "graph", digest, **more)
    if isinstance(found, Data) and isinstance(found.get("batch"), Tensor) and found.batch.numel():
        return Graphs(split(found), "graph", digest, **more)
    return Graphs(found, "node", digest, **more)


def split(data: Data) -> list[Data]:
    """The graphs that a `batch` vector tells apart, each with its nodes numbered from 0."""
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
    if task is None or task == found.task:
        return found
    if task == "graph":
        return replace(found, data=[found.data], task="graph", parts={}, ids=None, names=None)
    if task == "node" and len(found.data) == 1:
        return replace(found, data=found.data[0], task="node", parts={})
    if task == "node":
        raise InputError(f"--task node needs one graph; the data has {len(found.data)}. Use --task graph.")
    return replace(found, task=task)  # unknown: `explain` lists the known ones


def checked(found: Graphs) -> Graphs:
    """Refuse what cannot be explained, and add the parts that masks tell."""
    graphs = found.data if isinstance(found.data, list) else [found.data]
    if not graphs:
        raise InputError("The data has no graphs; at least one is needed.")
    for number, graph in enumerate(graphs):
        read_graph(graph, "data" if len(graphs) == 1 else f"data[{number}]")
    if found.task != "node" or found.parts:
        return found
    parts, notes = _masks(found.data)
    return replace(found, parts=parts, notes=(*found.notes, *notes))


def _masks(data: Data) -> tuple[dict[str, Tensor], list[str]]:
    parts: dict[str, Tensor] = {}
    notes: list[str] = []
    for part in PARTS:
        mask = data.get(f"{part}_mask")
        if not isinstance(mask, Tensor) or mask.size(0) != data.num_nodes:
            continue
        if mask.dim() == 2:
            notes = [f"The data has {mask.size(1)} splits; train, val and test are those of the first."]
            mask = mask[:, 0]
        parts[part] = mask.bool().nonzero().view(-1)
    return parts, notes
