"""Files of walks, which jobs keep: lossless, and they prove themselves."""

import numpy as np
import pytest
import torch

import edgewise as ew
from command_line import network, ring
from edgewise.results.walk_storage import load_walks, save_walks


@pytest.fixture
def found():
    return ew.walks(network(), ring(), [3, 7, 2], k=4)


def same(one, other):
    names = ("walks", "exact", "upper_bound", "index", "target", "value", "num_nodes", "expansions")
    return (
        all(getattr(one, name) == getattr(other, name) for name in names)
        and dict(one.settings) == dict(other.settings)
        and torch.equal(one.edge_index, other.edge_index)
    )


def test_walks_are_read_as_they_were(found, tmp_path):
    save_walks(found, tmp_path / "walks.npz", job="abc")
    again, job = load_walks(tmp_path / "walks.npz")
    assert job == "abc"
    assert all(same(*pair) for pair in zip(found, again, strict=True))
    few = [ew.walks(network(), ring(), 3, k=2, budget=1), ew.walks(network(), ring(), 4, k=1)]
    save_walks(few, tmp_path / "walks.npz")
    assert all(same(*pair) for pair in zip(few, load_walks(tmp_path / "walks.npz")[0], strict=True))


def test_the_graph_of_all_targets_is_kept_once(found, tmp_path):
    save_walks(found, tmp_path / "walks.npz")
    with np.load(tmp_path / "walks.npz") as archive:
        assert archive["edge_index"].shape[1] == ring().edge_index.size(1)


def test_an_altered_file_is_refused_or_read_right(found, tmp_path):
    path, draw = tmp_path / "walks.npz", np.random.default_rng(0)
    save_walks(found, path)
    whole, refused = path.read_bytes(), 0
    for _ in range(60):
        data = bytearray(whole)
        data[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
        path.write_bytes(bytes(data))
        try:
            again, _ = load_walks(path)
        except ew.FileError:
            refused += 1
            continue
        assert all(same(*pair) for pair in zip(found, again, strict=True))
    assert refused > 30
