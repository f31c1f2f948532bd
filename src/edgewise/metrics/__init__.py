"""Measures of explanations: how faithful, short, stable, right and alike they are. Names load on first use.

Most functions take a result of `explain`; the formulas take plain tensors. Results are `Measured` (`results/metric_result.py`):
a number for each target, and the reason where there is none.
"""

from typing import TYPE_CHECKING

from edgewise._lazy import lazy_names

_WHERE = {
    # is it what the model used?
    "fidelity": "edgewise.metrics.faithfulness",
    "fidelity_curve": "edgewise.metrics.faithfulness",
    "unfaithfulness": "edgewise.metrics.faithfulness",
    # is it short, and what is in it?
    "sparsity": "edgewise.metrics.edge_choice",
    "signs": "edgewise.metrics.edge_choice",
    # is it the same again?
    "stability": "edgewise.metrics.repeatability",
    "stability_under_seeds": "edgewise.metrics.repeatability",
    "stability_under_noise": "edgewise.metrics.repeatability",
    "similarity": "edgewise.metrics.cosine",
    # is it the planted truth?
    "recovery": "edgewise.metrics.planted_truth",
    "path_recovery": "edgewise.metrics.planted_truth",
    # formulas on plain tensors
    "characterization": "edgewise.metrics.formulas",
    "area": "edgewise.metrics.formulas",
    "auroc": "edgewise.metrics.formulas",
    "average_precision": "edgewise.metrics.formulas",
    "precision_at": "edgewise.metrics.formulas",
    # results
    "Measured": "edgewise.results.metric_result",
    "Fidelity": "edgewise.metrics.faithfulness",
    "FidelityCurve": "edgewise.metrics.faithfulness",
    "Signs": "edgewise.metrics.edge_choice",
    "Stability": "edgewise.metrics.repeatability",
    "Recovery": "edgewise.metrics.planted_truth",
}

__all__ = list(_WHERE)

if TYPE_CHECKING:
    from edgewise.metrics.cosine import similarity as similarity
    from edgewise.metrics.edge_choice import Signs as Signs
    from edgewise.metrics.edge_choice import signs as signs
    from edgewise.metrics.edge_choice import sparsity as sparsity
    from edgewise.metrics.faithfulness import Fidelity as Fidelity
    from edgewise.metrics.faithfulness import FidelityCurve as FidelityCurve
    from edgewise.metrics.faithfulness import fidelity as fidelity
    from edgewise.metrics.faithfulness import fidelity_curve as fidelity_curve
    from edgewise.metrics.faithfulness import unfaithfulness as unfaithfulness
    from edgewise.metrics.formulas import area as area
    from edgewise.metrics.formulas import auroc as auroc
    from edgewise.metrics.formulas import average_precision as average_precision
    from edgewise.metrics.formulas import characterization as characterization
    from edgewise.metrics.formulas import precision_at as precision_at
    from edgewise.metrics.planted_truth import Recovery as Recovery
    from edgewise.metrics.planted_truth import path_recovery as path_recovery
    from edgewise.metrics.planted_truth import recovery as recovery
    from edgewise.metrics.repeatability import Stability as Stability
    from edgewise.metrics.repeatability import stability as stability
    from edgewise.metrics.repeatability import stability_under_noise as stability_under_noise
    from edgewise.metrics.repeatability import stability_under_seeds as stability_under_seeds
    from edgewise.results.metric_result import Measured as Measured

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
