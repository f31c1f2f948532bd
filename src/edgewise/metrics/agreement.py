"""How alike the scores of several runs are, pair by pair, for many targets at once: cosine, Spearman, overlap and sign.

`agreements` computes all four from `ScoresByRun`, as sums of products entry by entry; `Flaws` says where a number would mean
nothing. `pairwise.py` makes a `Comparison` of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.results.explanation import strength

_ROUNDING = 1e-9  # relative


@dataclass(frozen=True, eq=False)
class Flaws:
    """Why a number may be missing: booleans `[groups]`, or `[runs, groups]`; a group is a target, or a target's layer."""

    empty: Tensor
    """No edge can matter."""
    few: Tensor
    """No more than k edges can matter: every choice of k is the same."""
    zero: Tensor
    """All scores are zero."""
    constant: Tensor
    """All scores are equal."""
    unsigned: Tensor
    """No score has the sign that is ranked by."""
    tied: Tensor
    """More than k scores have that sign, and all of these are equal: any k of them would do."""

    @staticmethod
    def joined(parts: list["Flaws"]) -> "Flaws":
        """The flaws of all groups, from blocks of them."""
        names = ("empty", "few", "zero", "constant", "unsigned", "tied")
        return Flaws(*(torch.cat([getattr(part, name) for part in parts], dim=-1) for name in names))


