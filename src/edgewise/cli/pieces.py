"""Long work in pieces: progress in between, and what is finished survives an interruption."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import torch

from edgewise.collection import ExplanationSet
from edgewise.entries import Entries
from edgewise.settings import Settings

Result = TypeVar("Result")
_FIRST = 8
_SECONDS = 2.0  # a piece that takes less is too short to be worth a look
_PAYS = 1.2  # many targets share a pass: larger pieces are taken as long as they do so much more in the same time


def in_pieces(
    total: int, work: Callable[[slice], Result], tell: Callable[[int], None], done: int = 0
) -> Iterator[Result]:
    """`work` on slice after slice of `total` targets; `tell` is called with how many are done."""
    size, rate = _FIRST, 0.0
    while done < total:
        start = perf_counter()
        end = min(done + size, total)
        yield work(slice(done, end))
        done = end
        tell(done)
        seconds = max(perf_counter() - start, 1e-6)
        before, rate = rate, size / seconds
        if seconds < _SECONDS:
            size *= 4
        elif rate > _PAYS * before:
            size *= 2


def joined(sets: Sequence[ExplanationSet]) -> ExplanationSet:
    """The pieces of one question as one set, as if it had been asked at once."""
    first = sets[0]
    if len(sets) == 1:
        return first
    ways = dict.fromkeys(way for one in sets for way in str(one.settings.get("way", "")).split(", "))
    shared = first.settings.get("task", "node") == "node"
    return replace(
        first,
        index=torch.cat([one.index for one in sets]),
        target=torch.cat([one.target for one in sets]),
        value=torch.cat([one.value for one in sets]),
        graphs=first.graphs if shared else tuple(graph for one in sets for graph in one.graphs),
        edges=_joined([one.edges for one in sets], sets),
        own=_joined([one.own for one in sets], sets),
        own_missing=tuple(sorted({layer for one in sets for layer in one.own_missing})),
        errors=_joined([one.errors for one in sets], sets),
        settings=Settings({**first.settings, "way": ", ".join(ways)}),
    )


def _joined(parts: Sequence[Entries | None], sets: Sequence[ExplanationSet]) -> Entries | None:
    """A piece without any such entry has rows nevertheless."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    counts = [
        torch.zeros(len(one), dtype=torch.long) if part is None else part.start.diff()
        for part, one in zip(parts, sets, strict=True)
    ]
    start = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(counts).cumsum(0)])
    return Entries.of_rows(start, torch.cat([part.place for part in known]), torch.cat([part.score for part in known]))
