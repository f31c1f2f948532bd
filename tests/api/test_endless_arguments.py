"""Iterators as arguments: what ends is read once and answered as a list is, what does not is refused at once."""

import itertools
import os
import signal
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import edgewise as ew
from edgewise import iterators
from edgewise.iterators import read_out
from malformed import Problem, parameters

PATIENCE = 60
"""Seconds for a call that takes one: an endless one fails here, and does not hang."""

ONCE_WITHOUT_END = (
    *[(call, "marked") for call in ("draw", "draw_walks", "Counterfactual.plot", "plot of graphs", "plot of types")],
    *[
        (call, "index")
        for call in ("explain links", "features of links", "counterfactual of links", "Question about links")
    ],
    *[(call, "levels") for call in ("compare", "write_page")],
    *[(call, "seeds") for call in ("compare", "stability_under_seeds")],
    *[
        ("GraphStore.build", "names"),
        ("Job.page", "class_names"),
        ("Job.to_frame", "columns"),
        ("fidelity_curve", "ks"),
    ],
    *[("molecule", "atoms"), ("molecule", "bonds"), ("path_recovery", "found"), ("recovery", "truth")],
    *[("sign_flips", "values"), ("stability", "runs"), ("walk_relevance", "walks"), ("explain", "index")],
    *[
        ("write_page", "node_names"),
        ("explain", "data"),
        ("subgraph_relevance", "nodes"),
    ],
)
PLACES = {
    "as it is": lambda endless: endless,
    "in a list": lambda endless: [endless],
    "in a dict": lambda endless: {0: endless},
    "under a name": lambda endless: {"a": endless, "b": [endless]},
}


class Entries:
    """Has entries, no length, and no end."""

    def __iter__(self):
        return itertools.cycle([0, 1])


def pairs_for_ever():
    while True:
        yield 0, 1


ENDLESS = {"repeat": lambda: itertools.repeat(0), "pairs": pairs_for_ever, "entries": Entries, "count": itertools.count}


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("endless"), Path.cwd()
    os.chdir(folder)
    yield Problem(folder)
    os.chdir(before)


@pytest.fixture(autouse=True)
def _an_end():
    def stop(*_):
        raise AssertionError("the call does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    plt.close("all")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize(("name", "argument"), ONCE_WITHOUT_END)
def test_what_has_no_end_is_refused_wherever_it_stands(problem, monkeypatch, name, argument, kind):
    monkeypatch.setattr(iterators, "MOST", 1000)  # as with more, and sooner
    for place in PLACES.values():
        function, arguments = problem.calls()[name]
        assert argument in parameters(function, arguments)
        with pytest.raises(ew.EdgewiseError):
            function(**{**arguments, argument: place(ENDLESS[kind]())})


def test_a_refusal_says_what_has_no_end_and_what_to_use(problem):
    with pytest.raises(
        ew.InputError, match=r"`marked` must have an end, got more than 1,048,576 entries of .*Use a list"
    ):
        problem.one.plot(marked={"acid": itertools.repeat(2)})


def test_iterators_that_end_are_answered_as_lists_are(problem):
    links = problem.tasks.asked["links"]
    listed = ew.explain(**links)
    u, v = zip(*links["index"], strict=True)
    for index in (zip(u, v, strict=True), iter(links["index"]), [iter(pair) for pair in links["index"]]):
        found = ew.explain(**{**links, "index": index})
        assert all(torch.equal(a.scores, b.scores) for a, b in zip(found, listed, strict=True))
    compared = [ew.compare(problem.model, problem.data, [0, 1], seeds=seeds) for seeds in ((3, 4), map(int, "34"))]
    assert compared[0].table() == compared[1].table()
    assert problem.one.plot(marked={"acid": (n for n in (2, 3))}) is not None


def test_what_can_be_read_again_is_left_as_it_is():
    given = [0, (1, 2), {"a": [torch.ones(2)]}, range(10**12), "text"]
    given.append(given)
    assert read_out("x", given) is given
    assert read_out("x", problem) is problem


def test_lists_that_hold_one_list_many_times_are_looked_into_once_and_counted(problem):
    held = [[0, 1]] * 10**4
    assert read_out("x", held) is held
    for _ in range(3):
        held = [held] * 10**4
    with pytest.raises(ew.InputError, match=r"`x` must be a list that fits in memory, got one of 1.0e\+16 entries"):
        read_out("x", held)
    with pytest.raises(ew.InputError, match="must have an end"):
        read_out("x", [held, itertools.count()])
    with pytest.raises(ew.InputError, match="fits in memory"):
        ew.explain(problem.model, problem.data, held)


def test_a_list_of_itself_that_holds_an_iterator_is_read():
    given = [iter([1, 2])]
    given.append(given)
    found = read_out("x", given)
    assert found[0] == [1, 2]
    assert found[1] is found


def test_one_iterator_in_two_places_is_read_once():
    shared = iter([1, 2])
    assert read_out("x", {"a": shared, "b": [shared]}) == {"a": [1, 2], "b": [[1, 2]]}


def test_many_iterators_share_one_bound(monkeypatch):
    monkeypatch.setattr(iterators, "MOST", 10)
    assert read_out("x", [iter(range(5)), iter(range(5))]) == [list(range(5))] * 2
    with pytest.raises(ew.InputError, match="must have an end, got more than 10"):
        read_out("x", [iter(range(5)), iter(range(6))])


def test_an_iterator_that_fails_and_a_file_are_refused(problem, tmp_path):
    with pytest.raises(ew.InputError, match=r"must have entries that can be read, .* raised ZeroDivisionError"):
        ew.explain(problem.model, problem.data, (1 // n for n in (1, 0)))
    (tmp_path / "numbers").write_text("1\n2\n")
    with (tmp_path / "numbers").open() as file, pytest.raises(ew.InputError, match="got the open file"):
        ew.explain(problem.model, problem.data, file)


@pytest.mark.parametrize("index", [range(10**12), [range(10**12)], (0, range(10**12))])
def test_a_range_of_a_billion_targets_is_refused(problem, index):
    with pytest.raises(ew.EdgewiseError):
        ew.explain(problem.model, problem.data, index)


def test_positions_in_lists_that_hold_one_list_many_times_are_refused_at_once():
    data = Data(x=torch.randn(6, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    found = ew.explain(SAGEConv(3, 2).eval(), data, [0, 1], mode="multiclass")
    deep = [0]
    for _ in range(30):
        deep = [deep] * 8
    for item in (deep, [deep], (deep, 0)):
        with pytest.raises(ew.InputError, match="Positions must be integers"):
            found[item]


def test_numbers_in_lists_that_hold_one_list_many_times_are_refused_at_once(problem):
    deep = [[[[0] * 3000] * 3000] * 3000] * 3000
    itself = [0]
    itself.append(itself)
    for init in (deep, [deep], itself):
        with pytest.raises(ew.EdgewiseError, match="`init` must"):
            ew.explain(problem.model, problem.data, [0], method="gnn_explainer", init=init)
    with pytest.raises(ew.InputError, match="`walks` must be sequences"):
        ew.walk_relevance(problem.model, problem.data, 0, walks=[range(10**12)])


class Hostile:
    def __getitem__(self, key):
        raise KeyError(key)


def test_truth_that_raises_anything_is_refused(problem):
    found = ew.explain(problem.model, problem.data, [0])
    with pytest.raises(ew.InputError, match="`truth` must be a tensor or a list"):
        ew.metrics.recovery(found, Hostile())
