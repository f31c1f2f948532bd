"""`engine="dask"`: a real cluster on loopback gives the same bytes as one process, whoever is killed."""

import os
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import MINE, call, ring, workshop
from dask_processes import dask_processes
from edgewise.jobs import plan
from edgewise.jobs.journal import Journal

pytest.importorskip("pyarrow")
pytest.importorskip("distributed")

SLOW_MODEL = """
import os
import time
from contextlib import suppress
from pathlib import Path

import net


class Slow(net.Net):
    def forward(self, x, edge_index):
        marks = Path(os.environ["MARKS"])
        (marks / f"worker-{os.getpid()}").touch()
        if (marks / "wait").exists():
            time.sleep(0.2)
        if (marks / "die").exists() and os.getpid() != int((marks / "client").read_text()):
            with suppress(FileNotFoundError):  # of two workers that see the mark only one can take it away
                os.rename(marks / "die", marks / "dead")
                os._exit(9)
        return super().forward(x, edge_index)


def call(model, data):
    return model(data.x, data.edge_index)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a user's files, which the cluster's workers import from."""
    folder = tmp_path_factory.mktemp("place")
    workshop(folder)
    (folder / "slow.py").write_text(SLOW_MODEL)
    (folder / "marks").mkdir()
    (folder / "marks" / "client").write_text(str(os.getpid()))
    os.environ["MARKS"] = str(folder / "marks")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    del os.environ["MARKS"]


