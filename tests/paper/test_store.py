"""Rows, tasks, the store and the clock."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise.errors import SettingError
from edgewise.files import versions
from edgewise_paper import task as tasks_module
from edgewise_paper.registry import EXPERIMENTS, choose, find
from edgewise_paper.runner import Clock
from edgewise_paper.store import Store
from edgewise_paper.task import KEY, PaperOptions, Row, Task, TaskOutcome, fingerprint
from zoo import GRAPHS

SETTINGS = {"dataset": "Cora", "architecture": "GCN", "layers": 2, "seed": 3, "explainer": {"lr": 0.01}}


def task(**changed):
    return Task("sgc", "input similarity", SETTINGS | changed)


# Rows and tasks #######################################################################################################


def test_a_row_carries_settings_seed_and_versions_of_its_task():
    row = task().row("cosine", 0.5, method="gradient", seconds=2.0)
    assert (row.experiment, row.dataset, row.architecture, row.layers, row.seed) == ("sgc", "Cora", "GCN", 2, 3)
    assert row.settings["explainer"] == {"lr": 0.01}
    assert row.settings["part"] == "input similarity"
    assert row.versions == versions()
    assert set(versions()) >= {"edgewise", "torch", "torch_geometric", "numpy", "python"}
    assert row.seconds == 2.0


def test_rows_of_different_seeds_have_one_key():
    assert task().row("cosine", 1.0).key == task(seed=4).row("cosine", 2.0).key
    assert task().row("cosine", 1.0).key != task(layers=3).row("cosine", 1.0).key


def test_columns_are_flat():
    assert {type(value) for value in task().row("cosine", 0.5).columns().values()} <= {str, int, float}


@given(
    st.dictionaries(st.text(max_size=3), st.integers() | st.floats(allow_nan=False) | st.text(max_size=3), max_size=4)
)
def test_a_fingerprint_depends_on_settings_and_not_on_their_order(settings):
    backwards = dict(reversed(list(settings.items())))
    assert fingerprint(settings) == fingerprint(backwards)
    assert fingerprint(settings) != fingerprint(settings | {"one more": 1})


def test_a_change_of_any_setting_or_of_the_code_changes_the_key(monkeypatch):
    keys = {task().key, task(seed=4).key, task(explainer={"lr": 0.003}).key, Task("sgc", "accuracy", SETTINGS).key}
    assert len(keys) == 4
    monkeypatch.setattr(tasks_module, "REVISION", tasks_module.REVISION + 1)
    assert task().key not in keys


# Store ################################################################################################################


def test_a_kept_result_is_read_back_as_it_was(tmp_path):
    store, one = Store(tmp_path), task()
    rows = [one.row("cosine", 0.25, deviation=0.5, count=7), one.row("cosine", math.nan, method="ε = 0")]
    assert store.result(one) is None
    assert not store.has(one)
    store.keep_result(one, TaskOutcome(rows, {"picture": {"nodes": [1, 2]}}))
    found = store.result(one)
    assert store.has(one)
    assert found.pictures == {"picture": {"nodes": [1, 2]}}
    assert str(found.rows) == str(rows)  # NaN is not equal to itself


def test_a_file_that_is_not_a_result_counts_as_none(tmp_path):
    store, one = Store(tmp_path), task()
    store.path("results", one.key).write_text('{"rows": [{"nonsense": 1}]}')
    assert store.result(one) is None


def test_tensors_are_kept_without_pickles_of_anything_else(tmp_path):
    store = Store(tmp_path)
    model = GCN(2, 3, 2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2), torch.tensor([[0], [1]])).sum().backward()
    optimizer.step()
    store.keep_tensors(
        "checkpoints", "a", {"epoch": 4, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    )
    found = store.tensors("checkpoints", "a")
    assert found["epoch"] == 4
    assert torch.equal(found["model"]["convs.0.bias"], model.convs[0].bias)
    optimizer.load_state_dict(found["optimizer"])
    store.drop("checkpoints", "a")
    assert store.tensors("checkpoints", "a") is None
    torch.save({"evil": Store}, store.path("models", "b"))
    assert store.tensors("models", "b") is None  # refused by torch: it counts as damaged


def test_explanations_are_kept(tmp_path):
    store, data = Store(tmp_path), GRAPHS["directed"]()
    found = ew.explain(GCN(data.num_features, 4, 2, 3).to(data.x.dtype).eval(), data)
    assert store.explanations("x") is None
    store.keep_explanations("x", found)
    assert torch.equal(store.explanations("x").edges.score, found.edges.in_order().score)
    store.path("explanations", "x").write_bytes(b"broken")
    assert store.explanations("x") is None


# Registry, options, clock #############################################################################################


def test_every_experiment_has_tasks_of_its_own_name_in_both_sizes(tmp_path):
    for quick in (False, True):
        options = PaperOptions(tmp_path, quick=quick)
        for name, experiment in EXPERIMENTS.items():
            found = experiment.tasks(options)
            if name == "sentiment-trees":  # only where the treebank lies, and never quick: test_sentiment.py
                continue
            only_in_full = quick and experiment.published and name != "published-nodes"
            assert bool(found) != only_in_full, name
            if only_in_full:
                continue
            assert {one.experiment for one in found} == {name}
            assert len({one.key for one in found}) == len(found), f"two tasks of {name} are the same"
            assert all(one.cost > 0 for one in found)


def test_a_quick_run_is_never_taken_for_a_full_one(tmp_path):
    keys = [
        {
            one.key
            for experiment in EXPERIMENTS.values()
            for one in experiment.tasks(PaperOptions(tmp_path, quick=quick))
            if "training" in one.settings
        }
        for quick in (False, True)
    ]
    assert not keys[0] & keys[1]


def test_cheap_experiments_take_more_seeds_and_proteins_one(tmp_path):
    options = PaperOptions(tmp_path, seeds=3)
    assert {one.settings["seed"] for one in find("infection").tasks(options)} == set(range(10))
    assert {one.settings["seed"] for one in find("sgc").tasks(options)} == {0, 1, 2}
    graphs = find("graph-classification").tasks(options)
    seeds = {
        name: {one.settings["seed"] for one in graphs if one.settings["dataset"] == name}
        for name in ("MUTAG", "PROTEINS")
    }
    assert seeds == {"MUTAG": {0, 1, 2}, "PROTEINS": {0}}
    full = find("graph-classification").tasks(PaperOptions(tmp_path, seeds=3, full=True))
    assert {one.settings["layers"] for one in full if one.settings["dataset"] == "PROTEINS"} == {1, 2, 3, 4, 5}


def test_an_unknown_experiment_lists_the_known_ones_and_guesses():
    with pytest.raises(SettingError, match=r"theorems.*Did you mean 'infection'\?"):
        choose(["infetcion"])


def test_experiments_are_chosen_in_the_order_of_the_table():
    assert [one.name for one in choose(["beyond", "infection"])] == ["infection", "beyond"]
    of_the_text = [name for name in EXPERIMENTS if not name.startswith("published-")]
    assert [one.name for one in choose(["all"])] == of_the_text == [one.name for one in choose([])]


def test_time_left_shrinks_with_work_and_grows_with_slowness():
    fast, slow = Clock([10.0] * 4, workers=2), Clock([10.0] * 4, workers=2)
    assert fast.left == pytest.approx(20.0)
    fast.finished(10.0, 10.0)
    slow.finished(10.0, 40.0)
    assert fast.left == pytest.approx(15.0)
    assert slow.left > fast.left
    for _ in range(3):
        slow.finished(10.0, 40.0)
    assert slow.left == 0


def test_the_key_of_a_row_is_made_of_its_columns():
    assert set(KEY) < set(Row.__dataclass_fields__)
