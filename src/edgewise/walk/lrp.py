"""Runs row-wise steps under autograd, by the gradient or by an LRP rule.

LRP replaces the Jacobian of a linear map q and the activation behind it by diag(x_out / (q^γ + ε·sign q^γ)) · W^γ. A value that
such a map made is carried as `Pending` until it is known whether an activation follows: numbers are the true ones, the
derivative is the rule's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_unflatten

from edgewise.program.ir import Ref, Rows, RowStep
from edgewise.program.operations import ACTIVATIONS, RowFunction, plain_name
from edgewise.walk.chain import Link


@dataclass(frozen=True)
class Rule:
    """γ = ε = 0 is the gradient."""

    name: str = "gradient"
    epsilon: float = 0.0
    gammas: float | tuple[float, ...] = 0.0
    """For all layers, or one for each."""

    @property
    def is_gradient(self) -> bool:
        """Whether plain derivatives do."""
        return self.name == "gradient"

    def gamma(self, call: int) -> float:
        """γ of a call (and of the maps behind it)."""
        return self.gammas[call] if isinstance(self.gammas, tuple) else self.gammas

    def stabilised(self, q: Tensor) -> Tensor:
        """q + ε·sign q, sign(0) = 1."""
        return q + self.epsilon * torch.where(q >= 0, 1.0, -1.0).to(q.dtype)


def raised(matrix: Tensor | None, gamma: float) -> Tensor | None:
    """M + γM⁺."""
    return matrix if matrix is None or gamma == 0 else matrix + gamma * matrix.clamp(min=0)


def share(x_out: Tensor, q: Tensor, rule: Rule) -> Tensor:
    """x_out / (q + ε·sign q), 0/0 = 0."""
    below = rule.stabilised(q)
    return torch.where(below == 0, torch.zeros_like(x_out), x_out / torch.where(below == 0, 1.0, below))


@dataclass(frozen=True)
class Pending:
    """What a linear map made: its true value, and q^γ, which carries the derivative."""

    true: Tensor
    raised: Tensor

    def settled(self, x_out: Tensor, rule: Rule) -> Tensor:
        """As a tensor with the value x_out (ε takes relevance, not activation) and the rule's derivative."""
        moved = self.raised * share(x_out, self.raised.detach(), rule).detach()
        return x_out.detach() + (moved - moved.detach())


class Runner:
    """Runs links; `rule` and `gamma` say how linear maps are differentiated."""

    def __init__(self, rule: Rule, gamma: float, constant: Callable[[Rows], Tensor]) -> None:
        self.rule, self.gamma, self.constant = rule, gamma, constant

    def run(self, link: Link, values: dict[int, Any]) -> Tensor:
        """The link's output from the values it starts with (tensors, or `Pending`)."""
        values = dict(values)
        for step in link.steps:
            values[step.output] = self._step(step, values)
        return self.settle(values[link.output])

    def settle(self, value: Any) -> Tensor:
        """A value as a tensor; without an activation behind it, x_out is q itself."""
        if isinstance(value, Pending):
            return value.settled(value.true, self.rule)
        result: Tensor = value
        return result

    def _step(self, step: RowStep, values: dict[int, Any]) -> Any:
        def resolve(leaf: Any) -> Any:
            if isinstance(leaf, Ref):
                return values[leaf.value]
            return self.constant(leaf) if isinstance(leaf, Rows) else leaf

        if isinstance(step.function, RowFunction):
            (source,) = step.sources
            return self._row_function(step.function, resolve(source))
        leaves = [resolve(leaf) for leaf in step.leaves]
        args, kwargs = tree_unflatten(leaves, step.form)
        return self._apply(step.function, args, kwargs)

    def _row_function(self, function: RowFunction, rows: Any) -> Any:
        values = [rows]
        for inner, leaves, form in function.operations:
            args, kwargs = tree_unflatten(function.filled(leaves, values), form)
            values.append(self._apply(inner, args, kwargs))
        return values[-1]

    def _apply(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.rule.is_gradient:
            return _first(function(*args, **kwargs))
        name = plain_name(function)
        if isinstance(function, partial) and function.func is functional.linear:
            name, kwargs, function = "linear", {**function.keywords, **kwargs}, functional.linear
        if name == "linear":
            return self._linear(*args, **kwargs)
        if args and isinstance(args[0], Pending):
            if name in UNCHANGED:
                return args[0]
            if name in ACTIVATIONS:
                return args[0].settled(_first(function(args[0].true, *args[1:], **kwargs)), self.rule)
        args = tuple(self.settle(x) if isinstance(x, Pending) else x for x in args)
        return _first(function(*args, **kwargs))

    def _linear(self, rows: Any, weight: Tensor, bias: Tensor | None = None) -> Pending:
        rows = self.settle(rows)
        true = functional.linear(rows.detach(), weight, bias)
        up = raised(weight, self.gamma)
        assert up is not None
        return Pending(true, functional.linear(rows, up, raised(bias, self.gamma)))


UNCHANGED = {"dropout", "clone", "contiguous", "alpha_dropout"}


def _first(result: Any) -> Any:
    return result if isinstance(result, Tensor) else result[0]
