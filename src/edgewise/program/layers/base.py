"""What every lowered layer can do: one message-passing call, forwards and backwards."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.model.feature_products import is_plain_map
from edgewise.program.hop import Hop
from edgewise.program.layers.known_messages import KnownMessages

Linear: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""rows `[n, in]`, matrix `[out, in]` and bias `[out]` to rows · matrixᵀ + bias, as torch's `linear`."""


class Tables(NamedTuple):
    """Senders and receivers that have tables of their own: `[rows, in]` each, which may differ in both."""

    sent: Tensor
    own: Tensor


def joined(sent: Any, own: Any = None) -> Any:
    """The table of a call, or the two that it reads."""
    return sent if own is None else Tables(sent, own)


def mapped(module: Any, rows: Tensor, linear: Linear) -> Tensor:
    """What a map of the model makes of rows: through `linear` where it is a plain matrix and a bias."""
    found: Tensor = linear(rows, module.weight, module.bias) if is_plain_map(module) else module(rows)
    return found


class Layer(ABC):
    """One message-passing call: a table of senders' features to what the heads make of them, before activation.

    The table is `[rows, in]`; which row each edge and each head reads is in the `Hop`. `forward` is enough for a new layer:
    `prepare` and `backward` have defaults that are right, if not the fastest.
    """

    uses_model = False
    """Whether it calls modules of the user's model, which must then be borrowed."""
    knows_messages = False
    """Whether `known_messages` finds them."""

    @property
    def numbers_on_edges(self) -> int:
        """About how many numbers a pass with gradients keeps for each edge; 0: what it receives is summed at once."""
        return 0

    def prepare(self, table: Tensor, linear: Linear = functional.linear) -> Any:
        """What can be computed once for a table that no weight changes (the features); passed to `forward` as its table.

        `linear` multiplies the table by matrices: as torch does, or it knows products that were made before.
        """
        return table

    def of_kind(self, nodes: Tensor) -> "Layer":
        """The same layer with its numbers of nodes (added loops) for those of one kind, in the order of their rows."""
        return self

    def extended(self, prepared: Any, rows: Tensor, node: Tensor) -> Any:
        """What was prepared for a table, with further rows behind it: other features `[n, in]` of some nodes `[n]`."""
        found: Tensor = torch.cat([prepared, rows])
        return found

    def known_messages(self, table: Any, hop: Hop) -> KnownMessages | None:
        """The messages at ω = 1, if the output is their sum; `hop` has all edges and nodes. None: not known by themselves."""
        return None

    @abstractmethod
    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """The outputs of the heads, `[heads, width]`, under ω `[edges]` and s `[heads]` (None: 1)."""

    def backward_both(
        self, tables: Tables, near: Hop, gradient: Tensor, onto: Hop
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `backward`, for senders and receivers with tables of their own: the last two are the gradients of both."""
        weight = torch.ones(len(near.tail), dtype=gradient.dtype, device=gradient.device).requires_grad_()
        own = torch.ones(near.num_heads, dtype=gradient.dtype, device=gradient.device).requires_grad_()
        sent = tables.sent.detach().index_select(0, onto.nodes_of_table()).requires_grad_()
        received = near.own_rows(tables.own.detach()).clone().requires_grad_()
        inputs = [weight, own, sent, received]
        with torch.enable_grad():
            output = self.forward(Tables(sent, received), onto, weight, own)
        found = torch.autograd.grad(output, inputs, gradient, allow_unused=True)
        full = [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]
        return full[0], full[1], full[2], full[3]

    def backward(
        self, table: Any, near: Hop, gradient: Tensor, onto: Hop | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """At ω = s = 1: the gradients of edges `[edges]`, of self edges `[heads]` and of the senders, from that of the outputs.

        `gradient` is `[heads, width]`. `near` reads the table by node: activations are the same for all targets. `onto` names
        the senders as pairs, to which their gradients belong; None: they are not needed (the senders are constants).
        """
        weight = torch.ones(len(near.tail), dtype=gradient.dtype, device=gradient.device).requires_grad_()
        own = torch.ones(near.num_heads, dtype=gradient.dtype, device=gradient.device).requires_grad_()
        inputs, hop = [weight, own], near
        if onto is not None:
            hop, table = onto, table.index_select(0, onto.nodes_of_table()).requires_grad_()
            inputs.append(table)
        with torch.enable_grad():
            output = self.forward(table, hop, weight, own)
        found = torch.autograd.grad(output, inputs, gradient, allow_unused=True)
        full = [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)]
        return full[0], full[1], full[2] if onto is not None else None


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Calls on the same rows, whose results are added (the relations of an `RGCNConv`)."""

    layers: tuple["OfColumns", ...]
    unweighted: Tensor | None = None
    """`[out, in]`: what a node adds of itself, where that is not known to be an own term: s does not scale it."""


@dataclass(frozen=True, eq=False)
class OfColumns:
    """A layer that is one of several calls of a module, or works on some columns of a call."""

    layer: "Layer"
    call: int = 0
    """Which of the module's calls."""
    columns: Tensor | None = None
    """`[E]`, bool; None: those of the call."""


class Unsupported(Exception):  # noqa: N818 (not an error: another way is taken)
    """A part of the model that is not known, with the reason; users see it in the debug log only."""

    operation: Any = None
    """The recorded operation that it is about, if it is known."""
