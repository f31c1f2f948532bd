"""`ew.counterfactual` against exhaustive enumeration, and what it says about cases without an answer."""

import math
import time
from itertools import combinations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SAGEConv, global_add_pool

import edgewise as ew
from checks import one_in
from edgewise.counterfactuals.allowance import Allowance, AllowanceSpent
from footprint import Footprint

CLASSES = 3
MODELS = {
    "GCN": lambda: GCN(4, 6, 2, CLASSES),
    "SAGE": lambda: GraphSAGE(4, 6, 3, CLASSES),
    "GIN": lambda: GIN(4, 6, 2, CLASSES),
    "GAT": lambda: GAT(4, 6, 2, CLASSES, heads=2),
    "GCN with norms and jumps": lambda: GCN(4, 6, 2, CLASSES, norm="BatchNorm", jk="cat"),
    "GIN with LeakyReLU": lambda: GIN(4, 6, 2, CLASSES, act=nn.LeakyReLU(0.3)),
}


def problem(name, seed, nodes=8, edges=11):
    torch.manual_seed(seed)
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model, Data(x=torch.randn(nodes, 4).double(), edge_index=torch.randint(nodes, (2, edges)))


def silenced(model, data, node):
    """What the model says with ω = 0 on some columns in every layer, through the hooked model."""
    score = ew.Score(model, data, [node])
    return lambda columns: score.output(
        (~torch.isin(score.edge_id, torch.tensor(columns, dtype=torch.long))).double().expand(score.num_layers, -1)
    )[0]


def removed(model, data, node):
    """What the model says about the graph without some columns."""

    def output(columns):
        kept = torch.ones(data.edge_index.size(1), dtype=torch.bool)
        kept[columns] = False
        return model(data.x, data.edge_index[:, kept])[node]

    return output


def smallest(output, units, flips):
    """The size of the smallest set of units that changes the prediction, by trying all of them; None: no set does."""
    for size in range(1, len(units) + 1):
        for chosen in combinations(units, size):
            if flips(output([column for unit in chosen for column in unit])):
                return size
    return None


def units_of(data, undirected):
    found = {}
    for column, (source, receiver) in enumerate(data.edge_index.t().tolist()):
        key = (min(source, receiver), max(source, receiver)) if undirected else column
        found.setdefault(key, []).append(column)
    return list(found.values())


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("by", ["weight", "removal"])
@pytest.mark.parametrize("name", MODELS)
def test_the_size_is_that_of_an_exhaustive_enumeration(name, by, undirected):
    model, data = problem(name, seed=sorted(MODELS).index(name) + 10 * undirected, edges=8)
    found = ew.counterfactual(model, data, [0, 1], by=by, undirected=undirected)
    for one in found:
        output = (silenced if by == "weight" else removed)(model, data, one.index)
        now = int(output([]).argmax())
        want = smallest(output, units_of(data, undirected), lambda row, now=now: bool(row.max() > row[now]))
        assert (one.size, one.status) == (want, "none" if want is None else "proven")
        assert one.target == now
        if want is not None:
            row = output(list(one.edges))
            assert int(row.argmax()) == one.flips_to != now
            assert torch.allclose(row, torch.tensor(one.after).double())
            assert one.lower_bound == want


@pytest.mark.parametrize("seed", one_in(3, range(9)))
def test_the_class_that_is_asked_for_is_reached_with_as_few_edges_as_can_be(seed):
    model, data = problem(["GCN", "GIN", "SAGE"][seed % 3], seed, edges=9)
    for wanted in range(CLASSES):
        one = ew.counterfactual(model, data, 0, to=wanted)
        output = silenced(model, data, 0)
        if int(output([]).argmax()) == wanted:
            assert (one.status, one.edges, one.size, one.flips_to, one.lower_bound) == ("proven", (), 0, wanted, 0)
            continue
        others = [j for j in range(CLASSES) if j != wanted]
        want = smallest(output, units_of(data, False), lambda row, a=wanted, b=others: bool((row[a] > row[b]).all()))
        assert (one.size, one.status) == (want, "none" if want is None else "proven")
        assert one.flips_to in (None, wanted)


