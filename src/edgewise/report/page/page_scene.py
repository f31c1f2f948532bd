"""Where the nodes of a page stand: one tree, one order of rows and one set of positions for each target, made here.

The page's script draws what it is told and lays out nothing. A target whose graph is shown whole has a position for every
node. Otherwise nodes stand on rings around the root, strong ones spread out (`spread_out`), so that the reader may draw few
edges or many and no node moves. A target with many nodes has a layout for each view (method, level, layer) besides: 25 edges
of one method would be cramped among places that 300 other nodes keep.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from edgewise.report.layer_picture import rows_in_order
from edgewise.report.layout import at_distances, branches, rings, spread_out, ways_to
from edgewise.report.scene import WHOLE_GRAPH, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from edgewise.report.layout import Position
    from edgewise.report.page.top_edges import Kept

MOST_LINKS = 50
"""The strongest edges decide the order of the rows; weaker ones take what they find."""
MOST_TOGETHER = 40
"""With at most so many nodes, one layout serves all views."""

Layout = dict[int, tuple[float, float]]
"""Node → position."""


@dataclass(frozen=True)
class Scene:
    """The nodes of one target."""

    nodes: list[int]
    root: int | None
    """The explained node, or the middle of a graph that is too large to be shown whole; `None` if it is shown whole."""
    ways: Mapping[int, int]
    """Node → the next one on a shortest way to the root."""
    rows: list[int]
    """The order of the nodes in the unrolled view, from the top."""
    place: Mapping[int, Position]
    """The position of every node."""
    context: list[tuple[int, int]]
    """The pairs of nodes with an edge, where the graph is shown whole."""
    views: Mapping[str, Sequence[Layout]] = field(default_factory=dict)
    """View → for each method, positions of the nodes that it shows, instead of `place`; empty if `place` is enough."""


def place_nodes(
    kept: Kept,
    edge_index: Tensor,
    num_nodes: int,
    root: int | None,
    weights: Tensor,
    walks: Sequence[Sequence[int]],
    matters: Tensor,
    most: int,
) -> Scene:
    """Lay out one target.

    Args:
        kept: The edges and self scores that the page keeps.
        edge_index: `[2, E]`.
        num_nodes: Of the graph.
        root: The explained node; `None` for a graph task.
        weights: `[methods]`: how much each method counts where nodes are ordered by strength.
        walks: The nodes of each walk.
        matters: `[E]`: nonzero for edges that can matter to the target.
        most: How many edges of a view the page can draw.
    """
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
    views = {}
    if len(shown) > MOST_TOGETHER:
        views = _views(root, ways, kept, edge_index, [node for walk in walks for node in walk], most)
    return Scene(sorted(shown), root, ways, _rows(links, shown), _around(root, ways, others), [], views)


def _around(root: int, ways: Mapping[int, int], nodes: Iterable[int]) -> Layout:
    """The nodes, strongest first, and those on their ways, on rings around the root; those without a way stand outside.

    For example `_around(7, {1: 7, 2: 1}, [2, 9])` has 7 in the middle, 1 on the first ring, 2 on the second, 9 outside.
    """
    nodes = list(nodes)
    needed = branches(root, ways, nodes)
    return rings(root, spread_out(needed), set(nodes) - set(needed) - {root})


def _views(
    root: int, ways: Mapping[int, int], kept: Kept, edge_index: Tensor, on_walks: Sequence[int], most: int
) -> dict[str, list[Layout]]:
    """A layout for every view and method: of the ends of its `most` strongest edges, and of the walks."""
    ends = edge_index[:, kept.edges.item]  # [2, items]
    return {
        view: [_around(root, ways, [*_ends_by_strength(ends, row, most), *on_walks]) for row in scores]
        for view, scores in _scores_of_views(kept)
    }


def _scores_of_views(kept: Kept) -> Iterator[tuple[str, Tensor]]:
    """(view, scores `[methods, items]`) of the kept edges; the views have the names of `Kept.totals`."""
    for level, scores in kept.edges.scores.items():  # [methods, layers, items]
        yield level, scores.sum(dim=1)
        if level == "layer":
            for layer in range(scores.size(1)):
                yield f"layer {layer}", scores[:, layer]


def _ends_by_strength(ends: Tensor, score: Tensor, most: int) -> list[int]:
    """The ends of the `most` strongest edges, strongest first, the receiver before the source; never an edge of score zero.

    Edges that are as strong as the last one count too: the page reads scores in single precision and may rank them otherwise.
    """
    magnitude = score.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs()  # [items]
    order = magnitude.argsort(descending=True, stable=True)
    weakest = float(magnitude[order[:most][-1]]) if len(order) else 0.0
    chosen = order[(magnitude[order] >= weakest * (1 - 1e-6)) & (magnitude[order] > 0)]
    return list(dict.fromkeys(ends[:, chosen].flip(0).t().reshape(-1).tolist()))


def _strength(kept: Kept, weights: Tensor) -> Tensor:
    """`[items]`: the magnitudes of all methods and levels, added up, each method's largest made 1."""
    total = torch.zeros(len(kept.edges.item), dtype=torch.double)
    for scores in kept.edges.scores.values():
        found = scores.nan_to_num().abs()  # [methods, layers, items]
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
