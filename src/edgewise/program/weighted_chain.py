"""Gradients by edge weights at any ω, not only at 1: forwards and backwards in compiled loops (`kernels/weighted_loops.py`).

For chains of affine layers with ReLUs between them, which is what most people train; autograd through `execution.run` does the
same for everything else, and a test compares the two. Rows are filled up with zeros to a multiple of eight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.program.execution import LoweredEngine
from edgewise.program.kernels import Array, arrays, filled_columns, kernels_for
from edgewise.program.layers.affine import Prepared
from edgewise.program.small_reverse import is_rectified_chain

_WORK = 2_000_000
"""Edges of all copies and passes from which on it is worth loading the loops."""


@dataclass(frozen=True, eq=False)
class _Call:
    """A call: its edges, its arrays, and room for what it makes."""

    edges: list[Array]
    """Starts, tails, nodes of the heads (`Hop`)."""
    share: Array
    """`[edges]`, the coefficients of the edges; empty: 1."""
    sent: Array | None
    """`[N, in]`, of a call that reads features; None: it reads what the call before made."""
    forwards: tuple[Array, Array]
    """The matrix and that of the own term, `[in, out]`; empty: none."""
    backwards: tuple[Array, Array]
    """The same, `[out, in]`."""
    own: tuple[Array, Array]
    """`[N, out]` each, of a call that reads features: own terms with the bias, and without it; empty: none."""
    loop: Array
    scalar: float
    bias: Array
    bend: tuple[Any, bool]
    value: Array
    """`[heads, out]`."""
    back: Array
    """`[rows, in]`, the gradient of what it reads; empty for features."""

    def weighted(self, weights: Array, number: int) -> Array:
        """`[edges]`: ω `[1 or L, M]` of the call with this number, times the coefficients."""
        row = weights[number if len(weights) > 1 else 0]
        return row[: len(self.share)] * self.share if len(self.share) else row


class WeightedChain:
    """A block of targets of a lowered engine, as arrays."""

    def __init__(self, engine: LoweredEngine, kernels: Any) -> None:
        self._kernels = kernels
        self._calls: list[_Call] = []
        for step in engine.program.messages:
            self._calls.append(_call(engine, step, self._calls[-1].value if self._calls else None))
        widest = max(max(call.value.shape[1], call.back.shape[1]) for call in self._calls)
        self._pairs = len(engine.self_node)
        self._columns = engine.known[engine.program.output].size(1)  # type: ignore[index]  # `of` has seen that it is known
        first = self._calls[0].sent
        assert first is not None
        self._spare, self._of_root = np.empty((2, kernels.BLOCK * max(widest, first.shape[1])), first.dtype)

    @staticmethod
    def of(engine: Any, passes: int) -> "WeightedChain | None":
        """None where the loops cannot do it, are not there or not worth it for so many passes."""
        if type(engine) is not LoweredEngine or engine.known is None or engine.levels.whole:
            return None
        if not is_rectified_chain(engine.program, engine.known, engine.slopes):
            return None
        work = len(engine.edge_id) * passes
        kernels = None if work < _WORK else kernels_for(work, engine.known[engine.program.output])
        return None if kernels is None else WeightedChain(engine, kernels)

    def gradients(self, weight: Tensor, of_rows: Callable[[Tensor], Tensor]) -> Tensor:
        """`[1 or L, M]`: gradients by ω `[1 or L, M]`, a single row of which stands for all calls.

        `of_rows` gives those of the numbers by the rows of the output, `[targets, columns]` both.
        """
        return self._backward(weight, of_rows, np.empty((len(self._calls), 0), self._spare.dtype))

    def both_gradients(self, weight: Tensor, of_rows: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """The same, and the gradients by the weights s of own terms at s = 1, `[L, S]`."""
        own = np.zeros((len(self._calls), self._pairs), self._spare.dtype)
        return self._backward(weight, of_rows, own), torch.from_numpy(own)

    def _backward(self, weight: Tensor, of_rows: Callable[[Tensor], Tensor], own: Array) -> Tensor:
        """Gradients by ω; those by s are added to `own`, unless that is empty."""
        weights = weight.detach().contiguous().numpy()
        rows = torch.from_numpy(self._forward(weights))
        columns = self._columns
        gradient = np.zeros(rows.shape, weights.dtype)
        gradient[:, :columns] = of_rows(rows[:, :columns]).numpy()
        found = np.zeros_like(weights)
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            call.back.fill(0)
            self._kernels.weighted_backward(
                *call.edges, call.weighted(weights, number), call.share, self._table(number), *call.backwards, call.own[1],
                call.loop, call.scalar, *call.bend, call.value, gradient, self._spare, self._of_root, call.back,
                found[number if len(weights) > 1 else 0], own[number],
            )  # fmt: skip
            gradient = call.back
        return torch.from_numpy(found)

    def _forward(self, weights: Array) -> Array:
        """What the heads of the last call have, `[heads, columns]`."""
        for number, call in enumerate(self._calls):
            self._kernels.weighted_forward(
                *call.edges, call.weighted(weights, number), self._table(number), *call.forwards, call.own[0], call.loop,
                call.scalar, call.bias, *call.bend, self._spare, call.value,
            )  # fmt: skip
        return self._calls[-1].value

    def _table(self, number: int) -> Array:
        """What a call reads: features, or what the call before it made."""
        sent = self._calls[number].sent
        return self._calls[number - 1].value if sent is None else sent


def _call(engine: LoweredEngine, step: Any, before: Array | None) -> _Call:
    """The arrays of a call; `before` is what the call before it makes."""
    layer: Any = step.layer.as_arrays
    table: Any = engine.prepared[step.output] if step.is_prepared else None
    known: Any = engine.known
    dtype = known[step.output].numpy().dtype
    hop = engine.levels.hop(step.call, from_nodes=table is not None)
    prepared = isinstance(table, Prepared)
    matrix = None if prepared and table.projected else layer.matrix
    root = layer.root if not prepared and not isinstance(layer.root, float) else None
    slope = engine.slopes.get((step.call, 0))
    out = known[step.output].size(1)
    room = out + -out % 8
    bias = np.zeros(out, dtype) if layer.bias is None else layer.bias
    width = before.shape[1] if before is not None else 0
    own = table.own.numpy() if prepared and table.own is not None else None
    return _Call(
        edges=arrays(hop.start, hop.tail, hop.node),
        share=_array(None if layer.coefficient is None else layer.coefficient[hop.edge_id.numpy()], dtype, 1),
        sent=_matrix(table.sent.numpy(), dtype) if prepared else None,
        forwards=(_matrix(matrix, dtype, turned=True), _matrix(root, dtype, turned=True)),
        backwards=(_matrix(matrix, dtype), _matrix(root, dtype)),
        own=(_matrix(None if own is None else own + bias, dtype), _matrix(own, dtype)),
        loop=_array(None if prepared else layer.loop, dtype, 1),
        scalar=float(layer.root) if not prepared and isinstance(layer.root, float) else 0.0,
        bias=_matrix(bias.reshape(1, -1), dtype),
        bend=(dtype.type(0 if slope is None else slope.below), slope is not None),
        value=np.zeros((len(hop.node), room), dtype),
        back=np.zeros((0 if before is None else hop.table_size, width), dtype),
    )


def _array(part: Any, dtype: Any, dimensions: int = 2) -> Array:
    """A contiguous array; an empty one for None."""
    return np.empty((0,) * dimensions, dtype) if part is None else np.ascontiguousarray(part, dtype)


def _matrix(matrix: Any, dtype: Any, *, turned: bool = False) -> Array:
    """A matrix, or its transpose, with whole vectors as rows; an empty one for None."""
    return _array(None if matrix is None else filled_columns(matrix.T if turned else matrix), dtype)
