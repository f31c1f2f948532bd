"""Every two methods at one level: run them, and lay their scores side by side."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from edgewise.collection import ExplanationSet
from edgewise.errors import EdgewiseError
from edgewise.metrics.compared import Agreement, Key, Running
from edgewise.metrics.contenders import Contender
from edgewise.metrics.pairs import MEASURES, Flaws, Scored, agreements, undefined_where
from edgewise.metrics.resampling import intervals
from edgewise.metrics.rows import parts_of, rows_of, scores_at


@dataclass(frozen=True)
class Runs:
    """One method at one level: a set for each seed, or the reason why there is none."""

    label: str
    sets: tuple[ExplanationSet, ...]
    seconds: float
    absent: str = ""


def run_all(
    contenders: list[Contender],
    level: str,
    seeds: tuple[int, ...],
    run: Callable[[Contender, str, int], ExplanationSet],
    advance: Callable[[float], Any],
) -> list[Runs]:
    """Every method with every seed; what a method itself refuses is noted, not raised, unless none is left."""
    found: list[Runs] = []
    errors: list[EdgewiseError] = []
    for contender in contenders:
        own, begin = seeds if contender.draws else seeds[:1], time.perf_counter()
        try:
            sets = tuple(run(contender, level, seed) for seed in own)
            found.append(Runs(contender.label, sets, (time.perf_counter() - begin) / len(own)))
        except EdgewiseError as error:
            found.append(Runs(contender.label, (), float("nan"), str(error)))
            errors.append(error)
        advance(len(own))
    if len(errors) == len(found):
        raise errors[0]
    return found


@dataclass(frozen=True)
class _Slice:
    """All of a level, or one layer of it: the numbers of every measure, `[pairs of runs, targets]`, and why some miss."""

    layer: int | None
    numbers: dict[str, Tensor]
    flaws: Flaws


@dataclass(frozen=True)
class _Cell:
    """Two methods: which columns of the numbers are theirs, and the runs behind them."""

    first: int
    second: int
    place: slice
    runs: tuple[Tensor, Tensor]


class Table:
    """The runs of all methods at one level, compared."""

    def __init__(self, methods: list[Runs], level: str, num_layers: int, k: int, by: str) -> None:
        self._methods, self._level, self._k, self._by = methods, level, k, by
        self._layers = num_layers if level == "layer" else 0
        self._sets = [one for method in methods for one in method.sets]
        self._number = [number for number, method in enumerate(methods) for _ in method.sets]
        self._cells = list(self._read_cells())
        self._pairs = torch.cat([torch.stack(cell.runs) for cell in self._cells], dim=1)
        self._slices = self._measured()

    def _read_cells(self) -> Iterator[_Cell]:
        """Two methods meet seed by seed; one that draws meets itself with every other seed."""
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
        """Of some targets at a time: entry by entry, the scores of all runs."""
        # A model that turned out not to be local on the way is compared on all edges.
        reference = next((one for one in self._sets if one.settings.get("hops") is None), self._sets[0])
        parts: dict[int | None, list[tuple[dict[str, Tensor], Flaws]]] = {}
        for part, *others in zip(parts_of(reference), *(parts_of(one) for one in self._sets), strict=True):
            rows = rows_of(part)
            scores = torch.stack([scores_at(one, rows.row, rows.layer, rows.column) for one in others], dim=1)
            for layer in (None, *range(self._layers)):
                inside = slice(None) if layer is None else (rows.layer == layer).nonzero().view(-1)
                scored = Scored(rows.row[inside], rows.num_rows, scores[inside])
                parts.setdefault(layer, []).append(agreements(scored, self._pairs, self._k, self._by))
        return [
            _Slice(
                layer,
                {measure: torch.cat([numbers[measure] for numbers, _ in found], dim=1) for measure in MEASURES},
                Flaws.joined([flaws for _, flaws in found]),
            )
            for layer, found in parts.items()
        ]

    # --- in words and numbers -----------------------------------------------------------------------------------------

    def running(self) -> list[Running]:
        """What each method took, and how many of its vectors are zero."""
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

    def agreements(self, resamples: int, confidence: float) -> dict[Key, Agreement]:
        """Every cell of every slice, with its interval."""
        found: dict[Key, Agreement] = {}
        for part in self._slices:
            for measure, numbers in part.numbers.items():
                ends = self._intervals(numbers, resamples, confidence)
                for cell, (low, high) in zip(self._cells, ends, strict=True):
                    one = self._agreement(part, measure, cell, (low, high))
                    found[one.first, one.second, self._level, part.layer, measure] = one
        return found

    def _intervals(self, numbers: Tensor, resamples: int, confidence: float) -> list[tuple[float, float]]:
        """Of all cells; those with as many runs each together."""
        ends = [(float("nan"), float("nan"))] * len(self._cells)
        counts = [cell.place.stop - cell.place.start for cell in self._cells]
        for count in sorted(set(counts) - {0}):
            chosen = [number for number, size in enumerate(counts) if size == count]
            stacked = torch.stack([numbers[self._cells[number].place] for number in chosen])
            low, high = intervals(stacked, resamples, confidence)
            for number, *pair in zip(chosen, low.tolist(), high.tolist(), strict=True):
                ends[number] = (pair[0], pair[1])
        return ends

    def _agreement(self, part: _Slice, measure: str, cell: _Cell, ends: tuple[float, float]) -> Agreement:
        first, second = self._methods[cell.first], self._methods[cell.second]
        value = part.numbers[measure][cell.place]
        if len(value) == 0:  # one of the two did not run
            value = value.new_full((1, value.size(1)), torch.nan)
        known = value[~value.isnan()]
        mean = float(known.mean()) if len(known) else float("nan")
        deviation = float(known.std(correction=0)) if len(known) else float("nan")
        reasons = self._reasons(part, measure, cell)
        return Agreement(
            first.label, second.label, measure, self._level, part.layer, value, mean, deviation, *ends, reasons
        )

    def _reasons(self, part: _Slice, measure: str, cell: _Cell) -> dict[str, int]:
        """Each missing number once, by its first reason."""
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
