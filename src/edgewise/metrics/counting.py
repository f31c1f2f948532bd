"""How much of the graph an explanation takes, and how much of it speaks for, against, or not at all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.metrics.agreement import Explained
from edgewise.metrics.choosing import Choice, choose, read_choice
from edgewise.metrics.measured import Measured, MeasuredTable, with_reasons
from edgewise.metrics.rows import Rows, as_set, parts_of, rows_of


def sparsity(
    explained: Explained,
    *,
    k: int | None = None,
    fraction: float | None = None,
    threshold: float | None = None,
    by: str = "magnitude",
) -> Measured:
    """The share of edges that are not in the explanation: 1 − chosen / possible, in [0, 1].

    Possible are the edges that can reach the target within the model's layers (at layer level: layer by layer). Without
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
    """What an explanation is made of; shares of the edges that can matter, and of the sum of magnitudes."""

    support: Measured
    """The share of edges with a positive score."""
    opposition: Measured
    irrelevant: Measured
    """The share of edges with score 0."""
    supporting_weight: Measured
    """Σ of positive scores / Σ of magnitudes."""
    opposing_weight: Measured
    title: str = "support, opposition, irrelevant: shares of the edges that can matter"


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


def _weighed(rows: Rows, choice: Choice) -> tuple[Tensor, ...]:
    """`[targets]` each: possible, supporting and opposing edges; sums of positive and of negative scores."""
    support, opposition = rows.score > choice.threshold, rows.score < -choice.threshold
    sums = (rows.total(rows.score.clamp(min=0)), rows.total((-rows.score).clamp(min=0)))
    return rows.count(), rows.count(support), rows.count(opposition), *sums
