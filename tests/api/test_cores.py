"""Work on several cores: the same bits for any number of them, and nothing is left behind."""

import threading

import pytest
import torch
from torch_geometric.nn import GATv2Conv, GCNConv, GINConv

import edgewise as ew
import zoo
from edgewise import cores
from edgewise.algorithms import registry
from edgewise.question import block_growth
from footprint import Footprint
from zoo import CLASSES, FEATURES, WIDTH, Chain, mlp

NODES = 60
MODELS = {
    "gcn": lambda: Chain(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, CLASSES), act=torch.relu),
    "gin": lambda: Chain(GINConv(mlp(FEATURES, WIDTH)), GINConv(mlp(WIDTH, CLASSES)), act=torch.relu),
    "gatv2": lambda: Chain(GATv2Conv(FEATURES, WIDTH), GATv2Conv(WIDTH, CLASSES), act=torch.relu),
}
METHODS = {
    "gradient": {},
    "occlusion": {},
    "gnn_explainer": {"epochs": 3},
    "integrated_gradients": {"steps": 3},
    "deep_lift": {},
    "shapley": {"samples": 4},
}


@pytest.fixture
def small_pieces(monkeypatch):
    """Every block in pieces, however little there is to do."""
    monkeypatch.setattr(registry.Method, "piece", property(lambda _: 1))
    monkeypatch.setattr(block_growth, "_PROBED", 8)


def asked(name, dtype=torch.float32):
    data = zoo.graph(zoo.random_edges(NODES, 200, 1), NODES)
    data.x = data.x.to(dtype)
    return zoo.randomise(MODELS[name]()).to(dtype).eval(), data


class Watched:
    """Who worked on a piece: `spread` with the names of the threads."""

    def __init__(self, monkeypatch):
        self.threads = set()
        inner = cores.stop_if_asked

        def seen():
            self.threads.add(threading.current_thread().name)
            inner()

        monkeypatch.setattr("edgewise.question.subject.stop_if_asked", seen)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_scores_have_the_same_bits_on_one_core_and_on_three(name, method):
    model, data = asked(name)
    level = "input" if method == "shapley" else "layer"
    ask = ew.Question(model, data)
    before = Footprint(model, data)
    one, three, again = (ask.explain(method, level=level, threads=n, **METHODS[method]) for n in (1, 3, 3))
    before.assert_unchanged()
    for few, many, twice in zip(one, three, again, strict=True):
        assert torch.equal(few.scores, many.scores)
        assert torch.equal(many.scores, twice.scores)


@pytest.mark.usefixtures("small_pieces")
def test_pieces_are_worked_on_by_threads_of_their_own_and_one_core_takes_none(monkeypatch):
    model, data = asked("gcn")
    watched = Watched(monkeypatch)
    ew.explain(model, data, method="gnn_explainer", epochs=2, threads=3)
    assert len(watched.threads - {"MainThread"}) > 1
    watched.threads.clear()
    ew.explain(model, data, method="gnn_explainer", epochs=2, threads=1)
    assert watched.threads == {"MainThread"}


@pytest.mark.usefixtures("small_pieces")
def test_pieces_give_the_scores_of_one_block():
    model, data = asked("gcn", torch.float64)
    whole = ew.explain(model, data, method="gnn_explainer", epochs=3, batch_size=NODES)
    parted = ew.explain(model, data, method="gnn_explainer", epochs=3, threads=2)
    for one, other in zip(whole, parted, strict=True):
        assert torch.allclose(one.scores, other.scores, rtol=1e-9, atol=1e-12)


def test_little_work_takes_one_thread_of_torch_whatever_its_default(monkeypatch):
    model, data = asked("gcn")
    before, seen = torch.get_num_threads(), []
    inner = registry._ROWS[0].function
    monkeypatch.setitem(
        registry.registered_methods,
        "watched",
        registry.Method("watched", lambda *a: seen.append(torch.get_num_threads()) or inner(*a), "", ""),
    )
    torch.set_num_threads(4)
    try:
        ew.explain(model, data, 3, method="watched")
        ew.Question(model, data, [3, 4]).explain("watched", threads=3)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]


def test_an_error_in_one_part_is_raised_and_ends_the_others():
    ended = []

    def work(part):
        if part == 0:
            raise ValueError("part 0")
        while True:
            try:
                cores.stop_if_asked()
            except cores.PartDropped:
                ended.append(part)
                raise

    with pytest.raises(ValueError, match="part 0"), cores.many_cores(2):
        list(cores.spread(work, range(40)))
    assert len(ended) <= 2  # the thread that failed may have begun another part; the rest never did


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "two"])
def test_a_number_of_threads_that_makes_no_sense_is_refused(wrong):
    model, data = asked("gcn")
    with pytest.raises(ew.SettingError, match="threads"):
        ew.explain(model, data, 0, threads=wrong)
