"""EiG-Search's linear gradients (Lu et al., ICML 2024): the fall of the explained number per unit of edge weight."""

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.algorithms.occlusion import edge_drops, lowered_drops, rank_in_group
from edgewise.algorithms.scores import CopyScores, SparseScores
from edgewise.problem import Problem
from edgewise.score import Score


def eig_search(score: Score, level: str, *, w_base: float, undirected: bool) -> CopyScores:
    """(z(1) − z(ω_e = w_base)) / |1 − w_base|; for w_base = 0 that is occlusion (the paper, section 5).

    `undirected` lets an edge and its reverse, which are then one edge with one score, change together, as the authors' code
    does. The search for the best subgraph is `ew.best_subgraph`.

    >>> from edgewise.examples import path_score
    >>> eig_search(path_score(gains=[2.0, 3.0]), "input", w_base=0.5, undirected=False).edge     # z = 6·ω₀·ω₁
    tensor([6., 6.])
    """
    partner = reverses(score.ends(), score.owner, score.edge_id) if undirected else None
    return CopyScores(edge_drops(score, level, w_base, partner) / abs(1 - w_base))


def lowered_eig_search(
    problem: Problem, level: str, memory: int, *, w_base: float, undirected: bool
) -> Iterator[tuple[int, SparseScores]] | None:
    """For a lowered model, where it is occlusion; None otherwise."""
    if w_base != 0 or undirected:
        return None
    return lowered_drops(problem, level, memory, of_self=(False,))


def reverses(ends: Tensor, owner: Tensor, column: Tensor) -> Tensor:
    """`[M]`: the copy of v → u for each copy of u → v of the same target, itself if there is none.

    Of several parallel edges the first is the reverse of the first, and so on; a loop is its own reverse.

    >>> import torch
    >>> reverses(torch.tensor([[0, 1, 0], [1, 0, 2]]), torch.zeros(3).long(), torch.arange(3))
    tensor([1, 0, 2])
    """
    if owner.numel() == 0:
        return owner
    size = int(ends.max()) + 1
    there, back = ((owner * size + a) * size + b for a, b in (ends, ends.flip(0)))
    in_order = column.argsort(stable=True)
    turn = torch.empty_like(owner)
    turn[in_order] = rank_in_group(there[in_order])
    order = in_order[there[in_order].argsort(stable=True)]
    place = torch.searchsorted(there[order], back) + turn
    found = order[place.clamp(max=len(order) - 1)]
    is_reverse = (place < len(order)) & (there[found] == back)
    return torch.where(is_reverse, found, torch.arange(len(owner), device=owner.device))
