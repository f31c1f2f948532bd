"""Where nodes go in a picture: the explained node in the middle, the others on rings by their distance to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx

Position: TypeAlias = tuple[float, float]


def tree_around(root: int, nodes: Iterable[int], graph: nx.Graph) -> nx.DiGraph:
    """The shortest ways from `root` to those of `nodes` that it can reach, as a tree with `root` on top.

    >>> import networkx as nx
    >>> list(tree_around(0, [2], nx.Graph([(0, 1), (1, 2), (1, 3)])).edges)
    [(0, 1), (1, 2)]
    """
    import networkx as nx

    ways = nx.single_source_shortest_path(graph, root)
    tree = nx.DiGraph()
    tree.add_node(root)
    for node in sorted(nodes):
        nx.add_path(tree, ways.get(node, []))
    return tree


def rings(root: int, tree: nx.DiGraph, strays: Iterable[int]) -> dict[int, Position]:
    """A place for every node: its depth is its ring, its leaves decide how wide its wedge is; strays stand outside.

    >>> import networkx as nx
    >>> {node: (round(x, 1), round(y)) for node, (x, y) in rings(0, nx.DiGraph([(0, 1), (1, 2)]), [9]).items()}
    {0: (0.0, 0), 1: (-1.5, 0), 2: (-2.5, 0), 9: (3.5, 0)}
    """
    leaves = _leaves_below(tree)
    place = {root: (0.0, 0.0)}
    wedges, depth = [(root, 0.0, 2 * math.pi, 0)], 0
    while wedges:
        node, start, width, depth = wedges.pop(0)
        for child in sorted(tree.successors(node)):
            share = width * leaves[child] / leaves[node]
            place[child] = _on_ring(depth + 1, start + share / 2)
            narrowed = min(share, math.pi)  # a lone branch must not bend back around its parent
            wedges.append((child, start + (share - narrowed) / 2, narrowed, depth + 1))
            start += share
    outside = sorted(strays)
    return place | {
        node: _on_ring(depth + 1, 2 * math.pi * position / len(outside)) for position, node in enumerate(outside)
    }


def _leaves_below(tree: nx.DiGraph) -> dict[int, int]:
    import networkx as nx

    leaves: dict[int, int] = {}
    for node in reversed(list(nx.topological_sort(tree))):
        leaves[node] = sum(leaves[child] for child in tree.successors(node)) or 1
    return leaves


def _on_ring(ring: int, angle: float) -> Position:
    radius = ring + 0.5  # the first ring farther out: its edges are the ones to read
    return radius * math.cos(angle), radius * math.sin(angle)
