"""A program in two runs at once, with and without edges: the domain of DeepLIFT (rules: `lift_rules.py`).

Values are `Lift`s of pairs (target, node), the weights ω of all copies the variables: one forward interpretation and one
backward pass give the contributions of all edges to z(1) − z(0).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import ModelError
from edgewise.program import lift_rules as rules
from edgewise.program.domains import Domain
from edgewise.program.execution import LoweredEngine, WeightedNumbers
from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.lift_layers import attention_messages, edge_relu_messages
from edgewise.program.lift_rules import Lift, fixed
from edgewise.program.operations import (
    PRODUCTS,
    QUOTIENTS,
    Kind,
    is_affine,
    kind_of,
    plain_name,
    row_arguments,
    takes_shape_of,
)

_BENT = (Kind.RECTIFIER, Kind.ACTIVATION, Kind.ELEMENTWISE)


class LiftProgram(Domain[Lift]):
    """Both runs of a lowered program; `weight` `[L, M]` is ω at 1, whose derivatives become the contributions."""

    def __init__(self, engine: LoweredEngine, weight: Tensor) -> None:
        self.weights = list(weight.unbind(0))
        self._numbers = WeightedNumbers(engine.levels, engine.prepared, self.weights, None)

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Lift:
        """Constants are the same in both runs."""
        return fixed(self._numbers.constant(source, step))

    def read(self, value: Lift, source: Ref, step: RowStep | MessageStep) -> Lift:
        """The rows that a step reads, in both runs."""
        return _both(lambda rows: self._numbers.read(rows, source, step), value)

    def messages(self, step: MessageStep, source: Lift, receiver: Lift | None = None) -> Lift:
        """A call: ω times what is sent is a product, what a node has of its own is linear."""
        hop = self._numbers.hop_of(step)
        table = Lift(
            self._numbers.table(step, hop, source.actual, None if receiver is None else receiver.actual),
            self._numbers.table(step, hop, source.reference, None if receiver is None else receiver.reference),
        )
        weight = hop.of_edges(self.weights[step.call])
        off = torch.zeros_like(weight)
        layer = step.layer
        if not source.moves and (receiver is None or not receiver.moves):  # linear in ω, whatever the layer
            return Lift(layer.forward(table.actual, hop, weight, None), layer.forward(table.reference, hop, off, None))
        if isinstance(layer, AffineLayer):
            now = table.actual.detach()
            with torch.no_grad():
                true = layer.forward(now, hop, weight, None)
                reference = layer.forward(table.reference, hop, off, None)
            of_weight = layer.forward((now + table.reference) / 2, hop, weight, None)
            of_rows = layer.forward(table.actual, hop, torch.full_like(off, 0.5), None)
            return Lift(rules.carried(true, of_weight + of_rows), reference)
        if isinstance(layer, EdgeReluLayer):
            return edge_relu_messages(layer, table, hop, Lift(weight, off))
        if isinstance(layer, AttentionLayer):
            return attention_messages(layer, table, hop, Lift(weight, off))
        raise _no_rule(type(layer).__name__)

    def operation(self, step: RowStep, sources: list[Lift]) -> Lift:
        """A row-wise step: affine ones as they are, others by their rule."""
        name, (args, kwargs) = plain_name(step.function), step.filled(list(sources))
        if not any(_moves(source) for source in (args[:1] if takes_shape_of(step.function) else sources)):
            return fixed(step.run([source.actual for source in sources]))
        moving = [place for place, source in enumerate(sources) if source.moves]
        if is_affine(step.function, args, kwargs, _moves):
            return rules.linear(lambda *rows: step.run(list(rows)), *sources)
        found = _by_factors(name, args, kwargs) or _bent(step, name, args, sources, moving)
        rule = _NORMS.get(name)
        if found is None and rule is not None and len(moving) == 1 and isinstance(args[0], Lift):
            found = rule(*args, **kwargs)
        if found is None:
            raise _no_rule(name)
        return found


def _both(function: Callable[[Any], Any], value: Lift) -> Lift:
    """The same in both runs; a constant stays one object."""
    actual = function(value.actual)
    return Lift(actual, function(value.reference) if value.moves else actual)


def _moves(value: Any) -> bool:
    return isinstance(value, Lift) and value.moves


def _lift(value: Any) -> Lift:
    """A factor: a value, or a plain number."""
    return value if isinstance(value, Lift) else fixed(value if isinstance(value, Tensor) else torch.tensor(value))


def _by_factors(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lift | None:
    """A product or a quotient of two values; None: it is none."""
    if name in PRODUCTS and len(args) == 2:
        return rules.product(*(_lift(value) for value in args[:2]))
    if name in QUOTIENTS and len(args) == 2 and not kwargs.get("rounding_mode"):
        return rules.quotient(*(_lift(value) for value in args[:2]))
    return None


def _bent(step: RowStep, name: str, args: tuple[Any, ...], sources: list[Lift], moving: list[int]) -> Lift | None:
    """A function of single numbers, or the larger or smaller of two; None: it is neither."""
    known = kind_of(step.function, step.arguments[0]) in _BENT and name != "where"
    if not known or row_arguments(step.function, *step.arguments) is None:
        return None
    if len(moving) == 1:
        return rules.rescaled(_of_one(step, sources, moving[0]), sources[moving[0]])
    if name in ("max", "maximum", "min", "minimum") and len(args) == 2:
        return rules.largest(args[0], args[1], 1.0 if name.startswith("max") else -1.0)
    return None


def _of_one(step: RowStep, sources: list[Lift], place: int) -> Callable[[Tensor], Tensor]:
    """A step as a function of the one source that moves."""

    def function(rows: Tensor) -> Tensor:
        return step.run([rows if number == place else source.actual for number, source in enumerate(sources)])

    return function


def _softmax(x: Lift, dim: int = -1, **rest: Any) -> Lift | None:
    return rules.softmax(x, dim) if rest.get("dtype") is None else None


def _log_softmax(x: Lift, dim: int = -1, **rest: Any) -> Lift | None:
    return rules.log_softmax(x, dim) if rest.get("dtype") is None else None


def _layer_norm(x: Lift, *args: Any, **rest: Any) -> Lift | None:
    rest = {("shape" if name == "normalized_shape" else name): value for name, value in rest.items()}
    return rules.layer_norm(
        x, *args[:4], **{key: rest[key] for key in ("shape", "weight", "bias", "eps") if key in rest}
    )


def _normalize(x: Lift, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Lift | None:
    return rules.normalize(x, dim, eps) if p == 2 else None


_NORMS: dict[str, Callable[..., Lift | None]] = {
    "softmax": _softmax, "log_softmax": _log_softmax, "layer_norm": _layer_norm, "normalize": _normalize,
}  # fmt: skip


def explained_number(rows: Lift, column: Tensor, mode: str, of: str) -> Tensor:
    """`[targets]`: the number that `Target.number` reads from rows, with the multipliers of all its operations."""
    if mode == "binary":
        one = rules.linear(lambda t: torch.where(column == 1, t[:, 0], -t[:, 0]), rows)
    elif mode == "multilabel" or of == "logit":
        one = _picked(rows, column)
    else:
        one = _picked((rules.log_softmax if of == "log_prob" else rules.softmax)(rows, 1), column)
    if of != "logit" and mode in ("binary", "multilabel"):
        one = rules.rescaled(functional.logsigmoid if of == "log_prob" else torch.sigmoid, one)
    found: Tensor = one.actual
    return found


def _picked(rows: Lift, column: Tensor) -> Lift:
    return rules.linear(lambda t: t.gather(1, column.view(-1, 1)).view(-1), rows)


def _no_rule(name: str) -> ModelError:
    return ModelError(
        f"deep_lift has no rule for {name!r}, which this model uses. Use method='integrated_gradients', which needs no rules "
        f"and sums to the same difference."
    )
