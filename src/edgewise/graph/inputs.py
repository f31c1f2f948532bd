"""What the user passes, checked before any long work: graphs, index, devices.

`read_graph` (node tasks), `read_graphs` (graph tasks) and `read_index` return plain, checked values, or raise an `InputError`
that says what is needed, what came and what to use. Nothing here changes the caller's objects.
"""

import copy
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data, Dataset, HeteroData
from torch_geometric.data.data import BaseData

from edgewise.arguments import shown, whole_number
from edgewise.arrays import is_endless
from edgewise.errors import InputError
from edgewise.pyg_internals import attributes

TASKS = ("node", "graph", "link")

_AT_ONCE = 2**20
"""Numbers of graphs that are checked together."""
_MOST_NODES = 2**40
_MOST_REPEATED = 2**28
"""Numbers that features may have in less memory than they take: rows that are views of one."""


def read_graph(data: Any, where: str = "data") -> Data:
    """One graph, checked in full: structure and values."""
    graph = read_structure(data, where)
    check_values(graph, where)
    return graph


def read_structure(data: Any, where: str = "data") -> Data:
    """A shallow copy of one graph with a plain, checked `edge_index`; the caller's object and tensors stay untouched.

    `where` is what the caller calls the graph, for the error texts: `data`, or `data[3]` in a list. Features are not looked
    at: where a part of a large graph is explained, values are checked there alone (`check_values`).

    >>> read_structure(Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.ones(3)))
    Traceback (most recent call last):
    edgewise.errors.InputError: `data.edge_weight` must have 2 rows, one for each edge, got shape [3].
    """
    _check_kind(data, where)
    x, edge_index = data.get("x"), data.get("edge_index")
    if x is None and (nodes := _nodes_without_features(data, where)) is not None:
        data, x = copy.copy(data), torch.empty(nodes, 0, dtype=torch.bool, device=getattr(edge_index, "device", None))
        data.x = x
    if not isinstance(x, Tensor):
        pair = isinstance(x, (tuple, list))
        raise InputError(
            f"`{where}.x` must be a tensor of node features, [nodes, features], got {in_words(x)}. "
            + (
                "Use one tensor for all nodes, torch.cat([x_source, x_target]), with edge_index numbered to match."
                if pair
                else "Use the features that the model was trained on; where it reads none, set data.num_nodes."
            )
        )
    _check_same_device(data, where)
    _check_dense(data, where)
    if x.dim() < 1:
        raise InputError(
            f"`{where}.x` must have a row for each node, [nodes, features], got {in_words(x)}. "
            f"Use x.view(1, 1) if this is one node with one feature."
        )
    _check_count(attributes(data).get("num_nodes"), x, where)
    edge_index = _plain_edge_index(edge_index, where)
    _check_edges(edge_index, x.size(0), where)
    _check_lengths(data, x.size(0), edge_index.size(1), where)
    return _plain_copy(data, edge_index, x.size(0))


def said_nodes(table: Any, where: str) -> int | None:
    """How many nodes a graph, or one type of it, has, by its `num_nodes` or else by PyG's guess.

    >>> said_nodes(Data(num_nodes="7"), "data")
    Traceback (most recent call last):
    edgewise.errors.InputError: `data.num_nodes` must be an integer ≥ 0, got '7'.
    """
    said = attributes(table).get("num_nodes") if isinstance(table, Data) else table.get("num_nodes")
    if said is None:
        guessed: int | None = table.num_nodes
        return guessed
    said = said.item() if isinstance(said, Tensor) and said.dim() == 0 and not odd_kind(said) else said
    nodes: int = whole_number(f"{where}.num_nodes", said, at_least=0, error=InputError)
    if nodes > _MOST_NODES:
        raise InputError(f"`{where}.num_nodes` must be at most {_MOST_NODES}, got {nodes}.")
    return nodes


def _nodes_without_features(data: Data, where: str) -> int | None:
    """How many nodes there are where there is no `x`; None if nothing says so but the edges."""
    if data.get("num_nodes") is not None:
        return said_nodes(data, where)
    known = (data.get(key) for key in ("z", "pos", "node_type", "batch", "y"))
    return next((len(value) for value in known if isinstance(value, Tensor) and value.dim() > 0), None)


