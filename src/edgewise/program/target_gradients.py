"""Gradients of many targets of one graph, target after target in compiled loops (`kernels/target_loops.py`).

For chains of affine layers with element-wise functions between them, which is what most people train; `ReversePass` does the
same for everything else, and a test compares the two.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import narrowed
from edgewise.cores import MUCH_WORK, num_cores, spread
from edgewise.program.ir import Ref
from edgewise.program.kernels import Array, arrays, filled_columns, kernels_for
from edgewise.program.layers.affine import AffineLayer, Prepared
from edgewise.program.lowering import Lowering
from edgewise.program.small_reverse import is_affine_chain

_MOST_CALLS = 6
"""Deeper models take the other way: there is one compiled loop for all up to that, with its arguments filled up."""
_MANY, _WORK = 16, 50_000
"""Targets, and edges that they see together, from which on it is worth loading the loops."""
_SHARED = 8
"""How many targets must see an edge, on average, for its first message to be shared by all of them."""
_MOST_SHARED = 2**23
"""Numbers of such messages, at most: beyond they take more memory than they save time."""
Found: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Where each target's entries begin `[T + 1]`, their places and scores `[n]`."""


class TargetGradients:
    """Gradients at ω = s = 1 of nodes of a lowered graph."""

    def __init__(self, lowering: Lowering, kernels: Any, work: int) -> None:
        self._lowering, self.in_edges, self._loop = lowering, lowering.in_edges, kernels.target_gradients
        self._parts, self._work = list(lowering.remembered(TargetGradients, lambda: _chain(lowering))), work
        self._parts += _shared_messages(lowering, work)

    @staticmethod
    def suits(lowering: Lowering, num_targets: int) -> bool:
        """Whether the loops can do it, for so many targets that it may be worth it."""
        if num_targets < _MANY or lowering.program.num_calls > _MOST_CALLS:
            return False
        return is_affine_chain(lowering.program, lowering.known, lowering.slopes)

    @staticmethod
    def of(lowering: Lowering, work: int) -> "TargetGradients | None":
        """None where the loops are not there or not worth it; `work` is about how many edges are seen."""
        kernels = None if work < _WORK else kernels_for(work, lowering.known[lowering.program.output])
        return None if kernels is None else TargetGradients(lowering, kernels, work)

    def run(
        self,
        nodes: Tensor,
        of_rows: Callable[[Tensor], Tensor],
        numbers: list[Tensor],
        widths: list[int],
        *,
        by_layer: bool,
    ) -> list[tuple[Found, Found]]:
        """Of the edges and of the own terms of nodes `[T]`, in parts of consecutive targets, one for each core.

        `of_rows` gives the gradients of the explained numbers by the rows of the output, `[T, columns]` both. `numbers` `[E]`
        and `[N]` say what columns and nodes are called in the result, and `widths` how many it has: a place is
        layer · width + number.
        """
        lowering = self._lowering
        slopes = of_rows(lowering.known[lowering.program.output].index_select(0, nodes))
        rows = torch.from_numpy(np.ascontiguousarray(filled_columns(slopes.numpy())))
        calls = lowering.program.num_calls if by_layer else 1
        names = [narrowed(part, calls * width) for part, width in zip(numbers, widths, strict=True)]
        known = (*self._arguments(*names), tuple(widths), by_layer)

        def of_some(part: tuple[Tensor, Tensor]) -> Any:
            return self._loop(*arrays(*part), *known)

        # a target's numbers are its own, wherever we cut
        number = min(num_cores(), max(len(nodes) // _MANY, 1)) if self._work >= MUCH_WORK else 1
        parts = zip(nodes.tensor_split(number), rows.tensor_split(number), strict=True)
        found = list(spread(of_some, parts))
        return [(_tensors(edges), _tensors(own)) for edges, own in found]

    def _arguments(self, of_edges: Tensor, of_nodes: Tensor) -> tuple[Any, ...]:
        """What the loop reads of the graph and the model, and what columns and nodes are called in the result."""
        graph = self.in_edges
        names = arrays(of_edges.index_select(0, graph.edge), of_nodes)
        return (*arrays(graph.start, graph.sender), *self._parts, *names)


def _chain(lowering: Lowering) -> list[Any]:
    """The arguments of the loop: per call what it sends, its matrices, slopes and coefficients."""
    program = lowering.program
    dtype = lowering.known[program.output].numpy().dtype
    nothing, none = np.empty((0, 0), dtype), np.empty(0, dtype)
    rows: list[list[Array]] = []
    scalar = np.zeros(program.num_calls, dtype)
    for step in program.messages:
        affine: Any = step.layer.as_arrays  # type: ignore[attr-defined]  # `is_affine_chain` has seen that it is affine
        slope = lowering.slopes.get((step.call, 0))
        table: Any = lowering.prepared[step.output] if step.is_prepared else lowering.known[_source(step.source)]
        constant = table if isinstance(table, Prepared) else None
        sent = table if constant is None else constant.sent
        own = None if constant is None else constant.own
        if constant is None and isinstance(affine.root, float):
            scalar[step.call] = affine.root
        root = affine.root if constant is None and not isinstance(affine.root, float) else None
        loop = affine.loop if constant is None else None
        matrix = None if constant is not None and constant.projected else affine.matrix
        tables = (sent, matrix, root, None if slope is None else slope.derivative, own)
        factors = None if affine.coefficient is None else affine.coefficient[lowering.in_edges.edge.numpy()]
        rows.append([*(_array(part, nothing) for part in tables), *(_array(p, none) for p in (factors, loop))])
    calls = rows + [[nothing] * 5 + [none] * 2] * (_MOST_CALLS - len(rows))
    return [*(tuple(call[kind] for call in calls) for kind in range(7)), scalar]


def _shared_messages(lowering: Lowering, work: int) -> list[Array]:
    """What edges `[E, out]` and own terms `[N, out]` bring in the first call, times the slope behind it; empty: not worth it.

    All targets that see an edge share it, and behind the first call nothing is left to go back to.
    """
    step, edges = lowering.program.messages[0], len(lowering.in_edges.edge)
    is_large = edges * lowering.known[step.output].size(1) > _MOST_SHARED
    if work < _SHARED * edges or not step.is_prepared or is_large:
        nothing = np.empty((0, 0), lowering.known[lowering.program.output].numpy().dtype)
        return [nothing, nothing]
    return lowering.remembered(_first_messages, lambda: _first_messages(lowering))


def _first_messages(lowering: Lowering) -> list[Array]:
    """What `_shared_messages` finds."""
    program, graph = lowering.program, lowering.in_edges
    step, nothing = program.messages[0], np.empty((0, 0), lowering.known[program.output].numpy().dtype)
    layer, slope = step.layer, lowering.slopes.get((0, 0))
    assert isinstance(layer, AffineLayer)
    table: Prepared = lowering.prepared[step.output]
    sent = table.sent if table.projected else layer.difference(table.sent)
    rows, own = layer.weighted(graph.edge, sent.index_select(0, graph.sender)), table.own
    if slope is not None:
        rows = rows * slope.derivative.repeat_interleave(graph.start.diff(), dim=0)
        own = None if own is None else own * slope.derivative
    return [_array(part, nothing) for part in (rows, own)]


def _tensors(found: Any) -> Found:
    begin, place, score = map(torch.from_numpy, found)
    return begin, place, score


def _source(source: Any) -> int:
    assert isinstance(source, Ref)
    return source.value


def _array(part: Any, empty: Array) -> Array:
    """A contiguous array of the same kind for every call, its rows filled up to whole vectors; `empty` for None."""
    if part is None:
        return empty
    array = part.numpy() if isinstance(part, Tensor) else part
    return np.ascontiguousarray(filled_columns(array) if array.ndim > 1 else array, empty.dtype)
