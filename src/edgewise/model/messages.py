"""Which edge owns which message, and where a layer reads its own node.

Messages are matched by the `edge_index` that the layer really used, never by position or count. Most models hand the graph's
own `edge_index` to each layer: then a message belongs to the column at its place, and only loops that a known layer drops and
adds are looked up by their node (`plain_owners`). Whatever is less plain is followed through the pass instead (`identity.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.arrays import Slots, occurrence
from edgewise.errors import ModelError
from edgewise.model.borrow import ours
from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.data_flow import Operation, keys_of
from edgewise.model.hooks import Layers
from edgewise.model.identity import FollowedCall, follow


def match_messages(used: Tensor, given: Tensor, num_nodes: int, layer: str) -> Slots:
    """The column of `given` that owns each message of `used`, or `edges + node` for a self edge that the layer added.

    The v→v message belongs to an explicit loop if there is one; a layer that keeps fewer loops than there are
    (GCN, GAT) keeps the last ones.

    >>> import torch
    >>> given = torch.tensor([[0, 1, 1], [1, 0, 1]])            # 0→1, 1→0 and an explicit loop on 1
    >>> used = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1]])       # what a GCN makes of it: loops last
    >>> match_messages(used, given, 2, "conv")
    tensor([0, 1, 3, 2])
    """
    num_edges = given.size(1)
    if used.shape == given.shape and torch.equal(used, given):
        return torch.arange(num_edges, device=given.device)
    if _adds_loops_last(used, given, num_nodes):
        return torch.cat([torch.arange(num_edges, device=given.device), num_edges + used[1, num_edges:]])
    wanted, keys = used[0] * num_nodes + used[1], given[0] * num_nodes + given[1]
    order = keys.argsort(stable=True)
    ordered = keys[order]
    first = torch.searchsorted(ordered, wanted)
    available = torch.searchsorted(ordered, wanted, right=True) - first
    rank = occurrence(wanted)
    is_loop = used[0] == used[1]
    sent = torch.bincount(used[1][is_loop], minlength=num_nodes)[used[1]]
    rank = torch.where(is_loop, rank + (available - sent).clamp(min=0), rank)
    found = rank < available
    _refuse_strangers(used, found | is_loop, layer)
    slots = num_edges + used[1]
    slots[found] = order[(first + rank)[found]]
    return slots


def _adds_loops_last(used: Tensor, given: Tensor, num_nodes: int) -> bool:
    """Whether a layer took all columns, none of them a loop, and added a loop for every node behind them."""
    num_edges = given.size(1)
    if used.size(1) != num_edges + num_nodes or not torch.equal(used[:, :num_edges], given):
        return False
    return torch.equal(used[0, num_edges:], used[1, num_edges:]) and not bool((given[0] == given[1]).any())


def _refuse_strangers(used: Tensor, known: Tensor, layer: str) -> None:
    if bool(known.all()):
        return
    source, receiver = used[:, ~known][:, 0].tolist()
    raise ModelError(
        f"Layer {layer} sent {int((~known).sum())} messages that match no column of data.edge_index, the first from node "
        f"{source} to node {receiver}. Edgewise weights the edges of the given graph: call every layer with (a subset of) "
        f"the edge_index of data, without pooling or rewiring in between."
    )


_LOOPS_ONLY = (
    *(pyg.GCNConv, pyg.GATConv, pyg.GATv2Conv, pyg.SGConv, pyg.SSGConv, pyg.TAGConv, pyg.APPNP, pyg.ChebConv),
    *(pyg.ClusterGCNConv, pyg.GCN2Conv, pyg.FAConv, pyg.SuperGATConv, pyg.ARMAConv, pyg.LEConv, pyg.EGConv),
)
"""Layers that leave the order of the edges alone, and at most drop self-loops and add others at the end."""


@dataclass(frozen=True)
class Owners:
    """Who owns the messages of a call."""

    slots: Slots
    """`[messages]`: the column, or edges + node for an added self-loop."""
    backward: Tensor | None = None
    """`[messages]`: which run from the second end of their column to the first; None: all as the layer's flow says."""
    of_all_nodes: bool = True
    """Whether the rows that receive are all nodes, in order; behind a pooling they are not."""


def plain_owners(
    calls: list[tuple[MessagePassing, Any, Any]], operations: list[Operation], data: Data, names: dict[Any, str]
) -> list[Owners] | None:
    """The owner of each message of each call, if every layer was handed the graph's own `edge_index`; otherwise None."""
    given = keys_of(data.edge_index)[0]
    layers = [operation for operation in operations if operation.is_layer]
    if sum(len(layer.calls) for layer in layers) != len(calls):
        return None  # a call outside the layers that the model names
    found: list[Owners] = []
    for layer in layers:
        for number in layer.calls:
            module, used, _ = calls[number]
            own = _own_columns(used, data)
            if own is None and (given not in layer.inputs or type(module) not in _LOOPS_ONLY):
                return None
            slots = match_messages(used, data.edge_index, data.num_nodes, names[module]) if own is None else own
            found.append(Owners(slots))
    return found


