"""Where nodes go in a picture: rings around the explained node, or, for a whole graph, at their distances in the graph.

Matplotlib's pictures and the page both take their positions from here. For rings: `ways_to` finds a tree of shortest ways to
the explained node, `branches` the part of it that some nodes need, and `rings` gives every node of the tree a place. For a
whole graph: `at_distances`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

Position: TypeAlias = tuple[float, float]


def ways_to(root: int, nodes: Iterable[int], edge_index: Tensor, num_nodes: int, farthest: int = 8) -> dict[int, int]:
    """For each of `nodes` that `root` can reach, and each node between: the next one on a shortest way to `root`.

    In the order of `nodes`; none for those that are more than `farthest` steps away.

    >>> ways_to(0, [2], torch.tensor([[0, 2, 1], [1, 1, 3]]), 4)
    {2: 1, 1: 0}
    """
    nodes = list(nodes)
    parent = _parents(root, nodes, edge_index, num_nodes, farthest).tolist()
    return branches(root, {node: way for node, way in enumerate(parent) if way >= 0}, nodes)


def branches(root: int, parent: Mapping[int, int], nodes: Iterable[int]) -> dict[int, int]:
    """The part of a tree that leads from `nodes` to `root`: node → parent, in the order of `nodes`.

    >>> branches(0, {1: 0, 2: 1, 3: 1, 4: 0}, [3])
    {3: 1, 1: 0}
    """
    ways: dict[int, int] = {}
    for node in nodes:
        while node != root and node not in ways and node in parent:
            ways[node] = parent[node]
            node = ways[node]
    return ways


def _parents(root: int, nodes: Iterable[int], edge_index: Tensor, num_nodes: int, farthest: int) -> Tensor:
    """`[nodes]`: the next node on a shortest way to `root`, −1 where there is none, or none was looked for.

    Breadth first, all nodes of a ring at once; of several possible parents the smallest. Edges count in both directions.
    """
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1)  # [2, 2 E]
    parent = torch.full((num_nodes,), -1)
    parent[root] = root
    wanted = torch.tensor(list(nodes), dtype=torch.long)
    front = torch.zeros(num_nodes, dtype=torch.bool)  # the nodes of the ring that was reached last
    front[root] = True
    for _ in range(farthest):
        if bool((parent[wanted] >= 0).all()):
            break
        start, end = both[:, front[both[0]] & (parent[both[1]] < 0)]
        nearest = torch.full_like(parent, num_nodes).scatter_reduce(0, end, start, "amin")
        front = nearest < num_nodes
        parent = torch.where(front, nearest, parent)
    return parent


def rings(root: int, ways: Mapping[int, int], strays: Iterable[int]) -> dict[int, Position]:
    """A place for every node: its distance is its ring, its leaves decide how wide its wedge is; strays stand outside.

    Clockwise from the top, in the order of `ways`.

    >>> {node: (round(x), round(y, 1)) for node, (x, y) in rings(0, {1: 0, 2: 1}, [9]).items()}
    {0: (0, 0.0), 1: (0, -1.5), 2: (0, -2.5), 9: (0, 3.5)}
    """
    children: dict[int, list[int]] = {}
    for node, parent in ways.items():
        children.setdefault(parent, []).append(node)
    leaves = _leaves_below(root, children)
    place = {root: (0.0, 0.0)}
    wedges, depth = [(root, 0.0, 2 * math.pi, 0)], 0
    while wedges:
        node, start, width, depth = wedges.pop(0)
        for child in children.get(node, ()):
            share = width * leaves[child] / leaves[node]
            place[child] = _on_ring(depth + 1, start + share / 2)
            narrowed = min(share, math.pi)  # a lone branch must not bend back around its parent
            wedges.append((child, start + (share - narrowed) / 2, narrowed, depth + 1))
            start += share
    outside = sorted(strays)
    return place | {
        node: _on_ring(depth + 1, 2 * math.pi * position / len(outside)) for position, node in enumerate(outside)
    }


def spread_out(ways: Mapping[int, int]) -> dict[int, int]:
    """The same tree with siblings in an order in which the first few stand far apart around a ring.

    `ways` has strong nodes first. A page draws the strongest few of them and keeps everybody's place when there are more: in
    the plain order the few would stand in one corner. Siblings are sorted by their ranks with the bits reversed (van der
    Corput's sequence), so that any first k of them are spread evenly, up to a factor of two.

    >>> list(spread_out({1: 0, 2: 0, 3: 0, 4: 0}))      # 1 and 2 are now on opposite sides
    [1, 3, 2, 4]
    """
    siblings: Counter[int] = Counter()
    place: dict[int, float] = {}
    for node, parent in ways.items():
        rank = siblings[parent]
        place[node] = int(f"{rank:b}"[::-1], 2) / 2 ** rank.bit_length()
        siblings[parent] += 1
    return {node: ways[node] for node in sorted(ways, key=place.__getitem__)}


def _leaves_below(root: int, children: Mapping[int, list[int]]) -> dict[int, int]:
    """How many leaves of the tree are below each node; a leaf counts itself."""
    order = [root]
    for node in order:  # grows while it is read: parents before children
        order.extend(children.get(node, ()))
    leaves: dict[int, int] = {}
    for node in reversed(order):
        leaves[node] = sum(leaves[child] for child in children.get(node, ())) or 1
    return leaves


def _on_ring(ring: int, angle: float) -> Position:
    """A point on a ring; the angle goes clockwise from the top."""
    radius = ring + 0.5  # the first ring farther out: its edges are the ones to read
    return radius * math.sin(angle), radius * math.cos(angle)


def at_distances(edge_index: Tensor, num_nodes: int, rounds: int = 200) -> dict[int, Position]:
    """A place for every node of a small graph, as far apart as they are in the graph: stress majorisation.

    It starts from classical scaling, so the same graph always gets the same picture. Parts that are not connected stand apart.

    >>> place = at_distances(torch.tensor([[0, 1], [1, 2]]), 3)      # a path: its ends are two steps apart
    >>> round(math.dist(place[0], place[2]), 2)
    2.0
    """
    distance = _hops(edge_index, num_nodes)  # [N, N], like all matrices here
    weight = 1 / np.maximum(distance, 1) ** 2
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(axis=0)) - weight
    inverse = np.linalg.pinv(laplacian)
    spots = _classical(distance)  # [N, 2]
    for _ in range(rounds if num_nodes > 1 else 0):
        between = spots[:, None] - spots[None]  # [N, N, 2]
        apart = np.maximum(np.sqrt((between**2).sum(axis=2)), 1e-9)
        pull = weight * distance / apart
        spots = inverse @ ((np.diag(pull.sum(axis=0)) - pull) @ spots)
    return {node: (float(x), float(y)) for node, (x, y) in enumerate(spots)}


def _hops(edge_index: Tensor, num_nodes: int) -> np.ndarray:
    """`[N, N]`: the number of steps between every two nodes; nodes that are not connected are a little beyond the farthest.

    Three nodes with the one edge 0 → 1 give `[[0, 1, 2.5], [1, 0, 2.5], [2.5, 2.5, 0]]`.
    """
    near = np.eye(num_nodes, dtype=bool)
    source, receiver = edge_index.cpu().numpy()
    near[source, receiver] = near[receiver, source] = True
    distance, reached = np.full((num_nodes, num_nodes), np.inf), np.eye(num_nodes, dtype=bool)
    for hop in range(num_nodes):
        distance[reached & np.isinf(distance)] = hop
        wider = reached @ near
        if (wider == reached).all():
            break
        reached = wider
    largest = distance[np.isfinite(distance)].max(initial=0)
    return np.where(np.isfinite(distance), distance, largest + 1.5)


def _classical(distance: np.ndarray) -> np.ndarray:
    """The plane that keeps the distances best, and a small fixed shift so that no two nodes start in one spot."""
    size = len(distance)
    centre = np.eye(size) - 1 / max(size, 1)
    values, vectors = np.linalg.eigh(-0.5 * centre @ distance**2 @ centre)
    plane = np.zeros((size, 2))
    plane[:, : min(size, 2)] = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :2]
    turn = 2.4 * np.arange(size)
    return plane + 0.05 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
