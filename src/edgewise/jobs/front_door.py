"""`ew.jobs.run`: explanations of many targets into a folder, interrupted and resumed at will."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from edgewise.algorithms.method_settings import read_settings
from edgewise.algorithms.registry import Method, find_method
from edgewise.api.explain import chosen_method
from edgewise.arguments import shown, whole_number
from edgewise.arrays import read_tensor
from edgewise.contract import checked
from edgewise.errors import InputError, SettingError
from edgewise.files import versions
from edgewise.jobs.digests import digest_of_index, digest_of_model, digest_of_tensors
from edgewise.jobs.explanation_job import JobQuestion, TolerantWork, work_off
from edgewise.jobs.job import Job, open_job
from edgewise.jobs.job_folder import refuse_other_folder
from edgewise.jobs.live_question import LiveQuestion, live_work
from edgewise.jobs.live_store import LiveStore, live_store_work
from edgewise.jobs.plan import costs_of
from edgewise.jobs.posed_targets import is_each, posed_targets
from edgewise.jobs.shard_run import Remake, engine_named
from edgewise.jobs.store_shards import StoreShards, read_neighbors
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion
from edgewise.question.memory import read_batch_size, read_memory
from edgewise.question.source_question import SourceQuestion
from edgewise.results.container import as_jsonable
from edgewise.store.graph_store import GraphStore
from edgewise.store.pyg_stores import is_pyg_stores


@checked
def run(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    out: str | Path,
    method: str | Method = "gradient",
    level: str = "input",
    engine: str = "here",
    workers: int | None = None,
    scheduler: str | None = None,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    audit: int = 1,
    neighbors: Sequence[int] | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
    retry: bool = False,
    **settings: Any,
) -> Job:
    """Explain many targets, shard by shard, into a folder; the same call goes on where an earlier one was stopped.

    A shard is on the disk, with a digest, when it is finished: nothing that kills the process loses it. If the folder holds a
    job with other settings, another model or other data, the call is refused and says what differs. A target that the
    model fails on fails alone (`job.failed`).

    Args:
        model: As in `explain`, like every argument that is not described here.
        data: The graph, or for a graph task the graphs; a graph on disk is an `ew.GraphStore`.
        index: The targets; `None` means all of them.
        out: The folder; it is made if it is not there.
        method: A name of `ew.methods()`.
        level: `"input"` or `"layer"`.
        engine: Where shards are done: `"here"`, in this process, by `"processes"` of this machine, or by a `"dask"` cluster.
            Shards have the same bytes with all of them, so a job may go on with another one.
        workers: How many processes; `None` means one for each core.
        scheduler: The address of a Dask scheduler, `"tcp://…"`; `None` makes a cluster of `workers` on this machine.
        target: The class, one or one for each index.
        task: `"node"`, `"graph"` or `"link"`.
        mode: How the output is read.
        of: The explained number.
        output: What the model returns.
        forward: How the model is called; the same function must be given to go on.
        without_itself: For links.
        top: Keep only the strongest entries of each target.
        memory: A budget for one block of targets.
        batch_size: Targets in a block.
        neighbors: Of a graph on disk: a target whose neighbourhood takes more than a quarter of `memory` is explained on a
            sample of it, `[25, 10]` edges into each node, hop by hop (the last number holds for all further ones), and
            marked: `settings["sampled"]`. Without it such a target is worked off in parts (`settings["in_parts"]`) or,
            where that cannot be done, fails alone.
        audit: Of a graph on disk: run your own model, and compare its values, on one shard in so many; 1 means on all.
        device: Where to compute.
        seed: Random seed.
        progress: Show a progress bar.
        retry: Try targets again that failed.
        **settings: The method's own settings.

    Returns:
        The job, as `ew.jobs.open(out)` gives it. Needs `edgewise[table]`.

    >>> import tempfile
    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])           # 0 ─2→ 1 ─3→ 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = run(model, data, index=[1, 2], out=f"{folder}/job")
    ...     len(job), job[1].scores
    (2, tensor([6., 6.]))
    """
    folder, shards_go_to = Path(out), engine_named(engine, workers, scheduler)
    refuse_other_folder(folder)
    own = read_settings(find_method(method, level), settings)
    read_memory(memory)
    read_batch_size(batch_size)
    asked: dict[str, Any] = {
        "task": task, "mode": mode, "of": of, "output": output, "forward": forward, "device": device,
        "without_itself": without_itself,
    }  # fmt: skip
    how: dict[str, Any] = {"method": method, "level": level, "top": top, "seed": seed, **settings}
    how |= {"memory": memory, "batch_size": batch_size}
    audit, hops = _read_store_options(data, audit, neighbors)
    posed, targets = posed_targets(model, data, index, target, asked, memory)
    if len(targets) == 0:
        raise InputError("`index` must name at least one target, got none. Use index=range(10), for example.")
    if find_method(method, level).chooses:  # once, for all shards
        how["method"] = method = chosen_method(posed)
        own = read_settings(method, {})
    question = _Asked(model, data, target, asked, how, audit, hops).of(posed, targets, own)
    with progress_bar(progress, len(targets), f"{question.method} ({level})") as advance:
        work_off(folder, question, shards_go_to, _counting(advance), retry=retry)
    return open_job(folder)


def _read_store_options(data: Any, audit: Any, neighbors: Any) -> tuple[int, tuple[int, ...]]:
    """`audit` and `neighbors`, checked, and refused where there is no graph on disk; so is data that has no digest."""
    audit = whole_number("audit", audit, at_least=1, such_as=20)
    hops = read_neighbors(neighbors)
    if (audit > 1 or hops) and not isinstance(data, GraphStore):
        raise SettingError("`audit` and `neighbors` are for a graph on disk, an ew.GraphStore. Leave them out.")
    if is_pyg_stores(data):
        raise InputError(
            "A job needs data that can be told from other data; PyG's stores cannot. Use ew.GraphStore.build(…)."
        )
    return audit, hops


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the user asked for: everything but the targets."""

    model: nn.Module
    data: Any
    target: Any
    asked: Mapping[str, Any]
    """Arguments of the question."""
    how: Mapping[str, Any]
    """Those of the explanation, the method's own settings among them."""
    audit: int
    hops: tuple[int, ...]

    def of(self, posed: PosedQuestion, targets: Tensor, own: Mapping[str, Any]) -> JobQuestion:
        """The question of the job; `own` are all settings of the method."""
        costs = costs_of(posed.source if isinstance(posed, SourceQuestion) else self.data, targets, self.asked["task"])
        name, level = find_method(self.how["method"], self.how["level"]).name, self.how["level"]
        identity = self._identity({**self.how, **own, "method": name})
        hashes, types = identity["hashes"], posed.types
        live = LiveQuestion(self.model, self.data, targets, self.target, types, {**self.asked, **self.how})
        work: Callable[[slice], Any] = live.explain
        again: Callable[[], TolerantWork] = partial(live_work, live, name, level, hashes["model"])
        if isinstance(posed, SourceQuestion):
            store = (costs, self.target, types, self.asked, self.how, self.audit, self.hops)
            work = StoreShards(posed, targets, costs, self.target, self.how, self.audit, self.hops)
            again = partial(live_store_work, LiveStore(self.model, self.data, targets, *store), name, level, hashes)
        remake: Remake[Any] = Remake(again, from_files=False)
        return JobQuestion(identity, targets, costs, name, level, work, remake=remake)

    def _identity(self, how: Mapping[str, Any]) -> dict[str, Any]:
        """What the manifest says: settings, hashes of model and data, versions."""
        stored = isinstance(self.data, GraphStore)
        story = {
            **self.asked,
            "forward": _name(self.asked["forward"]),
            **how,
            **({"audit": self.audit, "neighbors": list(self.hops)} if stored else {}),
            "target": self.target,
        }
        return {
            "kind": "python",
            "question": as_jsonable({name: _told(value) for name, value in story.items()}),
            "hashes": {"model": digest_of_model(self.model), "data": _digest(self.data)},
            "versions": versions(),
        }


def _counting(advance: Callable[[float], Any]) -> Callable[[int, int], None]:
    """From how many are done to how many more."""
    before = 0

    def tell(done: int, _total: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return tell


def _digest(data: Any) -> str:
    """SHA-256 of the data; a graph on disk has one, and is read once to see that it is still true."""
    if isinstance(data, GraphStore):
        data.verify()
        return data.digest
    return digest_of_tensors([data] if isinstance(data, (Data, HeteroData)) else list(data))


def _told(value: Any) -> Any:
    """A value for the manifest; of many numbers, their digest."""
    if isinstance(value, (Tensor, list, tuple)) and is_each(value, len(value) if not _is_scalar(value) else -1):
        try:
            return digest_of_index(read_tensor(value))
        except TypeError as error:
            raise InputError(f"`target` must be a class, or one class for each target, got {shown(value)}.") from error
    return value.item() if isinstance(value, Tensor) else value


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0


def _name(forward: Any) -> str | None:
    """A function by name: whether it is the same one, only its owner knows."""
    return (
        None if forward is None else f"{forward.__module__}.{getattr(forward, '__qualname__', type(forward).__name__)}"
    )
