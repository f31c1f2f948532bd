"""The lowered program on levels: outputs under any weights, and at ω = 1 the gradients of all targets in one reverse pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.lowering.levels import Levels
from edgewise.lowering.program import MessageStep, Program, Ref, Rows, RowStep, Source
from edgewise.shapes import LayerWeight, SelfWeight


class LoweredEngine:
    """All targets in one pass of the program; the model itself is not called."""

    way = "lowered"
    local = True

    def __init__(
        self, program: Program, levels: Levels, prepared: dict[int, Any], known: dict[int, Tensor] | None
    ) -> None:
        self.program, self.levels = program, levels
        self._prepared, self._known = prepared, known
        self.num_targets = levels.num_targets
        self.edge_id, self.owner = levels.edge_id, levels.owner[levels.head]
        self.self_node, self.self_owner = levels.node, levels.owner
        hops = torch.zeros(len(levels.node), dtype=torch.long, device=levels.node.device)
        for end in [] if levels.whole else levels.pair_end:
            hops[end:] += 1
        self.edge_hops = hops[levels.head]

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """The rows of the targets, under weights."""
        values = run(self.program, self.levels, self._prepared, weight, own)
        return values[self.program.output][: self.num_targets]

    def gradients(self, of_rows: Callable[[Tensor], Tensor]) -> tuple[LayerWeight, SelfWeight] | None:
        """∂/∂ω and ∂/∂s at 1 of `of_rows(output).sum()`; None if there are no activations to start from."""
        if self._known is None:
            return None
        return _Reverse(self.program, self.levels, self._prepared, self._known).run(of_rows)


class LoweredGraphs(LoweredEngine):
    """A batch of graphs: numbers of edges and nodes are those of each graph."""

    def __init__(self, program: Program, levels: Levels, column: Tensor, node: Tensor) -> None:
        super().__init__(program, levels, prepare(program), None)
        self.union_column = levels.edge_id
        self.edge_id, self.self_node = column[levels.edge_id], node


def prepare(program: Program) -> dict[int, Any]:
    """What each call can compute once, because it reads constants only."""
    steps = [step for step in program.steps if isinstance(step, MessageStep) and isinstance(step.source, Rows)]
    return {step.call: step.layer.prepare(step.source.tensor) for step in steps}  # type: ignore[union-attr]


def _unbind(weight: Tensor) -> list[Tensor]:
    """Rows; a single row that stands for all of them is not copied for each."""
    return [weight[0]] * len(weight) if weight.stride(0) == 0 and len(weight) > 1 else list(weight.unbind(0))


def run(
    program: Program, levels: Levels, prepared: dict[int, Any], weight: LayerWeight, own: SelfWeight | None
) -> dict[int, Tensor]:
    """Every value of the program."""
    weights, owns = _unbind(weight), None if own is None else _unbind(own)
    values: dict[int, Tensor] = {}
    for step in program.steps:
        if isinstance(step, MessageStep):
            from_nodes = isinstance(step.source, Rows)
            table = prepared[step.call] if from_nodes else values[step.source.value]  # type: ignore[union-attr]
            hop = levels.hop(step.call, from_nodes=from_nodes)
            mine = None if owns is None else owns[step.call][: hop.num_heads]
            values[step.output] = step.layer.forward(table, hop, weights[step.call][: len(hop.tail)], mine)
        else:
            values[step.output] = step.run([_rows(source, step, levels, values, owns) for source in step.sources])
    return values


def _rows(
    source: Source, step: RowStep, levels: Levels, values: dict[int, Tensor], owns: list[Tensor] | None
) -> Tensor:
    if isinstance(source, Ref):
        rows = values[source.value]
        rows = rows if levels.whole else rows[: levels.pairs_after(step.calls_done)]
    else:
        rows = levels.gather(source.tensor, step.calls_done)
    if source.own_call is not None and owns is not None:
        rows = rows * owns[source.own_call][: len(rows)].view(-1, *[1] * (rows.dim() - 1))
    return rows


class _Reverse:
    """Reverse message passing: activations are those of the whole graph, only gradients belong to targets."""

    def __init__(self, program: Program, levels: Levels, prepared: dict[int, Any], known: dict[int, Tensor]) -> None:
        self.program, self.levels, self.prepared, self.known = program, levels, prepared, known
        example = known[program.output]
        self.of_edges = example.new_zeros(program.num_calls, len(levels.edge_id))
        self.of_own = example.new_zeros(program.num_calls, len(levels.node))
        self.gradient: dict[int, Tensor] = {}

    def run(self, of_rows: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        levels, program = self.levels, self.program
        targets = levels.node[: levels.num_targets]
        with torch.enable_grad():
            rows = self.known[program.output].index_select(0, targets).requires_grad_()
            (first,) = torch.autograd.grad(of_rows(rows).sum(), rows)
        self._add(program.output, first)
        segments = program.segments()
        messages = [step for step in program.steps if isinstance(step, MessageStep)]
        for step, segment in zip(reversed(messages), reversed(segments), strict=True):
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
        leaves = [*inputs.values(), *owns.values()]
        outputs = [values[value][: len(self.gradient[value])] for value in wanted]
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
            inputs.setdefault(plain, rows.index_select(0, node).requires_grad_())
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
        onto = None if from_nodes else self.levels.hop(step.call, from_nodes=False)
        edges, own, of_table = step.layer.backward(table, near, gradient, onto)
        self.of_edges[step.call, : len(edges)] = edges
        self.of_own[step.call, : len(own)] += own
        if of_table is not None:
            self._add(step.source.value, of_table)  # type: ignore[union-attr]
