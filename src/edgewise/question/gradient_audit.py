"""Is a gradient the derivative of what the model computes? Central differences in float64 say so, for some targets or for all.

A `detach`, a `no_grad` block or a checkpoint in `forward` stops autograd, but not the function. The model is copied in float64
and run under weights a little further along one random direction d, for all targets at once: the slope of f(1 + t · d) must be
the gradient times d, target by target.

A lowered model gave the same values as the user's at ω = 1 and at random ω, so its program is the function: its copy in
float64 is run, and no module of the model.
"""

import copy
import logging
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine
from edgewise.errors import EdgewiseError, ModelError, StaleQuestionError
from edgewise.graph.copies import Copies
from edgewise.model.call import check_model
from edgewise.model.gradient_stops import NAMES, GradientStops, named_so, refuse_writes
from edgewise.model.twin import make_twin
from edgewise.model.weighted_model import WeightedModel
from edgewise.program.execution import LoweredEngine
from edgewise.program.ir import RowStep
from edgewise.question.equality import random_weight
from edgewise.question.link_engine import LinkEngine
from edgewise.question.posed_question import PosedQuestion, sub_target
from edgewise.question.target import Target

log = logging.getLogger("edgewise")
Direction: TypeAlias = tuple[Tensor, Tensor]
"""How ω `[L, M]` and s `[L, S]` change."""
STEPS = (0.0, 1e-4, -1e-4, 1e-5, -1e-5)
_UNITS = 4
"""In the last place of the explained number: a slope that is off by less may be right, as far as anybody can tell."""
_NOISE = 1024
"""How many times that gradients may add up to where the number does not move at all, step by step through a model."""
AT_KINK = "the slope at a kink"
_SIDES = 4.0
"""How far a gradient may be from both sides of a kink, in distances between them: it may be outside where several meet."""
_AGREE = 1e-3
"""By which share of the sum of all |d · gradient| a slope may be off: float32 gradients are no better."""


@dataclass(frozen=True)
class Audited:
    """What was found at some targets."""

    slopes: "list[AuditedSlope | None]"
    """One for each; None: the model cannot be run in float64."""
    may_stop: bool
    """Whether gradients may have stopped on their way: then none can speak for other targets."""


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
    slack: float = 0.0
    """How far the differences may be from the slope: by their rounding, and by a bend."""

    @property
    def off(self) -> float:
        """How far the gradient is from what the differences say; 0 between the two sides of a kink."""
        return max(self.low - self.gradient - self.slack, self.gradient - self.high - self.slack, 0.0)

    @property
    def is_beyond_kink(self) -> bool:
        """Whether a kink left it undecided, but the gradient is much further from both slopes than they are apart."""
        return self.undecided == AT_KINK and self.off > _SIDES * (self.high - self.low)

    @property
    def error(self) -> float:
        """The same as a share of the scale."""
        return self.off / self.scale if self.scale > 0 else (0.0 if self.off == 0 else float("inf"))


def audit_slopes(question: PosedQuestion, positions: Tensor) -> Audited:
    """The slopes at some targets, both ways.

    Along a random direction first. Where that runs over a kink (parallel edges that tie in a maximum), also along the
    direction in which all weights change alike: ties stay ties. So it is where gradients may stop: along one direction alone,
    what is wrong may happen to add up to nothing.
    """
    engine = question.engine(positions)
    gradients, may_stop = _gradients(question, engine, positions)
    left, found = torch.arange(len(positions)), Audited([None] * len(positions), may_stop)
    for is_random in (True, False):
        directions = [_direction(question, part, is_random=is_random) for part in (engine.edge_id, engine.self_node)]
        along = directions[0], directions[1] * _scored(question)
        try:
            values = _values(question, engine, positions, along, left, is_random=is_random)
        except StaleQuestionError:
            raise
        except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
            return found
        owners = (engine.owner, engine.self_owner)
        sums = torch.zeros(2, len(positions), dtype=torch.double, device=question.device)
        for part, step, owner in zip(gradients, along, owners, strict=True):
            moved = part.double() * step.double()
            if len(positions) == 1:
                sums += torch.stack([moved.sum(), moved.abs().sum()]).view(2, 1)
            else:
                sums.index_add_(1, owner, torch.stack([moved.sum(0), moved.abs().sum(0)]))
        for place, of_target in zip(left.tolist(), values.t().tolist(), strict=True):
            slope, scale = sums[:, place].tolist()
            now = compared(slope, scale, of_target, question.target.truth.dtype)
            found.slopes[place] = _the_worse(found.slopes[place], now)
        left = torch.tensor([i for i in left.tolist() if may_stop or is_bent(found.slopes[i])], dtype=torch.long)
        if not len(left):
            break
    return found


