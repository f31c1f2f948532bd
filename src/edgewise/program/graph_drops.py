"""Occlusion of whole graphs: what a missing message changes is followed to the last call, and only the readout is run again.

Nodes are told apart up to the readout, so a missing message changes the rows of a few nodes (`perturbation_forward.py`). A sum
or mean over the nodes of a graph changes by the sum of these changes, and what stands behind it is run on a row for each
missing message. Any other readout may mix the rows of a graph as it likes: it is run on the rows of all graphs side by side,
once for each round of missing messages, one in every graph.
"""

from functools import cached_property

import torch
from torch import Tensor

from edgewise.arrays import occurrence
from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.execution import LoweredGraphs
from edgewise.program.graph_chain import GraphChain
from edgewise.program.ir import Ref, Rows, RowStep
from edgewise.program.lowering import Lowering
from edgewise.program.operations import row_arguments
from edgewise.program.perturbation import Differences, MissingMessages
from edgewise.program.perturbation_forward import ForwardChange
from edgewise.program.readout import Pooling, read_pooling
from edgewise.question.target import Target

_NUMBERS = 2**22
"""Numbers of changed rows, at most, of the missing messages that are followed together."""


class ChainDrops:
    """The same for chains, in compiled loops (`graph_chain.py`)."""

    def __init__(self, engine: LoweredGraphs, chain: GraphChain, target: Target) -> None:
        self._engine, self._chain, self._target = engine, chain, target

    def run(self, level: str, *, of_self: bool) -> Tensor:
        """As `GraphDrops.run`."""
        found = self._chain.drops(self._target, level, of_self=of_self)
        found = found if of_self else found[:, self._engine.union_column]
        return found if level == "layer" else found[0]