def with_count(data: Any, num_nodes: int) -> Any:
    """Data of which PyG would have to guess how many nodes there are, told; others as they are."""
    if not isinstance(data, Data) or data.get("x") is not None or data.get("num_nodes") is not None:
        return data
    told = copy.copy(data)
    told.num_nodes = num_nodes
    return told


def is_stand_in(x: Tensor) -> bool:
    """Whether this stands in for features that the data do not have: `[nodes, 0]` of torch.bool. No model is given it."""
    return x.dtype == torch.bool and x.dim() == 2 and x.size(1) == 0


def _plain_copy(data: Data, edge_index: Tensor, num_nodes: int) -> Data:
    """The graph with this `edge_index`, without what would contradict it, and with tensors whose changes can be noticed."""
    graph = copy.copy(data)
    for key in ("adj_t", "ptr"):  # a sparse twin of edge_index, and what a Batch leaves
        if key in graph:
            del graph[key]
    graph.edge_index, graph.num_nodes = edge_index, num_nodes
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor) and value.is_inference():  # such tensors have no version to watch; a copy has
            with torch.inference_mode(mode=False):
                graph[key] = value.clone()
    return graph


def _check_kind(data: Any, where: str) -> None:
    """One homogeneous graph of PyG, nothing else."""
    if isinstance(data, HeteroData):
        raise InputError(
            f"`{where}` must be a homogeneous graph here, got HeteroData: typed graphs are explained by explain(model, data, "
            f"index=('paper', 3)), node by node. Use {where}.to_homogeneous() with a model that takes it."
        )
    if not isinstance(data, Data):
        raise InputError(
            f"`{where}` must be torch_geometric.data.Data(x=..., edge_index=...), got {type(data).__name__}. "
            + (_instead_of_loader(data) or "Use task='graph' for several graphs: a list of Data or a Dataset.")
        )


def _instead_of_loader(data: Any) -> str:
    """What to use where a loader came; empty for anything else.

    A loader gives parts of the data in any order, so that an `index` would mean nothing.
    """
    if not isinstance(data, DataLoader):
        return ""
    if isinstance(getattr(data, "data", None), BaseData):  # NeighborLoader and its family sample from one graph
        return "Use the graph that it samples from, loader.data; for a node only its neighbourhood is run anyway."
    return "Use the data that it loads: loader.dataset with task='graph', or one graph of it, loader.dataset[0]."


def in_words(value: Any) -> str:
    """What came, in a few words: "a tensor of shape [3, 1], torch.float32", "None", "list"."""
    if value is None:
        return "None"
    if not isinstance(value, Tensor):
        return type(value).__name__
    if kind := odd_kind(value):
        return f"a {kind} tensor"
    return f"a tensor of shape {list(value.shape)}, {value.dtype}"


def odd_kind(value: Tensor) -> str:
    """What kind of a tensor it is that most of torch cannot compute with, has no numbers or no end; empty for the others."""
    if value.is_nested:
        return "nested"
    if value.is_quantized:
        return "quantised"
    if value.is_meta:
        return "meta"
    if value.element_size() == 1 and value.is_floating_point():
        return "float8"
    if value.layout == torch.strided and is_endless(value, _MOST_REPEATED):
        return "repeated"
    return "masked" if hasattr(value, "_masked_mask") else ""


def _plain_edge_index(edge_index: Any, where: str) -> Tensor:
    """`[2, E]` of int64 as a plain tensor; sparse adjacencies are refused, because layers then send no messages."""
    if edge_index is None:
        raise InputError(
            f"`{where}.edge_index` must be a tensor [2, edges], got None. Does the model build its edges itself, from "
            f"positions say (SchNet)? Build them before it, put them into {where}.edge_index, and let the model use those. "
            f"From a sparse adjacency torch_geometric.utils.to_edge_index(adj) makes them."
        )
    if isinstance(edge_index, Tensor) and (kind := odd_kind(edge_index)):
        raise InputError(f"`{where}.edge_index` must be a plain tensor [2, edges] of torch.int64, got a {kind} one.")
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise InputError(
            f"`{where}.edge_index` must be a plain tensor [2, edges], got {type(edge_index).__name__}: a sparse adjacency "
            f"takes a fused path, which has no messages to weight. Use "
            f"{where}.edge_index, _ = torch_geometric.utils.to_edge_index(adj_t), with rows and columns swapped if it was "
            f"transposed."
        )
    if hasattr(edge_index, "as_tensor"):
        edge_index = edge_index.as_tensor()  # torch_geometric.EdgeIndex may take a fused path
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise InputError(
            f"`{where}.edge_index` must be [2, edges] of torch.int64, got {in_words(edge_index)}. "
            f"Use edge_index.long(), or edge_index.t().contiguous() if it is [edges, 2]."
        )
    return edge_index


