"""What a picture shows and where, before anybody draws it: the same for matplotlib and for a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from edgewise.errors import SettingError
from edgewise.report.layout import at_distances, rings, ways_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from edgewise.report.layout import Position
    from edgewise.results.explanation import Explanation


# --- The edges, or steps of the unrolled computation graph, that deserve ink, and a sentence about the rest ------------


@dataclass(frozen=True)
class Step:
    """One line of a picture: a message along an edge, or a node that hears itself."""

    score: float
    source: int
    receiver: int
    column: int | None = None
    """Of `edge_index`; `None` for a node that hears itself."""
    layer: int | None = None
    """`None` where all layers share the edge, or are summed."""


@dataclass(frozen=True)
class Strongest:
    """The steps of largest magnitude, weakest first so that the strongest are drawn on top."""

    steps: tuple[Step, ...]
    num_nonzero: int
    share: float
    """Of the total magnitude."""
    noun: str = "edges"
    not_finite: int = 0
    """Scores that are NaN or infinite: they have no width."""

    @property
    def nodes(self) -> set[int]:
        """The ends of the steps."""
        return {node for step in self.steps for node in (step.source, step.receiver)}

    @property
    def largest(self) -> float:
        """The largest magnitude; 1 where there is none, so that it can be divided by."""
        return max((abs(step.score) for step in self.steps), default=1.0)

    @property
    def crowding(self) -> float:
        """1, or less where many steps end at one node and have to be thinner."""
        ends = Counter((step.layer, step.receiver) for step in self.steps)
        return min(1.0, (14 / max(ends.values(), default=1)) ** 0.5)

    @property
    def hidden(self) -> int:
        """How many are not drawn."""
        return self.num_nonzero - len(self.steps)

    def sentence(self) -> str:
        """How much of the explanation these steps are."""
        if self.num_nonzero == 0:
            return self._unknown(f"No {self.noun} with a score other than zero.")
        if self.num_nonzero == len(self.steps) == 1:
            return self._unknown(f"The only one of the {self.noun} with a score other than zero.")
        if self.hidden == 0:
            return self._unknown(f"All {self.num_nonzero} {self.noun} with a score other than zero.")
        return self._unknown(
            f"The {len(self.steps)} strongest of {self.num_nonzero} {self.noun} with a score other than zero, "
            f"{self.share:.0%} of the total magnitude; {self.hidden} not drawn."
        )

    def _unknown(self, sentence: str) -> str:
        return f"{sentence} {self.not_finite} scores are NaN or infinite." if self.not_finite else sentence


def strongest_edges(why: Explanation, count: int) -> Strongest:
    """The `count` edges of largest magnitude, at layer level of the sum over layers; never one of score zero.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0, 0.0]), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, 2, 0, 1.0)
    >>> strongest_edges(why, 1).sentence()
    'The 1 strongest of 2 edges with a score other than zero, 75% of the total magnitude; 1 not drawn.'
    """
    return _strongest(why.edge_scores().view(1, -1), None, why.edge_index, count, "edges")


def strongest_steps(why: Explanation, count: int) -> Strongest:
    """The `count` strongest layers and edges of a layerwise explanation, self scores among them as steps that stay."""
    return _strongest(why.scores, why.self_scores, why.edge_index, count, "steps")


def _strongest(scores: Tensor, own: Tensor | None, edge_index: Tensor, count: Any, noun: str) -> Strongest:
    count = read_count("edges", count)
    rows = scores.detach().cpu().double()
    size = rows.size(1)
    if own is not None:
        rows = torch.cat([rows, own.detach().cpu().double()], dim=1)
    finite = rows.isfinite()
    magnitude = torch.where(finite, rows, 0.0).abs().reshape(-1)
    num_nonzero = int(magnitude.count_nonzero())
    places = magnitude.argsort(descending=True, stable=True)[: min(count, num_nonzero)].flip(0)
    layered = own is not None or len(rows) > 1 or noun == "steps"
    ends, values = edge_index.cpu(), rows.reshape(-1)[places].tolist()
    steps = []
    for place, score in zip(places.tolist(), values, strict=True):
        layer, at = divmod(place, rows.size(1))
        source, receiver = ends[:, at].tolist() if at < size else (at - size, at - size)
        steps.append(Step(score, source, receiver, at if at < size else None, layer if layered else None))
    total = float(magnitude.sum())
    share = float(magnitude[places].sum()) / total if total > 0 else 0.0
    return Strongest(tuple(steps), num_nonzero, share, noun, int((~finite).sum()))


def read_count(name: str, count: Any) -> int:
    """A whole number from 0 on."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise SettingError(f"{name} is {count!r}; needed is a whole number from 0 on, such as {name}=40.")
    return count


