"""What a picture shows and where, before anybody draws it: the same for matplotlib and for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from edgewise.report.layout import at_distances, rings, ways_to
from edgewise.report.strongest import Step, Strongest, strongest_edges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from edgewise.explanation import Explanation
    from edgewise.report.layout import Position

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
