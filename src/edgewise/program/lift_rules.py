"""DeepLIFT's rules (Shrikumar et al., ICML 2017): how a change between two runs is shared among what caused it.

A `Lift` is a number in two runs, the model's own (ω = 1) and the reference (ω = 0). Its change Δ is handed back by multipliers:

    linear maps     as they are
    f(x)            Δf / Δx, number by number (the rescale rule); where x hardly moves, the derivative
    a · b           each factor times the mean of the other one: Δ(ab) = Δa · (b + b′)/2 + Δb · (a + a′)/2
    log Σ exp x     exp, sum and log in turn; softmax is exp(x − log Σ exp x)
    max(a, b)       (a + b)/2 + |a − b|/2

Every rule hands out the whole change and nothing else, so contributions sum to the change of the output. The multipliers
are carried as derivatives of `actual`: autograd multiplies them along every path.

Example: z = ω · x with ω from 0 to 1 and x from 2 to 10, Δz = 10. ω gets 1 · (10 + 2)/2 = 6, x gets 8 · (1 + 0)/2 = 4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Lift:
    """A value in both runs.

    >>> omega = torch.ones(1, requires_grad=True)
    >>> x = Lift(torch.tensor([10.0], requires_grad=True), torch.tensor([2.0]))
    >>> z = product(Lift(omega, torch.zeros(1)), x)
    >>> torch.autograd.grad(z.actual, [omega, x.actual])                   # the multipliers of ω and of x
    (tensor([6.]), tensor([0.5000]))
    """

    actual: Any
    """At ω = 1; its derivative is the multiplier. A tensor, or what a layer prepared of its features."""
    reference: Any
    """At ω = 0."""

    @property
    def moves(self) -> bool:
        """Whether it can differ between the runs; what reads constants alone is one object in both."""
        return self.actual is not self.reference


def fixed(value: Any) -> Lift:
    """What is the same in both runs."""
    return Lift(value, value)


def carried(true: Tensor, rule: Tensor) -> Tensor:
    """The true number, with the derivative of another one."""
    return true.detach() + (rule - rule.detach())


def linear(function: Callable[..., Tensor], *values: Lift) -> Lift:
    """A function that is affine in all its arguments together: its multipliers are its derivatives."""
    actual = function(*(value.actual for value in values))
    return Lift(actual, function(*(value.reference for value in values)))


def rescaled(function: Callable[[Tensor], Tensor], x: Lift) -> Lift:
    """A function of single numbers, by the rescale rule.

    >>> x = Lift(torch.tensor([3.0, 2.0], requires_grad=True), torch.tensor([-1.0, 2.0]))
    >>> y = rescaled(torch.relu, x)                                        # 0 → 3 while x goes −1 → 3; the other one stays
    >>> torch.autograd.grad(y.actual.sum(), x.actual)[0]
    tensor([0.7500, 1.0000])
    """
    now = x.actual.detach()
    with torch.no_grad():
        actual, reference = function(now), function(x.reference)
    before = torch.broadcast_to(x.reference, actual.shape)
    now = torch.broadcast_to(now, actual.shape)
    change = now - before
    still = change.abs() <= torch.finfo(now.dtype).eps ** (2 / 3) * (now.abs() + before.abs())
    slope = (actual - reference) / torch.where(still, 1.0, change)
    if bool(still.any()):
        slope = torch.where(still, _derivative(function, (now + before) / 2), slope)
    return Lift(carried(actual, slope * x.actual), reference)


def _derivative(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = at.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return found


def product(a: Lift, b: Lift) -> Lift:
    """A product: each factor is multiplied by the mean of the other one."""
    mean_a, mean_b = ((value.actual.detach() + value.reference) / 2 for value in (a, b))
    return Lift(carried(a.actual * b.actual, a.actual * mean_b + b.actual * mean_a), a.reference * b.reference)


def quotient(a: Lift, b: Lift) -> Lift:
    """A quotient: a product with the reciprocal."""
    return product(a, rescaled(torch.reciprocal, b))


def largest(a: Lift, b: Lift, sign: float = 1.0) -> Lift:
    """The larger of two numbers (`sign=-1`: the smaller): half their sum, and half their distance by the rescale rule."""
    apart = rescaled(torch.abs, linear(torch.sub, a, b))
    return linear(lambda x, y, d: (x + y + sign * d) / 2, a, b, apart)


def log_sum(x: Lift, total: Callable[[Tensor], Tensor], top: Tensor) -> Lift:
    """log Σ exp(x − top) of groups: `total` sums groups, `top` is what keeps exponents small, the same in both runs."""
    small = torch.finfo(x.reference.dtype).tiny
    return rescaled(
        lambda t: t.clamp(min=small).log(), linear(total, rescaled(torch.exp, linear(lambda t: t - top, x)))
    )


def log_softmax(x: Lift, dim: int) -> Lift:
    """The logarithm of a softmax along an axis."""
    top = torch.maximum(x.actual.detach(), x.reference).amax(dim=dim, keepdim=True)
    below = log_sum(x, lambda t: t.sum(dim=dim, keepdim=True), top)
    return linear(lambda t, total: t - top - total, x, below)


def softmax(x: Lift, dim: int) -> Lift:
    """A softmax along an axis."""
    return rescaled(torch.exp, log_softmax(x, dim))


def layer_norm(
    x: Lift, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Lift:
    """A layer norm over the last axes: centred, divided by the root of the mean square, then scaled."""
    axes = tuple(range(-len(tuple(shape)), 0))
    centred = linear(lambda t: t - t.mean(dim=axes, keepdim=True), x)
    spread = linear(lambda t: t.mean(dim=axes, keepdim=True), product(centred, centred))
    found = product(centred, rescaled(lambda t: (t + eps).rsqrt(), spread))
    return linear(lambda t: (t if weight is None else t * weight) + (0 if bias is None else bias), found)


def normalize(x: Lift, dim: int = 1, eps: float = 1e-12) -> Lift:
    """Rows divided by their length."""
    squares = linear(lambda t: t.sum(dim=dim, keepdim=True), product(x, x))
    return product(x, rescaled(lambda t: t.clamp(min=0).sqrt().clamp(min=eps).reciprocal(), squares))