class ScoresByRun:
    """Entries `[n]` that belong to groups, each with the scores of all runs, `[n, runs]`.

    Two targets with 2 and 1 edges, and two runs: `group` is (0, 0, 1), `scores` is 3 × 2.
    """

    def __init__(self, group: Tensor, num_groups: int, scores: Tensor) -> None:
        self.group, self.num_groups, self.scores = group, num_groups, scores.double()
        self.count = torch.bincount(group, minlength=num_groups)

    def total(self, values: Tensor) -> Tensor:
        """`[groups, runs]`: sums of `[n, runs]`."""
        return values.new_zeros(self.num_groups, values.size(1)).index_add_(0, self.group, values)

    def products(self, values: Tensor, pairs: Tensor) -> Tensor:
        """`[pairs, groups]`: Σ values[:, a] · values[:, b] of each pair (a, b)."""
        found = values.new_zeros(pairs.size(1), self.num_groups)
        for run in pairs[0].unique().tolist():
            mine = (pairs[0] == run).nonzero().view(-1)
            found[mine] = self.total(values[:, run : run + 1] * values[:, pairs[1, mine]]).t()
        return found

    def lower_and_equal(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` each: how many entries of the same group are smaller, and how many are equal (itself included).

        >>> scored = ScoresByRun(torch.tensor([0, 0, 0, 1]), 2, torch.zeros(4, 1))
        >>> lower, equal = scored.lower_and_equal(torch.tensor([5.0, 2.0, 5.0, 1.0]))
        >>> lower.tolist(), equal.tolist()
        ([1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 2.0, 1.0])
        """
        order = values.argsort(stable=True)
        order = order[self.group[order].argsort(stable=True)]  # [n]: by group, then by value
        group, value = self.group[order], values[order]
        first = torch.ones(len(order), dtype=torch.bool)
        first[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])  # [n]: the first of each run of equals
        tie = first.cumsum(0) - 1  # [n]: the number of its run of equals
        begin = (self.count.cumsum(0) - self.count)[group[first]]  # [ties]: where the group begins
        lower, equal = first.nonzero().view(-1) - begin, torch.bincount(tie)
        back = torch.empty_like(order)
        back[order] = tie
        return lower[back].double(), equal[back].double()

    def unit(self) -> Tensor:
        """`[n, runs]`: the scores, scaled so that the largest magnitude of each group is 1 and squares do not underflow."""
        place = self.group.view(-1, 1).expand_as(self.scores)
        largest = self.scores.new_zeros(self.num_groups, self.scores.size(1))
        largest.scatter_reduce_(0, place, self.scores.abs(), "amax")
        return self.scores / torch.where(largest > 0, largest, 1.0)[self.group]

    def ranks(self) -> Tensor:
        """`[n, runs]`: ranks within the group, equals sharing the mean of theirs, with mean 0."""
        found = [self.lower_and_equal(column) for column in self.scores.t()]
        shared = torch.stack([lower + (equal - 1) / 2 for lower, equal in found], dim=1)
        return shared - ((self.count - 1) / 2)[self.group].view(-1, 1)

    def chances(self, k: int, by: str) -> Tensor:
        """`[n, runs]`: the chance to be among the k strongest of the group, if equal scores come in random order.

        >>> scored = ScoresByRun(torch.tensor([0, 0, 0]), 1, torch.tensor([[5.0], [2.0], [2.0]]))
        >>> scored.chances(2, "support").view(-1)          # the first for sure, one of the others
        tensor([1.0000, 0.5000, 0.5000], dtype=torch.float64)
        """
        columns = []
        for column in self.scores.t():
            strong = strength(column, by)
            stronger, equal = self.lower_and_equal(-strong)
            columns.append(((k - stronger) / equal).clamp(0, 1) * (strong > 0))
        return torch.stack(columns, dim=1)


def agreements(scored: ScoresByRun, pairs: Tensor, k: int, by: str) -> tuple[dict[str, Tensor], Flaws]:
    """Every measure for every pair of runs `[2, pairs]`: `[pairs, groups]`, NaN where it is undefined; and why.

    cosine: Σ ab / √(Σ a² Σ b²). spearman: the cosine of centred ranks. overlap: the expected number of edges that both have
    among their k strongest, divided by the larger of the two choices. sign: of the edges that at least one of the two gives a
    sign (not 0), the share to which both give the same.

    >>> scores = torch.tensor([[1.0, 1.0], [0.0, 2.0], [-1.0, -1.0]])         # three edges of one target, two runs
    >>> found, flaws = agreements(ScoresByRun(torch.tensor([0, 0, 0]), 1, scores), torch.tensor([[0], [1]]), 1, "support")
    >>> {measure: round(float(value), 3) for measure, value in found.items()}
    {'cosine': 0.577, 'spearman': 0.5, 'overlap': 0.0, 'sign': 0.667}
    """
    ranks, chances, signs = scored.ranks(), scored.chances(k, by), scored.scores.sign()
    flaws = _flaws(scored, ranks, chances, k, by)
    one, other = pairs
    chosen, signed = scored.total(chances).t(), scored.total(signs.abs()).t()
    both, balance = scored.products(signs.abs(), pairs), scored.products(signs, pairs)
    found = {
        "cosine": _pair_cosine(scored, scored.unit(), pairs),
        "spearman": _pair_cosine(scored, ranks, pairs),
        "overlap": scored.products(chances, pairs) / torch.maximum(chosen[one], chosen[other]),
        "sign": (both + balance) / 2 / (signed[one] + signed[other] - both),
    }
    for measure, value in found.items():
        for undefined, _ in undefined_where(flaws, measure, (one, other)):
            value[undefined.expand_as(value)] = torch.nan
    return found, flaws


def _pair_cosine(scored: ScoresByRun, values: Tensor, pairs: Tensor) -> Tensor:
    """`[pairs, groups]`: the cosine of values `[n, runs]`, pair by pair."""
    square = scored.total(values.square()).t()
    return scored.products(values, pairs) / (square[pairs[0]].sqrt() * square[pairs[1]].sqrt())


def _flaws(scored: ScoresByRun, ranks: Tensor, chances: Tensor, k: int, by: str) -> Flaws:
    """Which runs and groups have no number, from ranks and chances `[n, runs]`."""
    zero, level, unsigned = (scored.total(part.abs()).t() == 0 for part in (scored.scores, ranks, chances))
    able = scored.total((strength(scored.scores, by) > 0).double()).t()
    # Σ p = k, so Σ p² is at least k² / able, and just that if all have the same chance.
    alike = (scored.total(chances.square()).t() * able - k**2).abs() < _ROUNDING * k**2
    return Flaws(scored.count == 0, scored.count <= k, zero, level, unsigned, (able > k) & alike)


def undefined_where(
    flaws: Flaws, measure: str, runs: tuple[Tensor, Tensor], names: tuple[str, str] = ("", "")
) -> list[tuple[Tensor, str]]:
    """Conditions `[pairs, groups]` under which a measure says nothing, each with the reason; `names` are the two methods."""
    both = list(zip(runs, names, strict=True))
    found = [(flaws.empty, "no edge can matter")]
    found += [(flaws.zero[run], f"the scores of {name} are all zero") for run, name in both]
    if measure == "spearman":
        found += [(flaws.constant[run], f"the scores of {name} are all equal") for run, name in both]
    if measure == "overlap":
        found += [(flaws.few, "no more than k edges can matter")]
        found += [(flaws.unsigned[run], f"{name} has no edge of the sign that is ranked by") for run, name in both]
        found += [(flaws.tied[run], f"{name} gives all its edges the same rank: any k would do") for run, name in both]
    return found