def _check_dense(data: Data, where: str) -> None:
    """What a model reads is dense: rows of a sparse tensor cannot be cut out or compared."""
    for key in ("x", "edge_attr", "edge_weight"):
        value = data.get(key)
        if isinstance(value, Tensor) and (kind := odd_kind(value)):
            raise InputError(
                f"`{where}.{key}` must be a plain tensor of numbers, got a {kind} one. Use float32, a row for each."
            )
        if isinstance(value, Tensor) and value.layout != torch.strided:
            raise InputError(
                f"`{where}.{key}` must be a dense tensor, got a sparse one ({value.layout}). "
                f"Use {where}.{key} = {where}.{key}.to_dense()."
            )


def _check_count(said: Any, x: Any, where: str) -> None:
    """A number of nodes that the data says must be that of the rows of `x`."""
    if said is not None and isinstance(x, Tensor) and x.dim() and said != x.size(0):
        raise InputError(
            f"`{where}.num_nodes` says {shown(said)}, and x has {x.size(0)} rows. Leave num_nodes out, or add the missing rows."
        )


def _check_edges(edge_index: Tensor, num_nodes: int, where: str) -> None:
    """Both ends of every edge exist: 0 ≤ node < N."""
    if edge_index.numel() == 0:
        return
    low, high = (int(end) for end in edge_index.aminmax())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"`{where}.edge_index` must name nodes from 0 to {num_nodes - 1} (x has {num_nodes} rows), "
            f"got {low if low < 0 else high}. Drop those columns, or add the missing rows to x."
        )


def _check_lengths(data: Data, num_nodes: int, num_edges: int, where: str) -> None:
    """Attributes of edges have E rows, those of nodes have N."""
    lengths = {"edge_attr": num_edges, "edge_weight": num_edges, "batch": num_nodes}
    for key, length in lengths.items():
        value = data.get(key)
        if isinstance(value, Tensor) and (value.dim() == 0 or value.size(0) != length):
            of = "edge" if key.startswith("edge") else "node"
            raise InputError(
                f"`{where}.{key}` must have {length} rows, one for each {of}, got shape {list(value.shape)}."
            )


def _check_same_device(data: Data, where: str) -> None:
    """The tensors that a model reads are on one device."""
    tensors = (data.get(key) for key in ("x", "edge_index", "edge_attr", "edge_weight"))
    devices = sorted({str(value.device) for value in tensors if isinstance(value, Tensor)})
    if len(devices) > 1:
        raise InputError(
            f"The tensors of `{where}` must be on one device, got {' and '.join(devices)}. Use {where} = {where}.to('cpu')."
        )


def check_values(data: Data, where: str = "data") -> None:
    """No NaN and no infinity in what a model reads."""
    for key in ("x", "edge_attr", "edge_weight"):
        value = data.get(key)
        if isinstance(value, Tensor) and value.is_floating_point() and not _is_finite(value):
            raise InputError(
                f"`{where}.{key}` must be finite, got NaN or infinite entries ({in_words(value)}), from which no score can be "
                f"computed. Use {where}.{key} = torch.nan_to_num({where}.{key}), for example."
            )


def _is_finite(value: Tensor) -> bool:
    """Whether all entries are: a finite sum says so in a tenth of the time; one that is not may only be too large."""
    return bool(torch.isfinite(value.sum())) or bool(torch.isfinite(value).all())


def check_typed_store(store: Any, where: str, sizes: list[int] | None) -> None:
    """One table of a typed graph: of nodes (`sizes=None`), or of edges between so many sources and receivers."""
    if sizes is not None:
        edge_index = _plain_edge_index(store.get("edge_index"), where)
        for row, size in zip(edge_index, sizes, strict=True):
            _check_edges(row, size, where)
        _check_lengths(store, 0, edge_index.size(1), where)
    _check_dense(store, where)
    if sizes is None and "num_nodes" in store:
        _check_count(store["num_nodes"], store.get("x"), where)
    check_values(store, where)


