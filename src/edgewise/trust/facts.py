"""What the statements of the paper are about, read off the findings."""

from dataclasses import dataclass

from edgewise.trust.activity import RECTIFIERS
from edgewise.trust.findings import LayerFindings, Number, Question, SoftmaxFindings

ROUNDING = {"float64": 1e-9}
_COARSE_ROUNDING = 1e-4
NEARLY = 0.05
"""What is called nearly: a share that misses by no more than this, a cosine of at least 1 minus it."""


@dataclass(frozen=True)
class Facts:
    """What the statements are about."""

    question: Question
    layers: tuple[LayerFindings, ...]
    whole: LayerFindings
    softmax: SoftmaxFindings

    @property
    def rounding(self) -> float:
        """Up to here, a relative difference is rounding."""
        return ROUNDING.get(self.question.dtype, _COARSE_ROUNDING)

    def at_most(self, numbers: list[Number], bound: float) -> bool:
        """Whether all numbers that are known are so small."""
        return all(abs(number.value) <= bound for number in numbers if number.known)

    @property
    def linear(self) -> bool:
        """Whether, in every layer that has edges, gradients are occlusions and halves of the edges add up."""
        return self.at_most([n for layer in self.layers for n in (layer.difference, layer.unevenness)], self.rounding)

    @property
    def unbiased(self) -> bool | None:
        """Whether nothing is left of z if a layer says nothing; None if that cannot be asked in some layer."""
        constants = [layer.constant for layer in self.layers]
        if not self.at_most(constants, self.rounding):
            return False
        return True if all(number.known for number in constants) else None

    @property
    def activations(self) -> list[str]:
        """Every kind once."""
        return list(dict.fromkeys(name for layer in self.layers for name in layer.activations))

    def verdict(self, numbers: list[Number]) -> str:
        """Of numbers that should be 0: "holds", "nearly", "fails", or "open" if some are not known."""
        if not any(number.known for number in numbers):
            return "open"
        if self.at_most(numbers, self.rounding):
            return "holds" if all(number.known for number in numbers) else "open"
        return "nearly" if self.at_most(numbers, NEARLY) else "fails"

    def beyond_rectified_sums(self) -> list[str]:
        """What the model has that the paper's network of sums and rectifiers has not."""
        others = [name for name in self.activations if name not in RECTIFIERS]
        return [*others, *(f"{kind} (not a plain sum of messages)" for kind in self.question.other_layers)]
