"""Every kind of run, stopped at random moments, by kill -9, by a limit on files, and by a full disk; then gone on with.

    python tests/support/stopped_runs.py FOLDER STOPS SEED [KIND ...]

After each stop: nothing half has a final name. At the end of each run: the bytes of an undisturbed one, nothing left over.
Children are forked from this process, which has loaded the library. Prints one JSON document.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import edgewise as ew
from command_line import MINE, workshop
from edgewise.datasets import motifs
from edgewise.jobs import plan
from kills import ended
from mutated_files import graph, model
from small_disks import small_disk

INPUTS = ("net.py", "weights.pt", "graph.npz", "graph.pt")
ROOM = "40m"


def command(*line: str) -> Callable[[Path], None]:
    """The command line, in the current folder."""

    def run(folder: Path) -> None:
        from edgewise.cli import main

        sys.argv = ["edgewise", *line]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise ew.FileError(f"exit code {end.code}") from end

    return run


def job(engine: str, **more: Any) -> Callable[[Path], None]:
    return lambda folder: ew.jobs.run(model(), graph(), out=folder / "made", top=4, engine=engine, **more)


def a_store(folder: Path) -> None:
    ew.GraphStore.build(folder / "built", folder / "graph.npz", both_ways=True)


def a_board(folder: Path) -> None:
    ew.leaderboard(folder / "board", data=["tree_cycles"], methods=["gradient"], networks=2, targets=2)


def a_result(folder: Path) -> None:
    found = ew.explain(model(), graph(), range(20), level="layer")
    found.save(folder / "why.npz")
    found.save(folder / "why.parquet")


RUNS: dict[str, Callable[[Path], None]] = {
    "explain --out .npz": command("explain", *MINE, "--method", "gradient,occlusion", "--out", "result.npz", "--quiet"),
    "explain --out .csv": command("explain", *MINE, "--out", "result.csv", "--quiet"),
    "walks --out": command("walks", *MINE, "--out", "walks.csv", "--quiet"),
    "features --out": command("features", *MINE, "--out", "features.npz", "--quiet"),
    "job run": command("job", "run", *MINE, "--out", "job", "--quiet"),
    "ew.jobs.run": job("here"),
    "ew.jobs.run, processes": job("processes", workers=2),
    "store build": a_store,
    "leaderboard": a_board,
    "save": a_result,
}
WHOLE = (
    "built",
    "result.npz",
    "result.gradient.npz",
    "result.occlusion.npz",
    "result.csv",
    "walks.csv",
    "features.npz",
    "why.npz",
    "why.parquet",
)
"""What is there is all there, after a stop as well."""
TIMES = ("begun", "written", "seconds", "times", "times.parquet", "cost.html", "lock", "journal.jsonl")


def contents(folder: Path) -> dict[str, object]:
    """Every file that is not an input, without what a clock says."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or name in INPUTS or any(part in TIMES for part in Path(name).parts):
            continue
        found[name] = path.read_bytes()
        if path.suffix == ".json":
            said = json.loads(path.read_text())
            found[name] = {key: value for key, value in said.items() if key not in TIMES}
    return found


