"""The engines of jobs: what more workers give, what Dask costs beside plain processes, and what its scheduler takes for a task.

    python -m benchmarks.job_engines empty --workers 4 --tasks 100000     # tasks that do nothing and write nothing
    taskset -c 0,1 python -m benchmarks.job_engines run --engine dask --workers 4 --targets 40000
    taskset -c 0,1 python -m benchmarks.job_engines compare --targets 6000 --shard 64 --steps 160 --rounds 3

One JSON line each. `run` is a GCN 3×64, layer gradients, top 50, on a generated graph in which every node reads ten near it.
`work` is the time without the start of the workers: from when the first shard was begun until the last was done. `processor` is
the processor time in between of this process and of all that it started, which counts where others use the machine, too.
`compare` runs the same job in two processes and in four Dask workers, by turns, and prints the ratios of the medians.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

NEAR, FEATURES, WIDTH, CLASSES = 10, 64, 64, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("empty", "run", "compare"))
    parser.add_argument("--engine", default="dask", choices=("here", "processes", "dask"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--targets", type=int, default=40_000)
    parser.add_argument("--steps", type=int, default=0, help="integrated gradients of so many steps, not gradients")
    parser.add_argument("--shard", type=int, default=256, help="targets in a shard")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.what == "compare":
        compare(asked)
        return
    measured = empty(asked) if asked.what == "empty" else run(asked)
    load = [round(one, 1) for one in os.getloadavg()]
    cores = len(os.sched_getaffinity(0))
    print(json.dumps({**vars(asked), **measured, "cores": cores, "load": load}), flush=True)


class Clock:
    """An engine that notes when each shard was done."""

    def __init__(self, engine) -> None:
        self.engine, self.done, self.begun, self.processor = engine, [], 0.0, (0.0, 0.0)

    def check(self, remake) -> None:
        self.engine.check(remake)

    def run(self, shards, task, passage):
        self.begun = time.perf_counter()
        for shard, told in self.engine.run(shards, task, passage):
            self.done.append((time.perf_counter(), told.get("seconds", 0.0)))
            if len(self.done) in (1, len(shards)):
                self.processor = self.processor[1], spent_by_all()
            yield shard, told

    def seconds(self) -> dict[str, float]:
        """The whole time, and the time without the start: the first shard that was done had begun its seconds before."""
        first = min(at - spent for at, spent in self.done[:8])
        last = self.done[-1][0]
        return {
            "whole": round(last - self.begun, 1),
            "work": round(last - first, 1),
            "computing": round(sum(spent for _, spent in self.done), 1),
            "processor": round(self.processor[1] - self.processor[0], 1),
        }


def nothing(shard) -> dict:
    return {}


def makes_nothing():
    return nothing


def empty(asked) -> dict:
    """Tasks that do nothing and write nothing: what an engine itself takes for each."""
    from edgewise.jobs.passage import Passage
    from edgewise.jobs.plan import Shard
    from edgewise.jobs.shard_run import engine_named

    shards = [Shard(f"shard-{number:06d}", number, number + 1) for number in range(asked.tasks)]
    with cluster(asked.workers) if asked.engine == "dask" else nullcontext((None, None)) as (address, process):
        clock = Clock(engine_named(asked.engine, None if address else asked.workers, address))
        running = clock.run(shards, nothing, Passage("spawn", makes_nothing, makes_nothing))
        begin = asked.tasks // 10  # everything has started then
        for _, _ in zip(range(begin), running, strict=False):
            pass
        wall, own, other = time.perf_counter(), time.process_time(), spent(process)
        tasks = sum(1 for _ in running)
        wall, own, other = time.perf_counter() - wall, time.process_time() - own, spent(process) - other
    assert len(clock.done) == asked.tasks
    return {
        "tasks a second": round(tasks / wall),
        "CPU microseconds a task": {"this process": round(1e6 * own / tasks), "scheduler": round(1e6 * other / tasks)},
    }


@contextmanager
def cluster(workers: int):
    """A Dask cluster of processes, so that the scheduler's own time can be told apart."""
    folder = Path(tempfile.mkdtemp(prefix="edgewise-cluster-"))
    file, quiet = folder / "scheduler.json", os.environ | {"DASK_LOGGING__DISTRIBUTED": "error"}
    shared = ["--scheduler-file", str(file), "--no-dashboard"]
    start = partial(subprocess.Popen, env=quiet, stderr=subprocess.DEVNULL)
    begin = [sys.executable, "-m"]
    processes = [start([*begin, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *shared])]
    try:
        while not file.exists() or not file.read_text().rstrip().endswith("}"):
            time.sleep(0.1)
        one = [*begin, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *shared]
        processes += [start(one) for _ in range(workers)]
        yield json.loads(file.read_text())["address"], processes[0].pid
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def spent(process: int | None) -> float:
    """CPU seconds of a process so far."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent_by_all() -> float:
    """CPU seconds so far of this process and of those that it started, at any remove."""
    rows = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rsplit(")", 1)[1].split()
            rows[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours, more = set(), {os.getpid()}
    while more:
        ours |= more
        more = {number for number, (parent, _) in rows.items() if parent in ours} - ours
    return sum(rows[number][1] for number in ours if number in rows) / os.sysconf("SC_CLK_TCK")


def compare(asked) -> None:
    """The same job in two processes and in four Dask workers, by turns, each in a process of its own."""
    same = ["--targets", asked.targets, "--steps", asked.steps, "--shard", asked.shard]
    found: dict[str, list[dict]] = {"processes": [], "dask": []}
    for _ in range(asked.rounds):
        for engine, workers in (("processes", 2), ("dask", 4)):
            command = ["run", "--engine", engine, "--workers", workers, *same]
            said = subprocess.run(
                [sys.executable, "-m", "benchmarks.job_engines", *map(str, command)], stdout=subprocess.PIPE, check=True
            ).stdout.decode()
            print(said, end="", flush=True)
            found[engine].append(json.loads(said.splitlines()[-1]))
    middle = {
        engine: {name: statistics.median(one[name] for one in some) for name in ("work", "processor")}
        for engine, some in found.items()
    }
    ratios = {name: round(middle["dask"][name] / middle["processes"][name], 3) for name in ("work", "processor")}
    print(json.dumps({"medians": middle, "dask by processes": ratios}), flush=True)


def question(targets: int):
    """A model and a graph: every node reads ten that are near it, so that a shard sees a small part of the graph."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.nn import GCN

    torch.set_num_threads(1)
    torch.manual_seed(0)
    receiver = torch.arange(targets).repeat_interleave(NEAR)
    sender = (receiver + torch.randint(-200, 200, (len(receiver),))) % targets
    data = Data(x=torch.randn(targets, FEATURES), edge_index=torch.stack([sender, receiver]))
    return GCN(FEATURES, WIDTH, num_layers=3, out_channels=CLASSES).eval(), data


