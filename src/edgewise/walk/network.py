"""The model as walks see it: blocks for every call, and what happens at nodes in between.

A prefix of a walk, read from the explained node back, has reached node v before call c; it is known by its gradient with
respect to what v summed up in that call, and by what a residual carries around the call (`prefixes.Front`). All numbers are
float64. Two ways lead through the network:

- back, from the explained node: `children` → `onward` → `arrive`, call by call, and `scores` in the first call;
- forth, from the source: `first_states`, then `forth` (vectors) or `block` (matrices), call by call.

Example: `edgewise.examples.triangle_model`, edges 0 → 1, 1 → 2, 0 → 2, x = (1, 0, 1), h_v = 2·Σ x_u + x_v, z_v = 3·Σ h_u − h_v,
and node 2 is explained. Back from the front (node 2, gradient 1) before call 1:

    children   pairs 0 → 2, 1 → 2, 2 → 2
    onward     gradients 3, 3, −1 at the states of 0, 1, 2 (`arrive` keeps them: nothing happens at nodes between the calls)
    children   0 → 0;  0 → 1, 1 → 1;  0 → 2, 1 → 2, 2 → 2 in call 0
    scores     3·1·1 = 3;  3·2·1 = 6, 3·1·0 = 0;  −1·2·1 = −2, −1·2·0 = 0, −1·1·1 = −1

The six walks sum to z₂ = 6; (0, 1, 2) is the most relevant one. Forth, `first_states` of the six pairs of call 0 are 1, 2, 0,
2, 0 and 1.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.layers.affine import AffineLayer
from edgewise.walk.calls import Calls
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Rule
from edgewise.walk.node_jacobians import blocks_of_states, ends, first_call, node_maps
from edgewise.walk.prefixes import Front
from edgewise.walk.record import Recording

if TYPE_CHECKING:
    from edgewise.walk.blocks import Blocks, RowMap
    from edgewise.walk.part_network import PartNetwork

AnyNetwork: TypeAlias = "Network | PartNetwork"
"""What a search asks: both answer the same questions."""


class Network:
    """The blocks of all calls, and the maps at nodes between them.

    Args of the constructor: the recording, the rule, `attention` (`"full"` or `"fixed"`), `loan` (borrows the model while
    something is differentiated later on), and whether pairs are `merged` (see `Geometry`).

    `first` is the call that reads the features; `blocks[c]` and `node_maps[c]` are for the calls c ≥ 1.
    """

    def __init__(
        self, recording: Recording, rule: Rule, attention: str, loan: Callable[[], AbstractContextManager[None]],
        *, merged: bool = True,
    ) -> None:  # fmt: skip
        self.calls = Calls(recording, rule, attention, merged=merged)
        self.recording, self.chain, self._loan = recording, self.calls.chain, loan
        self.num_calls = self.chain.num_calls
        self.num_nodes = self.calls.num_nodes
        self._first_blocks: Blocks | None = None
        self.blocks: list[Blocks | None] = [None]
        self.first = first_call(self.calls)
        self.node_maps: list[tuple[RowMap | None, RowMap | None]] = [(None, None)]
        """Per call c ≥ 1: to the state before it, from what call c − 1 summed up and (residual) from the state before that."""
        for call in range(1, self.num_calls):
            self.node_maps.append(node_maps(self.calls, call))
            self.blocks.append(blocks_of_states(self.calls, call))

    def ends(self, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> Front:
        """Where walks end: the explained nodes (None: all), with the gradient at what they summed up."""
        return ends(self.calls, value, nodes)

    def roots_alone(self, call: int) -> bool:
        """Whether staying in a call is a root matrix or (1 + ε), not an added loop."""
        layer = self.chain.messages[call].layer
        return layer.loop is None if isinstance(layer, AffineLayer) else getattr(layer, "loop_edge", None) is None

    def geometry(self, call: int) -> Geometry:
        """The pairs (sender, receiver) of a call."""
        if call == 0:
            return self.first.geometry
        block = self.blocks[call]
        assert block is not None
        return block.geometry

    def children(self, call: int, node: Tensor) -> tuple[Tensor, Tensor]:
        """All steps of prefixes that wait at some nodes `[P]` before a call: `[n]` the prefix (rising), `[n]` the pair."""
        return self.geometry(call).into(node)

    def onward(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n, state]`: the gradients of the prefixes' steps, with respect to the senders' states, for call ≥ 1."""
        blocks = self.blocks[call]
        assert blocks is not None
        found = blocks.onward(front.summed, parent, pair)
        if front.around is not None:
            stays = blocks.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def products(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n]`: the onward gradients times the senders' own activations, for call ≥ 1; `parent` must be sorted.

        It is the sum over all walks that continue the step, if the network is linear: Algorithm 1 ranks prefixes by it.
        """
        blocks = self.blocks[call]
        assert blocks is not None
        rows = self.state(call)
        found = blocks.products(front.summed, parent, pair, rows)
        if front.around is not None:
            stays = blocks.geometry.is_own[pair].nonzero().view(-1)
            own = rows.index_select(0, blocks.geometry.sender[pair[stays]])
            found.index_add_(0, stays, torch.linalg.vecdot(front.around.index_select(0, parent[stays]), own))
        return found

    def scores(self, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n]`: the relevance of complete walks, made by the steps of prefixes in the first call."""
        found = self.first.products(front.summed, parent, pair)
        if front.around is not None:
            stays = self.first.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def arrive(self, call: int, node: Tensor, gradient: Tensor) -> Front:
        """Turn gradients `[P, state]` at states before `call` (≥ 1) into prefixes that wait before call − 1.

        That passes what happens at nodes in between: activation, norm, residual.
        """
        summed, around = self.node_maps[call]
        through = gradient if summed is None else summed.back(gradient, node)
        beside: Tensor | None = None
        if call == 1:
            if self.first.skip is not None:
                beside = torch.linalg.vecdot(gradient, self.first.skip.index_select(0, node))
        elif around is not None:
            beside = around.back(gradient, node)
        return Front(node, through, beside)

    def block(self, call: int, pair: Tensor) -> Tensor:
        """`[n, next state, state]`: some blocks in full, for call ≥ 1; those of the last call end in what is summed up."""
        blocks = self.blocks[call]
        assert blocks is not None
        found = blocks.matrices(pair)
        if call == self.num_calls - 1:
            return found
        summed, around = self.node_maps[call + 1]
        receiver = blocks.geometry.receiver[pair]
        found = found if summed is None else summed.after(found, receiver)
        if around is not None:
            stays = blocks.geometry.is_own[pair].to(found.dtype).view(-1, 1, 1)
            found = found + around.dense(receiver) * stays
        return found

    def first_block(self, pair: Tensor) -> Tensor:
        """`[n, state, features]`: some blocks of the first call in full (of an only call: to what it sums up).

        They are wide; only the search for neuron-level walks needs them.
        """
        if self._first_blocks is None:
            with self._loan():
                self._first_blocks = self.calls.plain_blocks(0)
        if self.first.skip is not None:
            raise ModelError("search='emp_neu' needs a first layer without a residual around it. Use search='exact'.")
        found, receiver = self._first_blocks.matrices(pair), self.first.geometry.receiver[pair]
        summed = self.node_maps[1][0] if self.num_calls > 1 else None
        return found if summed is None else summed.after(found, receiver)

    def forth(self, call: int, rows: Tensor, pair: Tensor) -> Tensor:
        """`[n, next state]`: block[pair] · rows for vectors `[n, state]`, one for each pair, for 1 ≤ call < L − 1."""
        blocks = self.blocks[call]
        assert blocks is not None
        found, receiver = blocks.forth(rows, pair), blocks.geometry.receiver[pair]
        summed, around = self.node_maps[call + 1]
        found = found if summed is None else summed.forth(found, receiver)
        if around is not None:
            stays = blocks.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, around.forth(rows.index_select(0, stays), receiver[stays]))
        return found

    def first_states(self, pair: Tensor) -> Tensor:
        """`[n, state]`: what each pair of the first call brings into the receiver's state."""
        found, receiver = self.first.arrivals(pair), self.first.geometry.receiver[pair]
        summed = self.node_maps[1][0] if self.num_calls > 1 else None
        found = found if summed is None else summed.forth(found, receiver)
        if self.first.skip is not None:
            stays = self.first.geometry.is_own[pair].to(found.dtype).view(-1, 1)
            found = found + self.first.skip.index_select(0, receiver) * stays
        return found

    def width(self, call: int) -> int:
        """How many numbers a state before a call has; before the first call, how many features."""
        value = self.chain.states[call]
        return (self.recording.tangent if value is None else self.recording.known[value]).size(1)

    @property
    def widest(self) -> int:
        """The width of the widest state, features aside."""
        return max([1, *(self.width(call) for call in range(1, self.num_calls))])

    def state(self, call: int) -> Tensor:
        """`[N, width]`: the nodes' states before a call; before the first call what the features bring (`tangent`)."""
        value = self.chain.states[call]
        rows = self.recording.tangent if value is None else self.recording.known[value]
        return rows.double()
