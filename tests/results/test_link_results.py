"""Results of links: pairs as indices, files, tables, similarity, walks, questions, metrics, the page and the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import edgewise as ew
from checks import assert_close
from command_line import call
from link_models import PAIRS, SlowPair, link_graph, make_model

DISTINCT = PAIRS[:6]


@pytest.fixture
def found():
    return ew.explain(make_model("gcn, dot"), link_graph(), DISTINCT, task="link", level="layer")


@pytest.mark.parametrize("name", ["why.npz", "why.parquet"])
def test_files_give_back_every_pair_and_score(name, found, tmp_path):
    found.save(tmp_path / name)
    loaded = ew.load(tmp_path / name)
    assert torch.equal(loaded.index, found.index)
    assert [why.index for why in loaded] == DISTINCT
    for mine, theirs in zip(found, loaded, strict=True):
        assert torch.equal(mine.scores, theirs.scores)
        assert torch.equal(mine.self_scores, theirs.self_scores)
        assert mine.value == theirs.value


def test_pairs_are_looked_up_and_matched_as_pairs(found):
    assert found.of((2, 6)).index == (2, 6)
    with pytest.raises(ew.InputError, match="not among"):
        found.of((6, 2))
    order = [3, 0, 2, 1, 5, 4]
    cosine = ew.similarity(found, found[order])
    defined = ~cosine.isnan()
    assert defined.sum() >= 4
    assert_close(cosine[defined], torch.ones_like(cosine[defined]), 1e-9)
    assert ew.similarity(found[0], found.of((0, 1))) == pytest.approx(1.0)
    with pytest.raises(ew.InputError, match="missing in the second"):
        ew.similarity(found, found[:2])


def test_tables_have_a_column_for_each_end(found):
    rows = found.to_rows()
    assert {(row["index"], row["index_to"]) for row in rows} <= set(DISTINCT)
    one = found.of((2, 6)).to_rows()
    assert one
    assert {(row["index"], row["index_to"]) for row in one} == {(2, 6)}
    assert [{name: row[name] for name in one[0]} for row in rows if row["position"] == 3] == one


def test_a_connected_subgraph_hangs_on_either_end(found):
    why = found.of((2, 6))
    chosen = why.subgraph(connected=True, by="magnitude")
    assert set(why.edge_index[1, chosen.mask.any(dim=0)].tolist()) & {2, 6}


@pytest.mark.parametrize("without_itself", [False, True])
def test_walks_to_both_ends_add_up_to_the_gradient_along_the_features(without_itself):
    model, data = make_model("gcn, dot"), link_graph()
    options = {"task": "link", "without_itself": without_itself}
    walks = ew.walks(model, data, (0, 1), k=10_000, search="exhaustive", sign="magnitude", **options)
    assert {walk.nodes[-1] for walk in walks} == {0, 1}
    slow = SlowPair(model, data, (0, 1), without_itself=without_itself)
    x = slow.twin.data.x.clone().requires_grad_()
    slow.twin.data.x = x
    (gradient,) = torch.autograd.grad(slow(slow.ones()[0]), x)
    assert sum(walk.score for walk in walks) == pytest.approx(float((gradient * x).sum().detach()), abs=1e-9)
    best = ew.walks(model, data, DISTINCT, k=2, **options)
    assert best[0].exact
    assert best[0].index == (0, 1)
    assert best[0][0].score == pytest.approx(max(walk.score for walk in walks))


def test_a_question_about_links_answers_everything(tmp_path):
    model, data = make_model("gcn, dot"), link_graph()
    ask = ew.Question(model, data, DISTINCT, task="link")
    assert ask.index == DISTINCT
    assert ask.of((4, 4)).index == (4, 4)
    assert "link, 6 targets" in str(ask)
    assert_close(ask.of([(2, 6)]).explain()[0].scores, ask.explain()[3].scores, 1e-12)
    assert "6 links" in str(ask.check())
    assert ask.compare(methods=["gradient", "occlusion"]).pair("gradient", "occlusion").mean > 0.5
    page = ask.page(tmp_path / "why.html", methods=["gradient"], check=False).read_text(encoding="utf-8")
    assert "Why these 6 links?" in page
    data.x = data.x + 1
    with pytest.raises(ew.StaleQuestionError, match=r"data\.x"):
        ask.explain()


@pytest.mark.parametrize("without_itself", [False, True])
def test_fidelity_asks_the_model_about_the_same_pairs(without_itself):
    model, data = make_model("gcn, dot"), link_graph()
    found = ew.explain(model, data, DISTINCT, task="link", without_itself=without_itself)
    assert len(ew.metrics.fidelity(found, model, data, k=2).plus) == len(DISTINCT)
    two = ew.metrics.fidelity(found[:2], model, data, k=2)  # [T, 2] must not be taken for [2, T]
    assert two.plus.value.tolist() == pytest.approx(
        ew.metrics.fidelity(found, model, data, k=2).plus.value[:2].tolist(), nan_ok=True
    )


def test_noise_and_flips_are_measured_pair_by_pair():
    model, data = make_model("gcn, dot"), link_graph()
    two = ew.metrics.stability_under_noise(model, data, [(0, 1), (2, 6)], noise=1e-6, draws=2, task="link")
    assert bool((two.worst.value > 0.999).all())
    flips = ew.trust.sign_flips(model, data, [(0, 1), (2, 6)], task="link")
    assert flips.index.tolist() == [[0, 1], [2, 6]]


def test_pyg_explainers_are_refused_with_a_sentence():
    from torch_geometric.explain import GNNExplainer

    with pytest.raises(ew.SettingError, match="cannot explain links"):
        ew.explain(
            make_model("gcn, dot"), link_graph(), (0, 1), task="link", method=ew.from_pyg(GNNExplainer(epochs=1))
        )


# --- the command line ---------------------------------------------------------------------------------------------------

MODEL = """
import torch
from torch_geometric.nn import SAGEConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, x, edge_index, edge_label_index):
        z = self.conv(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = link_graph()
    arrays = {"x": graph.x.numpy(), "edge_index": graph.edge_index.numpy()}
    np.savez(tmp_path / "graph.npz", **arrays, edge_label_index=np.array([[2, 8], [6, 9]]))
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "pairs.csv").write_text("source,target\n0,1\n2,6\n")
    return tmp_path


