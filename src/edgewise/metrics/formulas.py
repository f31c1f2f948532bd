"""Formulas on plain tensors; NaN where they are undefined."""

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.errors import InputError, SettingError
from edgewise.metrics.planted_truth import Ranking


def characterization(plus: Tensor, minus: Tensor, weight: float = 0.5) -> Tensor:
    """The weighted harmonic mean of fidelity+ and 1 − fidelity−, in [0, 1]; higher is better.

    1 / (weight / fidelity+ + (1 − weight) / (1 − fidelity−)); 0 if either part is 0, NaN if one is outside [0, 1].
    Amara et al., LoG 2022 ("GraphFramEx").

    >>> characterization(torch.tensor([0.5, 0.0, -0.1]), torch.tensor([0.5, 0.2, 0.0]))
    tensor([0.5000, 0.0000,    nan])
    """
    _same_shape(plus, minus, "plus", "minus")
    if not 0 < weight < 1:
        raise SettingError(f"weight is {weight!r}; needed is the share of fidelity+, between 0 and 1, such as 0.5.")
    kept = 1 - minus
    mean = 1 / (weight / plus + (1 - weight) / kept)
    mean = torch.where((plus == 0) | (kept == 0), torch.zeros_like(mean), mean)
    inside = (plus >= 0) & (plus <= 1) & (kept >= 0) & (kept <= 1)
    return torch.where(inside, mean, torch.nan)


def area(x: Tensor, y: Tensor) -> Tensor:
    """The mean height of curves `[..., points]` over points `x` `[points]`, by the trapezoid rule.

    >>> area(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 2.0, 2.0]))
    tensor(1.7500)
    """
    if x.dim() != 1 or y.shape[-1:] != x.shape:
        raise InputError(f"x has shape {list(x.shape)}, y {list(y.shape)}; needed are [points] and [..., points].")
    if len(x) < 2 or bool((x.diff() <= 0).any()):
        raise InputError("x needs at least two points, each larger than the one before. Sort them: x.sort().")
    return torch.trapezoid(y, x.to(y.dtype)) / (x[-1] - x[0])


def auroc(score: Tensor, truth: Tensor) -> Tensor:
    """The chance that a true edge scores higher than another (equals count half); a number for each row of `[..., edges]`.

    NaN where no edge is true, or every one, or all scores are equal.

    >>> auroc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]))
    tensor(0.5000)
    """
    return _by_row(lambda ranking: (ranking.auroc(), None), score, truth)


def average_precision(score: Tensor, truth: Tensor) -> Tensor:
    """Precision, averaged over the true edges in the order of the scores; equals come in together. NaN as in `auroc`.

    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]))    # (1/1 + 2/3) / 2
    tensor(0.8333)
    """
    return _by_row(lambda ranking: (ranking.average_precision(), None), score, truth)


def precision_at(score: Tensor, truth: Tensor, k: int | None = None) -> Tensor:
    """The share of true edges among the k with the highest scores; without `k`, as many as are true.

    Where the cut falls among equals: the expectation over their orders. NaN as in `auroc`, and with fewer than k edges.

    >>> precision_at(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]), k=2)
    tensor(0.5000)
    """
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
        raise SettingError(f"k is {k!r}; needed is a number of edges of at least 1, or None for as many as are true.")

    def formula(ranking: Ranking) -> tuple[Tensor, Tensor]:
        cut = ranking.true_edges if k is None else torch.full_like(ranking.edges, k)
        return ranking.precision(cut), cut

    return _by_row(formula, score, truth)


def _same_shape(a: Tensor, b: Tensor, first: str, second: str) -> None:
    if a.shape != b.shape:
        raise InputError(f"{first} has shape {list(a.shape)}, {second} {list(b.shape)}; they must be equal.")


def _by_row(formula: Callable[[Ranking], tuple[Tensor, Tensor | None]], score: Tensor, truth: Tensor) -> Tensor:
    _same_shape(score, truth, "score", "truth")
    if score.dim() == 0 or bool(score.isnan().any()):
        raise InputError("score is a single number or has NaN entries; needed is a rank for every edge: [..., edges].")
    rows, shape = score.shape[:-1].numel(), score.shape[:-1]
    row = torch.arange(rows).repeat_interleave(score.size(-1))
    ranking = Ranking(row, score.reshape(-1).double().cpu(), truth.reshape(-1).cpu() != 0, rows)
    value, k = formula(ranking)
    for condition, _ in ranking.undefined(k):
        value = torch.where(condition, torch.nan, value)
    return value.reshape(shape).to(score.dtype if score.is_floating_point() else torch.get_default_dtype())
