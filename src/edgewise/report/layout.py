"""Where nodes go in a picture: rings around the explained node, or, for a whole graph, at their distances in the graph."""

from __future__ import annotations

import math
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
    parent = _parents(root, nodes, edge_index, num_nodes, farthest)
    ways: dict[int, int] = {}
    for node in nodes:
        while node != root and node not in ways and parent[node] >= 0:
            ways[node] = int(parent[node])
            node = ways[node]
    return ways


def _parents(root: int, nodes: Iterable[int], edge_index: Tensor, num_nodes: int, farthest: int) -> Tensor:
    """Breadth first, all nodes of a ring at once; of several parents the smallest number."""
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    parent = torch.full((num_nodes,), -1)
    parent[root] = root
    wanted = torch.tensor(list(nodes), dtype=torch.long)
    front = torch.zeros(num_nodes, dtype=torch.bool)
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


def _leaves_below(root: int, children: Mapping[int, list[int]]) -> dict[int, int]:
    order = [root]
    for node in order:  # grows while it is read: parents before children
        order.extend(children.get(node, ()))
    leaves: dict[int, int] = {}
    for node in reversed(order):
        leaves[node] = sum(leaves[child] for child in children.get(node, ())) or 1
    return leaves


def _on_ring(ring: int, angle: float) -> Position:
    radius = ring + 0.5  # the first ring farther out: its edges are the ones to read
    return radius * math.sin(angle), radius * math.cos(angle)


def at_distances(edge_index: Tensor, num_nodes: int, rounds: int = 200) -> dict[int, Position]:
    """A place for every node of a small graph, as far apart as they are in the graph: stress majorisation.

    It starts from classical scaling, so the same graph always gets the same picture. Parts that are not connected stand apart.

    >>> place = at_distances(torch.tensor([[0, 1], [1, 2]]), 3)      # a path: its ends are two steps apart
    >>> round(math.dist(place[0], place[2]), 2)
    2.0
    """
    distance = _hops(edge_index, num_nodes)
    weight = 1 / np.maximum(distance, 1) ** 2
    np.fill_diagonal(weight, 0)
    laplacian = np.diag(weight.sum(axis=0)) - weight
    inverse = np.linalg.pinv(laplacian)
    spots = _classical(distance)
    for _ in range(rounds if num_nodes > 1 else 0):
        between = spots[:, None] - spots[None]
        apart = np.maximum(np.sqrt((between**2).sum(axis=2)), 1e-9)
        pull = weight * distance / apart
        spots = inverse @ ((np.diag(pull.sum(axis=0)) - pull) @ spots)
    return {node: (float(x), float(y)) for node, (x, y) in enumerate(spots)}


def _hops(edge_index: Tensor, num_nodes: int) -> np.ndarray:
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
