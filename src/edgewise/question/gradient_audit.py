"""Is a gradient the derivative of what the model computes? Central differences in float64 say so, for a target or two.

A `detach`, a `no_grad` block or a checkpoint in `forward` stops autograd, but not the function. The model is copied in float64
and run on copies of one target's neighbourhood side by side, each under weights a little further along one random direction
d: the slope of f(1 + t · d) must be the gradient times d. All five points are one forward pass.

A lowered model gave the same values as the user's at ω = 1 and at random ω, so its program is the function: its copy in
float64 is run, and no module of the model.
"""

import copy
import logging
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine
from edgewise.errors import EdgewiseError, ModelError, StaleQuestionError
from edgewise.graph.copies import Copies
from edgewise.model.call import check_model
from edgewise.model.twin import make_twin
from edgewise.model.weighted_model import WeightedModel
from edgewise.program.execution import LoweredEngine
from edgewise.question.equality import random_weight
from edgewise.question.posed_question import PosedQuestion, sub_target
from edgewise.question.target import Target

log = logging.getLogger("edgewise")
Direction: TypeAlias = tuple[Tensor, Tensor]
"""How ω `[L, M]` and s `[L, S]` change."""
STEPS = (0.0, 1e-4, -1e-4, 1e-5, -1e-5)
_UNITS = 4
"""In the last place of the explained number: a slope that is off by less may be right, as far as anybody can tell."""
_AGREE = 1e-3
"""By which share of the sum of all |d · gradient| a slope may be off: float32 gradients are no better."""


@dataclass(frozen=True)
class AuditedSlope:
    """A slope along one direction, found in two ways."""

    gradient: float
    """By the gradient that explanations use."""
    low: float
    high: float
    """By differences; apart at a kink."""
    scale: float
    """Σ |d · gradient| over all weights: what the slope is a sum of."""
    undecided: str = ""
    """Why the differences say nothing; empty if they do."""

    @property
    def off(self) -> float:
        """How far the gradient is from what the differences say; 0 between the two sides of a kink."""
        return max(self.low - self.gradient, self.gradient - self.high, 0.0)

    @property
    def error(self) -> float:
        """The same as a share of the scale."""
        return self.off / self.scale if self.scale > 0 else (0.0 if self.off == 0 else float("inf"))


def audit_slopes(question: PosedQuestion, position: int = 0) -> AuditedSlope | None:
    """The slope at one target, both ways; None if the model cannot be run in float64.

    Along a random direction first. Where that runs over a kink (parallel edges that tie in a maximum), also along the
    direction in which all weights change alike: ties stay ties.
    """
    positions = torch.tensor([position])
    engine = question.engine(positions)
    gradients = _gradients(question, engine, positions)
    ids = (engine.edge_id, engine.self_node)
    like = question.target.truth
    random = [2 * random_weight(part, question.num_layers, like) - 1 for part in ids]
    scored = torch.tensor(question.separable, device=like.device).view(-1, 1).to(like.dtype)
    found: AuditedSlope | None = None
    for edge, own in (random, (torch.ones_like(part) for part in random)):
        along = edge, own * scored
        try:
            values = (
                _small_values(question, engine, positions, along)
                or _lowered_values(question, positions, ids, along)
                or _values_along(question, positions, ids, along)
            )
        except StaleQuestionError:
            raise
        except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
            return found
        parts = [g.double() * d.double() for g, d in zip(gradients, along, strict=True)]
        sums = sum(float(p.sum()) for p in parts), sum(float(p.abs().sum()) for p in parts)
        found = compared(*sums, values, like.dtype)
        if found.low == found.high:
            return found
    return found


def _gradients(question: PosedQuestion, engine: Engine, positions: Tensor) -> tuple[Tensor, Tensor]:
    """∂/∂ω and ∂/∂s at 1, as explanations take them."""
    target = as_logit(sub_target(question, positions))
    with question.borrowed():
        if isinstance(engine, LoweredEngine):
            found = engine.gradients(target)
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


def as_logit(target: Target) -> Target:
    """The logit of the same class: the softmax behind it is ours, and in float32 a saturated one has no digits left."""
    return replace(target, of="logit")


