"""The slow twin of a drawn model: it shares no code with the library.

It runs the twin's source on the whole graph, one target at a time, and multiplies what `message` of each layer returned by
the ω of its depth and column. The twin's `forward` says which depth and columns these are (`Tape.at`); a loop that a layer adds
belongs to the last explicit loop of its node, or to no column.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import MessagePassing

MANY = {"logits", "log_softmax", "LogSoftmax", "softmax", "odd: permuted", "odd: by hand", "odd: rounded"}
ONE = {"one", "sigmoid of one", "squeezed sigmoid of one", "odd: one minus sigmoid", "odd: hard sigmoid"}


class Tape:
    """What the twin's `forward` says about its layers, and the weights that they get."""

    def __init__(self):
        self.columns = torch.empty(0, dtype=torch.long)
        self.omega: Tensor | None = None
        self.plans: dict[nn.Module, list[tuple[int, Tensor]]] = {}

    def at(self, conv, depth, edge_index, columns, loops, calls, nodes):
        """The next calls of a layer: their depth, and the column of each row; −1 for a loop that belongs to none."""
        owner = columns
        if loops:
            looped = edge_index[0] == edge_index[1]
            last = columns.new_full((nodes,), -1)
            for node, column in zip(edge_index[0, looped].tolist(), columns[looped].tolist(), strict=True):
                last[node] = column
            owner = torch.cat([columns[~looped], last])
        self.plans.setdefault(conv, []).extend((depth + call, owner) for call in range(calls))

    def by_kind(self, conv, depth, columns, kinds, count):
        """A call for each relation, side by side."""
        self.plans.setdefault(conv, []).extend((depth, columns[kinds == kind]) for kind in range(count))

    def own(self, depth, columns):
        """`[E]`: the weights of messages by hand."""
        ones = torch.ones(len(columns), dtype=torch.float64)
        return ones if self.omega is None else self.omega[depth, columns]

    def weighted(self, conv, _inputs, messages):
        depth, owner = self.plans[conv].pop(0)
        axis = messages.dim() - 2 if conv.node_dim == -2 else conv.node_dim
        assert messages.size(axis) == len(owner), f"{conv} sent {messages.size(axis)} messages, not {len(owner)}"
        if self.omega is None or not self.omega.size(1):
            return None
        weight = torch.where(owner < 0, 1.0, self.omega[depth, owner.clamp(min=0)])
        shape = [1] * messages.dim()
        shape[axis] = len(owner)
        return messages * weight.view(shape)


class SlowTwin:
    """Numbers of a drawn model as a function of ω and features, on one graph in float64."""

    def __init__(self, module: nn.Module, tape: Tape, layers: int):
        self.module, self.tape, self.layers = module, tape, layers
        for part in module.modules():
            if isinstance(part, MessagePassing):
                part.register_message_forward_hook(tape.weighted)

    def run(self, graph, arguments, omega: Tensor | None = None, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The numbers before the output operation, and what the model returns."""
        self.tape.omega, self.tape.plans = omega, {}
        self.tape.columns = torch.arange(graph.edge_index.size(1))
        found = self.module(graph.x if x is None else x, graph.edge_index, *(graph[name] for name in arguments))
        assert not any(self.tape.plans.values()), "a layer was called less often than the twin says"
        return found

    def ones(self, graph) -> Tensor:
        return torch.ones(self.layers, graph.edge_index.size(1), dtype=torch.float64)


def number(z: Tensor, output: str, of: str, target: int) -> Tensor:
    """The explained number from a row of numbers before the output operation; z of an odd output is read as it should be."""
    if output in MANY:
        z = z.flip(-1) if output == "odd: permuted" else z
        return {"logit": z, "log_prob": z.log_softmax(-1), "prob": z.softmax(-1)}[of][target]
    if output in ONE:
        z = -z if output == "odd: one minus sigmoid" else z
        z = z.view(()) if target == 1 else -z.view(())
    else:
        z = z.reshape(-1)[target]
    return {"logit": z, "log_prob": F.logsigmoid(z), "prob": z.sigmoid()}[of]


def predicted(z: Tensor, output: str) -> int:
    """The class that a row speaks for."""
    if output in MANY:
        return int((z.flip(-1) if output == "odd: permuted" else z).argmax())
    if output in ONE:
        return int((-z if output == "odd: one minus sigmoid" else z).view(()) > 0)
    return int(z.reshape(-1).argmax())


Function = Callable[[Tensor], Tensor]
"""From ω (or features) to one number."""


def gradient(function: Function, at: Tensor) -> Tensor:
    """By autograd."""
    point = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(point), point, allow_unused=True)
    return torch.zeros_like(at) if found is None else found


def difference(
    function: Function, at: Tensor, place: tuple[int, ...] | Tensor, step: float = 1e-5
) -> tuple[float, float]:
    """The slopes on both sides of one entry, or of a set of entries moved together."""
    with torch.no_grad():
        here = function(at)
        up, down = at.clone(), at.clone()
        up[place] += step
        down[place] -= step
        return float((function(up) - here) / step), float((here - function(down)) / step)


def drop(function: Function, at: Tensor, place) -> float:
    """How much the number falls if some entries are set to 0."""
    with torch.no_grad():
        without = at.clone()
        without[place] = 0
        return float(function(at) - function(without))