@pytest.mark.parametrize("boxes", [0, 100])
@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_trees_alone_give_what_an_enumeration_gives(seed, boxes, monkeypatch):
    """Small graphs are enumerated; here bounds must do all the work, with the close search (no boxes) and without it."""
    monkeypatch.setattr("edgewise.counterfactuals.smallest_set._FEW", 0)
    monkeypatch.setattr("edgewise.counterfactuals.set_tree._FEW", boxes)
    monkeypatch.setattr("edgewise.counterfactuals.smallest_set.first_answer", lambda *_: None)
    name = ["GCN", "SAGE", "GIN", "GCN with norms and jumps"][seed % 4]
    torch.manual_seed(seed)
    model = MODELS[name]().double().eval()
    data = Data(x=torch.randn(8, 4).double(), edge_index=torch.randint(8, (2, 8)))
    for one in ew.counterfactual(model, data, range(2), undirected=seed % 2 == 0):
        output = silenced(model, data, one.index)
        want = smallest(output, units_of(data, seed % 2 == 0), lambda row, now=one.target: bool(row.max() > row[now]))
        assert (one.size, one.status) == (want, "none" if want is None else "proven")


def test_many_nodes_in_one_call_are_those_of_single_calls_and_nothing_is_left_behind():
    model, data = problem("GCN", 3)
    model.train()
    before = Footprint(model, data)
    together = ew.counterfactual(model, data, range(8), undirected=True)
    before.assert_unchanged()
    alone = [ew.counterfactual(model, data, node, undirected=True) for node in range(8)]
    assert [one.to_dict() | {"seconds": 0} for one in together] == [one.to_dict() | {"seconds": 0} for one in alone]
    assert ew.Question(model, data, 2).counterfactual(undirected=True).edges == alone[2].edges


def test_a_float32_model_is_searched_in_float64():
    model, data = problem("GIN", 5)
    single = Data(x=data.x.float(), edge_index=data.edge_index)
    found = ew.counterfactual(model.float(), single, [0, 1, 2])
    exact = ew.counterfactual(model.double(), Data(x=single.x.double(), edge_index=data.edge_index), [0, 1, 2])
    assert [one.to_dict() | {"seconds": 0} for one in found] == [one.to_dict() | {"seconds": 0} for one in exact]
    assert found[0].settings["precision"] == "float64"


# One convolution, by hand: z = 2·ω₀ + 1·ω₁ − 1 ########################################################################


def votes(*votes_, bias=-1.0):
    conv = SAGEConv(1, 1, aggr="sum", root_weight=False).double()
    conv.lin_l.weight.data.fill_(1.0)
    conv.lin_l.bias.data.fill_(bias)
    nodes = len(votes_)
    edges = torch.tensor([[*range(nodes)], [nodes] * nodes])
    return conv, Data(x=torch.tensor([*votes_, 0.0]).double().view(-1, 1), edge_index=edges)


def test_a_vote_worked_out_by_hand():
    model, data = votes(2.0, 1.0)
    one = ew.counterfactual(model, data, 2)  # z = 2: without the first vote 0, a tie; without both −1
    assert (one.status, one.edges, one.target, one.flips_to, one.lower_bound) == ("proven", (0, 1), 1, 0, 2)
    assert one.before == (2.0,)
    assert one.after == (-1.0,)
    assert one.probability("after") == pytest.approx(1 - 1 / (1 + 2.718281828459045))


def test_a_tie_is_no_flip():
    model, data = votes(1.0, 1.0, bias=0.0)
    one = ew.counterfactual(model, data, 2)  # never below 0
    assert (one.status, one.edges, one.flips_to, one.lower_bound) == ("none", (), None, 3)