# --- The whole ---------------------------------------------------------------------------------------------------------


Spot: TypeAlias = tuple[int, int]
"""`(column, node)`: an unrolled computation graph has columns 0, the features, to L, the output; a flat picture has one."""

WHOLE_GRAPH = 60
"""A graph of at most so many nodes is shown whole when the graph itself is explained."""

MOST_BETWEEN = 60
"""Nodes that are shown only because they are on the way to others."""


@dataclass(frozen=True)
class Picture:
    """Spots with positions, and the steps between them."""

    place: Mapping[Spot, Position]
    strongest: Strongest
    root: Spot | None
    """The explained node; for a graph that is shown in part, the middle; otherwise `None`."""
    context: tuple[tuple[Spot, Spot], ...] = ()
    """Lines without a score: edges of score zero, or ways through edges that are not drawn."""
    num_layers: int = 0
    """0 for a flat picture."""

    def ends(self, step: Step) -> tuple[Spot, Spot]:
        """From which spot to which a step goes."""
        if self.num_layers == 0 or step.layer is None:
            return (0, step.source), (0, step.receiver)
        return (step.layer, step.source), (step.layer + 1, step.receiver)

    @property
    def nodes(self) -> list[int]:
        """Every node that is shown, once."""
        return sorted({node for _, node in self.place})


def task_of(settings: Mapping[str, object]) -> str:
    """`"node"` or `"graph"`."""
    return str(settings.get("task", "node"))


def flat_picture(why: Explanation, edges: int = 40) -> Picture:
    """The strongest edges: around the explained node, or in the whole graph where a small graph is explained.

    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0, 0.5]), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, 2, 0, 1.0)
    >>> shown = flat_picture(why, edges=2)
    >>> [shown.ends(step) for step in shown.strongest.steps], shown.root
    ([((0, 0), (0, 1)), ((0, 1), (0, 2))], (0, 2))
    """
    strongest, edge_index = strongest_edges(why, edges), why.edge_index.cpu()
    if task_of(why.settings) == "graph" and why.num_nodes <= WHOLE_GRAPH:
        return _whole(strongest, edge_index, why.num_nodes)
    root = _centre(why, strongest)
    near = surroundings(why.edge_scores().detach().cpu(), edge_index, why.num_nodes, root)
    by_strength = [node for step in reversed(strongest.steps) for node in (step.receiver, step.source)]
    others = [node for node in dict.fromkeys(by_strength) if node != root]
    ways = ways_to(root, others, near, why.num_nodes)
    if len(ways) > len(others) + MOST_BETWEEN:  # edges all over a large graph: the ways to them would hide them
        ways = ways_to(root, others, near, why.num_nodes, farthest=2)
    place = rings(root, ways, strongest.nodes - set(ways) - {root})
    return Picture(_flat(place), strongest, (0, root), _undrawn(strongest, ways.items()))


def _whole(strongest: Strongest, edge_index: Tensor, num_nodes: int) -> Picture:
    place = at_distances(edge_index, num_nodes)
    pairs = {(min(pair), max(pair)) for pair in edge_index.t().tolist() if pair[0] != pair[1]}
    return Picture(_flat(place), strongest, None, _undrawn(strongest, pairs))


def _flat(place: Mapping[int, Position]) -> dict[Spot, Position]:
    return {(0, node): position for node, position in place.items()}


def _undrawn(strongest: Strongest, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[Spot, Spot], ...]:
    drawn = {frozenset((step.source, step.receiver)) for step in strongest.steps}
    return tuple(((0, one), (0, other)) for one, other in sorted(pairs) if frozenset((one, other)) not in drawn)


def _centre(why: Explanation, strongest: Strongest) -> int:
    """The explained node; for a graph task, the node at the receiving end of the strongest edge."""
    if task_of(why.settings) == "node":
        return int(why.index)
    return strongest.steps[-1].receiver if strongest.steps else 0


def surroundings(scores: Tensor, edge_index: Tensor, num_nodes: int, root: int) -> Tensor:
    """The edges among nodes that the explanation touches: enough to find ways to the centre, few in a large graph."""
    touched = torch.zeros(num_nodes, dtype=torch.bool)
    touched[edge_index[:, scores != 0]] = True
    touched[root] = True
    return edge_index[:, touched[edge_index].all(dim=0)]
