"""The calls of a recorded model, each by itself: the pairs of nodes, the blocks, and what a node sums up.

`node_jacobians.py` adds what happens between the calls, and `network.py` puts both together.
"""

from typing import Any

import torch
from torch import Tensor

from edgewise.program.ir import Rows
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.walk.block_builder import allows_staying, blocks_of
from edgewise.walk.blocks import Blocks
from edgewise.walk.chain import Chain, cut
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Pending, Rule
from edgewise.walk.record import Recording


class Calls:
    """The chain of calls under one rule, and what is known about each call before they are put together.

    Args of the constructor: the recording, the rule, `attention` (`"full"` or `"fixed"`), and whether pairs are `merged` (see
    `Geometry`).
    """

    def __init__(self, recording: Recording, rule: Rule, attention: str, *, merged: bool) -> None:
        self.recording, self.rule, self.attention, self._merged = recording, rule, attention, merged
        self.chain: Chain = cut(recording.program, recording.moving)
        self.num_nodes = recording.data.num_nodes
        self._geometries: dict[bool, Geometry] = {}
        self._raised: dict[int, Tensor] = {}

    def geometry(self, call: int) -> Geometry:
        """The pairs of a call: its edges, and every node with itself if the layer or a residual around it lets a walk stay.

        There are at most two geometries (with and without staying), shared by the calls.
        """
        message = self.chain.messages[call]
        sources = [source for step in self.chain.receiving[call].steps for source in step.sources]
        if call == 0:
            carries = any(self.along_features(source) is not None for source in sources)
        else:
            carries = any(_reads(source, self.chain.states[call]) for source in sources)
        stays = carries or allows_staying(message.layer, self.attention)
        if stays not in self._geometries:
            self._geometries[stays] = Geometry.of(self.recording.in_edges, stays=stays, merged=self._merged)
        return self._geometries[stays]

    def plain_blocks(self, call: int) -> Blocks:
        """The blocks of a call with respect to what it reads; `node_jacobians.blocks_of_states` goes on to the state."""
        message, table = self.chain.messages[call], self.recording.table(self.chain.messages[call])
        hop = self.recording.hop(call)
        return blocks_of(
            message.layer, self.geometry(call), table, hop, self.attention, self.rule, self.rule.gamma(call)
        )

    def along_features(self, source: Any) -> Tensor | None:
        """`[N, d]`: how rows that a step reads beside its inputs change along the features (J · x); None if they do not.

        A residual around the first call reads the features themselves, or what an encoder made of them.
        """
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
        """`[N, out]`: q^γ of a call for every node, with the bias: the sum of the raised blocks over the pairs into it."""
        if call in self._raised:
            return self._raised[call]
        message = self.chain.messages[call]
        table, plain = self.recording.table(message).double(), self.plain_blocks(call)
        pairs = torch.arange(len(plain.geometry), device=table.device)
        terms = plain.forth(table.index_select(0, plain.geometry.sender), pairs)  # [P, out]
        total = terms.new_zeros(self.num_nodes, terms.size(1)).index_add_(0, plain.geometry.receiver, terms)
        gamma = self.rule.gamma(call)
        bias = _biases(message.layer, plain)
        self._raised[call] = total if bias is None else total + bias + gamma * bias.clamp(min=0)
        return self._raised[call]


def _reads(source: Any, value: int | None) -> bool:
    """Whether a step's input is a certain value of the program."""
    return value is not None and getattr(source, "value", None) == value


def _biases(layer: Any, blocks: Blocks) -> Tensor | None:
    """`[out]`: the bias that a node adds once to its sum (GATv2: also the senders' bias, because attention sums to one)."""
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
