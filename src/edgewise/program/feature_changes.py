"""The program under changed features: copies of targets, each with other features at one node.

A copy reads the features of the graph, except at its changed node: there it reads a row of its own, which stands behind the
rows of the graph in the table of the first call. So a change costs one row, and what the copy's computation graph costs.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.program.domains import Domain, interpret
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.levels import Levels


def with_rows(program: Program, x: Tensor) -> Program:
    """The same program on other features; all its constants are the features."""

    def changed(part: Any) -> Any:
        return Rows(x, part.own_call) if isinstance(part, Rows) else part

    steps = [
        replace(step, source=changed(step.source))
        if isinstance(step, MessageStep)
        else replace(step, leaves=tuple(changed(leaf) for leaf in step.leaves))
        for step in program.steps
    ]
    return Program(tuple(steps), program.output, program.num_calls)


def run_changed(
    program: Program, levels: Levels, prepared: dict[int, Any], x: Tensor, node: Tensor, rows: Tensor
) -> Tensor:
    """The output of K copies, `[K, columns]`: copy k has the features `rows[k]` at `node[k]`; `levels` has a target for each.

    The path 0 → 1 → 2 with features (1, 10, 100) and two calls that add to each node what it receives: 121 at node 2.

    >>> from edgewise.graph.computation_graph import InEdges
    >>> from edgewise.program.layers.affine import AffineLayer
    >>> from edgewise.program.expansion import expand
    >>> plus, x = AffineLayer(coefficient=None, root=1.0), torch.tensor([[1.0], [10.0], [100.0]])
    >>> program = Program((MessageStep(plus, Rows(x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> levels = expand(path, torch.tensor([2, 2]), 2, torch.full((6,), -1, dtype=torch.int32))
    >>> nothing = torch.zeros(2, 1)                                             # at node 1, then at node 2
    >>> run_changed(program, levels, {0: plus.prepare(x)}, x, torch.tensor([1, 2]), nothing).view(-1).tolist()
    [101.0, 21.0]
    """
    steps = [step for step in program.steps if isinstance(step, MessageStep) and isinstance(step.source, Rows)]
    extended = {step.output: step.layer.extended(prepared[step.output], rows, node) for step in steps}
    values = interpret(program.steps, _ChangedNumbers(levels, extended, x, node, rows), {})
    return values[program.output][: levels.num_targets]


@dataclass(frozen=True, eq=False)
class _ChangedNumbers(Domain[Any]):
    """Numbers of pairs (copy, node) where each copy has other features at one node."""

    levels: Levels
    extended: dict[int, Any]
    """By value: what its call prepared of the features, and behind that of the changed rows."""
    x: Tensor
    node: Tensor
    rows: Tensor

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Any:
        """The features of the pairs that a step reads, changed where they are."""
        if isinstance(step, MessageStep):
            return self.extended[step.output]
        pairs = self.levels.pairs_after(step.calls_done)
        node, owner = self.levels.node[:pairs], self.levels.owner[:pairs]
        found = self.x.index_select(0, node)
        moved = (node == self.node[owner]).nonzero().view(-1)
        return found.index_copy(0, moved, self.rows[owner[moved]])

    def read(self, value: Tensor, source: Ref, step: RowStep | MessageStep) -> Tensor:
        """The rows that a step reads: made several calls earlier, a value has rows that are no longer needed."""
        return value if isinstance(step, MessageStep) else value[: self.levels.pairs_after(step.calls_done)]

    def operation(self, step: RowStep, sources: list[Tensor]) -> Tensor:
        """The operation on rows of pairs."""
        return step.run(sources)

    def messages(self, step: MessageStep, source: Any, receiver: Any = None) -> Tensor:
        """A call on the table that it reads."""
        by_node = isinstance(step.source, Rows)
        hop = self.levels.hop(step.call, from_nodes=by_node)
        weight = self.rows.new_ones(len(hop.tail))
        if not by_node:
            return step.layer.forward(source[: hop.table_size], hop, weight, None)
        owner, size = self.levels.owner, self.levels.num_nodes
        heads = owner[: hop.num_heads]
        senders = heads[hop.head]
        tail = torch.where(hop.tail == self.node[senders], size + senders, hop.tail)
        own = torch.where(hop.node == self.node[heads], size + heads, hop.node)
        changed = Hop(hop.start, tail, hop.edge_id, own, hop.node, size + len(self.rows), None, {"head": hop.head})
        return step.layer.forward(source, changed, weight, None)
