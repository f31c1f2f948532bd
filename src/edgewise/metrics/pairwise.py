"""Every two methods at one level: how alike their scores are, target by target, with Student intervals of the means.

`PairwiseAgreement` takes the `Runs` of `runs.py` and gives the cells of a `Comparison`. The measures themselves are in
`agreement.py`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import torch
from torch import Tensor

from edgewise.metrics.agreement import Flaws, ScoresByRun, agreements, undefined_where
from edgewise.metrics.runs import Runs
from edgewise.results.comparison import MEASURES, Agreement, Key, Running
from edgewise.results.score_rows import parts_of, rows_of, scores_at
from edgewise.student_intervals import interval_of_mean, interval_over_pairs


@dataclass(frozen=True)
class _Slice:
    """All of a level, or one layer of it: every measure's numbers `[pairs of runs, targets]`, and why some are missing."""

    layer: int | None
    numbers: dict[str, Tensor]
    flaws: Flaws


@dataclass(frozen=True)
class _Cell:
    """Two methods: which rows of a slice's numbers are theirs, and the runs behind them."""

    first: int
    second: int
    place: slice
    """Among the pairs of runs of all cells."""
    runs: tuple[Tensor, Tensor]
    """`[pairs]` each: the run of the first method and that of the second; positions among all runs."""


class PairwiseAgreement:
    """The runs of all methods at one level, compared.

    With the methods gradient (one run, number 0) and random (two seeds, runs 1 and 2) the cells are gradient ~ gradient
    (runs 0, 0), gradient ~ random (0, 1 and 0, 2) and random ~ random (1, 2): four pairs of runs in all.
    """

    def __init__(self, methods: list[Runs], level: str, num_layers: int, k: int, by: str) -> None:
        self._methods, self._level, self._k, self._by = methods, level, k, by
        self._layers = num_layers if level == "layer" else 0
        self._sets = [one for method in methods for one in method.sets]
        self._number = [number for number, method in enumerate(methods) for _ in method.sets]
        self._cells = list(self._read_cells())
        self._pairs = torch.cat([torch.stack(cell.runs) for cell in self._cells], dim=1)
        self._slices = self._measured()

    def _read_cells(self) -> Iterator[_Cell]:
        """Two methods are compared seed by seed; one that draws is compared with itself across seeds."""
        begin = 0
        places = [
            [i for i, owner in enumerate(self._number) if owner == number] for number in range(len(self._methods))
        ]
        for first, second in combinations_with_replacement(range(len(places)), 2):
            a, b = places[first], places[second]
            if first == second and len(a) > 1:
                a, b = (list(part) for part in zip(*combinations(a, 2), strict=True))
            count = max(len(a), len(b)) if a and b else 0
            runs = (torch.tensor(part * (count if len(part) == 1 else 1))[:count].long() for part in (a, b))
            yield _Cell(first, second, slice(begin, begin + count), (next(runs), next(runs)))
            begin += count

    def _measured(self) -> list[_Slice]:
        """The numbers of all slices, computed for some targets at a time: entry by entry, the scores of all runs."""
        # A model that turned out not to be local on the way is compared on all edges.
        reference = next((one for one in self._sets if one.settings.get("hops") is None), self._sets[0])
        parts: dict[int | None, list[tuple[dict[str, Tensor], Flaws]]] = {}
        for part, *others in zip(parts_of(reference), *(parts_of(one) for one in self._sets), strict=True):
            rows = rows_of(part)  # entries [n]: (target, layer, edge)
            scores = torch.stack([scores_at(one, rows.row, rows.layer, rows.column) for one in others], dim=1)
            for layer in (None, *range(self._layers)):
                inside = slice(None) if layer is None else (rows.layer == layer).nonzero().view(-1)
                scored = ScoresByRun(rows.row[inside], rows.num_rows, scores[inside])
                parts.setdefault(layer, []).append(agreements(scored, self._pairs, self._k, self._by))
        return [
            _Slice(
                layer,
                {measure: torch.cat([numbers[measure] for numbers, _ in found], dim=1) for measure in MEASURES},
                Flaws.joined([flaws for _, flaws in found]),
            )
            for layer, found in parts.items()
        ]

    # --- results ------------------------------------------------------------------------------------------------------

    def running(self) -> list[Running]:
        """How long each method took, and for how many targets its scores are all zero."""
        zero = self._slices[0].flaws.zero.sum(dim=1).tolist()
        return [
            Running(
                method.label,
                self._level,
                method.seconds,
                sum(count for count, owner in zip(zero, self._number, strict=True) if owner == number),
                method.absent,
            )
            for number, method in enumerate(self._methods)
        ]

    def agreements(self, confidence: float) -> dict[Key, Agreement]:
        """Every cell of every slice by its key, with its interval."""
        found: dict[Key, Agreement] = {}
        for part in self._slices:
            for measure in part.numbers:
                for cell in self._cells:
                    one = self._agreement(part, measure, cell, confidence)
                    found[one.first, one.second, self._level, part.layer, measure] = one
        return found

    def _agreement(self, part: _Slice, measure: str, cell: _Cell, confidence: float) -> Agreement:
        """One cell: mean and deviation over the (run, target) pairs that have a number."""
        first, second = self._methods[cell.first], self._methods[cell.second]
        value = part.numbers[measure][cell.place]
        if len(value) == 0:  # one of the two did not run
            value = value.new_full((1, value.size(1)), torch.nan)
        known = value[~value.isnan()]
        mean = float(known.mean()) if len(known) else float("nan")
        deviation = float(known.std(correction=0)) if len(known) else float("nan")
        ends, reasons = _interval(value, cell, confidence), self._reasons(part, measure, cell)
        return Agreement(
            first.label, second.label, measure, self._level, part.layer, value, mean, deviation, *ends, reasons
        )

    def _reasons(self, part: _Slice, measure: str, cell: _Cell) -> dict[str, int]:
        """How many numbers of a cell are missing for each reason; a number counts under the first reason that holds."""
        names = (self._methods[cell.first].label, self._methods[cell.second].label)
        absent = [number for number in (cell.first, cell.second) if self._methods[number].absent]
        if absent:
            return {f"{self._methods[absent[0]].label} did not run": part.flaws.empty.numel()}
        counts: Counter[str] = Counter()
        left = torch.ones(len(cell.runs[0]), part.flaws.empty.numel(), dtype=torch.bool)
        for undefined, text in undefined_where(part.flaws, measure, cell.runs, names):
            hit = undefined.expand_as(left) & left
            counts[text] += int(hit.sum())
            left = left & ~hit
        return {text: count for text, count in counts.items() if count}


def _interval(value: Tensor, cell: _Cell, confidence: float) -> tuple[float, float]:
    """Of the mean of `[runs, targets]`: units are targets, or seeds if there are several: targets share a seed."""
    if len(value) == 1:
        return interval_of_mean(value[0], confidence)
    by_run = value.double().nanmean(dim=1)
    if cell.first == cell.second:  # pairs of seeds
        return interval_over_pairs(by_run, torch.stack(cell.runs), confidence)
    return interval_of_mean(by_run, confidence)
