"""Gradients of all targets in one reverse pass over the program, at ω = 1."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep, Source
from edgewise.program.levels import Levels
from edgewise.program.operations import is_element_wise


@dataclass(frozen=True, eq=False)
class Slope:
    """The derivative of an element-wise segment, a number for each node and column."""

    source: int
    output: int
    derivative: Tensor


def find_slopes(program: Program, known: dict[int, Tensor]) -> dict[int, Slope]:
    """For the segments that are one element-wise function of one value (an activation, say): their derivatives."""
    found = {}
    for number, segment in enumerate(program.segments()):
        sources = [source for step in segment for source in step.sources]
        made = {step.output for step in segment}
        outside = {source.value for source in sources if isinstance(source, Ref) and source.value not in made}
        plain = all(isinstance(s, Ref) and s.own_call is None for s in sources)
        if len(outside) == 1 and plain and all(is_element_wise(step.function) for step in segment):
            (value,) = outside
            with torch.enable_grad():
                rows = known[value].detach().requires_grad_()
                values = {value: rows}
                for step in segment:
                    values[step.output] = step.run([values[s.value] for s in step.sources if isinstance(s, Ref)])
                last = values[segment[-1].output]
                if last.shape == rows.shape and last.requires_grad:
                    (slope,) = torch.autograd.grad(last.sum(), rows)
                    found[number] = Slope(value, segment[-1].output, slope)
    return found


class ReversePass:
    """Reverse message passing: activations are those of the whole graph, only gradients belong to targets."""

    def __init__(
        self,
        program: Program,
        levels: Levels,
        prepared: dict[int, Any],
        known: dict[int, Tensor],
        slopes: dict[int, Slope],
    ) -> None:
        self.program, self.levels, self.prepared, self.known, self.slopes = program, levels, prepared, known, slopes
        example = known[program.output]
        self.of_edges = example.new_zeros(program.num_calls, len(levels.edge_id))
        self.of_own = example.new_zeros(program.num_calls, len(levels.node))
        self.gradient: dict[int, Tensor] = {}

    def run(self, of_rows: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """∂/∂ω and ∂/∂s at 1 of `of_rows(output).sum()`."""
        levels, program = self.levels, self.program
        targets = levels.node[: levels.num_targets]
        with torch.enable_grad():
            rows = self.known[program.output].index_select(0, targets).requires_grad_()
            (first,) = torch.autograd.grad(of_rows(rows).sum(), rows)
        self._add(program.output, first)
        segments = program.segments()
        messages = [step for step in program.steps if isinstance(step, MessageStep)]
        for step, segment in zip(reversed(messages), reversed(segments), strict=True):
            slope = self.slopes.get(step.call)
            if slope is not None and not any(s.output in self.gradient for s in segment[:-1]):
                self._down_slope(slope)
            else:
                self._through_rows(segment)
            self._through_messages(step)
        return self.of_edges, self.of_own

    def _add(self, value: int, gradient: Tensor) -> None:
        known = self.gradient.get(value)
        if known is None:
            self.gradient[value] = gradient
            return
        long, short = (known, gradient) if len(known) >= len(gradient) else (gradient, known)
        long = long.clone()
        long[: len(short)] += short
        self.gradient[value] = long

    def _down_slope(self, slope: Slope) -> None:
        gradient = self.gradient.pop(slope.output, None)
        if gradient is not None:
            rows = slope.derivative.index_select(0, self.levels.node[: len(gradient)])
            self._add(slope.source, rows.mul_(gradient))

    def _through_rows(self, segment: list[RowStep]) -> None:
        """Back through the row-wise steps after a call, on the rows that matter."""
        made = {step.output for step in segment}
        wanted = [step.output for step in segment if step.output in self.gradient]
        if not wanted:
            return
        size = max(len(self.gradient[value]) for value in wanted)
        outside = {s for step in segment for s in step.sources if not (isinstance(s, Ref) and s.value in made)}
        inputs, owns = self._leaves(outside, size)
        with torch.enable_grad():
            values: dict[int, Tensor] = {}
            for step in segment:
                values[step.output] = step.run([self._scaled(s, inputs, values, owns) for s in step.sources])
            outputs = [values[value][: len(self.gradient[value])] for value in wanted]
        inputs = {source: rows for source, rows in inputs.items() if rows.requires_grad}
        leaves = [*inputs.values(), *owns.values()]
        found = torch.autograd.grad(outputs, leaves, [self.gradient.pop(v) for v in wanted], allow_unused=True)
        for (source, _), gradient in zip(inputs.items(), found, strict=False):
            if isinstance(source, Ref) and gradient is not None:
                self._add(source.value, gradient)
        for call, gradient in zip(owns, found[len(inputs) :], strict=True):
            if gradient is not None:
                self.of_own[call, :size] += gradient

    def _leaves(self, sources: set[Source], size: int) -> tuple[dict[Source, Tensor], dict[int, Tensor]]:
        node = self.levels.node[:size]
        inputs: dict[Source, Tensor] = {}
        for source in sources:
            plain: Source = Ref(source.value) if isinstance(source, Ref) else source
            rows = self.known[source.value] if isinstance(source, Ref) else source.tensor
            rows = rows.index_select(0, node)
            inputs.setdefault(plain, rows.requires_grad_() if isinstance(source, Ref) else rows)
        owns = {s.own_call: self.of_own.new_ones(size).requires_grad_() for s in sources if s.own_call is not None}
        return inputs, owns

    def _scaled(
        self, source: Source, inputs: dict[Source, Tensor], values: dict[int, Tensor], owns: dict[int, Tensor]
    ) -> Tensor:
        if isinstance(source, Ref) and source.value in values:
            return values[source.value]
        rows = inputs[Ref(source.value) if isinstance(source, Ref) else source]
        if source.own_call is None:
            return rows
        return rows * owns[source.own_call].view(-1, *[1] * (rows.dim() - 1))

    def _through_messages(self, step: MessageStep) -> None:
        gradient = self.gradient.pop(step.output, None)
        if gradient is None:
            return
        from_nodes = isinstance(step.source, Rows)
        table = self.prepared[step.call] if from_nodes else self.known[step.source.value]  # type: ignore[union-attr]
        near = self.levels.hop(step.call, from_nodes=True)
        if len(gradient) < near.num_heads:  # read only after later calls, where fewer pairs count
            gradient = functional.pad(gradient, (0, 0, 0, near.num_heads - len(gradient)))
        onto = None if from_nodes else self.levels.hop(step.call, from_nodes=False)
        edges, own, of_table = step.layer.backward(table, near, gradient, onto)
        self.of_edges[step.call, : len(edges)] = edges
        self.of_own[step.call, : len(own)] += own
        if of_table is not None:
            self._add(step.source.value, of_table)  # type: ignore[union-attr]
