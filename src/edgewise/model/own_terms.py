"""Where a layer hears its own node: one row a layer type.

The own term of a call is what a node tells itself before bias, MLP and norm. It reaches the sum in one of three ways:
as an added self-loop message (weighted with the messages), as the second entry of `x = (senders, receivers)`, or through
a linear map of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing


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
