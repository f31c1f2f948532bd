"""`engine="processes"`: the same bytes as in one process, whoever is killed."""

import os
import pickle
import signal
import time
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import MINE, call, network, ring, running, workshop
from edgewise.jobs import plan
from edgewise.jobs.journal import Journal
from edgewise.jobs.processes import Processes
from kills import ended

pytest.importorskip("pyarrow")

FINISHED = {"manifest.json", "journal.jsonl", "index.npy", "lock", "shards"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current folder is a user's, and shards are small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "MOST_TARGETS", 2)


def shard_bytes(folder):
    return {path.name: path.read_bytes() for path in Path(folder, "shards").iterdir()}


def lines(folder):
    """The files in the journal: each shard once, if nothing was done twice."""
    return sorted(line["file"] for line in Journal(Path(folder, "journal.jsonl")))


def in_a_worker(monkeypatch, act):
    """Call `act(targets)` in the worker before every piece of work; forked workers have it too."""
    from edgewise.jobs import live_question

    explain, parent = live_question.explain, os.getpid()

    def acting(model, data, index, **options):
        assert os.getpid() != parent
        act(index)
        return explain(model, data, index, **options)

    monkeypatch.setattr(live_question, "explain", acting)


@pytest.mark.parametrize("method", ["gradient", "shapley"])
def test_shards_have_the_same_bytes_as_in_one_process(method):
    model, data, state = network(), ring(), torch.get_rng_state()
    asked = {
        "method": method,
        "level": "layer",
        "seed": 3,
        "forward": lambda model, data: model(data.x, data.edge_index),
    }
    ew.jobs.run(model, data, out="one", **asked)
    job = ew.jobs.run(model, data, out="many", engine="processes", workers=3, **asked)
    assert shard_bytes("many") == shard_bytes("one")
    assert len(job.shards) == 6
    assert lines("many") == sorted(shard_bytes("many"))
    assert {path.name for path in Path("many").iterdir()} == FINISHED
    assert torch.equal(torch.get_rng_state(), state)


def test_the_shard_of_a_killed_worker_goes_to_another_one(monkeypatch):
    model, data = network(), ring()
    ew.jobs.run(model, data, out="one")

    def die_once(index):
        if 4 in index and not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    in_a_worker(monkeypatch, die_once)
    job = ew.jobs.run(model, data, out="many", engine="processes", workers=2)
    assert Path("died").exists()
    assert job.status.done == 12
    assert shard_bytes("many") == shard_bytes("one")
    assert lines("many") == sorted(shard_bytes("one"))


def test_a_shard_that_ends_every_worker_ends_the_job_and_what_is_finished_is_kept(monkeypatch):
    def die(index):
        if 10 in index:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        in_a_worker(patch, die)
        with pytest.raises(
            ew.ModelError, match=r"shard-00005 \(positions 10 to 11\) ended 3 worker processes.* signal 9"
        ):
            ew.jobs.run(network(), ring(), out="job", engine="processes", workers=2)
    assert ew.jobs.open("job").status.done == 10
    assert ew.jobs.run(network(), ring(), out="job").status.done == 12  # the other engine goes on


def test_an_error_in_a_worker_is_an_error_here(monkeypatch):
    def refuse(index):
        raise ew.SettingError(f"not {index}")

    in_a_worker(monkeypatch, refuse)
    with pytest.raises(ew.SettingError, match="not ") as caught:
        ew.jobs.run(network(), ring(), out="job", engine="processes", workers=2)
    assert "In a worker process" in caught.value.__notes__[0]


def test_a_target_fails_alone_in_a_worker_and_is_tried_again(monkeypatch):
    def fail(index):
        if 7 in index:
            raise ew.ModelError("The model gave NaN.")

    with monkeypatch.context() as patch:
        in_a_worker(patch, fail)
        job = ew.jobs.run(network(), ring(), out="job", engine="processes", workers=2)
    assert job.failed == {7: "ModelError: The model gave NaN."}
    assert ew.jobs.run(network(), ring(), out="job", engine="processes", workers=2, retry=True).failed == {}


def test_workers_are_counted_and_belong_to_processes():
    with pytest.raises(ew.SettingError, match="workers=2 needs engine='processes'"):
        ew.jobs.run(network(), ring(), out="job", workers=2)
    with pytest.raises(ew.SettingError, match="`workers` must be an integer ≥ 1"):
        ew.jobs.run(network(), ring(), out="job", engine="processes", workers=0)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_job_leaves_no_worker_and_goes_on_to_the_same_bytes(monkeypatch, kill):
    model, data = network(), ring()
    ew.jobs.run(model, data, out="one")

    def linger(index):
        if index[0] >= 4:
            Path(f"worker-{os.getpid()}").touch()
            time.sleep(60)

    child = os.fork()
    if not child:
        code = 1
        try:
            from edgewise.jobs.signals import terminable

            signal.signal(signal.SIGINT, signal.default_int_handler)
            in_a_worker(monkeypatch, linger)
            with terminable():
                ew.jobs.run(model, data, out="many", engine="processes", workers=2)
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    until = time.monotonic() + 20
    while len(list(Path().glob("worker-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(ew.FileError, match=f"being worked on by process {child} on .*, since "):
        ew.jobs.run(model, data, out="many")
    os.kill(child, kill)
    assert ended(child, 10) == (-kill if kill == signal.SIGKILL else 130)
    job = ew.jobs.run(model, data, out="many", engine="processes", workers=2)  # at once: the lock is free
    assert job.status.done == 12
    assert shard_bytes("many") == shard_bytes("one")
    assert lines("many") == sorted(shard_bytes("one"))
    workers = [int(path.name.split("-")[1]) for path in Path().glob("worker-*")]
    assert len(workers) == 2
    until = time.monotonic() + 5
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, workers))


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


ASKED = ("job", "run", *MINE, "--method", "occlusion", "--level", "layer", "--quiet", "--out")


def test_a_job_of_the_command_line_is_made_again_from_paths(tmp_path, monkeypatch):
    workshop(tmp_path)
    seen = []

    def passing(self, shards, task, passage):
        seen.append(passage.way)
        again = pickle.loads(pickle.dumps(passage.make))  # noqa: S301 - as a worker gets it
        assert b"first.lin_rel" not in pickle.dumps(passage.make)  # no weights
        made = again()
        assert made.work.explain is not task.work.explain
        yield from ((shard, made(shard)) for shard in shards)

    call(*ASKED, "one")
    with monkeypatch.context() as patch:
        patch.setattr(Processes, "run", passing)
        call(*ASKED, "many", "--engine", "processes", "--workers", "2")
    assert seen == ["spawn"]
    assert shard_bytes("many") == shard_bytes("one")

    def changing(self, shards, task, passage):
        torch.save(
            {name: value + 1 for name, value in torch.load("weights.pt", weights_only=True).items()}, "weights.pt"
        )
        return passage.make()

    monkeypatch.setattr(Processes, "run", changing)
    said = call(*ASKED, "new", "--engine", "processes", code=1).stderr
    assert "The files of the job have changed while it runs (weights)" in said


@pytest.mark.slow
def test_the_command_line_with_real_workers_stopped_and_resumed(tmp_path, monkeypatch):
    workshop(tmp_path)
    call(*ASKED, "small")
    call(*ASKED, "shared", "--engine", "processes", "--workers", "2")
    assert shard_bytes("shared") == shard_bytes("small")
    monkeypatch.undo()  # the command in a process of its own has shards of the usual size
    monkeypatch.chdir(tmp_path)
    call(*ASKED, "one")
    many = ("many", "--engine", "processes", "--workers", "2")
    with running(*ASKED, *many, cwd=tmp_path) as process:
        while not Path("many/manifest.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # workers are starting
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C in a terminal goes to all of them
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Stopped." in said
        assert "Traceback" not in said
    call("job", "resume", *many, "--trust-folder")
    assert shard_bytes("many") == shard_bytes("one")
    assert lines("many") == sorted(shard_bytes("one"))
