"""Yardsticks: every edge of the computation graph, and chance."""

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.copy_scores import CopyScores, in_computation_graph
from edgewise.score import Score


def full(score: Score, level: str) -> CopyScores:
    """1 on the edges of the computation graph (layer l: receivers within L − 1 − l hops of the target), 0 elsewhere."""
    inside = in_computation_graph(score)
    inside = inside if level == "layer" else inside.any(dim=0)
    return CopyScores(inside.to(score.target.truth.dtype))


def random_scores(seed: int, index: int, num_layers: int | None, num_edges: int) -> Tensor:
    """Uniform in [0, 1) on every edge of the graph, `[E]` or `[L, E]`; drawn on demand, the same every time."""
    layer = torch.arange(num_layers or 1).view(-1, 1)
    drawn = random_numbers.uniform(seed, torch.tensor(index), layer, torch.arange(num_edges)).to(torch.float32)
    return drawn if num_layers else drawn[0]
