"""What a model returns is read off its last operation: logits are explained, whatever comes out."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool

import edgewise as ew
from checks import assert_close


def graph(nodes=12, edges=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.randint(0, nodes, (2, edges), generator=generator))


class Net(nn.Module):
    def __init__(self, head, width, conv=GCNConv):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two, self.head = conv(4, 5), conv(5, width), head
        self.double().eval()

    def logits(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)

    def forward(self, x, edge_index):
        return self.head(self.logits(x, edge_index))


class Plain(Net):
    def forward(self, x, edge_index):
        return self.logits(x, edge_index)


SEVERAL = {
    "log_softmax": (lambda z: functional.log_softmax(z, dim=1), "log_prob"),
    "method": (lambda z: z.log_softmax(-1), "log_prob"),
    "softmax": (lambda z: torch.softmax(z, dim=-1), "prob"),
    "module": (nn.LogSoftmax(dim=1), "log_prob"),
    "sequence": (nn.Sequential(nn.Identity(), nn.Softmax(dim=1)), "prob"),
}
ONE = {
    "sigmoid": (torch.sigmoid, "prob"),
    "squeezed": (lambda z: torch.sigmoid(z).squeeze(-1), "prob"),
    "logsigmoid": (functional.logsigmoid, "log_prob"),
    "module": (nn.Sigmoid(), "prob"),
}


@pytest.mark.parametrize("conv", [GCNConv, lambda a, b: SAGEConv(a, b, aggr="max")], ids=["lowered", "copies"])
@pytest.mark.parametrize("name", SEVERAL)
def test_under_a_softmax_the_logits_are_explained(name, conv):
    head, output = SEVERAL[name]
    data, model = graph(), Net(head, 3, conv)
    plain = Plain(None, 3, conv)
    for of in ("logit", "log_prob", "prob"):
        mine, theirs = (ew.explain(one, data, level="layer", of=of) for one in (model, plain))
        assert mine.settings["output"] == output
        for a, b in zip(mine, theirs, strict=True):
            assert a.target == b.target
            assert_close(a.scores, b.scores, 1e-10)
            assert a.value == pytest.approx(b.value, abs=1e-10)


@pytest.mark.parametrize("name", ONE)
def test_under_a_sigmoid_the_class_is_decided_at_one_half(name):
    head, output = ONE[name]
    data, model, plain = graph(), Net(head, 1), Plain(None, 1)
    found = ew.explain(model, data)
    assert [why.target for why in found] == (plain(data.x, data.edge_index)[:, 0] > 0).long().tolist()
    assert {why.target for why in found} == {0, 1}, "one class alone proves nothing"
    for mine, theirs in zip(found, ew.explain(plain, data), strict=True):
        assert_close(mine.scores, theirs.scores, 1e-10)
    assert found.settings["output"] == output


@pytest.mark.parametrize(
    "handed_on", [lambda z: functional.dropout(z, training=False), lambda z: z.contiguous().to(z.dtype)]
)
def test_an_operation_that_hands_its_tensor_on_is_looked_through(handed_on):
    data = graph()
    assert ew.explain(Net(handed_on, 3), data, 3).settings["output"] == "logit"
    model = Net(lambda z: handed_on(torch.softmax(handed_on(z), dim=1)), 3)
    assert ew.explain(model, data, 3).settings["output"] == "prob"


def test_probabilities_are_the_models_own():
    data, model = graph(), Net(SEVERAL["softmax"][0], 3)
    prob = model(data.x, data.edge_index).max(dim=1).values
    found = ew.explain(model, data, of="prob")
    assert_close(torch.tensor([why.value for why in found], dtype=torch.float64), prob.detach(), 1e-12)


def test_several_sigmoids_are_several_labels():
    data, model, plain = graph(), Net(torch.sigmoid, 3), Plain(None, 3)
    rows = plain(data.x, data.edge_index)
    found = ew.explain(model, data)
    assert found.settings["mode"] == "multilabel"
    assert [why.target for why in found] == rows.argmax(dim=1).tolist()
    one = ew.explain(model, data, 3, target=0, of="prob")
    assert one.value == pytest.approx(float(rows[3, 0].detach().sigmoid()))
    assert_close(ew.explain(model, data, 3, target=0).scores, ew.explain(plain, data, 3, target=0).scores, 1e-10)


def test_a_head_that_cannot_be_seen_is_warned_about():
    @torch.jit.script
    def hidden(z: torch.Tensor) -> torch.Tensor:
        return torch.softmax(z, dim=1)

    data, model = graph(), Net(hidden, 3)
    with pytest.warns(ew.OutputWarning, match="output='prob'"):
        ew.explain(model, data, 3)
    found = ew.explain(model, data, 3, output="prob", of="log_prob")
    assert_close(found.scores, ew.explain(Plain(None, 3), data, 3, of="log_prob").scores, 1e-9)
    with pytest.raises(ew.SettingError, match="of='log_prob'"):
        ew.explain(model, data, 3, output="prob")


def test_one_probability_that_cannot_be_seen_has_its_logit():
    @torch.jit.script
    def hidden(z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(z)

    data, model = graph(), Net(hidden, 1)
    found = ew.explain(model, data, 3, output="prob")
    assert_close(found.scores, ew.explain(Plain(None, 1), data, 3).scores, 1e-8)


def test_an_output_that_contradicts_the_head_is_refused():
    data, model = graph(), Net(SEVERAL["log_softmax"][0], 3)
    with pytest.raises(ew.SettingError, match="log_softmax"):
        ew.explain(model, data, 3, output="prob")
    with pytest.raises(ew.SettingError, match="Choose one of"):
        ew.explain(model, data, 3, output="percent")


def test_a_regression_keeps_its_last_operation():
    data, model = graph(), Net(torch.sigmoid, 1)
    found = ew.explain(model, data, 3, mode="regression")
    assert found.value == pytest.approx(float(model(data.x, data.edge_index)[3].detach()))
    assert found.settings["output"] == "value"
    assert_close(found.scores, ew.explain(model, data, 3, output="value").scores, 0.0)


def halved_after(z):
    p = torch.sigmoid(z)
    z.mul_(0.5)
    return p


def written_through_a_view(z):
    p = torch.sigmoid(z.view(-1))
    z.neg_()
    return p


def shifted_after(z):
    p = z.softmax(1)
    z -= 5 * torch.arange(3.0)
    return p


def rectified_after(z):
    p = functional.log_softmax(input=z, dim=1)
    functional.relu(z, inplace=True)
    return p


IN_PLACE = {
    "sigmoid_": (lambda z: z.sigmoid_(), torch.sigmoid, 1),
    "torch.sigmoid_": (torch.sigmoid_, torch.sigmoid, 1),
    "halved after": (halved_after, torch.sigmoid, 1),
    "through a view": (written_through_a_view, torch.sigmoid, 1),
    "shifted after": (shifted_after, lambda z: z.softmax(1), 3),
    "rectified after": (rectified_after, lambda z: z.log_softmax(1), 3),
}


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_logits_are_those_that_the_head_read_whatever_is_written_later(name, method):
    in_place, plain, width = IN_PLACE[name]
    data = graph()
    for of in ("logit", "prob"):
        mine, theirs = (ew.explain(Net(head, width), data, method=method, of=of) for head in (in_place, plain))
        for a, b in zip(mine, theirs, strict=True):
            assert (a.target, a.value) == (b.target, pytest.approx(b.value, abs=1e-10))
            assert_close(a.scores, b.scores, 1e-10)


def test_logits_of_links_and_graphs_under_a_sigmoid_in_place_are_those_that_it_read():
    class Links(nn.Module):
        def __init__(self, head):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = GCNConv(4, 5), head

        def encode(self, x, edge_index):
            return self.conv(x, edge_index)

        def decode(self, z, pairs):
            return self.head((z[pairs[0]] * z[pairs[1]]).sum(-1))

    class Graphs(Links):
        def forward(self, x, edge_index, batch):
            return self.head(global_mean_pool(self.conv(x, edge_index), batch)[:, 0])

    heads = (torch.sigmoid_, torch.sigmoid)
    pairs, graphs = torch.tensor([[0, 2, 5], [1, 3, 6]]), [graph(6, 12, seed) for seed in range(3)]
    for mine, theirs in (
        (ew.explain(Links(head).double().eval(), graph(), pairs, task="link") for head in heads),
        (ew.explain(Graphs(head).double().eval(), graphs, task="graph") for head in heads),
    ):
        for a, b in zip(mine, theirs, strict=True):
            assert a.value == pytest.approx(b.value, abs=1e-10)
            assert_close(a.scores, b.scores, 1e-10)


def test_a_sigmoid_written_into_one_column_is_no_head_of_all():
    def one_column(z):
        z[:, 0].sigmoid_()
        return z

    with pytest.warns(ew.OutputWarning, match="sigmoid"):
        found = ew.explain(Net(one_column, 3), graph(), 3, target=2)
    assert found.settings["output"] == "logit"


def test_graph_tasks_too():
    class Pooled(nn.Module):
        def __init__(self, head):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.lin, self.head = SAGEConv(4, 5), nn.Linear(5, 3), head

        def forward(self, x, edge_index, batch):
            return self.head(self.lin(global_mean_pool(self.conv(x, edge_index).relu(), batch)))

    graphs = [graph(6, 12, seed) for seed in range(4)]
    mine, theirs = (Pooled(head).double().eval() for head in (nn.LogSoftmax(dim=1), nn.Identity()))
    for a, b in zip(*(ew.explain(one, graphs, task="graph", level="layer") for one in (mine, theirs)), strict=True):
        assert_close(a.scores, b.scores, 1e-10)
        assert a.value == pytest.approx(b.value)
