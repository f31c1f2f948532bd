"""Whatever stands behind an operation that makes probabilities: read exactly, or warned of; gates and attention are neither."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GatedGraphConv, GCNConv

import edgewise as ew
from checks import assert_close

PERMUTED = torch.tensor([2, 0, 1])
SWAP = torch.eye(3, dtype=torch.float64)[PERMUTED]


def graph(nodes):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.randint(0, nodes, (2, 4 * nodes), generator=generator))


class Net(nn.Module):
    def __init__(self, head, width):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two, self.lin, self.head = GCNConv(4, 5), GCNConv(5, width), nn.Linear(width, width), head
        self.double().eval()

    def forward(self, x, edge_index):
        return self.head(self.two(self.one(x, edge_index).relu(), edge_index), self.lin)


READ = {  # name: (what the model returns, its logits, columns of the last layer, what it is called)
    "1 - sigmoid": (lambda z: 1 - z.sigmoid(), lambda z: -z, 1, "prob"),
    "1 - sigmoid of one column": (lambda z: 1 - z.sigmoid()[:, 2], lambda z: -z[:, 2], 3, "prob"),
    "expit": (torch.special.expit, lambda z: z, 1, "prob"),
    "log(1 - sigmoid)": (lambda z: (1 - z.sigmoid()).log(), lambda z: -z, 1, "log_prob"),
    "one of two": (lambda z: z.softmax(1)[:, 1], lambda z: z[:, 1] - z[:, 0], 2, "prob"),
    "one of three": (lambda z: z.softmax(1)[:, 0], lambda z: z[:, 0] - z[:, 1:].logsumexp(1), 3, "prob"),
    "all but one": (lambda z: 1 - z.softmax(1)[:, 0], lambda z: z[:, 1:].logsumexp(1) - z[:, 0], 3, "prob"),
    "log of one": (lambda z: z.log_softmax(1)[..., 0], lambda z: z[:, 0] - z[:, 1:].logsumexp(1), 3, "log_prob"),
    "permuted": (lambda z: z.log_softmax(1)[:, PERMUTED], lambda z: z[:, PERMUTED], 3, "log_prob"),
    "index_select": (lambda z: z.softmax(1).index_select(1, PERMUTED), lambda z: z[:, PERMUTED], 3, "prob"),
    "turned": (lambda z: z.softmax(1).flip(1), lambda z: z.flip(1), 3, "prob"),
    "rolled": (lambda z: z.softmax(1).roll(1, 1), lambda z: z.roll(1, 1), 3, "prob"),
    "part of sigmoids": (lambda z: z.sigmoid()[:, 1:], lambda z: z[:, 1:], 3, "prob"),
    "log of softmax": (lambda z: z.softmax(1).log(), lambda z: z, 3, "log_prob"),
    "exp of log_softmax": (lambda z: z.log_softmax(1).exp(), lambda z: z, 3, "prob"),
    "temperature": (lambda z: (z / 2).softmax(1), lambda z: z / 2, 3, "prob"),
}


@pytest.mark.parametrize("name", READ)
def test_what_follows_a_head_and_keeps_its_logits_is_read(name):
    head, logits, width, output = READ[name]
    data = graph(10)
    mine = ew.explain(Net(lambda z, _: head(z), width), data, method="occlusion")
    mode = "multilabel" if "part of" in name else None
    theirs = ew.explain(Net(lambda z, _: logits(z), width), data, method="occlusion", mode=mode, output="logit")
    assert mine.settings["output"] == output
    for a, b in zip(mine, theirs, strict=True):
        assert (a.target, a.value) == (b.target, pytest.approx(b.value, abs=1e-9))
        assert_close(a.scores, b.scores, 1e-9)


def written(z):
    out, p = torch.zeros_like(z), z.softmax(1)
    out[:, 0], out[:, 1] = p[:, 0], p[:, 1]
    return out


WARNED = {
    "hardsigmoid": (functional.hardsigmoid, 1),
    "rounded": (lambda z: z.sigmoid().round(decimals=3), 1),
    "clamped": (lambda z: z.sigmoid().clamp(1e-6, 1 - 1e-6), 1),
    "per cent": (lambda z: 100 * z.sigmoid(), 1),
    "by tanh": (lambda z: (1 + z.tanh()) / 2, 1),
    "by exp": (lambda z: 1 / (1 + (-z).exp()), 1),
    "cloglog": (lambda z: 1 - torch.exp(-z.exp()), 1),
    "by softplus": (lambda z: -functional.softplus(-z), 1),
    "product": (lambda z: z.sigmoid() * (2 * z).sigmoid(), 1),
    "clamp to 0 and 1": (lambda z: (z / 4 + 0.5).clamp(0, 1), 1),
    "normal": (torch.special.ndtr, 1),
    "two columns of one": (lambda z: torch.cat([1 - z.sigmoid(), z.sigmoid()], dim=1), 1),
    "selection": (lambda z: z.log_softmax(1)[:, :2], 3),
    "z - logsumexp": (lambda z: z - z.logsumexp(1, keepdim=True), 3),
    "z - log sum exp": (lambda z: z - z.exp().sum(1, keepdim=True).log(), 3),
    "exp over its sum": (lambda z: z.exp() / z.exp().sum(1, keepdim=True), 3),
    "over the sum": (lambda z: functional.softplus(z) / (functional.softplus(z).sum(1, keepdim=True) + 1e-9), 3),
    "p-norm 1": (lambda z: functional.normalize(z.abs(), p=1, dim=1), 3),
    "rounded softmax": (lambda z: z.softmax(1).round(decimals=1), 3),
    "log of a bit more": (lambda z: (z.softmax(1) + 1e-8).log(), 3),
    "ensemble": (lambda z: torch.stack([z.softmax(1), (2 * z).softmax(1)]).mean(0), 3),
    "permuted by a matrix": (lambda z: z.softmax(1) @ SWAP, 3),
    "gathered": (lambda z: z.log_softmax(1).gather(1, PERMUTED.expand(len(z), 3)), 3),
    "turned twice": (lambda z: z.log_softmax(1).t()[PERMUTED].t(), 3),
    "written": (written, 2),
    "hardtanh to 0 and 1": (lambda z: functional.hardtanh(z / 4 + 0.5, 0, 1), 1),
    "two clamps": (lambda z: z.relu().clamp(max=1), 1),
    "least and most": (lambda z: torch.minimum(torch.maximum(z, torch.zeros_like(z)), torch.ones_like(z)), 1),
    "a step": (lambda z: (z > 0).double(), 1),
    "a chosen step": (lambda z: torch.where(z > 0, 1.0, 0.0).double(), 1),
    "by sign": (lambda z: (z.sign() + 1) / 2, 1),
    "cross entropy of one": (
        lambda z: -functional.binary_cross_entropy_with_logits(z, torch.ones_like(z), reduction="none"),
        1,
    ),
    "some cross entropies": (lambda z: cross_entropies(z, 2), 3),
}


def cross_entropies(z, columns):
    each = [functional.cross_entropy(z, torch.full((len(z),), k), reduction="none") for k in range(columns)]
    return -torch.stack(each, dim=1)


@pytest.mark.parametrize("nodes", [6, 40])
@pytest.mark.parametrize("name", WARNED)
def test_probabilities_whose_logits_cannot_be_read_are_warned_of_however_many_rows(name, nodes):
    head, width = WARNED[name]
    data, model = graph(nodes), Net(lambda z, _: head(z), width)
    with pytest.warns(ew.OutputWarning, match="output='prob'"):
        ew.Question(model, data, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ew.Question(model, data, 3, output="logit")
        ew.Question(model, data, 3, mode="regression", target=0)


LOGARITHMS = {
    "logaddexp": lambda z: z - torch.logaddexp(torch.logaddexp(z[:, 0], z[:, 1]), z[:, 2]).view(-1, 1),
    "logcumsumexp": lambda z: z - z.logcumsumexp(1)[:, -1:],
    "cross entropies": lambda z: cross_entropies(z, 3),
    "outside torch": lambda z: torch.from_numpy(z.detach().log_softmax(1).numpy()),
}


@pytest.mark.parametrize("nodes", [6, 40])
@pytest.mark.parametrize("name", LOGARITHMS)
def test_logarithms_of_numbers_that_add_up_to_one_are_warned_of(name, nodes):
    data, model = graph(nodes), Net(lambda z, _: LOGARITHMS[name](z), 3)
    with pytest.warns(ew.OutputWarning, match="log_prob'"):
        ew.Question(model, data, 3)


SILENT = {
    "nothing": lambda z, lin: z,
    "gate": lambda z, lin: z * z.sigmoid(),
    "gate of two": lambda z, lin: z.sigmoid() * lin(z) + (1 - z.sigmoid()) * z,
    "learned mix": lambda z, lin: lin.bias.sigmoid() * z + (1 - lin.bias.sigmoid()) * lin(z),
    "hidden sigmoid": lambda z, lin: lin(z.sigmoid()),
    "hidden softmax": lambda z, lin: lin(z.softmax(1)) + z,
    "glu": lambda z, lin: functional.glu(torch.cat([z, z], dim=1), dim=1),
    "attention": lambda z, lin: (torch.stack([z, lin(z)], 1) * torch.stack([z, lin(z)], 1).softmax(1)).sum(1),
    "norm": lambda z, lin: functional.layer_norm(z.sigmoid(), [3]),
    "logit": lambda z, lin: torch.logit(z.sigmoid()),
    "tanh": lambda z, lin: 5 * z.tanh(),
    "softplus": lambda z, lin: functional.softplus(z),
    "mask": lambda z, lin: z.abs() * (z > 0) / 100,
    "choice": lambda z, lin: torch.where(z > 0, z, 0.1 * z).abs() / 100,
    "the largest": lambda z, lin: z.abs().gather(1, z.argsort(1)) / 100,
    "rectified": lambda z, lin: z.relu().clamp(max=9) / 100,
    "centred": lambda z, lin: z - z.mean(1, keepdim=True),
}


@pytest.mark.parametrize("name", SILENT)
def test_gates_and_attention_are_no_heads(name):
    question = ew.Question(Net(SILENT[name], 3), graph(6), 3)
    assert question.settings["output"] == "logit"


def test_the_gates_of_a_layer_are_no_head():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = GatedGraphConv(4, 2)
            self.double().eval()

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    assert ew.Question(Gated(), graph(6), 3).settings["output"] == "logit"
