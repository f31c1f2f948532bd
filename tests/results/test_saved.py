"""Results saved by version 0.1.0 load for ever: `saved/make_saved.py` wrote them, `saved/expected.json` says what they are."""

import json
from pathlib import Path

import pytest
import torch

import edgewise as ew

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
    assert {**found.settings, "bypass": list(found.settings["bypass"])} == expected["settings"]


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
