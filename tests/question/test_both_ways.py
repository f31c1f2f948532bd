"""Models whose messages run along edges and against them: neighbourhoods both ways, the same answers as the whole graph's.

The oracle hooks the user's own model on the whole graph. `flip` and `cat` keep the order of columns, so the messages of a call
are those of all columns once, or once for each direction.
"""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import DirGNNConv, GATConv, GCNConv, GraphConv, MessagePassing, SAGEConv

import edgewise as ew
from checks import assert_close, one_in
from edgewise.graph import cut
from edgewise.graph.computation_graph import InEdges, reach

NODES, INDEX = 150, [41, 3]
WRITES = ("author", "writes", "paper")


class Net(nn.Module):
    """Two layers on what `ways` makes of the edges, a ReLU in between."""

    def __init__(self, make, ways=lambda edges: (edges, edges)):
        super().__init__()
        self.one, self.two, self.ways = make(4, 5), make(5, 3), ways

    def forward(self, x, edge_index):
        first, second = self.ways(edge_index)
        return self.two(self.one(x, first).relu(), second)


def both(edges):
    return torch.cat([edges, edges.flip(0)], dim=1)


MODELS = {
    "dir sage": lambda: Net(lambda a, b: DirGNNConv(SAGEConv(a, b), alpha=0.3)),
    "dir gcn": lambda: Net(lambda a, b: DirGNNConv(GCNConv(a, b))),
    "dir gat": lambda: Net(lambda a, b: DirGNNConv(GATConv(a, b), root_weight=False)),
    "symmetrised": lambda: Net(GraphConv, lambda edges: (both(edges), both(edges))),
    "there and back": lambda: Net(SAGEConv, lambda edges: (edges, edges.flip(0))),
    "back and there": lambda: Net(SAGEConv, lambda edges: (edges.flip(0), edges)),
}


