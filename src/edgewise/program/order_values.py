"""Values of growing coalitions of edges for a block of targets, in compiled loops (`kernels/order_loops.py`).

Shapley values ask what each edge adds when edges come in a random order. For chains of affine layers with ReLUs between them
the next value is found from the last one; anything else is run for every coalition (`algorithms/shapley.py`), and a test
compares the two.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import group_order
from edgewise.program.execution import LoweredEngine, run
from edgewise.program.ir import Ref
from edgewise.program.kernels import Array, arrays, kernels_for
from edgewise.program.layers.affine import AffineLayer, Prepared
from edgewise.program.small_reverse import is_rectified_chain
from edgewise.question.target import Target

_MOST_CALLS = 6
"""Deeper models take the other way: there is one compiled loop for all up to that, with its arguments filled up."""
_TABLES = (3, 4, 5)
"""Where `_chain` has what pairs have and send."""


class OrderValues:
    """Targets of a lowered graph, with the edges that come and everything that does not change."""

    def __init__(self, engine: LoweredEngine, target: Target, kernels: Any) -> None:
        self._kernels, self._levels, self._target = kernels, engine.levels, target
        self._chain = _chain(engine)

    @staticmethod
    def of(engine: Any, target: Target, work: int) -> "OrderValues | None":
        """None where the loops are not there, cannot do it or are not worth it; `work` is the number of coalitions."""
        if not isinstance(engine, LoweredEngine) or engine.known is None or engine.levels.whole or target.of != "logit":
            return None
        program = engine.program
        if program.num_calls > _MOST_CALLS or program.output != program.messages[-1].output:
            return None
        if not is_rectified_chain(program, engine.known, engine.slopes):
            return None
        kernels = kernels_for(work, engine.known[program.output])
        return None if kernels is None else OrderValues(engine, target, kernels)

    def run(self, inside: Tensor, rank: Tensor, steps: int) -> Tensor:
        """`[samples, steps + 1, T]`: the explained numbers with the first 0, 1, … players there.

        `inside` `[G, M]` are the players (G = 1: an edge comes in all calls at once), `rank` `[samples, G, M]` says when.
        """
        levels, target = self._levels, self._target
        owner = levels.owner[levels.head]
        group, edge = inside.nonzero().unbind(1)  # [players]
        samples, count = len(rank), levels.num_targets
        game = torch.arange(samples).view(-1, 1) * count + owner[edge]
        when = rank[:, group, edge]  # [samples, players]
        order = (game * (int(when.max()) + 1) + when).view(-1).argsort() % max(len(edge), 1)
        value = torch.empty(samples, steps + 1, count, dtype=torch.float64)
        column = torch.zeros_like(target.column) if target.mode == "binary" else target.column
        call = group if len(inside) > 1 else torch.full_like(group, -1)
        self._kernels.order_values(
            *arrays(order, _starts(game.view(-1), samples * count), edge, call), samples,
            *arrays(levels.head, levels.tail, levels.sender, levels.edge_id, levels.node),
            *_grouped(levels.tail, len(levels.node)),
            *(np.array([size(c) for c in range(levels.num_calls)]) for size in (self._heads, levels.edges_of)),
            *_grouped(levels.owner, count), *_grouped(owner, count), *self._chain,
            *(tuple(map(np.copy, self._chain[kind])) for kind in _TABLES), *arrays(column, value),
        )  # fmt: skip
        value = value.to(target.truth.dtype)
        return value if target.mode != "binary" else torch.where(target.column == 1, value, -value)

    def _heads(self, call: int) -> int:
        return self._levels.pairs_after(call + 1)


def _starts(group: Tensor, size: int) -> Tensor:
    """`[size + 1]`: where each group begins once its members stand together."""
    start = torch.zeros(size + 1, dtype=torch.long)
    start[1:] = torch.bincount(group, minlength=size).cumsum(0)
    return start


def _grouped(group: Tensor, size: int) -> list[Array]:
    """Where each group begins, and its members."""
    return arrays(_starts(group, size), group_order(group, size))


def _chain(engine: LoweredEngine) -> list[Any]:
    """What nodes send at first, and per call its matrices, and what pairs have and would send without any edge."""
    program, levels, known = engine.program, engine.levels, engine.known
    assert known is not None
    like = known[program.output]
    none = like.new_zeros(program.num_calls, len(levels.edge_id))
    values = run(program, levels, engine.prepared, none, like.new_ones(program.num_calls, len(levels.node)))
    nothing, empty = np.empty((0, 0)), np.empty(0)  # in float64: each value stands on all the ones before
    first, calls = nothing, []
    scalar, below = np.zeros(program.num_calls, nothing.dtype), np.zeros(program.num_calls)
    for step in program.messages:
        layer = step.layer
        assert isinstance(layer, AffineLayer)
        slope, sent = engine.slopes.get((step.call, 0)), None
        if isinstance(step.source, Ref):
            sent = layer.difference(values[step.source.value])
        else:
            table = engine.prepared[step.output]
            assert isinstance(table, Prepared)
            first = _array(table.sent if table.projected else layer.difference(table.sent), nothing)
        if isinstance(layer.root, float):
            scalar[step.call] = layer.root
        below[step.call] = 1.0 if slope is None or slope.below is None else slope.below
        post = values[step.output if slope is None else slope.output]
        matrix = None if layer.matrix is None else layer.matrix.t()
        root = layer.root.t() if isinstance(layer.root, Tensor) else None
        tables = [_array(part, nothing) for part in (matrix, root, values[step.output], post, sent)]
        calls.append([*tables, *(_array(part, empty) for part in (layer.coefficient, layer.loop))])
    filled = calls + [[nothing] * 5 + [empty] * 2] * (_MOST_CALLS - len(calls))
    return [first, *(tuple(call[kind] for call in filled) for kind in range(7)), scalar, below, below != 1]


def _array(part: Any, empty: Array) -> Array:
    """A contiguous array of the same kind for every call; `empty` for None."""
    return empty if part is None else np.ascontiguousarray(part.detach().numpy(), empty.dtype)
