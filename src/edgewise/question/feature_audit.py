"""Is a gradient by features the derivative of what the model computes? The check of `gradient_audit.py`, along the features.

A frozen encoder under `no_grad` stops gradients on their way to the features, but none on their way to the weights ω: so the
features are moved themselves, in a copy of the model in float64, along one random direction d: x + t · d.

At a kink autograd's derivative is a convention: sign(x) · log1p(|x|) has slope 1 at x = 0, and autograd says 0. That looks
like a gradient that `detach` stopped, but a stop is everywhere: beside the features, a little way off in every number,
gradients and differences agree again if it is a kink (`kink_of_features`). Of relu or abs autograd's derivative lies between
those of the two sides: there the kink is seen because the differences on the two sides differ. No function is known by name.

Behind a step (sign, round, x > 0) all derivatives are 0, and right: what the features bring is then found without them
(`brought_by_features`).
"""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise import random_numbers
from edgewise.arrays import with_digits
from edgewise.errors import EdgewiseError, ModelError
from edgewise.graph.copies import Copies
from edgewise.model.call import ModelCall
from edgewise.model.gradient_stops import NAMES, GradientStops
from edgewise.model.twin import make_twin
from edgewise.model.typed_call import TypedForward
from edgewise.question.gradient_audit import (
    STEPS,
    Audited,
    AuditedSlope,
    are_true,
    as_logit,
    compared,
    graph_in_double,
    is_bent,
    taken,
)
from edgewise.question.posed_question import PosedQuestion, sub_target
from edgewise.question.target import Target

_SEED = 20261116
_AT_ONCE = 2**18
"""Numbers that are drawn or multiplied together: features may be all of a call's memory."""
_SHORTER = (1.0, 2.0**-5, 2.0**-10)
"""Shares of a direction: large models have kinks (of relu, of a maximum) on any way that is not short."""
Leaves: TypeAlias = dict[Any, Tensor]
"""What is moved, by name; of a typed graph by type and name."""


def audit_feature_slopes(question: PosedQuestion, positions: Tensor) -> Audited:
    """The slopes along the features at some targets, both ways.

    Along a direction with the signs of the gradient first; where that starts at a kink, along a random one and along the
    features themselves, too; where gradients may stop, at last a shorter way, on which there are fewer kinks to hide behind.
    """
    with question.borrowed():
        parts = [positions] if question.types is None else list(positions.split(1))
        graphs = [(part, question.copies(part)) for part in parts]
        found = [
            _audited(question, of, one)
            for part, copies in graphs
            for of, one in zip([part] if len(copies) == 1 else part.split(1), copies, strict=True)
        ]
    return Audited([slope for one in found for slope in one.slopes], any(one.may_stop for one in found))


def _audited(question: PosedQuestion, positions: Tensor, copies: Copies) -> Audited:
    """The same for targets whose copies are one graph."""
    target = as_logit(sub_target(question, positions))
    call = replace(question.call, changes_input=False)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in _features(call, copies.data).items()}
    with torch.enable_grad(), GradientStops() as stops:
        value = target.value(_run(call, copies.data, leaves)[copies.rows]).sum()
    may_stop = stops.seen or question.subject.is_scripted or not NAMES.isdisjoint(question.trace.operation_names)
    given: tuple[Tensor | None, ...] = (None,) * len(leaves)
    if value.requires_grad:
        given = taken(value, list(leaves.values()))
    gradients = {
        name: torch.zeros_like(i) if g is None else g for (name, i), g in zip(leaves.items(), given, strict=True)
    }
    found, left = Audited([None] * len(positions), may_stop), list(range(len(positions)))
    drawn = _random(question, copies, leaves)
    aligned = _aligned(drawn, gradients)
    ways = [aligned, drawn, {name: leaf.detach() for name, leaf in leaves.items()}]
    ways += [_times(aligned, share) for share in _SHORTER[1:]] if may_stop else []
    for along in ways:
        try:
            values = _values(question, call, copies, leaves, along, target)
        except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
            break
        if not are_true(values[0], question, positions):
            break
        sums = _sums(copies, gradients, along)
        for place in left:
            total, size = sums[:, place].tolist()
            found.slopes[place] = compared(total, size, values[:, place].tolist(), question.target.truth.dtype)
        left = [place for place in left if is_bent(found.slopes[place])]
        if not left:
            break
    return found