@pytest.fixture(scope="module")
def cluster(place, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # what the workers need is loaded before they are forked
        patch.chdir(place)
        patch.setattr(plan, "MOST_TARGETS", 2)
        ew.jobs.run(model(), ring(), out="loaded")
    with dask_processes(tmp_path_factory.mktemp("cluster"), spare=1) as found:
        yield found


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    """The current folder is the user's, and shards are small."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(plan, "MOST_TARGETS", 2)
    for mark in Path("marks").glob("[!c]*"):
        mark.unlink()


def model(kind="slow:Slow"):
    module, name = kind.split(":")
    torch.manual_seed(1)
    return getattr(import_module(module), name)(3).eval()


def shard_bytes(folder):
    return {path.name: path.read_bytes() for path in Path(folder, "shards").iterdir()}


def lines(folder):
    """The files in the journal: each shard once, if nothing was done twice."""
    return sorted(line["file"] for line in Journal(Path(folder, "journal.jsonl")))


def same_as_undisturbed(folder):
    if not Path("whole").exists():
        ew.jobs.run(model(), ring(), out="whole")
    return shard_bytes(folder) == shard_bytes("whole") and lines(folder) == sorted(shard_bytes("whole"))


def test_a_live_model_goes_to_every_worker_and_shards_have_the_same_bytes(cluster):
    import slow

    job = ew.jobs.run(model(), ring(), out="live", engine="dask", scheduler=cluster.address)
    assert same_as_undisturbed("live")
    assert len(job.shards) == 6
    assert job.status.done == 12
    workers = {line["worker"] for line in Journal(Path("live/journal.jsonl"))}
    assert all(one.startswith("tcp://127.0.0.1") for one in workers)
    assert {path.name for path in Path("live").iterdir()} == {
        "manifest.json", "journal.jsonl", "index.npy", "lock", "shards",
    }  # fmt: skip
    asked = {"method": "shapley", "level": "layer", "forward": slow.call, "samples": 3, "seed": 4}
    ew.jobs.run(model(), ring(), out="here", **asked)
    ew.jobs.run(model(), ring(), out="there", engine="dask", scheduler=cluster.address, **asked)
    assert shard_bytes("there") == shard_bytes("here")


def test_a_graph_on_disk_goes_to_the_workers_by_its_path(cluster):
    store = ew.GraphStore.build("graph.store", ring(20))
    asked = {"index": range(12), "level": "layer", "top": 5}
    ew.jobs.run(model(), store, out="store-here", **asked)
    ew.jobs.run(model(), store, out="store-there", engine="dask", scheduler=cluster.address, **asked)
    assert shard_bytes("store-there") == shard_bytes("store-here")
    assert len(shard_bytes("store-here")) > 1


def test_the_command_line_sends_paths_alone(cluster):
    asked = ("job", "run", *MINE, "--method", "occlusion", "--quiet", "--out")
    call(*asked, "one")
    call(*asked, "many", "--engine", "dask", "--scheduler", cluster.address)
    assert shard_bytes("many") == shard_bytes("one")
    assert lines("many") == sorted(shard_bytes("one"))


def test_what_has_no_import_path_is_refused(cluster):
    there = {"out": "refused", "engine": "dask", "scheduler": cluster.address}

    class Local(torch.nn.Linear):
        def forward(self, x, edge_index):
            return super().forward(x)

    with pytest.raises(ew.ClusterError, match=r"import path.*lambda"):
        ew.jobs.run(model(), ring(), forward=lambda model, data: model(data.x, data.edge_index), **there)
    named = model("net:Net")
    named.act = lambda x: x
    with pytest.raises(ew.ClusterError, match="no lambda, no class inside a function"):
        ew.jobs.run(named, ring(), **there)
    inside = model("net:Net")
    inside.more = Local(3, 3)
    with pytest.raises(ew.ClusterError, match="Local"):
        ew.jobs.run(inside, ring(), **there)
    assert not Path("refused").exists()
    script = model("net:Net")
    type(script).__module__ = "__main__"
    sys.modules["__main__"].Net = type(script)
    try:
        with pytest.raises(ew.ClusterError, match="in the script that runs"):
            ew.jobs.run(script, ring(), **{**there, "out": "scripted"})
    finally:
        type(script).__module__ = "net"
        del sys.modules["__main__"].Net


def test_an_engine_is_told_what_belongs_to_it():
    for asked, said in [
        ({"scheduler": "tcp://127.0.0.1:1"}, "scheduler='tcp://127.0.0.1:1' needs engine='dask'"),
        ({"engine": "dask", "scheduler": "tcp://127.0.0.1:1", "workers": 2}, "has its own workers"),
    ]:
        with pytest.raises(ew.SettingError, match=said):
            ew.jobs.run(model(), ring(), out="none", **asked)


def test_without_a_scheduler_or_without_dask_a_sentence_says_so(monkeypatch):
    monkeypatch.setattr("edgewise.jobs.dask_cluster._ANSWER", 0.5)
    with pytest.raises(ew.ClusterError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        ew.jobs.run(model(), ring(), out="nowhere", engine="dask", scheduler="tcp://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ew.MissingExtraError, match=r"edgewise\[dask\]"):
        ew.jobs.run(model(), ring(), out="nowhere", engine="dask", scheduler="tcp://127.0.0.1:9")


def test_an_error_in_a_worker_is_an_error_here_and_a_changed_model_is_refused(cluster, monkeypatch):
    there = {"engine": "dask", "scheduler": cluster.address}
    monkeypatch.setattr("edgewise.jobs.dask_cluster.versions", lambda: {"torch": "1.0"})
    with pytest.raises(ew.ClusterError, match=r"has other versions: torch is .*, not 1\.0") as caught:
        ew.jobs.run(model(), ring(), out="older", **there)
    assert "In a worker process" in caught.value.__notes__[0]


def test_the_shard_of_a_killed_worker_goes_to_another_one(cluster):
    """The worker that is killed by the model itself is gone for good; a new one joins and gets the model."""
    Path("marks/die").touch()
    job = ew.jobs.run(model(), ring(), out="killed", engine="dask", scheduler=cluster.address)
    assert not Path("marks/die").exists()
    assert job.status.done == 12
    assert same_as_undisturbed("killed")
    assert len(cluster.dead_workers()) == 1
    cluster.add_worker()
    cluster.kill_worker(cluster.workers[0])
    ew.jobs.run(model(), ring(), out="joined", engine="dask", scheduler=cluster.address)
    assert same_as_undisturbed("joined")


def test_a_lost_scheduler_is_a_resume(cluster):
    """The last test of this cluster."""
    Path("marks/wait").touch()

    def kill():
        until = time.monotonic() + 30
        while not lines("lost") and time.monotonic() < until:
            time.sleep(0.01)
        cluster.scheduler.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ew.ClusterError, match=r"scheduler.* is lost.*the same call goes on"):
        ew.jobs.run(model(), ring(), out="lost", engine="dask", scheduler=cluster.address)
    killer.join()
    Path("marks/wait").unlink()
    assert 0 < ew.jobs.open("lost").status.done < 12
    assert ew.jobs.run(model(), ring(), out="lost").status.done == 12
    assert same_as_undisturbed("lost")


@pytest.mark.slow
def test_a_cluster_of_this_machine_is_made_and_ended(cluster):
    job = ew.jobs.run(model(), ring(), out="own", engine="dask", workers=2)
    assert job.status.done == 12
    assert same_as_undisturbed("own")
