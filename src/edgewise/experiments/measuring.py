"""Agreement of explanations, as the paper averages it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import edgewise as ew


@dataclass(frozen=True)
class Average:
    """Of the targets for which a number is defined."""

    mean: float
    deviation: float
    count: int

    @staticmethod
    def of(values: Tensor) -> "Average":
        """NaN is left out.

        >>> Average.of(torch.tensor([1.0, torch.nan, 3.0]))
        Average(mean=2.0, deviation=1.0, count=2)
        """
        known = values[~values.isnan()].double()
        if not len(known):
            return Average(math.nan, math.nan, 0)
        return Average(float(known.mean()), float(known.std(unbiased=False)), len(known))


def cosines(found: ew.ExplanationSet, reference: ew.ExplanationSet, *, per_layer: bool = False) -> Tensor:
    """`[targets]` or `[targets, layers]`: cosine to a reference.

    NaN where the reference is zero: such targets are left out, as in the paper. Where the reference says something and the
    explanation is zero, they agree in nothing: 0.
    """
    cosine = ew.similarity(found, reference, per_layer)
    nothing = ew.similarity(reference, reference, per_layer).isnan()
    return torch.where(nothing, torch.nan, cosine.nan_to_num(0.0))