def _values_along(
    question: PosedQuestion, positions: Tensor, ids: tuple[Tensor, Tensor], along: Direction
) -> list[float]:
    """f(1 + t · d) in float64, for every step t."""
    twin = make_twin(question.call.model)
    if twin.borrowed:
        raise ModelError(twin.borrowed)
    call = question.call.in_double(twin.model.double())
    layers = check_model(call.model)
    trace = question.trace.on(dict(layers))
    target = as_logit(sub_target(question, positions.repeat(len(STEPS))))

    def run(graphs: list[Copies]) -> list[float]:
        found: list[Tensor] = []
        for number, copies in enumerate(graphs):
            engine = CopiesEngine(
                WeightedModel(call, layers, trace), replace(copies, data=graph_in_double(copies.data))
            )
            steps = torch.tensor(STEPS if len(graphs) == 1 else STEPS[number : number + 1], dtype=torch.float64)
            edge = _moved(steps, engine.owner, question.columns(engine.edge_id), ids[0], along[0])
            own = _moved(steps, engine.self_owner, question.nodes(engine.self_node), ids[1], along[1])
            found.append(engine.output(edge, own))
        values: list[float] = target.value(torch.cat(found)).tolist()
        return values

    with question.loan.taken(), torch.no_grad():
        # one copy in a pass: those of a model that is not known operation by operation may change each other's output
        values = run(question.plain_copies(positions) * len(STEPS))
        if not is_true(values[0], question, positions):  # features that are mixed before the first layer
            values = run(question.whole_copies(positions) * len(STEPS))
    return values


def _small_values(question: PosedQuestion, engine: Engine, positions: Tensor, along: Direction) -> list[float]:
    """The same through the engine of one target with few neighbours; empty for others."""
    if not isinstance(engine, LoweredEngine):
        return []
    steps = torch.tensor(STEPS, dtype=torch.float64).view(-1, 1, 1)
    with question.borrowed(), torch.no_grad():
        rows = engine.double_outputs(*(1 + steps * part.double().cpu() for part in along))
        if rows is None:
            return []
        found: list[float] = as_logit(sub_target(question, positions.repeat(len(STEPS)))).value(rows).tolist()
    return found if is_true(found[0], question, positions) else []


def _lowered_values(
    question: PosedQuestion, positions: Tensor, ids: tuple[Tensor, Tensor], along: Direction
) -> list[float]:
    """The same through the program of a lowered model, for all steps in one pass.

    Empty if the model is not lowered, or if its program does not give the target's number in float64.
    """
    repeated, steps = positions.repeat(len(STEPS)), torch.tensor(STEPS, dtype=torch.float64)
    try:
        with question.borrowed(), torch.no_grad():
            engine = question.double_engine(repeated)
            if engine is None:
                return []
            edge = _moved(steps, engine.owner, question.columns(engine.edge_id), ids[0], along[0])
            own = _moved(steps, engine.self_owner, question.nodes(engine.self_node), ids[1], along[1])
            found: list[float] = as_logit(sub_target(question, repeated)).value(engine.output(edge, own)).tolist()
    except (RuntimeError, TypeError, ValueError) as reason:  # a number is float32 for good: the model is run instead
        log.debug("the program does not run in float64: %s", reason)
        return []
    return found if is_true(found[0], question, positions) else []


def is_true(value: float, question: PosedQuestion, positions: Tensor) -> bool:
    """Whether a number is the target's, up to the rounding of float32."""
    target = as_logit(sub_target(question, positions))
    truth = float(target.value(target.truth)[0])
    return abs(value - truth) <= 1e-3 * max(abs(truth), 1e-3)


def _moved(steps: Tensor, owner: Tensor, item: Tensor, ids: Tensor, along: Tensor) -> Tensor:
    """1 + t · d for every copy, `[L, copies]`: t is its owner's step, d `[L, ids]` the direction of what it copies."""
    if len(ids) == 0:
        return torch.ones(len(along), len(item), dtype=torch.float64, device=owner.device)
    known, order = ids.sort()
    place = torch.searchsorted(known, item).clamp(max=len(known) - 1)
    step = steps.to(owner.device)[owner] * (known[place] == item)  # an edge of the rim keeps its weight
    return 1 + step * along.double()[:, order[place]]


def graph_in_double(graph: Data) -> Data:
    """Floating-point attributes in float64."""
    double = copy.copy(graph)
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point():
            double[key] = value.double()
    return double


def compared(gradient: float, scale: float, values: list[float], dtype: torch.dtype) -> AuditedSlope:
    """Central differences that agree, or the two sides of a kink: ties of a maximum are kinks at the very point.

    `dtype` is that of the gradient. Where the true slope is zero (a norm takes out whatever weights do to a graph of equal
    nodes), all of a gradient is rounding, and so is its scale: a few units in the last place of the value say nothing.
    """
    middle, right, left, near_right, near_left = values
    coarse, fine = (right - left) / 2e-4, (near_right - near_left) / 2e-5
    low, high = sorted(((near_right - middle) / 1e-5, (middle - near_left) / 1e-5))
    size = max(abs(coarse), abs(fine), scale, 1e-12)
    if high - low <= _AGREE * size and abs(coarse - fine) <= _AGREE * size:
        found = AuditedSlope(gradient, fine, fine, size)
        rounding = found.error > _AGREE and found.off <= _UNITS * torch.finfo(dtype).eps * abs(middle)
        return replace(found, undecided="the slope: less than the rounding of the number") if rounding else found
    inside = low - _AGREE * size <= gradient <= high + _AGREE * size
    return AuditedSlope(gradient, low, high, size, "" if inside else "the slope at a kink")
