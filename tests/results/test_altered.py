"""Result files prove themselves: one that was altered is read right, or refused with a sentence of ours."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import edgewise as ew

pytest.importorskip("pyarrow")
import pyarrow.parquet

import altered_files as files

SOURCES = [(kind, ending) for kind in files.KINDS for ending in files.endings(kind)]
CASES = [(kind, ending, way) for kind, ending in SOURCES for way in files.ways_of(ending)]
LIARS = (files.lying_arrays_with_a_digest, files.swapped_arrays, files.lying_text, files.missing_array)
"""These may write a digest, too: what they say can be sound, and then it is what the file says."""


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.IncompleteWarning)
        return ew.load(path)


def same(one, other):
    return (one is None and other is None) or torch.equal(
        torch.nan_to_num(one, nan=7.5), torch.nan_to_num(other, nan=7.5)
    )


def flat(why):
    return getattr(why, "flat", why)


def assert_right(found, kind):
    """Every explanation that was read is the one that was saved, to the last bit."""
    saved = files.result(kind)
    assert len(found) == len(saved) or "lacks" in found.settings
    assert {**found.settings, "lacks": ""} == {**saved.settings, "lacks": ""}
    for ours in map(flat, found):
        theirs = flat(saved.of(ours.index))
        assert (ours.target, ours.value, ours.method) == (theirs.target, theirs.value, theirs.method)
        assert same(ours.scores, theirs.scores)
        if kind in ("feature", "factors"):
            assert same(ours.per_node(), theirs.per_node())
        else:
            assert same(ours.self_scores, theirs.self_scores)
            assert same(ours.standard_errors, theirs.standard_errors)
            assert torch.equal(ours.edge_index, theirs.edge_index)


def assert_readable(found):
    """Whatever the file says, every explanation of it can be looked at."""
    for why in map(flat, found):
        assert why.scores is None or why.scores.numel() >= 0
        why.top(3)
        repr(why)


def try_altered(folder, kind, ending, way, seed):
    """Whether the altered file was refused; if it was read, it was read right."""
    path = files.write(kind, ending, folder)
    before = path.read_bytes()
    try:
        way(path, np.random.default_rng(seed))
    except (ValueError, TypeError, IndexError, pyarrow.ArrowException):  # this way does not fit this file
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ew.VersionWarning)  # the writer's version may be what was altered
            found = load(path)
    except ew.FileError:
        assert path.read_bytes() != before
        return True
    assert_readable(found)
    if way not in LIARS:
        assert_right(found, kind)
    return False


@pytest.mark.parametrize(("kind", "ending"), SOURCES)
def test_what_was_saved_is_read_right(kind, ending, tmp_path):
    assert_right(load(files.write(kind, ending, tmp_path)), kind)


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(0, 2**32))
def test_an_altered_file_is_read_right_or_refused(tmp_path_factory, case, seed):
    try_altered(tmp_path_factory.mktemp("altered"), *case, seed)


@pytest.mark.slow
def test_thousands_of_altered_files_are_read_right_or_refused(tmp_path):
    outcomes = {True: 0, False: 0, None: 0}
    for seed in range(20):
        for case in CASES:
            outcomes[try_altered(tmp_path, *case, seed)] += 1
    assert outcomes[True] > 1000
    assert outcomes[False] > 50  # sorted and filtered tables, flips of bits that mean nothing


@pytest.mark.parametrize("kind", ["node", "layer", "graph", "link", "typed"])
def test_a_sorted_table_is_read_right(kind, tmp_path):
    for seed in range(3):
        assert try_altered(tmp_path, kind, ".parquet", files.sorted_rows, seed) is False


def test_a_table_sorted_by_score_with_pyarrow_is_read_right(tmp_path):
    path = files.write("layer", ".parquet", tmp_path)
    files.write_table(path, pyarrow.parquet.read_table(path).sort_by("score"))
    assert_right(load(path), "layer")


def test_a_filtered_table_says_what_it_lacks(tmp_path):
    path = files.write("node", ".parquet", tmp_path)
    table = pyarrow.parquet.read_table(path)
    files.write_table(path, table.filter(pyarrow.compute.not_equal(table["index"], 8)))
    with pytest.warns(ew.IncompleteWarning, match="lacks 1 of 4 targets: 8"):
        found = ew.load(path)
    assert found.index.tolist() == [4, 1, 2]
    assert found.settings["lacks"] == "1 of 4 targets: 8"
    assert_right(found, "node")


def test_parts_of_a_table_that_come_together_again_are_the_whole(tmp_path):
    path = files.write("node", ".parquet", tmp_path)
    table = pyarrow.parquet.read_table(path)
    files.write_table(path, pyarrow.concat_tables([table.slice(9), table.slice(0, 9)]))
    assert_right(load(path), "node")


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        (files.filtered_rows, "should have .* scores, it has .* Filter by target"),
        (files.doubled_rows, "some are there twice, or of another result"),
        (files.lost_column, "have no column"),
    ],
)
def test_rows_that_do_not_prove_themselves_are_refused(tmp_path, way, sentence):
    path = files.write("layer", ".parquet", tmp_path)
    way(path, np.random.default_rng(0))
    with pytest.raises(ew.FileError, match=sentence):
        ew.load(path)


def test_ten_million_graphs_in_a_small_file_are_refused_before_they_are_built(tmp_path, monkeypatch):
    path = files.write("graph", ".npz", tmp_path)
    arrays, about, _ = files.contents(path)
    arrays["graph_edges"] = arrays["graph_nodes"] = np.zeros(10**7, dtype=np.int64)
    files.write_arrays(path, arrays, about)
    assert path.stat().st_size < 200_000
    monkeypatch.setattr("edgewise.results.container.NpzFile.read", lambda _: pytest.fail("arrays were built"))
    with pytest.raises(ew.FileError, match="3 targets and 10000000 graphs"):
        ew.load(path)


def test_a_changed_score_is_noticed_in_both_formats(tmp_path):
    path = files.write("node", ".npz", tmp_path)
    arrays, about, _ = files.contents(path)
    arrays["edges_score"][3] += 1
    files.write_arrays(path, arrays, about)
    with pytest.raises(ew.FileError, match="not those that were saved: the digest differs"):
        ew.load(path)
    path = files.write("node", ".parquet", tmp_path)
    table = pyarrow.parquet.read_table(path)
    score = table["score"].to_numpy().copy()
    score[3] += 1
    files.write_table(path, table.set_column(table.column_names.index("score"), "score", pyarrow.array(score)))
    with pytest.raises(ew.FileError, match=r"scores of target .* are not those that were saved"):
        ew.load(path)
