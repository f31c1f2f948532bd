"""Features at a kink of the model: autograd's derivative by them is a convention there, and differences say something else.

sign(x) · log1p(|x|) has slope 1 at x = 0, and autograd says 0. That looks like a gradient that `detach` stopped, but a stop is
everywhere: beside the features, a little way off in every number, gradients and differences agree again if it is a kink.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.graph.copies import Copies
from edgewise.model.call import ModelCall
from edgewise.model.twin import make_twin
from edgewise.question.feature_audit import _features, _random, _run, _stepped
from edgewise.question.gradient_audit import STEPS, AuditedSlope, as_logit, compared, graph_in_double
from edgewise.question.posed_question import PosedQuestion, sub_target
from edgewise.question.target import Target

_BESIDE = 1e-2  # of the largest feature: how far off is looked
_RIGHT = 1e-2  # by which share of its parts a slope may be off


@dataclass(frozen=True)
class FeatureKink:
    """Gradients by features are right beside the features, and not at them."""

    products_hold: bool
    """Whether each feature times its gradient is right all the same, as where the kink is at features of 0."""

    @property
    def sentence(self) -> str:
        """What a user should know."""
        return (
            "The model has a kink at some of these features (sign, abs or a step at exactly this number, often 0): the "
            "gradient by such a feature is autograd's convention, not the slope of the model. Use method='occlusion', which "
            "takes no gradient."
        )


def kink_of_features(question: PosedQuestion, position: int = 0) -> FeatureKink | None:
    """The kink at one target's features; None if gradients are right there, if they are wrong beside them, too, or unknown."""
    positions = torch.tensor([position])
    try:
        with question.borrowed():
            copies = question.copies(positions)[0]
            twin = make_twin(question.call.model)
            if twin.borrowed:
                return None
            call = replace(question.call, changes_input=False).in_double(twin.model.double())
            target = as_logit(sub_target(question, positions))
            here = {name: value.detach().double() for name, value in _features(question.call, copies.data).items()}
            around = _random(here)
            largest = max((float(value.abs().max()) for value in here.values()), default=0.0) or 1.0
            beside = {name: value + _BESIDE * largest * around[name] for name, value in here.items()}
            graph = replace(copies, data=graph_in_double(copies.data))
            other = {name: part.flip(0) for name, part in around.items()}
            given = _slope(call, graph, target, here, other)
            if not math.isfinite(given.gradient) or _is_right(given):
                return None
            if not _is_right(_slope(call, graph, target, beside, other)):
                return None
            products = {name: part * here[name] for name, part in around.items()}
            return FeatureKink(_is_right(_slope(call, graph, target, here, products)))
    except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None


def _is_right(slope: AuditedSlope) -> bool:
    return not slope.undecided and slope.error <= _RIGHT


def _slope(
    call: ModelCall, copies: Copies, target: Target, at: dict[Any, Tensor], along: dict[Any, Tensor]
) -> AuditedSlope:
    """The slope of the model in float64, at some features along a direction, by autograd and by differences."""
    leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
    with torch.enable_grad():
        value = target.value(_run(call, copies.data, leaves)[copies.rows]).sum()
    found: tuple[Tensor | None, ...] = (None,) * len(leaves)
    if value.requires_grad:
        found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
    parts = [g * d for g, d in zip(found, along.values(), strict=True) if g is not None]
    with torch.no_grad():
        rows = [_run(call, copies.data, _stepped(at, along, step))[copies.rows] for step in STEPS]
    values = [float(target.value(row)[0]) for row in rows]
    size = sum(float(part.abs().sum()) for part in parts)
    return compared(sum(float(part.sum()) for part in parts), size, values, torch.double)
