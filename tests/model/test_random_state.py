"""A model that is random in eval mode is refused, and nobody else's random numbers are ever set back."""

import copy
import os
import pickle
import random
import secrets
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, MessagePassing

import edgewise as ew
from edgewise.model.random_draws import reaches_output, run_seen

SYSTEM = random.SystemRandom()
TORCH_DRAWS = {
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(2, 2),
    "randint": lambda: torch.randint(5, (3,)),
    "randperm": lambda: torch.randperm(4),
    "rand_like": lambda: torch.rand_like(torch.ones(3)),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal_": lambda: torch.ones(3).normal_(),
    "uniform_": lambda: torch.ones(3).uniform_(),
    "exponential_": lambda: torch.ones(3).exponential_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((3,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(3), 2),
    "poisson": lambda: torch.poisson(torch.ones(3)),
    "dropout": lambda: F.dropout(torch.ones(8), 0.5, training=True),
    "dropout with gradients": lambda: F.dropout(torch.ones(8, requires_grad=True), 0.5, training=True),
    "dropout module": lambda: nn.Dropout(0.5).train()(torch.ones(8)),
    "rrelu": lambda: F.rrelu(-torch.ones(8), training=True),
    "gumbel": lambda: F.gumbel_softmax(torch.ones(4)),
    "attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 4)] * 3, dropout_p=0.5),
    "lstm": lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.5),
    "distribution": lambda: torch.distributions.Gamma(torch.ones(2), torch.ones(2)).sample(),
    "init": lambda: nn.init.xavier_uniform_(torch.ones(3, 3)),
}


@pytest.mark.parametrize("name", TORCH_DRAWS)
def test_every_way_to_draw_with_torch_is_seen(name):
    _, drawn = run_seen(TORCH_DRAWS[name])
    assert drawn
    assert drawn[0].startswith("aten.")


def test_a_pass_that_draws_nothing_draws_nothing():
    def run():
        F.dropout(torch.ones(8), 0.5, training=False)
        F.dropout(torch.ones(8), 0.0, training=True)
        F.rrelu(-torch.ones(8), training=False)
        nn.MultiheadAttention(4, 1, dropout=0.5)
        return F.scaled_dot_product_attention(*[torch.ones(1, 2, 4)] * 3).softmax(0)

    drawn = run_seen(run)[1]
    assert not [name for name in drawn if "uniform" not in name]  # the start of the attention's parameters
    assert torch._C._len_torch_dispatch_stack() == 0


def test_what_is_drawn_is_followed_through_memory_to_the_output_and_to_python():
    x, table = torch.ones(4), torch.zeros(4)

    def into_a_view():
        table[1:] = torch.rand(3) * 1e-12
        return x + table

    def decided():
        return x * 2 if float(torch.rand(1)) < 1e-9 else x

    def aside():
        torch.rand(4) + x
        return x + 1

    def started_anew():
        return x + torch.rand(4, generator=torch.Generator().manual_seed(1))

    def goes_on():
        return x + torch.rand(4, generator=own)

    own = torch.Generator()
    assert [reaches_output(run) for run in (into_a_view, decided, aside, started_anew, goes_on)] == [
        *(True, True, False),
        *(False, True),
    ]


