"""Many threads explain while one predicts and one trains: every number belongs to one state of the model."""

import copy
import random
import threading
import time
from functools import partial

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, LayerNorm, MessagePassing, SAGEConv, TransformerConv

import edgewise as ew
import zoo
from footprint import Footprint

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")


class Gated(MessagePassing):
    """A layer of the user's own."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="add")
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j, x_i):
        return x_j * x_i.sigmoid()


class Net(nn.Module):
    def __init__(self, conv, norm=None):
        super().__init__()
        self.first, self.second = conv(5, 8), conv(8, 3)
        self.norm, self.dropout = norm or nn.Identity(), nn.Dropout(0.5)

    def forward(self, x, edge_index):
        return self.second(self.dropout(self.norm(self.first(x, edge_index)).relu()), edge_index)


MODELS = {
    "lowered": lambda: Net(GCNConv),
    "whole graph": lambda: Net(SAGEConv, LayerNorm(8, mode="graph")),
    "copies": lambda: Net(Gated),
    "keeps its attention": lambda: Net(partial(TransformerConv, beta=True)),  # a gate, so that it is not lowered
}


def numbers(answer):
    """Everything that an answer says, in one row."""
    if isinstance(answer, ew.WalkSet):
        return torch.tensor([answer.value, *(n for walk in answer for n in (walk.score, *walk.nodes))])
    parts = answer if isinstance(answer, ew.ExplanationSet) else [answer]
    return torch.cat([torch.cat([why.scores.flatten(), torch.tensor([float(why.value)])]) for why in parts])


def calls_of(model, data, way):
    """Calls that explain, a mixture of all front doors."""
    ask = ew.Question(model, data, [0, 1])
    found = [lambda: ask.explain(method="occlusion", level="layer")]
    for i in range(data.num_nodes):
        found += [
            lambda i=i: ew.explain(model, data, i, level="layer"),
            lambda i=i: ew.explain(model, data, i, method="occlusion"),
            lambda i=i: ask.of(i).explain(level="layer"),
            lambda i=i: ask.of([i, 0]).explain(method="gnn_explainer", epochs=3),
        ]
        if way == "lowered":
            found.append(lambda i=i: ew.walks(model, data, i, k=3))
    return found


class Crowd:
    """Threads that explain, one that predicts and one that trains a copy, until those that explain are done."""

    def __init__(self, model, data, calls):
        self.model, self.data, self.calls = model, data, calls
        self.expected = [numbers(call()) for call in calls]
        with torch.no_grad():
            self.output = model(data.x, data.edge_index)
        self.copy = copy.deepcopy(model).train()
        self.wrong, self.errors, self.done = [], [], threading.Event()
        self.predicted = self.trained = 0

    def run(self, threads, calls_each):
        workers = [threading.Thread(target=self._guarded, args=(self._explain, k, calls_each)) for k in range(threads)]
        others = [threading.Thread(target=self._guarded, args=(task,)) for task in (self._predict, self._train)]
        for thread in [*workers, *others]:
            thread.start()
        for thread in workers:
            thread.join()
        self.done.set()
        for thread in others:
            thread.join()
        assert (self.errors, self.wrong) == ([], [])
        assert self.predicted > 0
        assert self.trained > 0

    def _guarded(self, task, *arguments):
        try:
            task(*arguments)
        except BaseException as error:
            self.errors.append(repr(error))

    def _explain(self, seed, count):
        draw = random.Random(seed)
        for _ in range(count):
            which = draw.randrange(len(self.calls))
            found, expected = numbers(self.calls[which]()), self.expected[which]
            if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-9, atol=1e-10):
                self.wrong.append(which)

    def _predict(self):
        while not self.done.is_set():
            with torch.no_grad():
                output = self.model(self.data.x, self.data.edge_index)
            if not torch.equal(output, self.output):
                self.wrong.append("a prediction")
            self.predicted += 1

    def _train(self):
        optimizer = torch.optim.Adam(self.copy.parameters())
        while not self.done.is_set():
            optimizer.zero_grad()
            self.copy(self.data.x, self.data.edge_index).square().sum().backward()
            optimizer.step()
            self.trained += 1


@pytest.mark.parametrize("calls_each", [4, pytest.param(64, marks=pytest.mark.slow)])  # 2,048 calls of the four models
@pytest.mark.parametrize("way", MODELS)
def test_eight_threads_explain_while_one_predicts_and_one_trains_a_copy(way, calls_each):
    model, data = zoo.randomise(MODELS[way]()).eval(), zoo.GRAPHS["everything"]()
    assert ew.Question(model, data, 0).way == (way if way != "keeps its attention" else "copies")
    crowd = Crowd(model, data, calls_of(model, data, way))
    before = Footprint(model, data)
    crowd.run(8, calls_each)
    before.globals["torch random state"] = torch.get_rng_state().tolist()  # dropout of the copy moves it, rightly
    before.assert_unchanged()


class Tied(nn.Module):
    """Two linear layers that share one number w: every score is a multiple of w · w, of two moments if they are mixed."""

    def __init__(self, conv):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, dtype=torch.float64))
        self.first, self.second = conv(), conv()

    def forward(self, x, edge_index):
        return self.second(self.first(x @ self.weight, edge_index) @ self.weight, edge_index)


class Sum(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j


def plain_sage():
    conv = SAGEConv(1, 1, aggr="sum", root_weight=False, bias=False).double()
    conv.lin_l.weight.data.fill_(1.0)
    return conv


TRAINED = {
    "a gradient": lambda model, data: ew.explain(model, data, [0, 3], level="layer"),
    "an occlusion": lambda model, data: ew.explain(model, data, [0, 3], method="occlusion", level="layer"),
    "another target": lambda model, data: ew.Question(model, data, [1]).of([0, 3]).explain(level="layer"),
}


class TrainedMeanwhile:
    """Threads that explain a `Tied` model while its one number goes 1, 2, 3, … in place."""

    def __init__(self, conv):
        self.model, self.data = Tied(conv), zoo.GRAPHS["everything"]()
        self.data.x = torch.ones(self.data.num_nodes, 1, dtype=torch.float64)
        self.unit = {name: numbers(call(self.model, self.data)) for name, call in TRAINED.items()}  # at w = 1
        self.done, self.mixed, self.refused = threading.Event(), [], []

    def train(self):
        step = 1
        while not self.done.is_set():
            step += 1
            self.model.weight.data.fill_(float(step))
            time.sleep(0.0005 * (step % 200))  # sometimes in every pass, sometimes in none

    def explain(self, name):
        for _ in range(40):
            try:
                found = numbers(TRAINED[name](self.model, self.data))
            except BaseException as error:
                self.refused.append(error)
                continue
            square = (found / self.unit[name])[self.unit[name] != 0]
            if not torch.allclose(square, square[0].sqrt().round().square().expand_as(square), rtol=1e-9):
                self.mixed.append(square)

    def run(self):
        trainer = threading.Thread(target=self.train)
        workers = [threading.Thread(target=self.explain, args=[name]) for name in TRAINED]
        try:
            for thread in (trainer, *workers):
                thread.start()
            for thread in workers:
                thread.join()
        finally:
            self.done.set()
            trainer.join()


@pytest.mark.parametrize("conv", [plain_sage, Sum])
def test_training_the_same_tensors_gives_the_numbers_of_one_state_or_a_stale_question(conv):
    crowd = TrainedMeanwhile(conv)
    crowd.run()
    assert crowd.mixed == []
    assert {type(error) for error in crowd.refused} == {ew.StaleQuestionError}, (
        "no training fell into a call, or a wrong error"
    )


def test_a_score_that_is_held_refuses_to_speak_for_a_model_that_was_trained():
    model, data = Tied(plain_sage), zoo.GRAPHS["everything"]()
    data.x = torch.ones(data.num_nodes, 1, dtype=torch.float64)
    score = ew.Score(model, data, [0])
    score(score.ones())
    model.weight.data.fill_(2.0)
    with pytest.raises(ew.StaleQuestionError, match="weight"):
        score(score.ones())
