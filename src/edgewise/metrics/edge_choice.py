"""Which edges are the explanation, by number, share or threshold and by sign; and how short and how one-sided it is.

Metrics that need a choice of edges read it with `read_choice` (for a curve, `read_sizes`) and apply it with
`choose`. `sparsity` and `signs`, at the
end, measure the choice itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import one_of, real_number, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError, SettingError
from edgewise.results.entries import strongest
from edgewise.results.explanation import ORDERS, strength
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.metric_result import Conditions, Measured, MeasuredTable, with_reasons
from edgewise.results.score_rows import ScoreRows, as_mask, as_set, parts_of, rows_of

SIGNS = (*ORDERS, "irrelevant")
FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
"""The sizes of a curve unless others are given."""
_NONE_OF = {
    "support": "no edge has a positive score",
    "opposition": "no edge has a negative score",
    "magnitude": "all scores are zero",
    "irrelevant": "no edge has score 0",
}
CONSTANT = "all scores are equal, so that any k of them would do: use threshold=0, or no k"


@dataclass(frozen=True)
class Choice:
    """A rule that picks edges by their scores. At most one of `k`, `fraction` and `threshold` is given by the user."""

    by: str
    k: int | None = None
    fraction: float | None = None
    threshold: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """What a rule picked, for every target."""

    mask: ExplanationSet
    """1 (or the score itself, where it is the mask) for the explanation, 0 elsewhere."""
    size: Tensor
    """`[targets]`: how many edges, or the sum of the mask."""
    possible: Tensor
    """`[targets]`: how many can matter."""
    undefined: Conditions


def read_choice(k: Any = None, fraction: Any = None, threshold: Any = None, by: Any = None) -> Choice | None:
    """The rule that a metric was given, checked; None: the scores themselves are the mask."""
    given = [name for name, value in (("k", k), ("fraction", fraction), ("threshold", threshold)) if value is not None]
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} cannot be used together. Use one of k=, fraction=, threshold=.")
    if by is not None:
        one_of("`by`", by, SIGNS)
    if by == "irrelevant" and given:
        raise SettingError(
            f"{given[0]} ranks edges, but irrelevant edges (score 0) have no rank. Leave {given[0]} out."
        )
    if k is not None:
        k = whole_number("k", k, at_least=0, such_as=10)
    if fraction is not None:
        real_number("fraction", fraction, at_least=0, at_most=1, such_as=0.1)
    if threshold is not None:
        real_number("threshold", threshold, at_least=0, hint="For edges that oppose, use by='opposition'.")
    if not given and by is None:
        return None
    return Choice(by or "support", k, fraction, threshold or 0.0)


def read_sizes(fractions: Sequence[float] | None, ks: Sequence[int] | None) -> tuple[list[float], str]:
    """The points of a curve, and the argument of `read_choice` that takes them."""
    if fractions is not None and ks is not None:
        raise SettingError("fractions and ks cannot be used together. Use one of fractions=, ks=.")
    sizes = list(ks if ks is not None else fractions if fractions is not None else FRACTIONS)
    if len(sizes) < 2 or any(b <= a for a, b in pairwise(sizes)):
        raise SettingError(
            f"`fractions` or `ks` must be at least two sizes in ascending order, got {sizes}. Use [0.0, 0.1, 0.5, 1.0], for "
            f"example."
        )
    return sizes, "fraction" if ks is None else "k"


def choose(found: ExplanationSet, choices: Sequence[Choice | None]) -> list[Chosen]:
    """What each rule picks, target by target, among the edges that can matter; None takes the scores as the mask."""
    rows = rows_of(found)
    return [_as_given(found, rows) if choice is None else _by_rule(found, rows, choice) for choice in choices]


def _by_rule(found: ExplanationSet, rows: ScoreRows, choice: Choice) -> Chosen:
    """What one rule picks, as a mask of 0 and 1."""
    if choice.by == "irrelevant":
        picked = rows.score == 0
        undefined = [(rows.count(picked) == 0, _NONE_OF["irrelevant"])]
    else:
        picked, undefined = _ranked(rows, choice)
    return Chosen(as_mask(found, rows, picked), rows.count(picked), rows.count(), undefined)


def _ranked(rows: ScoreRows, choice: Choice) -> tuple[Tensor, Conditions]:
    """`[entries]`: whether an entry is picked by its rank or the threshold; and for which targets that means nothing.

    Scores (3, −1, 2) of one target, k = 1: by support the first entry is picked, by opposition the second.
    """
    strong = strength(rows.score, choice.by)
    picked = strong > choice.threshold
    none = rows.count(picked) == 0
    above = f"no score is stronger than the threshold {choice.threshold:g}"
    undefined = [(none, above if choice.threshold else _NONE_OF[choice.by])]
    if choice.k is None and choice.fraction is None:
        return picked, undefined
    share = (rows.count() * (choice.fraction or 0)).ceil().long()
    limit = share if choice.k is None else torch.full_like(share, choice.k)
    undefined.append((_all_equal(rows, strong, picked) & (rows.count(picked) > limit) & (limit > 0), CONSTANT))
    able = picked.nonzero().view(-1)
    best = able[strongest(rows.row[able], strong[able], limit)]
    return torch.zeros_like(picked).index_fill_(0, best, True), undefined


def _all_equal(rows: ScoreRows, strong: Tensor, picked: Tensor) -> Tensor:
    """`[targets]`: whether all entries of a target that could be picked are equally strong."""
    row, value = rows.row[picked], strong[picked]
    ends = [
        torch.full((rows.num_rows,), start, dtype=value.dtype).scatter_reduce(0, row, value, how)
        for start, how in ((float("inf"), "amin"), (float("-inf"), "amax"))
    ]
    return ends[0] == ends[1]


def _as_given(found: ExplanationSet, rows: ScoreRows) -> Chosen:
    """The scores are the mask: they must lie in [0, 1]."""
    low, high = (float(rows.score.min()), float(rows.score.max())) if len(rows.score) else (0.0, 1.0)
    if low < 0 or high > 1:
        raise InputError(
            f"The scores are not a mask: values must lie in [0, 1], got {low:.4g} to {high:.4g}. Say which edges are the "
            f"explanation: use k=10, fraction=0.1 or threshold=0.0 (all), with by='support', 'opposition' or 'magnitude'."
        )
    size = rows.total(rows.score)
    return Chosen(found, size, rows.count(), [(size == 0, _NONE_OF["magnitude"])])


# --- How much of the graph an explanation takes, and how much of it supports, opposes, or does neither -----------------


@checked
def sparsity(
    explained: Explained,
    *,
    k: int | None = None,
    fraction: float | None = None,
    threshold: float | None = None,
    by: str = "magnitude",
) -> Measured:
    """The share of edges that are not in the explanation: 1 − chosen / possible, in [0, 1].

    Possible edges are those that can reach the target within the model's layers (at layer level: layer by layer). Without
    `k`, `fraction` and `threshold` all edges of the sign `by` are the explanation.

    >>> from edgewise import Explanation
    >>> edges = torch.tensor([[0, 1, 2], [3, 3, 3]])
    >>> why = Explanation(torch.tensor([2.0, 0.0, -1.0]), edges, 4, index=3, target=0, value=1.0)
    >>> sparsity(why).value, sparsity(why, by="support").value
    (tensor([0.3333]), tensor([0.6667]))
    """
    choice = read_choice(k, fraction, threshold, by)
    assert choice is not None  # by is given
    found = as_set(explained, "sparsity")
    chosen = [choose(part, [choice])[0] for part in parts_of(found)]
    size, possible = (torch.cat([getattr(part, name) for part in chosen]) for name in ("size", "possible"))
    undefined = [(possible == 0, "no edge can matter")]
    return with_reasons("sparsity", (1 - size / possible).to(found.value.dtype), found.index, undefined, "")


@dataclass(frozen=True, eq=False, repr=False)
class Signs(MeasuredTable):
    """How much of an explanation supports and opposes: shares of the edges that can matter, and of the total magnitude."""

    support: Measured
    """The share of edges with a positive score."""
    opposition: Measured
    """The share of edges with a negative score."""
    irrelevant: Measured
    """The share of edges with score 0."""
    supporting_weight: Measured
    """Σ of positive scores / Σ of magnitudes."""
    opposing_weight: Measured
    """Σ of the magnitudes of negative scores / Σ of magnitudes."""
    title: str = "support, opposition, irrelevant: shares of the edges that can matter"


@checked
def signs(explained: Explained, *, threshold: float = 0.0) -> Signs:
    """How many edges support, oppose and do neither (magnitude of at most `threshold`), and how much weight each side has.

    >>> from edgewise import Explanation
    >>> edges = torch.tensor([[0, 1, 2, 0], [3, 3, 3, 2]])
    >>> why = Explanation(torch.tensor([3.0, 0.0, -1.0, 0.0]), edges, 4, index=3, target=0, value=1.0)
    >>> found = signs(why)
    >>> found.support.value, found.irrelevant.value, found.opposing_weight.value
    (tensor([0.2500]), tensor([0.5000]), tensor([0.2500]))
    """
    choice = read_choice(threshold=threshold)
    assert choice is not None
    found = as_set(explained, "signs")
    parts = [_weighed(rows_of(part), choice) for part in parts_of(found)]
    possible, support, opposition, plus, minus = (torch.cat(part) for part in zip(*parts, strict=True))
    empty, zero = [(possible == 0, "no edge can matter")], [(plus + minus == 0, "all scores are zero")]
    shares = {"support": support, "opposition": opposition, "irrelevant": possible - support - opposition}
    pro, contra, neither = (with_reasons(name, n / possible, found.index, empty, "") for name, n in shares.items())
    weights = {"supporting weight": plus, "opposing weight": minus}
    for_it, against = (
        with_reasons(name, part / (plus + minus), found.index, [*empty, *zero], "") for name, part in weights.items()
    )
    return Signs(pro, contra, neither, for_it, against)


def _weighed(rows: ScoreRows, choice: Choice) -> tuple[Tensor, ...]:
    """`[targets]` each: possible, supporting and opposing edges; sums of positive and of negative scores."""
    level = float(choice.threshold)
    support, opposition = rows.score > level, rows.score < -level
    sums = (rows.total(rows.score.clamp(min=0)), rows.total((-rows.score).clamp(min=0)))
    return rows.count(), rows.count(support), rows.count(opposition), *sums
