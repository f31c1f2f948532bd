"""A disk that is full, by quota or by size, leaves nothing half under a final name, and the next run goes on."""

import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise.files import write_whole
from edgewise.folder_lock import FolderLock
from edgewise.jobs.journal import Journal
from small_disks import in_child, left_over, small_disk

pytest.importorskip("pyarrow")


@pytest.fixture
def question():
    torch.manual_seed(0)
    edges = torch.randint(0, 400, (2, 900))
    return GCN(3, 4, 2, 3).eval(), Data(x=torch.randn(400, 3), edge_index=edges)


def bytes_of(job):
    return {path.name: path.read_bytes() for path in (job / "shards").iterdir()}


@pytest.mark.parametrize("limit", [60, 700, 1600, 3100, 9000])
def test_a_job_that_meets_a_limit_anywhere_goes_on_to_the_same_bytes(question, tmp_path, limit, monkeypatch):
    monkeypatch.setattr("edgewise.jobs.plan.MOST_TARGETS", 40)
    ew.jobs.run(*question, out=tmp_path / "whole", top=3)
    code, said = in_child(lambda: ew.jobs.run(*question, out=tmp_path / "job", top=3), limit)
    assert code == 3, said
    assert "File too large (the disk at" in said
    assert left_over(tmp_path) == []
    ew.jobs.run(*question, out=tmp_path / "job", top=3)
    assert bytes_of(tmp_path / "job") == bytes_of(tmp_path / "whole")
    assert ew.jobs.open(tmp_path / "job").status.done == 400


