"""What a search gives back."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Found:
    """Walks of many targets: ordered by target, best first; and for each target what is known about the others."""

    target: Tensor
    score: Tensor
    nodes: Tensor
    upper_bound: Tensor
    exact: Tensor
    expansions: Tensor
    neurons: Tensor | None = None
