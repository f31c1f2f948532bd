"""The result objects: signed, frozen, in the order of the user's edges, and the same after a round trip to disk."""

import contextlib
import errno
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.explain import Explanation as PyGExplanation

import edgewise as ew
import zoo
from checks import LEVELS, METHODS, explain_nodes, node_problem

SETTINGS = {
    "gnn_explainer": {"epochs": 3},
    "integrated_gradients": {"steps": 3},
    "positive_gradient": {"epsilon": 1e-3},
}


@pytest.fixture(scope="module")
def problem():
    _, model, data, _ = node_problem("gcn", "everything")
    return model, data


# Ranking ##############################################################################################################


@pytest.mark.parametrize(
    ("by", "key"), [("support", lambda s: -s), ("opposition", lambda s: s), ("magnitude", lambda s: -abs(s))]
)
def test_top_ranks_edges_by_what_the_reader_asks_for(problem, by, key):
    why = ew.explain(*problem, index=1)
    scores = why.scores.tolist()
    wanted = sorted(range(len(scores)), key=lambda column: key(scores[column]))[:3]
    found = why.top(3, by=by)
    assert [entry[3] for entry in found] == wanted
    for score, source, receiver, column in found:
        assert score == pytest.approx(scores[column])
        assert [source, receiver] == problem[1].edge_index[:, column].tolist()


def test_top_ranks_by_support_unless_told_otherwise(problem):
    why = ew.explain(*problem, index=1)
    assert why.top(2) == why.top(2, by="support")


def test_top_names_the_layer_of_a_layerwise_score(problem):
    why = ew.explain(*problem, index=1, level="layer")
    found = why.top(5, by="magnitude")
    flat = sorted(why.scores.abs().flatten().tolist(), reverse=True)
    assert [abs(entry[0]) for entry in found] == pytest.approx(flat[:5])
    for score, source, receiver, column, layer in found:
        assert score == pytest.approx(float(why.scores[layer, column]))
        assert [source, receiver] == problem[1].edge_index[:, column].tolist()


def test_top_gives_no_more_edges_than_there_are(problem):
    why = ew.explain(*problem, index=1)
    assert len(why.top(10_000, by="magnitude")) <= len(why.scores)
    _, model, data, _ = node_problem("gcn", "no_edges")
    assert list(ew.explain(model, data, index=0).top(3)) == []


@pytest.mark.parametrize("arguments", [{"k": 3, "by": "size"}, {"k": -1}, {"k": 1.5}])
def test_top_refuses_what_it_cannot_rank(problem, arguments):
    with pytest.raises(ew.EdgewiseError):
        ew.explain(*problem, index=1).top(**arguments)


# The object ###########################################################################################################


def test_an_explanation_carries_its_story(problem):
    model, data = problem
    why = ew.explain(model, data, index=1, target=2, method="positive_gradient", level="layer", epsilon=0.01)
    assert (why.index, why.target, why.method, why.level, why.num_nodes) == (1, 2, "positive_gradient", "layer", 8)
    assert why.settings["epsilon"] == 0.01
    assert torch.equal(why.edge_index, data.edge_index)
    with torch.no_grad():
        assert float(why.value) == pytest.approx(float(model(data.x, data.edge_index)[1, 2]), abs=1e-12)


def test_settings_show_the_defaults_that_were_used(problem):
    assert ew.explain(*problem, index=1, method="integrated_gradients").settings["steps"] == 50
    settings = ew.explain(*problem, index=1, method="gnn_explainer", epochs=2).settings
    assert {name: settings[name] for name in ("epochs", "lr", "edge_size", "edge_ent")} == {
        "epochs": 2,
        "lr": 0.01,
        "edge_size": 0.005,
        "edge_ent": 1.0,
    }


@pytest.mark.parametrize("name", ["scores", "index", "value", "method", "settings", "something_new"])
def test_an_explanation_is_frozen(problem, name):
    why = ew.explain(*problem, index=1)
    with pytest.raises(AttributeError):
        setattr(why, name, 0)


def test_settings_cannot_be_written_to(problem):
    why = ew.explain(*problem, index=1, method="positive_gradient")
    with pytest.raises((TypeError, AttributeError)):
        why.settings["epsilon"] = 5


@pytest.mark.parametrize("method", METHODS)
def test_self_scores_exist_for_the_methods_that_define_them(problem, method):
    for level, shape in (("input", (8,)), ("layer", (3, 8))):
        why = ew.explain(*problem, index=1, method=method, level=level, **SETTINGS.get(method, {}))
        if method in {"gradient", "occlusion", "integrated_gradients"}:
            assert tuple(why.self_scores.shape) == shape
        else:
            assert why.self_scores is None


