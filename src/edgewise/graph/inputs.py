"""What the user hands over, checked before any long work: graphs, index, devices."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, Dataset, HeteroData

from edgewise.errors import InputError

TASKS = ("node", "graph")


def read_graph(data: Any, where: str = "data") -> Data:
    """A shallow copy of one graph, checked; the caller's object and tensors stay untouched."""
    graph = read_structure(data, where)
    check_values(graph, where)
    return graph


def read_structure(data: Any, where: str = "data") -> Data:
    """The same without a look at every feature: shapes, devices and the ends of edges are checked.

    On a large graph of which a part is explained, values are checked there alone (`check_values`).
    """
    _check_kind(data, where)
    x, edge_index = data.get("x"), data.get("edge_index")
    if not isinstance(x, Tensor):
        raise InputError(f"{where} has no node features x (got {_say(x)}). Set {where}.x = a tensor [nodes, features].")
    if x.dim() < 1:
        raise InputError(f"{where}.x is {_say(x)}; needed is a row for each node: [nodes, features].")
    edge_index = _plain_edge_index(edge_index, where)
    _check_same_device(data, where)
    _check_edges(edge_index, x.size(0), where)
    _check_lengths(data, x.size(0), edge_index.size(1), where)
    return _plain_copy(data, edge_index, x.size(0))


def _plain_copy(data: Data, edge_index: Tensor, num_nodes: int) -> Data:
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
    if isinstance(data, HeteroData):
        raise InputError(
            "data is HeteroData; Edgewise explains homogeneous graphs for now. Use data.to_homogeneous() "
            "with a model that takes it."
        )
    if not isinstance(data, Data):
        raise InputError(
            f"{where} is {type(data).__name__}; needed is torch_geometric.data.Data(x=..., edge_index=...). "
            f"Several graphs: pass a list or a Dataset, with task='graph'."
        )


def _say(value: Any) -> str:
    return (
        f"a tensor of shape {list(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    )


def _plain_edge_index(edge_index: Any, where: str) -> Tensor:
    if edge_index is None:
        raise InputError(
            f"{where} has no edge_index. Set {where}.edge_index = a tensor [2, edges]; from a sparse "
            f"adjacency: torch_geometric.utils.to_edge_index(adj)."
        )
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise InputError(
            f"{where}.edge_index is a sparse adjacency ({type(edge_index).__name__}), whose fused path has no "
            f"messages to weight. Type: {where}.edge_index, _ = torch_geometric.utils.to_edge_index(adj_t); "
            f"rows and columns swapped if it was transposed."
        )
    if hasattr(edge_index, "as_tensor"):
        edge_index = edge_index.as_tensor()  # torch_geometric.EdgeIndex may take a fused path
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.int64:
        raise InputError(
            f"{where}.edge_index is {_say(edge_index)}; needed is [2, edges], torch.int64. "
            f"Type: edge_index.long(), or .t().contiguous() if it is [edges, 2]."
        )
    return edge_index


def _check_edges(edge_index: Tensor, num_nodes: int, where: str) -> None:
    if edge_index.numel() == 0:
        return
    low, high = int(edge_index.min()), int(edge_index.max())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"{where}.edge_index names node {low if low < 0 else high}, but x has {num_nodes} rows "
            f"(nodes 0 to {num_nodes - 1}). Drop those columns or add the missing rows to x."
        )


def _check_lengths(data: Data, num_nodes: int, num_edges: int, where: str) -> None:
    lengths = {"edge_attr": num_edges, "edge_weight": num_edges, "batch": num_nodes}
    for key, length in lengths.items():
        value = data.get(key)
        if isinstance(value, Tensor) and (value.dim() == 0 or value.size(0) != length):
            of = "edge" if key.startswith("edge") else "node"
            raise InputError(
                f"{where}.{key} has shape {list(value.shape)}; needed are {length} rows, one for each {of}."
            )


def _check_same_device(data: Data, where: str) -> None:
    tensors = (data.get(key) for key in ("x", "edge_index", "edge_attr", "edge_weight"))
    devices = sorted({str(value.device) for value in tensors if isinstance(value, Tensor)})
    if len(devices) > 1:
        raise InputError(
            f"The tensors of {where} are on different devices: {devices}. Type: {where} = {where}.to('cpu')."
        )


def check_values(data: Data, where: str = "data") -> None:
    """Features and edge attributes must be finite."""
    for key in ("x", "edge_attr", "edge_weight"):
        value = data.get(key)
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(
                f"{where}.{key} ({_say(value)}) has NaN or infinite entries, from which no score can be computed. Clean them "
                f"first, for one: {where}.{key} = torch.nan_to_num({where}.{key})."
            )


