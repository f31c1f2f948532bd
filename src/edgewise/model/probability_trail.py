"""Whether an output comes from an operation that makes probabilities, whatever stands between them.

The recorded operations are gone through once, and each tensor gets the `_Trail` that leads to it. It goes on through sums,
columns moved, clamps, logarithms and means; it ends at layers, at linear maps with learned weights, at norms, and at a product
with anything that is no probability itself: so gates and attention leave none. Where a trail is uncertain, because other
functions of numbers look the same (`exp`, `tanh`, a comparison), the output must have such values, too. Masks and numbers of
rows that pick other numbers lead nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from edgewise.model.data_flow import leaves_of
from edgewise.program.operations import PRODUCTS, QUOTIENTS, Kind, kind_of, plain_name
from edgewise.trees import tree_leaves

if TYPE_CHECKING:
    from edgewise.model.data_flow import Key, Operation
    from edgewise.model.trace import Trace

_NONE, _BOUNDED, _PERHAPS, _SURE = range(4)
"""How certain a trail is; a bounded function becomes a probability only by a sum or a change of sign: (1 + tanh z) / 2."""
_CERTAINTY = {
    _SURE: "softmax log_softmax softmin gumbel_softmax sigmoid logsigmoid log_sigmoid hardsigmoid expit special_expit ndtr "
    "special_ndtr log_ndtr special_log_ndtr special_softmax special_log_softmax",
    _PERHAPS: "exp exp2 special_exp2 relu6 gt ge lt le eq ne greater greater_equal less less_equal not_equal isclose "
    "logical_not heaviside argmax cross_entropy binary_cross_entropy_with_logits",
    _BOUNDED: "tanh erf special_erf atan arctan softsign sin cos sign sgn hardtanh clamp clip softplus logsumexp "
    "special_logsumexp logaddexp logaddexp2 logcumsumexp",
}
_MAKERS = {name: certainty for certainty, names in _CERTAINTY.items() for name in names.split()}
_TABLES = ("mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot", "mv", "inner", "conv1d", "bilinear", "embedding")
_ENDS: tuple[str, ...] = (
    "batch_norm",
    "layer_norm",
    "instance_norm",
    "group_norm",
    "rms_norm",
    "logit",
    "special_logit",
)
_ENDS += ("multi_head_attention_forward", "scaled_dot_product_attention")
_DIFFERENCES = ("sub", "subtract", "isub", "rsub")
_LIMITS = ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "maximum", "minimum")
_ROUNDING = 1e-5


def trail_of(trace: Trace) -> tuple[str, bool]:
    """The name of the operation that made probabilities of which the output is made, empty if there is none; is it seen?

    Where nothing says how the output was made (a part is scripted, say), any that ends in sight will do.
    """
    trails = _Trails(trace)
    found = trails.at(trace.output_key)
    is_seen = found is not None
    if found is None:
        found = max(trails.open_ends(), key=lambda trail: trail.certainty, default=_Trail())
        found = replace(found, certainty=min(found.certainty, _PERHAPS))
    if found.certainty == _SURE or (found.certainty == _PERHAPS and _may_be_probabilities(trace.output)):
        return found.maker, is_seen
    return "", is_seen


def _may_be_probabilities(rows: Tensor) -> bool:
    """Whether all numbers are probabilities, or logarithms of such."""
    if rows.numel() == 0:
        return False
    low, high = (float(end) for end in rows.aminmax())
    return high <= _ROUNDING or (low >= -_ROUNDING and high <= 1 + _ROUNDING)


@dataclass(frozen=True)
class _Trail:
    certainty: int = _NONE
    maker: str = ""
    sums: frozenset[Key] = frozenset()
    """The tensors of which this is a sum over columns, or the logarithm of the sum of exponentials."""
    limits: frozenset[float] = frozenset()
    """The numbers at which it was just cut off; those in between 0 and 1 may be probabilities."""


@dataclass
class _Trails:
    """The trail of every tensor that descends from a layer or from the features."""

    trace: Trace
    found: dict[Key, _Trail] = field(default_factory=dict)
    learned: set[Key] = field(default_factory=set)
    """Tensors made of parameters alone."""
    read: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.found[self.trace.input_key] = _Trail()
        for operation in self.trace.operations:
            self._follow(operation)

    def at(self, key: Key) -> _Trail | None:
        """None: nothing is known of it."""
        return self.found.get(key)

    def open_ends(self) -> list[_Trail]:
        """The trails of tensors that nothing recorded has read."""
        return [trail for key, trail in self.found.items() if key not in self.read]

    def _follow(self, operation: Operation) -> None:
        keys = [key for key in operation.inputs if key is not None]
        moving = [key for key in keys if key in self.found]
        self.read.update(keys)
        if operation.is_layer:
            self.found.update(dict.fromkeys(operation.outputs, _Trail()))
        elif moving:
            self.found.update(
                dict.fromkeys((key for key in operation.outputs if key is not None), self._next(operation))
            )
        elif self._is_learned(operation):
            self.learned.update(operation.outputs)

    def _is_learned(self, operation: Operation) -> bool:
        """Whether a parameter, or something made of one, goes into it."""
        leaves = tree_leaves((operation.args, operation.kwargs))
        return any(isinstance(leaf, nn.Parameter) for leaf in leaves) or any(
            k in self.learned for k in operation.inputs
        )

    def _next(self, operation: Operation) -> _Trail:
        """The trail behind an operation that reads some tensors with trails."""
        name, inputs = plain_name(operation.function), self._numbers(operation)
        before = [self.found[key] for key in inputs]
        limits = self._limits(operation, name, before[0])
        maker = _SURE if limits >= {0.0, 1.0} else _made_by(operation, name)
        if maker == _SURE:
            return _Trail(_SURE, name)
        if name in _ENDS or (self._is_learned(operation) and (name in _TABLES or _is_map(operation))):
            return _Trail()
        one = before[0] if len(before) == 1 else self._joined(operation, name, before, inputs)
        one = replace(one, limits=limits)
        if len(before) > 1:
            return one if one.certainty >= maker else replace(one, certainty=maker, maker=name)
        if _shifts(name) and one.certainty == _BOUNDED:
            one = replace(one, certainty=_PERHAPS)
        if name in ("sum", "logsumexp", "special_logsumexp"):
            one = replace(one, sums=frozenset(inputs))
        return one if one.certainty >= maker else replace(one, certainty=maker, maker=name)

    def _numbers(self, operation: Operation) -> list[Key]:
        """The tensors with trails that it reads; without masks and places, where it reads numbers, too."""
        leaves = zip(leaves_of((operation.args, operation.kwargs or {})), operation.inputs, strict=True)
        moving = [(leaf, key) for leaf, key in leaves if key in self.found]
        numbers = [key for leaf, key in moving if leaf.is_floating_point()]
        return numbers or [key for _, key in moving]

    def _limits(self, operation: Operation, name: str, before: _Trail) -> frozenset[float]:
        """The numbers at which its result is cut off, above or below."""
        if name == "relu":
            return before.limits | {0.0}
        if name not in _LIMITS:
            same = kind_of(operation.function) in (Kind.UNCHANGED, Kind.SHAPE) or name == "getitem"
            return before.limits if same else frozenset()
        leaves = zip(leaves_of((operation.args, operation.kwargs or {})), operation.inputs, strict=True)
        given = [leaf for leaf, key in leaves if key not in self.found]
        numbers = [float(leaf) for leaf in given if isinstance(leaf, (int, float)) and not isinstance(leaf, bool)]
        tables = [leaf for leaf in given if isinstance(leaf, Tensor) and leaf.numel()]
        return before.limits.union(numbers, [float(t.min()) for t in tables if bool(t.min() == t.max())])

    def _joined(self, operation: Operation, name: str, before: list[_Trail], inputs: list[Key]) -> _Trail:
        """The trail behind an operation on several tensors with trails."""
        least, most = (pick(before, key=lambda trail: trail.certainty) for pick in (min, max))
        if name in (*QUOTIENTS, *_DIFFERENCES) and inputs[0] in before[-1].sums:
            return _Trail(_SURE, "logsumexp" if name in _DIFFERENCES else "a division by the sum")
        if name in QUOTIENTS or name in _DIFFERENCES:
            return (
                replace(most, certainty=min(most.certainty + _shifts(name), _PERHAPS)) if most.certainty else _Trail()
            )
        if name in (*PRODUCTS, *_TABLES) or _is_map(operation):
            return least
        if least.certainty == _NONE and most.certainty:
            return replace(most, certainty=min(most.certainty + _shifts(name), _PERHAPS))
        return least


def _made_by(operation: Operation, name: str) -> int:
    """What the operation makes by itself."""
    if name == "normalize":
        power: Any = (operation.kwargs or {}).get("p", operation.args[1] if len(operation.args) > 1 else 2.0)
        return _PERHAPS if power == 1 else _NONE
    return _MAKERS.get(name, _NONE)


def _is_map(operation: Operation) -> bool:
    return kind_of(operation.function) is Kind.LINEAR


def _shifts(name: str) -> bool:
    """Whether it adds something, or changes a sign."""
    return name in ("add", "radd", "iadd", "neg", *_DIFFERENCES)
