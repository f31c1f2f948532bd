"""A program on one graph, with its activations: it makes the engines for blocks of targets.

`lower_nodes` and `lower_graphs` try to compile a recorded pass; None means that the model runs as it is. What they return is
not proved yet: `question/` calls `settle` and compares the output with the model's.
"""

import logging

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies
from edgewise.model.trace import Trace
from edgewise.program.compile import compile_program
from edgewise.program.execution import LoweredEngine, LoweredGraphs, prepare, run
from edgewise.program.ir import Program
from edgewise.program.layers.base import Unsupported
from edgewise.program.levels import expand, whole_levels
from edgewise.program.reverse import Slope, find_slopes

log = logging.getLogger("edgewise")
_EDGE_BYTES = 160  # structure, weights, their gradients and moments


class Lowering:
    """A program for one graph, with the activations of all nodes.

    `known` has every value at ω = 1, `[N, width]` each, and `slopes` the derivatives of activation functions there; both are
    empty until `settle`. `prepared` has what each call computes once. `everything` are levels with all nodes at every call.
    """

    def __init__(self, program: Program, data: Data, in_edges: InEdges, dtype: torch.dtype) -> None:
        self.program, self.in_edges, self.data, self.dtype = program, in_edges, data, dtype
        self.prepared = prepare(program)
        self._table = torch.empty(0, dtype=torch.int32, device=data.edge_index.device)
        no_owner = torch.zeros(data.num_nodes, dtype=torch.long, device=data.edge_index.device)
        self.everything = whole_levels(data, in_edges, program.num_calls, no_owner, data.num_nodes)
        self.known: dict[int, Tensor] = {}
        self.slopes: dict[int, Slope] = {}
        self.last_block_bytes = 0
        self.uses_model = any(layer.uses_model for layer in program.layers)

    @property
    def _pair_bytes(self) -> int:
        """About how many bytes a pass keeps for a pair: every value, its gradient and a copy."""
        return 3 * sum(value[:1].numel() * value.element_size() for value in self.known.values())

    def settle(self) -> Tensor:
        """Run everything once at ω = 1 and keep it; returns the output of all nodes, `[N, columns]`."""
        output = self.run_all(
            torch.ones(
                self.program.num_calls,
                len(self.in_edges.edge),
                dtype=self.dtype,
                device=self.data.edge_index.device,
            )
        )
        self.known, self.slopes = output, find_slopes(self.program, output)
        return output[self.program.output]

    def run_all(self, weight: Tensor, own: Tensor | None = None) -> dict[int, Tensor]:
        """Every value for every node, `[N, width]` each, under ω `[L, E]` and s `[L, N]` that all targets share."""
        with torch.no_grad():
            return run(self.program, self.everything, self.prepared, weight[:, self.in_edges.edge], own)

    def engine(self, targets: Tensor) -> LoweredEngine:
        """An engine for these nodes, `[T]`, all in one pass."""
        needed = len(targets) * self.in_edges.num_nodes
        if len(self._table) < needed:
            self._table = torch.full((needed,), -1, dtype=torch.int32, device=targets.device)
        # after an interrupt a half-written table must not be used again
        table, self._table = self._table, self._table[:0]
        levels = expand(self.in_edges, targets, self.program.num_calls, table)
        self._table = table
        self.last_block_bytes = len(levels.node) * self._pair_bytes + len(levels.edge_id) * _EDGE_BYTES
        return LoweredEngine(self.program, levels, self.prepared, self.known, self.slopes)


def _compiled(trace: Trace, data: Data, *, whole: bool) -> Program | None:
    """The program, or None and a line in the debug log.

    Whatever goes wrong in reading a stranger's model, the model itself still runs: so other exceptions count, too.
    """
    try:
        return compile_program(trace, data, whole=whole)
    except (Unsupported, RuntimeError, TypeError, AttributeError, IndexError, KeyError) as reason:
        log.debug("not lowered: %s", reason)
        return None


def lower_nodes(trace: Trace, data: Data, in_edges: InEdges) -> Lowering | None:
    """A lowering for node tasks, not yet proved; None (and a line in the debug log) if a part of the model is not known."""
    if trace.flow is None or not trace.is_chain:
        return None
    program = _compiled(trace, data, whole=False)
    if program is None:
        return None
    return Lowering(program, data, in_edges, trace.output.dtype)


def lower_graphs(trace: Trace, copies: Copies) -> LoweredGraphs | None:
    """An engine for a batch of graphs, not yet proved; None (and a line in the debug log) if it cannot be lowered."""
    program = _compiled(trace, copies.data, whole=True) if trace.is_chain else None
    if program is None:
        return None
    data = copies.data
    in_edges = InEdges.of(data.edge_index, data.num_nodes, trace.flow or "source_to_target")
    levels = whole_levels(data, in_edges, program.num_calls, copies.self_owner, copies.num_targets)
    return LoweredGraphs(program, levels, copies.edge_id, copies.self_node)
