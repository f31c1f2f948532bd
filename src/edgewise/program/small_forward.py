"""The output of one small neighbourhood under several sets of weights at once, in float64 and numpy.

Differences along a direction need the program at a few points that lie close together; they share the neighbourhood, so values
are `[points, pairs, width]`. Only for the chains of `small_reverse.py`; `execution.run` does the same for everything else, and
a test compares the two.
"""

from typing import Any

import numpy as np
import torch

from edgewise.program.domains import run_rows
from edgewise.program.ir import MessageStep, Program, RowStep, in_double
from edgewise.program.kernels import Array
from edgewise.program.layers.affine import Prepared
from edgewise.program.levels import Levels
from edgewise.program.reverse import Slope


def small_outputs(
    program: Program,
    levels: Levels,
    prepared: dict[int, Any],
    slopes: dict[tuple[int, int], Slope],
    weight: Array,
    own: Array,
) -> Array:
    """The rows of the targets, `[points, targets, columns]`, under ω `[points, L, M]` and s `[points, L, S]`."""
    values: Array = np.empty(0)
    for step, segment in zip(program.messages, program.segments, strict=True):
        values = _received(step, levels, prepared.get(step.output), values, weight[:, step.call], own[:, step.call])
        values = _bent(segment, slopes[step.call, 0], values) if segment else values
    return values[:, : levels.num_targets]


def _received(
    step: MessageStep, levels: Levels, table: Prepared | None, values: Array, weight: Array, own: Array
) -> Array:
    """What a call makes of the values before it, `[points, heads, out]`; `table` is what the first call prepared."""
    affine: Any = step.layer.as_arrays  # type: ignore[attr-defined]  # `is_affine_chain` has seen that it is affine
    heads, edges = levels.pairs_after(step.call + 1), levels.edges_of(step.call)
    node, mine = levels.node[:heads].numpy(), own[:, :heads, None]
    if affine.coefficient is not None:
        weight = weight[:, :edges] * affine.coefficient[levels.edge_id[:edges].numpy()]
    places = (levels.tail if table is None else levels.sender)[:edges].numpy()
    rows = values.take(places, 1) if table is None else table.sent.numpy().take(places, 0)
    received = _sums(rows * weight[:, :edges, None], levels.start[: heads + 1].numpy())
    if table is not None:
        received = received if table.projected else _through(affine.matrix, received)
        rest = 0.0 if table.own is None else table.own.numpy().take(node, 0) * mine
    else:
        scaled, rest = values[:, :heads] * mine, 0.0
        if affine.loop is not None:
            received += scaled * affine.loop[node][:, None]
        if isinstance(affine.root, float):
            received += scaled * affine.root
        elif affine.root is not None:
            rest = _through(affine.root, scaled)
        received = _through(affine.matrix, received)
    return received + rest if affine.bias is None else received + rest + affine.bias


def _through(matrix: Array | None, rows: Array) -> Array:
    """Rows through a matrix `[out, in]` in float64; None: as they are."""
    return rows if matrix is None else rows @ matrix.astype(np.float64).T


def _sums(rows: Array, start: Array) -> Array:
    """Sums of consecutive rows of `[points, edges, width]`, `[points, heads, width]`: those of head h begin at `start[h]`.

    >>> _sums(np.array([[[1.0], [2.0], [3.0]]]), np.array([0, 2, 2, 3]))[0].tolist()          # the second head has no edges
    [[3.0], [0.0], [3.0]]
    """
    found = np.zeros((len(rows), len(start) - 1, rows.shape[2]))
    some = np.flatnonzero(start[1:] > start[:-1])  # between their beginnings there are no rows of others
    if len(some):
        found[:, some] = np.add.reduceat(rows, start[some], axis=1)
    return found


def _bent(segment: list[RowStep], slope: Slope, values: Array) -> Array:
    """The element-wise function behind a call."""
    if slope.below is not None:
        return np.where(values > 0, values, slope.below * values)
    rows = torch.from_numpy(values.reshape(-1, values.shape[2]))
    return run_rows(in_double(tuple(segment)), slope.source, rows).numpy().reshape(values.shape)