def test_progress_changes_nothing_but_the_screen(problem, capsys):
    quiet, loud = (ew.explain(*problem, method="occlusion", progress=progress) for progress in (False, True))
    assert all(torch.equal(a.scores, b.scores) for a, b in zip(quiet, loud, strict=True))
    assert capsys.readouterr().err


def test_a_set_is_a_sequence(problem):
    found = ew.explain(*problem, index=[1, 4, 0])
    assert len(found) == 3
    assert int(found[0].index) == 1
    assert int(found[-1].index) == 0
    assert [int(why.index) for why in found] == [1, 4, 0]
    part = found[1:]
    assert [int(why.index) for why in part] == [4, 0]
    with pytest.raises(IndexError):
        found[3]


def test_a_set_stores_only_the_part_that_is_not_zero():
    nodes = 2000
    data = zoo.graph([(i, (i + 1) % nodes) for i in range(nodes)], nodes)
    found = ew.explain(zoo.BY_NAME["gcn"].build(), data, index=range(300), level="layer")
    dense = 300 * 3 * nodes * 8
    assert _bytes_of_tensors(found) < dense / 20
    assert int((found[7].scores != 0).sum()) == 1 + 2 + 3


def _bytes_of_tensors(thing, seen=None):
    """The memory of every tensor and array that hangs on an object."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        parts = thing.values()
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif type(thing).__module__.startswith("edgewise"):
        slots = [getattr(thing, name, None) for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        parts = [*vars(thing).values(), *slots] if hasattr(thing, "__dict__") else slots
    else:
        return 0
    return sum(_bytes_of_tensors(part, seen) for part in parts)


# Files ################################################################################################################


def assert_same(left, right):
    assert type(left) is type(right)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.scores.dtype == b.scores.dtype
        assert torch.equal(a.scores, b.scores)
        assert (a.self_scores is None) == (b.self_scores is None)
        if a.self_scores is not None:
            assert torch.equal(a.self_scores.nan_to_num(-7.0), b.self_scores.nan_to_num(-7.0))
        assert torch.equal(a.edge_index, b.edge_index)
        assert dict(a.settings) == dict(b.settings)
        for name in ("index", "target", "method", "level", "num_nodes"):
            assert getattr(a, name) == getattr(b, name), name
        assert float(a.value) == float(b.value)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_set_is_the_same_after_a_round_trip_through_a_file(problem, tmp_path, suffix, method, level):
    found = ew.explain(*problem, index=[1, 5, 1, 0], method=method, level=level, **SETTINGS.get(method, {}))
    path = tmp_path / f"all{suffix}"
    found.save(path)
    assert_same(ew.load(path), found)
    found.save(str(path))  # over the old one, and a string is a path too
    assert_same(ew.load(str(path)), found)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("method", ["gradient", "random", "gnn_explainer"])
def test_so_is_a_set_of_graphs(tmp_path, suffix, method):
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "no_edges", "everything")]
    found = ew.explain(
        zoo.GRAPH_BY_NAME["mean_pool"].build(),
        graphs,
        task="graph",
        method=method,
        level="layer",
        **SETTINGS.get(method, {}),
    )
    path = tmp_path / f"graphs{suffix}"
    found.save(path)
    assert_same(ew.load(path), found)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("case_name", ["cheb", "cheb_below_gcn", "binary"])
def test_so_are_missing_self_scores_and_other_modes(tmp_path, suffix, case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    found = explain_nodes(case, model, data, level="layer", top=3)
    found.save(tmp_path / f"all{suffix}")
    assert_same(ew.load(tmp_path / f"all{suffix}"), found)


def test_so_are_single_precision_and_a_start_that_was_given(tmp_path):
    _, model, data, _ = node_problem("gcn", "directed")
    model = zoo.BY_NAME["gcn"].build().float()
    data = zoo.Data(x=data.x.float(), edge_index=data.edge_index)
    found = ew.explain(model, data, index=[0, 2], method="gnn_explainer", init=torch.zeros(13), epochs=2)
    found.save(tmp_path / "all.npz")
    again = ew.load(tmp_path / "all.npz")
    assert again[0].scores.dtype == torch.float32
    assert torch.equal(again[1].scores, found[1].scores)


def test_a_file_is_read_without_pickles(problem, tmp_path):
    path = tmp_path / "all.npz"
    ew.explain(*problem, index=[1, 2], method="gnn_explainer", epochs=2).save(path)
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("kept", [0, 0.3, 0.9])
def test_a_truncated_file_is_refused(problem, tmp_path, suffix, kept):
    path = tmp_path / f"all{suffix}"
    ew.explain(*problem).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ew.EdgewiseError, match=path.name):
        ew.load(path)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_foreign_file_is_refused(tmp_path, suffix):
    import pyarrow
    from pyarrow import parquet

    text, foreign = tmp_path / f"text{suffix}", tmp_path / f"foreign{suffix}"
    text.write_text("these are no explanations\n" * 10)
    if suffix == ".npz":
        np.savez(foreign, scores=np.ones(3))
    else:
        parquet.write_table(pyarrow.table({"scores": [1.0, 2.0]}), foreign)
    for path in (text, foreign):
        with pytest.raises(ew.EdgewiseError, match=path.name):
            ew.load(path)


def test_a_file_with_a_pickle_inside_is_refused_and_not_opened(tmp_path):
    opened = tmp_path / "opened"

    class Malicious:
        def __reduce__(self):
            return (opened.touch, ())

    np.savez(tmp_path / "evil.npz", scores=np.array([Malicious()], dtype=object))
    with pytest.raises(ew.EdgewiseError):
        ew.load(tmp_path / "evil.npz")
    assert not opened.exists()


def test_a_missing_file_and_an_unknown_ending_are_refused(problem, tmp_path):
    with pytest.raises((ew.EdgewiseError, FileNotFoundError), match=r"nowhere\.npz"):
        ew.load(tmp_path / "nowhere.npz")
    found = ew.explain(*problem, index=[1])
    with pytest.raises(ew.EdgewiseError, match=r"npz.*parquet|parquet.*npz"):
        found.save(tmp_path / "all.txt")
    with pytest.raises((ew.EdgewiseError, OSError), match="no_such_folder"):
        found.save(tmp_path / "no_such_folder" / "all.npz")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_file_that_could_not_be_finished_does_not_replace_the_old_one(problem, tmp_path, suffix, monkeypatch):
    path = tmp_path / f"all{suffix}"
    old = ew.explain(*problem, index=[1])
    old.save(path)

    def full_disk(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "link"):
            patch.setattr(os, name, full_disk)
        with pytest.raises((ew.EdgewiseError, OSError), match=r"space|write"):
            ew.explain(*problem).save(path)
    assert os.listdir(tmp_path) == [path.name]
    assert_same(ew.load(path), old)


# Similarity ###########################################################################################################


def test_similarity_is_the_cosine_of_the_scores(problem):
    a, b = (ew.explain(*problem, method=method) for method in ("gradient", "occlusion"))
    found = ew.similarity(a, b)
    assert tuple(found.shape) == (8,)
    for value, x, y in zip(found.tolist(), a, b, strict=True):
        size = float(x.scores.norm() * y.scores.norm())
        expected = float(x.scores @ y.scores) / size if size else math.nan
        assert value == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_similarity_of_a_zero_vector_is_not_a_number(problem):
    a = ew.explain(*problem, index=[5, 1])  # node 5 is isolated
    found = ew.similarity(a, a)
    assert math.isnan(found[0])
    assert float(found[1]) == pytest.approx(1)


def test_similarity_matches_by_index_and_not_by_position(problem):
    a, b = ew.explain(*problem, index=[1, 4, 0]), ew.explain(*problem, index=[0, 1, 4], method="occlusion")
    expected = ew.similarity(a, ew.explain(*problem, index=[1, 4, 0], method="occlusion"))
    assert torch.allclose(torch.as_tensor(ew.similarity(a, b)), torch.as_tensor(expected), atol=1e-12)


def test_similarity_per_layer_is_one_cosine_for_every_target_and_layer(problem):
    a, b = (ew.explain(*problem, index=[1, 4, 5], method=method, level="layer") for method in ("gradient", "occlusion"))
    found = torch.as_tensor(ew.similarity(a, b, per_layer=True))
    assert tuple(found.shape) == (3, 3)
    for row, x, y in zip(found, a, b, strict=True):
        expected = torch.stack(
            [x.scores[l] @ y.scores[l] / (x.scores[l].norm() * y.scores[l].norm()) for l in range(3)]
        )
        assert torch.allclose(row, expected, atol=1e-9, equal_nan=True)
    whole = torch.as_tensor(ew.similarity(a, b))
    expected = a[0].scores.flatten() @ b[0].scores.flatten() / (a[0].scores.norm() * b[0].scores.norm())
    assert float(whole[0]) == pytest.approx(float(expected), abs=1e-9)
    assert bool(torch.as_tensor(ew.similarity(a, a)).nan_to_num(1).sub(1).abs().max() < 1e-9)


def test_similarity_keeps_the_sign(problem):
    _, model, data, _ = node_problem("binary", "everything")
    yes, no = (ew.explain(model, data, index=[1], target=target) for target in (1, 0))
    assert float(ew.similarity(yes, no)[0]) == pytest.approx(-1)


def test_similarity_with_random_and_with_masks_works(problem):
    a = ew.explain(*problem, index=[1, 4])
    for method in ("random", "gnn_explainer", "full", "positive_gradient"):
        values = ew.similarity(a, ew.explain(*problem, index=[1, 4], method=method, **SETTINGS.get(method, {})))
        assert all(-1 - 1e-9 <= float(value) <= 1 + 1e-9 for value in values)


def test_similarity_refuses_what_does_not_fit(problem):
    a = ew.explain(*problem, index=[1, 4])
    _, model, data, _ = node_problem("gcn", "directed")
    for other in (ew.explain(*problem, index=[1, 4], level="layer"), ew.explain(model, data, index=[1, 4])):
        with pytest.raises(ew.EdgewiseError):
            ew.similarity(a, other)
    with pytest.raises(ew.EdgewiseError):
        ew.similarity(a, a, per_layer=True)
    with pytest.raises(ew.EdgewiseError):
        ew.similarity(a, ew.explain(*problem, index=[0, 2]))


# Other libraries ######################################################################################################


def test_to_pyg_gives_an_explanation_that_pyg_accepts(problem):
    _, data = problem
    why = ew.explain(*problem, index=1)
    found = why.to_pyg()
    assert isinstance(found, PyGExplanation)
    assert torch.equal(found.edge_mask, why.scores)
    assert torch.equal(found.edge_index, data.edge_index)
    assert found.validate(raise_on_error=True)


def test_to_pyg_sums_the_layers_and_keeps_them_beside(problem):
    why = ew.explain(*problem, index=1, level="layer")
    found = why.to_pyg()
    assert torch.allclose(found.edge_mask, why.scores.sum(dim=0))
    assert torch.equal(found.layer_edge_mask, why.scores.t())


@pytest.mark.parametrize("level", LEVELS)
def test_to_networkx_keeps_nodes_directions_and_parallel_edges(problem, level):
    networkx = pytest.importorskip("networkx")
    why = ew.explain(*problem, index=1, level=level)
    graph = why.to_networkx()
    assert isinstance(graph, networkx.MultiDiGraph)
    pairs = sorted(map(tuple, why.edge_index.t().tolist()))
    assert sorted((a, b) for a, b in graph.edges()) == pairs
    assert sorted(graph.nodes()) == list(range(8))
    total = why.scores if level == "input" else why.scores.sum(dim=0)
    found = sorted(edge["score"] for _, _, edge in graph.edges(data=True))
    assert found == pytest.approx(sorted(total.tolist()))


# The table of methods #################################################################################################


def field(record, name):
    return record[name] if isinstance(record, dict) else getattr(record, name)


def test_the_table_of_methods_lists_levels_settings_cost_and_reference():
    table = ew.methods()
    assert set(METHODS) <= set(table)
    for name in METHODS:
        assert set(field(table[name], "levels")) == set(LEVELS)
        assert field(table[name], "cost")
        assert field(table[name], "reference")
    defaults = dict(field(table["gnn_explainer"], "settings"))
    assert {name: defaults[name] for name in ("epochs", "lr", "edge_size", "edge_ent")} == {
        "epochs": 100,
        "lr": 0.01,
        "edge_size": 0.005,
        "edge_ent": 1.0,
    }
    assert dict(field(table["integrated_gradients"], "settings"))["steps"] == 50
    assert dict(field(table["positive_gradient"], "settings"))["epsilon"] == 0
    assert not dict(field(table["gradient"], "settings"))


def test_the_table_of_methods_prints_as_a_table():
    lines = str(ew.methods()).splitlines()
    for name in METHODS:
        assert sum(line.strip(" |").split(" ")[0].strip("|` ") == name for line in lines) == 1, name


def test_the_table_of_methods_cannot_be_changed_by_accident():
    with contextlib.suppress(TypeError):
        ew.methods()["gradient"] = None
    assert ew.methods()["gradient"] is not None


def test_names_are_listed_without_loading_torch():
    program = (
        "import edgewise, sys; assert 'explain' in dir(edgewise); assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_names_are_what_they_should_be_whatever_was_imported_before():
    # Submodules and public names share words (`explain`, `methods`): importing one must not hide the other.
    program = """
import importlib, pkgutil, types
import edgewise
for module in pkgutil.walk_packages(edgewise.__path__, "edgewise."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
hidden = [name for name in edgewise.__all__ if isinstance(getattr(edgewise, name), types.ModuleType)]
assert not hidden, f"hidden by a module of the same name: {hidden}"
assert "gradient" in edgewise.methods()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="explane"):
        ew.explane  # noqa: B018
