"""Does an explanation recover the truth that was planted in the data: its edges, or exactly its path?

The file is not called `recovery.py`, which would shadow the function `ew.metrics.recovery`. The ranking formulas are in
`formulas.py`; data sets with a planted truth in `edgewise.datasets`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import index as whole
from typing import Any, TypeAlias

import torch
from torch import Tensor

from edgewise.arguments import one_of, shown, whole_number
from edgewise.arrays import read_tensor
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.graph.type_table import TypeTable
from edgewise.metrics.formulas import Ranking
from edgewise.results.explanation import ORDERS, Explanation, strength
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.metric_result import Conditions, Measured, MeasuredTable, with_reasons
from edgewise.results.score_rows import as_set, parts_of, rows_of
from edgewise.results.typed_explanation import TypedExplanation


@dataclass(frozen=True, eq=False, repr=False)
class Recovery(MeasuredTable):
    """How well scores find the planted edges; prints as a table."""

    auroc: Measured
    """The chance that a planted edge ranks above another."""
    average_precision: Measured
    """Precision, averaged over the planted edges in the order of the scores."""
    precision_at_k: Measured
    """Among the k strongest; without `k`, as many as were planted."""
    exact: Measured
    """1 where the strongest edges, as many as were planted, are the planted ones."""
    title: str = ""


@checked
def recovery(explained: Explained, truth: Any, *, k: int | None = None, by: str = "support") -> Recovery:
    """Rank the edges that can reach a target by their scores, and see where the planted ones stand.

    Args:
        explained: A result of `explain`; layerwise scores are summed over the layers.
        truth: 1 for planted edges, 0 for others, −1 for planted opposition: `[E]` for all targets, `[targets, E]`, or a list
            with a vector for each target; of typed graphs a dict by edge type, or a list of them.
            `ew.datasets.load(name).truth(explained.index)` gives it.
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
    one_of("`by`", by, ORDERS)
    k = whole_number("k", k, at_least=1, or_none="for as many as were planted")
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
        cut = ranking.true_edges if k is None else torch.full_like(ranking.edges, k)
        exact = (ranking.precision(ranking.true_edges) == 1).double()
        values.append((ranking.auroc(), ranking.average_precision(), ranking.precision(cut), exact))
        conditions.append(ranking.undefined(cut))
        start += len(part)
    joined = [(torch.cat([one for one, _ in same]), same[0][1]) for same in zip(*conditions, strict=True)]
    return [torch.cat(column).to(found.value.dtype) for column in zip(*values, strict=True)], joined


def _ranking(part: ExplanationSet, truth: list[Tensor], by: str) -> Ranking:
    """The entries of some targets, ranked by strength; true are the planted edges of the sign that `by` looks for."""
    rows = rows_of(part, edges_only=True)
    shift = torch.tensor([0, *(len(one) for one in truth[:-1])]).cumsum(0)
    planted = torch.cat(truth)[shift[rows.row] + rows.column]
    wanted = {"support": planted > 0, "opposition": planted < 0, "magnitude": planted != 0}[by]
    return Ranking(rows.row, strength(rows.score.double(), by), wanted, len(part))


def truth_rows(truth: Any, found: ExplanationSet) -> list[Tensor]:
    """A vector of −1, 0 and 1 for each target, `[E]` in the columns of its graph."""
    widths = [found.graph(i)[0].size(1) for i in range(len(found))]
    if found.type_tables:
        truth = _union_truth(truth, found)
    if isinstance(truth, Tensor) and truth.dim() == 1:
        truth = truth.expand(len(found), -1)
    try:
        rows = [read_tensor(row) for row in truth]
    except Exception as error:  # whatever a stranger's object raises
        raise InputError(f"`truth` must be a tensor or a list of vectors, got {shown(truth)}.") from error
    if [list(row.shape) for row in rows] != [[width] for width in widths]:
        got = f"{list(truth.shape)}" if isinstance(truth, Tensor) else f"a list of {len(rows)}"
        raise InputError(
            f"`truth` must have a number for each edge of each of the {len(found)} targets ([edges], [targets, edges], or a "
            f"list of vectors, the first with {widths[0]} entries), got {got}."
        )
    if not all(bool(((row == 0) | (row == 1) | (row == -1)).all()) for row in rows):
        raise InputError("`truth` must have only entries -1, 0 and 1. Threshold it first, for example truth > 0.5.")
    return [row.to(torch.int8) for row in rows]


def _union_truth(truth: Any, found: ExplanationSet) -> Any:
    """Truth by edge type, `{("user", "rates", "movie"): [E_type]}` for all targets or one for each, as rows of the union."""
    each = [truth] * len(found) if isinstance(truth, Mapping) else truth
    if not isinstance(each, Sequence) or not all(isinstance(one, Mapping) for one in each):
        return truth  # a vector for the columns of the union
    rows = []
    for position, one in enumerate(each):
        types = found.types_of(position)
        assert types is not None
        row = torch.zeros(sum(count for _, count in types.edges), dtype=torch.int8)
        for kind, planted in one.items():
            if kind not in types.edge_types or len(planted) != len(types.edge_range(kind)):
                raise InputError(
                    f"`truth` must have a number for each edge of an edge type, {dict(types.edges)}, got {len(planted)} of "
                    f"{kind}."
                )
            row[types.edge_range(kind).start : types.edge_range(kind).stop] = read_tensor(planted)
        rows.append(row)
    return rows