def _the_worse(before: AuditedSlope | None, now: AuditedSlope) -> AuditedSlope:
    """Of two directions the one that is further off; one that starts at a kink says less than one that does not."""
    if before is None or is_bent(before) or before.undecided:
        return now
    return before if is_bent(now) or now.undecided or now.error <= before.error else now


def taken(value: Tensor, of: list[Tensor]) -> tuple[Tensor | None, ...]:
    """Autograd's gradients; some checkpoints refuse to be asked for them."""
    try:
        return torch.autograd.grad(value, of, allow_unused=True)
    except RuntimeError as reason:
        refuse_writes(reason)
        raise ModelError(
            f"Autograd cannot take gradients through this model: {str(reason).splitlines()[0]} Use method='occlusion', which "
            f"takes none."
        ) from reason


def is_bent(slope: AuditedSlope | None) -> bool:
    """Whether differences lie apart: at a kink."""
    return slope is not None and slope.low != slope.high


def _direction(question: PosedQuestion, ids: Tensor, *, is_random: bool) -> Tensor:
    """`[L, ids]`: by how much weights change along a direction, the same for a copy as for the original."""
    like = question.target.truth
    if not is_random:
        return like.new_ones(question.num_layers, len(ids))
    return 2 * random_weight(ids, question.num_layers, like) - 1


def _scored(question: PosedQuestion) -> Tensor:
    """`[L, 1]`: 1 where own terms have a score."""
    like = question.target.truth
    return torch.tensor(question.separable, device=like.device).view(-1, 1).to(like.dtype)


def _gradients(question: PosedQuestion, engine: Engine, positions: Tensor) -> tuple[tuple[Tensor, Tensor], bool]:
    """∂/∂ω and ∂/∂s at 1, as explanations take them; and whether a gradient may have stopped on its way."""
    target = as_logit(sub_target(question, positions))
    with question.borrowed():
        if isinstance(engine, LoweredEngine):
            found = engine.gradients(target)
            if found is not None:
                return found, question.subject.is_scripted
            steps = [step.function for step in engine.program.steps if isinstance(step, RowStep)]
            return _by_autograd(question, engine, target), question.subject.is_scripted or named_so(steps)
        with GradientStops() as stops:
            found = engine.gradients(target) if isinstance(engine, LinkEngine) else None
            if found is None:
                found = _by_autograd(question, engine, target)
        return found, stops.seen or question.subject.is_scripted or not NAMES.isdisjoint(question.trace.operation_names)


def _by_autograd(question: PosedQuestion, engine: Engine, target: Target) -> tuple[Tensor, Tensor]:
    like = question.target.truth
    edge = like.new_ones(question.num_layers, engine.edge_id.numel()).requires_grad_()
    own = like.new_ones(question.num_layers, engine.self_node.numel()).requires_grad_()
    value = target.value(engine.output(edge, own)).sum()
    if not value.requires_grad:
        return torch.zeros_like(edge), torch.zeros_like(own)
    gradients = taken(value, [edge, own])
    of_edge, of_own = (torch.zeros_like(w) if g is None else g for g, w in zip(gradients, (edge, own), strict=True))
    return of_edge, of_own


def as_logit(target: Target) -> Target:
    """The logit of the same class: the softmax behind it is ours, and in float32 a saturated one has no digits left."""
    return replace(target, of="logit")


def _values(
    question: PosedQuestion, engine: Engine, positions: Tensor, along: Direction, left: Tensor, *, is_random: bool
) -> Tensor:
    """`[steps, targets left]`: f(1 + t · d) in float64, for every step t; `left` are places among the positions."""
    found = _of_engine(question, engine, positions, along)
    if found is not None:
        return found[:, left]
    chosen = positions[left]
    found = _of_program(question, chosen, is_random=is_random)
    return _of_model(question, chosen, is_random=is_random) if found is None else found


def _of_model(question: PosedQuestion, positions: Tensor, *, is_random: bool) -> Tensor:
    """By the model itself, on copies of the targets or on the graph that they share."""
    twin = make_twin(question.call.model)
    if twin.borrowed:
        raise ModelError(twin.borrowed)
    call = question.call.in_double(twin.model.double())
    layers = check_model(call.model)
    model = WeightedModel(call, layers, question.trace.on(dict(layers)))
    target = as_logit(sub_target(question, positions))

    def run(engines: list[CopiesEngine], step: float) -> Tensor:
        rows = [engine.output(*_moved(question, engine, step, is_random=is_random)) for engine in engines]
        return target.value(torch.cat(rows))

    with question.loan.taken(), torch.no_grad():
        engines = _in_double(model, question.audited_copies(positions))
        first = run(engines, STEPS[0])
        if not are_true(first, question, positions):  # features that are mixed before the first layer
            engines = _in_double(model, question.whole_copies(positions))
            first = run(engines, STEPS[0])
        # one step in a pass: copies of a model that is not known operation by operation may change each other's output
        return torch.stack([first, *(run(engines, step) for step in STEPS[1:])])