class GraphDrops:
    """value − value without, for the edges and own terms of graphs side by side."""

    def __init__(self, engine: LoweredGraphs, target: Target) -> None:
        assert engine.by_node is not None
        data, in_edges = engine.by_node
        self._engine, self._owner = engine, engine.levels.owner  # [N]: the graph of each node
        lowering = Lowering(engine.program, data, in_edges, target.truth.dtype)
        lowering.settle()
        everyone = torch.arange(in_edges.num_nodes, device=self._owner.device)
        self._all = Differences(lowering, everyone, target)  # every node may count, so nothing is too far away
        self.rows, self._readout = _split(self._all)
        made = {step.output for step in self._readout}
        read = {source.value for step in self._readout for source in step.sources if isinstance(source, Ref)}
        self._read = (read | {engine.program.output}) - made
        self.pooling = read_pooling(self._readout, self._owner, target.value(target.truth))

    @cached_property
    def _value(self) -> Tensor:
        """`[graphs]`: the explained numbers; only where no residual is carried into the readout."""
        return self._number(self._all.known)

    @staticmethod
    def of(engine: object, target: Target) -> "GraphDrops | ChainDrops | None":
        """None where nodes cannot be told apart up to the readout, or calls stand side by side."""
        if isinstance(engine, LoweredGraphs) and engine.by_node is not None and engine.chain is not None:
            return ChainDrops(engine, engine.chain, target)
        return GraphDrops.by_rows(engine, target)

    @staticmethod
    def by_rows(engine: object, target: Target) -> "GraphDrops | None":
        """The same without compiled loops."""
        if not isinstance(engine, LoweredGraphs) or engine.by_node is None or not engine.program.is_chain:
            return None
        found = GraphDrops(engine, target)
        around = any(source.own_call is not None for step in found._readout for source in step.sources)
        return None if around else found

    def run(self, level: str, *, of_self: bool) -> Tensor:
        """`[M]` or `[L, M]` (of own terms `[S]` or `[L, S]`): what each copy's own graph loses without it."""
        slots = self._all.slots(level, of_self=of_self)
        at = slots.item if of_self else self._all.receiver[slots.item]
        graph = self._owner[at]
        # round by round, the graphs side by side: what is followed together is then run together
        turn = occurrence(graph)
        order = turn.argsort(stable=True)
        groups = self._all.program.num_calls if level == "layer" else 1
        size = self._all.lowering.in_edges.num_nodes if of_self else len(self._all.receiver)
        found = self._value.new_zeros(groups, size)
        for part in order.split(self._sizes(graph[order])):
            block = MissingMessages(slots.item[part], slots.call[part], of_self)
            found[block.call.clamp(min=0), block.item] = self._drops(block, graph[part], turn[part])
        found = found if of_self else found[:, self._engine.union_column]
        return found if level == "layer" else found[0]

    def _sizes(self, graph: Tensor) -> list[int]:
        """How many slots are followed together: a missing message changes at most all nodes of its graph."""
        nodes = torch.bincount(self._owner)
        widest = max(value.size(-1) for value in self._all.known.values())
        block = nodes[graph].cumsum(0) * widest // _NUMBERS
        sizes: list[int] = torch.unique_consecutive(block, return_counts=True)[1].tolist()
        return sizes

    def _drops(self, slots: MissingMessages, graph: Tensor, turn: Tensor) -> Tensor:
        """`[slots]`: what the graph of each slot loses; rounds follow each other in `turn`."""
        change = ForwardChange(self._all, slots)
        change.live = [*self._all.live[:-1], self._all.live[-1] | self._read]
        for step, segment in zip(self._all.steps, [*self._all.segments[:-1], self.rows], strict=True):
            change.through(step, segment)
        if self.pooling is not None:
            return self._pooled_drops(change, self.pooling, graph)
        pair_turn = turn[change.pairs.slot]
        by_turn = pair_turn.argsort(stable=True)
        drop, known, node = torch.zeros_like(self._value[graph]), self._all.known, change.pairs.node
        rounds = torch.unique_consecutive(turn)
        slot_end = torch.searchsorted(turn.contiguous(), rounds, right=True).tolist()
        pair_end = torch.searchsorted(pair_turn[by_turn], rounds, right=True).tolist()
        for slot_from, slot_to, pair_from, pair_to in zip(
            [0, *slot_end], slot_end, [0, *pair_end], pair_end, strict=False
        ):
            pairs, mine = by_turn[pair_from:pair_to], graph[slot_from:slot_to]
            values = {}
            for value in self._read:
                values[value] = known[value]
                if value in change.change:
                    moved = change.change[value].index_select(0, pairs)
                    values[value] = known[value].index_add(0, node[pairs], moved)
            drop[slot_from:slot_to] = self._value[mine] - self._number(values)[mine]
        return drop

    def _pooled_drops(self, change: ForwardChange, pooling: Pooling, graph: Tensor) -> Tensor:
        """The same where the readout begins with a sum or mean: all slots at once."""
        slot, moved = change.pairs.slot, change.change[pooling.read]
        total = moved.new_zeros(len(graph), moved.size(1)).index_add_(0, slot, moved)
        rows = self._all.known[pooling.made].index_select(0, graph) + total * pooling.share[graph].view(-1, 1)
        found = interpret(pooling.head, RowNumbers(_constant, _own), {pooling.made: rows})
        number = self._all.target.select(graph).value(found[self._all.program.output])
        changed = torch.zeros_like(graph, dtype=torch.bool).index_fill_(0, slot, value=True)
        return torch.where(changed, self._value[graph] - number, 0.0)

    def _number(self, values: dict[int, Tensor]) -> Tensor:
        """`[graphs]`: the explained numbers, from the values that the readout reads."""
        found = dict(values)
        if self._readout:
            found = interpret(self._readout, RowNumbers(_constant, _own), found)
        return self._all.target.value(found[self._all.program.output])


def _split(differences: Differences) -> tuple[list[RowStep], list[RowStep]]:
    """The steps behind the last call: those that work row by row, and the readout from the first one on that does not."""
    segment, size = differences.segments[-1], differences.lowering.in_edges.num_nodes
    for place, step in enumerate(segment):
        args, kwargs = step.arguments
        aligned = any(isinstance(leaf, Tensor) and leaf.dim() and leaf.size(0) == size for leaf in step.leaves)
        rows = differences.known[step.output]
        if aligned or rows.dim() != 2 or len(rows) != size or row_arguments(step.function, args, kwargs) is None:
            return segment[:place], segment[place:]
    return segment, []


def _constant(source: Rows) -> Tensor:
    return source.tensor


def _own(call: int) -> Tensor:
    raise AssertionError("a readout carries no residual")