def run(asked) -> dict:
    import edgewise as ew
    from edgewise.jobs import front_door, plan

    plan.MOST_TARGETS, plan.MOST_EDGES = asked.shard, 2**40
    model, data = question(asked.targets)
    clocks: list[Clock] = []
    made = front_door.engine_named

    def timed(*how):
        clocks.append(Clock(made(*how)))
        return clocks[-1]

    front_door.engine_named = timed
    folder = Path(tempfile.mkdtemp(prefix="edgewise-engines-"))
    try:
        begun, workers = time.process_time(), None if asked.engine == "here" else asked.workers
        method = {"method": "integrated_gradients", "steps": asked.steps} if asked.steps else {}
        job = ew.jobs.run(
            model, data, out=folder / "job", level="layer", top=50, engine=asked.engine, workers=workers, **method
        )
        size = sum(path.stat().st_size for path in (folder / "job" / "shards").iterdir())
        own = round(time.process_time() - begun, 1)  # of this process; workers have theirs
        return {**clocks[0].seconds(), "CPU": own, "shards": len(job.shards), "bytes": size}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    sys.modules.setdefault("benchmarks.job_engines", sys.modules["__main__"])
    makes_nothing.__module__ = nothing.__module__ = "benchmarks.job_engines"  # workers import it by that name
    main()
