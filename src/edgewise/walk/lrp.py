"""Runs row-wise steps under autograd, by the gradient or by an LRP rule.

LRP replaces the Jacobian of a linear map q and the activation behind it by diag(x_out / (q^γ + ε·sign q^γ)) · W^γ. A value that
such a map made is carried as `Pending` until it is known whether an activation follows: numbers are the true ones, the
derivative is the rule's.

Example: q = 2·a − 1·b + 3 (a bias) with a = 1, b = 2, so q = 3, followed by relu: x_out = 3.

    gradient      ∂x_out/∂a = 2,               ∂x_out/∂b = −1
    lrp-epsilon   3 / (3 + ε) times the same: the bias stays in the denominator, a gets 2 · 1 and b −1 · 2 of the 3
    lrp-gamma     γ = 1 raises 2 to 4 and the bias 3 to 6: q^γ = 4·1 − 1·2 + 6 = 8, and the derivatives are 3/8 · (4, −1)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.domains import Domain, interpret
from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.operations import Kind, kind_of, plain_name
from edgewise.walk.chain import Link


@dataclass(frozen=True)
class Rule:
    """How linear maps are differentiated; γ = ε = 0 behind ReLUs is the gradient."""

    name: str = "gradient"
    """`"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`."""
    epsilon: float = 0.0
    gammas: float | tuple[float, ...] = 0.0
    """γ of all layers, or one for each."""

    @property
    def is_gradient(self) -> bool:
        """Whether plain derivatives are all that is needed."""
        return self.name == "gradient"

    def gamma(self, call: int) -> float:
        """γ of a call (and of the maps behind it)."""
        return self.gammas[call] if isinstance(self.gammas, tuple) else self.gammas

    def stabilised(self, q: Tensor) -> Tensor:
        """q + ε·sign q, sign(0) = 1."""
        return q + self.epsilon * torch.where(q >= 0, 1.0, -1.0).to(q.dtype)


def raised(matrix: Tensor | None, gamma: float) -> Tensor | None:
    """M + γM⁺: positive entries weigh more.

    >>> raised(torch.tensor([2.0, -1.0]), 0.5)
    tensor([ 3., -1.])
    """
    return matrix if matrix is None or gamma == 0 else matrix + gamma * matrix.clamp(min=0)


def share(x_out: Tensor, q: Tensor, rule: Rule) -> Tensor:
    """x_out / (q + ε·sign q), with 0/0 = 0: how much of the sum q goes on as the activation x_out."""
    below = rule.stabilised(q)
    return torch.where(below == 0, torch.zeros_like(x_out), x_out / torch.where(below == 0, 1.0, below))


@dataclass(frozen=True)
class Pending:
    """What a linear map made: its true value, and q^γ, which carries the derivative."""

    true: Tensor
    """`[n, out]`, without a derivative."""
    raised: Tensor
    """`[n, out]`: the map with raised weights."""

    def settled(self, x_out: Tensor, rule: Rule) -> Tensor:
        """A tensor with the value x_out (ε takes relevance, not activation) and the rule's derivative."""
        moved = self.raised * share(x_out, self.raised.detach(), rule).detach()
        return x_out.detach() + (moved - moved.detach())


class Runner(Domain[Any]):
    """Runs links; `rule` and `gamma` say how linear maps are differentiated, `rows_of` gives the rows of constants.

    A value is a tensor, or `Pending`.
    """

    def __init__(self, rule: Rule, gamma: float, rows_of: Callable[[Rows], Tensor]) -> None:
        self.rule, self.gamma, self.rows_of = rule, gamma, rows_of

    def run(self, link: Link, values: dict[int, Any]) -> Tensor:
        """The link's output from the values it starts with."""
        return self.settle(interpret(link.steps, self, dict(values))[link.output])

    def settle(self, value: Any) -> Any:
        """Turn a `Pending` into a tensor: without an activation behind it, x_out is q itself."""
        return value.settled(value.true, self.rule) if isinstance(value, Pending) else value

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Tensor:
        """The rows of a constant."""
        return self.rows_of(source)

    def operation(self, step: RowStep, sources: list[Any]) -> Any:
        """One operation: a linear map begins a `Pending`, an activation settles it, anything else reads settled values."""
        if self.rule.is_gradient:
            return step.run(sources)
        args, kwargs = step.filled(sources)
        if plain_name(step.function) == "linear":
            return self._linear(*args, **kwargs)
        if self._is_activation(step) and args and isinstance(args[0], Pending):
            true = [source.true if source is args[0] else source for source in sources]
            return args[0].settled(step.run(true), self.rule)
        return step.run([self.settle(source) for source in sources])

    def _is_activation(self, step: RowStep) -> bool:
        """Whether a step is a function of one value, number by number."""
        alone = sum(isinstance(source, Ref) for source in step.sources) == 1
        return alone and kind_of(step.function, step.arguments[0]) in (Kind.RECTIFIER, Kind.ACTIVATION)

    def _linear(self, rows: Any, weight: Tensor, bias: Tensor | None = None) -> Pending:
        """A linear map under the rule: true numbers, and the raised map that is differentiated."""
        rows = self.settle(rows)
        true = functional.linear(rows.detach(), weight, bias)
        up = raised(weight, self.gamma)
        assert up is not None
        return Pending(true, functional.linear(rows, up, raised(bias, self.gamma)))


class JointRunner(Runner):
    """The same where a layer is a sum of calls side by side: linear maps that are added are one linear map."""

    def operation(self, step: RowStep, sources: list[Any]) -> Any:
        """A sum of what linear maps made stays pending: its q^γ is the sum of theirs."""
        plain = plain_name(step.function) in ("add", "iadd", "radd") and len(sources) == len(step.leaves) == 2
        if plain and all(isinstance(source, Pending) for source in sources):
            a, b = sources
            return Pending(a.true + b.true, a.raised + b.raised)
        return super().operation(step, sources)
