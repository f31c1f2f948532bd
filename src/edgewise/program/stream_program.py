"""A program in two streams that add up to its values: the domain of DEGREE (Feng et al., ICLR 2022).

The target stream γ is what came through marked edges, the background stream β all the rest; h = γ + β is the model's number:

    a marked message     all of it is γ; other messages keep their streams
    W h + b              Wγ and Wβ; b is shared in proportion to |Wγ| and |Wβ|, number by number
    f(h)                 f(γ) − f(0), and β takes the rest of f(h)
    attention, norms     α and the scale of a norm are those of h
    max                  the streams of the largest

A step without marked messages before it has γ = 0. β is not stored: it is what is left of h.

Example: h = 3 − 2 = 1. With γ = 3 and β = −2 a ReLU makes γ = 3 and β = 1 − 3 = −2 of it; with γ = −2 and β = 3, γ = 0 and
β = 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.domains import Domain
from edgewise.program.execution import LoweredEngine, WeightedNumbers
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.operations import Kind, is_affine, kind_of, plain_name, row_arguments, takes_shape_of


@dataclass(frozen=True, eq=False)
class Streams:
    """A value and the part of it that came through marked edges."""

    total: Any
    """h, the model's own numbers. A tensor, or what a layer prepared of its features."""
    target: Tensor | None
    """γ; None: 0 everywhere, because no marked edge comes before it."""

    def background(self) -> Tensor:
        """β = h − γ."""
        found: Tensor = self.total if self.target is None else self.total - self.target
        return found


class StreamProgram(Domain[Streams]):
    """Both streams of a lowered program; `marked` `[L, M]` is 1 on the copies whose messages are the target, else 0."""

    def __init__(self, engine: LoweredEngine, marked: Tensor) -> None:
        self._marked = list(marked.unbind(0))
        self._numbers = WeightedNumbers(engine.levels, engine.prepared, self._marked, None)

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Streams:
        """Constants are background."""
        return Streams(self._numbers.constant(source, step), None)

    def read(self, value: Streams, source: Ref, step: RowStep | MessageStep) -> Streams:
        """The rows that a step reads."""
        total = self._numbers.read(value.total, source, step)
        return Streams(total, None if value.target is None else self._numbers.read(value.target, source, step))

    def messages(self, step: MessageStep, source: Streams, receiver: Streams | None = None) -> Streams:
        """A call: marked messages whole, the target stream of the others, and of the own terms."""
        hop = self._numbers.hop_of(step)
        total = self._numbers.table(step, hop, source.total, None if receiver is None else receiver.total)
        target = None
        if source.target is not None or (receiver is not None and receiver.target is not None):
            own = None if receiver is None else _target_of(receiver)
            target = self._numbers.table(step, hop, _target_of(source), own)
        call = _Call(hop, hop.of_edges(self._marked[step.call]))
        layer = step.layer
        if isinstance(layer, EdgeReluLayer):
            return _edge_relu(layer, call, total, target)
        if isinstance(layer, AttentionLayer):
            return _attention(layer, call, total, target)
        if isinstance(layer, AffineLayer):
            return call.streams(lambda t, w, s: layer.forward(t, hop, w, s), total, target, layer.bias)
        raise _no_rule(type(layer).__name__)

    def operation(self, step: RowStep, sources: list[Streams]) -> Streams:
        """A row-wise step: affine ones share their bias, bent ones give f(γ) − f(0) to the target stream."""
        total = step.run([source.total for source in sources])
        args, kwargs = step.filled(list(sources))
        read = args[:1] if takes_shape_of(step.function) else sources
        if not any(_moves(source) for source in read):
            return Streams(total, None)
        moving = [place for place, source in enumerate(sources) if source.target is not None]
        if is_affine(step.function, args, kwargs, _moves):
            return Streams(total, _affine(step, sources, total))
        found = _bent(step, sources, moving) if len(moving) == 1 else None
        found = _norm(step, sources[0], total) if found is None else found
        if found is None:
            raise _no_rule(plain_name(step.function))
        return Streams(total, found)


def _moves(value: Any) -> bool:
    return isinstance(value, Streams) and value.target is not None


def _target_of(streams: Streams) -> Tensor:
    return torch.zeros_like(streams.total) if streams.target is None else streams.target


def _shared(linear: Tensor, total: Tensor, bias: Tensor | None) -> Tensor:
    """The target stream of a sum with a bias: `linear` is what it has without, `total` is everything.

    >>> _shared(torch.tensor([3.0, 0.0]), torch.tensor([6.0, 5.0]), torch.tensor([2.0, 2.0]))      # β has 1 and 3
    tensor([4.5000, 0.0000])
    """
    if bias is None:
        return linear
    mine, other = linear.abs(), (total - bias - linear).abs()
    return linear + bias * torch.where(mine == 0, 0.0, mine / torch.where(mine == 0, 1.0, mine + other))


def _affine(step: RowStep, sources: list[Streams], total: Tensor) -> Tensor:
    """The target stream of an affine step: what it makes of zeros is its bias.

    A constant that is added is background, so it is 0 here; one that multiplies, or an index, stays as it is.
    """
    kind = kind_of(step.function, step.arguments[0])
    adds = kind in (Kind.SUM, Kind.JOIN) or plain_name(step.function) in ("where", "scatter_add", "index_add")

    def rows(source: Streams, target: Tensor | None) -> Tensor:
        if target is None and not (adds and source.total.is_floating_point()):
            found: Tensor = source.total
            return found
        return torch.zeros_like(source.total) if target is None else target

    bias = step.run([rows(s, None if s.target is None else torch.zeros_like(s.target)) for s in sources])
    linear = step.run([rows(s, s.target) for s in sources]) - bias
    return _shared(linear, total, bias)