def _in_double(model: WeightedModel, graphs: list[Copies]) -> list[CopiesEngine]:
    return [CopiesEngine(model, replace(copies, data=graph_in_double(copies.data))) for copies in graphs]


def _of_engine(question: PosedQuestion, engine: Engine, positions: Tensor, along: Direction) -> Tensor | None:
    """The same through the engine that has the gradients, if it knows how to run in float64; None for others."""
    if not isinstance(engine, LoweredEngine):
        return None
    steps = torch.tensor(STEPS, dtype=torch.float64).view(-1, 1, 1)
    with question.borrowed(), torch.no_grad():
        rows = engine.double_outputs(*(1 + steps * part.double().cpu() for part in along))
        if rows is None:
            return None
        found = _numbers(question, rows.view(-1, rows.size(-1)), positions)
    return found if are_true(found[0], question, positions) else None


def _of_program(question: PosedQuestion, positions: Tensor, *, is_random: bool) -> Tensor | None:
    """The same through the program of a lowered model, for all steps in one pass.

    None if the model is not lowered, or if its program does not give the targets' numbers in float64.
    """
    repeated = positions.repeat(len(STEPS))
    try:
        with question.borrowed(), torch.no_grad():
            engine = question.double_engine(repeated)
            if engine is None:
                return None
            owners = (engine.owner, engine.self_owner)
            steps = torch.tensor(STEPS, dtype=torch.float64, device=engine.owner.device)
            step = [steps[owner // len(positions)] for owner in owners]
            found = _numbers(question, engine.output(*_moved(question, engine, step, is_random=is_random)), positions)
    except (RuntimeError, TypeError, ValueError) as reason:  # a number is float32 for good: the model is run instead
        log.debug("the program does not run in float64: %s", reason)
        return None
    return found if are_true(found[0], question, positions) else None


def _numbers(question: PosedQuestion, rows: Tensor, positions: Tensor) -> Tensor:
    """`[steps, targets]`: the explained numbers of rows that come step by step."""
    target = as_logit(sub_target(question, positions.repeat(len(STEPS))))
    return target.value(rows).view(len(STEPS), -1)


def _moved(question: PosedQuestion, engine: Any, step: Any, *, is_random: bool) -> Direction:
    """1 + t · d for every copy of an edge and of an own term; `step` is t, or t of each copy of either."""
    step = step if isinstance(step, list) else [step, step]
    ids = (question.columns(engine.edge_id), question.nodes(engine.self_node))
    of_edges, of_own = (
        t * _direction(question, part, is_random=is_random).double() for t, part in zip(step, ids, strict=True)
    )
    return 1 + of_edges, 1 + of_own * _scored(question).double()


def are_true(values: Tensor, question: PosedQuestion, positions: Tensor, *, as_asked: bool = False) -> bool:
    """Whether numbers are those of the targets, up to the rounding of float32; `as_asked`: not their logits."""
    target = sub_target(question, positions)
    target = target if as_asked else as_logit(target)
    truth = target.value(target.truth)
    return bool(((values - truth).abs() <= 1e-3 * truth.abs().clamp(min=1e-3)).all())


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
    rounded = _UNITS * torch.finfo(torch.float64).eps * abs(middle) / 1e-5
    unit = _UNITS * torch.finfo(dtype).eps * abs(middle)
    if max(abs(low), abs(high)) <= 64 * rounded and 0 < scale <= _NOISE * unit:
        why = "the slope: nothing moves the number, and its gradients are rounding"
        return AuditedSlope(gradient, fine, fine, size, why, slack=high - low + rounded)
    if high - low <= _AGREE * size and abs(coarse - fine) <= _AGREE * size:
        found = AuditedSlope(gradient, fine, fine, size, slack=max(high - fine, fine - low) + rounded)
        rounding = found.error > _AGREE and found.off <= unit
        return replace(found, undecided="the slope: less than the rounding of the number") if rounding else found
    inside = low - _AGREE * size <= gradient <= high + _AGREE * size
    return AuditedSlope(gradient, low, high, size, "" if inside else AT_KINK)