LEAVING = {
    "tolist": lambda draw: draw.tolist()[0],
    "numpy": lambda draw: draw.numpy()[0],
    "asarray": lambda draw: np.asarray(draw)[0],
    "numpy from dlpack": lambda draw: np.from_dlpack(draw)[0],
    "a memory": lambda draw: list(draw.untyped_storage())[3],
    "text": lambda draw: float(str(draw)[8:12]),
    "formatted": lambda draw: len(f"{draw}") - 16,
    "pickled": lambda draw: len(pickle.dumps(draw)) * 0 + 1,
    "copied": lambda draw: copy.deepcopy(draw),
    "its greatest": lambda draw: max(draw.numpy(force=True)),
    "nonzero": lambda draw: 1 - len((draw < 1e-6).nonzero()),
    "nonzero of a tuple": lambda draw: 1 - (draw < 1e-6).nonzero(as_tuple=True)[0].numel(),
    "a mask": lambda draw: 1 - len(torch.ones(1)[draw < 1e-6]),
    "a selection": lambda draw: 1 - torch.ones(1).masked_select(draw < 1e-6).numel(),
    "unique": lambda draw: 1 - len(torch.unique(draw < 1e-6)) // 2,
    "repeats": lambda draw: 1 - len(torch.ones(1).repeat_interleave((draw < 1e-6).long())),
    "one by one": lambda draw: next(draw.apply_(lambda number: number).unbind()[0] for _ in "1"),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_is_drawn_and_leaves_torch_counts_as_used_however_rarely_it_is(name):
    x = torch.ones(3)
    for draw in (torch.rand, lambda count: torch.rand(count + 1)[1:]):
        assert reaches_output(lambda draw=draw: x * 2 if LEAVING[name](draw(1)) < 1e-6 else x)


def test_what_is_known_of_a_drawn_tensor_without_its_numbers_is_not_random():
    def run():
        draw = torch.rand(3)
        assert draw.dim() == draw.ndim == 1
        assert (draw.is_floating_point(), draw.type()) == (True, "torch.FloatTensor")
        return torch.ones(draw.shape) * len(draw) * draw.size(0) * draw.stride(0) * draw.numel()

    assert not reaches_output(run)
    mask = torch.tensor([True, False, True])
    assert not reaches_output(lambda: torch.ones(len(torch.rand(3)[mask]) + torch.rand(3).masked_select(mask).numel()))


class Noisy(nn.Module):
    """Two layers and something random at the input, between them or behind them."""

    def __init__(self, bend, where="input", conv=GCNConv):
        super().__init__()
        self.one, self.two, self.bend, self.where = conv(5, 4), conv(4, 3), bend, where
        self.random, self.numbers = random.Random(0), np.random.default_rng(0)
        self.generator = torch.Generator()

    def forward(self, x, edge_index):
        x = self.bend(self, x) if self.where == "input" else x
        x = self.one(x, edge_index).relu()
        x = self.bend(self, x) if self.where == "between" else x
        x = self.two(x, edge_index)
        return self.bend(self, x) if self.where == "output" else x


def rarely(draw):
    return lambda model, x: x * 2 if draw(model) < 1e-6 else x


def put_back(model, x):
    with torch.random.fork_rng():
        return x + torch.rand_like(x)


def put_back_by_hand(model, x):
    before = torch.get_rng_state()
    noise = torch.rand_like(x)
    torch.set_rng_state(before)
    return x + noise


def put_back_and_seeded(model, x):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return x + torch.rand(x.size(1))


BENDS = {
    "noise of a generator that is put back": put_back,
    "noise of a generator that is put back by hand": put_back_by_hand,
    "dropout": lambda model, x: F.dropout(x, 0.5, training=True),
    "dropout as it is by default": lambda model, x: F.dropout(x),
    "little dropout": lambda model, x: F.dropout(x, 0.001),
    "noise": lambda model, x: x + torch.randn_like(x),
    "tiny noise": lambda model, x: x + 1e-12 * torch.randn_like(x),
    "noise in place": lambda model, x: x.clone().add_(torch.empty_like(x).uniform_(-1e-9, 1e-9)),
    "a choice of rows": lambda model, x: x[torch.randperm(len(x))[:1]] * 1e-9 + x,
    "a rare decision": rarely(lambda model: float(torch.rand(1))),
    "python": lambda model, x: x * random.random(),
    "python, rarely": rarely(lambda model: random.random()),
    "numpy": lambda model, x: x * float(np.random.rand()),
    "numpy, rarely": rarely(lambda model: np.random.standard_normal() ** 2),
    "a generator of its own": lambda model, x: x + torch.rand(x.shape, generator=model.generator),
    "a generator of its own, rarely": rarely(lambda model: float(torch.rand(1, generator=model.generator))),
    "a mask by numpy": lambda model, x: x * torch.from_numpy((torch.rand(x.shape).numpy() > 0.2).astype("float32")),
    "python's, of the system": lambda model, x: x * SYSTEM.random(),
    "python's, of the system, rarely": rarely(lambda model: SYSTEM.random()),
    "secrets, rarely": rarely(lambda model: secrets.randbelow(10**9) / 1e9),
    "a fresh generator of python, rarely": rarely(lambda model: random.Random().random()),
    "a fresh generator of numpy, rarely": rarely(lambda model: np.random.default_rng().random()),
    "bytes of the system, rarely": rarely(lambda model: sum(os.urandom(9))),
    "python's, its own, rarely": rarely(lambda model: model.random.random()),
    "numpy's, its own, rarely": rarely(lambda model: model.numbers.random()),
}
CALLS = {
    "explain": lambda model, data: ew.explain(model, data, [0, 3]),
    "ask": lambda model, data: ew.Question(model, data, 1),
    "features": lambda model, data: ew.features(model, data, 1),
    "walks": lambda model, data: ew.walks(model, data, 1),
    "a given forward": lambda model, data: ew.explain(model, data, 1, forward=lambda m, d: m(d.x, d.edge_index)),
}


def graph(nodes=8):
    draw = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(nodes, 5, generator=draw), edge_index=torch.randint(0, nodes, (2, 3 * nodes), generator=draw)
    )


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
@pytest.mark.parametrize("where", ["input", "between", "output"])
@pytest.mark.parametrize("name", BENDS)
def test_a_model_that_is_random_is_refused(name, where):
    model = Noisy(BENDS[name], where).eval()
    for call in CALLS.values():
        with pytest.raises(
            ew.ModelError, match=r"(another output on the same input each|draws .* in each).*stays drawn"
        ):
            call(model, graph())