def problem(name, seed=0, loops=True):
    """A ring with chords in one direction, a parallel column, a loop and an isolated node."""
    torch.manual_seed(seed)
    ring = torch.arange(NODES - 1)
    ends = torch.stack([ring.repeat(2), torch.cat([(ring + 1) % len(ring), (ring + 7) % len(ring)])])
    extra = torch.tensor([[3, 40], [4, 41]] + ([[41, 41]] if loops else []))
    ends = torch.cat([ends, extra.t()], dim=1)
    data = Data(x=torch.randn(NODES, 4).double(), edge_index=ends[:, torch.randperm(ends.size(1))])
    model = MODELS[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model, data


def weighted(model, data, weight):
    """The model's output on the whole graph under ω `[2, E]`, by hooks of our own."""
    layers = {m: int(name.startswith("two")) for name, m in model.named_modules() if isinstance(m, MessagePassing)}

    def hook(module, _, output):
        times = output.size(module.node_dim) // data.edge_index.size(1)
        shape = [1] * output.dim()
        shape[module.node_dim] = -1
        return output * weight[layers[module]].repeat(times).view(shape)

    handles = [module.register_message_forward_hook(hook) for module in layers]
    try:
        return model(data.x, data.edge_index)
    finally:
        for handle in handles:
            handle.remove()


@pytest.fixture(params=[0, 10**9], ids=["cut", "whole"])
def is_cut(request, monkeypatch):
    monkeypatch.setattr(cut, "_SMALL", request.param)
    return request.param == 0


@pytest.mark.parametrize("seed", one_in(2, [0, 1]))
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_whole_graph_at_several_weights(name, seed, is_cut):
    model, data = problem(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ew.LocalityWarning)
        ask = ew.Question(model, data, INDEX)
        lost = ask.of(INDEX[:1]).explain(method="occlusion")
        gradient = ask.explain(level="layer")
        score = ew.Score(model, data, INDEX)
    assert ask._posed.cut.is_whole != is_cut
    assert gradient.settings["way"] == "copies"
    edges = data.edge_index.size(1)
    generator = torch.Generator().manual_seed(seed)
    for row, (node, target) in enumerate(zip(INDEX, gradient.target.tolist(), strict=True)):
        omega = torch.ones(2, edges, dtype=torch.float64).requires_grad_()
        (true,) = torch.autograd.grad(weighted(model, data, omega)[node, target], omega)
        assert_close(gradient[row].scores, true, 1e-11)
        assert bool((true != 0).any())
        with torch.no_grad():
            ones = omega.detach()
            full = weighted(model, data, ones)[node, target]
            for column in score.edge_id[score.owner == row].tolist() if row == 0 else []:
                without = ones.clone()
                without[:, column] = 0
                true = full - weighted(model, data, without)[node, target]
                assert_close(lost[0].scores[column], true, 1e-11)
    for _ in range(3):
        weight = 2 * torch.rand(2, edges, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            true = weighted(model, data, weight)[INDEX, gradient.target]
            assert_close(score(weight[:, score.edge_id]), true, 1e-11)


def test_only_edges_within_reach_both_ways_get_copies():
    model, data = problem("dir sage")
    score = ew.Score(model, data, INDEX)
    near = reach(
        InEdges.of(torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1), NODES), torch.tensor(INDEX), 1
    )
    for row in range(len(INDEX)):
        nodes = near.node[near.target == row]
        touched = (torch.isin(data.edge_index, nodes).any(0)).nonzero().view(-1)
        assert sorted(score.edge_id[score.owner == row].tolist()) == touched.tolist()


@pytest.mark.parametrize("name", ["dir sage", "dir gcn", "there and back"])
def test_other_targets_of_a_held_question_are_cut_both_ways_again(name, monkeypatch):
    model, data = problem(name)
    monkeypatch.setattr(cut, "_SMALL", 0)
    ask = ew.Question(model, data, INDEX)
    assert ask._posed.locality == "proved"
    for node in (3, 20, NODES - 1):
        again = ask.of(node)
        assert not again._posed.cut.is_whole
        assert again._posed.locality == (
            "confirmed" if node == NODES - 1 else "proved"
        )  # nothing is sent to the last one
        omega = torch.ones(2, data.edge_index.size(1), dtype=torch.float64).requires_grad_()
        why = again.explain(level="layer")
        true = torch.autograd.grad(weighted(model, data, omega)[node, why.target], omega, allow_unused=True)[0]
        assert_close(why.scores, true, 1e-11)


@pytest.mark.parametrize("name", ["dir sage", "dir gcn", "symmetrised"])
def test_links_of_models_that_send_both_ways_are_those_of_the_whole_graph(name, is_cut):
    class Linked(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.one, self.two, self.ways = inner.one, inner.two, inner.ways

        encode = Net.forward

        def decode(self, z, pairs):
            return (z[pairs[0]] * z[pairs[1]]).sum(-1)

    inner, data = problem(name)
    model, pairs = Linked(inner).eval(), [(41, 42), (3, 30)]
    for without_itself in (False, True):
        found = ew.explain(model, data, pairs, task="link", level="layer", without_itself=without_itself)
        for row, (u, v) in enumerate(pairs):
            ends = data.edge_index
            itself = ((ends[0] == u) & (ends[1] == v)) | ((ends[0] == v) & (ends[1] == u))
            kept = ~itself if without_itself else torch.ones_like(itself)
            graph = Data(x=data.x, edge_index=ends[:, kept])
            omega = torch.ones(2, int(kept.sum()), dtype=torch.float64).requires_grad_()
            rows = weighted(inner, graph, omega)
            (true,) = torch.autograd.grad((rows[u] * rows[v]).sum(), omega)
            assert_close(found[row].scores[:, kept], true, 1e-11)
            assert bool((found[row].scores[:, ~kept] == 0).all())


def test_features_of_models_that_send_both_ways_are_those_of_autograd(is_cut):
    model, data = problem("dir gcn")
    x = data.x.clone().requires_grad_()
    for what in ew.features(model, data, INDEX, method="gradient"):
        (true,) = torch.autograd.grad(model(x, data.edge_index)[what.index, what.target], x)
        assert_close(what.scores, true, 1e-11)


class SomeFlipped(nn.Module):
    """Columns with a mark are sent the other way round: where none is near, the first look sees one direction."""

    def __init__(self):
        super().__init__()
        self.one, self.two = SAGEConv(4, 5), SAGEConv(5, 3)

    def forward(self, x, edge_index, edge_attr):
        marked = edge_attr.view(-1) > 0
        edges = torch.cat([edge_index[:, ~marked], edge_index[:, marked].flip(0)], dim=1)
        return self.two(self.one(x, edges).relu(), edges)


def test_a_direction_that_the_first_look_did_not_show_is_found_around_the_targets(monkeypatch):
    monkeypatch.setattr(cut, "_SMALL", 0)
    torch.manual_seed(0)
    ring = torch.arange(NODES)
    data = Data(x=torch.randn(NODES, 4).double(), edge_index=torch.stack([ring, (ring + 1) % NODES]))
    data.edge_attr = (ring >= 69).double().view(-1, 1)  # node 70 reads 69 and 71: columns 69 and 70 run backwards
    model = SomeFlipped().double().eval()
    x = data.x.clone().requires_grad_()
    with pytest.warns(ew.KinkWarning, match="edge attributes"):  # they choose the columns that are turned round: a step
        what = ew.features(model, data, 70, method="gradient")
    (true,) = torch.autograd.grad(model(x, data.edge_index, data.edge_attr)[70, what.target], x)
    assert_close(what.scores, true, 1e-11)
    with pytest.raises(ew.ModelError, match="Ask a new question"):
        ew.Question(model, data, 30).of(70)


class TypedThereAndBack(nn.Module):
    """Authors and papers exchange over the columns of one relation, which are flipped for the way back."""

    def __init__(self):
        super().__init__()
        self.there, self.back, self.last = SAGEConv((5, 3), 4), SAGEConv((3, 5), 4), SAGEConv((4, 4), 2)

    def forward(self, x_dict, edge_index_dict):
        edges = edge_index_dict[WRITES]
        paper = self.there((x_dict["author"], x_dict["paper"]), edges).relu()
        author = self.back((x_dict["paper"], x_dict["author"]), edges.flip(0)).relu()
        return self.last((author, paper), edges)


def typed_problem():
    torch.manual_seed(0)
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(6, 5).double(), torch.randn(7, 3).double()
    data[WRITES].edge_index = torch.stack([torch.randint(0, 6, (14,)), torch.randint(0, 7, (14,))])
    return TypedThereAndBack().double().eval(), data


def test_a_typed_relation_that_is_flipped_for_the_way_back_owns_both_messages():
    model, data = typed_problem()
    for why in ew.explain(model, data, ("paper", None), level="layer"):
        omega = torch.ones(2, 14, dtype=torch.float64).requires_grad_()
        weights = {model.there: omega[0], model.back: omega[0], model.last: omega[1]}

        def hook(module, _, output, weights=weights):
            return output * weights[module].view(-1, 1)

        handles = [module.register_message_forward_hook(hook) for module in weights]
        (true,) = torch.autograd.grad(model(data.x_dict, data.edge_index_dict)[why.index[1], why.target], omega)
        for handle in handles:
            handle.remove()
        assert_close(why.scores[WRITES], true, 1e-12)


def test_walks_over_a_flipped_relation_of_a_typed_graph_sum_to_the_number_without_biases():
    model, data = typed_problem()
    for conv in (model.there, model.back, model.last):
        conv.lin_l.bias.data.zero_()
    (walks,) = ew.walks(model, data, ("paper", [2]), k=10**4, search="exhaustive", sign="magnitude")
    assert sum(walk.score for walk in walks) == pytest.approx(walks.value, abs=1e-12)
    assert {walk.nodes[0][0] for walk in walks} == {"author", "paper"}
    gradient = ew.explain(model, data, ("paper", 2), level="layer")
    found = ew.explain(model, data, ("paper", 2), level="layer", method="lrp", rule="lrp-epsilon", epsilon=0.0)
    assert_close(found.scores[WRITES], gradient.scores[WRITES], 1e-12)