def read_graphs(data: Any) -> list[Data]:
    """The graphs of a graph task: one Data, a Batch, a list or a Dataset."""
    if isinstance(data, Batch):
        data = data.to_data_list()
    if isinstance(data, (HeteroData, Data)):
        return [read_graph(data)]
    if not isinstance(data, (Sequence, Dataset)) or isinstance(data, (str, bytes)):
        raise InputError(f"data is {type(data).__name__}; a graph task needs one Data, a list of Data or a Dataset.")
    if len(data) == 0:
        raise InputError("data has no graphs; a graph task needs at least one.")
    graphs = [data[i] for i in range(len(data))]
    if _all_fine(graphs):
        return graphs
    return [read_graph(graph, f"data[{i}]") for i, graph in enumerate(graphs)]  # one by one, to name the one at fault


def _all_fine(graphs: list[Any]) -> bool:
    """The checks of `read_graph` for many plain graphs at once."""
    if any(type(graph) is not Data for graph in graphs):
        return False
    stores = [graph._store for graph in graphs]
    if any(set(store.keys()) - {"x", "edge_index", "y"} or len(store) < 2 for store in stores):
        return False
    xs, edges = [store.get("x") for store in stores], [store.get("edge_index") for store in stores]
    if any(type(t) is not Tensor for t in (*xs, *edges)) or any(e.dim() != 2 or e.dtype != torch.int64 for e in edges):
        return False
    if (
        len({(x.device, x.dtype, x.shape[1:]) for x in xs} | {(e.device, xs[0].dtype, xs[0].shape[1:]) for e in edges})
        > 1
    ):
        return False
    if any(e.size(0) != 2 for e in edges) or any(x.dim() < 1 for x in xs):
        return False
    limit = torch.repeat_interleave(torch.tensor([x.size(0) for x in xs]), torch.tensor([e.size(1) for e in edges]))
    joined, columns = torch.cat(xs), torch.cat(edges, dim=1)
    finite = bool(torch.isfinite(joined).all()) if joined.is_floating_point() else True
    return finite and bool(((columns >= 0) & (columns < limit.to(columns.device))).all())


def read_index(index: Any, size: int, of: str) -> tuple[Tensor, bool]:
    """Positions `[targets]` and whether a single whole number was asked for."""
    if index is None:
        return torch.arange(size), False
    if isinstance(index, slice):
        return _in_range(torch.arange(size)[index], size, of), False
    single = isinstance(index, int) and not isinstance(index, bool)
    try:
        positions = torch.as_tensor(list(index) if isinstance(index, (range, set, tuple)) else index).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"index is {index!r}; needed are whole numbers: an int, a list, a range, a slice, a tensor, or a "
            f"mask of length {size}."
        ) from error
    if positions.dtype == torch.bool or (positions.dtype == torch.uint8 and positions.numel() == size):
        positions = _from_mask(positions, size, of)
    if positions.numel() == 0:
        raise InputError(f"index is empty; name at least one {of} (0 to {size - 1}), or leave index out for all.")
    if positions.is_floating_point() or positions.is_complex() or positions.dim() > 1:
        raise InputError(f"index is {_short(index)}; needed are whole numbers in one dimension, such as index=[3, 42].")
    single = single or positions.dim() == 0
    return _in_range(positions.long().view(-1), size, of), single


def _short(index: Any) -> str:
    if isinstance(index, Tensor):
        return _say(index)
    text = f"{type(index).__name__} {index!r}"
    return text if len(text) < 80 else text[:77] + "..."


def _from_mask(mask: Tensor, size: int, of: str) -> Tensor:
    if mask.dim() != 1 or mask.numel() != size:
        raise InputError(
            f"index is a mask of shape {list(mask.shape)}; needed is one entry for each of the {size} {of}s. "
            f"Pick a column first: mask[:, 0]."
        )
    return mask.bool().nonzero().view(-1)


def _in_range(positions: Tensor, size: int, of: str) -> Tensor:
    if positions.numel() == 0:
        raise InputError(f"index is empty; name at least one {of} (0 to {size - 1}), or leave index out for all.")
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= size:
        raise InputError(f"index names {of} {low if low < 0 else high}; there are {size} {of}s, 0 to {size - 1}.")
    return positions


def check_devices(model: nn.Module, graph: Data) -> None:
    """The model and the graph must share a device."""
    tensors = [*model.parameters(), *model.buffers()]
    if tensors and tensors[0].device != graph.x.device:
        raise InputError(
            f"The model is on {tensors[0].device}, the data on {graph.x.device}. Move one of them, or type "
            f"device='{tensors[0].device}': copies are moved, yours stay where they are."
        )
