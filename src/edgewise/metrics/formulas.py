"""The formulas of metrics on plain tensors; NaN where they are undefined.

`Ranking`, at the end, computes AUROC, average precision and precision at k for many targets of different sizes at once;
`planted_truth.py` uses it too. Tests compare it with scikit-learn.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from edgewise.arguments import share, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.results.metric_result import Conditions


@checked
def characterization(plus: Tensor, minus: Tensor, weight: float = 0.5) -> Tensor:
    """The weighted harmonic mean of fidelity+ and 1 − fidelity−, in [0, 1]; higher is better.

    1 / (weight / fidelity+ + (1 − weight) / (1 − fidelity−)); 0 if either part is 0, NaN if one is outside [0, 1].
    Amara et al., LoG 2022 ("GraphFramEx").

    >>> characterization(torch.tensor([0.5, 0.0, -0.1]), torch.tensor([0.5, 0.2, 0.0]))
    tensor([0.5000, 0.0000,    nan])
    """
    _same_shape(plus, minus, "plus", "minus")
    weight = share("weight", weight, such_as=0.5)
    kept = 1 - minus
    mean = 1 / (weight / plus + (1 - weight) / kept)
    mean = torch.where((plus == 0) | (kept == 0), torch.zeros_like(mean), mean)
    inside = (plus >= 0) & (plus <= 1) & (kept >= 0) & (kept <= 1)
    return torch.where(inside, mean, torch.nan)


@checked
def area(x: Tensor, y: Tensor) -> Tensor:
    """The mean height of curves `[..., points]` over points `x` `[points]`, by the trapezoid rule.

    >>> area(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 2.0, 2.0]))
    tensor(1.7500)
    """
    if x.dim() != 1 or y.shape[-1:] != x.shape:
        raise InputError(f"`x` must be [points] and `y` [..., points], got shapes {list(x.shape)} and {list(y.shape)}.")
    if any(part.dtype == torch.bool or part.is_complex() for part in (x, y)):
        raise InputError(f"`x` and `y` must be real numbers, got {x.dtype} and {y.dtype}. Use x.float() and y.float().")
    if len(x) < 2 or bool((x.diff() <= 0).any()):
        raise InputError("`x` must have at least two points in ascending order. Use x.sort().")
    return torch.trapezoid(y, x.to(y.dtype)) / (x[-1] - x[0])


@checked
def auroc(score: Tensor, truth: Tensor) -> Tensor:
    """The chance that a true edge scores higher than another (equals count half); a number for each row of `[..., edges]`.

    NaN where no edge is true, or every one, or all scores are equal.

    >>> auroc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]))
    tensor(0.5000)
    """
    return _by_row(lambda ranking: (ranking.auroc(), None), score, truth)


@checked
def average_precision(score: Tensor, truth: Tensor) -> Tensor:
    """Precision, averaged over the true edges in the order of the scores; equal scores enter together. NaN as in `auroc`.

    >>> average_precision(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]))    # (1/1 + 2/3) / 2
    tensor(0.8333)
    """
    return _by_row(lambda ranking: (ranking.average_precision(), None), score, truth)


@checked
def precision_at(score: Tensor, truth: Tensor, k: int | None = None) -> Tensor:
    """The share of true edges among the k with the highest scores; without `k`, as many as are true.

    Where the cut falls among equals: the expectation over their orders. NaN as in `auroc`, and with fewer than k edges.

    >>> precision_at(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]), k=2)
    tensor(0.5000)
    """
    k = whole_number("k", k, at_least=1, or_none="for as many as are true")

    def formula(ranking: "Ranking") -> tuple[Tensor, Tensor]:
        cut = ranking.true_edges if k is None else torch.full_like(ranking.edges, k)
        return ranking.precision(cut), cut

    return _by_row(formula, score, truth)


def _same_shape(a: Tensor, b: Tensor, first: str, second: str) -> None:
    if a.shape != b.shape:
        raise InputError(f"`{first}` and `{second}` must have the same shape, got {list(a.shape)} and {list(b.shape)}.")


def _by_row(formula: Callable[["Ranking"], tuple[Tensor, Tensor | None]], score: Tensor, truth: Tensor) -> Tensor:
    """A formula of a ranking (its value and its k) for every row of scores `[..., edges]`, in their shape without `edges`."""
    _same_shape(score, truth, "score", "truth")
    if score.dim() == 0 or bool(score.isnan().any()):
        raise InputError("`score` must be [..., edges] without NaN: a single number, or NaN, cannot be ranked.")
    rows, shape = score.shape[:-1].numel(), score.shape[:-1]
    row = torch.arange(rows).repeat_interleave(score.size(-1))
    ranking = Ranking(row, score.reshape(-1).double().cpu(), truth.reshape(-1).cpu() != 0, rows)
    value, k = formula(ranking)
    for condition, _ in ranking.undefined(k):
        value = torch.where(condition, torch.nan, value)
    return value.reshape(shape).to(score.dtype if score.is_floating_point() else torch.get_default_dtype())


# --- Rankings of many targets at once ----------------------------------------------------------------------------------


class Ranking:
    """How well scores rank true edges before others, for many targets at once; equal scores are treated as equal.

    Entries (target, score, whether it is true) are sorted by target and score, and put into groups of equal scores, best
    first. Scores 3, 2, 2 of one target, of which the first and the last are true, give two groups: of size 1 with 1 true
    edge, and of size 2 with 1 true edge. So `_size` is (1, 2), `_true` is (1, 1), and `_before(_true)` is (0, 1).

    >>> ranking = Ranking(torch.zeros(3).long(), torch.tensor([3.0, 2.0, 2.0]), torch.tensor([True, False, True]), 1)
    >>> ranking.auroc(), ranking.precision(torch.tensor([2]))       # (1 + 1/2) / 2 pairs; (1 + 1/2) / 2 places
    (tensor([0.7500], dtype=torch.float64), tensor([0.7500], dtype=torch.float64))
    """

    def __init__(self, row: Tensor, score: Tensor, truth: Tensor, num_rows: int) -> None:
        """`row` (the target), `score` and `truth` are `[entries]`."""
        order = score.argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        row, score, self._truth, self.num_rows = row[order], score[order], truth[order], num_rows
        changed = torch.ones(len(row), dtype=torch.bool)
        changed[1:] = (row[1:] != row[:-1]) | (score[1:] != score[:-1])
        self._group = changed.cumsum(0) - 1
        self._row = row[changed]
        """`[groups]`: the target of each."""

    def _per_group(self, values: Tensor) -> Tensor:
        """`[groups]`: sums of `[entries]`."""
        return torch.zeros(len(self._row), dtype=torch.double).index_add_(0, self._group, values.double())

    def _per_row(self, values: Tensor) -> Tensor:
        """`[targets]`: sums of `[groups]`."""
        return torch.zeros(self.num_rows, dtype=torch.double).index_add_(0, self._row, values)

    def _before(self, per_group: Tensor) -> Tensor:
        """`[groups]`: the sum over the groups of the same target that rank higher."""
        until = per_group.cumsum(0) - per_group
        whole = self._per_row(per_group)
        return until - (whole.cumsum(0) - whole)[self._row]

    @cached_property
    def _size(self) -> Tensor:
        return self._per_group(torch.ones_like(self._group))

    @cached_property
    def _true(self) -> Tensor:
        return self._per_group(self._truth)

    @cached_property
    def edges(self) -> Tensor:
        """`[targets]`: how many edges each has."""
        return self._per_row(self._size)

    @cached_property
    def true_edges(self) -> Tensor:
        """`[targets]`: how many of them are true."""
        return self._per_row(self._true)

    def undefined(self, k: Tensor | None = None) -> Conditions:
        """Conditions `[targets]` under which a ranking says nothing, with the reason."""
        groups = self._per_row(torch.ones_like(self._size))
        found = [
            (self.true_edges == 0, "no edge that can matter is true"),
            (self.true_edges == self.edges, "every edge that can matter is true"),
            (groups < 2, "all scores are equal"),
        ]
        return found if k is None else [*found, (self.edges < k, "fewer than k edges can matter")]

    def auroc(self) -> Tensor:
        """The chance that a true edge ranks higher than another; equals count half."""
        higher = (self._size - self._true) * (self._before(self._true) + self._true / 2)
        return self._per_row(higher) / (self.true_edges * (self.edges - self.true_edges))

    def average_precision(self) -> Tensor:
        """Precision at every group, weighted by its share of the true edges."""
        precision = (self._before(self._true) + self._true) / (self._before(self._size) + self._size)
        return self._per_row(precision * self._true) / self.true_edges

    def precision(self, k: Tensor) -> Tensor:
        """The share of true edges among the first k `[targets]`; a group that is cut counts with its expected share."""
        taken = (k[self._row] - self._before(self._size)).clamp(min=0).minimum(self._size)
        return self._per_row(self._true * taken / self._size) / k
