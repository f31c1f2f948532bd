"""Chains of GATv2 layers with element-wise functions between them, as arrays for compiled loops.

`AttentionGradients` is `TargetGradients` for such chains (`kernels/attention_loops.py`); `ReversePass` does the same for
everything else, and a test compares the two.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from edgewise.program.ir import Program, Ref
from edgewise.program.kernels import Array, arrays, kernels_for
from edgewise.program.layers.attention import AttentionLayer, projections
from edgewise.program.lowering import Lowering
from edgewise.program.small_reverse import last_values
from edgewise.program.target_gradients import TargetGradients
from edgewise.pyg_internals import residual_of

MOST_CALLS = 6
"""Deeper models take the other way: there is one compiled loop for all up to that, with its arguments filled up."""
_MANY, _WORK = 16, 50_000
"""Targets, and edges that they see together, from which on it is worth loading the loops."""

_TABLES = ("sent", "received", "attention", "loop", "vector", "by_sender", "by_receiver")


def is_attention_chain(program: Program, lowering: Lowering) -> bool:
    """Whether a program is a chain of GATv2 layers with element-wise functions between them, and on the CPU.

    Without edge features, residuals and explicit loops: those take the other way.
    """
    output = lowering.known[program.output]
    if not program.is_chain or program.kinds is not None or output.is_cuda or program.num_calls > MOST_CALLS:
        return False
    if output.dtype not in (torch.float32, torch.float64):
        return False
    if not all(_is_plain(step.layer) and step.receiver is None for step in program.messages):
        return False
    slopes = lowering.slopes
    return sum(map(bool, program.segments)) == len(slopes) and program.output in last_values(program, slopes)


def _is_plain(layer: Any) -> bool:
    if type(layer) is not AttentionLayer or type(layer.conv) is not GATv2Conv:
        return False
    return layer.edge_part is None and layer.is_loop is None and residual_of(layer.conv) is None


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call at ω = 1, as arrays."""

    sent: Array
    """`[N, H · channels]`."""
    received: Array
    """`[N, H · channels]`: what attention reads of a node as a receiver."""
    attention: Array
    """`[E, H]`, by column."""
    loop: Array
    """`[N, H]`, of added loops; empty: none."""
    vector: Array
    """`[H · channels]`: by which the bent sums of both sides are multiplied."""
    by_sender: Array
    """`[H · channels, in]`."""
    by_receiver: Array
    """`[H · channels, in]`."""
    below: float
    """The slope below zero of attention's own bend."""
    concat: bool
    """Whether attention heads stand side by side; otherwise they are averaged."""


def attention_calls(lowering: Lowering) -> list[AttentionCall]:
    """The calls of a chain, with the attention that every node has at ω = 1; found once."""
    return lowering.remembered(attention_calls, lambda: _attention_calls(lowering))


def _attention_calls(lowering: Lowering) -> list[AttentionCall]:
    dtype, found = lowering.known[lowering.program.output].numpy().dtype, []
    for step in lowering.program.messages:
        layer: Any = step.layer
        conv = layer.conv
        table: Any = lowering.prepared[step.output] if step.is_prepared else lowering.known[_source(step.source)]
        with torch.no_grad():
            sides = layer.as_sides(table)
            of_edges, of_loop = layer.attention_of(sides, lowering.everything.hop(step.call, from_nodes=True))
        by_column = torch.empty_like(of_edges)
        by_column[lowering.in_edges.edge] = of_edges
        by_sender, by_receiver = projections(conv)
        loop = by_column.new_empty(0, by_column.size(1)) if of_loop is None else of_loop
        parts = (sides.sent.flatten(1), sides.receiving.flatten(1), by_column, loop, conv.att.flatten())
        rows = [_array(part, dtype) for part in (*parts, by_sender.weight, by_receiver.weight)]
        tables: dict[str, Any] = dict(zip(_TABLES, rows, strict=True))
        found.append(AttentionCall(**tables, below=float(conv.negative_slope), concat=bool(conv.concat)))
    return found


_ATTENTION = 8
"""How much more an edge costs through attention."""


class AttentionGradients(TargetGradients):
    """Gradients at ω = s = 1 of nodes of a lowered chain of GATv2."""

    def __init__(self, lowering: Lowering, kernels: Any, work: int) -> None:
        self._lowering, self.in_edges, self._loop = lowering, lowering.in_edges, kernels.attention_gradients
        self._parts, self._work = _calls_as_arrays(lowering), _ATTENTION * work

    @staticmethod
    def suits(lowering: Lowering, num_targets: int) -> bool:
        """Whether the loops can do it, for so many targets that it may be worth it."""
        return num_targets >= _MANY and is_attention_chain(lowering.program, lowering)

    @staticmethod
    def of(lowering: Lowering, work: int) -> "AttentionGradients | None":
        """None where the loops are not there or not worth it; `work` is about how many edges are seen."""
        kernels = None if work < _WORK else kernels_for(work, lowering.known[lowering.program.output])
        return None if kernels is None else AttentionGradients(lowering, kernels, work)

    def _arguments(self, of_edges: Tensor, of_nodes: Tensor) -> tuple[Any, ...]:
        graph = self.in_edges
        return (*arrays(graph.start, graph.edge, graph.sender), *self._parts, *arrays(of_edges, of_nodes))


def _calls_as_arrays(lowering: Lowering) -> list[Any]:
    """The arguments of the loop that are of the model, filled up with empty ones."""
    calls = attention_calls(lowering)
    dtype = calls[0].sent.dtype
    nothing, none = np.empty((0, 0), dtype), np.empty(0, dtype)
    missing = MOST_CALLS - len(calls)
    parts = {name: [getattr(call, name) for call in calls] for name in _TABLES}
    filled = [(*found, *[none if name == "vector" else nothing] * missing) for name, found in parts.items()]
    slopes = [lowering.slopes.get((number, 0)) for number in range(len(calls))]
    derivatives = [nothing if slope is None else _array(slope.derivative, dtype) for slope in slopes]
    below = np.array([call.below for call in calls], dtype)
    return [*filled, (*derivatives, *[nothing] * missing), below, np.array([call.concat for call in calls])]


def _source(source: Any) -> int:
    assert isinstance(source, Ref)
    return source.value


def _array(part: Tensor, dtype: Any) -> Array:
    return np.ascontiguousarray(part.detach().numpy(), dtype)