def _own_columns(used: Any, data: Data) -> Slots | None:
    """All columns in order, if the call used the very tensor of the graph."""
    given = data.edge_index
    if not isinstance(used, Tensor) or used.layout != torch.strided or used.shape != given.shape:
        return None
    if used.data_ptr() != given.data_ptr() or used.stride() != given.stride():
        return None
    return torch.arange(given.size(1), device=given.device)


def followed_owners(call: ModelCall, layers: Layers, data: Data) -> tuple[list[int], list[Owners]]:
    """Layers and owners of all calls, by a pass in which columns and nodes are followed through every operation."""
    _, calls = follow(call.model, layers, lambda: call(data), data, call.marks(data))
    everyone = torch.arange(data.num_nodes, device=data.edge_index.device)
    of_types = isinstance(call.forward, GraphForward)
    owners = [
        Owners(
            one.slots,
            _against(one, data.edge_index),
            _each_once(one.receiver_rows) if of_types else torch.equal(one.receiver_rows, everyone),
        )
        for one in calls
    ]
    return [one.layer for one in calls], owners


def _each_once(rows: Tensor) -> bool:
    """Whether rows are nodes of one type, each once: then a node's own term is known by its row."""
    return bool((rows >= 0).all()) and len(rows.unique()) == len(rows)


def _against(call: FollowedCall, edge_index: Tensor) -> Tensor | None:
    """`[messages]`: which run from the second end of their column to the first, if that is not what the layer's flow says."""
    column = call.slots.clamp(max=max(edge_index.size(1) - 1, 0))
    apart = call.slots < edge_index.size(1)
    apart &= (
        (edge_index[0, column] != edge_index[1, column]) if edge_index.size(1) else apart
    )  # a loop has no direction
    ways = call.backward[apart].unique().tolist()
    if ways in ([], [call.module.flow == "target_to_source"]):
        return None
    return call.backward if len(ways) == 2 else torch.full_like(call.backward, ways[0])


# --- Where a layer reads its own node: one row a layer type ------------------------------------------------------------
#
# The own term of a call is what a node tells itself before bias, MLP and norm. It reaches the sum in one of three ways:
# as an added self-loop message (weighted with the messages), as the second entry of `x = (senders, receivers)`, or through
# a linear map of its own.


@dataclass(frozen=True)
class OwnTerm:
    """How one layer type reads itself, beside added self-loop messages."""

    as_receiver: bool = False
    through: tuple[str, ...] = ()


_OWN_TERMS: tuple[tuple[tuple[type, ...], OwnTerm | None], ...] = (
    ((pyg.ChebConv, pyg.PNAConv), None),  # mixed into the layer: no own term can be separated
    ((pyg.GCNConv, pyg.SGConv), OwnTerm()),
    ((pyg.GATConv, pyg.GATv2Conv), OwnTerm(through=("res",))),
    ((pyg.SAGEConv, pyg.GraphConv, pyg.GINConv, pyg.GINEConv), OwnTerm(as_receiver=True)),
    ((pyg.TransformerConv, pyg.ResGatedGraphConv), OwnTerm(through=("lin_skip",))),
)


def own_term(module: MessagePassing, *, adds_loops: bool) -> OwnTerm | None:
    """The own term of a layer, `None` if it cannot be separated. An unknown layer is trusted only for loops it adds.

    A subclass with a `forward` of its own may read its rows before its base does, so it is not handed a pair of tables.
    """
    for types, term in _OWN_TERMS:
        if isinstance(module, types):
            return term if term is None or not term.as_receiver or _keeps_forward(module, types) else None
    return OwnTerm() if adds_loops else None


def _keeps_forward(module: MessagePassing, types: tuple[type, ...]) -> bool:
    """Whether `forward` is that of one of the layer types itself."""
    return type(module).forward in [getattr(kind, "forward", None) for kind in types]


def _scale_receiver(x: Any, scale: Any) -> Any:
    if isinstance(x, Tensor):
        return x, scale(x)
    return (x[0], None if x[1] is None else scale(x[1]))


@contextmanager
def scaled_own_terms(layers: list[tuple[str, MessagePassing]], run: Any) -> Iterator[None]:
    """Own terms scaled while the model runs; `run` counts the calls and scales rows."""
    started: dict[nn.Module, int] = {}

    def on_enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started[module] = run.count
        term = own_term(module, adds_loops=True)
        if term is None or not term.as_receiver:
            return None
        if "x" in kwargs:
            return args, {**kwargs, "x": _scale_receiver(kwargs["x"], lambda x: run.scale(started[module], x))}
        return (_scale_receiver(args[0], lambda x: run.scale(started[module], x)), *args[1:]), kwargs

    handles = [module.register_forward_pre_hook(ours(on_enter), with_kwargs=True) for _, module in layers]
    for _, module in layers:
        term = own_term(module, adds_loops=True)
        for name in term.through if term else ():
            linear = getattr(module, name, None)
            if linear is not None:
                handles.append(linear.register_forward_hook(ours(_scale_output(module, started, run))))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _scale_output(owner: nn.Module, started: dict[nn.Module, int], run: Any) -> Any:
    def hook(linear: nn.Module, args: Any, output: Tensor) -> Tensor:
        bias = getattr(linear, "bias", None)
        if bias is None:
            return run.scale(started[owner], output)
        return run.scale(started[owner], output - bias) + bias  # the own term is the product, before its bias

    return hook
