"""Whether the gradients of a question can be trusted: each kind is looked at once, and refused with the reason."""

import math
from typing import TYPE_CHECKING, Any, cast

import torch

from edgewise.errors import ModelError
from edgewise.question.equality import Audit

if TYPE_CHECKING:
    from edgewise.model.trace import Trace
    from edgewise.question.feature_kinks import FeatureKink
    from edgewise.question.gradient_audit import AuditedSlope
    from edgewise.question.posed_question import PosedQuestion

SLOPE_TOLERANCE = 1e-2
"""By which share of its parts a gradient along a random direction may be off."""


class SlopeChecks:
    """The part of a question that looks at its slopes."""

    audit: Audit
    trace: "Trace"
    borrowed: Any
    _slope: str | None = None
    _feature_slope: str | None = None
    _feature_kink: "tuple[FeatureKink | None] | None" = None

    @property
    def _itself(self) -> "PosedQuestion":
        """The question that this is a part of."""
        return cast("PosedQuestion", self)

    def check_slopes(self) -> None:
        """Refuse gradients that are not the derivative of what the model computes."""
        if self.slope_problem():
            raise ModelError(self.slope_problem())

    def slope_problem(self) -> str:
        """Why gradients cannot be trusted; empty if they can. Looked at once, for the first target that is asked about."""
        if self._slope is None:
            self._slope = self._find_slope()
        return self._slope

    def _find_slope(self) -> str:
        """Why gradients cannot be trusted; empty if they can, or if that could not be decided."""
        from edgewise.question.gradient_audit import audit_slopes

        with torch.inference_mode(mode=False), self.borrowed():
            return self._judged(audit_slopes(self._itself))

    def check_feature_slopes(self) -> None:
        """Refuse gradients by features that are not the derivative of what the model computes; looked at once."""
        from edgewise.question.feature_audit import audit_feature_slopes

        if self._feature_slope is None:
            with torch.inference_mode(mode=False):
                self._feature_slope = self._judged(audit_feature_slopes(self._itself))
        if self._feature_slope and self.feature_kink() is None:
            raise ModelError(self._feature_slope)

    def feature_kink(self) -> "FeatureKink | None":
        """A kink at the features, where gradients by them are no slopes; looked for once."""
        from edgewise.question.feature_kinks import kink_of_features

        if self._feature_kink is None:
            with torch.inference_mode(mode=False):
                self._feature_kink = (kink_of_features(self._itself),)
            if self._feature_kink[0] is not None:
                self.audit.undecided.append("the slope at a kink: some features are at one")
        return self._feature_kink[0]

    @property
    def is_at_kink(self) -> bool:
        """Whether a kink is known."""
        return self._feature_kink is not None and self._feature_kink[0] is not None

    def _judged(self, slope: "AuditedSlope | None") -> str:
        """Why gradients cannot be trusted, by a slope that was found in two ways; empty if they can."""
        if slope is None or slope.undecided:
            self.audit.undecided.append(
                "the slope: the model cannot be run in float64" if slope is None else slope.undecided
            )
            return ""
        self.audit.targets, self.audit.slope_error = 1, slope.error
        if slope.error <= SLOPE_TOLERANCE:
            return ""
        if not math.isfinite(slope.gradient):
            return (
                "Gradients of this model are infinite or no numbers here, as those of a root, a power or a logarithm at 0 are. "
                "Use method='occlusion', which takes none."
            )
        stops = [name for name in self.trace.operation_names if name in ("detach", "detach_", "no_grad", "checkpoint")]
        named = ", ".join(dict.fromkeys(stops)) or "no_grad, detach or a checkpoint"
        return (
            f"Gradients of this model are not the derivative of what it computes: {named} in forward stops them (off by "
            f"{slope.error:.1%}). Use method='occlusion', or stopped='keep' for autograd's number."
        )
