"""Yardsticks for other methods: every edge of the computation graph alike, and chance."""

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.copy_scores import CopyScores, in_computation_graph
from edgewise.score import Score


def full(score: Score, level: str) -> CopyScores:
    """1 on the edges of the computation graph (layer l: receivers within L − 1 − l hops of the target), 0 elsewhere.

    >>> from edgewise.examples import path_score
    >>> full(path_score(gains=[2.0, 3.0]), "layer").edge      # copies: 1 → 2, 0 → 1; in layer 1 only 1 → 2 can matter
    tensor([[1., 1.],
            [1., 0.]])
    """
    inside = in_computation_graph(score)
    inside = inside if level == "layer" else inside.any(dim=0)
    return CopyScores(inside.to(score.target.truth.dtype))


def random_scores(seed: int, index: int, num_layers: int | None, num_edges: int) -> Tensor:
    """Uniform in [0, 1) on every edge of the graph, `[E]` or `[L, E]` (with `num_layers`).

    They are drawn when they are looked at, and depend on the seed and the target's `index` alone: the same every time.

    >>> random_scores(0, 7, None, 3).shape, bool((random_scores(0, 7, None, 3) == random_scores(0, 7, None, 3)).all())
    (torch.Size([3]), True)
    """
    layer = torch.arange(num_layers or 1).view(-1, 1)
    drawn = random_numbers.uniform(seed, torch.tensor(index), layer, torch.arange(num_edges)).to(torch.float32)
    return drawn if num_layers else drawn[0]
