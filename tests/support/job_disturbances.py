"""Jobs that are disturbed in every way, and must end as if nothing had happened: the same shards, byte by byte, each once.

    python tests/support/job_disturbances.py FOLDER TARGETS TIMES SEED [killed processes workers scheduler disk damage]

does a job of so many targets undisturbed, and then once for each kind of disturbance, so many times each, at random moments:

    killed      kill -9 of the job, resumed, in one process
    processes   the same, with two worker processes
    workers     kill -9 of workers of a real Dask cluster; new ones join
    scheduler   kill -9 of the scheduler; a new cluster, resumed
    disk        a disk that is full for a while (a file system of its own; needs the right to mount), resumed
    damage      finished shards truncated, altered, exchanged or removed, resumed

Children are forked from this process, which has loaded the library. Prints one JSON document.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from dask_processes import DaskProcesses
from edgewise.jobs import plan
from edgewise.jobs.journal import Journal
from kills import ended

if TYPE_CHECKING:
    from collections.abc import Callable

SHARD = 200
"""Targets in a shard: so a job has many of them."""
KINDS = ("killed", "processes", "workers", "scheduler", "disk", "damage")


class Disturbed:
    """One question, its undisturbed answer, and ways to disturb it."""

    def __init__(self, folder: Path, targets: int, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        plan.MOST_TARGETS = SHARD
        torch.manual_seed(seed)
        self.model = GCN(8, 16, num_layers=2, out_channels=4).eval()
        near = torch.arange(targets).repeat(
            5
        )  # each node reads five that are near: so a shard is a small part of the graph
        edges = torch.stack([(near + torch.randint(-20, 20, (len(near),))) % targets, near])
        self.data = Data(x=torch.randn(targets, 8), edge_index=edges)
        begun = time.monotonic()
        assert self.finish(self.start("whole")) == 0, self.log.read_text()
        self.usual, begun = time.monotonic() - begun, time.monotonic()
        assert self.finish(self.start("whole")) == 0, self.log.read_text()
        self.startup = time.monotonic() - begun  # with nothing left to do
        self.expected = shard_bytes(folder / "whole")

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, name: str, **engine: object) -> int:
        """The job in a child of this process: exit code 0, or 3 if a sentence of ours ended it."""
        child = os.fork()
        if child:
            return child
        code = 99
        try:
            out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            ew.jobs.run(self.model, self.data, out=self.folder / name, level="layer", top=20, **engine)  # type: ignore[arg-type]
            code = 0
        except ew.EdgewiseError as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            code = 3
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def finish(self, child: int) -> int | None:
        """Wait for the end of a job."""
        return ended(child, 3600)

    def pause(self, times: int) -> float:
        """A random moment: so many of them fall into one run."""
        return self.draw.random() * (1.3 * self.startup + 4 * self.usual / (times + 1))

    def compare(self, name: str) -> dict[str, object]:
        """The result is that of the undisturbed run: nothing is lost, nothing is there twice."""
        found, job = shard_bytes(self.folder / name), ew.jobs.open(self.folder / name)
        noted = [line["file"] for line in Journal(self.folder / name / "journal.jsonl")]
        assert found == self.expected, sorted(set(found) ^ set(self.expected))
        assert job.status.done == len(self.data.x)
        assert not list((self.folder / name).rglob("*.unfinished"))
        shutil.rmtree(self.folder / name)
        return {"shards": len(found), "noted twice": len(noted) - len(set(noted))}

    # --- disturbances -----------------------------------------------------------------------------------------------------

    def killed(self, times: int, **engine: object) -> dict[str, object]:
        """Kill -9 of the job itself."""
        kills, progress = 0, []
        while kills < times:
            child = self.start("killed", **engine)
            if (code := ended(child, self.pause(times))) is not None:
                assert code == 0, self.log.read_text()
                break
            os.kill(child, signal.SIGKILL)
            assert self.finish(child) == -signal.SIGKILL
            kills += 1
            progress.append(len(list(self.folder.glob("killed/shards/*.parquet"))))
        assert self.finish(self.start("killed", **engine)) == 0, self.log.read_text()
        return {"kills": kills, "shards when killed": progress, **self.compare("killed")}

    def processes(self, times: int) -> dict[str, object]:
        """The same with worker processes."""
        return self.killed(times, engine="processes", workers=2)

    def workers(self, times: int) -> dict[str, object]:
        """Kill -9 of workers of a Dask cluster, one after the other; another one joins each time."""
        cluster, kills = self.cluster("workers-cluster", workers=2, spare=times), 0
        try:
            child, code = self.start("workers", engine="dask", scheduler=cluster.address), None
            while kills < times and (code := ended(child, 0.5 + self.draw.random() * 2 * self.usual / times)) is None:
                cluster.kill_worker(cluster.workers[self.draw.randrange(2)])
                cluster.add_worker()
                kills += 1
            assert (self.finish(child) if code is None else code) == 0, self.log.read_text()
        finally:
            cluster.end()
        return {"kills": kills, **self.compare("workers")}

    def scheduler(self, times: int) -> dict[str, object]:
        """Kill -9 of the scheduler; the job ends with a sentence, and goes on with another cluster."""
        lost, progress = 0, []
        while True:
            cluster = self.cluster(f"scheduler-{lost}", workers=2, spare=0)
            try:
                child = self.start("scheduled", engine="dask", scheduler=cluster.address)
                code = None if lost == times else self._progress("scheduled", child)
                if lost == times or code is not None:
                    code = self.finish(child) if lost == times else code
                    assert code == 0, self.log.read_text()
                    break
                cluster.scheduler.kill()
                assert self.finish(child) == 3, self.log.read_text()
                assert "ClusterError" in self.log.read_text()
                lost += 1
                progress.append(len(list(self.folder.glob("scheduled/shards/*.parquet"))))
            finally:
                cluster.end()
        return {"lost": lost, "shards when lost": progress, **self.compare("scheduled")}

    def _progress(self, name: str, child: int) -> int | None:
        """Wait until a job has finished something more, and a random moment longer; its exit code if it has ended."""
        journal = self.folder / name / "journal.jsonl"
        before = len(list(Journal(journal)))
        while (code := ended(child, 0.2)) is None and len(list(Journal(journal))) == before:
            pass
        return ended(child, self.draw.random()) if code is None else code

    def disk(self, times: int) -> dict[str, object]:
        """A disk without space for a while, in the middle of a job."""
        place = self.folder / "disk"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(place)], check=True)
        try:
            full, progress = 0, []
            while full < times:
                (place / "ballast").unlink(missing_ok=True)
                child = self.start("disk/job")
                if ended(child, self.pause(times)) is not None:
                    break
                fill(place / "ballast")
                code = self.finish(child)
                assert code in (0, 3), self.log.read_text()
                if code == 0:
                    break
                assert "No space left on device" in self.log.read_text(), self.log.read_text()
                full += 1
                progress.append(len(list(place.glob("job/shards/*.parquet"))))
            (place / "ballast").unlink(missing_ok=True)
            assert self.finish(self.start("disk/job")) == 0, self.log.read_text()
            return {"times full": full, "shards when full": progress, **self.compare("disk/job")}
        finally:
            subprocess.run(["umount", str(place)], check=True)

    def damage(self, times: int) -> dict[str, object]:
        """Finished shards that are not any more what was written."""
        assert self.finish(self.start("damaged")) == 0, self.log.read_text()
        shards = sorted(self.folder.glob("damaged/shards/*.parquet"))
        ways: list[Callable[[Path], object]] = [truncated, altered, Path.unlink, self._exchanged]
        for number, path in enumerate(self.draw.sample(shards, min(times, len(shards)))):
            ways[number % len(ways)](path)
        assert self.finish(self.start("damaged")) == 0, self.log.read_text()
        noted = self.compare("damaged")
        return {"damaged": min(times, len(shards)), **noted}

    def _exchanged(self, path: Path) -> None:
        """The bytes of another shard of the same job."""
        other = self.draw.choice([one for one in self.expected if one != path.name])
        path.write_bytes(self.expected[other])

    def cluster(self, name: str, workers: int, spare: int) -> DaskProcesses:
        (self.folder / name).mkdir()
        return DaskProcesses(self.folder / name, workers, spare)


def shard_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def altered(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fill(path: Path) -> None:
    """Take all the space that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**16))
        except OSError:
            pass


def disturb(folder: Path, targets: int, times: int, seed: int, kinds: tuple[str, ...] = KINDS) -> dict[str, object]:
    """Every kind of disturbance on the same question; what happened."""
    job = Disturbed(folder, targets, seed)
    said: dict[str, object] = {"targets": targets, "seconds undisturbed": round(job.usual, 1)}
    print(said, round(job.startup, 1), file=sys.stderr, flush=True)
    for kind in kinds:
        said[kind] = getattr(job, kind)(times)
        print(kind, said[kind], file=sys.stderr, flush=True)
    return said


if __name__ == "__main__":
    torch.set_num_threads(1)

    import edgewise.jobs.dask_worker
    import edgewise.jobs.front_door

    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True)
    count, often, number = map(int, sys.argv[2:5])
    print(json.dumps(disturb(place, count, often, number, tuple(sys.argv[5:]) or KINDS)))
