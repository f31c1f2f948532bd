"""Is the explanation what the model used? Fidelity+ and fidelity−, and unfaithfulness."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.collection import ExplanationSet
from edgewise.errors import SettingError
from edgewise.metrics.agreement import Explained
from edgewise.metrics.choosing import read_choice
from edgewise.metrics.formulas import characterization
from edgewise.metrics.intervening import Options, Outcome, intervene
from edgewise.metrics.measured import Measured, MeasuredTable, with_reasons
from edgewise.metrics.rows import as_set
from edgewise.target import Target, predicted

NUMBERS = ("value", "prob", "label")
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

    Fidelity+ is what the number loses without the explanation, fidelity− what it loses if nothing else is left. Of edges
    that support, fidelity+ should be high and fidelity− low; of edges that oppose (`by="opposition"`), fidelity+ should be
    negative; of irrelevant ones, 0. Nodes and self edges stay.

    Args:
        explained: A result of `explain`. Without `k`, `fraction`, `threshold` and `by` its scores are the mask, in [0, 1].
        model: The model that was explained; left as it was.
        data: The data that was explained.
        k: The explanation is the k strongest edges (at layer level: entries); fewer where fewer have the sign.
        fraction: The same as a share of the edges that can reach the target, rounded up.
        threshold: All edges stronger than this; 0 takes every edge of the sign.
        by: `"support"` (positive scores), `"opposition"` (negative), `"magnitude"` (both), `"irrelevant"` (score 0).
        how: `"masking"` weights messages, degrees and attention unchanged; `"removing"` drops columns of `edge_index`.
        of: `"value"`, the explained number; `"prob"`, the probability of the explained class; `"label"`, 1 where the answer
            to "is it that class?" changes.
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
    """Whether fidelity can be taken of that number."""
    if of not in NUMBERS:
        raise SettingError(f"of is {of!r}; known are {', '.join(NUMBERS)}.")
    if of != "value" and found.settings.get("mode") == "regression":
        raise SettingError(f"of={of!r} needs classes, and a regression has none. Leave it out: of='value'.")


def changes(outcome: Outcome, of: str) -> tuple[Tensor, Tensor]:
    """Fidelity+ and fidelity− of every target, whether defined or not."""
    target = outcome.target
    full, only, without = (_number(target, rows, of) for rows in (outcome.full, outcome.only, outcome.without))
    if of == "label":
        return (full != without).to(full.dtype), (full != only).to(full.dtype)
    return full - without, full - only


def _number(target: Target, rows: Tensor, of: str) -> Tensor:
    if of == "label":
        return (predicted(rows, target.mode) == target.column).to(rows.dtype).cpu()
    return (target.value(rows) if of == "value" else target.number(rows, "prob")).cpu()


def _measures(found: ExplanationSet, outcome: Outcome, of: str) -> tuple[Measured, Measured, Measured, Measured]:
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

    With one logit the two probabilities are σ(z) and σ(−z). Which edges are the explanation: as in `fidelity`. Agarwal et
    al., Scientific Data 2023 ("GraphXAI").

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
    return nn.functional.logsigmoid(torch.cat([-rows, rows], dim=1)) if mode == "binary" else rows.log_softmax(dim=1)
