"""Whether the gradients of a question can be trusted: each kind is looked at once, and refused with the reason."""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.question.audit_sample import audited_positions
from edgewise.question.equality import Audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgewise.model.trace import Trace
    from edgewise.question.gradient_audit import Audited, AuditedSlope
    from edgewise.question.posed_question import PosedQuestion

SLOPE_TOLERANCE = 1e-2
"""By which share of its parts a gradient along a random direction may be off."""
_MEMORY = 2**28
"""Bytes of a block, where all targets are audited."""


class SlopeChecks:
    """The part of a question that looks at its slopes."""

    audit: Audit
    trace: "Trace"
    borrowed: Any
    _slope: str | None = None
    _feature_slope: str | None = None
    _looked: frozenset[tuple[str, str]] = frozenset()

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

    def check_feature_slopes(self) -> None:
        """Refuse gradients by features that are not the derivative of what the model computes; looked at once."""
        from edgewise.question.feature_audit import audit_feature_slopes

        if self._feature_slope is None:
            with torch.inference_mode(mode=False):
                self._feature_slope = self._found(audit_feature_slopes, "features")
        if self._feature_slope:
            raise ModelError(self._feature_slope)

    def first_look(self, what: str, how: str) -> bool:
        """Whether a primitive was not looked at before, for these targets."""
        is_first = (what, how) not in self._looked
        self._looked |= {(what, how)}
        return is_first

    def forget_audits(self) -> None:
        """Other targets are audited anew."""
        self._slope, self._feature_slope, self._looked = None, None, frozenset()

    def _found(self, look: "Callable[[PosedQuestion, Tensor], Audited]", what: str) -> str:
        """Why gradients cannot be trusted: by a sample of the targets, or by all of them where gradients may stop."""
        some = audited_positions(self._itself)
        found = look(self._itself, some)
        problem = self._judged(found.slopes, what)
        if problem or not found.may_stop:
            return problem
        from edgewise.question.memory import estimated_blocks

        for block in estimated_blocks(self._itself, _MEMORY, None):
            left = block[~torch.isin(block, some)]
            problem = self._judged(look(self._itself, left).slopes, what) if len(left) else ""
            if problem:
                break
        return problem

    def _judged(self, slopes: "list[AuditedSlope | None]", what: str) -> str:
        """Why gradients cannot be trusted, by slopes that were found in two ways; empty if they can."""
        for slope in slopes:
            if slope is None or slope.undecided:
                why = "the slope: the model cannot be run in float64" if slope is None else slope.undecided
                self.audit.undecided.append(why)
        errors = [slope.error for slope in slopes if slope is not None and not slope.undecided]
        self.audit.note(what, max(errors, default=0.0), len(errors))
        if max(errors, default=0.0) <= SLOPE_TOLERANCE:
            return ""
        stops = [name for name in self.trace.operation_names if name in ("detach", "detach_", "no_grad", "checkpoint")]
        named = ", ".join(dict.fromkeys(stops)) or "no_grad, detach or a checkpoint"
        return (
            f"Gradients of this model are not the derivative of what it computes: {named} in forward stops them (off by "
            f"{max(errors):.1%}). Use method='occlusion', or stopped='keep' for autograd's number."
        )
