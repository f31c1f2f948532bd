"""A program on one graph, with its activations: it makes the engines for blocks of targets.

`lower_nodes` and `lower_graphs` try to compile a recorded pass; None means that the model runs as it is. What they return is
not proved yet: `question/` calls `settle` and compares the output with the model's.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies
from edgewise.model.trace import Trace
from edgewise.program.compile import compile_program
from edgewise.program.execution import LoweredEngine, LoweredGraphs, prepare, run
from edgewise.program.expansion import expand
from edgewise.program.ir import Program, in_double
from edgewise.program.layers.base import Linear, Unsupported
from edgewise.program.levels import Levels, whole_levels
from edgewise.program.reverse import Slope, find_slopes

log = logging.getLogger("edgewise")
_FEW = 64
"""Targets on a GPU that the CPU follows through the graph: launches would cost more than the work."""
_EDGE_BYTES = 160  # structure, weights, their gradients and moments
Found = TypeVar("Found")


class Lowering:
    """A program for one graph, with the activations of all nodes.

    `known` has every value at ω = 1, `[N, width]` each, and `slopes` the derivatives of activation functions there; both are
    empty until `settle`. `prepared` has what each call computes once. `everything` are levels with all nodes at every call.
    """

    def __init__(
        self,
        program: Program,
        data: Data,
        in_edges: InEdges,
        dtype: torch.dtype,
        linear: Linear = functional.linear,
    ) -> None:
        self.program, self.in_edges, self.data, self.dtype = program, in_edges, data, dtype
        self.prepared = prepare(program, linear)
        self._tables: list[Tensor] = []  # clean ones, of which every thread takes one for a while
        no_owner = torch.zeros(data.num_nodes, dtype=torch.long, device=data.edge_index.device)
        self.everything = whole_levels(data, in_edges, program.num_calls, no_owner, data.num_nodes)
        self.everything.kinds = program.kinds
        self.known: dict[int, Tensor] = {}
        self.slopes: dict[tuple[int, int], Slope] = {}
        self.kept: dict[Any, Any] = {}
        """What methods worked out from `known`, for the next one that is asked."""
        self._around: Any = None
        """The levels of all targets together, if only what they depend on was run."""
        self._pair_bytes = 0
        self._taken: dict[int, int] = {}  # by thread: what its last block takes
        self.uses_model = any(layer.uses_model for layer in program.layers)

    def remembered(self, key: Any, find: Callable[[], Found]) -> Found:
        """What `find` works out from `known`; once, for all methods that are asked."""
        if key not in self.kept:
            self.kept[key] = find()
        found: Found = self.kept[key]
        return found

    @property
    def last_block_bytes(self) -> int:
        """About what the last block of this thread took, or the blocks that others worked on for it."""
        return self._taken.get(get_ident(), 0)

    @last_block_bytes.setter
    def last_block_bytes(self, number: int) -> None:
        self._taken[get_ident()] = number

    @property
    def copy_bytes(self) -> int:
        """About how many bytes a pass takes for an edge copy, with a pair of its own, at most."""
        return self._pair_bytes + _EDGE_BYTES + sum(self._edge_bytes)

    @property
    def node_bytes(self) -> int:
        """About how many bytes the values of all nodes take."""
        return self._pair_bytes * self.in_edges.num_nodes

    @cached_property
    def _edge_bytes(self) -> list[int]:
        """Per call: what its layer keeps for each edge in a pass with gradients."""
        size = self.dtype.itemsize
        return [size * layer.numbers_on_edges for layer in self.program.layers]

    def settle(self, targets: Tensor | None = None) -> Tensor:
        """Run everything once at ω = 1 and keep it; returns the output of all nodes, or of `targets`, `[…, columns]`.

        With `targets` `[T]`, each once, only what they depend on is run: rows of other nodes are 0 and never read.
        """
        ones = torch.ones(1, dtype=self.dtype, device=self.data.edge_index.device)
        self.kept.clear()
        if targets is None:
            self.known = self.run_all(ones.expand(self.program.num_calls, len(self.in_edges.edge)))
        else:
            self._around = self._expanded(targets, together=True)
            values = self._run_around(ones.expand(self.program.num_calls, len(self._around.edge_id)), None)
            kind_of = {step.output: step.kind for step in self.program.steps}
            self.known = {number: self._spread(value, kind_of[number]) for number, value in values.items()}
        self.slopes = find_slopes(self.program, self.known)
        # about how many bytes a pass keeps for a pair: every value, its gradient and a copy
        self._pair_bytes = 3 * sum(value[:1].numel() * value.element_size() for value in self.known.values())
        return self.output if targets is None else self.output.index_select(0, targets)

    @property
    def output(self) -> Tensor:
        """`[N, columns]`: the output of all nodes at ω = 1; zeros for nodes of kinds that have none."""
        found = self.known[self.program.output]
        return self._of_nodes(found)

    def _of_nodes(self, rows: Tensor) -> Tensor:
        """Rows of the output as rows of all nodes."""
        kinds = self.program.kinds
        if kinds is None:
            return rows
        place = kinds.nodes[self.program.rows_of(self.program.output)]
        return rows.new_zeros(self.data.num_nodes, rows.size(1)).index_copy_(0, place, rows)

    def output_at(self, targets: Tensor | None, weight: Tensor, own: Tensor) -> Tensor:
        """The output of the nodes that `settle` was given, under ω `[L, E]` and s `[L, N]` that all of them share."""
        if targets is None:
            return self._of_nodes(self.run_all(weight, own)[self.program.output])
        around = self._around
        values = self._run_around(weight.index_select(1, around.edge_id), own.index_select(1, around.node))
        return values[self.program.output][: len(targets)]

    def _run_around(self, weight: Tensor, own: Tensor | None) -> dict[int, Tensor]:
        with torch.no_grad():
            return run(self.program, self._around, self.prepared, weight, own)

    def _spread(self, value: Tensor, kind: int) -> Tensor:
        """Rows of the first pairs (of a kind) as rows of their nodes, `[N, …]`."""
        kinds = self.program.kinds
        whole = value.new_zeros(self.data.num_nodes if kinds is None else kinds.size(kind), *value.shape[1:])
        whole[self._around.nodes_of(kind)[: len(value)]] = value
        return whole

    def known_everywhere(self) -> dict[int, Tensor]:
        """Every value of every node at ω = 1, also where only some were needed so far."""
        if self._around is not None:
            self.settle()
            self._around = None
        return self.known

    def run_all(self, weight: Tensor, own: Tensor | None = None) -> dict[int, Tensor]:
        """Every value for every node, `[N, width]` each, under ω `[L, E]` and s `[L, N]` that all targets share."""
        weight = weight if weight.stride(1) == 0 else weight[:, self.in_edges.edge]
        with torch.no_grad():
            return run(self.program, self.everything, self.prepared, weight, own)

    def _expanded(self, targets: Tensor, *, together: bool = False) -> Levels:
        """The levels of some targets, with a table that is used again; those of few targets are found on the CPU."""
        device = targets.device
        in_edges = self.in_edges.on_cpu if targets.is_cuda and targets.numel() <= _FEW else self.in_edges
        targets = targets.to(in_edges.start.device)
        needed = (1 if together else targets.numel()) * self.in_edges.num_nodes
        try:
            table = self._tables.pop()
        except IndexError:
            table = torch.empty(0, dtype=torch.int32)
        if table.numel() < needed or table.device != targets.device:
            table = torch.full((needed,), -1, dtype=torch.int32, device=targets.device)
        levels = expand(in_edges, targets, self.program.num_calls, table, together=together)
        self._tables.append(table)  # not after an interrupt: a half-written table must not be used again
        levels = levels if device == targets.device else levels.to(device)
        levels.kinds = self.program.kinds
        return levels

    def engine(self, targets: Tensor) -> LoweredEngine:
        """An engine for these nodes, `[T]`, all in one pass."""
        around = self._around
        single = (
            around is not None and targets.numel() == around.num_targets == 1 and bool(around.node[0] == targets[0])
        )
        levels = around if single else self._expanded(targets)
        on_edges = sum(
            levels.edges_of(step.call) * n for step, n in zip(self.program.messages, self._edge_bytes, strict=True)
        )
        self.last_block_bytes = levels.node.numel() * self._pair_bytes + levels.edge_id.numel() * _EDGE_BYTES + on_edges
        return LoweredEngine(self.program, levels, self.prepared, self.known, self.slopes)

    def bytes_of_targets(self, levels: Levels) -> Tensor:
        """`[T]`: about what a pass takes for each target of some levels, of one kind of nodes."""
        edges = levels.start.diff()
        each = self._pair_bytes + edges * float(_EDGE_BYTES)
        for step, number in zip(self.program.messages, self._edge_bytes, strict=True):
            within = levels.pairs_after(step.call + 1)
            each[:within] += edges[:within] * float(number)
        return torch.bincount(levels.owner, weights=each, minlength=levels.num_targets)

    def double_engine(self, targets: Tensor) -> LoweredEngine:
        """The same in float64, to take differences: features are as float32 has them, every operation on them is exact."""
        engine = self.engine(targets)
        program = in_double(self.program)
        prepared = {value: in_double(table) for value, table in self.prepared.items()}
        return LoweredEngine(program, engine.levels, prepared)


def _compiled(
    trace: Trace, data: Data, reasons: list[str], *, whole: bool = False, readout: bool = False
) -> Program | None:
    """The program, or None, a line in the debug log and the reason in the list.

    Whatever goes wrong in reading a stranger's model, the model itself still runs: so other exceptions count, too.
    """
    try:
        return compile_program(trace, data, whole=whole, readout=readout)
    except (Unsupported, RuntimeError, TypeError, AttributeError, IndexError, KeyError) as reason:
        log.debug("not lowered: %s", reason)
        reasons.append(str(reason))
        return None


def lower_nodes(trace: Trace, data: Data, in_edges: InEdges, reasons: list[str]) -> Lowering | None:
    """A lowering for node tasks, not yet proved; None, and the reason in the list, if a part of the model is not known."""
    if trace.flow is None:
        reasons.append("its layers send messages in both directions")
        return None
    program = _compiled(trace, data, reasons, whole=False)
    if program is None:
        return None
    linear = functional.linear if trace.products is None else trace.products.linear
    return Lowering(program, data, in_edges, trace.output.dtype, linear)


def lower_graphs(trace: Trace, copies: Copies, reasons: list[str]) -> LoweredGraphs | None:
    """An engine for a batch of graphs, not yet proved; None, and the reason in the list, if it cannot be lowered."""
    known = trace.typed is None and (
        trace.is_chain or trace.flow is not None
    )  # graphs of several types run as they are
    if not known:
        return None
    data = copies.data
    program = _compiled(
        trace, data, [], readout=True
    )  # rows of nodes are told apart up to the readout, where that can be
    by_node = program is not None
    program = _compiled(trace, data, reasons, whole=True) if program is None else program
    if program is None:
        return None
    in_edges = InEdges.of(data.edge_index, data.num_nodes, trace.flow or "source_to_target")
    levels = whole_levels(data, in_edges, program.num_calls, copies.self_owner, copies.num_targets)
    graphs = LoweredGraphs(program, levels, copies.edge_id, copies.self_node)
    graphs.by_node = (data, in_edges) if by_node else None
    return graphs
