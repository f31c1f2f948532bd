"""`method="auto"`: which method explains this model here, by measurements on a few targets.

`trust/reliance.py` decides whether gradients can be relied on, as it does for `check` and the page: do they agree with
occlusions, keep their signs, and not fade? If so, the gradient it is. Otherwise occlusion, integrated gradients and LRP-γ are
tried on the same targets, and the one whose best edges decide most is taken: with them alone the explained number stays high,
without them it falls.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.eig_search import read_scores
from edgewise.algorithms.gradient import gradients_at_one
from edgewise.algorithms.occlusion import Repeated, players
from edgewise.algorithms.registry import Method, find_method
from edgewise.arrays import occurrence
from edgewise.contract import checked
from edgewise.errors import EdgewiseError, ModelError
from edgewise.question import PosedQuestion
from edgewise.question.memory import room
from edgewise.score import Score
from edgewise.trust.flips import WEIGHTS, flip_draw, flips_of
from edgewise.trust.gradient_vs_occlusion import effects_of
from edgewise.trust.reliance import Reliance, path_of, reliance_of
from edgewise.trust.target_edges import EVERYTHING, MOST_PAIRS

TARGETS = 8
"""On how many targets is measured, at most."""
_SHARES = (0.05, 0.1, 0.2, 0.4)  # of a target's edges that are kept alone, or left out
_AS_GOOD = 0.02  # by how much of the best one's gain a cheaper method may be worse
_MOST_PASSES = 5000  # for occlusions of models that are run as they are
_INCOMPLETE = 0.05  # how far the scores of integrated gradients may be from z(1) − z(0)
CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "occlusion": {},
    "integrated_gradients": {},
    "lrp": {"rule": "lrp-gamma"},
}
"""What is tried where the gradient is not taken: the cheaper first, of equals the first is taken."""


@dataclass(frozen=True)
class Evidence(Reliance):
    """What was measured, over all edges of the measured targets."""

    completeness: float
    """The sum of occlusions over z(1) − z(0): 1 where edges neither share nor repeat their effects."""
    gap: float = 0.0
    """How far integrated gradients, where they were tried, are from adding up to z(1) − z(0), as a share of it."""
    gains: Mapping[str, float] = field(default_factory=dict)
    """Of each method that was tried: what its best edges keep minus what is left without them, in units of |z(1) − z(0)|."""


@dataclass(frozen=True)
class MethodChoice:
    """A method, its settings, and why it was chosen."""

    name: str
    settings: Mapping[str, Any]
    why: str
    evidence: Evidence | None

    @property
    def method(self) -> Method:
        """The method as `explain` takes it: with these settings as its defaults, and the reason among its notes."""
        found = find_method(self.name, "input")
        return replace(found, settings={**found.settings, **self.settings}, notes={**found.notes, "auto": self.why})

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"MethodChoice({self.name}{given}: {self.why})"


@checked
def choose_method(question: PosedQuestion) -> MethodChoice:
    """The method for a question, measured on some of its targets."""
    try:
        question.check_slopes()
    except ModelError:
        return MethodChoice("occlusion", {}, "gradients are stopped inside the model, and occlusion needs none.", None)
    some = _sample(question)
    with some.borrowed():
        score = Score.of_block(some, torch.arange(len(some.index)))
        passes = _occlusion_passes(some, score)
        if passes > _MOST_PASSES:
            why = f"occlusion, to compare with, would take {passes:,} passes here; integrated gradients add up to z(1) − z(0)."
            return MethodChoice("integrated_gradients", {}, why, None)
        return decide(_measure(some, score))


def _occlusion_passes(question: PosedQuestion, score: Score) -> int:
    """Forward passes for the occlusion of all edges of a score: none for lowered models, which carry differences."""
    if question.lowering is not None:
        return 0
    count = torch.bincount(score.owner, minlength=score.num_targets)
    return int(count.sum() if score.way == "whole graph" else count.max()) if len(count) else 0


def _sample(question: PosedQuestion) -> PosedQuestion:
    """The question about a few of its targets, spread over all of them; which ones does not depend on their order."""
    total = len(question.index)
    if total <= TARGETS:
        return question
    order = question.keys(torch.arange(total)).argsort(stable=True)
    return question.at(order[torch.linspace(0, total - 1, TARGETS).round().long()])


# --- What is measured ---------------------------------------------------------------------------------------------------


def _measure(question: PosedQuestion, score: Score) -> Evidence:
    occlusion = _scores(question, score, "occlusion", {})
    seen = _reliance(question, score, occlusion)
    with torch.no_grad():
        change = score(score.ones()) - score(torch.zeros_like(score.ones()))
    size = float(change.abs().sum()) or 1.0
    completeness = float((_per_target(occlusion, score) * change.sign()).sum()) / size
    evidence = Evidence(**vars(seen), completeness=completeness)
    if seen.holds:
        return evidence
    path = _scores(question, score, "integrated_gradients", {})
    gap = float((_per_target(path, score) - change).abs().sum()) / size
    found = {"occlusion": occlusion} | ({"integrated_gradients": path} if gap <= _INCOMPLETE else {})
    with suppress(EdgewiseError):  # it refuses models that cannot be lowered
        found["lrp"] = _scores(question, score, "lrp", CANDIDATES["lrp"])
    gains = {name: float(_gain(score, one).sum()) / size for name, one in found.items()}
    return replace(evidence, gap=gap, gains=gains)


def _reliance(question: PosedQuestion, score: Score, occlusion: Tensor) -> Reliance:
    """What `check` measures of the same targets, about the same edges; `occlusion` `[M]` is known already."""
    memory = room(question, None)
    draw = flip_draw(question, MOST_PAIRS, memory, 0)
    gradient, _ = gradients_at_one(score)
    about = EVERYTHING if question.lowering is not None else draw
    effects = effects_of(question, score, gradient, "input", about, lambda score, asked: occlusion.view(1, -1))
    flips = flips_of(question, "input", WEIGHTS, draw, memory, None)
    return reliance_of(effects, flips, path_of(score, gradient.sum(dim=0)))


def _scores(question: PosedQuestion, score: Score, name: str, settings: Mapping[str, Any]) -> Tensor:
    """`[M]`: a method's scores of the edge copies."""
    from edgewise.api.explain import explain_question

    found = explain_question(question, method=name, **settings)
    return read_scores(found).of_copies(score).to(score.owner.device).double()