@pytest.mark.parametrize("name", ["little dropout", "tiny noise", "python, rarely", "a generator of its own"])
def test_a_large_graph_a_graph_task_and_links_are_refused_too(name):
    model = Noisy(BENDS[name]).eval()
    with pytest.raises(ew.ModelError, match=r"each time|in each pass"):
        ew.explain(model, graph(60_000), [5])
    with pytest.raises(ew.ModelError, match=r"each time|in each pass"):
        ew.explain(
            model, [graph(4), graph(5)], task="graph", forward=lambda m, d: m(d.x, d.edge_index).mean(0, keepdim=True)
        )
    with pytest.raises(ew.ModelError, match=r"each time|in each pass"):
        ew.explain(
            model, graph(), (0, 1), task="link", forward=lambda m, d, pairs: m(d.x, d.edge_index)[pairs].prod(0).sum(1)
        )


@pytest.mark.parametrize("name", ["python", "numpy"])
def test_what_is_drawn_in_each_pass_and_perhaps_used_in_training_alone_is_refused_by_what_is_known(name):
    def drops(model, x):
        drawn = random.random() if name == "python" else np.random.uniform()
        return x * 0 if model.training and drawn < 0.5 else x

    with pytest.raises(ew.ModelError, match=r"cannot be seen\. Draw only in training"):
        ew.explain(Noisy(drops, "output", GATConv).eval(), graph(), 0)


def test_a_layer_that_is_random_inside_is_refused():
    class Dropped(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j):
            return F.dropout(x_j, 0.001)

    with pytest.raises(ew.ModelError, match=r"each time|in each pass"):
        ew.explain(
            Noisy(None, "", conv=lambda *_: Dropped()), graph(), 1, forward=lambda m, d: m.one(d.x, d.edge_index)
        )


def aside(model, x):
    model.seen = F.dropout(x, 0.5, training=True).mean()
    return x


