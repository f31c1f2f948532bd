"""Bounds of every value of every node, and of every graph, at ω = 1: the model itself, up to rounding."""

import torch
from torch import Tensor

from edgewise.program.intervals import Interval
from edgewise.program.perturbation import Differences
from edgewise.trust.attention_bounds import AttentionAtOne
from edgewise.trust.attention_operation import Attention, InRows
from edgewise.trust.interval_operations import EdgeMessages, Join, Messages, Pool, Rectify, Sum
from edgewise.trust.interval_program import NotCertifiable, Operation, Plan

_OTHER_TERMS = 4  # added to the messages that a node receives: its own terms, the bias, its weighted edge


class AtOne:
    """`value[v]` are the bounds of a value, `[N, width]` or `[graphs, width]`; `sent[call]` those of what every node sends."""

    def __init__(self, plan: Plan, graph: Differences) -> None:
        self.plan, self.graph = plan, graph
        self._in_edges = graph.lowering.in_edges
        self.num_nodes = self._in_edges.num_nodes
        self.most = int(self._in_edges.start.diff().max()) + _OTHER_TERMS
        self.value = {value: Interval.point(rows) for value, rows in plan.constants.items()}
        self.sent: dict[int, Interval] = {}
        self.attention: dict[int, AttentionAtOne] = {}
        device = self._in_edges.edge.device
        self._everyone = torch.arange(self.num_nodes, device=device)
        self._graphs = torch.arange(plan.num_graphs, device=device)
        self._head = torch.repeat_interleave(self._everyone, self._in_edges.start.diff())
        for operation in plan.operations:
            self.value[operation.output] = found = self._run(operation)
            self._check_width(operation, found)

    @property
    def owner(self) -> Tensor:
        """`[N]`: the graph of each node (graph tasks)."""
        assert self.plan.owner is not None
        return self.plan.owner

    @property
    def most_of_a_graph(self) -> int:
        """The most nodes that one graph has."""
        return int(torch.bincount(self.owner, minlength=1).max())

    def _check_width(self, operation: Operation, found: Interval) -> None:
        """Refuse a value whose rows are repeated to fit another: gradients would have to be added up on the way back."""
        if isinstance(operation, (Messages, Attention, Join)) or getattr(operation, "matrix", None) is not None:
            return
        for value in operation.reads:
            before, after = self.value[value].lo.size(1), found.lo.size(1)
            if before != after and value not in self.plan.constants:
                raise NotCertifiable(f"a row of {before} numbers is repeated to fit {after}")

    def _run(self, operation: Operation) -> Interval:
        if isinstance(operation, Messages):
            return self._received(operation)
        rows = [self.value[value] for value in operation.reads]
        if isinstance(operation, Attention):
            received = InRows.of(self._in_edges, operation.layer)
            self.attention[operation.call] = found_at = AttentionAtOne.of(operation, received, rows[0])
            return found_at.output
        if isinstance(operation, EdgeMessages):
            messages = operation.kink(self.edge_sums(operation, self._in_edges.sender, self._in_edges.edge))
            return messages.outward(self.most).sums(self._head, self.num_nodes) + operation.own(rows[0])
        if isinstance(operation, Pool):
            return self._pooled(operation, rows[0])
        if isinstance(operation, Rectify):
            return operation(rows[0])
        if isinstance(operation, Sum):
            return rows[0] + (rows[1] if operation.sign > 0 else -rows[1])
        if isinstance(operation, Join):
            return Interval.join(rows)
        found = operation.linear(rows[0], self._graphs if operation.output in self.plan.of_graphs else self._everyone)
        return found if operation.shift is None else found + operation.shift

    def edge_sums(self, step: EdgeMessages, sender: Tensor, edge: Tensor) -> Interval:
        """`[n, width]`: x_sender + f_e of some edges, before the kink."""
        return self.value[step.source].rows(sender) + Interval.point(step.features.index_select(0, edge))

    def _pooled(self, step: Pool, rows: Interval) -> Interval:
        """`[graphs, width]`: the sum, or the largest number of each column."""
        size = self.plan.num_graphs
        if not step.largest:
            return rows.outward(self.most_of_a_graph).sums(self.owner, size)
        index = self.owner.view(-1, 1).expand_as(rows.lo)
        empty = torch.bincount(self.owner, minlength=size) == 0  # the pool of a graph without nodes is 0
        lo, hi = (
            part.new_full((size, part.size(1)), -torch.inf).scatter_reduce(0, index, part, "amax")
            for part in (rows.lo, rows.hi)
        )
        return Interval(lo.masked_fill(empty.view(-1, 1), 0.0), hi.masked_fill(empty.view(-1, 1), 0.0))

    def _received(self, step: Messages) -> Interval:
        """What every node receives in a call, with own terms and bias."""
        rows, graph, everyone = self.value[step.source], self._in_edges, self._everyone
        sent = self.sent[step.call] = step.sent(rows)
        messages = sent.outward(self.most).rows(graph.sender).scaled(step.coefficients(graph.edge))
        total = messages.sums(self._head, self.num_nodes)
        for extra in (step.own(sent, rows, everyone), _shift(step.layer.bias)):
            total = total if extra is None else total + extra
        return total


def _shift(bias: Tensor | None) -> Interval | None:
    return None if bias is None else Interval.point(bias)
