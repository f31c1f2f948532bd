"""Occlusion of many slots for many targets of one graph, receiver after receiver in compiled loops (`kernels/slot_loops.py`).

For chains of affine layers with ReLUs between them, which is what most people train; `perturbation_output.drops` does the same
for everything else, and a test compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import narrowed
from edgewise.cores import MUCH_WORK, even_parts, spread
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
_NUMBERS = 2**22
"""Of all nodes and slots of a bundle: in a large graph bundles are smaller."""
_RECEIVERS_A_CORE = 512
_SLOTS_A_CORE = 256
Found: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Where each target's entries begin `[T + 1]`, their places and scores `[n]`."""
Lifted: TypeAlias = tuple[Tensor, int]
"""What columns (or nodes) are called in the result, and how many it has: a place is layer · that + name."""


class SlotDrops:
    """value − value without, for slots and targets of a lowered graph."""

    def __init__(self, differences: Differences, kernels: Any, work: int) -> None:
        self._kernels, self.differences, self.work = kernels, differences, work
        column, self._sign = _columns(differences)
        graph = differences.lowering.in_edges
        self._in_edges = [_unsigned(part) for part in (graph.start, graph.edge, graph.sender)]
        self._known = [*self._in_edges, *_near_edges(differences), differences.distance.numpy(), *_layers(differences)]
        self._known += _of_targets(differences, column)

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

    def run(self, level: str, columns: Lifted, nodes: Lifted | None) -> list[Found]:
        """Entries of all targets: of edges and, unless `nodes` is None, of own terms.

        Receivers are spread over cores: a drop is the same number and stands in the same place on any number of them.
        """
        at, call = self._receivers(level)
        count = even_parts(len(at), _RECEIVERS_A_CORE) if self.work >= MUCH_WORK else 1
        targets = len(self.differences.targets)
        parts = list(zip(at.tensor_split(count), call.tensor_split(count), strict=True))
        none = (columns[0][:0], 0)
        end = max(columns[1], 0 if nodes is None else nodes[1]) * (int(call.max()) + 1 if len(call) else 1)
        lifted = [part for names, width in (columns, nodes or none) for part in (*arrays(narrowed(names, end)), width)]

        def of_some(part: tuple[Tensor, Tensor]) -> Bundles:
            room = self.work * len(part[0]) // max(len(at), 1)
            asked = (*arrays(*part), room, _NUMBERS, level == "layer", nodes is not None)
            found = self._kernels.slot_drops(*asked, *self._known)
            bundles, ends, position, change, sizes = found
            name = self._kernels.slot_names(bundles, *self._in_edges[:2], *lifted)
            lanes, owns = (np.ascontiguousarray(bundles[:, kind]) for kind in (3, 4))
            return Bundles((ends, lanes, owns, position, change, name), sizes)

        begin, place, drop = rows_of_bundles(list(spread(of_some, parts)), targets, self._kernels)
        rows = [(begin[: targets + 1], place, drop)]
        if nodes is not None:
            middle = int(begin[targets])
            rows = [(begin[: targets + 1], place[:middle], drop[:middle])]
            rows.append((begin[targets:] - middle, place[middle:], drop[middle:]))
        if self._sign is not None:
            rows = [
                (start, place, drop * torch.repeat_interleave(self._sign, start.diff())) for start, place, drop in rows
            ]
        return rows

    def _receivers(self, level: str) -> tuple[Tensor, Tensor]:
        """Nodes that may miss a message, and the call in which they do; at input level they do in all of them."""
        calls = self.differences.program.num_calls if level == "layer" else 1
        last = self.differences.program.num_calls
        parts = [(self.differences.distance < last - call).nonzero().view(-1) for call in range(calls)]
        return torch.cat(parts), torch.cat([torch.full_like(part, call) for call, part in enumerate(parts)])

    def is_of(self, lowering: Lowering | None, target: Target) -> bool:
        """Whether these are the loops for these targets."""
        return self.differences.lowering is lowering and self.differences.target is target


@dataclass(frozen=True, eq=False)
class Bundles:
    """What some bundles of slots change, as `fill_entries` reads it, and how many entries each row will have."""

    entries: tuple[Array, ...]
    sizes: Array


def rows_of_bundles(found: list[Bundles], num_targets: int, kernels: Any) -> Found:
    """Entries row by row: those of all targets for edges, and behind them, where `sizes` counts them, for own terms."""
    sizes = np.stack([part.sizes for part in found])  # [parts, rows]
    begin = np.zeros(sizes.shape[1] + 1, np.int64)
    np.cumsum(sizes.sum(0), out=begin[1:])
    filled = begin[:-1] + sizes.cumsum(0) - sizes  # where the entries of each part begin
    places = np.empty(begin[-1], found[0].entries[5].dtype)
    drops = np.empty(begin[-1], found[0].entries[4].dtype)

    def fill(number: int) -> None:
        kernels.fill_entries(*found[number].entries, num_targets, filled[number], places, drops)

    for _ in spread(fill, range(len(found))):
        pass
    return torch.from_numpy(begin), torch.from_numpy(places), torch.from_numpy(drops)