# --- Is the explanation exactly the path along which the truth was planted? --------------------------------------------


Path: TypeAlias = Sequence[int]
NO_PATH = "there is no true path with an edge"


@checked
def path_recovery(found: Explained | Sequence[Path], paths: Sequence[Sequence[Path]]) -> Measured:
    """1 where the explanation is exactly one of the true paths, 0 where it is not; paths run from source to target.

    Args:
        found: For each target a walk (its nodes, source first; waiting on a node counts once); or a result of `explain`, of
            which the strongest edges, as many as the path has, must be the path's. Ties at the cut count as not found.
        paths: For each target its true paths, each a sequence of nodes from the source on, as `infection_paths` gives them.

    The number is NaN, with the reason, where a target has no path of at least one edge, or only the path can reach it.

    >>> path_recovery([(7, 7, 3, 5), (4, 2, 1)], [[(7, 3, 5)], [(4, 3, 1), (6, 3, 1)]]).value
    tensor([1., 0.])
    """
    types = found.types if isinstance(found, (ExplanationSet, TypedExplanation)) else None
    paths = _node_lists("paths", paths, deep=True, types=types)
    found = found if isinstance(found, (Explanation, ExplanationSet)) else _node_lists("found", found)
    number = 1 if isinstance(found, Explanation) else len(found)
    if number != len(paths):
        raise InputError(f"`paths` must have a list for each of the {number} explanations, got {len(paths)} lists.")
    whole = [[path for path in some if len(path) > 1] for some in paths]
    none = torch.tensor([not some for some in whole], dtype=torch.bool)
    if isinstance(found, (Explanation, ExplanationSet)):
        explained = as_set(found, "path_recovery")
        value, trivial = _strongest_edges(explained, whole)
        undefined = [
            (none, NO_PATH),
            (trivial & ~none, "only the path can reach the target, or all scores are equal"),
        ]
        return with_reasons("exact path", value, explained.index, undefined)
    hits = [tuple(node for node, _ in groupby(walk)) in some for walk, some in zip(found, whole, strict=True)]
    value = torch.tensor(hits, dtype=torch.get_default_dtype())
    return with_reasons("exact path", value, torch.arange(number), [(none, NO_PATH)])


def _node_lists(name: str, given: Any, *, deep: bool = False, types: TypeTable | None = None) -> list[Any]:
    """For each target a walk (its nodes), or with `deep` a list of walks."""
    try:
        if deep:
            return [[tuple(_node(node, types) for node in path) for path in some] for some in given]
        return [tuple(map(whole, walk)) for walk in given]
    except Exception as error:  # what a stranger's object raises when it is looped over
        wanted = "a list of walks for each target" if deep else "a walk for each target"
        raise InputError(f"`{name}` must have {wanted}, a walk being a list of nodes, got {shown(given)}.") from error


def _node(node: Any, types: TypeTable | None) -> int:
    """The number of a node of a path; of a typed graph `("user", 3)` has one in the union."""
    if types is not None and isinstance(node, tuple) and node[0] in types.node_types:
        return types.node_range(node[0]).start + whole(node[1])
    return whole(node)


def _strongest_edges(found: ExplanationSet, paths: list[list[tuple[int, ...]]]) -> tuple[Tensor, Tensor]:
    """`[targets]`: whether the strongest edges are one of the paths, and whether that can be said of no path."""
    if len(found.graphs) > 1:
        raise InputError("Paths lead to nodes; these explanations are of whole graphs. Use recovery(found, truth).")
    owner = torch.tensor([position for position, some in enumerate(paths) for _ in some], dtype=torch.long)
    value, unknown = torch.zeros(len(found), dtype=found.value.dtype), torch.ones(len(found), dtype=torch.bool)
    if len(owner):
        edges = _edges_of([path for some in paths for path in some], *found.graphs[0])
        exact = recovery(found[owner], edges).exact.value
        value = value.scatter_reduce(0, owner, exact.nan_to_num(0.0), "amax")
        unknown[owner[~exact.isnan()]] = False
    return value, unknown


def _edges_of(paths: list[tuple[int, ...]], edge_index: Tensor, num_nodes: int) -> Tensor:
    """`[paths, E]`: which columns each path takes; of parallel edges, all.

    >>> _edges_of([(0, 1, 2)], torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=3)      # columns 0→1, 0→2, 1→2
    tensor([[1, 0, 1]], dtype=torch.int8)
    """
    step = torch.tensor([(row, *pair) for row, path in enumerate(paths) for pair in pairwise(path)])
    known, column = (edge_index[0] * num_nodes + edge_index[1]).cpu().unique(return_inverse=True)
    key = step[:, 1] * num_nodes + step[:, 2]
    place = torch.searchsorted(known, key).clamp(max=max(len(known) - 1, 0))
    missing = (known[place] != key) if len(known) else torch.ones_like(key, dtype=torch.bool)
    if bool(missing.any()):
        _, source, receiver = step[missing][0].tolist()
        raise InputError(f"A path goes from {source} to {receiver}, which is not an edge of the explained graph.")
    taken = torch.zeros(len(paths), len(known), dtype=torch.int8)
    taken[step[:, 0], place] = 1
    return taken[:, column]
