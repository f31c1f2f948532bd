"""Measures of explanations: pure functions on scores. Names load on first use."""

from typing import TYPE_CHECKING

from edgewise.lazy import lazy_names

_WHERE = {
    # is it what the model used?
    "fidelity": "edgewise.metrics.faithful",
    "fidelity_curve": "edgewise.metrics.curves",
    "unfaithfulness": "edgewise.metrics.faithful",
    # is it short, and what is in it?
    "sparsity": "edgewise.metrics.counting",
    "signs": "edgewise.metrics.counting",
    # is it the same again?
    "stability": "edgewise.metrics.steadiness",
    "stability_under_seeds": "edgewise.metrics.steadiness",
    "stability_under_noise": "edgewise.metrics.steadiness",
    "similarity": "edgewise.metrics.agreement",
    # is it the planted truth?
    "recovery": "edgewise.metrics.planted",
    "path_recovery": "edgewise.metrics.paths",
    # formulas on plain tensors
    "characterization": "edgewise.metrics.formulas",
    "area": "edgewise.metrics.formulas",
    "auroc": "edgewise.metrics.formulas",
    "average_precision": "edgewise.metrics.formulas",
    "precision_at": "edgewise.metrics.formulas",
    # results
    "Measured": "edgewise.metrics.measured",
    "Fidelity": "edgewise.metrics.faithful",
    "FidelityCurve": "edgewise.metrics.curves",
    "Signs": "edgewise.metrics.counting",
    "Stability": "edgewise.metrics.steadiness",
    "Recovery": "edgewise.metrics.planted",
}

__all__ = list(_WHERE)

if TYPE_CHECKING:
    from edgewise.metrics.agreement import similarity as similarity
    from edgewise.metrics.counting import Signs as Signs
    from edgewise.metrics.counting import signs as signs
    from edgewise.metrics.counting import sparsity as sparsity
    from edgewise.metrics.curves import FidelityCurve as FidelityCurve
    from edgewise.metrics.curves import fidelity_curve as fidelity_curve
    from edgewise.metrics.faithful import Fidelity as Fidelity
    from edgewise.metrics.faithful import fidelity as fidelity
    from edgewise.metrics.faithful import unfaithfulness as unfaithfulness
    from edgewise.metrics.formulas import area as area
    from edgewise.metrics.formulas import auroc as auroc
    from edgewise.metrics.formulas import average_precision as average_precision
    from edgewise.metrics.formulas import characterization as characterization
    from edgewise.metrics.formulas import precision_at as precision_at
    from edgewise.metrics.measured import Measured as Measured
    from edgewise.metrics.paths import path_recovery as path_recovery
    from edgewise.metrics.planted import Recovery as Recovery
    from edgewise.metrics.planted import recovery as recovery
    from edgewise.metrics.steadiness import Stability as Stability
    from edgewise.metrics.steadiness import stability as stability
    from edgewise.metrics.steadiness import stability_under_noise as stability_under_noise
    from edgewise.metrics.steadiness import stability_under_seeds as stability_under_seeds

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
