"""The scores of many targets as entries (target, layer, edge): those of the edges that can matter to each target.

An `ExplanationSet` stores what is not zero. Metrics also need the zeros of edges that could have had a score; `rows_of`
enumerates both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.arrays import enumerated, index_keys, plain_index
from edgewise.errors import InputError
from edgewise.graph.computation_graph import InEdges, nearest_once, reach
from edgewise.graph.pair_copies import pair_reach
from edgewise.results.entries import Entries
from edgewise.results.explanation import Explanation
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.typed_explanation import TypedExplanation

_TARGETS_AT_ONCE = 256


def as_set(explained: Explained, metric: str) -> ExplanationSet:
    """A result of `explain`, checked, as a set: a single explanation is a set of one."""
    if isinstance(explained, TypedExplanation):
        types = explained.types
        typed = {"types": types} if types.explained else {"graph_types": (types,)}
        explained = replace(_set_of_one(explained.flat), **typed)
    if isinstance(explained, Explanation):
        explained = _set_of_one(explained)
    if not isinstance(explained, ExplanationSet):
        raise InputError(
            f"{metric} needs a result of explain() (an Explanation or an ExplanationSet), got {type(explained).__name__}."
        )
    if explained.edges is not None and not bool(torch.isfinite(explained.edges.score).all()):
        bad = int(explained.edges.rows()[~torch.isfinite(explained.edges.score)][0])
        target = plain_index(explained.index)[bad]
        raise InputError(
            f"The scores of target {target} have NaN or infinite entries, which {metric} cannot rank. "
            f"Remove NaN from the model's weights and the data, and explain again."
        )
    return explained


def set_of(explained: Any) -> ExplanationSet:
    """A set, or one explanation as a set of one that lacks nothing: self scores, errors and the numbers of a batch."""
    if isinstance(explained, ExplanationSet):
        return explained
    flat, n_id, e_id = explained, explained.n_id, explained.e_id
    typed: dict[str, Any] = {}
    if isinstance(explained, TypedExplanation):
        types, flat = explained.types, explained.flat
        typed = {"types": types} if types.explained else {"graph_types": (types,)}
        n_id, e_id = (None if part is None else part.joined for part in (n_id, e_id))
    own, missing = _own_of(flat.self_scores)
    errors = None if flat.standard_errors is None else _entries(flat.standard_errors)
    return replace(_set_of_one(flat), own=own, own_missing=missing, errors=errors, n_id=n_id, e_id=e_id, **typed)


def _own_of(scores: Tensor | None) -> tuple[Entries | None, tuple[int, ...]]:
    """Self scores `[N]` or `[L, N]` without their zeros, and the layers that have none (NaN)."""
    if scores is None:
        return None, ()
    rows = scores.detach().reshape(-1, scores.size(-1)) if scores.numel() else scores.detach().reshape(1, -1)
    missing = tuple(layer for layer, row in enumerate(rows) if row.numel() and bool(row.isnan().all()))
    return _entries(scores.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)), missing


def _entries(values: Tensor) -> Entries:
    """One row: the numbers of one target without their zeros."""
    flat = values.detach().reshape(-1).cpu()
    place = flat.nonzero().view(-1)
    return Entries.of_rows(torch.tensor([0, len(place)]), place, flat[place])


def _set_of_one(why: Explanation) -> ExplanationSet:
    """The same explanation as a set with sparse scores."""
    shape = (*([why.scores.size(0)] if why.level == "layer" else []), why.edge_index.size(1))
    if tuple(why.scores.shape) != shape:
        raise InputError(
            f"`scores` must have shape {list(shape)} at {why.level} level, a number for each of the "
            f"{why.edge_index.size(1)} columns of edge_index, got {list(why.scores.shape)}."
        )
    flat = why.scores.detach().reshape(-1).cpu()
    flat = flat if flat.is_floating_point() else flat.to(torch.get_default_dtype())
    place = flat.nonzero().view(-1)
    return ExplanationSet(
        index=torch.tensor([why.index]),
        target=torch.tensor([why.target]),
        value=torch.tensor([why.value], dtype=flat.dtype),
        method=why.method,
        level=why.level,
        num_layers=shape[0] if why.level == "layer" else 1,
        graphs=((why.edge_index, why.num_nodes),),
        edges=Entries.of_rows(torch.tensor([0, len(place)]), place, flat[place]),
        settings=why.settings,
    )


def parts_of(found: ExplanationSet) -> Iterator[ExplanationSet]:
    """The set in pieces of some targets each, to bound memory."""
    for start in range(0, len(found), _TARGETS_AT_ONCE):
        yield found[start : start + _TARGETS_AT_ONCE]


def widths(found: ExplanationSet) -> Tensor:
    """`[targets]`: how many edges the graph of each target has."""
    return torch.tensor([edge_index.size(1) for edge_index, _ in found.graphs]).expand(len(found))


@dataclass(frozen=True)
class ScoreRows:
    """An entry for every target and edge (at layer level: and layer) that can matter to it; tensors are `[entries]`."""

    row: Tensor
    """The target, as a position in the set."""
    layer: Tensor
    """0 at input level."""
    column: Tensor
    """The column of `edge_index`."""
    score: Tensor
    num_rows: int
    """The number of targets."""

    def count(self, which: Tensor | None = None) -> Tensor:
        """`[targets]`: how many entries each has, or how many of those that the mask `which` `[entries]` picks."""
        return torch.bincount(self.row if which is None else self.row[which], minlength=self.num_rows)

    def total(self, values: Tensor) -> Tensor:
        """`[targets]`: the sum of values `[entries]`, target by target."""
        return torch.zeros(self.num_rows, dtype=values.dtype).index_add_(0, self.row, values)


def scores_at(found: ExplanationSet, row: Tensor, layer: Tensor, column: Tensor) -> Tensor:
    """`[n]`: the scores of n entries (target, layer, edge); 0 where nothing is stored."""
    if found.edges is None:  # random: every edge of the graph has one
        drawn = random_numbers.uniform(
            found.settings["seed"], index_keys(found.index, found.graphs[0][1])[row], layer, column
        )
        return drawn.to(torch.float32).to(found.value.dtype)
    return found.edges.at(row, layer * widths(found)[row] + column)


def rows_of(found: ExplanationSet, *, edges_only: bool = False) -> ScoreRows:
    """Every entry that can matter; with `edges_only` layerwise scores are summed over the layers.

    Path 0 → 1 → 2, two layers, target 2, scores at layer level: edge 0 → 1 can matter in layer 0 alone, edge 1 → 2 in both
    layers, so the entries (layer, column) are (0, 0), (0, 1), (1, 1).

    >>> from edgewise import explain
    >>> from edgewise.examples import path_model
    >>> found = explain(*path_model([2.0, 3.0]), index=[2], target=0, mode="regression", level="layer")
    >>> rows = rows_of(found)
    >>> rows.layer.tolist(), rows.column.tolist(), rows.score.tolist()
    ([0, 0, 1], [0, 1, 1], [6.0, 0.0, 6.0])
    """
    row, column, hops = _edges_that_matter(found)
    layers = found.num_layers if found.level == "layer" else 1
    if edges_only:
        scores = [scores_at(found, row, torch.full_like(row, l), column) for l in range(layers)]
        return ScoreRows(row, torch.zeros_like(row), column, torch.stack(scores).sum(dim=0), len(found))
    inside = [
        (hops <= layers - 1 - l) if layers > 1 else torch.ones_like(hops, dtype=torch.bool) for l in range(layers)
    ]
    layer = torch.cat([torch.full((int(part.sum()),), l) for l, part in enumerate(inside)])
    row, column = (torch.cat([part[which] for which in inside]) for part in (row, column))
    return ScoreRows(row, layer, column, scores_at(found, row, layer, column), len(found))


def _edges_that_matter(found: ExplanationSet) -> tuple[Tensor, Tensor, Tensor]:
    """(target, column, hops from the receiver to the target): the computation graph, or all edges where that is unknown."""
    hops = found.settings.get("hops")
    if hops is None:
        row, column = enumerated(widths(found))
        return row, column, torch.zeros_like(row)
    edge_index, num_nodes = found.graphs[0]
    in_edges = InEdges.of(edge_index.cpu(), num_nodes, found.settings.get("flow", "source_to_target"))
    near = (pair_reach if found.index.dim() == 2 else reach)(in_edges, found.index, hops - 1)
    position, place = in_edges.of_nodes(near.node)
    row, column = near.target[position], in_edges.edge[place]
    key = row * max(edge_index.size(1), 1) + column
    order = nearest_once(key, near.hops[position])  # by column: so ties fall as in Explanation.top
    return row[order], column[order], near.hops[position][order]


def as_mask(found: ExplanationSet, rows: ScoreRows, chosen: Tensor) -> ExplanationSet:
    """A set whose scores are 1 for chosen entries and 0 for the others."""
    row, layer, column = rows.row[chosen], rows.layer[chosen], rows.column[chosen]
    order = row.argsort(stable=True)
    start = torch.zeros(rows.num_rows + 1, dtype=torch.long)
    start[1:] = rows.count(chosen).cumsum(0)
    place = (layer * widths(found)[row] + column)[order]
    return replace(found, edges=Entries.of_rows(start, place, torch.ones(len(place), dtype=found.value.dtype)))
