"""What a counterfactual says about itself: words, tables, files, pictures."""

import json

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, HeteroConv, SAGEConv

import edgewise as ew
from edgewise.results.counterfactual_set import Counterfactual
from edgewise.results.explanation import Settings


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(4)
    model = GCN(4, 8, 2, 3).double().eval()
    ends = torch.randint(12, (2, 18))
    data = Data(x=torch.randn(12, 4).double(), edge_index=torch.cat([ends, ends.flip(0)], dim=1))
    return model, data, ew.counterfactual(model, data, range(12), undirected=True)


def test_the_sentence_has_the_names_of_the_data(problem):
    _, data, every = problem
    one = next(one for one in every if (one.size or 0) > 0)
    source, receiver = data.edge_index[:, one.units[0][0]].tolist()
    labels = [f"account {node}" for node in range(12)]
    words = one.sentence(noun="payment", labels=labels, classes=["clean", "odd", "fraud"])
    which = "this payment" if one.size == 1 else f"these {one.size} payments"
    name = ["clean", "odd", "fraud"][one.flips_to]
    assert words.startswith(f"Without {which} (account {source} – account {receiver}")
    assert words.endswith(f": {name}, {one.probability():.0%}.")
    assert one.sentence(labels={source: "Ann"}).count("Ann") >= 1
    assert str(one).startswith(f"node {one.index} (proven). Without")
    assert repr(one).startswith(f"Counterfactual(index={one.index}, target={one.target}, status='proven', edges=(")


def test_both_directions_are_listed_and_flip(problem):
    model, data, every = problem
    for one in every:
        for unit in one.units:
            ends = {frozenset(data.edge_index[:, column].tolist()) for column in unit}
            assert len(ends) == 1
            assert len(unit) % 2 == 0
        if one.size:
            score = ew.Score(model, data, [one.index])
            weight = (~torch.isin(score.edge_id, torch.tensor(one.edges))).double()
            assert int(score.output(weight.expand(2, -1)).argmax()) == one.flips_to


def test_a_set_counts_and_tabulates(problem, tmp_path):
    _, _, every = problem
    counts = every.counts()
    assert sum(counts.values()) == len(every) == 12
    assert repr(every) == f"CounterfactualSet(12 targets: {counts['proven']} proven, {counts['none']} none, 0 open)"
    assert len(every[:3]) == 3
    frame = every.to_frame()
    assert list(frame["index"]) == list(range(12))
    one = next(one for one in every if (one.size or 0) > 0)
    assert len(one.to_frame()) == len(one.edges)
    assert list(one.to_frame()["column"]) == [column for unit in one.units for column in unit]
    said = json.loads(every.save(tmp_path / "flips.json").read_text())
    assert said["counts"] == counts
    assert said["targets"][one.index]["edges"] == list(one.edges)
    assert json.loads(one.save(tmp_path / "flip.json").read_text())["status"] == "proven"


def test_the_words_for_none_and_open(problem):
    model, data, every = problem
    for one in every:
        if one.status == "none":
            assert one.sentence() == (
                f"No set of edges changes the prediction (class {one.target}): all {one.num_units} edges were considered."
            )
    large = next(one for one in every if (one.size or 0) > 1)
    capped = ew.counterfactual(model, data, large.index, undirected=True, size=large.size - 1)
    assert capped.status == "open"
    assert f"no set of fewer than {large.size} does" in capped.sentence()


def test_a_picture_shows_the_edges_that_go(problem):
    pytest.importorskip("matplotlib")
    _, _, every = problem
    one = next(one for one in every if (one.size or 0) > 0)
    figure = one.plot(labels={one.index: "me"})
    assert figure.get_suptitle() == f"the fewest edges that flip node {one.index} (proven)"
    assert "Without" in figure.legends[0].get_title().get_text()
    assert sum(type(patch).__name__ == "FancyArrowPatch" for patch in figure.axes[0].patches) == len(one.edges)
    nothing = next((one for one in every if one.status == "none"), None)
    if nothing is not None:
        assert "No set of" in nothing.plot().legends[0].get_title().get_text()


def test_edges_of_a_typed_graph_have_their_types():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = (("user", "rates", "movie"), ("movie", "rated", "user"))
            self.conv = HeteroConv({kind: SAGEConv((3, 3), 2, aggr="sum") for kind in kinds}, aggr="sum")

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)["movie"]

    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.randn(4, 3).double(), torch.randn(3, 3).double()
    ends = torch.tensor([[0, 1, 2, 3, 0], [0, 0, 0, 1, 1]])
    data["user", "rates", "movie"].edge_index, data["movie", "rated", "user"].edge_index = ends, ends.flip(0)
    model = Net().double().eval()
    found = ew.counterfactual(model, data, ("movie", [0, 1, 2]))
    for one in found:
        assert one.index[0] == "movie"
        assert all(kind == ("user", "rates", "movie") for kind, _ in one.edges)
        columns = [column for _, column in one.edges]
        kept = [column for column in range(5) if column not in columns]
        if one.size:
            changed = data.clone()
            changed["user", "rates", "movie"].edge_index = ends[:, kept]  # a sum: silenced is removed
            row = model(changed.x_dict, changed.edge_index_dict)[one.index[1]]
            assert int(row.argmax()) == one.flips_to != one.target
            assert "rates" not in one.sentence()
            assert one.sentence().startswith("Without")


def test_what_is_certified_to_a_tolerance_is_not_called_proven_anywhere():
    for status, words in (("proven", "certified to a tolerance"), ("none", "none, certified to a tolerance")):
        one = Counterfactual(
            3, 1, status, (0,) if status == "proven" else (), 0 if status == "proven" else None, 1,
            ((0,),) if status == "proven" else (), 1, (0.0, 1.0), (1.0, 0.0) if status == "proven" else None,
            Settings({"tolerance": 1e-10, "mode": "multiclass"}), torch.tensor([[1], [3]]), 4,
        )  # fmt: skip
        assert str(one).startswith(f"node 3 ({words} of 1e-10")
        assert "proven" not in str(one)
        assert one.to_dict()["status"] == status
        assert all(row["certainty"].startswith("certified") for row in one.to_rows())
