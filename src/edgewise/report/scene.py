"""What a picture shows and where, before it is drawn: the same for matplotlib and for a page.

`strongest_edges` and `strongest_steps` choose what is drawn; `flat_picture` gives it places. Unrolled pictures are made in
`layer_picture`, from the same parts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from edgewise.arguments import whole_number
from edgewise.report.layout import at_distances, rings, ways_to
from edgewise.text import target_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from edgewise.report.layout import Position
    from edgewise.results.explanation import Explanation


WHOLE_GRAPH = 60
"""A graph of at most so many nodes is shown whole when the graph itself is explained."""

ENOUGH = 0.95
"""The share of the total magnitude that is drawn where nobody says how many edges."""
FEW, MOST_EDGES, MOST_STEPS = 20, 40, 30
"""But so few are all drawn, and no more than so many, of a flat picture and of an unrolled one."""

MOST_BETWEEN = 60
"""At most so many nodes are shown only because they are on the way to others."""

Spot: TypeAlias = tuple[int, int]
"""`(column, node)`: an unrolled computation graph has columns 0, the features, to L, the output; a flat picture has one."""


# --- What is drawn: the strongest edges, or steps of the unrolled computation graph, and a sentence about the rest ------


@dataclass(frozen=True)
class Step:
    """One line of a picture: a message along an edge, or a node's own term (its self score)."""

    score: float
    source: int
    receiver: int
    column: int | None = None
    """The column of `edge_index`; `None` for a self score."""
    layer: int | None = None
    """`None` where all layers share the edge, or are summed."""


@dataclass(frozen=True)
class Strongest:
    """The steps of largest magnitude, weakest first so that the strongest are drawn on top."""

    steps: tuple[Step, ...]
    num_nonzero: int
    """How many there are in all, drawn or not."""
    share: float
    """How much of the total magnitude is drawn, 0 to 1."""
    noun: str = "edges"
    """What they are called in a sentence, in the plural."""
    rest: float = 0.0
    """The sum of the scores that are not drawn."""
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
        """How many with a nonzero score are not drawn."""
        return self.num_nonzero - len(self.steps)

    def sentence(self) -> str:
        """How much of the explanation these steps are."""
        if self.num_nonzero == 0:
            return self._unknown(f"No {self.noun} have a nonzero score.")
        if self.num_nonzero == len(self.steps) == 1:
            return self._unknown(f"The only {self.noun.removesuffix('s')} with a nonzero score.")
        if self.hidden == 0:
            return self._unknown(f"All {self.num_nonzero} {self.noun} with a nonzero score.")
        few = "The strongest" if len(self.steps) == 1 else f"The {len(self.steps)} strongest"
        share = "under 1%" if self.share < 0.01 else f"{self.share:.0%}"
        return self._unknown(
            f"{few} of {self.num_nonzero} {self.noun} with a nonzero score, {share} of the total magnitude; "
            f"{self.hidden:,} more, {self.rest:+.3g} together.".replace("-", "−")
        )

    def _unknown(self, sentence: str) -> str:
        """The sentence, and another one about scores that are not finite, if there are any."""
        if not self.not_finite:
            return sentence
        what = "score is" if self.not_finite == 1 else "scores are"
        return f"{sentence} {self.not_finite} {what} NaN or infinite."


def strongest_edges(why: Explanation, count: int | None = None) -> Strongest:
    """The `count` edges of largest magnitude, by the sum over layers at layer level; never one of score zero.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0, 0.0]), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, 2, 0, 1.0)
    >>> strongest_edges(why, 1).sentence()
    'The strongest of 2 edges with a nonzero score, 75% of the total magnitude; 1 more, +1 together.'
    """
    return _strongest(why.edge_scores().view(1, -1), None, why.edge_index, count, "edges")


def strongest_steps(why: Explanation, count: int | None = None) -> Strongest:
    """The `count` strongest layers and edges of a layerwise explanation, self scores among them as steps that stay."""
    return _strongest(why.scores, why.self_scores, why.edge_index, count, "steps")


def _strongest(scores: Tensor, own: Tensor | None, edge_index: Tensor, count: Any, noun: str) -> Strongest:
    """The strongest entries of `scores` `[layers, E]` and of the self scores `own` `[layers, N]`, laid side by side.

    With two edges and one node, place 5 of the flat table is layer 1 (5 // 3), entry 2 (5 % 3): the node's self score.
    """
    count = None if count is None else whole_number("edges", count, at_least=0, such_as=40)
    rows = scores.detach().cpu().double()
    size = rows.size(1)
    if own is not None:
        rows = torch.cat([rows, own.detach().cpu().double()], dim=1)  # [layers, E + N]
    finite = rows.isfinite()
    magnitude = torch.where(finite, rows, 0.0).abs().reshape(-1)  # [layers * (E + N)]
    num_nonzero = int(magnitude.count_nonzero())
    order = magnitude.argsort(descending=True, stable=True)
    if count is None:
        enough = int((magnitude[order].cumsum(0) < ENOUGH * magnitude.sum()).sum()) + 1
        count = min(max(enough, FEW), MOST_STEPS if noun == "steps" else MOST_EDGES)
    places = order[: min(count, num_nonzero)].flip(0)
    layered = own is not None or len(rows) > 1 or noun == "steps"
    ends, values = edge_index.cpu(), rows.reshape(-1)[places].tolist()
    steps = []
    for place, score in zip(places.tolist(), values, strict=True):
        layer, at = divmod(place, rows.size(1))
        source, receiver = ends[:, at].tolist() if at < size else (at - size, at - size)
        steps.append(Step(score, source, receiver, at if at < size else None, layer if layered else None))
    total = float(magnitude.sum())
    share = float(magnitude[places].sum()) / total if total > 0 else 0.0
    rest = float(torch.where(finite, rows, 0.0).sum()) - sum(values)
    return Strongest(tuple(steps), num_nonzero, share, noun, rest, int((~finite).sum()))


