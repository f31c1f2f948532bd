"""Gradients of all targets in one reverse pass over the program, at ω = 1.

At ω = 1 every copy of a node has the same activations, whatever its target: they are computed once for the whole graph
(`Lowering.settle`) and read by node. Only gradients differ from target to target, so only they are stored by pair
(target, node). Nothing is run forwards for a target.

The path 0 → 1 → 2 with features (1, 10, 100) and two calls that add to each node what it receives; activations (1, 11, 110),
then (1, 12, 121). The number is the output of node 2, so its gradient is 1 there:

    through call 1   ∂/∂ω(e1) = 11 (what node 1 sends)     ∂/∂s(2) = 110     gradients of nodes 2 and 1 before it: 1 and 1
    through call 0   ∂/∂ω(e1) = 10, ∂/∂ω(e0) = 1           ∂/∂s(2) = 100, ∂/∂s(1) = 10
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.bends import rectifier
from edgewise.program.domains import RowNumbers, interpret, run_rows
from edgewise.program.ir import MessageStep, Program, Ref, RowStep, Source
from edgewise.program.layers.base import Tables
from edgewise.program.levels import Levels
from edgewise.program.operations import is_element_wise


@dataclass(frozen=True, eq=False)
class Slope:
    """The derivative of an element-wise segment: value `output` by value `source`, a number for each node and column."""

    source: int
    output: int
    derivative: Tensor
    """`[N, width]`; for a ReLU 1 where the input is positive, otherwise 0."""
    below: float | None = None
    """The slope below zero, if the segment is a ReLU or leaky ReLU."""


def find_slopes(program: Program, known: dict[int, Tensor]) -> dict[tuple[int, int], Slope]:
    """For the segments that are one element-wise function of one value (an activation, say): their derivatives.

    By the depth of the call before the segment, and the kind of its nodes. Element-wise means that the Jacobian of each node is
    diagonal, so one backward pass of the sum over all nodes gives all of it, and a reverse pass only has to multiply.
    """
    found = {}
    parts = [((call, kind), part) for call, by in enumerate(program.segments_by_kind) for kind, part in by.items()]
    for number, segment in parts:
        sources = [source for step in segment for source in step.sources]
        made = {step.output for step in segment}
        outside = {source.value for source in sources if isinstance(source, Ref) and source.value not in made}
        plain = all(isinstance(s, Ref) and s.own_call is None for s in sources)
        if len(outside) == 1 and plain and all(is_element_wise(step.function) for step in segment):
            (value,) = outside  # the one value that the segment reads
            below = rectifier(segment)
            if below is not None:  # by far the most common one: no need of autograd
                found[number] = Slope(value, segment[-1].output, _rectified_slope(known[value], below), below)
                continue
            with torch.enable_grad():
                rows = known[value].detach().requires_grad_()
                last = run_rows(segment, value, rows)
                if last.shape == rows.shape and last.requires_grad:
                    (slope,) = torch.autograd.grad(last.sum(), rows)
                    found[number] = Slope(value, segment[-1].output, slope)
    return found


def _rectified_slope(value: Tensor, below: float) -> Tensor:
    """1 where a number is positive, `below` elsewhere.

    >>> _rectified_slope(torch.tensor([-2.0, 0.0, 3.0]), 0.5)
    tensor([0.5000, 0.5000, 1.0000])
    """
    if below == 0 and not value.is_cuda and value.dtype in (torch.float32, torch.float64):  # a sixth of torch's time
        rows = value.numpy()
        return torch.from_numpy((rows > 0).astype(rows.dtype))
    return torch.full_like(value, below).masked_fill_(value > 0, 1.0)


class ReversePass:
    """Reverse message passing: activations are those of the whole graph, only gradients belong to targets.

    `gradient[v]` is the gradient of value v, `[pairs that are needed there, width]`. Going back through a call, or through the
    segment of row-wise steps behind it, takes the gradients of what it made and adds to those of what it read.

    >>> from edgewise.graph.computation_graph import InEdges
    >>> from edgewise.program.ir import Rows
    >>> from edgewise.program.layers.affine import AffineLayer
    >>> from edgewise.program.expansion import expand
    >>> plus, x = AffineLayer(coefficient=None, root=1.0), torch.tensor([[1.0], [10.0], [100.0]])
    >>> program = Program((MessageStep(plus, Rows(x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> known = {0: torch.tensor([[1.0], [11.0], [110.0]]), 1: torch.tensor([[1.0], [12.0], [121.0]])}
    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> levels = expand(path, torch.tensor([2]), 2, torch.full((3,), -1, dtype=torch.int32))   # pairs: nodes 2, 1
    >>> prepared = {0: plus.prepare(x)}
    >>> of_edges, of_own = ReversePass(program, levels, prepared, known, {}).run(torch.ones_like)
    >>> of_edges                                                                # rows are calls, columns are e1 and e0
    tensor([[10.,  1.],
            [11.,  0.]])
    >>> of_own                                                                  # rows are calls, columns are nodes 2 and 1
    tensor([[100.,  10.],
            [110.,   0.]])
    """

    follows_constants = False
    """Whether constants (the features) have gradients, too."""

    def __init__(
        self,
        program: Program,
        levels: Levels,
        prepared: dict[int, Any],
        known: dict[int, Tensor],
        slopes: dict[tuple[int, int], Slope],
    ) -> None:
        self.program, self.levels, self.prepared, self.known, self.slopes = program, levels, prepared, known, slopes
        example = known[program.output]
        self.of_edges = example.new_zeros(program.num_calls, levels.edge_id.numel())  # [L, M]
        self.of_own = example.new_zeros(program.num_calls, levels.node.numel())  # [L, S]
        self._rows = list(zip(self.of_edges.unbind(0), self.of_own.unbind(0), strict=True))  # by call: [M], [S]
        self.gradient: dict[int, Tensor] = {}

    def run(self, of_rows: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """∂/∂ω `[L, M]` and ∂/∂s `[L, S]` at 1 of the explained numbers; `of_rows` is their gradient by the output's rows.

        It maps rows `[T, columns]` to gradients `[T, columns]`.
        """
        levels, program = self.levels, self.program
        targets = levels.node[: levels.num_targets]  # [T]: the first pairs are the targets themselves
        if levels.kinds is not None:
            targets = levels.kinds.place[targets]
        self._add(program.output, of_rows(self.known[program.output].index_select(0, targets)))
        for call, segments in reversed(list(enumerate(program.segments_by_kind))):
            for kind, segment in segments.items():
                slope = self.slopes.get((call, kind))
                if slope is not None and not any(s.output in self.gradient for s in segment[:-1]):
                    self._down_slope(slope, kind)
                else:
                    self._through_rows(segment, kind)
            for step in program.calls_of(call):
                self._through_messages(step)
        return self.of_edges, self.of_own

    def _add(self, value: int, gradient: Tensor) -> None:
        """Add to the gradient of a value; what is read after later calls has gradients for fewer pairs, from the first on."""
        known = self.gradient.get(value)
        if known is None:
            self.gradient[value] = gradient
            return
        long, short = (known, gradient) if known.size(0) >= gradient.size(0) else (gradient, known)
        long = long.clone()
        long[: short.size(0)] += short
        self.gradient[value] = long

    def _down_slope(self, slope: Slope, kind: int) -> None:
        """Back through an element-wise segment: gradient times derivative, pair by pair."""
        gradient = self.gradient.pop(slope.output, None)
        if gradient is not None:
            rows = slope.derivative.index_select(0, self.levels.nodes_of(kind)[: gradient.size(0)])
            self._add(slope.source, rows.mul_(gradient))

    def _through_rows(self, segment: list[RowStep], kind: int) -> None:
        """Back through the row-wise steps after a call, on the rows that matter.

        The segment is run again on those rows, with autograd on; `inputs` are the rows it reads from outside, `owns` the self
        weights of residuals that it adds.
        """
        made = {step.output for step in segment}
        wanted = [step.output for step in segment if step.output in self.gradient]
        if not wanted:
            return
        size = max(len(self.gradient[value]) for value in wanted)  # pairs, from the first on
        outside = {s for step in segment for s in step.sources if not (isinstance(s, Ref) and s.value in made)}
        inputs = self._leaves(outside, size, kind)
        residuals = {s.own_call for step in segment for s in step.sources if s.own_call is not None}
        owns = {call: self.of_own.new_ones(size).requires_grad_() for call in sorted(residuals)}
        with torch.enable_grad():
            read = {source.value: rows for source, rows in inputs.items() if isinstance(source, Ref)}
            values = interpret(segment, RowNumbers(inputs.__getitem__, owns.__getitem__), read)
            outputs = [values[value][: len(self.gradient[value])] for value in wanted]
        inputs = {source: rows for source, rows in inputs.items() if rows.requires_grad}
        leaves = [*inputs.values(), *owns.values()]  # [size, width] each, then [size] each
        found = torch.autograd.grad(outputs, leaves, [self.gradient.pop(v) for v in wanted], allow_unused=True)
        for (source, _), gradient in zip(inputs.items(), found, strict=False):
            if gradient is not None:
                self._of_source(source, gradient)
        for call, gradient in zip(owns, found[len(inputs) :], strict=True):
            if gradient is not None and self.levels.kinds is None:
                self.of_own[call, :size] += gradient
            elif gradient is not None:
                self.of_own[call].index_add_(0, self.levels.apart(kind).place[:size], gradient)

    def _of_source(self, source: Source, gradient: Tensor) -> None:
        """Take the gradient of what a segment read."""
        if isinstance(source, Ref):
            self._add(source.value, gradient)

    def _leaves(self, sources: set[Source], size: int, kind: int) -> dict[Source, Tensor]:
        """What a segment reads from outside: rows of the first `size` pairs of a kind."""
        node = self.levels.nodes_of(kind)[:size]
        inputs: dict[Source, Tensor] = {}
        for source in sources:
            plain: Source = Ref(source.value) if isinstance(source, Ref) else source
            rows = self.known[source.value] if isinstance(source, Ref) else source.tensor
            rows = rows.index_select(0, node)
            follow = isinstance(source, Ref) or self.follows_constants
            inputs.setdefault(plain, rows.requires_grad_() if follow else rows)
        return inputs

    def _through_messages(self, step: MessageStep) -> None:
        """Back through a call: gradients of its edges and own terms, and of what it read unless that is a constant.

        `near` reads activations by node, `onto` says to which pairs the gradients of the senders belong.
        """
        gradient = self.gradient.pop(step.output, None)
        if gradient is None:
            return
        near = self.levels.hop(step.call, from_nodes=True, part=step.part)
        if gradient.size(0) < near.num_heads:  # read only after later calls, where fewer pairs count
            gradient = functional.pad(gradient, (0, 0, 0, near.num_heads - gradient.size(0)))
        if step.receiver is not None and not step.is_prepared:
            tables = Tables(*(self._table(source) for source in step.sources))
            onto = self.levels.hop(step.call, from_nodes=False, part=step.part)
            found: list[Tensor | None]
            edges, own, *found = step.layer.backward_both(tables, near, gradient, onto)
        else:
            table = self.prepared[step.output] if step.is_prepared else self._table(step.source)
            back = None if step.is_prepared else self.levels.hop(step.call, from_nodes=False, part=step.part)
            edges, own, *found = step.layer.backward(table, near, gradient, back)
        of_edges, of_own = self._rows[step.call]
        if near.place is None:
            of_edges[: edges.numel()] = edges
        else:
            of_edges.index_add_(0, near.place, edges)
        if near.head_place is None:
            of_own[: own.numel()] += own
        else:
            of_own.index_add_(0, near.head_place, own)
        for source, of_table in zip(step.sources, found, strict=False):
            if of_table is not None and isinstance(source, Ref):
                self._add(source.value, of_table)

    def _table(self, source: Source) -> Tensor:
        """What a call reads, a row for each node."""
        return self.known[source.value] if isinstance(source, Ref) else source.tensor
