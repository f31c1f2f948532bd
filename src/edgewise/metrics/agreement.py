"""Agreement of two explanations."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import InputError
from edgewise.metrics.edge_choice import strength
from edgewise.results.explanation import Explanation
from edgewise.results.explanation_set import Explained, ExplanationSet


def similarity(a: Explained, b: Explained, per_layer: bool = False) -> Tensor:  # noqa: FBT001, FBT002 (public contract)
    """Cosine of the scores of a and b, one for each target of a, matched by index; self scores ignored.

    `[targets]`, or `[targets, layers]` with `per_layer`; a single number for two `Explanation`s. NaN where one of the two is
    zero everywhere: there is no angle then. Both must be of one level, of the same nodes (or graphs) and without NaN; the
    classes may differ.

    >>> import torch
    >>> edges = torch.tensor([[0, 1], [2, 2]])
    >>> a = Explanation(torch.tensor([3.0, 0.0]), edges, 3, index=2, target=0, value=3.0)
    >>> b = Explanation(torch.tensor([3.0, 4.0]), edges, 3, index=2, target=0, value=7.0)
    >>> similarity(a, b)
    tensor(0.6000)
    """
    _check(a, b, per_layer=per_layer)
    first, second = _as_list(a), _as_list(b)
    match = _matched(first, second)
    if isinstance(a, Explanation) and isinstance(b, Explanation):
        return _of_two(a, b, per_layer=per_layer)
    if (
        isinstance(first, ExplanationSet)
        and isinstance(second, ExplanationSet)
        and None not in (first.edges, second.edges)
    ):
        return _sparse_cosine(first, second._some(match), per_layer=per_layer)
    rows = [_of_two(first[i], second[j], per_layer=per_layer) for i, j in enumerate(match.tolist())]
    return torch.stack(rows)


def _of_two(a: Explanation, b: Explanation, *, per_layer: bool) -> Tensor:
    if a.scores.shape != b.scores.shape:
        raise InputError(
            f"The scores have shapes {list(a.scores.shape)} and {list(b.scores.shape)}; needed is one for each column of "
            f"the same edge_index (and each layer)."
        )
    return _cosine(a.scores.double(), b.scores.double(), per_layer=per_layer).to(a.scores.dtype)


def _as_list(explained: Explained) -> "ExplanationSet | list[Explanation]":
    return [explained] if isinstance(explained, Explanation) else explained


def _check(a: Explained, b: Explained, *, per_layer: bool) -> None:
    for one in (a, b):
        if not isinstance(one, (Explanation, ExplanationSet)):
            raise InputError(f"similarity got {type(one).__name__}; needed are two results of explain().")
        scores = one.scores if isinstance(one, Explanation) else None if one.edges is None else one.edges.score
        if scores is not None and not bool(torch.isfinite(scores).all()):
            raise InputError(
                "The scores have NaN or infinite entries, which have no angle. Explain again after cleaning the model's "
                "weights and the data."
            )
    if a.level != b.level:
        raise InputError(
            f"One explanation is at {a.level} level, the other at {b.level} level. Explain both with the same level=."
        )
    if per_layer and a.level != "layer":
        raise InputError("per_layer=True needs layerwise explanations. Type explain(..., level='layer').")


def _indices(explained: "ExplanationSet | list[Explanation]") -> list[int]:
    if isinstance(explained, ExplanationSet):
        return explained.index.tolist()
    return [one.index for one in explained]


def _graph_of(explained: "ExplanationSet | list[Explanation]", position: int) -> Tensor:
    return explained.graph(position)[0] if isinstance(explained, ExplanationSet) else explained[position].edge_index


def _matched(a: "ExplanationSet | list[Explanation]", b: "ExplanationSet | list[Explanation]") -> Tensor:
    """The position in b of every target of a."""
    where = {index: position for position, index in reversed(list(enumerate(_indices(b))))}
    missing = [index for index in _indices(a) if index not in where]
    if missing:
        raise InputError(
            f"{len(missing)} targets of the first are not in the second ({missing[:5]} …). Explain the same index."
        )
    match = torch.tensor([where[index] for index in _indices(a)])
    shared = isinstance(a, ExplanationSet) and isinstance(b, ExplanationSet) and len(a.graphs) == len(b.graphs) == 1
    for position in [0] if shared else range(len(match)):
        one, other = _graph_of(a, position), _graph_of(b, int(match[position]))
        if one is not other and not (one.shape == other.shape and torch.equal(one.cpu(), other.cpu())):
            raise InputError(
                "The two explanations belong to different graphs: their edge_index differs. Explain the same data."
            )
    return match


def _cosine(a: Tensor, b: Tensor, *, per_layer: bool) -> Tensor:
    if not per_layer:
        a, b = a.reshape(-1), b.reshape(-1)
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()


def _sparse_cosine(a: ExplanationSet, b: ExplanationSet, *, per_layer: bool) -> Tensor:
    """The same from the stored entries alone."""
    assert a.edges is not None
    assert b.edges is not None
    groups = a.num_layers if per_layer else 1
    widths = torch.tensor([a.graph(i)[0].size(1) for i in range(len(a.graphs))])
    largest = int(widths.max()) * a.num_layers + 1

    def keyed(explained: ExplanationSet) -> tuple[Tensor, Tensor, Tensor]:
        entries = explained.edges
        assert entries is not None
        row = entries.rows()
        width = widths[row] if len(widths) > 1 else widths[0]
        group = row * groups + (entries.place // width if per_layer else 0)
        key, order = (row * largest + entries.place).sort()
        return key, group[order], entries.score.double()[order]

    (key_a, group_a, score_a), (key_b, group_b, score_b) = keyed(a), keyed(b)
    size = len(a) * groups
    dot = torch.zeros(size, dtype=torch.float64)
    if len(key_a) and len(key_b):
        place = torch.searchsorted(key_b, key_a).clamp(max=len(key_b) - 1)
        dot.index_add_(0, group_a, torch.where(key_b[place] == key_a, score_a * score_b[place], 0.0))
    square_a = torch.zeros(size, dtype=torch.float64).index_add_(0, group_a, score_a.square())
    square_b = torch.zeros(size, dtype=torch.float64).index_add_(0, group_b, score_b.square())
    cosine = (dot / (square_a * square_b).sqrt()).to(a.value.dtype)
    return cosine.view(len(a), groups) if per_layer else cosine


# --- How alike the scores of several runs are, pair by pair, for many targets at once: sums of products, entry by entry ---


_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Flaws:
    """Why a number may be missing. `[groups]`, or `[runs, groups]`; a group is a target, or a target's layer."""

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
        """Those of all groups, from those of some."""
        names = ("empty", "few", "zero", "constant", "unsigned", "tied")
        return Flaws(*(torch.cat([getattr(part, name) for part in parts], dim=-1) for name in names))


