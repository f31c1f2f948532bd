"""Compiled loops that find what a target sees, nearest nodes first, and arrays that grow with what is found."""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf, loop


@leaf()
def neighbourhood(
    target: int, calls: int, start: Array, edge: Array, sender: Array, place: Array, node: Array, tail: Array, column: Array,
    first: Array, pair_end: Array,
) -> int:  # fmt: skip
    """The nodes that a target sees, nearest first, and their in-edges, node by node; returns how many edges there are.

    Args:
        target: Its node.
        calls: How many hops are followed.
        start: `[N + 1]`, the edges into node v are `start[v]:start[v + 1]`.
        edge: `[E]`, the column of each edge in that order.
        sender: `[E]`, its sender.
        place: `[N]`, −1 everywhere; afterwards the number of each node that was found.
        node: `[N]`, filled in: the nodes in their order.
        tail: `[E]`, filled in: the number of each edge's sender.
        column: `[E]`, filled in: its column.
        first: `[N + 1]`, filled in: the edges into the node with number i are `first[i]:first[i + 1]`.
        pair_end: `[calls + 1]`, filled in: how many nodes are within 0, 1, … hops.
    """
    node[0], place[target], pair_end[0] = target, 0, 1
    count, edges, begin = 1, 0, 0
    for hop in range(calls):
        end = count
        for i in range(begin, end):
            first[i] = edges
            for j in range(start[node[i]], start[node[i] + 1]):
                other = sender[j]
                if place[other] < 0:
                    place[other] = count
                    node[count] = other
                    count += 1
                tail[edges], column[edges] = place[other], edge[j]
                edges += 1
        begin, pair_end[hop + 1] = end, count
    first[begin] = edges
    return edges


@leaf()
def near_nodes(target: int, hops: int, start: Array, sender: Array, place: Array, node: Array, pair_end: Array) -> None:
    """The nodes within so many hops of a target, nearest first.

    Arguments as for `neighbourhood`: `place`, `node` and `pair_end` `[hops + 1]` are filled in, edges are not numbered.
    """
    node[0], place[target], pair_end[0] = target, 0, 1
    count, begin = 1, 0
    for hop in range(hops):
        end = count
        for i in range(begin, end):
            for j in range(start[node[i]], start[node[i] + 1]):
                other = sender[j]
                if place[other] < 0:
                    place[other] = count
                    node[count] = other
                    count += 1
        begin, pair_end[hop + 1] = end, count


@leaf()
def rooms(
    targets: Array, calls: int, start: Array, sender: Array, place: Array, node: Array, pair_end: Array, by_layer: bool
) -> Any:
    """How many entries edges and own terms of all targets have at most, and how many edges and nodes the largest one sees."""
    room = own_room = most = most_own = 0
    for target in targets:
        near_nodes(target, calls - 1, start, sender, place, node, pair_end)
        edges = i = 0
        for hop in range(calls):
            while i < pair_end[hop]:
                edges += start[node[i] + 1] - start[node[i]]
                place[node[i]] = -1
                i += 1
            if by_layer or hop == calls - 1:
                room, own_room = room + edges, own_room + i
        most, most_own = max(most, edges), max(most_own, i)
    return room, own_room, most, most_own


@loop()
def grown(array: Array, size: int) -> Array:
    """The same array, or a longer one that begins with the same numbers."""
    if size <= len(array):
        return array
    longer = np.empty(2 * size, array.dtype)
    longer[: len(array)] = array
    return longer
