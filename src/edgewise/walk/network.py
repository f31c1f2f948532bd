"""The model as walks see it: blocks for every call, what happens at nodes in between, and where walks start and end.

A prefix of a walk, read from the explained node back, has reached node v before call c; it is known by its gradient with
respect to what v summed up in that call, and by what a residual carries around the call. All numbers are float64.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.errors import ModelError
from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.attention import AttentionLayer
from edgewise.lowering.program import Rows
from edgewise.lowering.row_wise import is_element_wise
from edgewise.walk.blocks import Blocks, FirstCall
from edgewise.walk.build import blocks_of, by_copies, hears_itself
from edgewise.walk.chain import Chain, Link, cut
from edgewise.walk.geometry import Geometry
from edgewise.walk.recording import Recording
from edgewise.walk.row_maps import RowMap
from edgewise.walk.running import Pending, Rule, Runner


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


class Network:
    """Blocks of all calls. `calls[0]` is the first call, which reads the features."""

    def __init__(
        self, recording: Recording, rule: Rule, attention: str, loan: Callable[[], AbstractContextManager[None]],
        *, merged: bool = True,
    ) -> None:  # fmt: skip
        self.recording, self.rule, self.loan, self._merged = recording, rule, loan, merged
        self._first_blocks: Blocks | None = None
        self.chain: Chain = cut(recording.program, recording.moving)
        self.num_calls = self.chain.num_calls
        self.num_nodes = recording.data.num_nodes
        self._attention = attention
        self._geometries: dict[bool, Geometry] = {}
        self._raised: dict[int, Tensor] = {}
        self.blocks: list[Blocks | None] = [None]
        self.first = self._first_call()
        self.node_maps: list[tuple[RowMap | None, RowMap | None]] = [(None, None)]
        """Per call c ≥ 1: from what call c − 1 summed up, and from the state before it, to the state before call c."""
        for call in range(1, self.num_calls):
            self.node_maps.append(self._node_maps(call))
            self.blocks.append(self._blocks(call))

    # --- building -----------------------------------------------------------------------------------------------------

    def geometry(self, call: int) -> Geometry:
        """The pairs of a call."""
        if call == 0:
            return self.first.geometry
        block = self.blocks[call]
        assert block is not None
        return block.geometry

    def _geometry(self, call: int) -> Geometry:
        message = self.chain.messages[call]
        sources = [source for step in self.chain.receiving[call].steps for source in step.sources]
        if call == 0:
            carries = any(self._along_features(source) is not None for source in sources)
        else:
            carries = any(_reads(source, self.chain.states[call]) for source in sources)
        stays = carries or hears_itself(message.layer, self._attention)
        if stays not in self._geometries:
            self._geometries[stays] = Geometry.of(self.recording.in_edges, stays=stays, merged=self._merged)
        return self._geometries[stays]

    def _plain_blocks(self, call: int) -> Blocks:
        message, table = self.chain.messages[call], self.recording.table(self.chain.messages[call])
        hop = self.recording.hop(call)
        return blocks_of(
            message.layer, self._geometry(call), table, hop, self._attention, self.rule, self.rule.gamma(call)
        )

    def _blocks(self, call: int) -> Blocks:
        plain, link = self._plain_blocks(call), self.chain.sending[call]
        if link is None:
            return plain
        state = self.chain.states[call]
        assert state is not None
        (sending,) = self._jacobians(link, call, {state: self.recording.known[state]})
        return Blocks(
            plain.geometry, plain.scale, plain.matrix, plain.root, plain.post, plain.dense, sending, plain.width
        )

    def _first_call(self) -> FirstCall:
        recording, message = self.recording, self.chain.messages[0]
        tangent, geometry = recording.tangent, self._geometry(0)
        dense_attention = isinstance(message.layer, AttentionLayer) and self._attention != "fixed"
        if self.rule.is_gradient and (dense_attention or not _is_factored(message.layer)):
            along = by_copies(message.layer, geometry, recording.table(message), recording.hop(0), tangent)
            return FirstCall(geometry, None, dense=along, skip=self._first_skip())
        plain = self._plain_blocks(0)
        start = tangent.double()
        sent = start if plain.matrix is None else start @ plain.matrix.t()
        root = None if plain.root is None else start @ plain.root.t()
        return FirstCall(geometry, plain.scale, sent, root, plain.post, skip=self._first_skip())

    def _first_skip(self) -> Tensor | None:
        """What residuals carry from the features into the state after the first call."""
        link = self.chain.receiving[0]
        sources = [source for step in link.steps for source in step.sources]
        if self.num_calls == 1 or all(self._along_features(source) is None for source in sources):
            return None
        message = self.chain.messages[0]
        with forward_ad.dual_level():
            runner = Runner(self.rule, self.rule.gamma(0), self._dual)
            values = {message.output: self._summed(0, self.recording.known[message.output])[0]}
            found = forward_ad.unpack_dual(runner.run(link, values)).tangent
        return None if found is None else found.detach().double()

    def _dual(self, source: Rows) -> Tensor:
        along = self._along_features(source)
        return source.tensor if along is None else forward_ad.make_dual(source.tensor.detach(), along)

    def _along_features(self, source: Any) -> Tensor | None:
        """How a constant of the nodes changes along the features, if it does."""
        if not isinstance(source, Rows):
            return None
        found = self.recording.moving.tangent(source.tensor)
        return source.tensor if found is None and source.own_call == 0 else found

    def _summed(self, call: int, rows: Tensor, nodes: Tensor | None = None) -> tuple[Any, Tensor]:
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
        table, plain = self.recording.table(message).double(), self._plain_blocks(call)
        pairs = torch.arange(len(plain.geometry), device=table.device)
        terms = plain.forth(table.index_select(0, plain.geometry.sender), pairs)
        total = terms.new_zeros(self.num_nodes, terms.size(1)).index_add_(0, plain.geometry.receiver, terms)
        gamma = self.rule.gamma(call)
        bias = _biases(message.layer, plain)
        self._raised[call] = total if bias is None else total + bias + gamma * bias.clamp(min=0)
        return self._raised[call]

    def _node_maps(self, call: int) -> tuple[RowMap | None, RowMap | None]:
        """What leads to the state before a call."""
        link, message, state = (
            self.chain.receiving[call - 1],
            self.chain.messages[call - 1],
            self.chain.states[call - 1],
        )
        known = self.recording.known
        leaves = {message.output: known[message.output]}
        if state is not None:
            leaves[state] = known[state]
        found = self._jacobians(link, call - 1, leaves, summed=message.output)
        if link.steps and found[0] is None:
            found[0] = RowMap(diagonal=torch.zeros_like(known[message.output]).double())
        return found[0], found[1] if len(found) > 1 else None

    def _jacobians(
        self, link: Link, call: int, start: dict[int, Tensor], summed: int | None = None
    ) -> list[RowMap | None]:
        """Of a link's output with respect to the values it starts with; None: the identity, or (not the first) nothing."""
        if not link.steps and self.rule.is_gradient:
            return [None for _ in start]
        runner = Runner(self.rule, self.rule.gamma(call), lambda source: source.tensor)
        with torch.enable_grad():
            values, leaves = {}, []
            for value, rows in start.items():
                if value == summed:
                    values[value], leaf = self._summed(call, rows)
                else:
                    values[value] = leaf = rows.detach().clone().requires_grad_()
                leaves.append(leaf)
            output = runner.run(link, values)
            plain = all(is_element_wise(step.function) for step in link.steps)
            return _maps(output, leaves, element_wise=plain)

    # --- where walks end ----------------------------------------------------------------------------------------------

    def ends(self, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> Front:
        """The explained nodes (graph tasks: None, every node), and ∂z there; `value` maps output rows to numbers."""
        call = self.num_calls - 1
        link, message, state = self.chain.receiving[-1], self.chain.messages[-1], self.chain.states[-1]
        known = self.recording.known
        everyone = torch.arange(self.num_nodes, device=known[message.output].device) if nodes is None else nodes

        def pick(rows: Tensor) -> Tensor:
            return rows if nodes is None else rows.index_select(0, nodes)

        tracked: list[tuple[Tensor, Tensor]] = []

        def constant(source: Rows) -> Tensor:
            rows = pick(source.tensor)
            along = self._along_features(source) if self.num_calls == 1 else None
            if along is not None:
                rows = rows.detach().clone().requires_grad_()
                tracked.append((rows, pick(along)))
            return rows

        with torch.enable_grad():
            summed, leaf = self._summed(call, pick(known[message.output]), nodes)
            values = {message.output: summed}
            around = None
            if state is not None and state != message.output:
                values[state] = around = pick(known[state]).detach().clone().requires_grad_()
            rows = Runner(self.rule, self.rule.gamma(call), constant).run(link, values)
            inputs = [leaf, *([] if around is None else [around]), *(rows for rows, _ in tracked)]
            found = torch.autograd.grad(value(rows).sum(), inputs, allow_unused=True)
        gradient = torch.zeros_like(leaf) if found[0] is None else found[0]
        beside: Tensor | None = None
        if around is not None and found[1] is not None:
            beside = found[1].double()
        for (_, tangent), of_rows in zip(tracked, found[1:], strict=False):
            if of_rows is not None:
                product = (of_rows.double() * tangent.double()).flatten(1).sum(dim=1)
                beside = product if beside is None else beside + product
        return Front(everyone, gradient.double(), beside)

    # --- steps --------------------------------------------------------------------------------------------------------

    def children(self, call: int, node: Tensor) -> tuple[Tensor, Tensor]:
        """All steps of some prefixes before a call: the number of the prefix, and the pair."""
        return self.geometry(call).into(node)

    def onward(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """The gradients with respect to the senders' states, for call ≥ 1."""
        blocks = self.blocks[call]
        assert blocks is not None
        found = blocks.onward(front.summed, parent, pair)
        if front.around is not None:
            stays = blocks.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def products(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """The onward gradients times the senders' own activations, for call ≥ 1; `parent` must not fall."""
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
        """The relevance of complete walks: the first call taken by some prefixes."""
        found = self.first.products(front.summed, parent, pair)
        if front.around is not None:
            stays = self.first.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def arrive(self, call: int, node: Tensor, gradient: Tensor) -> Front:
        """Gradients with respect to states before `call` (≥ 1), as prefixes before call − 1."""
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
        """Blocks from state to state, `[n, out, in]`, for 1 ≤ call < L − 1 (call L − 1 ends in what is summed up)."""
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
        """The blocks of the first call in full, from the features to the next state (one call: to what it sums up)."""
        if self._first_blocks is None:
            with self.loan():
                self._first_blocks = self._plain_blocks(0)
        if self.first.skip is not None:
            raise ModelError("search='emp_neu' needs a first layer without a residual around it. Use search='exact'.")
        found, receiver = self._first_blocks.matrices(pair), self.first.geometry.receiver[pair]
        summed = self.node_maps[1][0] if self.num_calls > 1 else None
        return found if summed is None else summed.after(found, receiver)

    def forth(self, call: int, rows: Tensor, pair: Tensor) -> Tensor:
        """block[pair] · rows, from state to state (1 ≤ call < L − 1)."""
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
        """What each pair of the first call brings into the receiver's state, `[n, state]`."""
        found, receiver = self.first.arrivals(pair), self.first.geometry.receiver[pair]
        summed = self.node_maps[1][0] if self.num_calls > 1 else None
        found = found if summed is None else summed.forth(found, receiver)
        if self.first.skip is not None:
            stays = self.first.geometry.is_own[pair].to(found.dtype).view(-1, 1)
            found = found + self.first.skip.index_select(0, receiver) * stays
        return found

    def width(self, call: int) -> int:
        """Of the states before a call."""
        value = self.chain.states[call]
        return (self.recording.tangent if value is None else self.recording.known[value]).size(1)

    @property
    def widest(self) -> int:
        """The widest state, features aside."""
        return max([1, *(self.width(call) for call in range(1, self.num_calls))])

    def state(self, call: int) -> Tensor:
        """The nodes' states before a call, `[N, width]`."""
        value = self.chain.states[call]
        rows = self.recording.tangent if value is None else self.recording.known[value]
        return rows.double()


def _reads(source: Any, value: int | None) -> bool:
    return value is not None and getattr(source, "value", None) == value


def _is_factored(layer: Any) -> bool:
    return isinstance(layer, (AffineLayer, AttentionLayer))


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


def _maps(output: Tensor, leaves: list[Tensor], *, element_wise: bool) -> list[RowMap | None]:
    """∂output/∂leaf at every row."""
    if element_wise:
        found = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
        return [None if g is None else RowMap(diagonal=g.double()) for g in found]
    columns = [
        torch.autograd.grad(column.sum(), leaves, retain_graph=True, allow_unused=True) for column in output.unbind(1)
    ]
    maps: list[RowMap | None] = []
    for of_leaf in zip(*columns, strict=True):
        known = [g for g in of_leaf if g is not None]
        full = [torch.zeros_like(known[0]) if g is None else g for g in of_leaf] if known else []
        maps.append(RowMap(matrices=torch.stack(full, dim=1).double()) if full else None)
    return maps