def _bent(step: RowStep, sources: list[Streams], moving: list[int]) -> Tensor | None:
    """f(γ) − f(0) of a function of single numbers, or the stream of the largest; None: it is neither."""
    (place,) = moving
    target, name = _target_of(sources[place]), plain_name(step.function)
    kind, (args, kwargs) = kind_of(step.function, step.arguments[0]), step.arguments
    if kind is Kind.POOL and name in ("max", "min") and row_arguments(step.function, args, kwargs) is not None:
        filled, options = step.filled([source.total for source in sources])
        dim: int = options["dim"] if "dim" in options else filled[1]
        chosen = getattr(filled[0], name)(dim, keepdim=True).indices
        return target.gather(dim, chosen).view(step.run([source.total for source in sources]).shape)
    if kind not in (Kind.RECTIFIER, Kind.ACTIVATION, Kind.ELEMENTWISE) or name == "where":
        return None
    if row_arguments(step.function, args, kwargs) is None:
        return None
    with_target, with_zero = (
        [rows if number == place else source.total for number, source in enumerate(sources)]
        for rows in (target, torch.zeros_like(target))
    )
    return step.run(with_target) - step.run(with_zero)


def _norm(step: RowStep, source: Streams, total: Tensor) -> Tensor | None:
    """The target stream behind a norm whose scale is that of h; None: it is another step."""
    name, rows = plain_name(step.function), source.total
    args, kwargs = step.filled([None] * len(step.sources))
    if len(step.sources) != 1:
        return None
    if name == "normalize" and kwargs.get("p", args[1] if len(args) > 1 else 2.0) == 2:
        scale = torch.where(rows == 0, 0.0, total / torch.where(rows == 0, 1.0, rows))  # one number a row, 0 of zeros
        dim = kwargs.get("dim", args[2] if len(args) > 2 else 1)
        return _target_of(source) * scale.abs().amax(dim=dim, keepdim=True)
    if name != "layer_norm":
        return None
    options = dict(zip(("normalized_shape", "weight", "bias", "eps"), args[1:], strict=False)) | kwargs
    axes = tuple(range(-len(tuple(options["normalized_shape"])), 0))
    scale = (rows.var(dim=axes, keepdim=True, unbiased=False) + options.get("eps", 1e-5)).rsqrt()
    weight, bias = options.get("weight"), options.get("bias")
    linear = (_target_of(source) - _target_of(source).mean(dim=axes, keepdim=True)) * scale
    return _shared(linear if weight is None else linear * weight, total, bias)


# --- Calls --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call on a hop; `marked` `[edges]` is 1 where the whole message is the target."""

    hop: Hop
    marked: Tensor

    def streams(
        self, layer: Callable[[Any, Tensor, Tensor | None], Tensor], total: Any, target: Any, bias: Tensor | None
    ) -> Streams:
        """Both streams of a layer that is affine in its table; `layer(table, ω, s)` has its bias, whatever ω and s."""
        found = layer(total, torch.ones_like(self.marked), None)
        nothing = torch.zeros(self.hop.num_heads, dtype=found.dtype, device=found.device)
        linear = layer(total, self.marked, nothing)  # marked messages, and the bias
        linear = linear if bias is None else linear - bias
        if target is not None:
            rest = 1 - self.marked
            zeros = (
                type(target)(*map(torch.zeros_like, target)) if isinstance(target, tuple) else torch.zeros_like(target)
            )
            linear = linear + layer(target, rest, None) - layer(zeros, rest, None)
        return Streams(found, _shared(linear, found, bias))


def _attention(layer: AttentionLayer, call: _Call, total: Any, target: Any) -> Streams:
    """Attention is that of h: the layer is then affine in what is sent."""
    sides = layer.as_sides(total)
    attention = layer.attention_of(sides, call.hop)

    def run(table: Any, weight: Tensor, own: Tensor | None) -> Tensor:
        return layer.attended(layer.as_sides(table), attention, call.hop, weight, own)

    return call.streams(run, sides, target, layer.conv.bias)


def _edge_relu(layer: EdgeReluLayer, call: _Call, total: Tensor, target: Tensor | None) -> Streams:
    """The ReLU of each edge is a bend of its own; edge features are background."""
    hop, ones = call.hop, torch.ones_like(call.marked)
    found = layer.forward(total, hop, ones, None)
    nothing = torch.zeros(hop.num_heads, dtype=found.dtype, device=found.device)
    linear = layer.forward(total, hop, call.marked, nothing)
    if target is not None:
        rows = target.index_select(0, hop.tail).relu() * (1 - call.marked).view(-1, 1)
        linear = linear.index_add(0, hop.head, rows) + hop.own_rows(target) * layer.root
    return Streams(found, linear)


def _no_rule(name: str) -> ModelError:
    return ModelError(
        f"degree has no rule for {name!r}, which this model uses. Use method='occlusion', which needs no rules and is the "
        f"same on linear models."
    )
