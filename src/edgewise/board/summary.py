"""From lines to standings: means with intervals over networks and over targets, and sets of ranks.

Two intervals, because two things were drawn. Networks (graphs, training, and the targets in them) vary from seed to seed: the
interval over networks is Student's, of the networks' means, and is what a claim about "networks of this kind" needs. The
interval over targets takes these networks as given: how far would the mean move with other targets in them? Where it is much
the narrower one, more targets are of no use; train more networks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from edgewise.board.measures import METRICS, ORDERS, Metric
from edgewise.board.rank_sets import RankSet, rank_sets
from edgewise.student_intervals import interval_of_mean, student_quantile

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Standing:
    """One entrant on one data set, by one metric and order."""

    data: str
    method: str
    kind: str
    order: str
    metric: str
    mean: float
    """Of the networks' means."""
    low: float
    high: float
    """The interval over networks, within what the metric can be; NaN for fewer than three."""
    target_low: float
    target_high: float
    """The interval over targets, with these networks."""
    networks: int
    targets: int
    """How many of them have a number."""
    rank: RankSet | None
    """Among the entrants of this data set that have a number; None with fewer than three networks."""


def standings(lines: Sequence[Mapping[str, Any]]) -> list[Standing]:
    """Every entrant, data set, order and metric of which there is a number."""
    found: list[Standing] = []
    for data in dict.fromkeys(line["data"] for line in lines):
        mine = [line for line in lines if line["data"] == data and "values" in line]
        for order in ORDERS:
            for metric in METRICS:
                found += _family(data, mine, order, metric)
    return found


def _family(data: str, lines: Iterable[Mapping[str, Any]], order: str, metric: Metric) -> list[Standing]:
    """The entrants of one data set by one metric, ranked among each other."""
    values: dict[str, dict[int, Tensor]] = {}
    kinds: dict[str, str] = {}
    for line in lines:
        numbers = line["values"].get(order, {}).get(metric.name)
        if numbers is None:
            continue
        found = torch.tensor([math.nan if v is None else v for v in numbers], dtype=torch.double)
        if not bool(found.isnan().all()):
            values.setdefault(line["method"], {})[line["seed"]] = found
            kinds[line["method"]] = line["kind"]
    seeds = sorted({seed for found in values.values() for seed in found})
    ranks: Sequence[RankSet | None] = [None] * len(values)
    if len(seeds) >= 3:
        most = max(len(one) for found in values.values() for one in found.values())
        ranks = rank_sets(torch.stack([_padded(found, seeds, most) for found in values.values()]), CONFIDENCE)
    return [
        _standing(data, method, kinds[method], order, metric, [one[~one.isnan()] for one in found.values()], rank)
        for (method, found), rank in zip(values.items(), ranks, strict=True)
    ]


def _padded(found: Mapping[int, Tensor], seeds: Sequence[int], targets: int) -> Tensor:
    """`[networks, targets]`: NaN where there is no number."""
    whole = torch.full((len(seeds), targets), math.nan, dtype=torch.double)
    for row, seed in enumerate(seeds):
        if seed in found:
            whole[row, : len(found[seed])] = found[seed]
    return whole


def _standing(
    data: str, method: str, kind: str, order: str, metric: Metric, found: Sequence[Tensor], rank: RankSet | None
) -> Standing:
    means = torch.stack([one.mean() for one in found])
    targets = sum(len(one) for one in found)
    ends = (*interval_of_mean(means, CONFIDENCE), *target_interval(found, CONFIDENCE))
    low, high, target_low, target_high = (end if math.isnan(end) else min(max(end, metric.least), 1.0) for end in ends)
    return Standing(
        data, method, kind, order, metric.name, float(means.mean()), low, high, target_low, target_high, len(found), targets,
        rank,
    )  # fmt: skip


def target_interval(found: Sequence[Tensor], confidence: float) -> tuple[float, float]:
    """The interval of the mean of networks' means, with the networks as given: targets vary within each of them.

    The variance of the mean of K means is Σ s²ₖ/nₖ / K², with a degree of freedom for each target but one of a network.

    >>> target_interval([torch.tensor([1.0, 2.0, 3.0])], 0.95) == interval_of_mean(torch.tensor([1.0, 2.0, 3.0]), 0.95)
    True
    """
    middle = float(torch.stack([one.double().mean() for one in found]).mean())
    freedom = sum(len(one) - 1 for one in found)
    if freedom < 2 or any(len(one) < 2 for one in found):
        return math.nan, math.nan
    variance = sum(float(one.double().var()) / len(one) for one in found) / len(found) ** 2
    half = student_quantile((1 + confidence) / 2, freedom) * math.sqrt(variance)
    return middle - half, middle + half


def seconds_per_target(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """(data set, entrant) ↦ seconds for a target, the median over networks: a first run loads and compiles."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        if line.get("seconds") is not None:
            found.setdefault((line["data"], line["method"]), []).append(line["seconds"])
    return {key: median(values) for key, values in found.items()}


def refusals(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """(data set, entrant) ↦ why it has no numbers there."""
    return {(line["data"], line["method"]): line["refused"] for line in lines if "refused" in line}