def test_a_value_that_crosses_a_threshold():
    model, data = votes(2.0, 1.0, 1.0)
    down = ew.counterfactual(model, data, 3, mode="regression", threshold=0.5)
    assert (down.edges, down.target, down.flips_to, down.after) == ((0, 1), 1, 0, (0.0,))
    assert down.sentence() == "Without these 2 edges (0 → 3, 1 → 3): below 0.5, 0."
    up = ew.counterfactual(votes(2.0, -1.0)[0], votes(2.0, -1.0)[1], 2, mode="regression", threshold=0.5)
    assert (up.edges, up.target, up.flips_to) == ((1,), 0, 1)


def test_the_size_caps_the_search():
    model, data = votes(1.0, 1.0, 1.0, bias=-0.5)  # all three must go
    one = ew.counterfactual(model, data, 3, size=2)
    assert (one.status, one.edges, one.lower_bound) == ("open", (), 3)
    assert ew.counterfactual(model, data, 3, size=3).status == "proven"


def test_a_budget_that_is_spent_leaves_the_answer_open_with_a_bound():
    model, data = problem("GAT", 1, nodes=10, edges=40)
    one = next(one for one in ew.counterfactual(model, data, range(10), size=1) if one.status == "open")
    assert (one.edges, one.lower_bound) == ((), 2)
    short = ew.counterfactual(model, data, one.index, budget=one.num_units + 1)
    assert short.status == "open"
    assert short.lower_bound == 2
    assert short.evaluations <= one.num_units + 1


def test_a_node_without_edges_has_none():
    model, data = problem("GCN", 0)
    lonely = Data(x=data.x, edge_index=data.edge_index[:, :0])
    for undirected in (False, True):
        one = ew.counterfactual(model, lonely, 0, undirected=undirected)
        assert (one.status, one.num_units, one.lower_bound) == ("none", 0, 1)


def test_of_too_many_edges_only_single_ones_are_looked_at(monkeypatch):
    monkeypatch.setattr("edgewise.counterfactuals.smallest_set.MOST_UNITS", 2)
    model, data = votes(1.0, 1.0, 1.0, bias=-0.5)
    one = ew.counterfactual(model, data, 3)
    assert (one.status, one.edges, one.lower_bound) == ("open", (), 2)


def test_graphs_and_links_are_enumerated():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = SAGEConv(4, 4, aggr="sum"), nn.Linear(4, 2)

        def forward(self, x, edge_index, batch):
            return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))

    torch.manual_seed(1)
    model = Pooled().double().eval()
    graphs = [Data(x=torch.randn(5, 4).double(), edge_index=torch.randint(5, (2, 7))) for _ in range(3)]
    for by in ("weight", "removal"):
        for graph, one in zip(graphs, ew.counterfactual(model, graphs, task="graph", by=by), strict=True):
            batch = torch.zeros(5, dtype=torch.long)

            def output(columns, graph=graph, batch=batch):
                kept = [column for column in range(7) if column not in columns]
                return model(graph.x, graph.edge_index[:, kept], batch)[0]  # a sum: silenced is removed

            now = int(output([]).argmax())
            want = smallest(output, units_of(graph, False), lambda row, now=now: bool(row.max() > row[now]))
            assert (one.size, one.status) == (want, "none" if want is None else "proven")


# Refusals #############################################################################################################


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "magic"}, "weight, removal"),
        ({"size": 0}, "size"),
        ({"budget": 0}, "`budget` must be an integer ≥ 1"),
        ({"seconds": 0}, "seconds"),
        ({"to": 3}, "0 to 2, got 3"),
        ({"to": [0, 1]}, "one class for each of the 1 targets"),
        ({"to": "fraud"}, "`to` must be a class"),
        ({"threshold": 0.5}, "for regressions"),
        ({"mode": "regression", "target": 0}, "`threshold` must be given for a regression"),
        ({"mode": "regression", "target": 0, "threshold": 0.1, "to": 1}, "`to` must be left out"),
        ({"undirected": "yes"}, "undirected"),
    ],
)
def test_what_is_refused_and_why(options, words):
    model, data = problem("GCN", 0)
    with pytest.raises(ew.EdgewiseError, match=words.replace("`", ".")):
        ew.counterfactual(model, data, [0], **options)


