"""Results saved by version 0.1.0 load for ever: `saved/make_saved.py` wrote them, `saved/expected.json` says what they are."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew

pytestmark = pytest.mark.filterwarnings("ignore:.* was written by Edgewise:edgewise.errors.VersionWarning")

FOLDER = Path(__file__).resolve().parent / "saved"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in {".npz", ".parquet"})


def load(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    return ew.load(FOLDER / name), EXPECTED[name.rpartition(".")[0]]


def numbers(nested, dtype):
    """The tensor of nested lists, in which NaN is a word; every digit of a number was written down."""
    if isinstance(nested, list):
        return torch.stack([numbers(item, dtype) for item in nested]) if nested else torch.zeros(0, dtype=dtype)
    return torch.tensor(float(nested), dtype=dtype)


def assert_same(found, nested, dtype):
    """None, or the very same numbers: not one bit may differ."""
    if nested is None or found is None:
        assert nested is found is None
        return
    expected = numbers(nested, dtype)
    assert found.dtype == dtype
    assert found.numel() == expected.numel()
    torch.testing.assert_close(found, expected.view(found.shape), rtol=0, atol=0, equal_nan=True)


def test_every_result_is_there_in_both_formats():
    assert sorted(f"{stem}{ending}" for stem in EXPECTED for ending in (".npz", ".parquet")) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_result_of_version_0_1_0_still_says_what_was_asked(name):
    found, expected = load(name)
    dtype = getattr(torch, expected["dtype"])
    assert len(found) == len(expected["index"])
    assert found.index.tolist() == expected["index"]
    assert found.target.tolist() == expected["target"]
    assert_same(found.value, expected["value"], dtype)
    for part in ("method", "level", "num_layers"):
        assert getattr(found, part) == expected[part]


@pytest.mark.parametrize("name", FILES)
def test_its_settings_are_those_of_then(name):
    found, expected = load(name)
    assert isinstance(found.settings["bypass"], tuple)
    layers = {"layers": "calls"} if found.level == "layer" else {}
    assert {**found.settings, "bypass": list(found.settings["bypass"])} == {**expected["settings"], **layers}


@pytest.mark.parametrize("name", FILES)
def test_its_scores_are_the_same_to_the_last_bit(name):
    found, expected = load(name)
    dtype, graphs = getattr(torch, expected["dtype"]), expected["graphs"]
    for position, why in enumerate(found):
        graph = graphs[position if len(graphs) > 1 else 0]
        assert why.num_nodes == graph["num_nodes"]
        assert why.edge_index.dtype == torch.long
        assert why.edge_index.tolist() == graph["edge_index"]
        layers = [] if found.level == "input" else [found.num_layers]
        assert list(why.scores.shape) == [*layers, why.edge_index.size(1)]
        assert (why.index, why.target) == (expected["index"][position], expected["target"][position])
        for part in ("scores", "self_scores", "standard_errors"):
            assert_same(getattr(why, part), expected[part][position], dtype)


@pytest.mark.parametrize("name", FILES)
def test_it_can_be_saved_again_and_used(name, tmp_path):
    found, _ = load(name)
    found.save(tmp_path / name)
    again = ew.load(tmp_path / name)
    assert len(found.to_rows()) == len(again.to_rows())
    for why, twin in zip(found, again, strict=True):
        assert torch.equal(why.scores, twin.scores)
        assert why.top(3) == twin.top(3)
    assert dict(again.settings) == dict(found.settings)


# The version of the format ############################################################################################


def test_a_file_of_version_0_1_0_has_no_version():
    with np.load(FOLDER / "node_layer_occlusion.npz") as archive:
        assert "version" not in json.loads(archive["about"].tobytes())


def with_about(source, path, **changed):
    """A copy of a file that says something else about itself."""
    if path.suffix == ".npz":
        with np.load(source) as archive:
            arrays = dict(archive)
        about = {**json.loads(arrays.pop("about").tobytes()), **changed}
        np.savez(path, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
        return
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(source)
    extra = json.loads(table.schema.metadata[b"edgewise"])
    extra["about"].update(changed)
    parquet.write_table(table.replace_schema_metadata({"edgewise": json.dumps(extra)}), path)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
@pytest.mark.parametrize("version", [3, 17, "new"])
def test_a_version_from_the_future_is_refused_with_a_sentence(tmp_path, ending, version):
    with_about(FOLDER / f"node_full{ending}", tmp_path / f"new{ending}", version=version)
    with pytest.raises(ew.FileError, match=rf"version 2 of the format.*{version!r}.*pip install -U edgewise"):
        ew.load(tmp_path / f"new{ending}")


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_a_file_of_version_1_has_no_digest_and_loads(tmp_path, ending):
    with_about(FOLDER / f"node_layer_occlusion{ending}", tmp_path / f"one{ending}", version=1)
    found, old = ew.load(tmp_path / f"one{ending}"), ew.load(FOLDER / f"node_layer_occlusion{ending}")
    assert "layers" not in found.settings  # they are those of the depth
    assert torch.equal(found[0].scores, old[0].scores)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_what_is_saved_today_has_version_2_and_counts_layers_by_depth(tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    old, _ = load("node_layer_occlusion.npz")
    new = explained_by_depth(2, old)
    new.save(tmp_path / f"new{ending}")
    assert ew.load(tmp_path / f"new{ending}").settings["layers"] == "depth"
    old.save(tmp_path / f"old{ending}")
    assert ew.load(tmp_path / f"old{ending}").settings["layers"] == "calls"
    for name in ("old", "new"):
        path = tmp_path / f"{name}{ending}"
        with_about(path, tmp_path / f"again{ending}")  # reads it
        assert re.search(rb'"version": 2', about_bytes(path))


def about_bytes(path):
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["about"].tobytes()
    return pytest.importorskip("pyarrow.parquet").read_table(path).schema.metadata[b"edgewise"]


# Layers of calls and layers of the depth ##############################################################################


def model_and_data(depth, like):
    """A model of some depth and the graph of a saved result."""
    torch.manual_seed(0)
    edge_index, num_nodes = like.graph(0)
    return GCN(4, 8, depth, 3).eval(), Data(x=torch.randn(num_nodes, 4), edge_index=edge_index)


def explained_by_depth(depth, like, level="layer"):
    model, data = model_and_data(depth, like)
    return ew.explain(model, data, like.index, level=level, target=like.target)


def test_layers_of_calls_are_not_compared_with_another_number_of_layers_by_depth():
    old, _ = load("node_layer_occlusion.npz")
    new = explained_by_depth(3, old)
    sentence = "same number of layers.*0.1.0.*each message-passing call.*[Ee]xplain again"
    for pair in ((old, new), (new, old), (old[0], new[0]), (new[1], old[1])):
        with pytest.raises(ew.InputError, match=sentence):
            ew.similarity(*pair)
        with pytest.raises(ew.InputError, match=sentence):
            ew.metrics.stability(pair)
    with pytest.raises(ew.InputError, match="2 and 3"):
        ew.similarity(old, new, per_layer=True)
    model, data = model_and_data(3, old)
    with pytest.raises(ew.InputError, match=sentence):
        ew.metrics.fidelity(old, model, data, k=2)


def test_as_many_layers_as_calls_are_compared():
    old, _ = load("node_layer_occlusion.npz")
    assert ew.similarity(old, explained_by_depth(2, old)).shape == (3,)


def test_models_of_different_depth_are_not_compared_layer_by_layer():
    old, _ = load("node_layer_occlusion.npz")
    with pytest.raises(ew.InputError, match="different depth"):
        ew.similarity(explained_by_depth(2, old), explained_by_depth(3, old))
    by_edge = [explained_by_depth(depth, old, level="input") for depth in (2, 3)]
    assert ew.similarity(*by_edge).shape == (3,)
