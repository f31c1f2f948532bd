"""Shards of a job over a graph on disk: one question, proved once, that moves from neighbourhood to neighbourhood.

A shard is done in blocks of a few targets, each with a cut of its own: memory stays small, and what is gathered fits the
caches of a processor. Blocks are a matter of the targets' costs, so a shard has the same bytes whoever does it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from edgewise.api.explain import explain_question
from edgewise.arrays import plain_index
from edgewise.errors import InputError, ModelError
from edgewise.jobs.plan import plan
from edgewise.jobs.posed_targets import classes_of
from edgewise.question.moved_model import ModelNeeded
from edgewise.question.source_question import SourceQuestion
from edgewise.results.concatenation import joined
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet

BLOCK_COST = 2**14
"""The costs of the targets of a block."""
BLOCK_TARGETS = 32


@dataclass(frozen=True, eq=False)
class StoreShards:
    """Explains some targets of a job, by a question that was asked about one of them."""

    asked: SourceQuestion
    targets: Tensor
    """`[T]`: all targets of the job."""
    costs: Tensor
    """`[T]`."""
    classes: Any
    """The classes, one or one for each target."""
    how: Mapping[str, Any]
    """Arguments of `explain_question`."""
    audit: int = 1
    """The user's own model is run on one shard in so many."""

    def __call__(self, positions: slice) -> ExplanationSet:
        """Explain the targets at some positions of the job, which are those of a shard or of a part of one."""
        self.asked.check_basis()
        begin, blocks = positions.start, plan("block", self.costs[positions], BLOCK_COST, BLOCK_TARGETS)
        compared = self._shard_of(begin) % self.audit == 0
        parts = [self._explained(slice(begin + one.begin, begin + one.end), compared=compared) for one in blocks]
        found = joined(parts)
        return replace(found, settings=Settings({**found.settings, "compared": compared}))

    @cached_property
    def _begins(self) -> np.ndarray:
        """`[shards]`: where each shard of the job begins."""
        return np.array([shard.begin for shard in plan("shard", self.costs)])

    def _shard_of(self, position: int) -> int:
        return int(np.searchsorted(self._begins, position, side="right")) - 1

    def _explained(self, positions: slice, *, compared: bool) -> ExplanationSet:
        some: Any = plain_index(self.targets[positions])
        types = self.asked.types
        some = types.asked(some) if types is not None else some
        classes = classes_of(self.classes, positions, len(self.targets))
        try:
            try:
                found = explain_question(self.asked.moved(some, classes, compared=compared).as_set(), **self.how)
            except ModelNeeded:
                found = explain_question(self.asked.of(some, classes).as_set(), **self.how)
        except InputError as error:  # NaN in the features of this neighbourhood: the others can be explained
            raise ModelError(str(error)) from error
        assert isinstance(found, ExplanationSet)
        return found
