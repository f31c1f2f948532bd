"""Bounds of every value of every node at ω = 1: the model itself, with what rounding may have done to it."""

import torch
from torch import Tensor

from edgewise.lowering.differences import Differences
from edgewise.trust.intervals import Interval
from edgewise.trust.operations import Join, Messages, Operation, Rectify, Sum
from edgewise.trust.plan import Plan

_OTHER_TERMS = 4  # what is added to the messages that a node hears: its own terms, the bias, its weighted edge


class AtOne:
    """`value[v]` are the bounds of a value, `sent[call]` those of what every node sends."""

    def __init__(self, plan: Plan, graph: Differences) -> None:
        self.plan, self.graph = plan, graph
        self._in_edges = graph.lowering.in_edges
        self.num_nodes = self._in_edges.num_nodes
        self.most = int(self._in_edges.start.diff().max()) + _OTHER_TERMS
        self.value = {value: Interval.point(rows) for value, rows in plan.constants.items()}
        self.sent: dict[int, Interval] = {}
        for operation in plan.operations:
            self.value[operation.output] = self._run(operation)

    def _run(self, operation: Operation) -> Interval:
        if isinstance(operation, Messages):
            return self._heard(operation)
        rows = [self.value[value] for value in operation.reads]
        if isinstance(operation, Rectify):
            return operation(rows[0])
        if isinstance(operation, Sum):
            return rows[0] + (rows[1] if operation.sign > 0 else -rows[1])
        if isinstance(operation, Join):
            return Interval.join(rows)
        found = operation.linear(rows[0])
        return found if operation.shift is None else found + operation.shift

    def _heard(self, step: Messages) -> Interval:
        rows, graph = self.value[step.source], self._in_edges
        everyone = torch.arange(self.num_nodes, device=graph.edge.device)
        sent = self.sent[step.call] = step.sent(rows)
        messages = sent.outward(self.most).rows(graph.sender).scaled(step.coefficients(graph.edge))
        total = messages.sums(torch.repeat_interleave(everyone, graph.start.diff()), self.num_nodes)
        for extra in (step.own(sent, rows, everyone), _shift(step.layer.bias)):
            total = total if extra is None else total + extra
        return total


def _shift(bias: Tensor | None) -> Interval | None:
    return None if bias is None else Interval.point(bias)
