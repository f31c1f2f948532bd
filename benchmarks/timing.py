"""Two ways to do one job, by turns: ours, the peer, ours, the peer; process time, a ratio a round.

Ours does the whole job in a round, the peer a sample of it (some targets, some edges), extrapolated by the number of units.
Whatever does not fit the time that a row has is done on a sample too, and the row says so.
"""

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.deviation import Deviation

PART = 0.25  # of a row's time: the most that one call of ours may take
GROWTH = 8  # from probe to probe
SHORTEST = 0.05  # seconds: what takes less is repeated within a round
MOST_REPEATS = 10


@dataclass(frozen=True)
class Side:
    """One way to do the job: `run(units)` does some of it; `total` units are the whole job."""

    name: str
    unit: str
    pool: Tensor
    """Units to draw from."""
    total: int
    run: Callable[[Tensor], Any]


@dataclass(frozen=True)
class Case:
    """A job, ready to be measured."""

    ours: Side
    peer: Side
    compare: Callable[[Any, Tensor, Any, Tensor], Deviation]
    """(our result, our units, the peer's result, its units) → how far apart they are."""
    peer_follows: bool = True
    """Whether the peer's units are targets, to be drawn from those that we explained."""


@dataclass
class Measurement:
    """Seconds of the whole job, a round each, and how far the results are apart."""

    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    our_units: int = 0
    peer_units: int = 0
    peer_system_shares: list[float] = field(default_factory=list)
    """Of the peer's time: page faults for large tensors, mostly."""
    deviation: Deviation = field(default_factory=Deviation)
    way: str = ""

    @property
    def ratios(self) -> list[float]:
        return [peer / ours for ours, peer in zip(self.ours, self.peer, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)


def measure(case: Case, seconds: float, rounds: int, seed: int = 0) -> Measurement:
    """As many rounds as fit `seconds` of wall time, at least one and at most `rounds`."""
    start, found = time.perf_counter(), Measurement()
    generator = torch.Generator().manual_seed(seed)
    asked, taken = fitting(case.ours.run, case.ours.pool, PART * seconds, generator)
    repeats = max(1, min(MOST_REPEATS, int(SHORTEST / taken) + 1))
    pool = asked if case.peer_follows else case.peer.pool
    drawn = pool[torch.randperm(len(pool), generator=generator)]
    left = seconds - (time.perf_counter() - start)
    chunk = min(_size_of_peer(case.peer, drawn, left / 2 / rounds), -(-len(drawn) // rounds))
    for number in range(rounds):
        begin = time.perf_counter()
        units = drawn[torch.arange(number * chunk, (number + 1) * chunk) % len(drawn)]
        _one_round(case, asked, repeats, units, found)
        now = time.perf_counter()
        if now + (now - begin) > start + seconds:
            break
    return found


def _one_round(case: Case, asked: Tensor, repeats: int, units: Tensor, found: Measurement) -> None:
    ours, _, result = _clock(lambda: [case.ours.run(asked) for _ in range(repeats)][-1])
    peer, system, other = _clock(lambda: case.peer.run(units))
    found.ours.append(ours / repeats / len(asked) * case.ours.total)
    found.peer.append(peer / len(units) * case.peer.total)
    found.our_units = len(asked)
    found.peer_units = min(found.peer_units + len(units), len(case.peer.pool))
    found.peer_system_shares.append(system)
    found.deviation = found.deviation.joined(case.compare(result, asked, other, units))
    found.way = _way(result)


def _clock(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Process seconds, the share of them spent in the system (page faults, mostly), and the result."""
    gc.collect()
    before, start = os.times().system, time.process_time()
    result = run()
    seconds = time.process_time() - start
    return seconds, (os.times().system - before) / max(seconds, 1e-9), result


def _wall(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-6)


def fitting(
    run: Callable[[Tensor], Any], pool: Tensor, limit: float, generator: torch.Generator
) -> tuple[Tensor, float]:
    """All of the pool, or a sample whose run takes about `limit` seconds; and what the last run of it took.

    Each probe is at most eight times the one before. A call has a fixed cost, so the cost of one more is read off two sizes.
    """
    order = pool[torch.randperm(len(pool), generator=generator)]
    size, taken = 1, _wall(lambda: run(order[:1]))
    if taken < limit:  # the first call warms up
        taken = _wall(lambda: run(order[:1]))
    fits = int(limit / taken)
    while size < (larger := min(fits, GROWTH * size, len(order))):
        now = _wall(lambda: run(order[:larger]))
        if now > limit / 2:  # perhaps it compiled something for the first time
            now = min(now, _wall(lambda: run(order[:larger])))
        each = max(now - taken, 0.1 * taken / size) / (larger - size)
        fits = int(larger + (limit - now) / each)
        size, taken = larger, now
    return (pool if size == len(pool) else order[:size]), taken


def _size_of_peer(side: Side, drawn: Tensor, share: float) -> int:
    """The units in a round. The peer warms up on one, unless that one already fills the round."""
    taken = _wall(lambda: side.run(drawn[-1:]))
    if taken < share / 3:
        taken = _wall(lambda: side.run(drawn[-1:]))
    return max(1, min(len(drawn), int(share / taken)))


def _way(result: Any) -> str:
    first = result[0] if isinstance(result, list) else result
    return str(first.settings.get("way", ""))