def _values(
    question: PosedQuestion, call: ModelCall, copies: Copies, leaves: Leaves, along: Leaves, target: Target
) -> Tensor:
    """`[steps, targets]` in float64: f(x + t · d), for every step t."""
    twin = make_twin(question.call.model)
    if twin.borrowed:
        raise ModelError(twin.borrowed)
    double, graph = call.in_double(twin.model.double()), graph_in_double(copies.data)
    with torch.no_grad():
        return torch.stack([target.value(_run(double, graph, _stepped(leaves, along, t))[copies.rows]) for t in STEPS])


def _sums(copies: Copies, gradients: Leaves, along: Leaves) -> Tensor:
    """`[2, targets]`: the sums of gradient · d over what each target's copy has, and of their magnitudes."""
    found = torch.zeros(2, copies.num_targets, dtype=torch.double, device=copies.rows.device)
    owners = {"x": copies.nodes[1], "edge_attr": copies.columns[1]}
    for name, gradient in gradients.items():
        rows = max(_AT_ONCE // max(gradient[:1].numel(), 1), 1)
        pairs = zip(gradient.split(rows), along[name].split(rows), strict=True)
        parts = torch.cat([_row_sums(*pair) for pair in pairs], dim=1)
        owner = owners[name] if copies.num_targets > 1 else torch.zeros_like(parts[0], dtype=torch.long)
        found.index_add_(1, owner, parts)
    return found


def _row_sums(gradient: Tensor, along: Tensor) -> Tensor:
    """`[2, rows]` in float64: the sums of gradient · d of each row, and of their magnitudes."""
    moved = (gradient.double() * along).view(len(gradient), -1)
    return torch.stack([moved.sum(1), moved.abs_().sum(1)])


def _moves(values: object) -> bool:
    return isinstance(values, Tensor) and values.is_floating_point() and values.numel() > 0


def _random(question: PosedQuestion, copies: Copies, leaves: Leaves) -> Leaves:
    """A direction with a number in [−1, 1] for every feature; it does not depend on which targets are asked about together."""
    ids = {"x": question.nodes(copies.nodes[0]), "edge_attr": question.columns(copies.columns[0])}
    found = {}
    for number, (name, leaf) in enumerate(leaves.items()):
        rows = ids.get(name, torch.arange(len(leaf), device=leaf.device)).view(-1, 1)
        features = torch.arange(leaf[0].numel(), device=leaf.device)
        drawn = torch.empty(len(leaf), len(features), dtype=leaf.dtype, device=leaf.device)
        for part in torch.arange(len(leaf), device=leaf.device).split(max(_AT_ONCE // len(features), 1)):
            row = rows[part]
            drawn[part] = (2 * random_numbers.uniform(_SEED, torch.full_like(row, number), row, features) - 1).to(
                leaf.dtype
            )
        found[name] = drawn.view(leaf.shape)
    return found


def _aligned(along: Leaves, gradients: Leaves) -> Leaves:
    """The same with the signs of the gradients, where they are not 0: then no part of a slope hides another."""
    found = {}
    for name, drawn in along.items():
        sign = gradients[name].sign()
        found[name] = torch.where(sign == 0, drawn, sign * (1 + drawn.abs()) / 2)
    return found


def _times(along: Leaves, share: float) -> Leaves:
    return {name: part * share for name, part in along.items()}


def _stepped(leaves: dict[Any, Tensor], along: dict[Any, Tensor], step: float) -> dict[Any, Tensor]:
    return {
        name: leaf.detach().to(torch.double, copy=True).add_(along[name], alpha=step) for name, leaf in leaves.items()
    }


def _features(call: ModelCall, graph: Data) -> dict[Any, Tensor]:
    """What can be moved: features and edge attributes, of a typed graph those of every type."""
    if isinstance(call.forward, TypedForward):
        data = call.forward.part(graph).data
        keys = [(key, name) for key in (*data.node_types, *data.edge_types) for name in ("x", "edge_attr")]
        return {key: with_digits(data[key[0]][key[1]]) for key in keys if _moves(data[key[0]].get(key[1]))}
    return {name: with_digits(graph[name]) for name in ("x", "edge_attr") if _moves(graph.get(name))}


def _run(call: ModelCall, graph: Data, values: dict[Any, Tensor]) -> Tensor:
    """The rows of a graph with other values; the model may write into them."""
    if isinstance(call.forward, TypedForward):
        return replace(call, forward=call.forward.with_values(values))(graph)
    moved = copy.copy(graph)
    for name, value in values.items():
        moved[name] = value.clone()
    return call(moved)


def brought_by_features(question: PosedQuestion, positions: Tensor, *, of_edges: bool) -> Tensor | None:
    """`[targets]`: the explained number less that of features (of edge attributes) 0; None where the model does not run so.

    What a path of gradients from 0 to the features must add up to, and what a step on the way brings all at once.
    """
    parts = [positions] if question.types is None else list(positions.split(1))
    found, call = [], replace(question.call, changes_input=False)
    with question.borrowed(), torch.no_grad():
        try:
            for part in parts:
                graphs = question.copies(part)
                for of, one in zip([part] if len(graphs) == 1 else part.split(1), graphs, strict=True):
                    target, given = sub_target(question, of), _features(call, one.data)
                    name = "edge_attr" if of_edges else "x"
                    moved = {k: v * 0 if name in (k, k[-1]) else v for k, v in given.items()}
                    found.append(target.value(_run(call, one.data, given)[one.rows]))
                    found[-1] = found[-1] - target.value(_run(call, one.data, moved)[one.rows])
        except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
            return None
    return torch.cat(found).cpu()


# --- Features at a kink -------------------------------------------------------------------------------------------------

_BESIDE = 1e-2  # of the largest feature: how far off is looked
_RIGHT = 1e-5
"""By which share of its parts a slope may be off: what stops in part may add up to little along a random direction."""


@dataclass(frozen=True)
class FeatureKink:
    """Gradients by features are right beside the features, and not at them."""

    products_hold: bool
    """Whether each feature times its gradient is right all the same, as where the kink is at features of 0."""

    @property
    def sentence(self) -> str:
        """What a user should know."""
        return (
            "The model has a kink at some of these features (relu, abs, sign, a step, or a tie of a maximum at exactly these "
            "numbers, often 0): the gradient by such a feature is autograd's convention, not the slope of the model. Use "
            "method='occlusion', which takes no gradient."
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
            here = {name: value.detach().double() for name, value in _features(question.call, copies.data).items()}
            around = _random(question, copies, here)
            graph = replace(copies, data=graph_in_double(copies.data))
            return _Surroundings(call, graph, as_logit(sub_target(question, positions)), around).kink(here)
    except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None


@dataclass(frozen=True)
class _Surroundings:
    """The model in float64 near one target's features, along a few directions.

    One has the signs of the gradient, two are random: what stops in part may add up to little along one, not along all.
    """

    call: ModelCall
    copies: Copies
    target: Target
    around: Leaves

    def kink(self, here: Leaves) -> FeatureKink | None:
        """What there is at the features themselves."""
        given = self._slopes(here)
        if not all(math.isfinite(one.gradient) for one in given) or all(map(_is_smooth, given)):
            return None
        largest = max((float(value.abs().max()) for value in here.values()), default=0.0) or 1.0
        beside = {name: value + _BESIDE * largest * self.around[name] for name, value in here.items()}
        if not all(map(_is_right, self._slopes(beside))):
            return None
        sizes = {name: value.abs() for name, value in here.items()}
        return FeatureKink(all(map(_is_smooth, self._slopes(here, sizes))))

    def _slopes(self, at: Leaves, sizes: Leaves | None = None) -> list[AuditedSlope]:
        """The slopes at some features, by autograd and by differences; `sizes`: by how much each one moves."""
        gradients = self._gradients(at)
        other = {name: part.flip(0) for name, part in self.around.items()}
        ways = [_aligned(self.around, gradients), self.around, other]
        if sizes is not None:
            ways = [{name: part * sizes[name] for name, part in along.items()} for along in ways]
        return [self._slope(at, gradients, along) for along in ways]

    def _gradients(self, at: Leaves) -> Leaves:
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        with torch.enable_grad():
            value = self.target.value(_run(self.call, self.copies.data, leaves)[self.copies.rows]).sum()
        found: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        return {
            name: torch.zeros_like(leaf) if g is None else g
            for (name, leaf), g in zip(leaves.items(), found, strict=True)
        }

    def _slope(self, at: Leaves, gradients: Leaves, along: Leaves) -> AuditedSlope:
        """Along one direction, or a part of it where other kinks lie on the way."""
        for share in _SHORTER:
            way = _times(along, share)
            with torch.no_grad():
                rows = [_run(self.call, self.copies.data, _stepped(at, way, t))[self.copies.rows] for t in STEPS]
            values = [float(self.target.value(row)[0]) for row in rows]
            parts = [gradients[name] * part for name, part in way.items()]
            total, size = (sum(float(part.sum()) for part in some) for some in (parts, [part.abs() for part in parts]))
            found = compared(total, size, values, torch.double)
            if not is_bent(found):
                break
        return found


def _is_right(slope: AuditedSlope) -> bool:
    return not slope.undecided and slope.error <= _RIGHT


def _is_smooth(slope: AuditedSlope) -> bool:
    """Whether it is right, and the same on both sides: between two sides any number would seem right."""
    return _is_right(slope) and not is_bent(slope)