@pytest.mark.parametrize(
    "harm", [lambda text: text[: len(text) // 2], lambda text: text[:-8] + bytes(8), lambda text: b""]
)
def test_an_index_that_is_not_whole_is_written_again(question, tmp_path, harm):
    ew.jobs.run(*question, out=tmp_path / "job", top=3)
    path = tmp_path / "job" / "index.npy"
    whole = path.read_bytes()
    path.write_bytes(harm(whole))
    with pytest.raises(ew.FileError, match=r"job/? cannot be read as a job: .*Run the job again"):
        ew.jobs.open(tmp_path / "job")
    ew.jobs.run(*question, out=tmp_path / "job", top=3)
    assert path.read_bytes() == whole


def test_an_array_that_does_not_fit_is_not_left_half_under_its_name(tmp_path):
    path = tmp_path / "index.npy"
    numbers = np.arange(10**5)
    write_whole(path, lambda file: np.save(file, numbers[:9]))
    before = path.read_bytes()
    code, said = in_child(lambda: write_whole(path, lambda file: np.save(file, numbers)), 4096)
    assert code == 3, said
    assert "index.npy could not be written: File too large" in said
    assert path.read_bytes() == before
    assert left_over(tmp_path) == []


def test_a_line_that_was_torn_off_anywhere_is_written_again_to_the_same_bytes(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(file="a", digest="0")
    first = journal.path.stat().st_size
    journal.add(file="b", values=list(range(40_000)))
    whole = journal.path.read_bytes()
    for end in (0, 1, first - 1, first, first + 1, first + 2**16, first + 2**17, len(whole) - 1):
        journal.path.write_bytes(whole[:end])
        assert [line["file"] for line in journal] == ["a"][: end >= first]
        if end < first:
            journal.add(file="a", digest="0")
        journal.add(file="b", values=list(range(40_000)))
        assert journal.path.read_bytes() == whole


@pytest.mark.parametrize("limit", [0, 20, 60])
def test_a_line_that_does_not_fit_leaves_the_journal_as_it_was(tmp_path, limit):
    journal = Journal(tmp_path / "journal.jsonl")
    if limit == 60:
        journal.add(file="a", digest="0")
    before = journal.path.read_bytes() if limit == 60 else b""
    code, said = in_child(lambda: journal.add(file="b", digest="1" * 50), limit)
    assert code == 3, said
    assert "What it said before is kept." in said
    assert journal.path.read_bytes() == before


def test_files_get_the_permissions_of_the_process_and_its_mask_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the mask of the whole process was set"))
    write_whole(tmp_path / "a", lambda file: file.write(b"a"))
    (tmp_path / "b").write_bytes(b"b")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


# Stores ###############################################################################################################


def large_graph(nodes=20_000):
    edges = torch.randint(0, nodes, (2, 5 * nodes), generator=torch.Generator().manual_seed(0))
    return Data(x=torch.ones(nodes, 4), edge_index=edges)


@pytest.mark.parametrize("limit", [0, 100, 50_000, 400_000, 900_000, 1_700_000])
def test_a_store_that_meets_a_limit_says_so_and_leaves_nothing(tmp_path, limit):
    data = large_graph()
    code, said = in_child(lambda: ew.GraphStore.build(tmp_path / "graph.store", data), limit)
    if code != 0:
        assert code == 3, said
        assert "could not be written: File too large (the disk at" in said
        assert list(tmp_path.iterdir()) == []
    else:
        assert limit == 1_700_000
    if code:
        assert ew.GraphStore.build(tmp_path / "graph.store", data).num_edges == 100_000


@pytest.mark.parametrize("size", ["300k", "1500k", "2500k", "3300k"])
def test_a_store_on_a_disk_that_is_too_small_says_so_and_leaves_nothing(tmp_path, size):
    data = large_graph()
    with small_disk(tmp_path / "disk", size) as disk:
        code, said = in_child(lambda: ew.GraphStore.build(disk / "graph.store", data))
        assert code == 3, (code, said)  # a hole in a mapped file would have ended the process with a signal
        assert f"graph.store could not be written: No space left on device (the disk at {disk} has" in said
        assert list(disk.iterdir()) == []
        small = ew.GraphStore.build(disk / "graph.store", large_graph(300))
        assert small.num_nodes == 300


def test_a_job_on_a_disk_that_is_full_goes_on_when_there_is_room(question, tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.jobs.plan.MOST_TARGETS", 40)
    ew.jobs.run(*question, out=tmp_path / "whole", top=3)
    with small_disk(tmp_path / "disk", "100k") as disk:
        (disk / "ballast").write_bytes(bytes(40 * 1024))
        code, said = in_child(lambda: ew.jobs.run(*question, out=disk / "job", top=3))
        assert code == 3, said
        assert "No space left on device" in said
        assert left_over(disk) == []
        (disk / "ballast").unlink()
        monkeypatch.setattr("edgewise.jobs.plan.MOST_TARGETS", 40)
        code, said = in_child(lambda: ew.jobs.run(*question, out=disk / "job", top=3))
        found = bytes_of(disk / "job")
    whole = bytes_of(tmp_path / "whole")
    assert all(whole[name] == content for name, content in found.items())


# Who writes ###########################################################################################################


def test_two_builds_of_one_store_do_not_meet_and_the_second_is_told(tmp_path):
    lock = FolderLock.take(tmp_path / ".graph.store.unfinished")
    with pytest.raises(ew.FileError, match=rf"unfinished is being worked on by process {os.getpid()} on "):
        ew.GraphStore.build(tmp_path / "graph.store", large_graph(30))
    lock.release()
    assert ew.GraphStore.build(tmp_path / "graph.store", large_graph(30)).num_nodes == 30
    assert [path.name for path in tmp_path.iterdir()] == ["graph.store"]


def test_what_a_killed_build_has_left_is_removed_by_the_next_one(tmp_path, monkeypatch):
    data = large_graph(30)

    def dying():
        monkeypatch.setattr("edgewise.store.store_builder.order_edges", lambda *_: os._exit(9))
        ew.GraphStore.build(tmp_path / "graph.store", data)

    assert in_child(dying)[0] == 9
    assert [path.name for path in tmp_path.iterdir()] == [".graph.store.unfinished"]
    assert list((tmp_path / ".graph.store.unfinished" / "whole").rglob("*.npy"))
    assert ew.GraphStore.build(tmp_path / "graph.store", data).num_nodes == 30
    assert [path.name for path in tmp_path.iterdir()] == ["graph.store"]


def test_a_kill_after_the_last_step_leaves_nothing_that_the_next_build_does_not_remove(tmp_path, monkeypatch):
    data = large_graph(30)

    def dying():
        monkeypatch.setattr("edgewise.store.store_builder.sync_folder", lambda at: at == tmp_path and os._exit(9))
        ew.GraphStore.build(tmp_path / "graph.store", data)

    assert in_child(dying)[0] == 9
    assert ew.GraphStore(tmp_path / "graph.store").num_nodes == 30
    with pytest.raises(ew.FileError, match="is there already"):
        ew.GraphStore.build(tmp_path / "graph.store", data)
    assert [path.name for path in tmp_path.iterdir()] == ["graph.store"]


@pytest.mark.parametrize(
    ("said", "free"), [("dead", True), ("alive", False), ("elsewhere", False), ("started later", True)]
)
def test_without_locks_of_the_system_the_file_says_who_works(tmp_path, monkeypatch, said, free):

    monkeypatch.setattr("edgewise.folder_lock.lock", lambda _: None)
    ours = {"host": socket.gethostname(), "process": os.getppid(), "since": "today"}
    started = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    ours["started"] = started if said == "alive" else "1"
    ours |= {"host": "elsewhere"} if said == "elsewhere" else {}
    ours |= {"process": 2**22 + 1} if said == "dead" else {}
    (tmp_path / "lock").write_text(json.dumps(ours))
    if free:
        FolderLock.take(tmp_path).release()
    else:
        with pytest.raises(ew.FileError, match="is being worked on by process"):
            FolderLock.take(tmp_path)
