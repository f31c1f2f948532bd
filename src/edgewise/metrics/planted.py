"""Does an explanation recover the truth that was planted in the data?"""

from dataclasses import dataclass
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from edgewise.collection import ExplanationSet
from edgewise.errors import InputError, SettingError
from edgewise.explanation import ORDERS
from edgewise.metrics.agreement import Explained
from edgewise.metrics.choosing import strength
from edgewise.metrics.measured import Conditions, Measured, MeasuredTable, with_reasons
from edgewise.metrics.ranking import Ranking
from edgewise.metrics.rows import as_set, parts_of, rows_of


@dataclass(frozen=True, eq=False, repr=False)
class Recovery(MeasuredTable):
    """How well scores find the planted edges; prints as a table."""

    auroc: Measured
    """The chance that a planted edge ranks above another."""
    average_precision: Measured
    precision_at_k: Measured
    """Among the k strongest; without `k`, as many as were planted."""
    exact: Measured
    """1 where the strongest edges, as many as were planted, are the planted ones."""
    title: str = ""


def recovery(explained: Explained, truth: Any, *, k: int | None = None, by: str = "support") -> Recovery:
    """Rank the edges that can reach a target by their scores, and see where the planted ones stand.

    Args:
        explained: A result of `explain`; layerwise scores are summed over the layers.
        truth: 1 for planted edges, 0 for others, −1 for planted opposition: `[E]` for all targets, `[targets, E]`, or a list
            with a vector for each target. `ew.datasets.load(name).truth(explained.index)` gives it.
        k: For `precision_at_k`; without it, as many edges as were planted for the target.
        by: `"support"` ranks the highest score first and looks for 1, `"opposition"` the lowest and −1, `"magnitude"` the
            largest and either.

    Returns:
        A `Recovery`. NaN, with the reason, where all edges or none are planted, or all scores are equal. Equal scores are
        treated as equal: no result depends on the order of the columns.

    >>> from edgewise import Explanation
    >>> edges = torch.tensor([[0, 1, 2], [3, 3, 3]])
    >>> why = Explanation(torch.tensor([3.0, 2.0, 1.0]), edges, 4, index=3, target=0, value=1.0)
    >>> found = recovery(why, torch.tensor([1, 0, 1]))
    >>> found.auroc.value, found.precision_at_k.value, found.exact.value
    (tensor([0.5000]), tensor([0.5000]), tensor([0.]))
    """
    if by not in ORDERS:
        raise SettingError(f"by is {by!r}; known are {', '.join(ORDERS)}.")
    if k is not None and (not isinstance(k, SupportsIndex) or isinstance(k, bool) or int(k) < 1):
        raise SettingError(
            f"k is {k!r}; needed is a number of edges of at least 1, or None for as many as were planted."
        )
    found = as_set(explained, "recovery")
    (auroc, average, precision, exact), conditions = _ranked(found, truth_rows(truth, found), k, by)
    return Recovery(
        with_reasons("AUROC", auroc, found.index, conditions[:-1]),
        with_reasons("average precision", average, found.index, conditions[:-1]),
        with_reasons(f"precision@{k or 'planted'}", precision, found.index, conditions),
        with_reasons("exact", exact, found.index, conditions[:-1]),
        f"recovery of planted edges by {by}",
    )


def _ranked(found: ExplanationSet, truth: list[Tensor], k: int | None, by: str) -> tuple[list[Tensor], Conditions]:
    """Four numbers for each target, and when they are undefined (the last condition: fewer than k edges)."""
    start, values, conditions = 0, [], []
    for part in parts_of(found):
        ranking = _ranking(part, truth[start : start + len(part)], by)
        cut = ranking.true_edges if k is None else torch.full_like(ranking.edges, int(k))
        exact = (ranking.precision(ranking.true_edges) == 1).double()
        values.append((ranking.auroc(), ranking.average_precision(), ranking.precision(cut), exact))
        conditions.append(ranking.undefined(cut))
        start += len(part)
    joined = [(torch.cat([one for one, _ in same]), same[0][1]) for same in zip(*conditions, strict=True)]
    return [torch.cat(column).to(found.value.dtype) for column in zip(*values, strict=True)], joined


def _ranking(part: ExplanationSet, truth: list[Tensor], by: str) -> Ranking:
    rows = rows_of(part, edges_only=True)
    shift = torch.tensor([0, *(len(one) for one in truth[:-1])]).cumsum(0)
    planted = torch.cat(truth)[shift[rows.row] + rows.column]
    wanted = {"support": planted > 0, "opposition": planted < 0, "magnitude": planted != 0}[by]
    return Ranking(rows.row, strength(rows.score.double(), by), wanted, len(part))


def truth_rows(truth: Any, found: ExplanationSet) -> list[Tensor]:
    """A vector of −1, 0 and 1 for each target."""
    widths = [found.graph(i)[0].size(1) for i in range(len(found))]
    if isinstance(truth, Tensor) and truth.dim() == 1:
        truth = truth.expand(len(found), -1)
    rows = [torch.as_tensor(row).detach().cpu() for row in truth]
    if [list(row.shape) for row in rows] != [[width] for width in widths]:
        got = f"{list(truth.shape)}" if isinstance(truth, Tensor) else f"a list of {len(rows)}"
        raise InputError(
            f"truth is {got}; needed is a number for each edge of each of the {len(found)} targets: [edges], [targets, edges], "
            f"or a list of vectors, the first with {widths[0]} entries."
        )
    if not all(bool(((row == 0) | (row == 1) | (row == -1)).all()) for row in rows):
        raise InputError("truth has entries other than -1, 0 and 1 (or NaN). Threshold it first, such as truth > 0.5.")
    return [row.to(torch.int8) for row in rows]
