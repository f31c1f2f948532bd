"""LiveStore: what a job from Python asks about a graph on disk; it goes to another process with the path of the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgewise.arrays import plain_index
from edgewise.errors import FileError
from edgewise.graph.type_table import TypeTable
from edgewise.jobs.explanation_job import TolerantWork
from edgewise.jobs.gpu_claim import on_own_gpu
from edgewise.jobs.live_question import refuse_other_model
from edgewise.jobs.posed_targets import posed_targets
from edgewise.jobs.store_shards import StoreShards
from edgewise.question.source_question import SourceQuestion
from edgewise.store.graph_store import GraphStore


@dataclass(frozen=True, eq=False)
class LiveStore:
    """A model in memory, a store by its path, the targets, and how they are explained."""

    model: nn.Module
    store: GraphStore
    """Pickled, it is its path."""
    index: Tensor
    costs: Tensor
    target: Any
    types: TypeTable | None
    asked: Mapping[str, Any]
    """Arguments of the question."""
    how: Mapping[str, Any]
    """Those of the explanation."""
    audit: int
    neighbors: tuple[int, ...]

    def shards(self) -> StoreShards:
        """Ask the question again, where this is, about the same first target."""
        index: Any = plain_index(self.index)
        index = index if self.types is None else self.types.asked(index)
        posed, _ = posed_targets(self.model, self.store, index, self.target, dict(self.asked), self.how.get("memory"))
        assert isinstance(posed, SourceQuestion)
        return StoreShards(posed, self.index, self.costs, self.target, self.how, self.audit, self.neighbors)


def live_store_work(question: LiveStore, method: str, level: str, hashes: Mapping[str, str]) -> TolerantWork:
    """The work of a job in a worker of a cluster; `hashes` are those of model and store where the job was begun."""
    refuse_other_model(question.model, hashes["model"])
    if question.store.digest != hashes["data"]:
        raise FileError(f"{question.store.path} is another graph in the worker. Use a path that all workers share.")
    explain = on_own_gpu(question.shards(), question.asked.get("device"))
    return TolerantWork(explain, question.index, method, level, ".parquet")
