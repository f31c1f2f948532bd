"""`edgewise store` and `--data` with a store: what is built, told and explained, and what is refused."""

import pytest

import edgewise as ew
from command_line import MINE, call, error, printed, workshop

pytest.importorskip("pyarrow")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The current folder is a user's, with a model, weights and data; a store of them beside."""
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    call("store", "build", MINE[MINE.index("--data") + 1], "mine.store")
    return ["mine.store" if one == MINE[MINE.index("--data") + 1] else one for one in MINE]


def test_info_tells_what_is_in_a_store(mine):
    told = printed("store", "info", "mine.store", "--verify")
    store = ew.GraphStore("mine.store")
    assert (told["digest"], told["nodes"][""]["count"]) == (store.digest, store.num_nodes)
    assert f"{store.num_edges} edges" in call("store", "info", "mine.store").output


def test_a_store_is_explained_like_the_file_that_it_was_built_from(mine):
    for name, options in (("stored", mine), ("plain", MINE)):
        call("explain", *options, "--index", "0,3", "--out", f"{name}.npz")
    stored, plain = ew.load("stored.npz"), ew.load("plain.npz")
    assert (stored[1].scores - plain[1].scores).abs().max() < 1e-6


def test_a_job_over_a_store_runs_and_resumes(mine):
    call("job", "run", *mine, "--index", "0-5", "--out", "job", "--audit", "2", "--neighbors", "25,10", "--top", "4")
    assert printed("job", "resume", "job", "--trust-folder")["done"] == 6
    assert "--neighbors 25,10" in error("job", "run", *mine, "--index", "0", "--out", "other", "--neighbors", "many")


def test_what_is_no_store_is_refused(mine):
    assert "there already" in error("store", "build", "mine.store", "mine.store")
    assert "not the folder of a graph store" in error("store", "info", ".")
    assert "node by node" in error("explain", *mine, "--index", "0", "--task", "graph")
