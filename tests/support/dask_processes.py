"""A real Dask cluster: a scheduler and workers, each a process of its own on loopback, that tests may kill.

Workers are forked from the process of the tests, which has loaded the library already, before it talks to any cluster; those
that are to join later wait until they may.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from places import ROOT

_LOADED = ("distributed.cli.dask_worker", "edgewise.jobs.dask_worker", "edgewise.jobs.front_door")
"""What the workers need, loaded before they are forked."""
_QUIET = {"DASK_LOGGING__DISTRIBUTED": "error", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}


class DaskProcesses:
    """The processes of a cluster: some workers, and some that wait."""

    def __init__(self, home: Path, workers: int, spare: int) -> None:
        for module in _LOADED:
            import_module(module)
        self.home, self.file = home, home / "scheduler.json"
        self.joined = 0
        self.workers = [self._fork(number) for number in range(workers + spare)]
        self.scheduler = self._start_scheduler()
        until, said = time.monotonic() + 60, ""
        while not said.rstrip().endswith("}"):  # it is there a moment before it is written
            assert time.monotonic() < until
            assert self.scheduler.poll() is None
            time.sleep(0.02)
            said = self.file.read_text() if self.file.exists() else ""
        self.address = json.loads(said)["address"]
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Let one more worker join."""
        (self.home / f"join-{self.joined}").touch()
        self.joined += 1

    def kill_worker(self, process: int) -> None:
        """End a worker as the system does when memory runs out."""
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self.workers.remove(process)

    def dead_workers(self) -> list[int]:
        """Those that ended by themselves; the first may need a moment."""
        found: list[int] = []
        until = time.monotonic() + 10
        while not found and time.monotonic() < until:
            found = [process for process in self.workers if os.waitpid(process, os.WNOHANG)[0]]
            time.sleep(0.02)
        self.workers = [process for process in self.workers if process not in found]
        return found

    def _start_scheduler(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
        environment = os.environ | _QUIET | {"PYTHONPATH": str(ROOT / "src")}
        with (self.home / "scheduler.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--scheduler-file", str(self.file), "--no-dashboard"],
                env=environment, cwd=self.home, stdout=log, stderr=log,
            )  # fmt: skip

    def _fork(self, number: int) -> int:
        """A worker with one thread and no guard that starts it again; it waits until it may join."""
        child = os.fork()
        if child:
            return child
        try:
            out = os.open(self.home / f"worker-{number}.log", os.O_WRONLY | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(self.home)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            parent = os.getppid()
            while not (self.home / f"join-{number}").exists() and os.getppid() == parent:
                time.sleep(0.05)
            from distributed.cli.dask_worker import main

            options = [
                "--nthreads",
                "1",
                "--no-nanny",
                "--no-dashboard",
                "--host",
                "127.0.0.1",
                "--death-timeout",
                "60",
            ]
            main(["--scheduler-file", str(self.file), *options], standalone_mode=False)
        finally:
            os._exit(0)

    def end(self) -> None:
        """Kill what is left."""
        for process in self.workers:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        self.scheduler.kill()
        self.scheduler.wait()


@contextmanager
def dask_processes(home: Path, *, workers: int = 2, spare: int = 0) -> Iterator[DaskProcesses]:
    """A cluster; at the end none of its processes is left."""
    cluster = DaskProcesses(home, workers, spare)
    try:
        yield cluster
    finally:
        cluster.end()
