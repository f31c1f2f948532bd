"""Which edges and self scores of each target a page keeps, and their numbers under every method.

`Keeper.keep` does all targets at once: it collects the strongest edges of every method in every view, then looks up the number
of each of them under all methods. A view is what a reader can choose: input level, the sum over layers, or one layer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from edgewise.results.entries import Entries, Part, strongest
from edgewise.results.score_rows import ScoreRows, rows_of, scores_at, widths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgewise.results.explanation_set import ExplanationSet

    Sets: TypeAlias = Mapping[tuple[str, str], ExplanationSet]


@dataclass(frozen=True)
class TopEdges:
    """Numbers `[methods, layers, items]` of one target; items are edges or nodes; NaN where a method has no such number."""

    item: Tensor
    """`[items]`: columns of `edge_index`, or nodes."""
    scores: Mapping[str, Tensor]
    """By level; at input level there is one layer."""


@dataclass(frozen=True)
class Kept:
    """What is kept of one target."""

    edges: TopEdges
    own: TopEdges
    """Self scores, by node."""
    totals: Mapping[str, Tensor]
    """View → `[methods, 3]`: how many scores are not zero, their total magnitude and their sum, kept or not. Views: `"input"`,
    `"layer"` (the sum over layers), `"layer 0"` …, `"steps"` (all layers, self scores among them)."""


class Keeper:
    """Chooses what is kept, for all targets at once."""

    def __init__(self, sets: Sets, methods: Sequence[str], levels: Sequence[str], num_layers: int, most: int) -> None:
        self._sets = {key: _where_it_matters(found) for key, found in sets.items()}
        self._methods, self._levels, self._most = methods, levels, most
        self._depth = {"input": 1, "layer": num_layers}
        first = next(iter(sets.values()))
        self._size = len(first)
        counts = [(edge_index.size(1), nodes) for edge_index, nodes in first.graphs]
        self.num_edges, self.num_nodes = (torch.tensor(part).expand(self._size) for part in zip(*counts, strict=True))

    def keep(self, also: Tensor) -> list[Kept]:
        """What every view of every method shows, for each target; the edges `also` `[2, n]`, (target, column), besides.

        `edges` and `own` collect (target, item) pairs `[2, n]`; `totals` counts what is not kept too.
        """
        edges, totals = [also], self._no_totals()
        own = [torch.zeros(2, 0, dtype=torch.long)]
        for number, level, found in self._each():
            for view, rows in self._views(found, level):
                edges.append(torch.stack([rows.row, rows.column])[:, self._strongest(rows.row, rows.score)])
                totals[view][:, number] = _totals(rows.row, rows.score, self._size)
                if view.startswith("layer "):
                    totals["steps"][:, number] += totals[view][:, number]
            row, _, node, score = self._own_entries(found)
            own.append(torch.stack([row, node])[:, self._strongest(row, score)])
            if level == "layer":
                totals["steps"][:, number] += _totals(row, score, self._size)
        edge_tables = self._tables(torch.cat(edges, dim=1), of_edges=True)
        own_tables = self._tables(torch.cat(own, dim=1), of_edges=False)
        parts = ({view: part[target] for view, part in totals.items()} for target in range(self._size))
        return [Kept(*each) for each in zip(edge_tables, own_tables, parts, strict=True)]

    def _each(self) -> Iterator[tuple[int, str, ExplanationSet]]:
        """(number of the method, level, its explanations)."""
        for (method, level), found in self._sets.items():
            yield self._methods.index(method), level, found

    def _no_totals(self) -> dict[str, Tensor]:
        """View → `[targets, methods, 3]` of zeros."""
        views = ["input"] if "input" in self._levels else []
        if "layer" in self._levels:
            views += ["layer", *(f"layer {layer}" for layer in range(self._depth["layer"])), "steps"]
        return {view: torch.zeros(self._size, len(self._methods), 3, dtype=torch.double) for view in views}

    def _views(self, found: ExplanationSet, level: str) -> Iterator[tuple[str, ScoreRows]]:
        """(view, its scores) of one method: at layer level the sum over layers, then layer by layer."""
        if level == "input":
            yield "input", rows_of(found)
            return
        yield "layer", rows_of(found, edges_only=True)
        rows = rows_of(found)
        for layer in range(self._depth["layer"]):
            inside = rows.layer == layer
            one_layer = ScoreRows(
                rows.row[inside], rows.layer[inside], rows.column[inside], rows.score[inside], rows.num_rows
            )
            yield f"layer {layer}", one_layer

    def _strongest(self, row: Tensor, score: Tensor) -> Tensor:
        """The places of the strongest scores of every target (`row`), never of a zero."""
        nonzero = score.nonzero().view(-1)
        return nonzero[strongest(row[nonzero], score[nonzero].abs(), self._most)]

    def _own_entries(self, found: ExplanationSet) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(target, layer, node, score) of the self scores that are stored."""
        if found.own is None:
            nothing = torch.zeros(0, dtype=torch.long)
            return nothing, nothing, nothing, torch.zeros(0)
        row, width = found.own.rows(), self.num_nodes
        return row, found.own.place // width[row], found.own.place % width[row], found.own.score

    def _tables(self, pairs: Tensor, *, of_edges: bool) -> list[TopEdges]:
        """The numbers of (target, item) pairs, each once, in the order of items."""
        row, item = (part.contiguous() for part in pairs.unique(dim=1))
        scores = {level: self._numbers(level, row, item, of_edges=of_edges) for level in self._levels}
        bounds = torch.searchsorted(row, torch.arange(self._size + 1)).tolist()
        return [
            TopEdges(item[start:end], {level: part[:, :, start:end] for level, part in scores.items()})
            for start, end in itertools.pairwise(bounds)
        ]

    def _numbers(self, level: str, row: Tensor, item: Tensor, *, of_edges: bool) -> Tensor:
        """`[methods, layers, pairs]`: the scores of (target, item) pairs; NaN where a method has none."""
        numbers = torch.full((len(self._methods), self._depth[level], len(row)), torch.nan, dtype=torch.double)
        for number, at, found in self._each():
            for layer in range(self._depth[level]) if at == level else ():
                place = torch.full_like(row, layer)
                if of_edges:
                    numbers[number, layer] = scores_at(found, row, place, item).double()
                elif found.own is not None and not _is_missing(found, level, layer):
                    numbers[number, layer] = found.own.at(row, place * self.num_nodes[row] + item).double()
        return numbers


def _where_it_matters(found: ExplanationSet) -> ExplanationSet:
    """The same set with stored scores.

    A method that draws its scores on demand (`random`) has one for every edge of the graph; stored are those of edges that can
    matter to a target, since a page shows no others.
    """
    if found.edges is not None:
        return found
    rows = rows_of(found)
    stored = Part(rows.row, rows.layer * widths(found)[rows.row] + rows.column, rows.score)
    return replace(found, edges=Entries([stored], len(found)))


def _is_missing(found: ExplanationSet, level: str, layer: int) -> bool:
    """Whether own terms cannot be separated there; at input level one such layer is enough."""
    return bool(found.own_missing) if level == "input" else layer in found.own_missing


def _totals(row: Tensor, score: Tensor, size: int) -> Tensor:
    """`[targets, 3]`: how many are not zero, their total magnitude, and their sum."""
    parts = torch.stack([(score != 0).double(), score.abs().double(), score.double()], dim=1)
    return torch.zeros(size, 3, dtype=torch.double).index_add_(0, row, parts)