def asked(*options, code=0):
    return call("explain", "--model", "net.py:Net", "--data", "graph.npz", "--json", *options, code=code)


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        (["--link", "0:1,2:6", "--link", "4:4"], [[0, 1], [2, 6], [4, 4]]),
        (["--link", "pairs.csv", "--without-itself"], [[0, 1], [2, 6]]),
        (["--task", "link"], [[2, 6], [8, 9]]),
    ],
)
def test_links_are_named_by_pairs_files_or_the_data(folder, options, pairs):
    done = asked(*options)
    told = json.loads(done.stdout)
    assert told["task"] == "link"
    assert [target["index"] for target in told["targets"]] == pairs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--link", "3"], "--link 3:17"),
        (["--link", "3:99"], "there are 10 nodes"),
        (["--link", "0:1", "--task", "node"], "--task link"),
        (["--task", "link", "--index", "3"], "--link 3:17"),
        (["--link", "none.csv"], "none.csv"),
        (["--index", "3", "--without-itself"], "--task link"),
    ],
)
def test_links_that_cannot_be_read_are_refused(folder, options, said):
    done = asked(*options, code=1)
    assert said in json.loads(done.stdout)["error"]


def test_a_table_of_links_and_a_page_are_written(folder):
    asked("--link", "0:1", "--out", "why.csv", "--page", "why.html")
    assert Path("why.csv").read_text().startswith("position,index,index_to,target")
    assert "Why link 0 – 1?" in Path("why.html").read_text(encoding="utf-8")
