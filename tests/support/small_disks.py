"""Disks that are full: a limit on the size of files in a child process (works everywhere), and a small file system."""

import json
import os
import resource
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import edgewise as ew


def in_child(work: Callable[[], object], limit: int | None = None) -> tuple[int, str]:
    """Do some work in a fork, whose files may have so many bytes: (0, "") or (3, a sentence of ours) or (99, a traceback).

    A child that a signal ended has a negative code.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of the test runner stay behind
        child = os.fork()
    if child == 0:
        code, said = 0, ""
        try:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            work()
        except ew.EdgewiseError as error:
            code, said = 3, f"{type(error).__name__}: {error}"
        except BaseException:
            code, said = 99, traceback.format_exc()
        os.write(write, json.dumps(said[:4000]).encode())
        sys.stdout.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(told) if told else ""


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own; the test is skipped where none can be mounted."""
    place.mkdir(parents=True)
    asked = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def left_over(folder: Path) -> list[str]:
    """Names of files and folders that are not finished."""
    return sorted(path.name for path in folder.rglob("*") if path.name.endswith(".unfinished"))


def peak_above(work: Callable[[], object]) -> tuple[int, int, str]:
    """Do some work in a fork: its code and sentence as in `in_child`, and how many bytes its memory grew at most."""
    read, write = os.pipe()

    def measured() -> None:
        Path("/proc/self/clear_refs").write_text("5")
        before = memory_of("VmRSS")
        try:
            work()
        finally:
            os.write(write, str(memory_of("VmHWM") - before).encode())

    code, said = in_child(measured)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return code, int(pipe.read() or 0), said


def memory_of(field: str) -> int:
    """A number of bytes that the system knows about this process: `VmRSS`, or `VmHWM`, the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