class Stopped:
    """One kind of run, its undisturbed answer, and stops at random moments."""

    def __init__(self, kind: str, folder: Path, draw: random.Random) -> None:
        self.kind, self.folder, self.draw, self.counts = kind, folder, draw, Counter[str]()
        self.log = os.open(os.devnull, os.O_RDONLY)
        self.clean()
        begun = time.monotonic()
        assert self.end(self.start()) == 0, self.said()
        self.usual = time.monotonic() - begun
        self.expected = contents(folder)
        assert self.expected
        self.largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self.clean()

    def said(self) -> str:
        """What the last run has printed: into a pipe, which no limit holds for and no disk is needed for."""
        os.set_blocking(self.log, False)
        try:
            return f"{self.kind}: {os.read(self.log, 2**16).decode()[-3000:]}"
        except BlockingIOError:
            return self.kind

    def clean(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in self.folder.iterdir() if self.folder.exists() else ():  # the root of a file system
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.folder.mkdir(exist_ok=True)
        workshop(self.folder)

    def start(self, limit: int | None = None) -> int:
        """The run in a child of this process: 0, 3 for a sentence of ours, 99 for anything else."""
        os.close(self.log)
        self.log, log = os.pipe()
        child = os.fork()
        if child:
            os.close(log)
            return child
        code = 99
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdout, sys.stderr = (open(handle, "w", closefd=False) for handle in (1, 2))  # noqa: SIM115
            os.chdir(self.folder)
            sys.path.insert(0, "")
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            RUNS[self.kind](self.folder)
            code = 0
        except ew.EdgewiseError as error:
            code = 3
            print(error)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def end(self, child: int) -> int | None:
        return ended(child, 600)

    def stop_once(self) -> bool:
        """A stop in one of the ways, and then what must hold; whether it came too late, and the run ended by itself."""
        way = self.draw.choice(("kill", "kill", "kill", "limit", "full"))
        if way == "kill":
            child = self.start()
            code = ended(child, self.draw.random() * self.usual * 1.05)
            if code is None:
                os.kill(child, signal.SIGKILL)
                code = self.end(child)
            assert code in (0, -signal.SIGKILL), (code, self.said())
        elif way == "limit":
            code = self.end(self.start(int(self.largest * self.draw.random() ** 2)))
            assert code in (0, 3), (code, self.said())
        else:
            code = self.full()
        self.counts[way] += 1
        self.counts["stopped"] += code != 0
        self.refuse_half()
        if (
            code and self.kind == "store build" and (self.folder / "built").exists()
        ):  # the kill came after the last step
            assert self.end(self.start()) == 3, self.said()
            return True
        return code == 0

    def refuse_half(self) -> None:
        """What has a final name is what the undisturbed run has there."""
        for name in WHOLE:
            path = self.folder / name
            if path.exists():
                files = {
                    str(one.relative_to(self.folder)): one
                    for one in ([path] if path.is_file() else path.rglob("*"))
                    if one.is_file()
                }
                known = {
                    one: content for one, content in self.expected.items() if one == name or one.startswith(f"{name}/")
                }
                assert set(files) == set(known), (name, set(files) ^ set(known))
                differing = [
                    one for one, at in files.items() if isinstance(known[one], bytes) and at.read_bytes() != known[one]
                ]
                assert not differing, differing

    def full(self) -> int | None:
        """A disk that has hardly any room, from the beginning or after a moment."""
        ballast, child = self.folder / "ballast", None
        if self.draw.random() < 0.5:
            child = self.start()
            ended(child, self.draw.random() * self.usual)
        try:
            with ballast.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
        except OSError:
            pass
        os.truncate(ballast, max(0, ballast.stat().st_size - self.draw.randrange(0, 2 * self.largest)))
        try:
            code = self.end(self.start() if child is None else child)
        except ChildProcessError:  # it had ended before
            code = 0
        ballast.unlink()
        assert code in (0, 3), (code, self.said())
        return code

    def finish(self, *, ended: bool) -> None:
        """The run again, undisturbed, if it has not ended: the same bytes, and nothing left over."""
        if not ended:
            assert self.end(self.start()) == 0, self.said()
        found = contents(self.folder)
        assert sorted(found) == sorted(self.expected), set(found) ^ set(self.expected)
        differing = [name for name in found if found[name] != self.expected[name]]
        assert not differing, differing
        self.counts["completed"] += 1
        self.clean()


def try_stops(folder: Path, stops: int, seed: int, kinds: list[str], *, mounted: bool) -> dict[str, object]:
    """The same number of stops of each kind of run, one to four before each end."""
    draw, told = random.Random(seed), {}
    for place, kind in enumerate(kinds):
        disk = folder / f"run{place}"
        with small_disk(disk, ROOM) if mounted else nullcontext():
            run = Stopped(kind, disk, draw)
            while run.counts["kill"] + run.counts["limit"] + run.counts["full"] < -(-stops // len(kinds)):
                stops_now = draw.randrange(1, 5)
                run.finish(ended=any(run.stop_once() for _ in range(stops_now)))
            told[kind] = {"usual seconds": round(run.usual, 2), **run.counts}
    return {
        "stops": sum(one[way] for one in told.values() for way in ("kill", "limit", "full") if way in one),
        "runs": told,
    }


def warm(folder: Path) -> None:
    """Every kind once in this process: what is imported and compiled the first time is there before the forks."""
    folder.mkdir()
    workshop(folder)
    os.chdir(folder)
    sys.path.insert(0, "")
    for run in RUNS.values():
        run(folder)
    os.chdir(folder.parent)
    shutil.rmtree(folder)


if __name__ == "__main__":
    place, often, number, kinds = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    plan.MOST_TARGETS = 5
    motifs.NODE_EPOCHS = 20
    place.mkdir(parents=True, exist_ok=True)
    warm(place / "warm")
    print(json.dumps(try_stops(place, often, number, kinds or list(RUNS), mounted=True), indent=1))
