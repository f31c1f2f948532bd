"""Labels never change scores, but where they contradict what was understood the call is refused and names the mode."""

import re
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool, to_hetero

import edgewise as ew
from checks import assert_close

N = 10
NAN = float("nan")


def graph(seed=0, **more):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.randint(0, N, (2, 40), generator=generator), **more)


class Net(nn.Module):
    def __init__(self, width, head=None, *, pooled=False):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two, self.head, self.pooled = GCNConv(4, 5), GCNConv(5, width), head, pooled
        self.double().eval()

    def forward(self, x, edge_index, batch=None):
        z = self.two(self.one(x, edge_index).relu(), edge_index)
        z = global_mean_pool(z, batch) if self.pooled else z
        return z if self.head is None else self.head(z)


def hot(*rows):
    return torch.tensor(rows).repeat(N, 1)[:N]


REFUSED = {  # name: (columns, head, y, the mode that is named)
    "values": (1, None, torch.linspace(-1.67, 2.54, N), "regression"),
    "values of one task": (1, None, torch.linspace(-1.67, 2.54, N).view(-1, 1), "regression"),
    "values and gaps": (1, None, torch.tensor([0.0, NAN, 0.5] * 4)[:N], "regression"),
    "counts": (1, None, torch.arange(N), "regression"),
    "numbers below 0": (1, None, torch.arange(N) - N, "regression"),
    "values without end": (1, None, torch.tensor([0.0, 1.0, float("inf")] * 4)[:N], "such as inf.*regression"),
    "values under a sigmoid": (1, torch.sigmoid, torch.linspace(-1.67, 2.54, N), "regression"),
    "values of several tasks": (3, None, torch.randn(N, 3), "regression"),
    "values of other tasks": (1, None, torch.randn(N, 19), "regression"),
    "values, several columns": (3, None, torch.randn(N), "regression"),
    "several labels": (3, None, hot([0.0, 1.0, 1.0], [1.0, 0.0, 0.0]), "multilabel"),
    "several labels, whole": (3, None, hot([0, 1, 1], [1, 0, 0]), "multilabel"),
    "labels with gaps": (3, None, hot([0.0, NAN, 1.0], [1.0, 0.0, 0.0]), "multilabel"),
    "several labels of numpy": (3, None, hot([0, 1, 1], [1, 0, 0]).numpy(), "several labels in a row.*multilabel"),
    "several labels in a list": (3, None, hot([0, 1, 1], [1, 0, 0]).tolist(), "several labels in a row.*multilabel"),
    "several labels, each by itself": (3, None, hot([0, 1, 1], [1, 0, 0]).unsqueeze(-1), "several labels.*multilabel"),
    "several labels, one after the other": (3, None, hot([0, 1, 1], [1, 0, 0]).view(-1), "several labels.*multilabel"),
    "rows without a label": (3, None, hot([0, 0, 0], [1, 0, 0]), "no label in a row.*multilabel"),
    "values of numpy": (1, None, torch.linspace(-1.67, 2.54, N).numpy(), "regression"),
    "values in a list": (3, None, torch.linspace(-1.67, 2.54, N).tolist(), "regression"),
    "no label": (3, torch.nn.Softmax(dim=1), hot([0, 0, 0]), "multilabel"),
    "labels of signs": (3, None, hot([-1, 1, 1]), "multilabel"),
    "more classes": (3, None, torch.arange(N), "class 9.*0 to 2.*regression"),
}
TAKEN = {
    "one column": (1, None, torch.arange(N) % 2),
    "one column, floats": (1, None, (torch.arange(N) % 2).float().view(-1, 1)),
    "one column with gaps": (1, None, torch.tensor([0.0, 1.0, NAN] * 4)[:N]),
    "one column, unknown": (1, None, torch.tensor([0, 1, -1] * 4)[:N]),
    "signs": (1, None, torch.tensor([-1, 1] * 5)),
    "yes or no": (1, None, torch.arange(N) > 4),
    "soft labels": (1, torch.sigmoid, torch.linspace(0, 1, N)),
    "classes": (3, None, torch.arange(N) % 3),
    "classes, floats": (3, None, (torch.arange(N) % 3).double()),
    "classes, unknown": (3, None, torch.tensor([0, 2, -100, 1, 1] * 2)),
    "one hot": (3, None, torch.eye(3).repeat(4, 1)[:N]),
    "soft classes": (3, None, torch.full((N, 3), 1 / 3)),
    "several sigmoids": (3, torch.sigmoid, hot([0.0, NAN, 1.0])),
    "nothing": (3, None, None),
    "all unknown": (3, None, torch.full((N,), NAN)),
    "of something else": (3, None, torch.randn(N + 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_labels_that_contradict_are_refused_and_the_mode_is_named(name):
    width, head, y, mode = REFUSED[name]
    for index in (3, [0, 5], None):
        with pytest.raises(ew.SettingError, match=f"(?s)labels contradict.*{mode}"):
            ew.explain(Net(width, head), graph(y=y), index)


@pytest.mark.parametrize("name", REFUSED)
def test_a_mode_that_is_given_is_taken_whatever_the_labels_say(name):
    width, head, y, _ = REFUSED[name]
    mode = "binary" if width == 1 else "multiclass"
    mine = ew.explain(Net(width, head), graph(y=y), 3, mode=mode)
    theirs = ew.explain(Net(width, head), graph(), 3, mode=mode)
    assert_close(mine.scores, theirs.scores, 0.0)
    assert ew.explain(Net(width, head), graph(y=y), 3, mode="regression", target=0).settings["mode"] == "regression"


@pytest.mark.parametrize("name", TAKEN)
def test_labels_that_fit_are_taken_without_a_word(name):
    width, head, y = TAKEN[name]
    mine = ew.explain(Net(width, head), graph(y=y), 3)
    assert_close(mine.scores, ew.explain(Net(width, head), graph(), 3, mode=mine.settings["mode"]).scores, 0.0)


def test_labels_with_other_columns_are_warned_of_where_no_mode_is_given():
    data = graph(y=hot([0, 1, 1, 0, 1]))
    with pytest.warns(ew.OutputWarning, match="3 columns.*as many classes.*y has 5 columns.*mode='multiclass'"):
        ew.explain(Net(3), data, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ew.OutputWarning)
        ew.explain(Net(3), data, 3, mode="multiclass")


@pytest.mark.filterwarnings("ignore::edgewise.errors.OutputWarning")
@pytest.mark.parametrize(
    ("y", "why"),
    [
        (["a"] * N, "y is a list, in which no label is found for each"),
        (torch.zeros(1, N), r"y is a Tensor \[1, 10\]"),
        (torch.zeros(N - 3).numpy(), r"y is a ndarray \[7\]"),
        (hot([0, 1, 1, 0, 1]), "y has 5 columns, and the model gives 3"),
    ],
)
def test_labels_that_cannot_be_compared_are_said(y, why):
    model, data = Net(3), graph(y=y)
    found = ew.explain(model, data, 3)
    assert re.match(f"not compared: {why}", found.settings["labels"])
    assert re.search(why, str(ew.Question(model, data, 3)))
    assert "labels" not in ew.explain(model, graph(y=torch.arange(N) % 3), 3).settings
    graphs = [graph(seed, y=torch.zeros(1, 7)) for seed in range(3)]
    found = ew.explain(Net(4, pooled=True), graphs, 1, task="graph")
    assert found.settings["labels"] == "not compared: y has 7 columns, and the model gives 4"


def test_a_value_of_a_regression_is_refused_whatever_node_is_asked_about():
    y = torch.zeros(N).index_fill(0, torch.tensor([7]), 2.5)
    for index in (0, 7):
        with pytest.raises(ew.SettingError, match="regression"):
            ew.explain(Net(1), graph(y=y), index)


@pytest.mark.parametrize(
    "y", [None, torch.full((N,), NAN), torch.zeros(N, 5), torch.zeros(N + 1), torch.full((N,), -13.0)]
)
def test_one_column_that_nothing_bears_out_is_warned_of(y):
    with pytest.warns(ew.OutputWarning, match="one number for each node.*mode='binary'.*mode='regression'"):
        ew.explain(Net(1), graph(y=y), 3)


def test_one_column_is_not_warned_of_where_it_is_said_or_seen_what_it_is():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ew.OutputWarning)
        ew.explain(Net(1), graph(), 3, mode="binary")
        ew.explain(Net(1), graph(), 3, mode="regression")
        ew.explain(Net(1), graph(), 3, output="logit")
        ew.explain(Net(1, torch.sigmoid), graph(), 3)
        ew.explain(Net(1), graph(y=torch.arange(N) % 2), 3)
        question = ew.Question(Net(1), graph(), 3, mode="binary")
        question.of(4)


@pytest.mark.parametrize(
    ("width", "y", "mode"),
    [
        (1, [2.5, -1.0, 0.3], "regression"),
        (1, [torch.tensor([2.5]), torch.tensor([-1.0]), torch.tensor([0.0])], "regression"),
        (1, [torch.randn(1, 19)] * 3, "regression"),
        (1, [torch.tensor(4), torch.tensor(1), torch.tensor(0)], "regression"),
        (12, [torch.tensor([[0.0, 1.0, NAN] * 4])] * 3, "multilabel"),
        (12, [torch.tensor([0.0, 1.0, NAN] * 4)] * 3, "multilabel"),
        (2, [torch.tensor([0]), torch.tensor([3]), torch.tensor([1])], "class 3"),
    ],
)
def test_labels_of_graphs_that_contradict_are_refused(width, y, mode):
    graphs = [graph(seed, y=one) for seed, one in enumerate(y)]
    for index in (0, [1, 2], None):
        with pytest.raises(ew.SettingError, match=f"(?s)labels contradict.*{mode}"):
            ew.explain(Net(width, pooled=True), graphs, index, task="graph")
    with pytest.raises(ew.SettingError, match=mode):
        ew.explain(Net(width, pooled=True), graphs[0].clone() if "class" not in mode else graphs[1], task="graph")


class Links(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = SAGEConv(4, 5)
        self.double().eval()

    def encode(self, x, edge_index):
        return self.conv(x, edge_index)

    def decode(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(dim=1)


def test_labels_of_links_are_compared_and_ratings_are_refused():
    pairs = torch.tensor([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    data, model = graph(edge_label_index=pairs), Links()
    z = model.decode(model.encode(data.x, data.edge_index), pairs)
    assert "agreement" not in str(ew.Question(model, data, task="link")), (
        "there are no labels, and nothing is warned of"
    )
    data.edge_label = (z > 0).float()
    data.edge_label[2] = 1 - data.edge_label[2]
    assert "agreement with edge_label" in str(ew.Question(model, data, task="link"))
    assert "4 of 5 predictions" in str(ew.Question(model, data, task="link"))
    assert "1 of 2 predictions" in str(ew.Question(model, data, [(2, 7), (1, 6), (0, 1)], task="link")), (
        "(0, 1) has no label"
    )
    data.edge_label = torch.tensor([5.0, 3.0, 1.0, 4.5, 2.0])
    with pytest.raises(ew.SettingError, match="regression"):
        ew.explain(model, data, (2, 7), task="link")
    assert ew.explain(model, data, (2, 7), task="link", mode="regression").value == pytest.approx(float(z[2].detach()))


def agreement(question):
    lines = [line for line in str(question).splitlines() if "agreement" in line]
    return lines[0].split("y", 1)[1].strip() if lines else ""


def test_predictions_are_compared_with_labels_on_the_right_scale():
    plain = Net(1)
    z = plain(graph().x, graph().edge_index).view(-1)
    right = (z > 0).long()
    for y in (right, right.double(), right.view(-1, 1), right * 2 - 1):
        for head in (None, torch.sigmoid, nn.functional.logsigmoid):
            assert agreement(ew.Question(Net(1, head), graph(y=y))).startswith("10 of 10")
        assert agreement(ew.Question(Net(1, lambda z: 1 - z.sigmoid()), graph(y=y))).startswith("0 of 10")
    unknown = right.double().index_fill(0, torch.tensor([0, 1]), NAN)
    assert agreement(ew.Question(plain, graph(y=unknown))).startswith("8 of 8")
    assert agreement(ew.Question(plain, graph(y=unknown), [0, 1])) == ""


def test_predictions_for_graphs_are_compared_with_labels():
    model = Net(3, pooled=True)
    graphs = [graph(seed) for seed in range(6)]
    for one in graphs:
        one.y = model(one.x, one.edge_index).argmax(dim=1)
    graphs[4].y = (graphs[4].y + 1) % 3
    assert agreement(ew.Question(model, graphs, task="graph")).startswith("5 of 6")
    assert agreement(ew.Question(model, graphs, [4, 5], task="graph")).startswith("1 of 2")


def test_several_labels_are_compared_column_by_column():
    model = Net(3, torch.sigmoid)
    rows = Net(3)(graph().x, graph().edge_index)
    y = (rows > 0).double()
    y[:4, 1] = NAN
    y[5, 1] = 1 - y[5, 1]
    assert agreement(ew.Question(model, graph(y=y), target=1)).startswith("5 of 6")


def test_types_have_labels_of_their_own():
    data = HeteroData()
    torch.manual_seed(0)
    for name in ("paper", "author"):
        data[name].x = torch.randn(6, 4)
    data["paper", "cites", "paper"].edge_index = torch.randint(0, 6, (2, 12))
    data["author", "writes", "paper"].edge_index = torch.randint(0, 6, (2, 12))
    data["paper", "rev", "author"].edge_index = torch.randint(0, 6, (2, 12))

    class Sage(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv((-1, -1), 1)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    model = to_hetero(Sage(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    data["author"].y, data["paper"].y = torch.randn(6), torch.tensor([0, 1, 0, 1, 0, 1])
    assert ew.explain(model, data, ("paper", 3)).settings["mode"] == "binary"
    with pytest.raises(ew.SettingError, match="regression"):
        ew.explain(model, data, ("author", 3))


# --- All classes in one call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [None, torch.sigmoid])
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_all_columns_are_explained_target_by_target(head, method):
    found = ew.explain(Net(3, head), graph(), [3, 7], target="all", method=method)
    assert [(why.index, why.target) for why in found] == [(i, c) for i in (3, 7) for c in range(3)]
    for why in found:
        one = ew.explain(Net(3, head), graph(), why.index, target=why.target, method=method)
        assert_close(why.scores, one.scores, 1e-12)
        assert why.value == pytest.approx(one.value)
    assert len(ew.explain(Net(3, head), graph(), 3, target="all")) == 3


def test_all_outputs_of_a_regression_and_all_labels_of_graphs():
    found = ew.explain(Net(2), graph(), 3, target="all", mode="regression")
    assert [why.target for why in found] == [0, 1]
    graphs, model = [graph(seed) for seed in range(3)], Net(4, pooled=True)
    found = ew.explain(model, graphs, task="graph", target="all", mode="multilabel")
    rows = torch.cat([model(one.x, one.edge_index) for one in graphs])
    assert_close(torch.tensor([why.value for why in found]).view(3, 4).double(), rows.detach(), 1e-6)
    features = ew.features(model, graphs, [1], task="graph", target="all", mode="multilabel")
    assert [why.target for why in features] == [0, 1, 2, 3]
    assert [walks.target for walks in ew.walks(Net(3), graph(), 3, target="all")] == [0, 1, 2]
    with pytest.raises(ew.SettingError, match="one score"):
        ew.explain(Links(), graph(), (2, 7), task="link", target="all")
    with pytest.raises(ew.SettingError, match="all"):
        ew.explain(Net(3), graph(), 3, target="every")
