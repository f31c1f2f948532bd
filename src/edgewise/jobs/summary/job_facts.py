"""Facts about a whole job, target by target, read off its shards one at a time: what its page is made of.

An explaining edge of a target is one of the fewest, strongest edges that make up 95% of the magnitude of its scores, layers
summed (`ENOUGH`, as in pictures).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import rank_in_group
from edgewise.jobs.explanation_job import failures, good_positions
from edgewise.metrics.cosine import similarity
from edgewise.report.scene import ENOUGH, task_of
from edgewise.results.score_rows import widths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edgewise.jobs.job import Job
    from edgewise.results.explanation_set import ExplanationSet

NOT_SHARES = ("gnn_explainer", "random", "full", "subgraph_x", "positive_gradient")
"""Methods whose scores are weights or signs, not shares of the explained number: they add up to nothing in particular."""


@dataclass(frozen=True, eq=False)
class TargetFacts:
    """Numbers of some targets, `[n]` each."""

    position: Tensor
    """In the index of the job."""
    target: Tensor
    value: Tensor
    size: Tensor
    """How many explaining edges it has."""
    against: Tensor
    """0 to 1: the share of the magnitude that speaks against what most of it speaks for, doubled: 1 is half and half."""
    complete: Tensor
    """What the scores of a layer add up to, self scores among them, as a share of the explained number; of several layers the
    one that is farthest from 1. NaN where that says nothing."""
    agreement: Tensor
    """Cosine with another job's explanation of the same target; NaN without one."""


@dataclass(frozen=True, eq=False)
class JobFacts:
    """All of it: `targets` in the order of the job, and how many targets each edge and each node explains."""

    targets: TargetFacts
    failed: Mapping[int, str]
    """Position → why."""
    edges: Tensor | None
    """`[2, n]`: (column, how many targets it explains), most frequent first; None where each target has a graph of its own."""
    nodes: Tensor | None
    """`[2, n]`: (node, how many targets have it at an end of an explaining edge)."""
    settings: Mapping[str, Any]
    sample: ExplanationSet | None
    """Some part, for its graph and its types; None if nothing is done."""


def facts_of(job: Job, other: Job | None = None) -> JobFacts:
    """Read every finished shard of a job once; with another job, also how far the two agree."""
    found: list[TargetFacts] = []
    edges, nodes = _Counts(), _Counts()
    failed: dict[int, str] = {}
    sample: ExplanationSet | None = None
    theirs = None if other is None else _Elsewhere(other)
    for shard in job.shards:
        part = job.part(shard)
        if part is None:
            continue
        sample = part if sample is None or not len(sample) else sample
        failed |= failures(shard, part.settings)
        if len(part):
            agreement = torch.full((len(part),), torch.nan) if theirs is None else theirs.agreement(part)
            found.append(_facts(part, good_positions(shard, part.settings), agreement, edges, nodes))
    one_graph = sample is not None and task_of(sample.settings) != "graph"
    joined = {name: _joined(getattr(one, name) for one in found) for name in TargetFacts.__dataclass_fields__}
    return JobFacts(
        TargetFacts(**joined), failed, edges.most() if one_graph else None, nodes.most() if one_graph else None,
        {} if sample is None else sample.settings, sample,
    )  # fmt: skip


def _joined(parts: Iterable[Tensor]) -> Tensor:
    found = list(parts)
    return torch.cat(found) if found else torch.zeros(0)


def _facts(part: ExplanationSet, position: Tensor, agreement: Tensor, edges: _Counts, nodes: _Counts) -> TargetFacts:
    """The facts about the targets of one shard; its explaining edges are counted."""
    row, column, score = _edge_scores(part)
    total = _sums(row, score.abs(), len(part))
    chosen = explaining(row, score.abs(), total)
    edges.add(column[chosen])
    ends = (
        torch.cat([part.graphs[0][0].cpu()[end, column[chosen]] for end in (0, 1)]) if len(part.graphs) == 1 else None
    )
    if ends is not None:
        pairs = torch.unique(torch.stack([row[chosen].repeat(2), ends]), dim=1)  # a node once for each target
        nodes.add(pairs[1])
    less = torch.minimum(_sums(row, score.clamp(min=0), len(part)), _sums(row, -score.clamp(max=0), len(part)))
    return TargetFacts(
        position=position,
        target=part.target.cpu(),
        value=part.value.cpu().double(),
        size=torch.bincount(row[chosen], minlength=len(part)),
        against=torch.where(total > 0, 2 * less / total, 0.0),
        complete=_complete(part),
        agreement=agreement.double(),
    )


