"""Feature gradients of links whose encoder is lowered: the decoder's gradients at both ends, carried back by the program.

A node that both ends of a pair see has one score, the sum of what it says through either. Occlusion takes copies: a changed
feature changes both ends at once.
"""

from torch import Tensor

from edgewise.algorithms.feature_copies import FeatureCopies, FeatureLosses, FeaturePath, FeatureSlopes
from edgewise.algorithms.feature_program import FeatureProgram
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.link_engine import slope_of
from edgewise.question.link_question import LinkQuestion


class LinkFeatureProgram:
    """The program of a link question's encoder with features as variables, and the model's own decoder behind it."""

    way = "lowered"

    def __init__(self, question: LinkQuestion, program: FeatureProgram, through: FeatureCopies) -> None:
        self.question, self.program, self._through = question, program, through
        self.front = program.front

    @staticmethod
    def proved(question: PosedQuestion, memory: int, through: FeatureCopies) -> "LinkFeatureProgram | None":
        """The engine, if program and decoder are the model, and the program is right as a function of the features.

        The decoder must be `model.decode`, which reads nothing but rows; pairs must keep their own links.
        """
        if not isinstance(question, LinkQuestion) or question.encoder is None or question.patches is not None:
            return None
        if question.engine_lowering is None or not question.link_model.is_direct:
            return None
        program = FeatureProgram.proved(question.encoder, memory)
        return None if program is None else LinkFeatureProgram(question, program, through)

    def slopes(self, positions: Tensor, path: FeaturePath) -> tuple[FeatureSlopes, None]:
        """Σ share · gradient at t · features, in factors, one row for each node that either end of a pair sees."""
        model, count = self.question.link_model, len(positions)
        slope = slope_of(model.decoder(positions), sub_target(self.question, positions))
        end, node, found = self.program.pulled(model.ends(positions), slope, path)
        size = len(self.program.x)
        key, place = ((end % count) * size + node).unique(return_inverse=True)
        left = found.left.new_zeros(len(key), found.left.size(1)).index_add_(0, place, found.left)
        node = key % size
        slopes = FeatureSlopes(
            key // size, self.question.nodes(node), left, found.right, self.program.x.size(1),
            lambda: self.program.nonzero(node),
        )  # fmt: skip
        return slopes, None

    def losses(self, positions: Tensor) -> tuple[FeatureLosses, FeatureLosses | None]:
        """Through the model itself."""
        return self._through.losses(positions)
