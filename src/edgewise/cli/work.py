"""Long work in pieces: progress in between, and what is finished survives an interruption.

`work_through` runs a function on slice after slice of the targets and hands back a `Work`: the pieces that were finished,
and what stopped the rest. `joined` makes one `ExplanationSet` of the pieces.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Generic, TypeVar

import torch

from edgewise.cli.terminal import Voice
from edgewise.results.explanation_set import Entries, ExplanationSet
from edgewise.results.settings import Settings

Result = TypeVar("Result")

_FIRST = 8  # targets in the first piece
_SECONDS = 2.0  # a piece that takes less is too short to be worth a look
_PAYS = 1.2  # many targets share a pass: larger pieces are taken as long as they do so much more in the same time


@dataclass
class Work(Generic[Result]):
    """Pieces that were finished, and what stopped the rest."""

    parts: list[Result]
    done: int
    """Targets in `parts`."""
    seconds: float
    stopped: BaseException | None = None
    """Ctrl-C, or the error; `None` if everything is finished."""


def work_through(
    voice: Voice, title: str, total: int, work: Callable[[slice], Result], earlier: Sequence[Result] = (), done: int = 0
) -> Work[Result]:
    """Do all pieces; an interruption or an error ends it early and is handed back with what is finished.

    Args:
        voice: Shows the progress.
        title: What is done, for the progress.
        total: The number of targets.
        work: Does the targets of one slice.
        earlier: Pieces that an earlier run has finished.
        done: The number of targets in `earlier`.
    """
    found = Work(list(earlier), done, 0.0)
    start = time.perf_counter()
    try:
        with voice.progress(title, total, done) as tell:

            def told(finished: int) -> None:
                found.done = finished
                tell(finished)

            for piece in in_pieces(total, work, told, done):
                found.parts.append(piece)
    except (KeyboardInterrupt, Exception) as stop:
        found.stopped = stop
    found.seconds = round(time.perf_counter() - start, 3)
    return found


def in_pieces(
    total: int, work: Callable[[slice], Result], tell: Callable[[int], None], done: int = 0
) -> Iterator[Result]:
    """`work` on slice after slice of `total` targets; `tell` is called with how many are done.

    The first piece is small, so that progress shows early. A piece that took less than two seconds is followed by one four
    times as large; a slower one by one twice as large, as long as the larger piece did more targets per second.
    """
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
    """The pieces of one question as one set, as if it had been asked at once.

    Node tasks share one graph, so the first piece's is kept; graph tasks bring the graphs of every piece. If the pieces were
    computed in different ways, `settings["way"]` lists all of them.
    """
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
    """The stored entries of all pieces, row after row; a piece without such entries still has its (empty) rows.

    For example, pieces with 2 and 1 targets, the second one without entries: the counts per row are `[3, 1, 0]`, and the
    rows start at `[0, 3, 4, 4]`.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    counts = [
        torch.zeros(len(one), dtype=torch.long) if part is None else part.start.diff()
        for part, one in zip(parts, sets, strict=True)
    ]
    start = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(counts).cumsum(0)])
    return Entries.of_rows(start, torch.cat([part.place for part in known]), torch.cat([part.score for part in known]))