def test_another_class_than_the_predicted_one_is_no_start():
    model, data = problem("GCN", 0)
    now = int(model(data.x, data.edge_index)[0].argmax())
    with pytest.raises(ew.InputError, match="starts from the predicted class"):
        ew.counterfactual(model, data, 0, target=(now + 1) % CLASSES)


def deep(convs=6, width=32):
    """A deep untrained network about which nothing is proven in a short time, and its graph."""
    torch.manual_seed(0)
    model = GraphSAGE(16, width, convs, 4).eval()
    generator = torch.Generator().manual_seed(1)
    x, edge_index = torch.randn(300, 16, generator=generator), torch.randint(300, (2, 1200), generator=generator)
    with torch.no_grad():
        model.convs[-1].lin_l.bias += torch.tensor([3.0, 0.0, 0.0, 0.0])
    return model, Data(x=x, edge_index=edge_index)


def test_a_search_ends_after_ten_seconds_unless_something_else_is_asked():
    model, data = votes(1.0, 1.0)
    default = ew.counterfactual(model, data, 2).settings
    assert (default["seconds"], default["budget"]) == (10.0, None)
    assert ew.Question(model, data, 2).counterfactual().settings["seconds"] == 10.0
    free = ew.counterfactual(model, data, 2, seconds=None).settings
    assert (free["seconds"], free["budget"]) == (None, None)
    with pytest.raises(ew.SettingError, match="seconds"):
        ew.counterfactual(model, data, 2, seconds=math.nan)


def test_the_limit_of_time_is_kept_and_the_answer_says_what_to_type_for_longer():
    model, data = deep()
    start = time.perf_counter()
    one = ew.counterfactual(model, data, 5, seconds=0.5)
    assert time.perf_counter() - start < 5.0  # alone about 0.7 s; the machine may be busy
    assert one.status == "open"
    assert one.seconds < 4.0
    assert str(one).endswith("The search ended after 0.5 s. Use seconds=5 for a longer one.")
    few = ew.counterfactual(model, data, 5, budget=3)
    assert str(few).endswith("The search ended after 3 sets. Use budget=30 for a longer one.")


def test_an_open_answer_names_its_own_limit():
    model, data = votes(1.0, 1.0, 1.0, bias=-0.5)
    assert str(ew.counterfactual(model, data, 3, size=2)).endswith("Larger sets were not tried: size=2.")
    assert ew.counterfactual(model, data, 3).advice() == ""


def test_a_set_that_was_found_before_the_time_was_over_is_kept(monkeypatch):
    model, data = votes(1.0, 1.0, 1.0, bias=-2.5)  # each alone is enough
    monkeypatch.setattr("edgewise.counterfactuals.set_answers.RemovedAnswers.at_once", 1)
    spent = []

    def spend(self, count):
        if spent:
            raise AllowanceSpent("seconds")
        spent.append(count)

    monkeypatch.setattr(Allowance, "spend", spend)
    one = ew.counterfactual(model, data, 3, by="removal")
    assert (one.status, one.edges) == ("proven", (0,))


def test_a_step_that_took_long_is_not_begun_again_just_before_the_end(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("edgewise.counterfactuals.allowance._clock", lambda: now[0])
    allowance = Allowance(seconds=10.0)
    now[0] = 4.0
    allowance.spend(1)
    now[0] = 8.0
    with pytest.raises(AllowanceSpent, match="seconds"):
        allowance.spend(1)
    assert allowance.spent == 1


def test_what_is_proven_and_what_is_certified_to_a_tolerance_are_told_apart():
    model, data = votes(1.0, 1.0)
    assert ew.counterfactual(model, data, 2).certainty == "proven"
    other = ew.counterfactual(model, data, 2, by="removal")
    assert other.status == "proven"
    assert other.certainty == "certified to a tolerance of 1e-10 of the largest output"
    assert other.certainty in str(other)
    assert other.to_dict()["certainty"] == other.certainty