def _per_target(values: Tensor, score: Score) -> Tensor:
    return values.new_zeros(score.num_targets).index_add_(0, score.owner, values)


@torch.no_grad()
def _gain(score: Score, values: Tensor) -> Tensor:
    """`[targets]`: the mean, over some sizes, of z with a target's best edges alone minus z without them."""
    inside = players(score, "input")[0]
    order = torch.where(inside, values, -torch.inf).argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = occurrence(score.owner[order])
    count = torch.bincount(score.owner[inside], minlength=score.num_targets)  # [targets]
    repeated, rows = Repeated(score, 2 * len(_SHARES)), []
    for turns in torch.arange(2 * len(_SHARES), device=rank.device).split(repeated.times):
        share = torch.tensor(_SHARES, device=rank.device)[turns // 2].view(-1, 1)
        best = rank < (share * count).ceil()[:, score.owner]  # [turns, M]
        on = (best ^ (turns % 2 == 1).view(-1, 1)) | ~inside
        weight = on.to(score.target.truth.dtype).unsqueeze(1).expand(-1, score.num_layers, -1)
        rows.append(repeated.rows(repeated.score(repeated.weights(weight)), len(turns)))
    found = torch.cat(rows)
    return (found[0::2] - found[1::2]).mean(dim=0)


# --- What follows from it -----------------------------------------------------------------------------------------------


def decide(seen: Evidence) -> MethodChoice:
    """The method that the evidence speaks for, with the reason in words.

    >>> seen = Evidence(8, 100, 0.99, flips_alone=0.01, flips_together=0.02, saturation=0.0, completeness=1.0)
    >>> decide(seen).name
    'gradient'
    >>> decide(replace(seen, agreement=0.3, gains={"occlusion": 0.9, "integrated_gradients": 1.1})).name
    'integrated_gradients'
    """
    if seen.holds:
        return MethodChoice("gradient", {}, f"{seen.sentence}.", seen)
    best = max(seen.gains.values())
    allowed = best - _AS_GOOD * abs(best)
    name = next(one for one, gain in seen.gains.items() if gain >= allowed)
    tried = ", ".join(f"{one} {gain:.2f}" for one, gain in seen.gains.items())
    why = f"{seen.sentence}; what the best edges decide: {tried}."
    if seen.gap > _INCOMPLETE:
        why += f" Integrated gradients were left out: they miss z(1) − z(0) by {seen.gap:.0%}."
    return MethodChoice(name, dict(CANDIDATES[name]), why, seen)