def _edge_scores(part: ExplanationSet) -> tuple[Tensor, Tensor, Tensor]:
    """(target, column, score) of everything that is stored, layers summed; `random` stores nothing."""
    if part.edges is None:
        nothing = torch.zeros(0, dtype=torch.long)
        return nothing, nothing, torch.zeros(0, dtype=torch.double)
    row, width = part.edges.rows(), widths(part)
    key, which = torch.unique(
        row * int(width.max()) + part.edges.place % width[row], return_inverse=True
    )  # one for each (target, column)
    score = torch.zeros(len(key), dtype=torch.double).index_add_(0, which, _finite(part.edges.score))
    return key // int(width.max()), key % int(width.max()), score


def explaining(row: Tensor, magnitude: Tensor, total: Tensor) -> Tensor:
    """The places of the fewest entries of each row that make up `ENOUGH` of its total, never of a zero.

    >>> explaining(torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, 50.0, 49.0, 0.0]), torch.tensor([100.0, 0.0])).tolist()
    [1, 2]
    """
    order = torch.from_numpy(np.lexsort([-magnitude.numpy(), row.numpy()]))
    row, size = row[order], magnitude[order]
    before = size.cumsum(0) - size
    first = rank_in_group(row) == 0
    begin = torch.zeros(len(total), dtype=before.dtype)
    begin[row[first]] = before[first]
    inside = (before - begin[row] < ENOUGH * total[row]) & (size > 0)
    return order[inside]


def _complete(part: ExplanationSet) -> Tensor:
    """`[T]`: what the scores add up to, as a share of the explained number."""
    if part.edges is None or part.method in NOT_SHARES or (part.own_missing and part.level == "input"):
        return torch.full((len(part),), torch.nan, dtype=torch.double)
    layers = part.num_layers if part.level == "layer" else 1
    rows = part.edges.rows()
    sums = _sums(rows * layers + part.edges.place // widths(part)[rows], part.edges.score, len(part) * layers)
    if part.own is not None:
        count = torch.tensor([nodes for _, nodes in part.graphs]).expand(len(part))
        rows = part.own.rows()
        sums += _sums(rows * layers + part.own.place // count[rows], part.own.score, len(part) * layers)
    share = sums.view(len(part), layers) / part.value.cpu().double().view(-1, 1)
    if part.level == "input" and part.method == "gradient":
        share = share / part.num_layers  # the sum over the layers, each of which adds up to the number
    for layer in part.own_missing if part.level == "layer" else ():
        share[:, layer] = torch.nan
    worst = (share - 1).abs().nan_to_num(nan=-1.0).argmax(dim=1, keepdim=True)
    return share.gather(1, worst).view(-1)


def _sums(row: Tensor, score: Tensor, count: int) -> Tensor:
    """`[count]`: the sum of each row, in double precision."""
    return torch.zeros(count, dtype=torch.double).index_add_(0, row, _finite(score))


def _finite(score: Tensor) -> Tensor:
    return score.cpu().double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


class _Counts:
    """How often each number came, when they come in parts."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(self, numbers: Tensor) -> None:
        self.parts.append(torch.stack(torch.unique(numbers, return_counts=True)))

    def most(self) -> Tensor:
        """`[2, n]`: (number, how often), the most frequent first, of equals the smaller number."""
        all_ = torch.cat([torch.zeros(2, 0, dtype=torch.long), *self.parts], dim=1)
        number, which = torch.unique(all_[0], return_inverse=True)
        count = torch.zeros(len(number), dtype=torch.long).index_add_(0, which, all_[1])
        order = count.argsort(descending=True, stable=True)
        return torch.stack([number[order], count[order]])


class _Elsewhere:
    """Another job about the same targets."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.place = {key: place for place, key in enumerate(_keys(job.index))}

    def agreement(self, part: ExplanationSet) -> Tensor:
        """`[T]`: the cosine with the other job's explanation; NaN where it has none."""
        found = torch.full((len(part),), torch.nan)
        places = torch.tensor([self.place.get(key, -1) for key in _keys(part.index)])
        for shard in self.job.shards:
            mine = ((places >= shard.begin) & (places < shard.end)).nonzero().view(-1)
            theirs = self.job.part(shard) if len(mine) else None
            if theirs is None:
                continue
            known = {int(position): row for row, position in enumerate(good_positions(shard, theirs.settings))}
            both = [(int(one), known[int(places[one])]) for one in mine if int(places[one]) in known]
            if both:
                ours, others = (list(each) for each in zip(*both, strict=True))
                found[ours] = similarity(part[ours], theirs[others]).to(found.dtype)
        return found


def _keys(index: Tensor) -> list[Any]:
    """Targets that a dict takes as keys."""
    return [tuple(one) if isinstance(one, list) else one for one in index.tolist()]
