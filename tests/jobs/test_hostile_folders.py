"""No path from a file is trusted: folders of strangers are read, gone on with or refused; nothing outside is touched."""

import json
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from command_line import MINE, call, workshop
from edgewise.inner_paths import inside, read_json
from edgewise.jobs.job_folder import FORMAT
from edgewise.store import manifest
from edgewise.store.array_files import digest_of_array

pytest.importorskip("pyarrow")

NAMES = (
    *(
        "../secret",
        "/etc/passwd",
        "shards/../../secret",
        "..",
        ".",
        "",
        "a//b",
        "a/./b",
        "C:secret",
        "C:\\secret",
        "..\\secret",
    ),
    *("a\0b", "a\nb", "x" * 300, "a/" * 600 + "b", "\ud800", None, 3, ["a"], b"a"),
)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
def test_a_name_that_leads_out_of_its_folder_is_refused(tmp_path, name):
    with pytest.raises(ew.FileError, match="not a plain name inside that folder"):
        inside(tmp_path, name)


def a_link(path, target):
    path.symlink_to(target)


def a_second_name(path, target):
    os.link(target, path)


def a_pipe(path, target):
    os.mkfifo(path)


def a_socket(path, target):
    here = Path.cwd()
    os.chdir(path.parent)  # their names are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def a_dead_link(path, target):
    path.symlink_to(path.parent / "nowhere")


KINDS = pytest.mark.parametrize("make", [a_link, a_second_name, a_pipe, a_socket, a_dead_link])


@KINDS
def test_what_is_not_a_file_of_its_own_is_refused(tmp_path, make):
    (tmp_path / "secret").write_text("secret")
    make(tmp_path / "name", tmp_path / "secret")
    with pytest.raises(ew.FileError, match="could lead out of its folder"):
        inside(tmp_path, "name")
    (tmp_path / "inner").symlink_to(tmp_path)
    with pytest.raises(ew.FileError, match="is a link"):
        inside(tmp_path, "inner/secret")
    assert (tmp_path / "secret").read_text() == "secret"


# Jobs #################################################################################################################


@pytest.fixture
def question():
    torch.manual_seed(0)
    return GCN(3, 4, 2, 3).eval(), Data(x=torch.randn(30, 3), edge_index=torch.randint(0, 30, (2, 60)))


