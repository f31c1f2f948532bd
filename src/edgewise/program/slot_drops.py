"""Occlusion of many slots for many targets of one graph, slot after slot in compiled loops (`kernels/slot_loops.py`).

For chains of affine layers with ReLUs between them, which is what most people train; `perturbation_output.drops` does the same
for everything else, and a test compares the two.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.cores import even_parts, num_cores, spread
from edgewise.graph.computation_graph import InEdges
from edgewise.program.kernels import Array, arrays, filled_columns, kernels_for
from edgewise.program.layers.affine import AffineLayer, Prepared
from edgewise.program.lowering import Lowering
from edgewise.program.perturbation import Differences, MissingMessages
from edgewise.program.small_reverse import is_rectified_chain
from edgewise.question.target import Target

_MOST_CALLS = 6
"""Deeper models take the other way: there is one compiled loop for all up to that, with its arguments filled up."""
_MANY, _WORK = 16, 50_000
"""Targets, and edges that they see together, from which on it is worth loading the loops."""
_LARGEST = 2**24
"""Numbers of all nodes together: the loops have room for a row of each."""
_SLOTS_A_CORE = 256
Found: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Where each target's entries begin `[T + 1]`, their places and scores `[n]`."""


class SlotDrops:
    """value − value without, for slots and targets of a lowered graph."""

    def __init__(self, differences: Differences, kernels: Any, work: int) -> None:
        self._kernels, self.differences, self.work = kernels, differences, work
        self._layers = _layers(differences)
        self._edges, self._of_targets, self._sign = self._geometry()

    @staticmethod
    def suits(differences: Differences) -> bool:
        """Whether the loops can do it, for so many targets that it may be worth it."""
        program, lowering = differences.program, differences.lowering
        if len(differences.targets) < _MANY or program.num_calls > _MOST_CALLS or not differences.columns_only:
            return False
        if not is_rectified_chain(program, differences.known, lowering.slopes):
            return False
        widest = max(differences.known[step.output].size(1) for step in program.messages)
        return lowering.in_edges.num_nodes * widest <= _LARGEST

    @staticmethod
    def of(differences: Differences, work: int) -> "SlotDrops | None":
        """None where the loops are not there or not worth it; `work` is about how many edges are seen."""
        kernels = None if work < _WORK else kernels_for(work, differences.known[differences.program.output])
        return None if kernels is None else SlotDrops(differences, kernels, work)

    def run(self, slots: MissingMessages, number: Tensor, width: int) -> Found:
        """Entries of all targets.

        `number` says what columns (or nodes) are called in the result, and `width` how many it has: a place is
        layer · width + number.
        """
        known = (*self._edges, *self._layers[slots.of_self], *self._of_targets)

        def of_some(part: tuple[Tensor, Tensor]) -> Any:
            room = self.work * len(part[0]) // max(len(slots), 1)
            return self._kernels.slot_drops(*arrays(*part), room, slots.of_self, *known)

        place_of = slots.call.clamp(min=0) * width + number[slots.item]  # [slots]
        targets = len(self.differences.targets)
        begin, place, drop = rows_of_slots(slots, of_some, place_of, targets, self._kernels)
        if self._sign is not None:
            drop *= torch.repeat_interleave(self._sign, begin.diff())
        return begin, place, drop

    def is_of(self, lowering: Lowering | None, target: Target) -> bool:
        """Whether these are the loops for these targets."""
        return self.differences.lowering is lowering and self.differences.target is target

    def _geometry(self) -> tuple[list[Any], list[Any], Tensor | None]:
        """What the loop reads of edges and of targets, and the signs of the explained numbers, for one logit of two classes."""
        every, out = self.differences, self.differences.out_edges
        by_node = out.start.new_zeros(len(out.start))
        by_node[1:] = torch.bincount(every.targets, minlength=len(by_node) - 1).cumsum(0)
        column, sign = _columns(every)
        position = every.targets.argsort(stable=True)
        columns, chosen = column.unique(return_inverse=True)
        start, edge, arrives, factors = _last_edges(every, by_node, position)
        steps = torch.stack([edge, arrives, chosen[arrives]], dim=1).numpy().astype(np.uint32)
        of_targets = arrays(factors, by_node, position, column, chosen[position])
        edges = [*arrays(every.sender, every.receiver), *_near_edges(every), *arrays(every.distance)]
        return edges, [*self._last_columns(columns), start.numpy(), steps, *of_targets], sign

    def _last_columns(self, columns: Tensor) -> tuple[Array, int]:
        """`[in, …]`: these columns of the matrix of the last call, behind them those of its own term, and where those begin."""
        layer: Any = self.differences.program.messages[-1].layer
        like = self.differences.lowering.known[self.differences.program.output]
        matrix = torch.eye(like.size(1), dtype=like.dtype) if layer.matrix is None else layer.matrix.detach()
        found: Any = filled_columns(matrix[columns].t().numpy())
        root = [layer.root.detach()[columns].t().numpy()] if isinstance(layer.root, Tensor) else []
        both = np.concatenate([found, *map(filled_columns, root)], axis=1)
        return np.ascontiguousarray(both), found.shape[1] if root else 0


