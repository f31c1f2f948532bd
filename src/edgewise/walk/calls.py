"""The calls of a recorded model, each by itself: the pairs of nodes, the blocks, and what a node sums up."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.program.ir import Rows
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.walk.block_builder import blocks_of, hears_itself
from edgewise.walk.blocks import Blocks
from edgewise.walk.chain import Chain, cut
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Pending, Rule
from edgewise.walk.record import Recording


class Calls:
    """The chain of calls, and what is known about each of them before they are put together."""

    def __init__(self, recording: Recording, rule: Rule, attention: str, *, merged: bool) -> None:
        self.recording, self.rule, self.attention, self._merged = recording, rule, attention, merged
        self.chain: Chain = cut(recording.program, recording.moving)
        self.num_nodes = recording.data.num_nodes
        self._geometries: dict[bool, Geometry] = {}
        self._raised: dict[int, Tensor] = {}

    def geometry(self, call: int) -> Geometry:
        """The pairs of a call; calls in which nodes hear themselves alike share theirs."""
        message = self.chain.messages[call]
        sources = [source for step in self.chain.receiving[call].steps for source in step.sources]
        if call == 0:
            carries = any(self.along_features(source) is not None for source in sources)
        else:
            carries = any(_reads(source, self.chain.states[call]) for source in sources)
        stays = carries or hears_itself(message.layer, self.attention)
        if stays not in self._geometries:
            self._geometries[stays] = Geometry.of(self.recording.in_edges, stays=stays, merged=self._merged)
        return self._geometries[stays]

    def plain_blocks(self, call: int) -> Blocks:
        """The blocks of a call from what it reads, not yet from a state."""
        message, table = self.chain.messages[call], self.recording.table(self.chain.messages[call])
        hop = self.recording.hop(call)
        return blocks_of(
            message.layer, self.geometry(call), table, hop, self.attention, self.rule, self.rule.gamma(call)
        )

    def along_features(self, source: Any) -> Tensor | None:
        """How a constant of the nodes changes along the features, if it does."""
        if not isinstance(source, Rows):
            return None
        found = self.recording.moving.tangent(source.tensor)
        return source.tensor if found is None and source.own_call == 0 else found

    def summed(self, call: int, rows: Tensor, nodes: Tensor | None = None) -> tuple[Any, Tensor]:
        """A call's sum as a value to run on, and the leaf whose derivative is wanted: q^γ under a rule.

        A layer without a matrix (GIN) is no map of its own: its sum is a part of the linear map that follows.
        """
        layer = self.chain.messages[call].layer
        if self.rule.is_gradient or (isinstance(layer, AffineLayer) and layer.matrix is None):
            leaf = rows.detach().clone().requires_grad_()
            return leaf, leaf
        raised = self._raised_sum(call)
        leaf = (raised if nodes is None else raised.index_select(0, nodes)).to(rows.dtype).requires_grad_()
        return Pending(rows.detach(), leaf), leaf

    def _raised_sum(self, call: int) -> Tensor:
        """q^γ of a call, for every node."""
        if call in self._raised:
            return self._raised[call]
        message = self.chain.messages[call]
        table, plain = self.recording.table(message).double(), self.plain_blocks(call)
        pairs = torch.arange(len(plain.geometry), device=table.device)
        terms = plain.forth(table.index_select(0, plain.geometry.sender), pairs)
        total = terms.new_zeros(self.num_nodes, terms.size(1)).index_add_(0, plain.geometry.receiver, terms)
        gamma = self.rule.gamma(call)
        bias = _biases(message.layer, plain)
        self._raised[call] = total if bias is None else total + bias + gamma * bias.clamp(min=0)
        return self._raised[call]


def _reads(source: Any, value: int | None) -> bool:
    return value is not None and getattr(source, "value", None) == value


def _biases(layer: Any, blocks: Blocks) -> Tensor | None:
    if isinstance(layer, AttentionLayer):
        conv, total = layer.conv, None
        inner = getattr(conv, "lin_l", None)
        if inner is not None and inner.bias is not None:
            total = inner.bias.detach().double()
            total = total if blocks.post is None else blocks.post @ total
        if conv.bias is not None:
            total = conv.bias.detach().double() if total is None else total + conv.bias.detach().double()
        return total
    return None if layer.bias is None else layer.bias.double()


# --- Prefixes of walks, read from the explained node back, as the network sees them ------------------------------------


@dataclass(frozen=True, eq=False)
class Front:
    """Prefixes that wait before the same call: the node they reached, and their gradients there."""

    node: Tensor
    summed: Tensor
    """`[P, out]`: with respect to what the node summed up."""
    around: Tensor | None
    """`[P, state]`: with respect to the node's state before the call, through a residual; before the first call `[P]`: times
    the features."""

    def select(self, which: Tensor) -> "Front":
        """Some of them."""
        around = None if self.around is None else self.around.index_select(0, which)
        return Front(self.node.index_select(0, which), self.summed.index_select(0, which), around)

    def __len__(self) -> int:
        return len(self.node)


def signed(front: Front, sign: str) -> Front:
    """For negative walks everything is negated, so that the best is always the largest."""
    if sign != "negative":
        return front
    return Front(front.node, -front.summed, None if front.around is None else -front.around)
