"""A question is proved once and asked in many ways; of a model or data that have changed it is refused."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, ChebConv, GCNConv, SAGEConv, global_add_pool

import edgewise as ew
import zoo
from checks import assert_close, own_scores_of, scores_of

METHODS = ("gradient", "occlusion", "gnn_explainer")


def problem(name="gcn_relu"):
    return zoo.BY_NAME[name].build(), zoo.GRAPHS["everything"]()


def large_graph(nodes=3000, features=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
    return Data(x=torch.randn(nodes, features, generator=generator, dtype=torch.float64), edge_index=edge_index)


def large_model(features=40, seed=0):
    torch.manual_seed(seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = GCNConv(features, 6), GCNConv(6, 3)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index)

    return Net().double().eval()


@pytest.mark.parametrize(
    "name", ["gcn_relu", "gat", "transformer"] if "transformer" in zoo.BY_NAME else ["gcn_relu", "gat"]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_function_gives_what_its_question_gives_to_the_last_bit(name, method):
    model, data = problem(name)
    options = {"epochs": 3} if method == "gnn_explainer" else {}
    for level in ("input", "layer"):
        asked = ew.Question(model, data, [1, 3]).explain(method=method, level=level, **options)
        called = ew.explain(model, data, [1, 3], method=method, level=level, **options)
        assert torch.equal(scores_of(asked), scores_of(called))


def test_an_int_stays_an_int():
    model, data = problem()
    assert ew.Question(model, data, 2).index == 2
    assert ew.Question(model, data, [2]).index == [2]
    assert isinstance(ew.Question(model, data, 2).explain(), ew.Explanation)
    assert isinstance(ew.Question(model, data, [2]).explain(), ew.ExplanationSet)


def test_the_same_question_of_other_targets_gives_their_scores():
    model, data = problem()
    ask = ew.Question(model, data, [0])
    for node in range(data.num_nodes):
        mine = ask.of(node).explain(level="layer")
        theirs = ew.explain(model, data, node, level="layer")
        assert_close(mine.scores, theirs.scores, 1e-12)
        assert mine.target == theirs.target


def test_a_first_node_that_no_weight_moves_is_no_measure_for_others():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = GCNConv(40, 6, add_self_loops=False), GCNConv(6, 6, bias=False)
            self.lin, self.head = nn.Linear(6, 4), nn.Linear(4, 1)

        def forward(self, x, edge_index):
            hidden = self.two(self.one(x, edge_index).tanh(), edge_index)
            return self.head(self.lin(nn.functional.normalize(hidden, dim=-1)).tanh()).sigmoid()

    data, model = large_graph(nodes=4000), zoo.randomise(Net())
    loops = torch.arange(0, 4000, 20).expand(2, -1)  # with loops each neighbourhood is recorded again
    data.edge_index = torch.cat([data.edge_index[:, :3000], loops], dim=1)
    lonely = [node for node in range(4000) if node not in data.edge_index[1]][:10]
    ask = ew.Question(model, data, lonely)  # of length 1, however much their own terms weigh
    assert_close(
        torch.cat([ask.of(node).value for node in range(0, 4000, 20)]), ask.of(range(0, 4000, 20)).value, 1e-12
    )


def test_one_class_for_all_targets_is_kept_for_others_and_classes_of_their_own_are_not():
    model, data = problem()
    one = ew.Question(model, data, [0, 1], target=2)
    assert one.of([3, 4]).target.tolist() == one.of(3).of([3, 4]).target.tolist() == [2, 2]
    assert one.of([3, 4], target=1).target.tolist() == [1, 1]
    each = ew.Question(model, data, [0, 1], target=[2, 2]).of([3, 4])
    assert_close(each.value, ew.Question(model, data, [3, 4]).value, 1e-12)


def test_the_same_question_of_other_targets_on_a_large_graph_gives_their_scores():
    model, data = large_model(), large_graph()
    ask = ew.Question(model, data, [7])
    assert ask.settings["locality"] == "proved"
    for node in (7, 11, 1234):
        mine = ask.of(node).explain(level="layer")
        whole = ew.explain(model, data, level="layer")[node] if node == 7 else None
        theirs = ew.explain(model, data, node, level="layer")
        assert_close(mine.scores, theirs.scores, 1e-12)
        if whole is not None:
            assert_close(mine.scores, whole.scores, 1e-12)
            assert_close(mine.self_scores, whole.self_scores, 1e-12)


@pytest.mark.parametrize("method", ["gradient", "occlusion", "gnn_explainer", "integrated_gradients", "lrp", "random"])
def test_on_a_cut_every_method_gives_what_it_gives_on_the_whole_graph(method):
    model, data = large_model(), large_graph()
    options = {"epochs": 3} if method == "gnn_explainer" else {}
    cut = ew.explain(model, data, [5, 99], method=method, **options)
    whole = ew.explain(model, data, method=method, **options)
    assert_close(cut[0].scores, whole[5].scores, 1e-10)
    assert_close(cut[1].scores, whole[99].scores, 1e-10)


def test_walks_on_a_cut_are_walks_of_the_whole_graph():
    model, data = large_model(), large_graph()
    one, every = ew.walks(model, data, 5, k=4), ew.walks(model, data, range(3000), k=4)[5]
    assert [walk.nodes for walk in one] == [walk.nodes for walk in every]
    assert one.exact
    relevance = ew.walk_relevance(model, data, 5, walks=list(one))
    assert_close(relevance, torch.tensor([walk.score for walk in one], dtype=torch.float64), 1e-10)


def test_a_model_that_reads_all_nodes_is_not_cut():
    class Far(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(40, 3)

        def forward(self, x, edge_index):
            return self.conv(x - x.mean(dim=0), edge_index)

    model, data = Far().double().eval(), large_graph()
    with pytest.warns(ew.LocalityWarning):
        why = ew.explain(model, data, 5)
    assert why.settings["locality"] == "whole graph"
    assert_close(torch.tensor(why.value, dtype=torch.float64), model(data.x, data.edge_index)[5].max().detach(), 1e-9)


def test_a_constant_that_depends_on_the_number_of_nodes_is_noticed():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(40, 3)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index) * (100 / x.size(0))

    model, data = Sized().double().eval(), large_graph()
    with pytest.warns(ew.LocalityWarning):
        why = ew.explain(model, data, 5)
    assert_close(torch.tensor(why.value, dtype=torch.float64), model(data.x, data.edge_index)[5].max().detach(), 1e-9)


@pytest.mark.parametrize(
    "change",
    [
        lambda model, data: model.one.bias.data.add_(1),
        lambda model, data: setattr(model.one, "add_self_loops", False),
        lambda model, data: setattr(model, "one", copy.deepcopy(model.one)),
        lambda model, data: data.x.data.mul_(2),
        lambda model, data: data.__setattr__("x", data.x * 2),
        lambda model, data: data.__setattr__("edge_index", data.edge_index.flip(0)),
    ],
    ids=["bias by .data", "an attribute", "a module", "features in place", "features", "edges"],
)
def test_a_question_about_something_that_has_changed_is_refused(change):
    model, data = large_model(features=4), zoo.graph([(0, 1), (1, 2), (2, 0), (0, 2)], 3)
    data = Data(x=torch.randn(3, 4, dtype=torch.float64), edge_index=data.edge_index)
    ask = ew.Question(model, data, [0, 1])
    ask.explain()
    change(model, data)
    if change.__code__.co_consts and "one" in change.__code__.co_names and "deepcopy" in change.__code__.co_names:
        with torch.no_grad():
            model.one.bias += 1
    for answer in (ask.explain, ask.walks, ask.check, lambda: ask.of(2)):
        with pytest.raises(ew.StaleQuestionError, match="changed since"):
            answer()


def test_a_change_far_away_does_not_matter():
    model, data = large_model(), large_graph()
    ask = ew.Question(model, data, [5])
    before = ask.explain()[0].scores
    far = torch.ones(3000, dtype=torch.bool)
    far[ask._posed.cut.node_id] = False
    data.x[far] += 1
    assert torch.equal(ask.explain()[0].scores, before)


def test_a_question_cannot_be_changed():
    model, data = problem()
    with pytest.raises(AttributeError, match="cannot be changed"):
        ew.Question(model, data, 1).index = 2


def test_the_preflight_says_what_will_happen():
    model, data = problem()
    data.y = model(data.x, data.edge_index).argmax(dim=1)
    text = str(ew.Question(model, data, [1, 2]))
    for word in (
        "node, 2 targets",
        "logit",
        "layers",
        "lowered",
        "agreement with y",
        "2 of 2",
        "gradient",
        "shapley",
        "seconds",
    ):
        assert word in text, word


def test_questions_about_graphs_hold_too():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = SAGEConv(4, 6), nn.Linear(6, 2)

        def forward(self, x, edge_index, batch):
            return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))

    torch.manual_seed(0)
    model = Pooled().double().eval()
    graphs = [Data(x=torch.randn(5, 4, dtype=torch.float64), edge_index=torch.randint(0, 5, (2, 9))) for _ in range(4)]
    ask = ew.Question(model, graphs, [0, 2], task="graph")
    assert_close(scores_of(ask.explain()), scores_of(ew.explain(model, graphs, [0, 2], task="graph")), 0.0)
    one = ask.of(3).explain(level="layer")
    assert_close(one.scores, ew.explain(model, graphs, 3, task="graph", level="layer").scores, 1e-12)
    assert own_scores_of(ask.explain()).shape[0] == 2
    graphs[1].x += 1
    with pytest.raises(ew.StaleQuestionError):
        ask.explain()


@pytest.mark.parametrize("how", ["in place", "unseen", "exchanged"])
def test_edges_of_a_large_graph_that_change_under_a_held_question_are_noticed(how):
    torch.manual_seed(0)
    data = Data(x=torch.randn(20000, 8), edge_index=torch.randint(0, 20000, (2, 60000)))
    ask = ew.Question(GCN(8, 8, 2, 3).eval(), data, [5])
    ask.of(7)  # from now on edges are looked up in groups
    column = int((data.edge_index[1] == 11).nonzero()[0])
    if how == "in place":
        data.edge_index[0, column] = 12
    elif how == "unseen":
        data.edge_index.data[0, column] = 12
    else:
        data.edge_index = data.edge_index.clone()
        data.edge_index[0, column] = 12
    with pytest.raises(ew.StaleQuestionError, match="edge_index"):
        ask.of(11)


def test_other_targets_of_a_model_that_is_not_proved_local_are_confirmed_too():
    """A polynomial of the Laplacian reads degrees further away than its layers say; a lonely node does not show it."""
    torch.manual_seed(0)
    edges = torch.randint(1, 9000, (2, 20000))
    data = Data(x=torch.randn(9000, 16, dtype=torch.double), edge_index=edges)
    model = ChebConv(16, 3, K=3).double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, [0])  # nothing ends there
        assert ask.settings["locality"] == "confirmed"
        truth = model(data.x, data.edge_index).detach()
        for node in (5, 123, 4567):
            assert_close(ask.of(node).value, truth[node].max().view(1), 1e-9)


@pytest.mark.parametrize("before", [True, False])
def test_targets_that_share_a_pass_do_not_share_a_maximum_over_all_rows(before):
    """In copies side by side its value is right, but its gradient would go to the copy that happens to hold the row."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = SAGEConv(3, 4), SAGEConv(4, 2)

        def forward(self, x, edge_index):
            x = x / x.abs().max() if before else x
            h = self.one(x, edge_index)
            return self.two(h if before else h / h.abs().max(), edge_index)

    torch.manual_seed(0)
    data = Data(x=torch.randn(30, 3).double(), edge_index=torch.randint(0, 30, (2, 60)))
    data.x[4] = torch.tensor([7.0, 8.0, 9.0])  # no tie, which would be a kink
    model, nodes = Scaled().double().eval(), list(range(30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        together = ew.features(model, data, nodes, method="gradient")
        for node in (0, 7, 21):
            leaf = data.x.clone().requires_grad_()
            out = model(leaf, data.edge_index)[node]
            (slope,) = torch.autograd.grad(out[out.argmax()], leaf)
            assert_close(together[node].scores, slope, 1e-9)


class ScaledBehind(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(3, 2, add_self_loops=False, bias=False)

    def forward(self, x, edge_index):
        h = torch.nn.functional.normalize(self.conv(x, edge_index) + 0.1 * x[:, :2])
        return h / h.sum(1).max()


def test_a_maximum_over_all_nodes_belongs_to_another_one_as_soon_as_a_message_is_gone():
    """At ω = 1 the target itself has it, so that its neighbourhood gives the right value, and the wrong occlusion."""
    torch.manual_seed(0)
    data = Data(x=torch.rand(12, 3, dtype=torch.double), edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
    data.x[4:] *= torch.tensor([1.0, 0.3, 0.0])
    model, asked = ScaledBehind().double().eval(), {"target": 0, "output": "logit"}
    with pytest.warns(ew.LocalityWarning, match="the largest of all nodes"):
        found = ew.explain(model, data, [0, 1], method="occlusion", **asked)
    for column in range(3):
        twin = copy.deepcopy(model)
        kept = (torch.arange(3) != column)[:, None]
        twin.conv.register_message_forward_hook(lambda conv, inputs, out, kept=kept: out * kept)
        with torch.no_grad():
            lost = model(data.x, data.edge_index) - twin(data.x, data.edge_index)
        for position in range(2):
            assert float(found[position].scores[column]) == pytest.approx(float(lost[position, 0]), abs=1e-12)


def test_a_maximum_over_all_features_belongs_to_another_one_as_soon_as_a_feature_is_gone():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 2)

        def forward(self, x, edge_index):
            return self.conv(x / x.abs().max(), edge_index)

    torch.manual_seed(0)
    data = Data(x=torch.rand(12, 3, dtype=torch.double), edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]))
    data.x[1, 2] = 3.0
    model, gone = Scaled().double().eval(), data.x.clone()
    gone[1, 2] = 0
    with torch.no_grad():
        lost = model(data.x, data.edge_index) - model(gone, data.edge_index)
    for node in (0, 2):
        found = ew.features(model, data, node, method="occlusion", target=0)
        assert float(found.scores[1, 2]) == pytest.approx(float(lost[node, 0]), abs=1e-12)
    assert ew.explain(model, data, 0, method="occlusion", target=0).settings["hops"] == 1  # no message can move it
