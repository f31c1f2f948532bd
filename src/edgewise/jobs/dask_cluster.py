"""DaskCluster: shards done by the workers of a Dask cluster, one that runs already or one of this machine.

Model and graph go to each worker once, as a plugin that workers get when they join. A shard is a task; some more than there
are workers are under way, the rest waits here. If a worker dies, Dask gives its shard to another one; if a shard fails in a
worker, it is tried in another one. If the scheduler is lost, the job ends with a sentence, and the same call goes on.
Workers write the files of shards, so they must see the folder; only this process writes the journal.
"""

import asyncio
import concurrent.futures
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from edgewise.errors import ClusterError, EdgewiseError, ModelError, missing_extra
from edgewise.files import versions
from edgewise.jobs.passage import Done, Passage, Task, WorkerAnswer
from edgewise.jobs.plan import Shard

if TYPE_CHECKING:
    from distributed import Client, Future

_TRIES = 3
"""In so many workers is a shard tried that fails."""
_ANSWER = 10.0
"""Seconds that a scheduler has to answer."""
_AHEAD = 100
"""So many shards, and two for each worker, are under way: short ones must not wait for messages."""
_LOOK = 1.0  # seconds between two looks at the cluster
_PATIENCE = 300.0
"""Seconds without any worker after which a job ends."""
_QUIET = {
    "distributed.worker.profile.enabled": False,  # looks at the stack a hundred times a second
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,  # 65536: memory is asked for anew for every tensor
    "distributed.admin.tick.interval": "500ms",  # not 20 ms: every look takes the interpreter from the one who computes
    "distributed.worker.memory.monitor-interval": "1s",  # not 100 ms
}
"""How the workers of a cluster of our own differ from Dask's defaults, which cost a shard half as much again."""
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
_KEPT = "What is finished is kept; the same call goes on, or edgewise job resume."


