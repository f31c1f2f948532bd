"""Integrated gradients over edge weights."""

import numpy as np
import torch

from edgewise.algorithms.gradient import weight_gradients
from edgewise.algorithms.scores import CopyScores, at_level, has_own_terms
from edgewise.score import Score


def integrated_gradients(score: Score, level: str, *, steps: int) -> CopyScores:
    """∫₀¹ ∂z/∂ω_e at ω = (t, …, t) dt: all edge weights together from 0 to 1, self terms on, Gauss and Legendre's rule.

    The edges sum to z(all edges) − z(no edges). The path does not move the self terms: their score is the mean of ∂z/∂s
    along it.

    >>> from edgewise.examples import path_score
    >>> integrated_gradients(path_score(gains=[2.0, 3.0]), "input", steps=50).edge.round()     # z = 6·ω₀·ω₁, halved
    tensor([3., 3.])
    """
    nodes, shares = np.polynomial.legendre.leggauss(steps)
    own = score.self_ones() if has_own_terms(score) else None
    edge_sum, own_sum = torch.zeros_like(score.ones()), None if own is None else torch.zeros_like(own)
    for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        edge, of_self = weight_gradients(score, score.ones() * float(node), own)
        edge_sum += edge * float(share)
        if own_sum is not None and of_self is not None:
            own_sum += of_self * float(share)
    return at_level(edge_sum, own_sum, level)
