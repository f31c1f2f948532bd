"""A proof that an edge's gradient keeps its sign on all of [0, 1], by interval arithmetic."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.registry import check_level
from edgewise.errors import SettingError
from edgewise.program.perturbation import Differences
from edgewise.question import Question, pose
from edgewise.question.memory import read_memory
from edgewise.trust.backward_bounds import Return
from edgewise.trust.forward_bounds import Spread, VariedEdges
from edgewise.trust.interval_program import AtOne, NotCertifiable, Plan
from edgewise.trust.intervals import Interval
from edgewise.trust.target_edges import Draw, Questions, all_questions, draw_about, read_edges, share, share_of_each

# --- Blocks of edges whose weights move between given bounds, for models that interval arithmetic can follow -----------


_FIRST, _GROWTH = 16, 4
_TABLE = 2**22  # slots × nodes in a block
_COPIES_OF_A_NUMBER = 64  # both ends of change and slope, and what is made of them on the way
_ENOUGH = 2**27  # bytes; larger blocks are no faster


def follow(question: Question) -> AtOne:
    """The model in interval arithmetic, or `NotCertifiable` with the reason."""
    if question.task != "node":
        raise NotCertifiable("task='graph': pooling is not followed, only models of nodes are")
    if question.target.of != "logit":
        raise NotCertifiable(f"of={question.target.of!r} is not piecewise linear in the outputs; of='logit' is")
    if question.lowering is None:
        raise NotCertifiable("the model is not lowered (a layer or an operation of it is not known)")
    plan = Plan.of(question.lowering.program)
    return AtOne(plan, Differences(question.lowering, question.places(torch.arange(len(question.index))), question.target))


def spreads(
    at_one: AtOne,
    level: str,
    bounds: list[tuple[float, float]],
    memory: int,
    among: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Spread]:
    """All edges, or those that `among` keeps (at layer level in every call), each with all bounds, one edge after another."""
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


# --- The whole ---------------------------------------------------------------------------------------------------------


_QUESTIONS_AT_ONCE = 2**21  # (questions × nodes) of the way back


@dataclass(frozen=True, eq=False)
class Certificate:
    """For every edge that can reach a target: whether its own gradient is proved to keep its sign on all of [0, 1].

    Entries are ordered by target and column; arrays are `[M]`, at layer level `[L, M]`. A gradient keeps its sign if it is
    never positive for one weight and negative for another; it may be 0.
    """

    index: Tensor
    owner: Tensor
    """`[M]`: position in `index`."""
    edge_id: Tensor
    """`[M]`: column of `edge_index`."""
    level: str
    pieces: int
    keeps: Tensor
    """Proved: the sign is kept."""
    flips: Tensor
    """Proved: positive for some weight, negative for another. Where neither holds, nothing is known."""
    vanishes: Tensor
    """Proved: the gradient is 0 for every weight."""
    reason: str | None = None
    """Why the model is not certifiable; None if it is."""
    chance: float = 1.0
    """Each edge was asked about with this chance; 1: all were."""

    @property
    def share(self) -> float:
        """Share of the edges with a proved sign among those whose gradient is not proved to be 0; NaN if not certifiable."""
        return float("nan") if self.reason else share(self.keeps, ~self.vanishes)

    @property
    def share_of_each(self) -> Tensor:
        """The same for each target, `[T]`."""
        found = share_of_each(self.keeps, ~self.vanishes, Questions(self.index, self.owner, self.edge_id, 1))
        return torch.full_like(found, torch.nan) if self.reason else found

    def __repr__(self) -> str:
        if self.reason:
            return f"Certificate(not certifiable: {self.reason})"
        counts = ", ".join(f"{int(part.sum())} {name}" for name, part in self._parts())
        part = f", {self.chance:.2%} of all edges" if self.chance < 1 else ""
        return f"Certificate({self.level} level, {len(self.index)} targets{part}: {counts})"

    def _parts(self) -> list[tuple[str, Tensor]]:
        unknown = ~(self.keeps | self.flips)
        return [("keep their sign", self.keeps & ~self.vanishes), ("flip", self.flips), ("unknown", unknown)]


def certify(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    pieces: int = 5,
    level: str = "input",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    edges: int | None = None,
    seed: int = 0,
) -> Certificate:
    """Which edges' own gradients ∂z/∂ω_e provably keep their sign while ω_e goes from 1 to 0 and all other weights stay 1.

    Bounds of all activations give bounds of all derivatives of ReLU and LeakyReLU, and those of ∂z/∂ω_e, on each of `pieces`
    parts of [0, 1]. Roundings are accounted for. For models of GCN, SAGE (sum, mean), GIN, GraphConv and SGC layers with
    ReLU or LeakyReLU; any other gives a certificate that proves nothing and says why (`reason`). `edges` asks about a random
    part of the edges only, about so many (target, edge) pairs, drawn from `seed`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> certify(conv, data, index=2, target=1)               # z = 2·ω₀ − 6·ω₁: both gradients are constant
    Certificate(input level, 1 targets: 2 keep their sign, 0 flip, 0 unknown)
    """
    check_level(level)
    if not isinstance(pieces, int) or isinstance(pieces, bool) or pieces < 1:
        raise SettingError(f"pieces is {pieces!r}; needed is a whole number of at least 1, such as 5.")
    budget, most = read_memory(memory), read_edges(edges)
    question = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    with question.borrowed():
        return certificate_of(question, level, pieces, draw_about(question, most, budget, seed), budget)


def certificate_of(question: Question, level: str, pieces: int, draw: Draw, memory: int) -> Certificate:
    """The same for a (borrowed) question, about the edges of a draw."""
    questions = all_questions(question, memory, draw)
    shape = (len(questions),) if level == "input" else (question.num_layers, len(questions))
    verdict, reason = _Verdict(questions, shape), None
    try:
        _prove(question, verdict, level, pieces, draw, memory)
    except NotCertifiable as why:
        verdict, reason = _Verdict(questions, shape), str(why)
    nothing = torch.zeros(shape, dtype=torch.bool)
    flags = (nothing, nothing, nothing) if reason else verdict.flags()
    return Certificate(
        question.index, questions.owner, questions.edge_id, level, pieces, *flags, reason=reason, chance=draw.chance
    )


@torch.no_grad()
def _prove(question: Question, verdict: "_Verdict", level: str, pieces: int, draw: Draw, memory: int) -> None:
    ends = torch.linspace(0, 1, pieces + 1, dtype=torch.double).tolist()
    for spread in spreads(follow(question), level, list(pairwise(ends)), memory, draw.columns(question)):
        found, slots = spread.slopes, spread.slots
        verdict.add(found.position, question.columns(slots.edge[found.slot]), slots.call[found.slot], _refined(spread))


def _refined(spread: Spread) -> Interval:
    """The bounds of a block, those that leave the sign open cut down by what the way back says."""
    found = spread.slopes
    lo, hi = found.bounds.lo.clone(), found.bounds.hi.clone()
    undecided = ((lo < 0) & (hi > 0)).nonzero().view(-1)
    for part in undecided.split(max(_QUESTIONS_AT_ONCE // spread.at_one.num_nodes, 1)):
        tighter = Return(spread, found.slot[part], found.position[part]).bounds
        lo[part], hi[part] = torch.maximum(lo[part], tighter.lo), torch.minimum(hi[part], tighter.hi)
    return Interval(lo, hi)


class _Verdict:
    """Per question: whether its gradient may be, and whether it must be, below (0) or above (1) zero for some weight."""

    def __init__(self, questions: Questions, shape: tuple[int, ...]) -> None:
        self._questions, self._shape = questions, shape
        size = int(torch.tensor(shape).prod())
        self._may, self._must = (torch.zeros(2, size, dtype=torch.bool) for _ in range(2))

    def add(self, position: Tensor, edge: Tensor, call: Tensor, bounds: Interval) -> None:
        """Bounds for some weights of some edges."""
        place = self._questions.place(position.cpu(), edge.cpu()) + call.cpu().clamp(min=0) * len(self._questions)
        lo, hi = bounds.lo.cpu(), bounds.hi.cpu()
        # Bounds that overflowed are NaN and prove nothing: everything may be.
        for flags, below, above in ((self._may, ~(lo >= 0), ~(hi <= 0)), (self._must, hi < 0, lo > 0)):
            flags[0, place[below]] = True
            flags[1, place[above]] = True

    def flags(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keeps its sign; flips; is always 0."""
        keeps, flips, vanishes = ~self._may.all(dim=0), self._must.all(dim=0), ~self._may.any(dim=0)
        return keeps.view(self._shape), flips.view(self._shape), vanishes.view(self._shape)
