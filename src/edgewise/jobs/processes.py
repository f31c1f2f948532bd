"""Processes: shards done by several processes of this machine, one thread each; a worker that dies loses nothing.

A worker gets a shard, writes its file, and answers what the journal should say; only the process that started it writes the
journal. If a worker dies, its shard goes to another one. Work travels by fork, or, if a fresh process can make it again
from paths (`Passage`), by that recipe.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing import get_all_start_methods
from typing import Any

import torch

from edgewise.errors import ModelError, SettingError
from edgewise.jobs.passage import Done, Passage, Task
from edgewise.jobs.plan import Shard
from edgewise.jobs.worker_pool import LostWorkerError, WorkerPool

_MOST_LOSSES = 3
"""So often may a shard lose its worker."""


class Processes:
    """Shards in several processes of this machine."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def check(self, remake: Callable[[], Any] | None) -> None:
        """What cannot be made again is forked."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do every shard, each yielded with what the journal should say; at the end, however it comes, no worker is left."""
        _refuse_fork(passage)
        waiting, losses = deque(shards), Counter[str]()
        pool = WorkerPool[Shard](passage, min(self.workers, len(shards)))
        with closing(pool.answers(lambda: waiting.popleft() if waiting else None)) as answers:
            for shard, answer in answers:
                if isinstance(answer.error, LostWorkerError):
                    losses[shard.name] += 1
                    _refuse_more_losses(shard, losses[shard.name], answer.error)
                    waiting.appendleft(shard)
                    continue
                yield shard, {**answer.heard(), "workers": self.workers}


def _refuse_fork(passage: Passage) -> None:
    """Refuse where work cannot be forked."""
    if passage.way == "fork" and ("fork" not in get_all_start_methods() or torch.cuda.is_initialized()):
        why = "a GPU is in use" if torch.cuda.is_initialized() else "this system has no fork"
        raise SettingError(f"engine='processes' forks, and {why}. Use engine='here', or edgewise job run.")


def _refuse_more_losses(shard: Shard, losses: int, last: LostWorkerError) -> None:
    """Stop if a shard ends every worker that takes it."""
    if losses >= _MOST_LOSSES:
        raise ModelError(
            f"{shard.name} (positions {shard.begin} to {shard.end - 1}) ended {losses} worker processes, the last one with "
            f"{last}. If memory ran out, use fewer workers. What is finished is kept."
        )
