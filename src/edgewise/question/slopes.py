"""Is a gradient the derivative of what the model computes? Central differences in float64 say so, for a target or two.

A `detach`, a `no_grad` block or a checkpoint in `forward` stops autograd, but not the function. The model is copied in float64
and run on copies of one target's neighbourhood side by side, each under weights a little further along one random direction
d: the slope of f(1 + t · d) must be the gradient times d. All five points are one forward pass.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine
from edgewise.errors import EdgewiseError, ModelError
from edgewise.graph.copies import Copies
from edgewise.model.call import check_model
from edgewise.model.trace import record
from edgewise.model.twin import make_twin
from edgewise.model.weighted_model import WeightedModel
from edgewise.program.execution import LoweredEngine
from edgewise.question.posed_question import PosedQuestion, sub_target
from edgewise.question.proof import random_weight

_STEPS = (0.0, 1e-4, -1e-4, 1e-5, -1e-5)
_AGREE = 1e-3
"""By which share of the sum of all |d · gradient| a slope may be off: float32 gradients are no better."""


@dataclass(frozen=True)
class Slope:
    """A slope along one direction, found in two ways."""

    gradient: float
    """By the gradient that explanations use."""
    low: float
    high: float
    """By differences; apart at a kink."""
    scale: float
    """Σ |d · gradient| over all weights: what the slope is a sum of."""
    decided: bool
    """Whether the differences agree with each other, so that they say anything."""

    @property
    def error(self) -> float:
        """By which share the gradient is off; 0 between the two sides of a kink."""
        off = max(self.low - self.gradient, self.gradient - self.high, 0.0)
        return off / self.scale if self.scale > 0 else (0.0 if off == 0 else float("inf"))


def audit_slopes(question: PosedQuestion, position: int = 0) -> Slope | None:
    """The slope at one target, both ways; None if the model cannot be run in float64."""
    positions = torch.tensor([position])
    engine = question.engine(positions)
    edge, own = _gradients(question, engine, positions)
    ids = (engine.edge_id, engine.self_node)
    like = question.target.truth
    along = [2 * random_weight(part, question.num_layers, like) - 1 for part in ids]
    separable = torch.tensor(question.separable, device=like.device).view(-1, 1)
    along[1] = along[1] * separable.to(along[1].dtype)
    try:
        values = _values_along(question, positions, ids, along)
    except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None
    parts = [edge.double() * along[0].double(), own.double() * along[1].double()]
    gradient = sum(float(part.sum()) for part in parts)
    scale = sum(float(part.abs().sum()) for part in parts)
    return _compared(gradient, scale, values)


def _gradients(question: PosedQuestion, engine: Engine, positions: Tensor) -> tuple[Tensor, Tensor]:
    """∂/∂ω and ∂/∂s at 1, as explanations take them."""
    target = sub_target(question, positions)
    with question.borrowed():
        if isinstance(engine, LoweredEngine):
            found = engine.gradients(target.value)
            if found is not None:
                return found
        like = question.target.truth
        edge = like.new_ones(question.num_layers, engine.edge_id.numel()).requires_grad_()
        own = like.new_ones(question.num_layers, engine.self_node.numel()).requires_grad_()
        value = target.value(engine.output(edge, own)).sum()
        if not value.requires_grad:
            return torch.zeros_like(edge), torch.zeros_like(own)
        gradients = torch.autograd.grad(value, [edge, own], allow_unused=True)
        of_edge, of_own = (torch.zeros_like(w) if g is None else g for w, g in zip((edge, own), gradients, strict=True))
        return of_edge, of_own


def _values_along(
    question: PosedQuestion, positions: Tensor, ids: tuple[Tensor, Tensor], along: list[Tensor]
) -> list[float]:
    """f(1 + t · d) in float64, for every step t."""
    twin = make_twin(question.call.model)
    if twin.borrowed:
        raise ModelError(twin.borrowed)
    model = twin.model.double()
    call = replace(question.call, model=model)
    layers = check_model(model)
    graphs = question.copies(positions.repeat(len(_STEPS)))
    target = replace(
        sub_target(question, positions), truth=question.target.truth[positions.to(question.device)].double()
    )
    found: list[float] = []
    with question.loan.taken(), torch.no_grad():
        for number, copies in enumerate(graphs):
            steps = _STEPS if len(graphs) == 1 else _STEPS[number : number + 1]
            found += _run(question, call, layers, copies, target, steps, ids, along)
    return found


def _run(question, call, layers, copies: Copies, target, steps, ids, along) -> list[float]:  # type: ignore[no-untyped-def]
    double = replace(copies, data=_in_double(copies.data))
    weighted = WeightedModel(call, layers, record(call, layers, double.data))
    engine = CopiesEngine(weighted, double)
    step = torch.tensor(steps, dtype=torch.float64, device=engine.owner.device)
    weights = []
    for own, owner, item in ((False, engine.owner, engine.edge_id), (True, engine.self_owner, engine.self_node)):
        lifted = question.nodes(item) if own else question.columns(item)
        sorted_ids, order = ids[int(own)].sort()
        place = order[torch.searchsorted(sorted_ids, lifted).clamp(max=max(len(order) - 1, 0))]
        weights.append(1 + step[owner] * along[int(own)].double()[:, place])
    rows = engine.output(*weights)
    column = target.column.expand(len(rows))
    return replace(target, column=column, truth=target.truth.expand(len(rows), -1)).value(rows).tolist()


def _in_double(graph: Data) -> Data:
    """Floating-point attributes in float64."""
    double = copy.copy(graph)
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point():
            double[key] = value.double()
    return double


def _compared(gradient: float, scale: float, values: list[float]) -> Slope:
    """Central differences that agree, or the two sides of a kink."""
    middle, right, left, near_right, near_left = values
    coarse, fine = (right - left) / 2e-4, (near_right - near_left) / 2e-5
    size = max(abs(coarse), abs(fine), 1e-12)
    if abs(coarse - fine) <= _AGREE * max(size, scale):
        return Slope(gradient, fine, fine, max(scale, size), decided=True)
    sides = sorted(((near_right - middle) / 1e-5, (middle - near_left) / 1e-5))
    inside = sides[0] - _AGREE * scale <= gradient <= sides[1] + _AGREE * scale
    return Slope(gradient, sides[0], sides[1], max(scale, size), decided=inside)
