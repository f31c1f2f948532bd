"""Whether the gradients of a question can be trusted: each kind is looked at once, and refused with the reason."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.question.audit_sample import audited_positions
from edgewise.question.equality import Audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgewise.model.trace import Trace
    from edgewise.question.feature_audit import FeatureKink
    from edgewise.question.gradient_audit import Audited, AuditedSlope
    from edgewise.question.posed_question import PosedQuestion

SLOPE_TOLERANCE = 2e-3
"""By which share of its parts a gradient along a random direction may be off. Parts cancel: a halved one may be off by 1%."""
_WHERE_STOPPED = {torch.float64: 1e-7}
"""The same where gradients may stop on their way: what stops may be a small part of them."""
_IN_FLOAT32 = 1e-3
_KINKS = 4
"""Targets that are at a kink of their features, at which is looked."""
_MEMORY = 2**28
"""Bytes of a block, where all targets are audited."""


class SlopeChecks:
    """The part of a question that looks at its slopes."""

    audit: Audit
    trace: "Trace"
    borrowed: Any
    _slope: str | None = None
    _feature_slope: str | None = None
    _feature_kink: "tuple[FeatureKink | None] | None" = None
    _failed: tuple[int, ...] = ()
    """Positions of targets whose gradients are not what differences say."""
    _bent: tuple[int, ...] = ()
    """Positions of targets whose slopes by features differ on the two sides: the features are at a kink."""
    _looked: frozenset[tuple[str, str]] = frozenset()
    _laid_out: frozenset[bytes] = frozenset()
    """Positions of targets whose gradients were compared as they lie side by side, where gradients may stop."""
    _may_stop: bool = False

    @property
    def _itself(self) -> "PosedQuestion":
        """The question that this is a part of."""
        return cast("PosedQuestion", self)

    def check_slopes(self) -> None:
        """Refuse gradients that are not the derivative of what the model computes."""
        if self.slope_problem():
            raise ModelError(self.slope_problem())

    def slope_problem(self) -> str:
        """Why gradients cannot be trusted; empty if they can. Looked at once, for some targets or for all."""
        from edgewise.question.gradient_audit import audit_slopes

        if self._slope is None:
            with torch.inference_mode(mode=False), self.borrowed():
                self._slope = self._found(audit_slopes, "slope")
        return self._slope

    def check_layout(self, positions: Tensor, *, may_stop: bool) -> None:
        """Refuse gradients of targets that lie side by side, if they stop in this very layout; looked at once.

        A model may stop gradients by the number of a row. In copies that number is another one than in the user's graph, and
        it depends on what else is asked: what is compared in one layout says nothing about another. `may_stop`: somebody saw
        an operation that may stop them here.
        """
        if (may_stop or self._may_stop) and _key(positions) not in self._laid_out:
            problem = self._problem_of_layout(positions)
            if problem:
                raise ModelError(problem)

    def _problem_of_layout(self, positions: Tensor) -> str:
        """Why gradients of these targets, as they lie side by side, cannot be trusted; empty if they can."""
        from edgewise.question.gradient_audit import audit_slopes

        with torch.inference_mode(mode=False), self.borrowed():
            found = replace(audit_slopes(self._itself, positions), may_stop=True)
        self._laid_out |= {_key(positions)}
        return self._judged(found, positions, "slope")

    @property
    def is_slope_refused(self) -> bool:
        """Whether gradients were looked at and cannot be trusted."""
        return bool(self._slope)

    def check_feature_slopes(self) -> None:
        """Refuse gradients by features that are not the derivative of what the model computes; looked at once."""
        from edgewise.question.feature_audit import audit_feature_slopes

        if self._feature_slope is None:
            with torch.inference_mode(mode=False):
                self._feature_slope = self._found(audit_feature_slopes, "features")
        if self._feature_slope and self.feature_kink() is None:
            raise ModelError(self._feature_slope)

    def feature_kink(self) -> "FeatureKink | None":
        """A kink at the features of targets that do not pass, or whose slopes have two sides; looked for once."""
        from edgewise.question.feature_audit import kink_of_features

        if self._feature_kink is None:
            with torch.inference_mode(mode=False):
                at = self._failed or self._bent[:_KINKS] or (0,)
                kinks = [kink_of_features(self._itself, position) for position in at]
            known = [kink for kink in kinks if kink is not None]
            worst = next((kink for kink in known if not kink.products_hold), known[0] if known else None)
            is_sure = len(known) == len(kinks) or not self._failed  # a stop elsewhere is no kink
            self._feature_kink = (worst if is_sure else None,)
            if self._feature_kink[0] is not None:
                self.audit.undecided.append("the slope at a kink: some features are at one")
        return self._feature_kink[0]

    @property
    def is_at_kink(self) -> bool:
        """Whether a kink is known, or slopes were found to have two sides."""
        return bool(self._bent) or (self._feature_kink is not None and self._feature_kink[0] is not None)

    def first_look(self, what: str, how: str) -> bool:
        """Whether a primitive was not looked at before, for these targets."""
        is_first = (what, how) not in self._looked
        self._looked |= {(what, how)}
        return is_first

    def forget_audits(self) -> None:
        """Other targets are audited anew."""
        self._slope, self._feature_slope, self._looked = None, None, frozenset()
        self._feature_kink, self._failed, self._bent = None, (), ()
        self._laid_out, self._may_stop = frozenset(), False

    def _found(self, look: "Callable[[PosedQuestion, Tensor], Audited]", what: str) -> str:
        """Why gradients cannot be trusted: by a sample of the targets, or by all of them where gradients may stop.

        All of them are laid out as an answer lays them out. Where one is at a kink of its features the others are looked at,
        too: a gradient may stop at another.
        """
        some = audited_positions(self._itself)
        found = look(self._itself, some)
        problem = self._judged(found, some, what)
        if not found.may_stop or (problem and not self._at_kink(what)):
            return problem
        from edgewise.question.memory import estimated_blocks

        done, seen, failed = 0, {_key(some)}, self._failed
        for block in estimated_blocks(self._itself, _MEMORY, None):
            if _key(block) not in seen:
                problem = self._judged(look(self._itself, block), block, what, done) or problem
                seen.add(_key(block))
                failed += self._failed
            if problem and not self._at_kink(what):
                break
            done += len(block)
        self._failed = tuple(dict.fromkeys(failed))
        if what == "slope" and not problem:
            self._may_stop, self._laid_out = True, self._laid_out | seen
        return problem

    def _at_kink(self, what: str) -> bool:
        """Whether the first target that failed is at a kink of its features."""
        from edgewise.question.feature_audit import kink_of_features

        return what == "features" and (not self._failed or kink_of_features(self._itself, self._failed[0]) is not None)

    def _judged(self, found: "Audited", positions: Tensor, what: str, done: int = 0) -> str:
        """Why gradients cannot be trusted, by slopes that were found in two ways; empty if they can.

        `done` is the number of other targets that were looked at before.
        """
        known: dict[int, AuditedSlope] = {}
        for position, slope in zip(positions.tolist(), found.slopes, strict=True):
            if slope is None or (slope.undecided and not (found.may_stop and slope.is_beyond_kink)):
                why = "the slope: the model cannot be run in float64" if slope is None else slope.undecided
                self.audit.undecided.append(why)
            else:
                known[position] = slope
                if what == "features" and slope.low != slope.high:
                    self._bent += (position,)
        errors = {position: _error(slope) for position, slope in known.items()}
        worst = max(errors.values(), default=0.0)
        self.audit.note(what, worst, done * bool(errors) + len(errors))
        strict = _WHERE_STOPPED.get(self._itself.target.truth.dtype, _IN_FLOAT32)
        allowed = strict if found.may_stop else SLOPE_TOLERANCE
        self._failed = tuple(position for position, error in errors.items() if error > allowed)
        if not self._failed:
            return ""
        if not all(math.isfinite(slope.gradient) for slope in known.values()):
            return (
                "Gradients of this model are infinite or no numbers here, as those of a root, a power or a logarithm at 0 are. "
                "Use method='occlusion', which takes none."
            )
        stops = [name for name in self.trace.operation_names if name in ("detach", "detach_", "no_grad", "checkpoint")]
        coarse = self.trace.rounds_to
        if coarse is not None and not stops:
            return (
                f"Gradients of this model are not the derivative of what it computes: forward rounds numbers to {coarse}, so "
                f"that its output moves in steps (off by {worst:.2g} of its parts). Leave that cast out of forward, use "
                f"method='occlusion', or stopped='keep' for autograd's number."
            )
        named = ", ".join(dict.fromkeys(stops)) or "no_grad, detach or a checkpoint"
        return (
            f"Gradients of this model are not the derivative of what it computes: {named} in forward stops them (off by "
            f"{worst:.2g} of its parts). Use method='occlusion', or stopped='keep' for autograd's number."
        )


def _key(positions: Tensor) -> bytes:
    """Targets in their order."""
    return positions.cpu().numpy().tobytes()


def _error(slope: "AuditedSlope") -> float:
    """How far a slope is off, as a share of its parts; a gradient that is no number is off by more than all of them."""
    return slope.error if math.isfinite(slope.gradient) and math.isfinite(slope.error) else math.inf