# --- Where it is drawn --------------------------------------------------------------------------------------------------


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
    other: Spot | None = None
    """The second end of an explained link; the first one is `root`."""

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
    """The task of a result, `"node"` or `"graph"`, from its settings."""
    return str(settings.get("task", "node"))


def flat_picture(why: Explanation, edges: int | None = None) -> Picture:
    """The strongest edges: around the explained node, or in the whole graph where a small graph is explained.

    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0, 0.5]), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, 2, 0, 1.0)
    >>> shown = flat_picture(why, edges=2)
    >>> [shown.ends(step) for step in shown.strongest.steps], shown.root
    ([((0, 0), (0, 1)), ((0, 1), (0, 2))], (0, 2))
    """
    strongest, edge_index = strongest_edges(why, edges), why.edge_index.cpu()
    if task_of(why.settings) == "graph" and why.num_nodes <= WHOLE_GRAPH:
        return _whole_graph(strongest, edge_index, why.num_nodes)
    root = _centre(why, strongest)
    near = surroundings(why.edge_scores().detach().cpu(), edge_index, why.num_nodes, root)
    by_strength = [node for step in reversed(strongest.steps) for node in (step.receiver, step.source)]
    other = why.index[1] if task_of(why.settings) == "link" else None
    if other is not None:
        by_strength.append(other)  # drawn whatever reaches it
    others = [node for node in dict.fromkeys(by_strength) if node != root]
    ways = ways_to(root, others, near, why.num_nodes)
    if len(ways) > len(others) + MOST_BETWEEN:  # edges all over a large graph: the ways to them would hide them
        ways = ways_to(root, others, near, why.num_nodes, farthest=2)
    place = rings(root, ways, (strongest.nodes | set(others)) - set(ways) - {root})
    second = None if other is None else (0, other)
    return Picture(_flat(place), strongest, (0, root), _undrawn(strongest, ways.items()), other=second)


def _whole_graph(strongest: Strongest, edge_index: Tensor, num_nodes: int) -> Picture:
    """The whole graph, its nodes at their distances."""
    place = at_distances(edge_index, num_nodes)
    pairs = {(min(pair), max(pair)) for pair in edge_index.t().tolist() if pair[0] != pair[1]}
    return Picture(_flat(place), strongest, None, _undrawn(strongest, pairs))


def _flat(place: Mapping[int, Position]) -> dict[Spot, Position]:
    """Positions by spot: everything is in column 0."""
    return {(0, node): position for node, position in place.items()}


def _undrawn(strongest: Strongest, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[Spot, Spot], ...]:
    """The pairs that no drawn step connects in either direction, as dotted lines."""
    drawn = {frozenset((step.source, step.receiver)) for step in strongest.steps}
    return tuple(((0, one), (0, other)) for one, other in sorted(pairs) if frozenset((one, other)) not in drawn)


def _centre(why: Explanation, strongest: Strongest) -> int:
    """The explained node, or the first end of a link; for a graph task, the node at the receiving end of the strongest edge."""
    if task_of(why.settings) != "graph":
        return int(why.index[0] if isinstance(why.index, tuple) else why.index)
    return strongest.steps[-1].receiver if strongest.steps else 0


def surroundings(scores: Tensor, edge_index: Tensor, num_nodes: int, root: int) -> Tensor:
    """The edges among nodes that the explanation touches: enough to find ways to the centre, few in a large graph."""
    touched = torch.zeros(num_nodes, dtype=torch.bool)
    touched[edge_index[:, scores != 0]] = True
    touched[root] = True
    return edge_index[:, touched[edge_index].all(dim=0)]


def target_of(found: Any) -> str:
    """What an `Explanation` or a `WalkSet` explains: its node or graph, its class, its number.

    For example `node 2, class 0, logit 1.5`, `link 3 – 17, a link, logit 1.5`, or of a typed graph `paper 2, class 0, …`.
    """
    column = "output" if found.settings.get("mode") == "regression" else "class"
    is_typed = isinstance(found.index, tuple) and not isinstance(found.index[0], int)
    named = target_in_words(found.index) if is_typed else f"{task_of(found.settings)} {found.index}"
    what = f"{named}, {column} {found.target}"
    if task_of(found.settings) == "link" and column == "class":
        ends = target_in_words(found.index) if is_typed else f"{found.index[0]} – {found.index[1]}"
        what = f"link {ends}, {'a link' if found.target else 'no link'}"
    return f"{what}, {found.settings.get('of', 'value')} {found.value:.3g}"
