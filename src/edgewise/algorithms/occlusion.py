"""Occlusion: what the explained number loses when one message is missing (its weight 0, degrees and attention unchanged).

`occlusion` asks a `Score` and works for any model; `occlusion_drops.py` carries differences through a lowered model instead of
running it. `Repeated` evaluates many weightings of the same targets in one forward pass; Shapley values and subgraph searches
use it too.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgewise.arrays import LayerWeight, occurrence
from edgewise.score import CopyScores, Score, has_own_terms, in_computation_graph


def one_per_target(candidates: Tensor, owner: Tensor) -> Iterator[Tensor]:
    """The candidates in rounds, at most one of each target per round: one forward pass serves all targets.

    >>> owner = torch.tensor([0, 0, 1, 0])                             # copies 0, 1, 3 are of target 0, copy 2 of target 1
    >>> [places.tolist() for places in one_per_target(torch.tensor([0, 1, 2, 3]), owner)]
    [[0, 2], [1], [3]]
    """
    order = occurrence(owner[candidates]).argsort(stable=True)
    counts = torch.bincount(occurrence(owner[candidates]))
    yield from candidates[order].split(counts.tolist())


def _drops(evaluate: Callable[[Tensor], Tensor], candidates: Tensor, owner: Tensor) -> Tensor:
    """`[M]`: value − value without, for every candidate, 0 elsewhere; `evaluate(places)` gives the drops `[targets]`."""
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
    graphs = score.graph_drops()
    edge = edge_drops(score, level) if graphs is None else graphs.run(level, of_self=False)
    if not has_own_terms(score):
        return CopyScores(edge)
    if graphs is not None:
        return CopyScores(edge, graphs.run(level, of_self=True))
    value = score(score.ones())
    everyone = torch.arange(len(score.self_owner), device=score.self_owner.device)
    own = [_drops(_without_self(score, value, row), everyone, score.self_owner) for row in layer_groups(score, level)]
    return CopyScores(edge, _stack(own, level))


def layer_groups(score: Score, level: str) -> list[list[int]]:
    """Layers whose weights are changed together: each by itself, or all of them."""
    layers = list(range(score.num_layers))
    return [[layer] for layer in layers] if level == "layer" else [layers]


def players(score: Score, level: str) -> Tensor:
    """`[groups, M]`: which edge copies can change their target at all."""
    inside = in_computation_graph(score) if score.local else torch.ones_like(score.ones(), dtype=torch.bool)
    return inside if level == "layer" else inside.any(dim=0, keepdim=True)


@torch.no_grad()
def edge_drops(
    score: Score, level: str, weight: float = 0.0, partner: Tensor | None = None, among: Tensor | None = None
) -> Tensor:
    """z(1) − z(ω_e = weight), `[M]` or `[L, M]`.

    Args:
        score: The explained numbers as a function of edge weights.
        level: `"input"` changes an edge in all layers at once, `"layer"` in one.
        weight: The weight that an edge gets instead of 1.
        partner: `[M]`, another copy whose weight changes along with each (the reverse of an undirected edge).
        among: `[M]`, bool: only these copies are asked about; the others have 0.
    """
    value, found = score(score.ones()), []
    for row, inside in zip(layer_groups(score, level), players(score, level), strict=True):
        inside = inside if among is None else inside & among
        first = torch.arange(len(inside), device=inside.device)
        if partner is not None:  # one pass for both directions
            first = torch.minimum(first, partner)
        candidates = first[inside].unique()
        drop = _drops(_with_weight(score, value, row, weight, partner), candidates, score.owner)
        found.append(torch.where(inside, drop[first], 0.0))
    return _stack(found, level)


def _stack(rows: list[Tensor], level: str) -> Tensor:
    """`[L, M]` at layer level, `[M]` at input level."""
    return torch.stack(rows) if level == "layer" else rows[0]


def _with_weight(
    score: Score, value: Tensor, row: list[int], weight: float, partner: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """A function from places of edge copies to `[targets]`: value − value with these copies at `weight` in some layers."""

    def evaluate(places: Tensor) -> Tensor:
        changed = score.ones()
        for layer in row:
            changed[layer, places] = weight
            if partner is not None:
                changed[layer, partner[places]] = weight
        return value - score(changed)

    return evaluate


def _without_self(score: Score, value: Tensor, row: list[int]) -> Callable[[Tensor], Tensor]:
    """The same for self copies: value − value without their own terms."""

    def evaluate(places: Tensor) -> Tensor:
        own = score.self_ones()
        for layer in row:
            own[layer, places] = 0
        return value - score(score.ones(), own)

    return evaluate


_PASS = 2**26  # bytes of a pass: large enough to keep the processor busy, small enough for any memory


class Repeated:
    """Many weightings of the same targets in one forward pass: the targets lie side by side `times` times.

    Each repetition is a turn, with weights of its own. `turn` and `place`, `[copies]` each, say to which turn a copy of the
    repeated score belongs and which copy of the single one it repeats. `times` is at most `at_most`, and so that a pass fits
    into memory.
    """

    def __init__(self, score: Score, at_most: int) -> None:
        self.base = score
        self.times = max(1, min(at_most, _PASS // max(score.pass_bytes, 1)))
        self.score = score if self.times == 1 else score.repeated(self.times)
        owner, targets = self.score.owner, score.num_targets
        self.turn, position = owner // targets, owner % targets
        width = int(score.num_edges.max()) if score.num_edges.numel() else 0
        known, order = (score.owner * width + score.edge_id).sort()
        self.place = order[torch.searchsorted(known, position * width + self.score.edge_id)]

    def weights(self, weight: Tensor) -> LayerWeight:
        """`[L, copies]`: ω of the repeated score, from `[turns, L, M]` of the single one; turns left over have ω = 1."""
        spare = self.times - len(weight)
        if spare:
            weight = torch.cat([weight, torch.ones_like(weight[:1]).expand(spare, -1, -1)])
        return weight[self.turn, :, self.place].t()

    def rows(self, found: Tensor, turns: int) -> Tensor:
        """`[turns, targets]`: the explained numbers of the repeated score, turn by turn."""
        return found.view(self.times, -1)[:turns]

    def single(self, found: LayerWeight, turns: int) -> Tensor:
        """`[turns, L, M]` of the single score, from `[L, copies]` of the repeated one (gradients, for example)."""
        back = found.new_empty(self.times, len(found), self.base.edge_id.numel())
        back[self.turn, :, self.place] = found.t()
        return back[:turns]
