"""Edge gradients, their signs, and their integral from no edges to all edges."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from edgewise.algorithms.captured_step import repeat
from edgewise.program.attention_chain import AttentionGradients
from edgewise.program.target_gradients import TargetGradients
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.block_growth import walk_counts
from edgewise.score import CopyScores, RowScores, Score, at_level, has_own_terms

_BYTES_AN_EDGE = 64  # of an edge in a layer: its entry, twice as much room, and a copy while the room grows


def weight_gradients(score: Score, weight: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """∂z/∂ω `[L, M]` and ∂z/∂s `[L, S]` at given weights ω of edges and s (`own`) of own terms.

    Copies are separate: a weight touches its own target only, so one backward pass of the sum over all targets gives them all.
    """
    inputs = [part.detach().clone().requires_grad_() for part in (weight, own) if part is not None]
    total = score(*inputs).sum()
    if not total.requires_grad:  # no edges and no self edges at all
        return torch.zeros_like(weight), None if own is None else torch.zeros_like(own)
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    full = [torch.zeros_like(i) if f is None else f for i, f in zip(inputs, found, strict=True)]
    return full[0], full[1] if own is not None else None


def gradients_at_one(score: Score) -> tuple[Tensor, Tensor | None]:
    """∂z/∂ω `[L, M]` and ∂z/∂s `[L, S]` at ω = s = 1, where a lowered model needs no forward pass."""
    known = score.reverse()
    if known is None:
        return weight_gradients(score, score.ones(), score.self_ones() if has_own_terms(score) else None)
    return known[0], known[1] if has_own_terms(score) else None


def gradient(score: Score, level: str) -> CopyScores:
    """Sensitivity of the target to each edge, ∂z/∂ω_e at ω = 1.

    >>> from edgewise.examples import path_score
    >>> gradient(path_score(gains=[2.0, 3.0]), "input").edge      # 0 ─2→ 1 ─3→ 2, input 1: z = 2·ω₀ · 3·ω₁
    tensor([6., 6.])
    """
    return at_level(*gradients_at_one(score), level)


def lowered_gradient(question: PosedQuestion, level: str, memory: int) -> Iterator[tuple[int, RowScores]] | None:
    """The same for many targets of a lowered model, target after target in compiled loops; None where these cannot do it."""
    lowering = question.lowering
    assert lowering is not None
    ways = (TargetGradients, AttentionGradients)
    way = next((way for way in ways if way.suits(lowering, len(question.index))), None)
    if question.device.type == "cuda" or way is None:
        return None
    nodes = question.places(torch.arange(len(question.index)))
    calls = lowering.program.num_calls
    seen = lowering.remembered(walk_counts, lambda: walk_counts(lowering.in_edges, calls))[nodes]  # [T], at most
    loops = way.of(lowering, int(seen.sum()))
    bytes_each = _BYTES_AN_EDGE * (calls if level == "layer" else 1)
    return None if loops is None else _blocks_of_targets(question, loops, nodes, level, seen * bytes_each / memory)


@torch.no_grad()
def _blocks_of_targets(
    question: PosedQuestion, loops: TargetGradients, nodes: Tensor, level: str, share: Tensor
) -> Iterator[tuple[int, RowScores]]:
    """Blocks of targets that take at most the budget; `share` `[T]` is what each takes of it."""
    in_edges = loops.in_edges
    numbers = [question.columns(torch.arange(len(in_edges.edge))), question.nodes(torch.arange(in_edges.num_nodes))]
    of_nodes, of_columns = question.sizes(torch.zeros(1, dtype=torch.long))
    widths = [int(of_columns[0]), int(of_nodes[0])]
    block = share.cumsum(0).long()
    for positions in torch.arange(len(nodes)).split(torch.bincount(block)[block.unique()].tolist()):
        slope = sub_target(question, positions).slope
        for of_edges, of_own in loops.run(nodes[positions], slope, numbers, widths, by_layer=level == "layer"):
            yield len(of_edges[0]) - 1, RowScores(*of_edges, of_self=False)
            if any(question.separable):
                yield 0, RowScores(*of_own, of_self=True)


def positive_gradient(score: Score, level: str, *, epsilon: float) -> CopyScores:
    """1 where the edge gradient exceeds `epsilon`, else 0.

    >>> from edgewise.examples import path_score
    >>> positive_gradient(path_score(gains=[2.0, 3.0]), "input", epsilon=0.0).edge
    tensor([1., 1.])
    """
    edge = at_level(gradients_at_one(score)[0], None, level).edge
    return CopyScores((edge > epsilon).to(edge.dtype))


def integrated_gradients(score: Score, level: str, *, steps: int) -> CopyScores:
    """∫₀¹ ∂z/∂ω_e at ω = (t, …, t) dt: all edge weights together from 0 to 1, self terms on, Gauss and Legendre's rule.

    The edges sum to z(all edges) − z(no edges). The path does not move the self terms: their score is the mean of ∂z/∂s
    along it.

    >>> from edgewise.examples import path_score
    >>> integrated_gradients(path_score(gains=[2.0, 3.0]), "input", steps=50).edge.round()     # z = 6·ω₀·ω₁, halved
    tensor([3., 3.])
    """
    nodes, shares = np.polynomial.legendre.leggauss(steps)
    own, ones = score.self_ones() if has_own_terms(score) else None, score.ones()
    edge_sum, own_sum = torch.zeros_like(ones), None if own is None else torch.zeros_like(own)
    path = torch.from_numpy(np.stack([(nodes + 1) / 2, shares / 2])).to(ones)  # [2, steps]: where, and how much of it
    place = torch.zeros(1, dtype=torch.long, device=ones.device)
    chain = score.weighted_chain(steps)

    def step() -> None:
        """The next point of the path, in place: a GPU may record and replay it."""
        weight, share = path.index_select(1, place)
        if chain is None:
            edge, of_self = weight_gradients(score, ones * weight, own)
        else:
            edge, of_self = chain.both_gradients(ones * weight, score.target.slope)
        edge_sum.addcmul_(edge, share)
        if own_sum is not None and of_self is not None:
            own_sum.addcmul_(of_self, share)
        place.add_(1)

    repeat(step, steps, ones.device, recordable=score.way == "lowered")
    return at_level(edge_sum, own_sum, level)