REPEATABLE = {
    "put back, but seeded": put_back_and_seeded,
    "dropout of nothing": lambda model, x: F.dropout(x, 0.0),
    "dropout that is off": lambda model, x: F.dropout(x, 0.5, training=model.training),
    "drawn and not used": aside,
    "started anew": lambda model, x: x + torch.rand(x.shape, generator=torch.Generator().manual_seed(7)),
    "python's, started anew": lambda model, x: x * random.Random(3).random(),
    "numpy's, started anew": lambda model, x: x * float(np.random.default_rng(3).random()),
    "the system's, had and not called": lambda model, x: x * SYSTEM.random() if model.training else x,
    "bytes of the system, named and not read": lambda model, x: x * len(os.urandom(3)) if model.training else x,
    "named and not called": lambda model, x: x * random.random() if model.training else x,
}


class AlwaysOn(nn.Dropout):
    def train(self, mode=True):
        return super().train(True)


class Merging(nn.Linear):
    """Folds a part of itself into its weight in eval mode, as low-rank layers do."""

    def train(self, mode=True):
        with torch.no_grad():
            self.weight += -0.5 if mode else 0.5
        return super().train(mode)


def test_a_part_that_stays_in_training_in_eval_mode_runs_as_the_users_model_does():
    model = Noisy(None, "")
    model.drop = AlwaysOn(0.01)
    model.bend, model.where = lambda net, x: net.drop(x), "between"
    for mode in (True, False):
        with pytest.raises(ew.ModelError, match="each time"):
            ew.explain(model.train(mode), graph(), 1)
        assert model.drop.training
    plain = nn.Dropout(0.5)
    model.bend = lambda net, x: plain(x)  # no part of the model: eval() does not reach it
    with pytest.raises(ew.ModelError, match="each time"):
        ew.explain(model.eval(), graph(), 1)


def test_an_own_train_that_switches_or_writes_is_called_on_no_weight_of_the_users():
    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.factor = GCNConv(5, 3), 1.0

        def train(self, mode=True):
            self.factor = 7.0 if mode else 1.0
            return super().train(mode)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index) * self.factor

    model, data = Switched().train(), graph()
    why = ew.explain(model, data, 1)
    assert (model.training, model.factor) == (True, 7.0)
    assert why.value == ew.explain(model.eval(), data, 1).value
    model.merged = Merging(3, 3)
    before = model.train().merged.weight.clone()
    with pytest.raises(ew.ModelError, match=r"changes parameters.*model\.eval\(\)"):
        ew.explain(model, data, 1)
    assert torch.equal(before, model.merged.weight)
    assert ew.explain(model.eval(), data, 1).value == why.value


@pytest.mark.parametrize("name", REPEATABLE)
def test_a_model_whose_output_is_not_random_is_explained(name):
    model = Noisy(REPEATABLE[name], "output", GATConv).eval()
    first, again = (ew.explain(model, graph(), [0, 3], level="layer") for _ in range(2))
    assert all(torch.equal(a.scores, b.scores) for a, b in zip(first, again, strict=True))


def test_another_thread_that_draws_is_neither_repeated_nor_taken_for_the_model():
    """As a service has it: the numbers of the other thread are those of generators that only go forwards."""
    model, data, drawn, done = Noisy(REPEATABLE["named and not called"]).eval(), graph(), [], threading.Event()

    def draw():
        while not done.is_set():
            drawn.append((random.random(), float(np.random.rand()), float(torch.rand(1, dtype=torch.float64))))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(10):
            with pytest.raises(ew.ModelError):
                ew.explain(Noisy(BENDS["noise"]).eval(), data, 1)
            ew.explain(nn.Sequential(GCNConv(5, 2)), data, 1, forward=lambda m, d: m[0](d.x, d.edge_index))
    finally:
        done.set()
        thread.join()
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == len(numbers)
    assert len(drawn) > 100
    assert model is not None


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_pass_that_fails_leaves_no_mode_behind(error):
    def draw():
        torch.rand(3)
        raise error

    with pytest.raises(error):
        run_seen(draw)
    assert torch._C._len_torch_dispatch_stack() == 0
