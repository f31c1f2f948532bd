"""`Graphs`: the data of a command, one graph or several, with the names and parts that come with it.

Whatever was read becomes a `Graphs` (`as_graphs`), fits the task that was asked for (`as_task`) and is checked (`checked`).
Of a typed graph every node type has names and parts of its own; `of_type` takes the type that is explained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from edgewise.arguments import are_texts, one_of, shown
from edgewise.errors import InputError
from edgewise.graph.inputs import odd_kind, read_graph
from edgewise.graph.type_table import EdgeType, check_typed
from edgewise.store.graph_store import GraphStore

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class NodeNames:
    """What the nodes of one type are called, and the parts they are in."""

    ids: list[str] | None = None
    """An id for every node, each once: where ids exist, `--index` means these."""
    names: list[str] | None = None
    """A name for every node, to show; names may repeat."""
    class_names: list[str] | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    """`train`, `val`, `test` and the like: the positions of their nodes."""


@dataclass(frozen=True, eq=False)
class Graphs:
    """The data, and what is known about it besides tensors."""

    data: Any
    """A `Data`, a `HeteroData` or a `GraphStore`, whose nodes can be explained, or a list of graphs that can be explained."""
    task: str
    """`"node"`, `"graph"` or `"link"`."""
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
    types: Mapping[str, NodeNames] | None = None
    """Of a typed graph: the names and parts of every node type. Those of `explained` are in `ids`, `names` and so on."""
    explained: str | None = None
    """Of a typed graph: the node type that `--index` names."""
    edge_texts: Mapping[str, list[str]] = field(default_factory=dict)
    """Columns of texts of the table of edges: shown beside attributes, not used as features."""
    link: EdgeType | None = None
    """Of a typed graph: the edge type whose pairs `--link` names."""

    def of_type(self, name: str) -> "Graphs":
        """The same typed graph, about the nodes of one type."""
        own = (self.types or {}).get(name, NodeNames())
        return replace(self, explained=name, **vars(own))

    @property
    def node_names(self) -> Any:
        """The names of nodes, as results and pages take them: a list, of a typed graph by node type, of graphs by graph."""
        if not self.is_one and self.types is None:
            return {number: names for number in range(self.size) if (names := self.names_of(number))} or None
        if self.types is None:
            return self.names
        return {kind: called.names for kind, called in self.types.items() if called.names is not None} or None

    @property
    def node_ids(self) -> Any:
        """The ids of nodes, in the same form as their names; None where the data has none."""
        if self.types is None:
            return self.ids if self.is_one else None
        return {kind: called.ids for kind, called in self.types.items() if called.ids is not None} or None

    @cached_property
    def page_names(self) -> Any:
        """What a reader sees: the id and the name of every node, where there are both; in the same form."""
        if isinstance(self.data, GraphStore):  # names on disk are looked up one by one
            return self.node_names
        if self.types is None:
            return _id_and_name(self.ids, self.names) if self.is_one else self.node_names
        told = {kind: _id_and_name(called.ids, called.names) for kind, called in self.types.items()}
        return {kind: names for kind, names in told.items() if names is not None} or None

    def names_of(self, graph: int) -> list[str] | None:
        """The names of the nodes of one of several graphs, if it has `node_names`."""
        names = self.data[graph].get("node_names") if isinstance(self.data[graph], Data) else None
        return None if names is None else [str(name) for name in names]

    @property
    def is_one(self) -> bool:
        """Whether the data is one graph, whose nodes have ids and names: nodes and links are explained in one."""
        return self.task in ("node", "link")

    @property
    def size(self) -> int:
        """How many nodes (of a typed graph: of the explained type), or graphs, there are."""
        return int(self._nodes.num_nodes) if self.is_one else len(self.data)

    @property
    def _nodes(self) -> Any:
        """The graph, or the table of the explained type."""
        data = self.data.data if isinstance(self.data, GraphStore) else self.data
        return data if self.explained is None else data[self.explained]

    @property
    def labels(self) -> Tensor | None:
        """`[size]`: the class of each node or graph; `None` if the data does not have one for each, as of links."""
        if self.task == "link":
            return None
        if self.is_one:
            y = self._nodes.get("y")
            return y.view(-1) if isinstance(y, Tensor) and y.numel() == self.size else None
        parts = [graph.get("y") for graph in self.data]
        if any(not isinstance(y, Tensor) or y.numel() != 1 for y in parts):
            return None
        return torch.cat([y.view(1) for y in parts])

    @property
    def shape_hint(self) -> str:
        """The sizes that a model's factory may ask for, as a sentence: features and classes."""
        graph = self.data if self.is_one else self.data[0]
        graph = graph.data if isinstance(graph, GraphStore) else graph
        labels = self.labels
        stores = {f" of {name}": graph[name] for name in graph.node_types} if self.types is not None else {"": graph}
        widths = [f"{_width(store)} features{of}" for of, store in stores.items() if "x" in store]
        classes = (
            f" and {int(labels.max()) + 1} classes" if labels is not None and not labels.is_floating_point() else ""
        )
        return f" The data has {', '.join(widths)}{classes}."


def _id_and_name(ids: list[str] | None, names: list[str] | None) -> list[str] | None:
    """Each name after its id; alone where there is no id, or where the name holds it.

    >>> _id_and_name(["ACC-1", "ACC-2"], ["Ann", "ACC-2"])
    ['ACC-1 Ann', 'ACC-2']
    """
    if ids is None or names is None:
        return names
    return [name if own.lower() in name.lower() else f"{own} {name}" for own, name in zip(ids, names, strict=True)]