@pytest.fixture
def outside(tmp_path):
    """A folder beside the job's, and what it should still hold at the end."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("secret.txt", "X.parquet", "shard-00000.parquet"):
        (folder / name).write_text("precious")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        ("secret.txt", "X.parquet", "shard-00000.parquet"), "precious"
    )


def within(seconds, work):
    """The error of ours that some work raises, within a time: nothing waits for a pipe."""
    found = []

    def run():
        try:
            work()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    assert all(isinstance(error, ew.EdgewiseError) for error in found), found
    return found[0] if found else None


SHARDS = (
    [["../../outside/X", 0, 30]],
    [["/tmp/X-00000", 0, 30]],
    [["shard-00000", 0, 10**12]],
    [["shard-00000", 0, 15]],
    [["shard-00000", 0, 15], ["shard-00000", 15, 30]],
    [["shard-00000", 15, 30], ["shard-00001", 0, 15]],
    [["shard-00000", 0, 30, 3]],
    [["shard-00000", 0, True]],
    [["shard-00000", -1, 30]],
    [["shard-00000", 0, "30"]],
    [3],
    3,
    {"shard-00000": [0, 30]},
)


@pytest.mark.parametrize("shards", SHARDS, ids=lambda shards: repr(shards)[:30])
def test_shards_that_are_not_those_of_the_job_are_refused(question, tmp_path, outside, shards):
    job = tmp_path / "job"
    ew.jobs.run(*question, out=job)
    said = json.loads((job / "manifest.json").read_text())
    (job / "manifest.json").write_text(json.dumps({**said, "shards": shards}))
    for work in (lambda: ew.jobs.open(job), lambda: ew.jobs.run(*question, out=job)):
        error = within(60, work)
        assert isinstance(error, ew.FileError) or (error is None and not isinstance(shards, list))


PARTS = ("manifest.json", "journal.jsonl", "index.npy", "lock", "shards/shard-00000.parquet", "shards")


@pytest.mark.parametrize("part", PARTS)
@KINDS
def test_a_job_with_links_and_pipes_in_it_is_refused_or_done_again(question, tmp_path, outside, part, make):
    job = tmp_path / "job"
    ew.jobs.run(*question, out=job)
    path = job / part
    path.rename(tmp_path / "taken")
    target = outside if part == "shards" and make is a_link else outside / "secret.txt"
    make(path, target)
    opened = within(60, lambda: [why.value for why in ew.jobs.open(job)])
    again = within(60, lambda: ew.jobs.run(*question, out=job))
    assert isinstance(again, ew.FileError)
    assert "Nothing was touched" in str(again)
    assert isinstance(opened, ew.FileError) or part == "lock"


def test_nothing_in_a_folder_says_where_results_go(tmp_path, monkeypatch, outside):
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    job = tmp_path / ".result.npz.job"
    (job / "stage" / "0").mkdir(parents=True)
    (job / "stage" / "0" / "evil").write_text("evil")
    moves = [{"from": "0/evil", "to": "outside/secret.txt"}, {"from": "../../outside/X.parquet", "to": "stolen"}]
    (job / "commit.json").write_text(json.dumps(moves))
    (job / "manifest.json").write_text(json.dumps({"format": FORMAT, "key": "k", "identity": {}, "shards": []}))
    call("explain", *MINE, "--out", "result.npz")
    assert not (tmp_path / "stolen").exists()
    assert ew.load("result.npz").index.tolist() == list(range(12))
    assert not job.exists()


@pytest.mark.parametrize("leads", ["hidden folder", "stage"])
def test_a_hidden_folder_that_is_a_link_is_not_followed(tmp_path, monkeypatch, outside, leads):
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    job = tmp_path / ".result.npz.job"
    if leads == "stage":
        job.mkdir()
    (job if leads == "hidden folder" else job / "stage").symlink_to(outside)
    call("explain", *MINE, "--out", "result.npz", code=1 if leads == "hidden folder" else 0)


# Stores ###############################################################################################################


def altered_store(folder, change):
    """A store whose manifest says something else, with a digest that fits."""
    said = json.loads((folder / "manifest.json").read_text())
    change(said)
    (folder / "manifest.json").write_text(json.dumps(said))
    tables = (manifest._tables(said["nodes"]), manifest._tables(said["edges"]))
    said["digest"] = manifest.Manifest(said["typed"], *tables, said["notes"]).digest
    (folder / "manifest.json").write_text(json.dumps(said))


def x_of(said):
    return said["nodes"][0]["attributes"]["x"]


def edge_index_of(said):
    return said["edges"][0]["structure"]["edge_index"]


CHANGES = {
    "absolute": lambda said: x_of(said).update(file="/etc/passwd"),
    "up": lambda said: x_of(said).update(file="../outside/secret.txt"),
    "objects": lambda said: x_of(said).update(dtype="|O"),
    "no type": lambda said: x_of(said).update(dtype="no such type"),
    "negative": lambda said: x_of(said).update(shape=[5, -3]),
    "huge": lambda said: x_of(said).update(shape=[10**15, 3]),
    "rows": lambda said: x_of(said).update(shape=[45, 2]),
    "count": lambda said: said["nodes"][0].update(count=10**12),
    "no ends": lambda said: said["edges"][0]["structure"].pop("edge_index"),
    "no order": lambda said: said["edges"][0]["structure"].pop("in_start"),
    "no edges": lambda said: said.update(edges=[]),
    "ends of another shape": lambda said: edge_index_of(said).update(shape=[120]),
    "typed": lambda said: said.update(typed=True),
    "key": lambda said: said["edges"][0].update(key=["a", "b", "c"]),
    "notes": lambda said: said.update(notes=[1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_whose_manifest_lies_is_refused(question, tmp_path, outside, change):
    ew.GraphStore.build(tmp_path / "store", question[1])
    try:
        altered_store(tmp_path / "store", CHANGES[change])
    except TypeError:
        assert change == "notes"
    assert isinstance(within(30, lambda: ew.GraphStore(tmp_path / "store")), ew.FileError)


NUMBERS_OF_A_STORE = (
    "edges/edge_index", "edges/in_start", "edges/in_column", "edges/in_other", "nodes/names_start", "nodes/names_order",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS_OF_A_STORE)
@pytest.mark.parametrize("number", [-1, 61, 2**31 - 1])
def test_a_store_whose_numbers_lead_out_of_its_arrays_is_refused(question, tmp_path, name, number):
    model, data = question
    folder = tmp_path / "store"
    ew.GraphStore.build(folder, data, names=[f"n{place}" for place in range(30)])
    path = folder / f"{name}.npy"
    array = np.load(path)
    content = np.full_like(array, number * 100 if name == "nodes/names_start" else number)
    path.write_bytes(path.read_bytes()[: -array.nbytes] + content.tobytes())
    altered_store(folder, lambda said: _sign(folder, said))

    def read():
        store = ew.GraphStore(folder)
        store.node("n4"), list(store.names())
        [why.top(3) for why in ew.explain(model, store, [1, 2])]
        ew.explain(model, store, [1, 2], method="occlusion", level="layer")

    error = within(60, read)
    assert isinstance(error, ew.FileError)
    assert "are not what was written: a file was altered" in str(error)


def _sign(folder, said):
    for table in (*said["nodes"], *said["edges"]):
        for record in (*table["structure"].values(), *table["attributes"].values()):
            record["digest"] = digest_of_array(folder / record["file"])


@pytest.mark.parametrize("part", ["manifest.json", "nodes/x.npy", "edges/in_start.npy"])
@KINDS
def test_a_store_with_links_and_pipes_in_it_is_refused(question, tmp_path, outside, part, make):
    ew.GraphStore.build(tmp_path / "store", question[1])
    (tmp_path / "store" / part).unlink()
    make(tmp_path / "store" / part, outside / "secret.txt")
    assert isinstance(within(30, lambda: ew.GraphStore(tmp_path / "store")), ew.FileError)


def test_a_store_is_not_built_through_a_link(question, tmp_path, outside):
    (tmp_path / ".store.unfinished").symlink_to(outside)
    assert isinstance(within(30, lambda: ew.GraphStore.build(tmp_path / "store", question[1])), ew.FileError)
    (tmp_path / ".store.unfinished").unlink()
    (tmp_path / ".store.unfinished").mkdir()
    os.mkfifo(tmp_path / ".store.unfinished" / "whole")
    assert isinstance(within(30, lambda: ew.GraphStore.build(tmp_path / "store", question[1])), ew.FileError)
    (tmp_path / "other").symlink_to(outside / "nowhere")
    with pytest.raises(ew.FileError, match="is there already"):
        ew.GraphStore.build(tmp_path / "other", question[1])


# Leaderboards #########################################################################################################


@pytest.mark.parametrize("part", ["board.json", "networks", "networks/negative_evidence-0000.jsonl", "lock"])
@KINDS
def test_a_leaderboard_with_links_and_pipes_in_it_is_refused(tmp_path, outside, part, make):
    board = tmp_path / "board"
    board.mkdir()
    if part.startswith("networks/"):
        (board / "networks").mkdir()
    make(board / part, outside / "secret.txt")
    asked = {"data": ["negative_evidence"], "methods": ["gradient"], "networks": 1, "targets": 2}
    assert isinstance(within(60, lambda: ew.leaderboard(board, **asked)), ew.FileError)


# Texts ################################################################################################################


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 200 + "1" + "}" * 200, "[" * 200 + "]" * 200, "\xff", "9" * 10**4]
)
def test_a_text_that_nests_too_deeply_or_is_none_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(ew.FileError, match="cannot be read as JSON"):
        read_json(tmp_path / "a.json")
