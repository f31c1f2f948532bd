"""How often rectifiers are on, call by call: ρ of the paper's assumption, counted where the targets depend on it.

One pass of the model, in which a `TorchFunctionMode` watches every activation function and notes which call it belongs to.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.graph.computation_graph import reach
from edgewise.graph.copies import Copies
from edgewise.model.hooks import Layers, OperationMode, message_hooks
from edgewise.program.bends import rectifier_bend
from edgewise.program.operations import Kind, kind_of, plain_name
from edgewise.question import NodeQuestion, PosedQuestion
from edgewise.question.memory import blocks

RECTIFIERS = ("relu", "leaky_relu")
_TARGETS_AT_ONCE = 1024


@dataclass
class Activity:
    """The activation functions after one call and before the next, and how often their units are on."""

    names: list[str] = field(default_factory=list)
    """The functions, such as `relu`; those inside a layer, on messages or attention, are marked as such."""
    on: float = 0.0
    """How many (unit, node, target) are on, over all computation graphs."""
    seen: float = 0.0
    """How many (unit, node, target) there are."""
    always: dict[int, Tensor] = field(default_factory=dict)
    """For each function, `[2, units]`: whether a unit is on for all of these nodes, and whether it is off for all."""

    @property
    def rate(self) -> float:
        """ρ: the share of rectifiers that are on; NaN if there are none."""
        return self.on / self.seen if self.seen else float("nan")

    @property
    def fixed_share(self) -> float:
        """The share of units that never switch from node to node; NaN if there are none."""
        fixed = [part.any(dim=0) for part in self.always.values()]
        return float(torch.cat(fixed).double().mean()) if fixed else float("nan")


def activity(question: PosedQuestion, memory: int) -> list[Activity]:
    """The activity after each call, `num_layers` of them; functions before the first call depend on no edge."""
    found = [Activity() for _ in range(question.num_layers)]
    with question.loan.taken(), torch.no_grad():
        if isinstance(question, NodeQuestion):
            importance = _importance(question)
            _watch(question, question.layers, question.graphs[0], found, importance)
            return found
        for copies in _batches(question, memory):
            _watch(question, question.layers, copies.data, found, _all_alike(copies))
    return found


def _batches(question: PosedQuestion, memory: int) -> Iterator[Copies]:
    """All graphs of a graph task (or the neighbourhoods of links), in batches that fit into memory."""
    for positions in blocks(question, memory, None):
        yield from question.copies(positions)


def _all_alike(copies: Copies) -> Callable[[int], Tensor]:
    """In a graph task every node matters to its one graph, after any number of calls."""
    return lambda _: torch.ones(copies.data.num_nodes, device=copies.rows.device)


def _importance(question: NodeQuestion) -> Callable[[int], Tensor]:
    """A function: number of calls done ↦ `[N]`, for how many targets a node's features still matter then.

    Path 0 → 1 → 2, two calls, target 2: before the first call all three nodes matter (1, 1, 1), after it nodes 1 and 2
    (0, 1, 1), after the second only the target (0, 0, 1).
    """
    graph, hops = question.node_model.in_edges, question.num_layers
    if not question.node_model.local:
        return lambda _: torch.full((graph.num_nodes,), float(len(question.index)), device=question.device)
    count = torch.zeros(hops + 1, graph.num_nodes, dtype=torch.double, device=question.device)
    for part in question.places(torch.arange(len(question.index))).split(_TARGETS_AT_ONCE):
        near = reach(graph, part, hops)
        count.index_put_((near.hops, near.node), count.new_ones(()), accumulate=True)
    within = count.cumsum(dim=0)
    return lambda done: within[hops - done]


def _watch(
    question: PosedQuestion, layers: Layers, data: Any, found: list[Activity], importance: Callable[[int], Tensor]
) -> None:
    """Run the model once and count the activations on the way."""
    watcher = _Watcher(found, importance, data.num_nodes)
    with ExitStack() as stack:
        stack.enter_context(message_hooks(layers, watcher.on_propagate, watcher.on_message))
        stack.enter_context(watcher.watching(layers))
        question.call(data)


_ARITHMETIC = frozenset(["clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "max", "min", "abs"])
"""Piecewise linear, but no activation functions unless they spell a ReLU: a mean divides by `count.clamp(min=1)`."""


class _Watcher(OperationMode):
    """Sees every operation of a pass, also inside the layers (as the network of a GIN is), and counts rectifiers."""

    is_blind_inside = False

    def __init__(self, found: list[Activity], importance: Callable[[int], Tensor], num_nodes: int) -> None:
        super().__init__()
        self._found, self._importance, self._nodes = found, importance, num_nodes
        self._calls = self._functions = 0
        self._entered_at = -1
        self._in_message = False

    def on_propagate(self, *_: Any) -> None:
        """Hook: a call begins to make its messages."""
        self._calls, self._in_message = self._calls + 1, True

    def on_message(self, *_: Any) -> None:
        """Hook: the messages are made."""
        self._in_message = False

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A layer begins: what it does before its messages belongs to the call that follows."""
        if self.depth == 0:
            self._entered_at = self._calls
        super().enter(module, args, kwargs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kind_of(func, args) in (Kind.RECTIFIER, Kind.ACTIVATION) and args and isinstance(args[0], Tensor):
            bend = rectifier_bend(func, args, kwargs)
            name = plain_name(func) if bend is None else RECTIFIERS[bend.below > 0]
            if name not in _ARITHMETIC:
                self._note(name, args[0])  # before the call: it may happen in place
        return func(*args, **kwargs)

    def _note(self, name: str, values: Tensor) -> None:
        """Note an activation function and its input: the call it follows, its name and, for a rectifier, what is on."""
        early = self.depth > 0 and self._calls == self._entered_at
        call = self._calls if early else self._calls - 1
        if not 0 <= call < len(self._found):
            return
        here = self._found[call]
        name = f"{name} (on messages)" if early or self._in_message else name
        if name not in here.names:
            here.names.append(name)
        if name in RECTIFIERS:
            self._functions += 1
            of_nodes = values.size(0) == self._nodes
            weight = self._importance(call + 1) if of_nodes else values.new_ones(values.size(0))
            self._count(here, values.reshape(values.size(0), -1) > 0, weight.double())

    def _count(self, here: Activity, on: Tensor, weight: Tensor) -> None:
        """Add a rectifier: `on` is `[nodes, units]`, `weight` `[nodes]` the number of targets that a node matters to."""
        here.on += float((on.double() * weight.view(-1, 1)).sum())
        here.seen += float(weight.sum()) * on.size(1)
        seen = on[weight > 0]
        if len(seen):
            always = torch.stack([seen.all(dim=0), ~seen.any(dim=0)])
            here.always[self._functions] = here.always.get(self._functions, always) & always
