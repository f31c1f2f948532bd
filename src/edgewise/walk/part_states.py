"""What happens at nodes between calls that stand side by side, differentiated kind by kind (see `node_jacobians.py`).

A state is several values side by side (`state_layout.py`), so a Jacobian leads from the columns of a sum, or of a value that
goes around the calls, to the columns of a value of the next state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.operations import is_element_wise
from edgewise.walk.blocks import RowMap
from edgewise.walk.chain import Link
from edgewise.walk.lrp import JointRunner, Pending, Rule
from edgewise.walk.part_blocks import raised_sum
from edgewise.walk.prefixes import Front
from edgewise.walk.record import Recording
from edgewise.walk.state_layout import Layout, lay_out


@dataclass(frozen=True, eq=False)
class KindMaps:
    """The Jacobians of the next state of one kind of nodes, with the columns that each begins at and ends in."""

    kind: int
    summed: list[tuple[slice, slice, RowMap]]
    """From columns of the sum to columns of the next state."""
    around: list[tuple[slice, slice, RowMap]]
    """From columns of the state before the calls."""


class NodeStates:
    """The states of all nodes, and the maps from one to the next; arguments as for `Network`."""

    def __init__(self, recording: Recording, rule: Rule, attention: str) -> None:
        self.recording, self.program, self.rule, self.attention = recording, recording.program, rule, attention
        self.num_calls, self.num_nodes = self.program.num_calls, recording.data.num_nodes
        self.kind_of = {step.output: step.kind for step in self.program.steps}
        widths = {value: rows.size(1) if rows.dim() > 1 else 1 for value, rows in recording.known.items()}
        self.layout: Layout = lay_out(self.program, widths, recording.moving, share=rule.is_gradient)
        self._segments = self.program.segments_by_kind
        self._raised_sums: dict[int, Tensor] = {}
        self.maps = [[], *(self._maps_to(depth) for depth in range(1, self.num_calls))]
        """Per depth ≥ 1: the Jacobians of the states before it."""
        self.skip = self._find_skip() if self.num_calls > 1 else None
        """`[N, state]`: what residuals carry from the features into the states before depth 1."""

    # --- kinds ----------------------------------------------------------------------------------------------

    def row_of(self, node: Tensor) -> Tensor:
        """The row of each node among those of its kind."""
        return node if self.program.kinds is None else self.program.kinds.place[node]

    def nodes_of(self, kind: int) -> Tensor | None:
        """The nodes of a kind; None: all."""
        return None if self.program.kinds is None else self.program.kinds.nodes[kind]

    def of_kind(self, node: Tensor, kind: int) -> tuple[Tensor, Tensor]:
        """`[n]` each: which of some nodes are of a kind, and their rows in it."""
        kinds = self.program.kinds
        if kinds is None:
            return torch.arange(len(node), device=node.device), node
        at = (kinds.of_node[node] == kind).nonzero().view(-1)
        return at, kinds.place[node[at]]

    def beside(self, call: int) -> list[Any]:
        """What the row-wise steps behind the calls of a depth read."""
        return [source for segment in self._segments[call].values() for step in segment for source in step.sources]

    def is_state(self, source: Any, call: int) -> bool:
        """Whether a step reads a value of the state before a depth."""
        return isinstance(source, Ref) and source.value in self.layout.states[call]

    def moves(self, source: Any) -> bool:
        """Whether a constant depends on the features."""
        return isinstance(source, Rows) and self._along(source) is not None

    def _along(self, source: Rows) -> Tensor | None:
        """How constant rows change along the features; None if they do not."""
        found = self.recording.moving.tangent(source.tensor)
        return source.tensor if found is None and source.own_call == 0 else found

    def table(self, source: Any) -> Tensor:
        """What a call reads, a row for each node of its kind."""
        return source.tensor if isinstance(source, Rows) else self.recording.known[source.value]

    # --- what happens at nodes ----------------------------------------------------------------------------------------

    def _summed(self, step: MessageStep, rows: Tensor, row: Tensor | None = None) -> tuple[Any, Tensor]:
        """A call's sum as a value to run on, and the leaf whose derivative is wanted: q^γ under a rule."""
        if self.rule.is_gradient or (isinstance(step.layer, AffineLayer) and step.layer.matrix is None):
            leaf = rows.detach().clone().requires_grad_()
            return leaf, leaf
        raised = self._raised_sum(step)
        leaf = (raised if row is None else raised.index_select(0, row)).to(rows.dtype).requires_grad_()
        return Pending(rows.detach(), leaf), leaf

    def _raised_sum(self, step: MessageStep) -> Tensor:
        """`[rows, out]`: q^γ of a call for every receiver, with the bias."""
        if step.output not in self._raised_sums:
            hop = self.recording.levels.hop(step.call, from_nodes=True, part=step.part)
            tables = [self.table(source) for source in step.sources]
            self._raised_sums[step.output] = raised_sum(step, tables, hop, self.attention, self.rule)
        return self._raised_sums[step.output]

    def _leaves(self, depth: int, kind: int, row: Tensor | None = None) -> tuple[dict[int, Any], list[Any]]:
        """The values that the steps behind a depth start from, and the leaves: (columns, is a sum, tensor) each."""
        values: dict[int, Any] = {}
        leaves = []
        for step in (step for step in self.program.calls_of(depth) if step.kind == kind):
            known = self.recording.known[step.output]
            values[step.output], leaf = self._summed(step, known if row is None else known.index_select(0, row), row)
            if self.layout.shared[depth][step.output] == step.output:
                leaves.append((self.layout.sums[depth][step.output], True, leaf))
        for value, columns in self.layout.states[depth].items():
            if self.kind_of[value] == kind:
                known = self.recording.known[value]
                leaf = (known if row is None else known.index_select(0, row)).detach().clone().requires_grad_()
                values[value] = leaf
                leaves.append((columns, False, leaf))
        return values, leaves

    def _maps_to(self, depth: int) -> list[KindMaps]:
        """The Jacobians of the states before a depth (≥ 1), for each kind of nodes that has one."""
        found: dict[int, KindMaps] = {}
        for value, columns in self.layout.states[depth].items():
            kind = self.kind_of[value]
            maps = found.setdefault(kind, KindMaps(kind, [], []))
            with torch.enable_grad():
                values, leaves = self._leaves(depth - 1, kind)
                steps = self._leading_to(value, depth - 1, kind)
                runner = JointRunner(self.rule, self.rule.gamma(depth - 1), lambda source: source.tensor)
                output = runner.run(Link(tuple(steps), value), values)
                tensors = [leaf for _, _, leaf in leaves]
                if not output.requires_grad or not len(output):
                    continue
                jacobians = _jacobians(output, tensors, steps)
            for (begin, is_sum, _), jacobian in zip(leaves, jacobians, strict=True):
                if jacobian is not None:
                    (maps.summed if is_sum else maps.around).append((begin, columns, jacobian))
        return list(found.values())

    def _leading_to(self, value: int, depth: int, kind: int | None) -> list[RowStep]:
        """The steps of a segment that a value needs; `kind=None`: whoever's they are, for a readout mixes all."""
        segment = self.program.segments[depth] if kind is None else self._segments[depth].get(kind, [])
        needed = {value}
        for step in reversed(segment):
            if step.output in needed:
                needed |= {source.value for source in step.sources if isinstance(source, Ref)}
        return [step for step in segment if step.output in needed]

    def _find_skip(self) -> Tensor | None:
        """`[N, state]`: what residuals carry from the features into the states before depth 1; None without residuals."""
        if not any(self.moves(source) for source in self.beside(0)):
            return None
        device = self.recording.data.edge_index.device
        found = torch.zeros(self.num_nodes, self.layout.width(1), dtype=torch.double, device=device)
        for value, columns in self.layout.states[1].items():
            kind = self.kind_of[value]
            with forward_ad.dual_level():
                runner = JointRunner(self.rule, self.rule.gamma(0), self._dual)
                values, _ = self._leaves(0, kind)
                link = Link(tuple(self._leading_to(value, 0, kind)), value)
                tangent = forward_ad.unpack_dual(runner.run(link, values)).tangent
            if tangent is not None:
                nodes = self.nodes_of(kind)
                everyone = torch.arange(self.num_nodes, device=device) if nodes is None else nodes
                found[everyone, columns] = tangent.detach().double()
        return found

    def _dual(self, source: Rows) -> Tensor:
        along = self._along(source)
        return source.tensor if along is None else forward_ad.make_dual(source.tensor.detach(), along)

    def ends(self, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> Front:
        """Where walks end: the explained nodes, with the gradient of the explained number at what they summed up.

        `value` maps output rows to the explained numbers; `nodes` `[T]` are the explained ones, None (graph tasks): all.
        """
        depth, everyone = self.num_calls - 1, nodes
        if everyone is None:
            everyone = torch.arange(self.num_nodes, device=self.recording.data.edge_index.device)
        leaves, tracked, found = self._gradients(value, nodes)
        summed = torch.zeros(len(everyone), self.layout.sum_width(depth), dtype=torch.double, device=everyone.device)
        around = summed.new_zeros(len(everyone), self.layout.width(depth)) if self.num_calls > 1 else None
        carries = False
        for (kind, columns, is_sum, _), gradient in zip(leaves, found, strict=False):
            at = self._ends_of(kind, everyone, nodes)
            if gradient is not None and is_sum:
                summed[at, columns] += gradient.double()
            elif gradient is not None and around is not None:
                around[at, columns] += gradient.double()
                carries = True
        beside = around if carries else None
        for (kind, _, along), gradient in zip(tracked, found[len(leaves) :], strict=True):
            if gradient is not None:
                product = (gradient.double() * along.double()).flatten(1).sum(dim=1)
                beside = summed.new_zeros(len(everyone)) if beside is None else beside
                beside = beside.index_add(0, self._ends_of(kind, everyone, nodes), product)
        return Front(everyone, summed, beside)

    def _gradients(self, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> tuple[list[Any], list[Any], Any]:
        """The explained numbers run back to where walks end, for `ends`.

        Leaves are (kind, columns, is a sum, tensor), tracked are (kind, features, their change) of a model with one call; then
        the gradients of all of them. A readout of graphs mixes nodes of all kinds, so all of them have leaves then.
        """
        depth, kind = self.num_calls - 1, self.kind_of[self.program.output]
        of_graphs = nodes is None and self.program.kinds is not None
        kinds = range(len(self.program.kinds.nodes)) if of_graphs and self.program.kinds is not None else [kind]
        row = None if nodes is None else self.row_of(nodes)
        steps = self._leading_to(self.program.output, depth, None if of_graphs else kind)
        own_kind = {id(source): step.kind for step in steps for source in step.sources}
        tracked: list[tuple[int, Tensor, Tensor]] = []

        def constant(source: Rows) -> Tensor:
            rows = source.tensor if row is None else source.tensor.index_select(0, row)
            along = self._along(source) if self.num_calls == 1 else None
            if along is not None:
                rows = rows.detach().clone().requires_grad_()
                tracked.append((own_kind[id(source)], rows, along if row is None else along.index_select(0, row)))
            return rows

        with torch.enable_grad():
            begun = {one: self._leaves(depth, one, row) for one in kinds}
            values = {number: start for starts, _ in begun.values() for number, start in starts.items()}
            leaves = [(one, *leaf) for one, (_, mine) in begun.items() for leaf in mine]
            runner = JointRunner(self.rule, self.rule.gamma(depth), constant)
            output = runner.run(Link(tuple(steps), self.program.output), values)
            inputs = [*(leaf for *_, leaf in leaves), *(rows for _, rows, _ in tracked)]
            return leaves, tracked, torch.autograd.grad(value(output).sum(), inputs, allow_unused=True)

    def _ends_of(self, kind: int, everyone: Tensor, nodes: Tensor | None) -> Tensor:
        """The places of the rows of a kind among the ends of walks: all ends if these are explained nodes of that kind."""
        own = None if nodes is not None else self.nodes_of(kind)
        return torch.arange(len(everyone), device=everyone.device) if own is None else own


def _jacobians(output: Tensor, leaves: list[Tensor], steps: list[RowStep]) -> list[RowMap | None]:
    """∂output/∂leaf at every node, for output `[n, out]` and leaves `[n, in]`; None where it does not depend on one.

    A diagonal where every step is element-wise and the widths are the same, else a matrix for each node.
    """
    plain = all(is_element_wise(step.function) for step in steps) and all(leaf.shape == output.shape for leaf in leaves)
    if plain:
        found = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
        return [None if g is None else RowMap(diagonal=g.double()) for g in found]
    columns = [torch.autograd.grad(c.sum(), leaves, retain_graph=True, allow_unused=True) for c in output.unbind(1)]
    maps: list[RowMap | None] = []
    for leaf, of_leaf in zip(leaves, zip(*columns, strict=True), strict=True):
        if all(g is None for g in of_leaf):
            maps.append(None)
            continue
        full = [torch.zeros_like(leaf) if g is None else g for g in of_leaf]
        maps.append(RowMap(matrices=torch.stack(full, dim=1).double()))
    return maps
