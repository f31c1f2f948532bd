"""Occlusion: what the explained number loses when one message is missing (its weight 0, degrees and attention unchanged)."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgewise.algorithms.scores import CopyScores, SparseScores, has_own_terms, in_computation_graph
from edgewise.lowering.differences import Differences
from edgewise.problem import Problem
from edgewise.score import Score


def _rank_in_group(owner: Tensor) -> Tensor:
    """The number of each entry among those of its owner."""
    order = owner.argsort(stable=True)
    grouped = owner[order]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(owner), device=owner.device) - torch.searchsorted(grouped, grouped)
    return rank


def one_per_target(candidates: Tensor, owner: Tensor) -> Iterator[Tensor]:
    """The candidates in rounds, at most one of each target a round: one forward pass serves all targets."""
    order = _rank_in_group(owner[candidates]).argsort(stable=True)
    counts = torch.bincount(_rank_in_group(owner[candidates]))
    yield from candidates[order].split(counts.tolist())


def _drops(evaluate: Callable[[Tensor], Tensor], candidates: Tensor, owner: Tensor) -> Tensor:
    """value − value without, for every candidate; `evaluate(places)` gives the values without these."""
    drop = torch.zeros(len(owner), device=owner.device)
    for places in one_per_target(candidates, owner):
        change = evaluate(places)[owner[places]]
        drop = drop.to(change.dtype)
        drop[places] = change
    return drop


@torch.no_grad()
def occlusion(score: Score, level: str) -> CopyScores:
    """z(1) − z(ω_e = 0), for every edge, or for every layer and edge.

    >>> from edgewise.examples import path_score
    >>> score = path_score(gains=[2.0, 3.0])      # 0 ─2→ 1 ─3→ 2: edge 0 acts in layer 0, edge 1 in layer 1
    >>> score.edge_id                              # copies come in the order of their distance from the target
    tensor([1, 0])
    >>> occlusion(score, "layer").edge
    tensor([[0., 6.],
            [6., 0.]])
    """
    value = score(score.ones())
    reachable = in_computation_graph(score)
    if not score.local:
        reachable = torch.ones_like(reachable)
    rows = [[layer] for layer in range(score.num_layers)] if level == "layer" else [list(range(score.num_layers))]
    edge = [
        _drops(_without_edges(score, value, row), reachable[row].any(dim=0).nonzero().view(-1), score.owner)
        for row in rows
    ]
    own = None
    if has_own_terms(score):
        everyone = torch.arange(len(score.self_owner), device=score.self_owner.device)
        own = [_drops(_without_self(score, value, row), everyone, score.self_owner) for row in rows]
    return CopyScores(_stack(edge, level), None if own is None else _stack(own, level))


def _stack(rows: list[Tensor], level: str) -> Tensor:
    return torch.stack(rows) if level == "layer" else rows[0]


def _without_edges(score: Score, value: Tensor, row: list[int]) -> Callable[[Tensor], Tensor]:
    def evaluate(places: Tensor) -> Tensor:
        weight = score.ones()
        for layer in row:
            weight[layer, places] = 0
        return value - score(weight)

    return evaluate


def _without_self(score: Score, value: Tensor, row: list[int]) -> Callable[[Tensor], Tensor]:
    def evaluate(places: Tensor) -> Tensor:
        own = score.self_ones()
        for layer in row:
            own[layer, places] = 0
        return value - score(score.ones(), own)

    return evaluate


_BYTES_A_PAIR = 256
_SLOT_TABLE = 2**21  # slots × nodes in a block: small enough to stay in the cache


@torch.no_grad()
def lowered_occlusion(problem: Problem, level: str, memory: int) -> Iterator[tuple[int, SparseScores]]:
    """The same for all targets of a lowered model: differences instead of forward passes, in blocks of edges.

    Each block comes with how many targets' worth of work is done since the last one.
    """
    lowering = problem.lowering
    assert lowering is not None
    differences = Differences(lowering, problem.index.to(problem.device), problem.target)
    size = max(min(_SLOT_TABLE, memory // _BYTES_A_PAIR) // lowering.in_edges.num_nodes, 1)
    slots = [differences.slots(level, of_self=of_self) for of_self in (False, True)]
    total, done = sum(len(part) for part in slots), 0
    for block in (block for part in slots for block in part.split(size)):
        found = differences.drops(block)
        layer = block.call[found.slot].clamp(min=0)
        entries = SparseScores(found.position, layer, block.item[found.slot], found.score, of_self=block.of_self)
        before, done = done, done + len(block)
        yield done * len(problem.index) // total - before * len(problem.index) // total, entries
