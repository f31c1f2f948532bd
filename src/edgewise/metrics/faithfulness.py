"""Is the explanation what the model used? Fidelity+ and fidelity−, their curves, and unfaithfulness.

The file is not called `fidelity.py`, which would shadow the function `ew.metrics.fidelity`. What the model says with the
explanation alone and without it comes from `intervene.py`; this file turns those outputs into numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.errors import SettingError
from edgewise.metrics.edge_choice import read_choice, read_sizes
from edgewise.metrics.formulas import area, characterization
from edgewise.metrics.intervene import Options, Outcome, intervene
from edgewise.question.target import Target, predicted
from edgewise.results.explanation import ORDERS
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.metric_result import Conditions, Measured, MeasuredTable, with_reasons
from edgewise.results.score_rows import as_set
from edgewise.text import for_json

NUMBERS = ("value", "prob", "label")
"""The numbers that fidelity can be measured on (`of=`)."""
OUTSIDE = "fidelity+ or 1 - fidelity- is outside [0, 1]"


@dataclass(frozen=True, eq=False, repr=False)
class Fidelity(MeasuredTable):
    """What is lost without the explanation (`plus`) and with it alone (`minus`); prints as a table."""

    plus: Measured
    """Fidelity+: number of the whole graph − number without the explanation."""
    minus: Measured
    """Fidelity−: number of the whole graph − number with the explanation alone."""
    characterization: Measured
    """Both in one number, where both lie in [0, 1] (`of="prob"` or `"label"`)."""
    sparsity: Measured
    """The share of the edges that can matter which is not in the explanation."""
    size: Tensor
    """`[targets]`: how many edges are in it (the sum of a soft mask)."""
    title: str = ""


@checked
def fidelity(
    explained: Explained,
    model: nn.Module,
    data: Any,
    *,
    k: int | None = None,
    fraction: float | None = None,
    threshold: float | None = None,
    by: str | None = None,
    how: str = "masking",
    of: str = "value",
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
) -> Fidelity:
    """Fidelity+ and fidelity− of explanations, all targets at once.

    Fidelity+ is what the number loses without the explanation, fidelity− what it loses if nothing else is left. For edges
    that support, fidelity+ should be high and fidelity− low; for edges that oppose (`by="opposition"`), fidelity+ should be
    negative; for irrelevant edges it should be 0. Nodes and self edges stay.

    Args:
        explained: A result of `explain`. Without `k`, `fraction`, `threshold` and `by` its scores are the mask, in [0, 1].
        model: The model that was explained; left as it was.
        data: The data that was explained.
        k: The explanation is the k strongest edges (at layer level: entries); fewer where fewer have the sign.
        fraction: The same as a share of the edges that can reach the target, rounded up.
        threshold: All edges stronger than this; 0 takes every edge of the sign.
        by: `"support"` (positive scores), `"opposition"` (negative), `"magnitude"` (both), `"irrelevant"` (score 0).
        how: `"masking"` weights messages, degrees and attention unchanged; `"removing"` drops columns of `edge_index`.
        of: The number that may change: `"value"`, the explained number; `"prob"`, the probability of the explained class;
            `"label"`, 1 where the answer to "is it that class?" changes.
        forward: As in `explain`.
        device: As in `explain`.
        memory: As in `explain`.
        batch_size: As in `explain`.

    Returns:
        A `Fidelity`. NaN, with the reason, where the explanation is empty or k cuts scores that are all equal.

    Reference: Amara et al., LoG 2022; for `"label"` with `"masking"` equal to `torch_geometric.explain.metric.fidelity`.

    >>> from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> from edgewise import explain
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(1.0)
    >>> data = Data(x=torch.tensor([[5.0], [-2.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> why = explain(conv, data, index=2, target=1)             # the logit is 5 − 2 = 3, the scores are 5 and −2
    >>> found = fidelity(why, conv, data, k=1)                   # the edge from node 0
    >>> found.plus.value, found.minus.value                      # 3 − (−2), 3 − 5
    (tensor([5.]), tensor([-2.]))
    """
    choice = read_choice(k, fraction, threshold, by)
    found, options = as_set(explained, "fidelity"), Options(how, forward, device, memory, batch_size)
    check_number(found, of)
    (outcome,) = intervene(found, model, data, [choice], options)
    title = f"fidelity by {how}, of the {_SAY[of]}"
    return Fidelity(*_measures(found, outcome, of), outcome.size, title)


_SAY = {"value": "explained number", "prob": "probability", "label": "label"}


def check_number(found: ExplanationSet, of: str) -> None:
    """Refuse a number that these explanations do not have."""
    one_of("`of`", of, NUMBERS)
    if of != "value" and found.settings.get("mode") == "regression":
        raise SettingError(f"of={of!r} needs classes, and a regression has none. Use of='value'.")


def changes(outcome: Outcome, of: str) -> tuple[Tensor, Tensor]:
    """Fidelity+ and fidelity− of every target, `[targets]` each, also where they are undefined."""
    target = outcome.target
    full, only, without = (_number(target, rows, of) for rows in (outcome.full, outcome.only, outcome.without))
    if of == "label":
        return (full != without).to(full.dtype), (full != only).to(full.dtype)
    return full - without, full - only


def _number(target: Target, rows: Tensor, of: str) -> Tensor:
    """`[targets]`: the number `of` that output rows `[targets, width]` give."""
    if of == "label":
        return (predicted(rows, target.mode) == target.column).to(rows.dtype).cpu()
    return (target.value(rows) if of == "value" else target.number(rows, "prob")).cpu()


def _measures(found: ExplanationSet, outcome: Outcome, of: str) -> tuple[Measured, Measured, Measured, Measured]:
    """Fidelity+, fidelity−, characterization and sparsity, NaN with the reason where undefined."""
    plus, minus = changes(outcome, of)
    both = characterization(plus, minus)
    outside = (both.isnan(), f"{OUTSIDE}: of='prob' keeps to it, for the predicted class" if of == "value" else OUTSIDE)
    sparsity = 1 - outcome.size / outcome.possible
    return (
        with_reasons("fidelity+", plus, found.index, outcome.undefined),
        with_reasons("fidelity-", minus, found.index, outcome.undefined, "lower"),
        with_reasons("characterization", both, found.index, [*outcome.undefined, outside]),
        with_reasons("sparsity", sparsity, found.index, outcome.undefined[:1], ""),
    )


@checked
def unfaithfulness(
    explained: Explained,
    model: nn.Module,
    data: Any,
    *,
    k: int | None = None,
    fraction: float | None = None,
    threshold: float | None = None,
    by: str | None = None,
    how: str = "masking",
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
) -> Measured:
    """1 − exp(−KL(p ‖ q)), p the model's probabilities and q those with the explanation alone; in [0, 1], lower is better.

    With one logit the two probabilities are σ(z) and σ(−z). `k`, `fraction`, `threshold` and `by` say which edges are the
    explanation, as in `fidelity`. Agarwal et al., Scientific Data 2023 ("GraphXAI").

    >>> from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> from edgewise import explain
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(1.0)
    >>> data = Data(x=torch.tensor([[0.0], [1.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> why = explain(conv, data, index=2)                       # one logit, z = 1, all of it from node 1
    >>> unfaithfulness(why, conv, data, k=1).value
    tensor([0.])
    """
    choice = read_choice(k, fraction, threshold, by)
    found, options = as_set(explained, "unfaithfulness"), Options(how, forward, device, memory, batch_size)
    if found.settings.get("mode") == "regression":
        raise SettingError("unfaithfulness compares probabilities, and a regression has none. Use fidelity.")
    (outcome,) = intervene(found, model, data, [choice], options)
    before, after = (_log_probabilities(rows, outcome.target.mode) for rows in (outcome.full, outcome.only))
    divergence = (before.exp() * (before - after)).sum(dim=1).clamp(min=0).cpu()
    return with_reasons("unfaithfulness", -torch.expm1(-divergence), found.index, outcome.undefined, "lower")


def _log_probabilities(rows: Tensor, mode: str) -> Tensor:
    """`[targets, classes]`, from logits; with one logit the classes have σ(−z) and σ(z)."""
    return nn.functional.logsigmoid(torch.cat([-rows, rows], dim=1)) if mode == "binary" else rows.log_softmax(dim=1)


# --- Fidelity over the size of the explanation, and the area under it --------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class FidelityCurve(MeasuredTable):
    """Fidelity+ and fidelity− at several sizes; prints its areas as a table."""

    x: Tensor
    """`[points]`: the sizes, as shares or as numbers of edges."""
    plus: Tensor
    """`[targets, points]`: fidelity+; NaN where undefined."""
    minus: Tensor
    """`[targets, points]`: fidelity−."""
    area_plus: Measured
    """The mean height of the fidelity+ curve."""
    area_minus: Measured
    """The mean height of the fidelity− curve."""
    area_characterization: Measured
    """The mean height of the curve of characterization scores."""
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The curves and their areas as plain numbers and texts, ready for JSON."""
        points = for_json({"x": self.x.tolist(), "plus": self.plus.tolist(), "minus": self.minus.tolist()})
        return {**points, **super().to_dict()}

    def mean(self) -> tuple[Tensor, Tensor]:
        """The two curves, averaged over the targets that have a number: `[points]` each."""
        return self.plus.nanmean(dim=0), self.minus.nanmean(dim=0)


@checked
def fidelity_curve(
    explained: Explained,
    model: nn.Module,
    data: Any,
    *,
    fractions: Sequence[float] | None = None,
    ks: Sequence[int] | None = None,
    by: str = "support",
    how: str = "masking",
    of: str = "value",
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
) -> FidelityCurve:
    """Fidelity at growing sizes of the explanation, strongest edges first, and the areas under the curves.

    A size beyond the edges that have the sign of `by` takes all of them, so a curve may end flat. Size 0 is the empty
    explanation: fidelity+ is 0 there, fidelity− what all edges together are worth.

    Args:
        explained: A result of `explain`.
        model: The model that was explained; left as it was.
        data: The data that was explained.
        fractions: Sizes as shares of the edges that can reach a target, ascending; without `ks`, 0 to 1 in eight steps.
        ks: Sizes as numbers of edges instead.
        by: `"support"`, `"opposition"` or `"magnitude"`.
        how: As in `fidelity`.
        of: As in `fidelity`.
        forward: As in `explain`.
        device: As in `explain`.
        memory: As in `explain`.
        batch_size: As in `explain`.

    >>> from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> from edgewise import explain
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(1.0)
    >>> data = Data(x=torch.tensor([[4.0], [2.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> curve = fidelity_curve(explain(conv, data, index=2, target=1), conv, data, ks=[0, 1, 2])
    >>> curve.plus, curve.minus
    (tensor([[0., 4., 6.]]), tensor([[6., 2., 0.]]))
    >>> curve.area_plus.value                                     # (0/2 + 4 + 6/2) / 2
    tensor([3.5000])
    """
    one_of("`by`", by, ORDERS)
    sizes, name = read_sizes(fractions, ks)
    found, options = as_set(explained, "fidelity_curve"), Options(how, forward, device, memory, batch_size)
    check_number(found, of)
    outcomes = intervene(found, model, data, [read_choice(**{name: size}, by=by) for size in sizes], options)
    plus, minus = (torch.stack(part, dim=1) for part in zip(*(changes(o, of) for o in outcomes), strict=True))
    x = torch.tensor(sizes, dtype=plus.dtype)
    areas = _areas(x, plus, minus, found.index, [condition for outcome in outcomes for condition in outcome.undefined])
    hole = torch.stack([torch.stack([c for c, _ in o.undefined]).any(dim=0) for o in outcomes], dim=1)
    plus, minus = (part.masked_fill(hole, torch.nan) for part in (plus, minus))
    return FidelityCurve(x, plus, minus, *areas, f"fidelity by {how} at {len(sizes)} sizes ({name})")


def _areas(
    x: Tensor, plus: Tensor, minus: Tensor, index: Tensor, undefined: Conditions
) -> tuple[Measured, Measured, Measured]:
    """The mean heights of three curves `[targets, points]`: fidelity+, fidelity−, characterization."""
    both = characterization(plus, minus)
    outside = (both.isnan().any(dim=1), OUTSIDE)
    return (
        with_reasons("area of fidelity+", area(x, plus), index, undefined),
        with_reasons("area of fidelity-", area(x, minus), index, undefined, "lower"),
        with_reasons("area of characterization", area(x, both), index, [*undefined, outside]),
    )
