"""Gradients that stop for some targets only are found, whichever targets are asked about, in whatever order."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool

import edgewise as ew
from checks import assert_close, scores_of

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch, about a checkpoint
NODES, CLASSES = 40, 3
REFUSED = "not the derivative|cannot take gradients"


class OwnSAGE(SAGEConv):
    """A subclass with code of its own, which is run as it is."""

    def message(self, x_j):
        return x_j.sin()


class StraightOn(torch.autograd.Function):
    """A backward that is not the derivative, where the first number is positive."""

    @staticmethod
    def forward(ctx, rows, is_stopped):
        ctx.save_for_backward(is_stopped)
        return rows.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ~ctx.saved_tensors[0], None


def without_gradients(net, o, stop):
    with torch.no_grad():
        held = o * 1
    return torch.where(stop, held, o)


def written_in(net, o, stop):
    o = o.clone()
    o[stop.view(-1)] = o[stop.view(-1)].detach()
    return o


def checkpointed(net, o, stop):
    held = checkpoint(lambda rows: rows.data * 1, o, use_reentrant=True)
    return torch.where(stop, held, o)


STOPS = {
    "detach": lambda net, o, stop: torch.where(stop, o.detach(), o),
    "data": lambda net, o, stop: torch.where(stop, o.data, o),
    "no_grad": without_gradients,
    "written in": written_in,
    "checkpoint": checkpointed,
    "numpy": lambda net, o, stop: torch.where(stop, torch.from_numpy(o.detach().numpy().copy()), o),
    "own function": lambda net, o, stop: StraightOn.apply(o, stop),
    "mixed": lambda net, o, stop: stop * o.detach() + ~stop * o,
}
WHICH = {
    "one node": lambda net, x, o: x[:, :1] > 2,
    "a class": lambda net, x, o: (o - net.centre).argmax(1, keepdim=True) == 1,
}


class PartlyStopped(nn.Module):
    def __init__(self, stop, which, conv=OwnSAGE):
        super().__init__()
        self.one, self.two = conv(4, 6), conv(6, CLASSES)
        self.stop, self.which = STOPS[stop], WHICH[which]
        self.register_buffer("centre", torch.zeros(CLASSES))

    def forward(self, x, edge_index):
        o = self.two(self.one(x, edge_index).relu(), edge_index)
        return self.stop(self, o, self.which(self, x, o))


def problem(stop, which="one node", conv=OwnSAGE):
    """One node of forty is stopped, or all of a class; nodes stand around a ring."""
    torch.manual_seed(0)
    ring = torch.arange(NODES)
    edges = torch.cat([torch.stack([ring, ring.roll(1)]), torch.stack([ring, ring.roll(-2)])], dim=1)
    x = torch.rand(NODES, 4, dtype=torch.double)
    x[17, 0] = 3.0
    model, data = PartlyStopped(stop, which, conv).double().eval(), Data(x=x, edge_index=edges)
    with torch.no_grad():
        o = model.two(model.one(x, edges).relu(), edges)
        model.centre = o.mean(0)
        bad = model.which(model, x, o).view(-1).nonzero().view(-1).tolist()
    assert 0 < len(bad) < NODES
    return model, data, bad, [node for node in range(NODES) if node not in bad]


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_for_some_nodes_is_refused_whatever_the_order(stop, which):
    model, data, (bad, *_), good = problem(stop, which)
    for index in ([good[0], bad], [bad, good[0]], None, [*good[:6], bad, *good[6:12]], bad):
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.explain(model, data, index)
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.features(model, data, index)


@pytest.mark.parametrize("stop", [stop for stop in STOPS if stop != "checkpoint"])  # that refuses for every target
def test_targets_that_it_does_not_concern_are_explained(stop):
    model, data, (bad, *_), good = problem(stop)
    plain = PartlyStopped("detach", "one node").double().eval()
    plain.load_state_dict(model.state_dict())
    plain.stop = lambda net, o, stop: o
    found = ew.explain(model, data, good[:5])
    assert_close(scores_of(found), scores_of(ew.explain(plain, data, good[:5])), 1e-12)
    ask = ew.Question(model, data, good[:5])
    ask.explain()
    with pytest.raises(ew.ModelError, match=REFUSED):
        ask.of([bad]).explain()
    with pytest.raises(ew.ModelError, match=REFUSED):
        ask.of([bad]).features()
    ask.of(good[5:7]).explain()
    ask.of([bad]).explain(method="occlusion")


@pytest.mark.parametrize("stop", ["detach", "no_grad", "mixed"])
def test_a_lowered_model_is_looked_through_for_every_target(stop):
    model, data, _, _ = problem(stop, "one node", GCNConv)
    plain = PartlyStopped(stop, "one node", GCNConv).double().eval()
    plain.load_state_dict(model.state_dict())
    plain.stop = lambda net, o, stop: o
    found = ew.explain(model, data, level="layer")
    assert found[0].settings["way"] == "lowered"
    assert_close(scores_of(found), scores_of(ew.explain(plain, data, level="layer")), 1e-12)


@torch.jit.script
def scripted(rows):
    return rows.detach() * 1.0


HIDDEN = {
    "a list": lambda net, o, stop: torch.where(stop, torch.tensor(o.tolist(), dtype=o.dtype), o),
    "scripted": lambda net, o, stop: torch.where(stop, scripted(o), o),
}


@pytest.mark.parametrize("stop", HIDDEN)
def test_a_program_that_another_target_does_not_follow_is_not_run_for_it(stop):
    """What a pass computed outside of torch is a constant of the program, right at ω = 1 alone."""
    model, data, (bad, *_), good = problem("detach", conv=GCNConv)
    model.stop = HIDDEN[stop]
    ask = ew.Question(model, data, good[0])
    ask.explain()
    with pytest.raises(ew.ModelError, match=f"{REFUSED}|runs differently"):
        ask.of(bad).explain()
    for index in (bad, [*good[:9], bad, *good[9:18]]):
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.explain(model, data, index)


class TwiceTheSlope(torch.autograd.Function):
    """A gradient that is three halves of the derivative, where it is asked for."""

    @staticmethod
    def forward(ctx, rows, is_wrong):
        ctx.save_for_backward(is_wrong)
        return rows.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.where(ctx.saved_tensors[0], 1.5 * gradient, gradient), None


def hooked(net, o, stop):
    o = o * 1
    if o.requires_grad:
        o.register_hook(lambda gradient: torch.where(stop, gradient / 2, gradient))
    return o


@pytest.mark.parametrize("bend", [hooked, lambda net, o, stop: TwiceTheSlope.apply(o, stop)], ids=["hook", "function"])
def test_gradients_that_are_bent_for_some_nodes_are_refused_whatever_the_order(bend):
    model, data, (bad, *_), good = problem("detach")
    model.stop = bend
    for index in ([good[0], bad], [bad, good[0]], None, [*good[:6], bad, *good[6:12]], bad):
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.explain(model, data, index)
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.features(model, data, index, method="gradient")


class StoppedGraphs(nn.Module):
    """Graphs whose first feature is large are stopped."""

    border = 30

    def __init__(self, conv):
        super().__init__()
        self.one, self.last = conv(4, 6), nn.Linear(6, CLASSES)

    def forward(self, x, edge_index, batch):
        o = self.last(global_add_pool(self.one(x, edge_index).relu(), batch))
        return torch.where(global_add_pool(x[:, :1], batch) > self.border, o.detach(), o)


@pytest.mark.parametrize("conv", [OwnSAGE, GCNConv])
def test_a_stop_for_some_graphs_is_refused_or_looked_through(conv):
    torch.manual_seed(0)
    graphs = [Data(x=torch.rand(5, 4).double(), edge_index=torch.randint(5, (2, 9))) for _ in range(60)]
    graphs[29].x[:, 0] = 10.0
    model = StoppedGraphs(conv).double().eval()
    if conv is GCNConv:  # a program is differentiated, and no module of the model
        looked_through = scores_of(ew.explain(model, graphs[28:31], task="graph"))
        model.border = 1e9
        assert_close(looked_through, scores_of(ew.explain(model, graphs[28:31], task="graph")), 1e-12)
        return
    for index in (None, [1, 29, 3], [29, 1], [1, 29]):
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.explain(model, graphs, index, task="graph")
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.features(model, graphs, index, task="graph")
    ask = ew.Question(model, graphs, [1, 2], task="graph")
    ask.explain()
    with pytest.raises(ew.ModelError, match=REFUSED):
        ask.of([29]).explain()


class StoppedLinks(nn.Module):
    """Pairs with a large first feature are stopped, in the decoder."""

    def __init__(self, conv):
        super().__init__()
        self.one = conv(4, 6)

    def encode(self, x, edge_index):
        return self.one(x, edge_index).tanh()

    def decode(self, z, pairs):
        found = (z[pairs[0]] * z[pairs[1]]).sum(1)
        return torch.where(found > self.border, found.detach(), found)


@pytest.mark.parametrize("conv", [OwnSAGE, GCNConv])
def test_a_stop_for_some_pairs_is_refused(conv):
    torch.manual_seed(0)
    _, data, _, _ = problem("detach")
    model = StoppedLinks(conv).double().eval()
    pairs = torch.stack([torch.arange(30), torch.arange(30).roll(7)])
    model.border = 1e9
    with torch.no_grad():
        said = model.decode(model.encode(data.x, data.edge_index), pairs)
    bad = int(said.argmax())
    model.border = float(said.sort().values[-2:].mean())
    others = [place for place in range(30) if place != bad]
    for places in (list(range(30)), [bad, others[0]], [others[0], bad], [*others[:9], bad, *others[9:]]):
        with pytest.raises(ew.ModelError, match=REFUSED):
            ew.explain(model, data, pairs[:, places], task="link")
    ask = ew.Question(model, data, pairs[:, others[:4]], task="link")
    ask.explain()
    with pytest.raises(ew.ModelError, match=REFUSED):
        ask.of(pairs[:, [bad]]).explain()


@pytest.mark.parametrize("dtype", [torch.double, torch.float])
@pytest.mark.parametrize("share", [0.3, 0.01])
def test_a_stop_of_a_small_part_of_a_gradient_is_refused(share, dtype):
    """The rest of the gradient is a hundred times as large."""

    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = OwnSAGE(4, 6), OwnSAGE(6, 3)

        def forward(self, x, edge_index):
            h = self.one(x, edge_index).tanh()
            return self.two(h + share * h.sin().detach(), edge_index)

    _, data, _, _ = problem("detach")
    data.x = data.x.to(dtype)
    model = Partly().to(dtype).eval()
    for ask in (ew.explain, ew.features):
        with pytest.raises(ew.ModelError, match="detach in forward stops them"):
            ask(model, data, [0, 1, 2])


def by_detach(o, stop):
    return torch.where(stop.view(-1, 1), o.detach(), o)


def by_numbers(o, stop):
    return torch.stack(
        [torch.tensor(row.tolist(), dtype=o.dtype) if bad else row for row, bad in zip(o, stop, strict=True)]
    )


STOPPED_ROWS = {
    "every second": lambda o: torch.arange(len(o)) % 2 == 0,
    "every fourth": lambda o: torch.arange(len(o)) % 4 == 1,
    "of a long table": lambda o: (torch.arange(len(o)) % 2 == 0) & (len(o) > NODES),
}


class StoppedByRow(nn.Module):
    """Stops gradients by the number of a row, which in copies is another one than in the graph."""

    def __init__(self, stop, which):
        super().__init__()
        self.one, self.two = OwnSAGE(4, 6), OwnSAGE(6, CLASSES)
        self.stop, self.which = stop, which

    def forward(self, x, edge_index):
        o = self.two(self.one(x, edge_index).tanh(), edge_index)
        stop = self.which(o)
        return self.stop(o, stop) if bool(stop.any()) else o


@pytest.mark.parametrize("how", [{}, {"batch_size": 2}, {"batch_size": 3, "method": "integrated_gradients"}])
@pytest.mark.parametrize("which", STOPPED_ROWS)
@pytest.mark.parametrize("stop", [by_detach, by_numbers])
def test_a_stop_by_the_number_of_a_row_gives_no_wrong_score_in_any_layout(stop, which, how):
    torch.manual_seed(0)
    ring = torch.arange(NODES)
    edges = torch.cat([torch.stack([ring, ring.roll(1)]), torch.stack([ring, ring.roll(-2)])], dim=1)
    data = Data(x=torch.rand(NODES, 4, dtype=torch.double), edge_index=edges)
    model = StoppedByRow(stop, STOPPED_ROWS[which]).double().eval()
    plain = StoppedByRow(stop, lambda o: torch.zeros(len(o), dtype=torch.bool)).double().eval()
    plain.load_state_dict(model.state_dict())
    refused = 0
    for index in ([3, 8, 5, 0], [0, 5, 8, 3], [9, 1, 2, 6, 4], [7], None):
        try:
            found = ew.explain(model, data, index, **how)
        except ew.ModelError:
            refused += 1
            continue
        assert_close(scores_of(found), scores_of(ew.explain(plain, data, index, **how)), 1e-9)
    assert refused or how, "all targets side by side are stopped for some"
