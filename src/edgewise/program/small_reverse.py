"""The reverse pass of `reverse.py` for one small neighbourhood, in numpy: its calls cost a fifth of torch's.

Only for chains of affine layers with element-wise functions between them, on the CPU: what most people train. A test compares
it with `ReversePass`, which does the same for everything else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.program.ir import MessageStep, Program, Ref
from edgewise.program.kernels import Array
from edgewise.program.layers.affine import AffineLayer, Prepared
from edgewise.program.levels import Levels
from edgewise.program.reverse import Slope

_FEW = 16_000
"""Numbers of all pairs below which calls cost more than arithmetic; from there on compiled loops are worth loading."""
_DENSE = 4096
"""Pairs of a sender and a receiver below which a matrix of all of them costs less than a sum over the edges."""


def is_affine_chain(program: Program, known: dict[int, Tensor], slopes: dict[tuple[int, int], Slope]) -> bool:
    """Whether a program is a chain of affine layers with element-wise functions between them, and on the CPU."""
    output = known[program.output]
    if not program.is_chain or program.kinds is not None or output.is_cuda:
        return False
    if output.dtype not in (torch.float32, torch.float64):
        return False
    if any(type(step.layer) is not AffineLayer or step.receiver is not None for step in program.messages):
        return False
    return sum(map(bool, program.segments)) == len(slopes) and program.output in last_values(program, slopes)


def is_rectified_chain(program: Program, known: dict[int, Tensor], slopes: dict[tuple[int, int], Slope]) -> bool:
    """The same with ReLUs (or nothing) between the layers, of which the first alone reads the features."""
    prepared = [step.is_prepared for step in program.messages]
    if not is_affine_chain(program, known, slopes) or prepared != [True] + [False] * (program.num_calls - 1):
        return False
    return all(slope.below is not None for slope in slopes.values())


def is_small(program: Program, levels: Levels, known: dict[int, Tensor], slopes: dict[tuple[int, int], Slope]) -> bool:
    """Whether the pass below can do it, and is worth it."""
    if levels.whole or not is_affine_chain(program, known, slopes):
        return False
    widest = max(value.size(1) if value.dim() == 2 else _FEW for value in known.values())
    return levels.node.numel() * widest < _FEW and levels.edge_id.numel() * widest < 16 * _FEW


def last_values(program: Program, slopes: dict[tuple[int, int], Slope]) -> tuple[int, ...]:
    """The values that the last call and the function behind it make, if every value is read once, by the next call."""
    made = -1
    for call, step in enumerate(program.messages):
        if isinstance(step.source, Ref) and (step.source.value != made or step.source.own_call is not None):
            return ()
        slope = slopes.get((call, 0))
        if slope is not None and slope.source != step.output:
            return ()
        made = step.output if slope is None else slope.output
    return (made,)


def small_gradients(
    program: Program,
    levels: Levels,
    prepared: dict[int, Any],
    known: dict[int, Tensor],
    slopes: dict[tuple[int, int], Slope],
    of_rows: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """∂/∂ω `[L, M]` and ∂/∂s `[L, S]` at 1, as `ReversePass.run` gives them."""
    rows = known[program.output].index_select(0, levels.node[: levels.num_targets])
    gradient = of_rows(rows).numpy()
    node, edge_id, sender, tail, head = (
        part.numpy() for part in (levels.node, levels.edge_id, levels.sender, levels.tail, levels.head)
    )
    of_edges = np.zeros((program.num_calls, len(edge_id)), gradient.dtype)
    of_own = np.zeros((program.num_calls, len(node)), gradient.dtype)
    for step in reversed(program.messages):
        slope = slopes.get((step.call, 0))
        heads, edges = levels.pairs_after(step.call + 1), levels.edges_of(step.call)
        nodes, senders, receivers = node[:heads], sender[:edges], head[:edges]
        if slope is not None:
            gradient = gradient * slope.derivative.numpy().take(nodes, 0)
        table: Any = prepared[step.output] if step.is_prepared else _sent(step, known)
        affine: Any = step.layer.as_arrays  # type: ignore[attr-defined]  # `is_small` has seen that it is affine
        onward, own = _onward(affine, gradient, table, nodes)
        sent = table.sent if isinstance(table, Prepared) else table
        spread = onward.take(receivers, 0)  # of rows, numpy's `take` costs a quarter of brackets
        products = np.einsum("ij,ij->i", spread, sent.numpy().take(senders, 0))
        weights = None if affine.coefficient is None else affine.coefficient[edge_id[:edges]]
        of_edges[step.call, :edges] = products if weights is None else products * weights
        if own is not None:
            mine: Any = table.own if isinstance(table, Prepared) else table
            of_own[step.call, :heads] = np.einsum("ij,ij->i", own, mine.numpy().take(nodes, 0))
        if not step.is_prepared:
            size = levels.pairs_after(step.call)
            if size * heads < _DENSE:
                gradient = _received_densely(onward, weights, receivers, tail[:edges], size)
            else:
                gradient = _received(spread, weights, tail[:edges], size)
            if own is not None:
                gradient[:heads] += own
    return torch.from_numpy(of_edges), torch.from_numpy(of_own)


def _sent(step: MessageStep, known: dict[int, Tensor]) -> Tensor:
    assert isinstance(step.source, Ref)
    return known[step.source.value]


def _received_densely(onward: Array, weights: Array | None, heads: Array, tails: Array, size: int) -> Array:
    """Σ weight · row of the receiver over the edges of each sender, `[size, width]`, as one product of matrices."""
    width = len(onward)
    matrix = np.bincount(tails * width + heads, weights, minlength=size * width).reshape(size, width)
    found: Array = matrix.astype(onward.dtype) @ onward
    return found


def _received(rows: Array, weights: Array | None, place: Array, size: int) -> Array:
    """Σ weight · row over the edges of each sender, `[size, width]`; added in float64."""
    width = rows.shape[1]
    rows = rows if weights is None else rows * weights[:, None]
    places = (place[:, None] * width + np.arange(width)).ravel()
    return np.bincount(places, rows.ravel(), minlength=size * width).reshape(size, width).astype(rows.dtype)


def _onward(affine: Any, gradient: Array, table: Any, nodes: Array) -> tuple[Array, Array | None]:
    """The gradient of what edges bring, and of the heads' own rows: `[heads, in]` each, None without an own term.

    Own terms of a prepared table are known already, so their gradient is that of the output.
    """
    constant = table if isinstance(table, Prepared) else None
    projected = constant is not None and constant.projected
    onward = gradient if projected or affine.matrix is None else gradient @ affine.matrix
    if constant is not None:
        return onward, None if constant.own is None else gradient
    own = None if affine.loop is None else onward * affine.loop[nodes][:, None]
    if affine.root is not None:
        through = onward * affine.root if isinstance(affine.root, float) else gradient @ affine.root
        own = through if own is None else own + through
    return onward, own