def rows_of_slots(
    slots: MissingMessages, of_some: Callable[..., Any], place_of: Tensor, num_targets: int, kernels: Any
) -> Found:
    """Entries of all targets: `of_some` finds those of some slots, each by itself; slots are spread over cores."""
    count = even_parts(len(slots), _SLOTS_A_CORE)
    parts = zip(slots.item.tensor_split(count), slots.call.tensor_split(count), strict=True)

    def bundles(part: tuple[tuple[Tensor, Tensor], Tensor]) -> Bundles:
        ends, position, change = of_some(part[0])
        lanes = np.ones(len(ends) - 1, np.int64)
        entries = (ends, lanes, np.zeros_like(lanes), position, change, part[1].numpy())
        return Bundles(entries, kernels.count_entries(position, num_targets))

    found = list(spread(bundles, zip(parts, place_of.tensor_split(count), strict=True)))
    return rows_of_bundles(found, num_targets, kernels)


def _unsigned(part: Tensor) -> Array:
    """Numbers of nodes or edges, or where those begin, as the loops read them."""
    return part.numpy().astype(np.uint32)


def _columns(differences: Differences) -> tuple[Tensor, Tensor | None]:
    """`[T]`: the explained column of the output of each target; and its sign, for one logit of two classes."""
    target = differences.target
    if target.mode != "binary":
        return target.column, None
    return torch.zeros_like(target.column), torch.where(target.column == 1, 1, -1).to(differences.value)


def _near_edges(differences: Differences) -> list[tuple[Array, ...]]:
    """The out-edges that still lead to a target, per call: where those of each node begin, columns, receivers, coefficients.

    Only of calls in the middle: before the first one nothing has changed, and for the last one see `_of_targets`.
    """
    out, program = differences.out_edges, differences.program
    dtype, found = differences.value.numpy().dtype, []
    for call in range(_MOST_CALLS):
        reach = program.num_calls - call if 0 < call < program.num_calls - 1 else 0
        kept = (differences.distance[out.sender] < reach).nonzero().view(-1)
        edge, factors = out.edge[kept], np.empty(0, dtype)
        if reach:
            layer: Any = program.messages[call].layer
            factors = factors if layer.coefficient is None else _array(layer.coefficient[edge], factors)
        start = torch.searchsorted(kept, out.start)
        found.append((_unsigned(start), _unsigned(edge), _unsigned(out.sender[kept]), factors))
    return [tuple(call[kind] for call in found) for kind in range(4)]


def _of_targets(differences: Differences, column: Tensor) -> list[Any]:
    """What the loop reads of the last call and of targets: explained columns, edges, and which targets are at which node."""
    out, layer = differences.out_edges, differences.program.messages[-1].layer
    assert isinstance(layer, AffineLayer)
    by_node = out.start.new_zeros(len(out.start))
    by_node[1:] = torch.bincount(differences.targets, minlength=len(by_node) - 1).cumsum(0)
    position = differences.targets.argsort(stable=True)
    columns, chosen = column.unique(return_inverse=True)
    # the out-edges that lead to targets, each as often as there are targets at its receiver
    entry, place = InEdges(by_node, position, position, len(by_node) - 1).of_nodes(out.sender)
    edge, arrives = out.edge[entry], position[place]
    edges = (torch.searchsorted(entry, out.start), edge, arrives, chosen[arrives])
    factors = _array(layer.coefficients(edge, differences.value), np.empty(0, differences.value.numpy().dtype))
    of_targets = (by_node, position, column, chosen[position])
    return [*_last_columns(differences, columns), *map(_unsigned, edges), factors, *map(_unsigned, of_targets)]


def _last_columns(differences: Differences, columns: Tensor) -> tuple[Array, int]:
    """`[in, …]`: these columns of the matrix of the last call, behind them those of its own term, and where those begin."""
    layer: Any = differences.program.messages[-1].layer
    like = differences.lowering.known[differences.program.output]
    matrix = torch.eye(like.size(1), dtype=like.dtype) if layer.matrix is None else layer.matrix.detach()
    found = filled_columns(matrix[columns].t().numpy())
    root = [layer.root.detach()[columns].t().numpy()] if isinstance(layer.root, Tensor) else []
    both = np.concatenate([found, *map(filled_columns, root)], axis=1)
    return np.ascontiguousarray(both), found.shape[1] if root else 0


def _layers(differences: Differences) -> list[Any]:
    """The arguments of the loop of each call: its matrices, what nodes have and send, and coefficients."""
    lowering, program = differences.lowering, differences.program
    dtype = lowering.known[program.output].numpy().dtype
    nothing, none = np.empty((0, 0), dtype), np.empty(0, dtype)
    everyone = torch.arange(lowering.in_edges.num_nodes)
    calls: list[list[Array]] = []
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
        root = layer.root.t() if isinstance(layer.root, Tensor) else None
        matrix = None if layer.matrix is None else layer.matrix.t()
        after = None if slope is None else lowering.known[slope.output]
        tables = (matrix, root, lowering.known[step.output], after, sent, layer.own_term(table, everyone))
        rows = [_array(part, nothing) for part in tables]
        calls.append([*rows, *(_array(part, none) for part in (layer.coefficient, layer.loop))])
    calls += [[nothing] * 6 + [none] * 2] * (_MOST_CALLS - len(calls))
    return [*(tuple(call[kind] for call in calls) for kind in range(8)), scalar, below]


def _array(part: Any, empty: Array) -> Array:
    """A contiguous array of the same kind for every call, its rows filled up to whole vectors; `empty` for None."""
    if part is None:
        return empty
    array = part.detach().numpy() if isinstance(part, Tensor) else part
    return np.ascontiguousarray(filled_columns(array) if array.ndim > 1 else array, empty.dtype)
