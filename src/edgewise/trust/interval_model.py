"""Models in interval arithmetic: what is followed of a question, and blocks of edges whose weights move between bounds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.program.execution import LoweredGraphs
from edgewise.program.lowering import Lowering
from edgewise.program.perturbation import Differences
from edgewise.question import GraphQuestion, PosedQuestion
from edgewise.question.memory import blocks
from edgewise.question.posed_question import sub_target
from edgewise.trust.forward_bounds import Spread
from edgewise.trust.interval_program import NotCertifiable, Plan
from edgewise.trust.values_at_one import AtOne
from edgewise.trust.varied_edges import VariedEdges

_FIRST, _GROWTH = 16, 4  # slots in the first block, and how much larger the next may be
_TABLE = 2**22  # slots × nodes in a block
_COPIES_OF_A_NUMBER = 64  # both ends of change and slope, and what is made of them on the way
_ENOUGH = 2**27  # bytes; larger blocks are not faster


@dataclass(frozen=True, eq=False)
class Followed:
    """Some targets of a question, with the model in interval arithmetic on what they depend on."""

    at_one: AtOne
    positions: Tensor
    """`[targets]`: their positions in the question's index."""
    columns: Callable[[Tensor], Tensor]
    """From columns of the graph that is run to those of the target's own graph."""

    def position(self, of_block: Tensor) -> Tensor:
        """Positions in the question's index, from those among these targets."""
        return self.positions[of_block.cpu()]


def follow(question: PosedQuestion, memory: int) -> Iterator[Followed]:
    """The model at ω = 1, for all targets of a node task, or for some graphs after others.

    Raises `NotCertifiable` with the reason if it cannot be followed.
    """
    if question.target.of != "logit":
        raise NotCertifiable(f"of={question.target.of!r} is not piecewise linear in the outputs; of='logit' is")
    if isinstance(question, GraphQuestion):
        for positions in blocks(question, memory, None, alike=True):
            yield _of_graphs(question, positions)
        return
    if question.task != "node":
        raise NotCertifiable(f"task={question.task!r}: a decoder is not followed, only node and graph tasks are")
    if question.lowering is None:
        raise NotCertifiable(_not_lowered(question))
    plan = Plan.of(question.lowering.program, question.lowering.in_edges.num_nodes)
    everyone = torch.arange(len(question.index))
    differences = Differences(question.lowering, question.places(everyone), question.target)
    yield Followed(AtOne(plan, differences), everyone, question.columns)


def _not_lowered(question: PosedQuestion) -> str:
    known = question.not_lowered
    return f"the model is not lowered ({known or 'it does not give the same numbers when it is taken apart'})"


def _of_graphs(question: GraphQuestion, positions: Tensor) -> Followed:
    """Some graphs side by side: every node counts in every call, and pools make a row for each graph."""
    engine = question.engine(positions)
    if not question.together:
        raise NotCertifiable("graphs in a batch change each other's output, so they are not run together")
    if not isinstance(engine, LoweredGraphs):
        raise NotCertifiable(_not_lowered(question))
    levels, program = engine.levels, engine.program
    in_edges = InEdges(levels.start, levels.edge_id, levels.sender, levels.num_nodes)
    plan = Plan.of(program, levels.num_nodes, levels.owner, levels.num_targets)
    if plan.output not in plan.of_graphs:
        raise NotCertifiable("what the model returns is not made by a pool over the nodes of each graph")
    everyone = torch.arange(levels.num_nodes, device=levels.node.device)
    receiver = torch.repeat_interleave(everyone, in_edges.start.diff())
    ends = torch.empty(2, len(receiver), dtype=torch.long, device=receiver.device)
    ends[:, in_edges.edge] = torch.stack([in_edges.sender, receiver])
    data = Data(edge_index=ends, num_nodes=levels.num_nodes)
    lowering = Lowering(program, data, in_edges, question.target.truth.dtype)
    at_one = AtOne(plan, Differences(lowering, everyone, sub_target(question, positions)))
    column = torch.empty_like(engine.edge_id)
    column[engine.union_column] = engine.edge_id
    return Followed(at_one, positions, lambda union: column[union])


def spreads(
    at_one: AtOne,
    level: str,
    bounds: list[tuple[float, float]],
    memory: int,
    among: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Spread]:
    """Blocks of edges, carried forwards: all edges or those that `among` keeps, each with all `bounds` of its weight.

    A slot is an edge (at layer level: in one call) with one pair of bounds; the slots of an edge stand together. Two edges
    and the bounds (0, ½), (½, 1) make the slots (e₀, 0, ½), (e₀, ½, 1), (e₁, 0, ½), (e₁, ½, 1). Blocks grow until they fill
    the memory.
    """
    slots = at_one.graph.slots(level, of_self=False)
    if among is not None:
        kept = among(slots.item)
        slots = replace(slots, item=slots.item[kept], call=slots.call[kept])
    low, high = (torch.tensor(ends, dtype=torch.double, device=slots.item.device) for ends in zip(*bounds, strict=True))
    width = max(at_one.value[operation.output].lo.size(1) for operation in at_one.plan.operations)
    most, size = max(_TABLE // (at_one.num_nodes * len(bounds)), 1), _FIRST
    begin = 0
    while begin < len(slots):
        size = min(size, most, len(slots) - begin)
        edge, call = (part[begin : begin + size].repeat_interleave(len(bounds)) for part in (slots.item, slots.call))
        spread = Spread(at_one, VariedEdges(edge, call, low.repeat(size), high.repeat(size)))
        yield spread
        begin += size
        fits = int(min(memory, _ENOUGH) * size / max(spread.peak * width * _COPIES_OF_A_NUMBER * 8, 1))
        size = max(1, min(fits, size * _GROWTH))