def rows_of_slots(
    slots: MissingMessages, of_some: Callable[..., Any], place_of: Tensor, num_targets: int, kernels: Any
) -> Found:
    """Entries of all targets: `of_some` finds those of some slots, the loops of `kernels` put them behind one another.

    First some slots for each core, then some targets: a drop is the same number and stands in the same place on any number.
    Slots of early layers change the most.
    """
    count = even_parts(len(slots), _SLOTS_A_CORE)
    parts = list(zip(slots.item.tensor_split(count), slots.call.tensor_split(count), strict=True))
    found = list(spread(of_some, parts))  # (where the entries of each slot end, positions, changes) each
    sizes = list(spread(lambda part: kernels.count_entries(part[1], num_targets), found))
    begin = np.zeros(num_targets + 1, np.int64)
    np.cumsum(sum(sizes), out=begin[1:])
    filled, places = begin[:-1].copy(), np.empty(begin[-1], np.int64)
    drops = np.empty(begin[-1], found[0][2].dtype)
    names = [part.numpy() for part in place_of.tensor_split(count)]

    def fill(ends: tuple[int, int]) -> None:
        for part, name in zip(found, names, strict=True):
            kernels.fill_entries(*part, name, *ends, filled, places, drops)

    cuts = np.searchsorted(begin, np.linspace(0, begin[-1], min(num_cores(), count) + 1)).tolist()
    for _ in spread(fill, pairwise([0, *cuts[1:-1], num_targets])):
        pass
    return torch.from_numpy(begin), torch.from_numpy(places), torch.from_numpy(drops)


def _columns(differences: Differences) -> tuple[Tensor, Tensor | None]:
    """`[T]`: the explained column of the output of each target; and its sign, for one logit of two classes."""
    target = differences.target
    if target.mode != "binary":
        return target.column, None
    return torch.zeros_like(target.column), torch.where(target.column == 1, 1, -1).to(differences.value)


def _near_edges(differences: Differences) -> list[tuple[Array, ...]]:
    """The out-edges that still lead to a target, per call: where those of each node begin, and `[n, 2]` columns and receivers.

    Only of calls in the middle: before the first one nothing has changed, and for the last one see `_last_edges`.
    """
    out, calls = differences.out_edges, differences.program.num_calls
    found = []
    for call in range(_MOST_CALLS):
        reach = calls - call if 0 < call < calls - 1 else 0
        kept = (differences.distance[out.sender] < reach).nonzero().view(-1)
        ends = torch.stack([out.edge[kept], out.sender[kept]], dim=1).numpy().astype(np.uint32)
        found.append((torch.searchsorted(kept, out.start).numpy(), ends))
    return [tuple(call[kind] for call in found) for kind in range(2)]


def _last_edges(differences: Differences, by_node: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The out-edges that lead to targets, each as often as there are targets.

    Where those of each node begin, their columns, the positions of the targets, and coefficients. The targets at node v are
    `position[by_node[v] : by_node[v + 1]]`.
    """
    out, layer = differences.out_edges, differences.program.messages[-1].layer
    assert isinstance(layer, AffineLayer)
    entry, place = InEdges(by_node, position, position, len(by_node) - 1).of_nodes(out.sender)  # receivers
    edge = out.edge[entry]
    return torch.searchsorted(entry, out.start), edge, position[place], layer.coefficients(edge, differences.value)


def _layers(differences: Differences) -> dict[bool, list[Any]]:
    """The arguments of the loop for edges and for own terms: per call its matrices, what nodes have and send."""
    lowering, program = differences.lowering, differences.program
    dtype = lowering.known[program.output].numpy().dtype
    nothing, none = np.empty((0, 0), dtype), np.empty(0, dtype)
    everyone = torch.arange(lowering.in_edges.num_nodes)
    calls: list[list[Array]] = []
    of_self: list[Array] = []
    scalar, below = np.zeros(program.num_calls, dtype), np.ones(program.num_calls)
    for step in program.messages:
        layer: Any = step.layer
        assert isinstance(layer, AffineLayer)
        table: Any = lowering.prepared[step.output] if step.is_prepared else lowering.known[step.source.value]  # type: ignore[union-attr]
        sent = table.sent if isinstance(table, Prepared) else table
        sent = sent if isinstance(table, Prepared) and table.projected else layer.difference(sent)
        if isinstance(layer.root, float):
            scalar[step.call] = layer.root
        slope = lowering.slopes.get((step.call, 0))
        if slope is not None and slope.below is not None:
            below[step.call] = slope.below
        root = layer.root.detach().t().numpy() if isinstance(layer.root, Tensor) else None
        matrix = None if layer.matrix is None else layer.matrix.detach().t().numpy()
        after = None if slope is None else lowering.known[slope.output]
        tables = (filled_columns(matrix), filled_columns(root), lowering.known[step.output], after, sent)
        rows = [_array(part, nothing) for part in tables]
        calls.append([*rows, *(_array(part, none) for part in (layer.coefficient, layer.loop))])
        of_self.append(_array(layer.own_term(table, everyone), nothing))
    filled = calls + [[nothing] * 5 + [none] * 2] * (_MOST_CALLS - len(calls))
    parts = [tuple(call[kind] for call in filled) for kind in range(7)]
    own = (*of_self, *[nothing] * (_MOST_CALLS - len(of_self)))
    return {is_own: [*parts[:4], own if is_own else parts[4], *parts[5:], scalar, below] for is_own in (False, True)}


def _array(part: Any, empty: Array) -> Array:
    """A contiguous array of the same kind for every call; `empty` for None."""
    if part is None:
        return empty
    return np.ascontiguousarray(part.detach().numpy() if isinstance(part, Tensor) else part, empty.dtype)
