"""Where the nodes of a page stand: the same tree, rows and positions for every method, so that views can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from edgewise.report.layer_picture import rows_in_order
from edgewise.report.layout import at_distances, ways_to
from edgewise.report.scene import WHOLE_GRAPH, surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from edgewise.report.layout import Position
    from edgewise.report.page.top_edges import Kept

MOST_LINKS = 50
"""The strongest edges decide the order of the rows; weaker ones take what they find."""


@dataclass(frozen=True)
class Scene:
    """The nodes of one target."""

    nodes: list[int]
    root: int | None
    """The explained node, or the middle of a graph that is too large to be shown whole."""
    ways: Mapping[int, int]
    """Node → the next one on a shortest way to the root, in the order in which they stand around it."""
    rows: list[int]
    """The order of the nodes in the unrolled view, from the top."""
    place: Mapping[int, Position] | None
    """Positions of all nodes, where the graph is shown whole."""
    context: list[tuple[int, int]]
    """The pairs of nodes with an edge, where the graph is shown whole."""


def place_nodes(
    kept: Kept,
    edge_index: Tensor,
    num_nodes: int,
    root: int | None,
    weights: Tensor,
    walks: Sequence[Sequence[int]],
    matters: Tensor,
) -> Scene:
    """Of one target. `weights` are those of the methods, `matters` `[E]` which edges can; `root` None for a graph task."""
    strength = _strength(kept, weights)
    links = _links(edge_index[:, kept.edges.item], strength, walks)
    shown = set(edge_index[:, kept.edges.item].view(-1).tolist()) | set(kept.own.item.tolist())
    shown |= {node for walk in walks for node in walk}
    if root is None and num_nodes <= WHOLE_GRAPH:
        shown |= set(range(num_nodes))
        pairs = {(min(pair), max(pair)) for pair in edge_index.t().tolist() if pair[0] != pair[1]}
        place = at_distances(edge_index, num_nodes)
        return Scene(sorted(shown), None, {}, _rows(links, shown), place, sorted(pairs))
    root = root if root is not None else (links[0][1] if links else 0)
    by_strength = dict.fromkeys(node for one, other, _ in links for node in (other, one))
    others = [node for node in dict.fromkeys([*by_strength, *sorted(shown)]) if node != root]
    near = surroundings(matters, edge_index, num_nodes, root)
    ways = ways_to(root, others, near, num_nodes)
    shown |= {root, *ways}
    return Scene(sorted(shown), root, ways, _rows(links, shown), None, [])


def _strength(kept: Kept, weights: Tensor) -> Tensor:
    """`[edges]`: the magnitudes of all methods and levels, each method's largest made 1."""
    total = torch.zeros(len(kept.edges.item), dtype=torch.double)
    for scores in kept.edges.scores.values():
        found = scores.nan_to_num().abs()
        largest = found.amax(dim=(1, 2), keepdim=True) if found.numel() else found.new_ones(len(found), 1, 1)
        total += (found / largest.clamp(min=1e-300) * weights.view(-1, 1, 1)).sum(dim=(0, 1))
    return total


def _links(ends: Tensor, strength: Tensor, walks: Sequence[Sequence[int]]) -> list[tuple[int, int, float]]:
    """(source, receiver, weight), strongest first; a walk's steps weigh as much as the strongest edge."""
    order = strength.argsort(descending=True, stable=True)
    strongest = float(strength.max()) if len(strength) else 1.0
    steps = [(one, other, strongest) for walk in walks for one, other in pairwise(walk) if one != other]
    edges = zip(*ends[:, order].tolist(), strength[order].tolist(), strict=True)
    return [*((int(one), int(other), weight) for one, other, weight in edges), *steps]


def _rows(links: Sequence[tuple[int, int, float]], shown: set[int]) -> list[int]:
    """The ends of the strongest links in a good order, then the others."""
    best = sorted(links, key=lambda link: -link[2])[:MOST_LINKS]
    first = rows_in_order(best, {node for one, other, _ in best for node in (one, other)})
    return [*first, *sorted(shown - set(first))]
