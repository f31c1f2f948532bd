"""Shards of explanations and of walks: computed by a front door of the library, kept as files of results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import FileError
from edgewise.jobs.plan import Shard
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.storage import load_part, save
from edgewise.results.walk_set import WalkSet
from edgewise.results.walk_storage import load_walks, save_walks


@dataclass(frozen=True, eq=False)
class ExplanationWork:
    """Shards of one method at one level: `explain` does the targets of a slice of `index`."""

    explain: Callable[[slice], ExplanationSet]
    index: Tensor
    method: str
    level: str
    ending: str = ".npz"

    def compute(self, shard: Shard) -> ExplanationSet:
        """Explain the targets of a shard."""
        return self.explain(shard.positions)

    def save(self, part: ExplanationSet, path: Path, job: str) -> None:
        """Write a file of results."""
        save(part, path, job=job)

    def load(self, path: Path, shard: Shard, job: str) -> ExplanationSet | None:
        """The explanations, if they are those of this shard."""
        try:
            part, owner = load_part(path)
            ours = isinstance(part, ExplanationSet) and owner == job and "lacks" not in part.settings
            same = ours and (part.method, part.level) == (self.method, self.level) and self._of_shard(part, shard)
        except FileError:
            return None
        return part if same else None

    def describe(self, part: ExplanationSet) -> dict[str, Any]:
        """Nothing more."""
        return {}

    def _of_shard(self, part: ExplanationSet, shard: Shard) -> bool:
        """Whether the targets are those of the shard, in their order."""
        return torch.equal(part.index, self.index[shard.positions])


@dataclass(frozen=True, eq=False)
class WalkWork:
    """Shards of walks: `search` does the targets of a slice of `index`."""

    search: Callable[[slice], Sequence[WalkSet]]
    index: Tensor
    ending: str = ".npz"

    def compute(self, shard: Shard) -> Sequence[WalkSet]:
        """Search the walks of a shard's targets."""
        return self.search(shard.positions)

    def save(self, part: Sequence[WalkSet], path: Path, job: str) -> None:
        """Write a file of walks."""
        save_walks(part, path, job=job)

    def load(self, path: Path, shard: Shard, job: str) -> Sequence[WalkSet] | None:
        """The walks, if they are those of this shard."""
        try:
            part, owner = load_walks(path)
        except FileError:
            return None
        same = owner == job and torch.equal(torch.tensor([one.number for one in part]), self.index[shard.positions])
        return part if same else None

    def describe(self, part: Sequence[WalkSet]) -> dict[str, Any]:
        """Nothing more."""
        return {}
