"""The computation graph, unrolled: a column for every state, from the features to the output, a row for every node.

`unrolled_picture` shows a layerwise explanation so, `walks_picture` the walks; `rows_in_order` decides which node has which
row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgewise.report.scene import Picture, Spot, Step, Strongest, strongest_steps, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgewise.results.explanation import Explanation
    from edgewise.results.walk_set import WalkSet

MOST_MOVED, MOST_ROUNDS = 200, 20
"""The most rows that are put into a better order (lines among more cannot be followed anyway), and rounds of moves."""


def unrolled_picture(why: Explanation, edges: int = 30) -> Picture:
    """The strongest steps of a layerwise explanation; a step that stays on a node is its self score.

    >>> import torch
    >>> from edgewise import Explanation
    >>> scores, own = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0, 0.0], [0.0, -3.0]])
    >>> why = Explanation(scores, torch.tensor([[0], [1]]), 2, 1, 0, 1.0, level="layer", self_scores=own)
    >>> shown = unrolled_picture(why)
    >>> [shown.ends(step) for step in shown.strongest.steps]
    [((0, 0), (1, 1)), ((1, 1), (2, 1))]
    """
    strongest, layers = strongest_steps(why, edges), len(why.scores)
    root = (layers, int(why.index)) if task_of(why.settings) == "node" else None
    return unrolled(strongest, layers, root)


def walks_picture(walks: WalkSet, count: int = 5) -> Picture:
    """The spots that the first `count` walks visit; its steps carry the walk's score, and its rank as their column."""
    shown = walks.walks[:count]
    steps = tuple(
        Step(walk.score, source, receiver, rank, layer)
        for rank, walk in enumerate(shown)
        for layer, (source, receiver) in enumerate(zip(walk.nodes[:-1], walk.nodes[1:], strict=True))
    )
    total = sum(abs(walk.score) for walk in walks)
    share = sum(abs(walk.score) for walk in shown) / total if total else 0.0
    root = (walks.num_layers, walks.index) if task_of(walks.settings) == "node" else None
    return unrolled(Strongest(steps, len(walks), share, "walks"), walks.num_layers, root)


def unrolled(strongest: Strongest, num_layers: int, root: Spot | None) -> Picture:
    """Columns to the right, rows downwards: a node keeps its row, so staying on it is a horizontal line."""
    steps = [(step.source, step.receiver, abs(step.score)) for step in strongest.steps]
    nodes = strongest.nodes | ({root[1]} if root else set())
    row = {node: -float(number) for number, node in enumerate(rows_in_order(steps, nodes))}
    spots = {root} if root else set()
    for step in strongest.steps:
        layer = step.layer or 0
        spots |= {(layer, step.source), (layer + 1, step.receiver)}
    return Picture({spot: (float(spot[0]), row[spot[1]]) for spot in sorted(spots)}, strongest, root, (), num_layers)


def rows_in_order(steps: Sequence[tuple[int, int, float]], nodes: Iterable[int]) -> list[int]:
    """The nodes from the first row to the last, in an order in which strong steps are short.

    `steps` are (source, receiver, strength). One row after the other moves to where the total length is smallest, until a
    round changes nothing.

    >>> rows_in_order([(0, 2, 1.0), (2, 1, 1.0)], [0, 1, 2])
    [1, 2, 0]
    """
    order = sorted(nodes)
    links = [step for step in steps if step[0] != step[1]]
    if not links or len(order) > MOST_MOVED:
        return order
    number = {node: position for position, node in enumerate(order)}
    ends = np.array([[number[one], number[other]] for one, other, _ in links]).T  # [2, links]
    weight = np.array([step[2] for step in links])  # [links]
    weight = 0.2 + weight / max(weight.max(), 1e-300)
    row, shortest = np.arange(len(order)), np.inf
    for _ in range(MOST_ROUNDS):
        for moved in range(len(order)):
            choices = _with_moved(row, moved)  # [rows, nodes]
            length = (weight * abs(choices[:, ends[0]] - choices[:, ends[1]]) ** 1.2).sum(axis=1)
            row = choices[length.argmin()]
        if length.min() >= shortest - 1e-9:
            break
        shortest = length.min()
    return [order[position] for position in row.argsort()]


def _with_moved(row: np.ndarray, moved: int) -> np.ndarray:
    """`[rows, nodes]`: the rows of all nodes, with one of them moved to the first, the second, … row.

    >>> _with_moved(np.array([0, 1, 2]), 0).tolist()
    [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
    """
    places = np.arange(len(row))[:, None]
    others = row - (row > row[moved])
    choices = others + (others >= places)
    choices[:, moved] = places[:, 0]
    return choices
