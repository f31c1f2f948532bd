"""What happens in a worker of a Dask cluster: the work of a job arrives once, then shards are done one at a time."""

import io
import pickle
from collections.abc import Callable, Mapping
from functools import cached_property
from threading import Lock
from typing import Any

import torch
from distributed import Worker, WorkerPlugin, get_worker

from edgewise.errors import ClusterError
from edgewise.files import versions
from edgewise.jobs.passage import Task, WorkerAnswer, answered
from edgewise.jobs.plan import Shard

_SCRIPT = b"\x8c\x08__main__"
"""How a pickle names the module of a script that was started: a worker has another one of that name."""


class Arrival(WorkerPlugin):
    """The work of one job in a worker: every worker of the cluster gets it once, also those that join later.

    Args:
        name: Of the job, among all that the cluster works on.
        message: What makes the task, as `packed` gives it.
        wanted: The versions that the job was asked with.
    """

    idempotent = True

    def __init__(self, name: str, message: bytes, wanted: Mapping[str, str]) -> None:
        self.name, self.message, self.wanted = name, message, dict(wanted)

    def setup(self, worker: Worker) -> None:
        """Called by Dask in the worker."""
        self.address, self.one_at_a_time = worker.address, Lock()

    def answer(self, shard: Shard) -> WorkerAnswer:
        """Do a shard; a worker with several threads waits for its turn: torch's threads belong to the process."""
        with self.one_at_a_time:
            torch.set_num_threads(1)
            found = answered(lambda: self.task, shard)
        return found._replace(told={**found.told, "worker": self.address})

    @cached_property
    def task(self) -> Task:
        """The task, made when the first shard comes."""
        found = versions()
        if differing := {
            name: (found.get(name), want) for name, want in self.wanted.items() if found.get(name) != want
        }:
            said = ", ".join(f"{name} is {here}, not {there}" for name, (here, there) in differing.items())
            raise ClusterError(f"The Dask worker at {self.address} has other versions: {said}. Install the same ones.")
        try:
            make: Callable[[], Task] = pickle.loads(self.message)  # noqa: S301 - a message of the one who runs the job
        except Exception as error:  # of a stranger's modules
            raise ClusterError(
                f"The Dask worker at {self.address} cannot take the model ({type(error).__name__}: {error}). Put the file "
                "that defines it where workers import from, for example: PYTHONPATH=folder dask worker …"
            ) from error
        return make()


def done_by_worker(name: str, shard: Shard) -> WorkerAnswer:
    """Do a shard of a job; Dask calls this in some worker."""
    arrival: Any = get_worker().plugins[name]
    answer: WorkerAnswer = arrival.answer(shard)
    return answer


def packed(message: Callable[[], Any]) -> bytes:
    """A message to workers: numbers as they are, classes and functions by import path.

    Raises:
        ClusterError: If something has no import path: a lambda, or a class of the script that is running.

    >>> packed(dict) == pickle.dumps(dict, protocol=5)
    True
    """
    content = io.BytesIO()
    try:
        pickle.Pickler(content, protocol=5).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _without_path(str(error)) from error
    found = content.getvalue()
    if _SCRIPT in found:
        raise _without_path("something is defined in the script that runs, __main__")
    return found


def _without_path(why: str) -> ClusterError:
    return ClusterError(
        f"engine='dask' sends models, functions and methods by import path, and one of them has none: {why}. Define it at "
        "the top level of a module that workers can import (no lambda, no class inside a function), or use "
        "engine='processes'."
    )
