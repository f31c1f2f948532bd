"""certify(): a proof that an edge's gradient keeps its sign on all of [0, 1], by interval arithmetic.

The way of a proof: `follow` turns the lowered model into a program of intervals (`interval_model.py`), `spreads` carries
what an edge's weight may change forwards to all targets (`forward_bounds.py`), `_refined` tightens what is still open from
the other end (`backward_bounds.py`), and `_Verdict` collects what is proved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.registry import check_level
from edgewise.arguments import whole_number
from edgewise.contract import checked
from edgewise.program.intervals import Interval
from edgewise.question import PosedQuestion, pose
from edgewise.question.memory import read_memory, room
from edgewise.text import counted
from edgewise.trust.backward_bounds import Return
from edgewise.trust.forward_bounds import Spread
from edgewise.trust.interval_model import follow, spreads
from edgewise.trust.interval_program import NotCertifiable
from edgewise.trust.target_edges import (
    Draw,
    TargetEdges,
    all_target_edges,
    draw_about,
    proportion,
    proportion_of_each,
    read_edges,
)

_PAIRS_AT_ONCE = 2**21  # (pairs × nodes) of one backward pass


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
    """Proved: positive for some weight, negative for another. Where neither holds, nothing is proved."""
    vanishes: Tensor
    """Proved: the gradient is 0 for every weight."""
    reason: str | None = None
    """Why the model is not certifiable; None if it is."""
    chance: float = 1.0
    """The chance with which each edge was asked about; 1 if all were."""

    @property
    def share(self) -> float:
        """Share of the edges with a proved sign among those whose gradient is not proved to be 0; NaN if not certifiable."""
        return float("nan") if self.reason else proportion(self.keeps, ~self.vanishes)

    @property
    def share_of_each(self) -> Tensor:
        """`[T]`: that share for each target; NaN if not certifiable, or if a target has no such edge."""
        found = proportion_of_each(self.keeps, ~self.vanishes, TargetEdges(self.index, self.owner, self.edge_id, 1))
        return torch.full_like(found, torch.nan) if self.reason else found

    def __repr__(self) -> str:
        if self.reason:
            return f"Certificate(not certifiable: {self.reason})"
        counts = ", ".join(f"{int(part.sum())} {name}" for name, part in self._parts())
        part = f", {self.chance:.2%} of all edges" if self.chance < 1 else ""
        return f"Certificate({self.level} level, {counted(len(self.index), 'target')}{part}: {counts})"

    def _parts(self) -> list[tuple[str, Tensor]]:
        """The three kinds of edges, with the words of the text."""
        unknown = ~(self.keeps | self.flips)
        return [("keep their sign", self.keeps & ~self.vanishes), ("flip", self.flips), ("unknown", unknown)]


@checked
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
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    edges: int | None = None,
    seed: int = 0,
) -> Certificate:
    """Which edges' own gradients ∂z/∂ω_e provably keep their sign while ω_e goes from 1 to 0 and all other weights stay 1.

    Bounds of all activations give bounds of all derivatives of ReLU and its like, and those give bounds of ∂z/∂ω_e, on each
    of `pieces` parts of [0, 1]. Roundings are accounted for. It works for models of GCN, SAGE (sum, mean), GIN, GINE,
    GraphConv, SGC, GAT, GATv2 and Transformer layers with piecewise linear functions between them, and for graph tasks with
    pools by sum, mean and maximum; any other model gets a certificate that proves nothing and says why (`reason`).

    Args:
        model: As in `explain`.
        data: As in `explain`.
        index: As in `explain`.
        pieces: Number of parts of [0, 1]; more parts prove more and take longer.
        level: `"input"` varies the weight of an edge in all layers at once, `"layer"` in one layer at a time.
        target: As in `explain`, and so are `task`, `mode`, `of`, `forward`, `device` and `memory`.
        task: `"node"` or `"graph"`; links are not certifiable.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: `"logit"`; probabilities are not certifiable.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        device: Where to compute, such as `"cuda"`.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        edges: About how many (target, edge) pairs to ask about, a random part; `None` for all of them.
        seed: Random seed of that part.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> certify(conv, data, index=2, target=1)               # z = 2·ω₀ − 6·ω₁: both gradients are constant
    Certificate(input level, 1 target: 2 keep their sign, 0 flip, 0 unknown)
    """
    check_level(level)
    pieces = whole_number("pieces", pieces, at_least=1, such_as=5)
    read_memory(memory)
    most = read_edges(edges)
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device
    )
    budget = room(question, memory)
    with question.borrowed():
        return certificate_of(question, level, pieces, draw_about(question, most, budget, seed), budget)


def certificate_of(question: PosedQuestion, level: str, pieces: int, draw: Draw, memory: int) -> Certificate:
    """What `certify` returns, for a borrowed question and the edges of a draw."""
    pairs = all_target_edges(question, memory, draw)
    shape = (len(pairs),) if level == "input" else (question.num_layers, len(pairs))
    verdict, reason = _Verdict(pairs, shape), None
    try:
        _prove(question, verdict, level, pieces, draw, memory)
    except NotCertifiable as why:
        verdict, reason = _Verdict(pairs, shape), str(why)
    nothing = torch.zeros(shape, dtype=torch.bool)
    flags = (nothing, nothing, nothing) if reason else verdict.flags()
    return Certificate(
        question.index, pairs.owner, pairs.edge_id, level, pieces, *flags, reason=reason, chance=draw.chance
    )


@torch.no_grad()
def _prove(question: PosedQuestion, verdict: "_Verdict", level: str, pieces: int, draw: Draw, memory: int) -> None:
    """Add the bounds of every piece of every edge to the verdict."""
    ends = torch.linspace(0, 1, pieces + 1, dtype=torch.double).tolist()
    for part in follow(question, memory):
        among = draw.among(question, part)
        for spread in spreads(part.at_one, level, list(pairwise(ends)), memory, among):
            found, slots = spread.slopes, spread.slots
            position, column = part.position(found.position), part.columns(slots.edge[found.slot])
            verdict.add(position, column, slots.call[found.slot], _refined(spread))


def _refined(spread: Spread) -> Interval:
    """The bounds of ∂z/∂ω_e of a block; where they leave the sign open, intersected with the backward bounds."""
    found = spread.slopes
    lo, hi = found.bounds.lo.clone(), found.bounds.hi.clone()
    undecided = ((lo < 0) & (hi > 0)).nonzero().view(-1)
    for part in undecided.split(max(_PAIRS_AT_ONCE // spread.at_one.num_nodes, 1)):
        tighter = Return(spread, found.slot[part], found.position[part]).bounds
        lo[part], hi[part] = torch.maximum(lo[part], tighter.lo), torch.minimum(hi[part], tighter.hi)
    return Interval(lo, hi)


class _Verdict:
    """For each pair (target, edge): whether its gradient may be, and whether it must be, below or above 0 for some weight.

    Flags are `[2, pairs]`, row 0 for below and row 1 for above. Bounds [−1, 3] on one piece and [2, 4] on another: it may be
    below and above (the first piece leaves both open), and it must be above (the second). So nothing is proved: the sign is
    kept only if one of the two rows of `may` stays False, and flips only if both rows of `must` are True.
    """

    def __init__(self, pairs: TargetEdges, shape: tuple[int, ...]) -> None:
        self._pairs, self._shape = pairs, shape
        size = int(torch.tensor(shape).prod())
        self._may, self._must = (torch.zeros(2, size, dtype=torch.bool) for _ in range(2))

    def add(self, position: Tensor, edge: Tensor, call: Tensor, bounds: Interval) -> None:
        """Bounds `[n]` of ∂z/∂ω_e for n (target, edge, call), on some part of [0, 1]; a call is −1 at input level."""
        place = self._pairs.place(position.cpu(), edge.cpu()) + call.cpu().clamp(min=0) * len(self._pairs)
        lo, hi = bounds.lo.cpu(), bounds.hi.cpu()
        # Bounds that overflowed are NaN and prove nothing: everything may be.
        for flags, below, above in ((self._may, ~(lo >= 0), ~(hi <= 0)), (self._must, hi < 0, lo > 0)):
            flags[0, place[below]] = True
            flags[1, place[above]] = True

    def flags(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whether the sign is kept, whether it flips, and whether the gradient is always 0; in the shape of the certificate."""
        keeps, flips, vanishes = ~self._may.all(dim=0), self._must.all(dim=0), ~self._may.any(dim=0)
        return keeps.view(self._shape), flips.view(self._shape), vanishes.view(self._shape)
