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