class Scored:
    """Entries `[n]` that belong to groups, each with the scores of all runs, `[n, runs]`."""

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

        >>> scored = Scored(torch.tensor([0, 0, 0, 1]), 2, torch.zeros(4, 1))
        >>> lower, equal = scored.lower_and_equal(torch.tensor([5.0, 2.0, 5.0, 1.0]))
        >>> lower.tolist(), equal.tolist()
        ([1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 2.0, 1.0])
        """
        order = values.argsort(stable=True)
        order = order[self.group[order].argsort(stable=True)]
        group, value = self.group[order], values[order]
        first = torch.ones(len(order), dtype=torch.bool)
        first[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])
        tie = first.cumsum(0) - 1
        begin = (self.count.cumsum(0) - self.count)[group[first]]
        lower, equal = first.nonzero().view(-1) - begin, torch.bincount(tie)
        back = torch.empty_like(order)
        back[order] = tie
        return lower[back].double(), equal[back].double()

    def unit(self) -> Tensor:
        """`[n, runs]`: the scores, scaled so that the largest magnitude of each group is 1: squares of it do not underflow."""
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
        """`[n, runs]`: the chance to be among the k strongest of the group, if equals come in random order."""
        columns = []
        for column in self.scores.t():
            strong = strength(column, by)
            stronger, equal = self.lower_and_equal(-strong)
            columns.append(((k - stronger) / equal).clamp(0, 1) * (strong > 0))
        return torch.stack(columns, dim=1)


def agreements(scored: Scored, pairs: Tensor, k: int, by: str) -> tuple[dict[str, Tensor], Flaws]:
    """Every measure for every pair of runs `[2, pairs]`: `[pairs, groups]`, NaN where it is undefined; and why.

    cosine: Σ ab / √(Σ a² Σ b²). spearman: the same of centred ranks. overlap: the expected number of edges that both have
    among their k strongest, divided by the larger of the two choices. sign: of the edges that at least one of the two gives a
    sign (not 0), the share to which both give the same.
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


def _pair_cosine(scored: Scored, values: Tensor, pairs: Tensor) -> Tensor:
    square = scored.total(values.square()).t()
    return scored.products(values, pairs) / (square[pairs[0]].sqrt() * square[pairs[1]].sqrt())


def _flaws(scored: Scored, ranks: Tensor, chances: Tensor, k: int, by: str) -> Flaws:
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
        found += [(flaws.tied[run], f"{name} ranks its edges all alike: any k would do") for run, name in both]
    return found