class DaskCluster:
    """Shards in the workers of a Dask cluster.

    Args:
        scheduler: The address of one that runs, `tcp://…`; `None` makes a cluster on this machine, for this job.
        workers: How many workers that has.
    """

    def __init__(self, scheduler: str | None, workers: int) -> None:
        self.scheduler, self.workers = scheduler, workers

    def check(self, remake: Callable[[], Any] | None) -> None:
        """Refuse work that cannot be sent, before the job begins."""
        _distributed()
        from edgewise.jobs.dask_worker import packed

        if remake is None:
            raise ClusterError(
                "engine='dask' cannot send method 'auto', which was decided in this process. Name the method that it chose."
            )
        packed(remake)

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do every shard; each is yielded with what the journal should say."""
        if not shards:
            return
        from edgewise.jobs.dask_worker import Arrival, packed

        assert passage.message is not None  # `check` has seen to that
        arrival = Arrival(f"edgewise-{uuid4().hex}", packed(passage.message), versions())
        with self._client() as client:
            flow = _Flow(client, arrival.name, shards)
            try:
                client.register_plugin(arrival)
                yield from flow.done()
            except (OSError, TimeoutError, *_CANCELLED) as error:  # a comm that is closed is an OSError
                flow.lost = True
                raise _lost(self.scheduler) from error
            finally:
                if not flow.lost and client.status == "running":
                    with suppress(OSError, TimeoutError, *_CANCELLED):  # it may be lost in this moment
                        client.unregister_worker_plugin(arrival.name)

    @contextmanager
    def _client(self) -> Iterator["Client"]:
        """A connection to the scheduler; of a cluster of our own, all of it."""
        import dask
        from distributed import Client, LocalCluster

        if self.scheduler is None:
            try:
                with dask.config.set(_QUIET):
                    made = LocalCluster(n_workers=self.workers, threads_per_worker=1, dashboard_address=None)
            except (RuntimeError, OSError, TimeoutError) as error:
                said = str(error).rstrip(".")
                raise ClusterError(
                    f"The workers of a local Dask cluster did not start: {said}. In a script, call this under "
                    'if __name__ == "__main__":, because workers import the script.'
                ) from error
            with made as cluster, Client(cluster, set_as_default=False) as client:
                yield client
            return
        try:
            found = Client(self.scheduler, timeout=_ANSWER, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"No Dask scheduler answers at {self.scheduler!r}. Start one with: dask scheduler. Its address is like "
                "tcp://127.0.0.1:8786."
            ) from error
        try:
            yield found
        finally:
            with suppress(TimeoutError):  # a scheduler that is gone does not answer
                found.close(timeout=_ANSWER if found.status == "running" else 1.0)


class _Flow:
    """The shards of a job on their way through a cluster."""

    def __init__(self, client: "Client", name: str, shards: Sequence[Shard]) -> None:
        self.client, self.name = client, name
        self.waiting = deque(shards)
        self.running: dict[str, tuple[Shard, Future[WorkerAnswer]]] = {}
        self.tried: defaultdict[str, list[str]] = defaultdict(list)
        self.ended: SimpleQueue[str] = SimpleQueue()
        self.lost = False
        """Whether the scheduler is known to be gone: nothing is asked of it then."""
        self.threads, self.looked, self.seen = 1, 0.0, time.monotonic()

    def done(self) -> Done:
        """Every shard when it is finished."""
        try:
            while self.waiting or self.running:
                self._look()
                most = 2 * self.threads + _AHEAD
                if len(self.running) <= most // 2:  # many at once: a message for each would be most of the work
                    self._submit([self.waiting.popleft() for _ in range(min(most // 2, len(self.waiting)))])
                for shard, answer in self._ended():
                    if answer.error is not None and self._another(shard, answer):
                        continue
                    yield shard, {**answer.heard(), "workers": self.threads}
        finally:
            if self.running and not self.lost and self.client.status == "running":
                self.client.cancel([future for _, future in self.running.values()])

    def _submit(self, shards: list[Shard]) -> None:
        """Send shards; those that have failed in some workers, rather to others."""
        from edgewise.jobs.dask_worker import done_by_worker

        groups: defaultdict[tuple[str, ...], list[Shard]] = defaultdict(list)
        for shard in shards:
            groups[tuple(self.tried[shard.name])].append(shard)
        for tried, some in groups.items():
            others = [address for address in self.client.nthreads() if address not in tried] if tried else []
            where: dict[str, Any] = {"workers": others, "allow_other_workers": True} if others else {}
            keys = [f"{self.name}-{shard.name}-{len(tried)}" for shard in some]
            names = [self.name] * len(some)
            futures = self.client.map(done_by_worker, names, some, key=keys, pure=False, **where)
            for key, shard, future in zip(keys, some, futures, strict=True):
                self.running[key] = shard, future
                future.add_done_callback(lambda one: self.ended.put(one.key))

    def _ended(self) -> list[tuple[Shard, WorkerAnswer]]:
        """What has ended since the last look; waits for one, but not for long. Answers are fetched together."""
        try:
            keys = [self.ended.get(timeout=_LOOK)]
        except Empty:
            return []
        while not self.ended.empty():
            keys.append(self.ended.get())
        some = [self.running.pop(key) for key in keys]
        for shard, future in some:
            if future.status != "finished":
                self.lost = future.status != "error"
                raise _failure(shard, future)
        answers = self.client.gather([future for _, future in some])
        return [(shard, answer) for (shard, _), answer in zip(some, answers, strict=True)]

    def _another(self, shard: Shard, answer: WorkerAnswer) -> bool:
        """Whether a shard that failed is tried again, in another worker."""
        tried = self.tried[shard.name]
        tried.append(answer.told["worker"])
        again = len(tried) < _TRIES and bool(set(self.client.nthreads()) - set(tried))
        if again:
            self.waiting.appendleft(shard)
        return again

    def _look(self) -> None:
        """How many workers there are, now and then; refuse to wait for ever for the first of them."""
        now = time.monotonic()
        if now - self.looked < _LOOK:
            return
        if self.client.status != "running":
            self.lost = True
            raise _lost(None)
        found = sum(self.client.nthreads().values())
        self.looked, self.threads = now, max(found, 1)
        if found:
            self.seen = now
        elif now - self.seen > _PATIENCE:
            raise ClusterError(
                f"The Dask cluster has had no worker for {_PATIENCE / 60:.0f} minutes. Start some: dask worker tcp://… "
                f"--nthreads 1. {_KEPT}"
            )


def _failure(shard: Shard, future: "Future[WorkerAnswer]") -> EdgewiseError:
    """Why a task ended without an answer, as an error of ours."""
    from distributed import KilledWorker

    if future.status != "error":  # cancelled, or lost
        return _lost(None)
    error = future.exception()
    if isinstance(error, KilledWorker):
        return ModelError(
            f"{shard.name} (positions {shard.begin} to {shard.end - 1}) ended every Dask worker that took it, the last one "
            f"at {error.last_worker.address}. If memory ran out, use workers with more of it. What is finished is kept."
        )
    return ClusterError(f"The Dask cluster could not do {shard.name}: {error}. {_KEPT}")


def _lost(address: str | None) -> ClusterError:
    where = f" at {address}" if address else ""
    return ClusterError(f"The Dask scheduler{where} is lost. {_KEPT}")


def _distributed() -> None:
    """Refuse where Dask is not installed."""
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError as error:
        raise missing_extra("distributed", "dask", "engine='dask'") from error