def _width(store: Any) -> int:
    """How many features a node has."""
    return int(store.x.size(-1)) if store.x.dim() > 1 else 1


def as_graphs(found: Any, digest: str, **more: Any) -> Graphs:
    """What a file held, as `Graphs`: a `Data` is a node task; a batch, a list or a `batch` vector is a graph task.

    `more` are further fields of `Graphs`, such as `names`. Nothing is checked here, see `checked`.
    """
    if isinstance(found, Batch):
        found = found.to_data_list()
    if isinstance(found, (list, tuple)):
        typed: dict[str, Any] = {"types": {}} if any(isinstance(graph, HeteroData) for graph in found) else {}
        return Graphs(list(found), "graph", digest, **more, **typed)
    if isinstance(found, HeteroData):
        return Graphs(found, "node", digest, **more, types={})
    if isinstance(found, Data) and isinstance(found.get("batch"), Tensor) and found.batch.numel():
        return Graphs(split(found), "graph", digest, **more)
    return Graphs(found, "node", digest, **more)


def split(data: Data) -> list[Data]:
    """The graphs that a `batch` vector tells apart, each with its nodes numbered from 0.

    A `y` with an entry for every graph is divided too: with `batch = [0, 0, 1]` and `y = [5, 7]`, the first graph has two
    nodes and `y = [5]`.
    """
    batch, ends = data.batch, data.edge_index
    _check_batch(batch)
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


def _check_batch(batch: Tensor) -> None:
    """Every graph that a `batch` vector names must have a node: counted before any graph is made."""
    if batch.is_floating_point() or batch.dim() != 1 or int(batch.min()) < 0:
        raise InputError("batch of the data must have the number of its graph for each node: whole numbers from 0 on.")
    named, there = int(batch.max()) + 1, len(batch.unique())
    if named != there:
        raise InputError(
            f"batch of the data names {named} graphs, but its {len(batch)} nodes are those of {there}. "
            f"Number the graphs from 0 on, without gaps."
        )


def as_task(found: Graphs, task: str | None) -> Graphs:
    """The same data for the task that was asked for: one graph may be either."""
    if task is None or task == found.task:
        return found
    one_of("task", task, ("node", "graph", "link"))
    if isinstance(found.data, GraphStore):
        raise InputError(f"A graph store is explained node by node, got --task {task}. Leave --task out.")
    if task == "graph":
        return replace(found, data=[found.data], task="graph", parts={}, ids=None, names=None, edge_texts={})
    if task == "link" and found.task == "node":
        return replace(found, task="link", parts={})
    if len(found.data) != 1:
        raise InputError(f"--task {task} needs one graph, and the data has {len(found.data)}. Use --task graph.")
    return replace(found, data=found.data[0], task=task, parts={})


def checked(found: Graphs) -> Graphs:
    """Refuse what cannot be explained, and add the parts that the data's masks name."""
    if isinstance(found.data, GraphStore):  # it was checked when it was built
        return found
    graphs = found.data if isinstance(found.data, list) else [found.data]
    if not graphs:
        raise InputError("The data has no graphs. At least one is required.")
    for number, graph in enumerate(graphs):
        if isinstance(graph, HeteroData):
            check_typed(graph)
        else:
            where = "data" if len(graphs) == 1 else f"data[{number}]"
            read_graph(graph, where)
            _check_names(graph, where)
    if found.is_one and found.types is None and found.names is None and (names := found.data.get("node_names")):
        found = replace(found, names=[str(name) for name in names])
    if found.task != "node" or found.parts or found.types:
        return found
    if found.types is not None:
        return _with_typed_masks(found)
    parts, notes = masks_of(found.data)
    return replace(found, parts=parts, notes=(*found.notes, *notes))


def _check_names(graph: Data, where: str) -> None:
    """Refuse names that are not one for each node."""
    names = graph.get("node_names")
    if names is not None and (isinstance(names, Tensor) or not are_texts(names) or len(names) != graph.num_nodes):
        listed = isinstance(names, (list, tuple)) and len(names) != graph.num_nodes
        raise InputError(
            f"`{where}.node_names` must be a list with a name for each of the {graph.num_nodes} nodes, got "
            f"{len(names) if listed else shown(names)}."
        )


def _with_typed_masks(found: Graphs) -> Graphs:
    """A typed graph with the parts that the masks of its node types name."""
    read = {name: masks_of(found.data[name]) for name in found.data.node_types}
    notes = dict.fromkeys(note for _, own in read.values() for note in own)
    types = {name: NodeNames(parts=parts) for name, (parts, _) in read.items()}
    return replace(found, types=types, notes=(*found.notes, *notes))


def masks_of(data: Any) -> tuple[dict[str, Tensor], list[str]]:
    """The positions of `train_mask`, `val_mask`, `test_mask`, and a note if they hold several splits."""
    parts: dict[str, Tensor] = {}
    notes: list[str] = []
    for part in PARTS:
        mask = data.get(f"{part}_mask")  # [nodes], or [nodes, splits]
        dense = isinstance(mask, Tensor) and not odd_kind(mask) and mask.layout == torch.strided and mask.numel()
        if not dense or mask.dim() not in (1, 2) or mask.size(0) != data.num_nodes:
            continue
        if mask.dim() == 2:
            notes = [f"The data has {mask.size(1)} splits; train, val and test are those of the first."]
            mask = mask[:, 0]
        parts[part] = mask.bool().nonzero().view(-1)
    return parts, notes
