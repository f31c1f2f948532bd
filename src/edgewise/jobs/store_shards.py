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
from edgewise.arguments import shown
from edgewise.arrays import plain_index
from edgewise.errors import InputError, ModelError, SettingError
from edgewise.graph.neighbour_sample import Bounds, LargeNeighbourhoodError
from edgewise.jobs.hub_explanation import explained_in_parts
from edgewise.jobs.plan import plan
from edgewise.jobs.posed_targets import NEIGHBOURHOOD_SHARE, classes_of
from edgewise.question.memory import SmallBudgetError, read_memory
from edgewise.question.moved_model import ModelNeeded
from edgewise.question.piecewise_question import IN_PARTS
from edgewise.question.source_question import SAMPLED, SourceQuestion
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
    neighbors: tuple[int, ...] = ()
    """Edges into each node, by hop, of the sample on which a target is explained whose neighbourhood is too large."""

    def __call__(self, positions: slice) -> ExplanationSet:
        """Explain the targets at some positions of the job, which are those of a shard or of a part of one."""
        self.asked.check_basis()
        begin, blocks = positions.start, plan("block", self.costs[positions], BLOCK_COST, BLOCK_TARGETS)
        compared = self._shard_of(begin) % self.audit == 0
        parts = [
            part
            for one in blocks
            for part in self._explained(slice(begin + one.begin, begin + one.end), compared=compared)
        ]
        marks: dict[str, Any] = {"compared": compared}
        for mark in (SAMPLED, IN_PARTS):
            told = {index: said for part in parts for index, said in part.settings.get(mark, {}).items()}
            marks |= {mark: told} if told else {}
        found = joined(parts)
        return replace(found, settings=Settings({**found.settings, **marks}))

    @cached_property
    def _begins(self) -> np.ndarray:
        """`[shards]`: where each shard of the job begins."""
        return np.array([shard.begin for shard in plan("shard", self.costs)])

    def _shard_of(self, position: int) -> int:
        return int(np.searchsorted(self._begins, position, side="right")) - 1

    @cached_property
    def _bounded(self) -> SourceQuestion:
        """The question, with neighbourhoods up to a share of the memory."""
        return self.asked.within(Bounds(read_memory(self.how.get("memory")) // NEIGHBOURHOOD_SHARE))

    def _explained(self, positions: slice, *, compared: bool) -> list[ExplanationSet]:
        """A block; if it is too large, its targets one by one, and one that is too large by itself by a sample."""
        try:
            return [self._block(self._bounded, positions, compared=compared)]
        except LargeNeighbourhoodError:
            if positions.stop - positions.start > 1:
                alone = (slice(one, one + 1) for one in range(positions.start, positions.stop))
                return [part for one in alone for part in self._explained(one, compared=compared)]
            if not self.neighbors:
                return [self._in_parts(positions)]
        sample = replace(self._bounded.bounds or Bounds(0), sizes=self.neighbors, seed=int(self.how.get("seed") or 0))
        return [self._block(self.asked.within(sample), positions, compared=None)]

    def _in_parts(self, positions: slice) -> ExplanationSet:
        """One target, in parts; refused where that cannot be done."""
        classes = classes_of(self.classes, positions, len(self.targets))
        try:
            return explained_in_parts(self.asked, self.targets[positions], classes, self.how)
        except InputError as error:
            raise ModelError(str(error)) from error

    def _block(self, asked: SourceQuestion, positions: slice, *, compared: bool | None) -> ExplanationSet:
        """Some targets together; `compared=None` runs the model itself."""
        some: Any = plain_index(self.targets[positions])
        some = asked.types.asked(some) if asked.types is not None else some
        classes = classes_of(self.classes, positions, len(self.targets))
        try:
            try:
                question = (
                    asked.of(some, classes) if compared is None else asked.moved(some, classes, compared=compared)
                )
                found = explain_question(question.as_set(), **self.how)
            except ModelNeeded:
                found = explain_question(asked.of(some, classes).as_set(), **self.how)
        except SmallBudgetError as error:
            raise LargeNeighbourhoodError(str(error)) from error
        except InputError as error:  # NaN in the features of this neighbourhood: the others can be explained
            raise ModelError(str(error)) from error
        assert isinstance(found, ExplanationSet)
        return found


def read_neighbors(neighbors: Any) -> tuple[int, ...]:
    """Sizes of samples by hop, checked; none: nothing is sampled.

    >>> read_neighbors([25, 10]), read_neighbors(None)
    ((25, 10), ())
    """
    if neighbors is None:
        return ()
    sizes = tuple(neighbors) if isinstance(neighbors, (list, tuple)) else ()
    if not sizes or any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in sizes):
        raise SettingError(
            f"`neighbors` must be whole numbers from 1 on, one for each hop, got {shown(neighbors)}. Use [25, 10]."
        )
    return sizes
