"""The model as walks see it, where calls stand side by side: the same questions as `network.py`, answered by parts.

A step from u to v before a depth may go over any call of it, and its block is the sum of the calls' blocks (`part_blocks.py`).
Rows of states and sums are laid out by `state_layout.py`; nodes of different kinds use the same columns for different values.
What happens at nodes between the calls is a Jacobian for each kind of nodes, from each sum (and each value that a residual
carries around the calls) to the next state.
"""

from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.ir import MessageStep, Ref, Rows
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.base import Tables
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Rule
from edgewise.walk.part_blocks import CallPlace, PartBlocks, blocks_of_call, first_of
from edgewise.walk.part_states import NodeStates
from edgewise.walk.prefixes import Front
from edgewise.walk.record import Recording


class PartNetwork(NodeStates):
    """The blocks of all calls, and the maps at nodes between them; arguments as for `Network`."""

    def __init__(self, recording: Recording, rule: Rule, attention: str, *, merged: bool = True) -> None:
        super().__init__(recording, rule, attention)
        self._geometries: dict[bool, Geometry] = {}
        self._merged = merged
        self._parts = [self._blocks(depth) for depth in range(self.num_calls)]

    # --- blocks -------------------------------------------------------------------------------------------------------

    def geometry(self, call: int) -> Geometry:
        """The pairs (sender, receiver) of a depth: all edges, and every node with itself if a call or residual lets it stay."""
        carries = any(
            source.own_call is not None or self.is_state(source, call) or self.moves(source)
            for source in self.beside(call)
        )
        stays = carries or any(_stays(step) for step in self.program.calls_of(call))
        if stays not in self._geometries:
            self._geometries[stays] = Geometry.of(self.recording.in_edges, stays=stays, merged=self._merged)
        return self._geometries[stays]

    def _blocks(self, depth: int) -> list[PartBlocks]:
        """The blocks of all calls of a depth; those of the first calls are multiplied with the features at once."""
        found = []
        geometry = self.geometry(depth)
        row = self.row_of(geometry.sender)
        for step in self.program.calls_of(depth):
            assert step.part is not None
            tables = [self.table(source) for source in step.sources]
            hop = self.recording.levels.hop(depth, from_nodes=True, part=step.part)
            into, own = (self._columns(source, depth) for source in (step.source, step.sources[-1]))
            at = CallPlace(
                geometry, self.nodes_of(step.kind), self.layout.sums[depth][step.output], into or slice(0, 0), own
            )
            table = tables[0] if step.receiver is None else Tables(*tables)
            parts = blocks_of_call(step, at, table, hop, self.attention, self.rule)
            if depth:
                found += [part for part in parts if part.into.stop]
                continue
            for part in parts:
                mine = step.sources[-1] if part.into is own and step.receiver is not None else step.source
                assert isinstance(mine, Rows)
                found.append(first_of(part, self._start(mine), row))
        return found

    def _start(self, source: Rows) -> Tensor:
        """What the features bring into constant rows; a model that makes its own features starts from these."""
        along = self.recording.moving.tangent(source.tensor)
        return (source.tensor if along is None else along).double()

    def _columns(self, source: Any, depth: int) -> slice | None:
        """The columns of what a call reads in the state before it; those of features are their own."""
        if isinstance(source, Ref):
            return self.layout.states[depth][source.value]
        return slice(0, source.tensor.size(1)) if depth == 0 else None

    def children(self, call: int, node: Tensor) -> tuple[Tensor, Tensor]:
        """All steps of prefixes that wait at some nodes `[P]` before a call: `[n]` the prefix (rising), `[n]` the pair."""
        return self.geometry(call).into(node)

    def onward(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n, state]`: the gradients of the prefixes' steps, with respect to the senders' states, for call ≥ 1."""
        found = front.summed.new_zeros(len(pair), self.width(call))
        for part in self._parts[call]:
            at, number = part.among(pair)
            if len(at):
                found[at, part.into] += part.onward(front.summed, parent[at], number)
        if front.around is not None:
            stays = self.geometry(call).is_own[pair].nonzero().view(-1)
            found.index_add_(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def products(self, call: int, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n]`: the onward gradients times the senders' own activations, for call ≥ 1."""
        rows = self.state(call).index_select(0, self.geometry(call).sender[pair])
        return torch.linalg.vecdot(self.onward(call, front, parent, pair), rows)

    def _arrivals(self, pair: Tensor) -> Tensor:
        """`[n, sum]`: block · features of some pairs of the first calls."""
        found = torch.zeros(len(pair), self.layout.sum_width(0), dtype=torch.double, device=pair.device)
        row = self.row_of(self.geometry(0).sender[pair])
        for part in self._parts[0]:
            at, number = part.among(pair)
            if len(at):
                found[at, part.summed] += part.arrivals(number, row[at])
        return found

    def scores(self, front: Front, parent: Tensor, pair: Tensor) -> Tensor:
        """`[n]`: the relevance of complete walks, made by the steps of prefixes in the first call."""
        found = torch.linalg.vecdot(front.summed.index_select(0, parent), self._arrivals(pair))
        if front.around is not None:
            stays = self.geometry(0).is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, front.around.index_select(0, parent[stays]))
        return found

    def arrive(self, call: int, node: Tensor, gradient: Tensor) -> Front:
        """Turn gradients `[P, state]` at states before `call` (≥ 1) into prefixes that wait before call − 1."""
        summed = gradient.new_zeros(len(gradient), self.layout.sum_width(call - 1))
        beside = gradient.new_zeros(len(gradient), self.layout.width(call - 1)) if call > 1 else None
        for maps in self.maps[call]:
            at, row = self.of_kind(node, maps.kind)
            for begin, end, jacobian in maps.summed:
                summed[at, begin] += jacobian.back(gradient[at, end], row)
            for begin, end, jacobian in maps.around:
                assert beside is not None
                beside[at, begin] += jacobian.back(gradient[at, end], row)
        if call == 1 and self.skip is not None:
            beside = torch.linalg.vecdot(gradient, self.skip.index_select(0, node))
        elif call > 1 and not any(maps.around for maps in self.maps[call]):
            beside = None
        return Front(node, summed, beside)

    def block(self, call: int, pair: Tensor) -> Tensor:
        """`[n, next state, state]`: some blocks in full, for call ≥ 1; those of the last call end in what is summed up."""
        width = self.width(call)
        found = torch.zeros(len(pair), self.layout.sum_width(call), width, dtype=torch.double, device=pair.device)
        for part in self._parts[call]:
            at, number = part.among(pair)
            if len(at):
                found[at, part.summed, part.into] += part.matrices(number)
        if call == self.num_calls - 1:
            return found
        geometry = self.geometry(call)
        after = found.new_zeros(len(pair), self.width(call + 1), width)
        stays = geometry.is_own[pair].to(found.dtype).view(-1, 1, 1)
        for maps in self.maps[call + 1]:
            at, row = self.of_kind(geometry.receiver[pair], maps.kind)
            for begin, end, jacobian in maps.summed:
                after[at, end] += jacobian.after(found[at, begin], row)
            for begin, end, jacobian in maps.around:
                after[at, end, begin] += jacobian.dense(row) * stays[at]
        return after

    def first_block(self, pair: Tensor) -> NoReturn:
        """Blocks of the first calls in full are not made: features of different kinds have different widths."""
        raise ModelError(
            "search='emp_neu' needs one message-passing call of each depth; this model has several side by side. Use "
            "search='exact'."
        )

    def forth(self, call: int, rows: Tensor, pair: Tensor) -> Tensor:
        """`[n, next state]`: block[pair] · rows for vectors `[n, state]`, one for each pair, for 1 ≤ call < L − 1."""
        found = rows.new_zeros(len(pair), self.layout.sum_width(call))
        for part in self._parts[call]:
            at, number = part.among(pair)
            if len(at):
                found[at, part.summed] += part.forth(rows[at], number)
        return self._behind(call, found, rows, pair)

    def first_states(self, pair: Tensor) -> Tensor:
        """`[n, state]`: what each pair of the first call brings into the receiver's state."""
        found = self._arrivals(pair)
        if self.num_calls == 1:
            return found
        found, receiver = self._behind(0, found, None, pair), self.geometry(0).receiver[pair]
        if self.skip is not None:
            stays = self.geometry(0).is_own[pair].to(found.dtype).view(-1, 1)
            found = found + self.skip.index_select(0, receiver) * stays
        return found

    def _behind(self, call: int, summed: Tensor, rows: Tensor | None, pair: Tensor) -> Tensor:
        """Through what happens at the receivers: from sums (and, where a node stays, its own state) to the next state."""
        geometry, found = self.geometry(call), summed.new_zeros(len(pair), self.width(call + 1))
        for maps in self.maps[call + 1]:
            at, row = self.of_kind(geometry.receiver[pair], maps.kind)
            for begin, end, jacobian in maps.summed:
                found[at, end] += jacobian.forth(summed[at, begin], row)
            own = geometry.is_own[pair[at]].nonzero().view(-1)
            for begin, end, jacobian in maps.around if rows is not None else []:
                assert rows is not None
                found[at[own], end] += jacobian.forth(rows[at[own], begin], row[own])
        return found

    def width(self, call: int) -> int:
        """How many numbers a state before a call has; before the first call, how many features at most."""
        if call:
            return self.layout.width(call)
        return max(source.tensor.size(1) for step in self.program.calls_of(0) for source in step.sources)  # type: ignore[union-attr]

    @property
    def widest(self) -> int:
        """The width of the widest state, features aside."""
        return max([1, *(self.width(call) for call in range(1, self.num_calls))])

    @cached_property
    def _states(self) -> list[Tensor]:
        found = []
        for call in range(self.num_calls):
            example = torch.zeros(
                self.num_nodes, self.width(call), dtype=torch.double, device=self.recording.data.edge_index.device
            )
            for value, columns in self.layout.states[call].items():
                nodes = self.nodes_of(self.kind_of[value])
                everyone = torch.arange(self.num_nodes, device=example.device) if nodes is None else nodes
                example[everyone, columns] = self.recording.known[value].double()
            found.append(example)
        return found

    def state(self, call: int) -> Tensor:
        """`[N, width]`: the nodes' states before a call ≥ 1."""
        return self._states[call]

    def roots_alone(self, call: int) -> bool:
        """Whether staying in a call is a root matrix or a residual, never an added loop; both in one depth are refused."""
        layers = [step.layer for step in self.program.calls_of(call)]
        loops = [
            getattr(layer, "loop", None) is not None or getattr(layer, "loop_edge", None) is not None
            for layer in layers
        ]
        roots = [isinstance(layer, AffineLayer) and layer.root is not None for layer in layers]
        if any(loops) and (any(roots) or any(source.own_call is not None for source in self.beside(call))):
            raise ModelError(
                "goat_walks counts an added self-loop as a factor and a root weight as none; this model has both in one layer. "
                "Use method='gradient' or method='lrp'."
            )
        return not any(loops)


def _stays(step: MessageStep) -> bool:
    """Whether a call lets a walk stay on a node: by a loop, a root weight, or attention that reads the receiver."""
    if isinstance(step.layer, AffineLayer):
        return step.layer.loop is not None or step.layer.root is not None
    return True
