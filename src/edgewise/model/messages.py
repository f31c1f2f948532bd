"""Which edge owns which message: matched by the `edge_index` that the layer really used, never by position or count."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing

from edgewise.arrays import Slots, occurrence
from edgewise.errors import ModelError


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


# --- Where a layer hears its own node: one row a layer type ------------------------------------------------------------
#
# The own term of a call is what a node tells itself before bias, MLP and norm. It reaches the sum in one of three ways:
# as an added self-loop message (weighted with the messages), as the second entry of `x = (senders, receivers)`, or through
# a linear map of its own.


@dataclass(frozen=True)
class OwnTerm:
    """How one layer type hears itself, beside added self-loop messages."""

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
    """The own term of a layer, `None` if it cannot be separated. An unknown layer is trusted only for loops it adds."""
    for types, term in _OWN_TERMS:
        if isinstance(module, types):
            return term
    return OwnTerm() if adds_loops else None


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

    handles = [module.register_forward_pre_hook(on_enter, with_kwargs=True) for _, module in layers]
    for _, module in layers:
        term = own_term(module, adds_loops=True)
        for name in term.through if term else ():
            linear = getattr(module, name, None)
            if linear is not None:
                handles.append(linear.register_forward_hook(_scale_output(module, started, run)))
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
