"""Where data sets come from: the user's folder, untouched; errors that say what to fetch; sentences in their raw format."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise.errors import FileError, InputError
from edgewise.files import VARIABLE
from edgewise_paper import data
from edgewise_paper.data import RAW, Source, read_graph_set, read_node_set, read_sentences
from missing import skip_or_fail
from places import data_root


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


def listing(folder: Path):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


# The user's folder ####################################################################################################


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "training", "test"),
    [("Cora", 2708, 10556, 1192, 497), ("CiteSeer", 3327, 9104, 1596, 666), ("Cornell", 183, 298, 87, 37)],
)
def test_node_sets_are_read_with_the_first_split_and_without_touching_the_folder(
    raw_data, tmp_path, name, nodes, edges, training, test
):
    folder = Path(raw_data(name if name != "Cornell" else "cornell"))
    before = listing(folder)
    found = read_node_set(name, Source(folder, tmp_path / "cache"))
    assert (found.data.num_nodes, found.data.num_edges) == (nodes, edges)
    assert (len(found.training), len(found.test)) == (training, test)
    assert not set(found.training.tolist()) & set(found.test.tolist())
    assert listing(folder) == before


def test_graph_sets_are_read_and_split_by_the_seed(raw_data, tmp_path):
    found = read_graph_set("MUTAG", Source(Path(raw_data("MUTAG")), tmp_path / "cache"))
    assert len(found.graphs) == 188
    assert found.graphs[0].edge_attr.size(1) == 4
    (training, test), (again, _), (other, _) = found.split(0), found.split(0), found.split(1)
    assert (len(training), len(test)) == (112, 38)
    assert torch.equal(training, again)
    assert not torch.equal(training, other)
    assert not set(training.tolist()) & set(test.tolist())


def test_the_variable_says_where_data_is_and_the_option_wins(monkeypatch, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "a"))
    assert Source(None, tmp_path / "cache").given == tmp_path / "a"
    assert Source(tmp_path / "b", tmp_path / "cache").given == tmp_path / "b"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileError, match=r"nowhere.*--data"):
        Source(tmp_path / "nowhere", tmp_path / "cache")


@pytest.mark.parametrize("name", list(RAW))
def test_a_missing_file_is_named_with_its_place_and_where_to_get_it(tmp_path, name):
    folder = tmp_path / "data"
    (folder / RAW[name].folder).mkdir(parents=True)
    first, *others = RAW[name].files
    for file in others:
        (folder / RAW[name].folder / file).touch()
    with pytest.raises(FileError) as error:
        Source(folder, tmp_path / "cache").prepare(name)
    for part in (first, RAW[name].folder, "https://", "--data DIR", VARIABLE):
        assert part in str(error.value)
    assert not any(file in str(error.value) for file in others)


def test_an_unknown_data_set_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match="PROTEINS"):
        Source(tmp_path, tmp_path / "cache").prepare("PubMed")


def test_without_a_folder_pyg_downloads_into_the_users_cache_and_a_failure_says_what_to_fetch(monkeypatch, tmp_path):
    asked = []

    def offline(root, name, **_):
        asked.append((root, name))
        raise OSError("no network")

    monkeypatch.setattr(data, "WebKB", offline)
    with pytest.raises(FileError, match=r"download failed: no network.*out1_node_feature_label"):
        read_node_set("Texas", Source(None, tmp_path / "cache"))
    assert asked == [(str(tmp_path / "user-cache" / "edgewise" / "data"), "Texas")]


def test_an_error_that_is_not_about_missing_files_is_not_hidden(tmp_path):
    folder = tmp_path / "data" / RAW["MUTAG"].folder
    folder.mkdir(parents=True)
    for file in RAW["MUTAG"].files:
        (folder / file).write_text("not a number")
    with pytest.raises(Exception, match=r".") as error:  # whatever PyG says
        read_graph_set("MUTAG", Source(tmp_path / "data", tmp_path / "cache"))
    assert not isinstance(error.value, FileError)


def test_the_data_beside_the_checkout_is_complete():
    if not data_root().is_dir():
        skip_or_fail(f"no data in {data_root()}")
    source = Source(data_root(), Path("unused"))
    assert [name for name in RAW if source.missing(name)] == ["Graph-SST2"]


# Sentences ############################################################################################################


def write_sentences(folder: Path, **changed):
    """Three sentences of 2, 1 and 3 words: 0–1, a word alone, 3–4–5."""
    files = {
        "edge_index": "0 1\n3 4\n4 5\n",
        "node_indicator": "1\n1\n2\n3\n3\n3\n",
        "graph_labels": "1\n0\n1\n",
        "split_indices": "0\n1\n2\n",
    }
    folder.mkdir(parents=True)
    for name, text in (files | changed).items():
        (folder / f"Graph-SST2_{name}.txt").write_text(text)
    with (folder / "Graph-SST2_node_features.pkl").open("wb") as file:
        pickle.dump(np.arange(12, dtype=np.float32).reshape(6, 2), file)


def test_sentence_graphs_are_read_undirected_with_their_split(tmp_path):
    write_sentences(tmp_path / "Graph-SST2" / "raw")
    found = read_graph_set("Graph-SST2", Source(tmp_path, tmp_path / "cache"))
    first, second, third = found.graphs
    assert first.x.tolist() == [[0, 1], [2, 3]]
    assert sorted(first.edge_index.t().tolist()) == [[0, 1], [1, 0]]
    assert (second.num_nodes, second.num_edges, int(second.y)) == (1, 0, 0)
    assert third.x.tolist() == [[6, 7], [8, 9], [10, 11]]
    assert sorted(third.edge_index.t().tolist()) == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert [part.tolist() for part in found.split(seed=7)] == [[0], [2]]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"node_indicator": "1\n1\n2\n3\n3\n"}, "6 rows of features and an edge of node 5 for 5 nodes"),
        ({"graph_labels": "1\n0\n"}, "2 labels"),
        ({"edge_index": "0 2\n"}, "edges between graphs"),
        ({"node_indicator": "1\n2\n1\n3\n3\n3\n"}, "order"),
    ],
)
def test_raw_files_that_do_not_fit_together_are_refused(tmp_path, changed, says):
    write_sentences(tmp_path / "raw", **changed)
    with pytest.raises(FileError, match=says):
        read_sentences(tmp_path / "raw")


class _Evil:
    def __reduce__(self):
        return (os.mkdir, ("evil",))


def test_a_pickle_that_is_more_than_an_array_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_sentences(tmp_path / "raw")
    (tmp_path / "raw" / "Graph-SST2_node_features.pkl").write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(FileError, match="mkdir"):
        read_sentences(tmp_path / "raw")
    assert not (tmp_path / "evil").exists()


def test_features_that_are_no_table_are_refused(tmp_path):
    write_sentences(tmp_path / "raw")
    (tmp_path / "raw" / "Graph-SST2_node_features.pkl").write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(FileError, match="row for each node"):
        read_sentences(tmp_path / "raw")