def read_graphs(data: Any) -> list[Data]:
    """The graphs of a graph task, from one Data, a Batch, a list or a Dataset.

    Thousands of small graphs are checked together (`_all_fine`); only if that fails are they checked one by one.
    """
    if isinstance(data, Batch):
        data = data.to_data_list()
    if isinstance(data, (HeteroData, Data)):
        return [read_graph(data)]
    if not isinstance(data, (Sequence, Dataset)) or isinstance(data, (str, bytes)):
        raise InputError(
            f"`data` must be one Data, a list of Data or a Dataset for a graph task, got {type(data).__name__}. "
            + (_instead_of_loader(data) or "Use [data[i] for i in ...], for example.")
        )
    if isinstance(data, range):
        raise InputError("`data` must be a list of Data for a graph task, got a range. Use [graphs[i] for i in ...].")
    if len(data) == 0:
        raise InputError(f"`data` must have at least one graph for a graph task, got an empty {type(data).__name__}.")
    graphs = [data[i] for i in range(len(data))]
    if _all_fine(graphs):
        return graphs
    return [read_graph(graph, f"data[{i}]") for i, graph in enumerate(graphs)]  # one by one, to name the one at fault


def _all_fine(graphs: list[Any]) -> bool:
    """The checks of `read_graph` for many plain graphs at once: True only if none of them would be changed or refused.

    Plain means `Data` with `x`, `edge_index` and perhaps `y`. Features of many graphs are joined to one `[nodes, width]` and
    edges to one `[2, edges]`, so that a few tensor operations do what would take thousands; `limit` has, for each column, how
    many nodes its graph has.
    """
    if any(type(graph) is not Data for graph in graphs):
        return False
    stores = [attributes(graph) for graph in graphs]
    if any(set(store.keys()) - {"x", "edge_index", "y"} or len(store) < 2 for store in stores):
        return False
    xs: list[Any] = [store.get("x") for store in stores]
    edges: list[Any] = [store.get("edge_index") for store in stores]
    if any(type(t) is not Tensor or t.layout != torch.strided or odd_kind(t) for t in (*xs, *edges)) or any(
        e.dim() != 2 or e.dtype != torch.int64 for e in edges
    ):
        return False
    if (
        len({(x.device, x.dtype, x.shape[1:]) for x in xs} | {(e.device, xs[0].dtype, xs[0].shape[1:]) for e in edges})
        > 1
    ):
        return False
    if any(e.size(0) != 2 for e in edges) or any(x.dim() < 1 for x in xs):
        return False
    numbers = torch.tensor([x.numel() + e.numel() for x, e in zip(xs, edges, strict=True)]).cumsum(0)
    ends = torch.unique_consecutive(numbers // _AT_ONCE, return_counts=True)[1].cumsum(0).tolist()
    return all(_are_sound(xs[i:j], edges[i:j]) for i, j in zip([0, *ends], ends, strict=False))


def _are_sound(xs: list[Tensor], edges: list[Tensor]) -> bool:
    """Whether the features of some graphs are finite, and their edges between their nodes."""
    limit = torch.repeat_interleave(torch.tensor([x.size(0) for x in xs]), torch.tensor([e.size(1) for e in edges]))
    joined, columns = torch.cat(xs), torch.cat(edges, dim=1)
    finite = _is_finite(joined) if joined.is_floating_point() else True
    return finite and bool(((columns >= 0) & (columns < limit.to(columns.device))).all())


def check_devices(model: nn.Module, graph: Data) -> None:
    """The model and the graph must share a device."""
    first = next(chain(model.parameters(), model.buffers()), None)
    if first is not None and first.device != graph.x.device:
        raise InputError(
            f"The model and the data must be on one device, got {first.device} and {graph.x.device}. Move one of them, "
            f"or use device='{first.device}': copies are moved, yours stay where they are."
        )


def check_one_graph(data: Any, task: str) -> None:
    """Refuse a list of graphs where nodes or links of one graph are explained."""
    if isinstance(data, (list, tuple)) and len(data) and isinstance(data[0], Data):
        raise InputError(
            f"A {task} task explains {task}s of one graph, got a list of {len(data)} graphs. Use data[0], or task='graph'."
        )
