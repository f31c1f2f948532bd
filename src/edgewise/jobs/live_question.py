"""LiveQuestion: what a job from Python asks, with model and graph in memory; it can go to another process as a message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgewise.api.explain import explain
from edgewise.arrays import plain_index
from edgewise.errors import ClusterError
from edgewise.graph.type_table import TypeTable
from edgewise.jobs.digests import digest_of_model
from edgewise.jobs.explanation_job import TolerantWork
from edgewise.jobs.gpu_claim import on_own_gpu
from edgewise.jobs.posed_targets import classes_of
from edgewise.results.explanation_set import ExplanationSet


@dataclass(frozen=True, eq=False)
class LiveQuestion:
    """A model, data, targets, and everything else that `ew.explain` takes."""

    model: nn.Module
    data: Any
    index: Tensor
    """`[T]` or `[T, 2]`."""
    target: Any
    types: TypeTable | None
    options: Mapping[str, Any]
    """The other arguments of `ew.explain`."""

    def explain(self, positions: slice) -> ExplanationSet:
        """Explain some of the targets."""
        some: Any = plain_index(self.index[positions])
        some = self.types.asked(some) if self.types is not None and self.types.explained else some
        classes = classes_of(self.target, positions, len(self.index))
        found = explain(self.model, self.data, some, target=classes, **self.options)
        assert isinstance(found, ExplanationSet)
        return found


def live_work(question: LiveQuestion, method: str, level: str, model: str) -> TolerantWork:
    """The work of a job in a worker of a cluster; `model` is the digest that the model has where the job was begun."""
    refuse_other_model(question.model, model)
    explain = on_own_gpu(question.explain, question.options.get("device"))
    return TolerantWork(explain, question.index, method, level, ".parquet")


def refuse_other_model(model: nn.Module, digest: str) -> None:
    """Refuse a model in a worker that is not the one that was sent."""
    if digest_of_model(model) != digest:
        raise ClusterError(
            f"{type(model).__name__} is another model in the worker: its class there makes something else. Give all workers "
            "the same files."
        )
