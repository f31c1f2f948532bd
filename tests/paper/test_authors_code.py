"""What is made as the authors' code makes it, against slow twins that follow the same lines one target at a time."""

import math
import random

import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCN, GIN, MessagePassing, SGConv, global_mean_pool
from torch_geometric.nn.models.basic_gnn import BasicGNN

import edgewise as ew
from checks import scores_of
from edgewise.score import Score
from edgewise_paper.authors_code.layer_explainer import coded_masks
from edgewise_paper.authors_code.lean_batches import LeanGraphs, lean_logits
from edgewise_paper.authors_code.maskable import Maskable, explained
from edgewise_paper.authors_code.rebuilt import coloured_graph, rebuilt_infection
from edgewise_paper.authors_code.scripted_flips import SCRIPTED, graph_tally, node_tally, scripted_columns
from edgewise_paper.authors_code.trainings import batch_orders, coded_logits, linear_network, one_split
from edgewise_paper.data import GraphSet, NodeSet
from edgewise_paper.training.networks import graph_network


def random_graph(seed, nodes=9, chance=0.25, *, loops=True):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(nodes, nodes, generator=generator) < chance
    if not loops:
        dense &= ~torch.eye(nodes, dtype=torch.bool)
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=dense.nonzero().t().contiguous(), y=torch.zeros(nodes, dtype=torch.long))


def network(kind, seed, layers=2, **settings):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(3, 4, layers, 3, **settings).double().eval()


# The layerwise explainer ##############################################################################################


def masked(model, data, masks, *, sigmoid):
    """The model's output with one PyG mask for each layer."""
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    for module, mask in zip(layers, masks, strict=True):
        set_masks(module, mask, data.edge_index, apply_sigmoid=sigmoid)
    try:
        return model(data.x, data.edge_index)
    finally:
        clear_masks(model)


def slow_masks(model, data, node, start, epochs):
    """One target, line by line: rounds from the last layer on, selections that begin as E integer zeros, mean entropy."""
    logits = [row.clone().requires_grad_() for row in start]
    chosen = [torch.zeros(data.num_edges, dtype=torch.long) for _ in logits]
    target = model(data.x, data.edge_index)[node].argmax().view(1)
    optimizer = torch.optim.Adam(logits, lr=0.01)
    for layer in reversed(range(len(logits))):
        for step in range(epochs):
            optimizer.zero_grad()
            loss = functional.cross_entropy(masked(model, data, logits, sigmoid=True)[[node]], target)
            mask = torch.cat([row[some].sigmoid() for row, some in zip(logits, chosen, strict=True)])
            entropy = -mask * torch.log(mask + 1e-15) - (1 - mask) * torch.log(1 - mask + 1e-15)
            (loss + 0.005 * mask.sum() + entropy.mean()).backward()
            optimizer.step()
            if step == 0:
                chosen[layer] = logits[layer].grad != 0
    return torch.stack([row.detach().sigmoid() * some for row, some in zip(logits, chosen, strict=True)])


@pytest.mark.parametrize(("kind", "layers", "seed"), [(GCN, 2, 1), (GIN, 2, 2), (GCN, 3, 3), (GCN, 1, 4)])
def test_masks_of_all_targets_at_once_are_those_of_the_code_line_by_line(kind, layers, seed, monkeypatch):
    data, model = random_graph(seed), network(kind, seed, layers)
    starts = torch.randn(data.num_nodes, layers, data.num_edges, generator=torch.Generator().manual_seed(5)) * 0.3
    nodes = torch.tensor([0, 4])
    monkeypatch.setattr(
        "edgewise_paper.authors_code.layer_explainer._start",
        lambda score, columns, _: starts[score.index[columns.owner], :, columns.edge].t().double().contiguous(),
    )
    full = ew.explain(model, data, nodes, method="full", level="layer")
    found = scores_of(coded_masks(full, model, data, nodes, epochs=12))
    for row, node in enumerate(nodes.tolist()):
        expected = slow_masks(model, data, node, starts[node].double(), epochs=12)
        torch.testing.assert_close(found[row], expected, atol=1e-6, rtol=0)
    assert bool((found[:, :, 0] > 0).all()) or bool(
        data.edge_index[0, 0] == data.edge_index[1, 0]
    )  # edge 0 is everywhere


def test_self_loops_of_the_graph_have_no_score_where_pyg_masks_do_not_reach_them():
    data, model = random_graph(1), network(GCN, 1)
    loops = data.edge_index[0] == data.edge_index[1]
    assert bool(loops.any())
    nodes = torch.arange(data.num_nodes)
    scores = scores_of(explained(model, data, nodes, method="gradient", level="layer"))
    for node in nodes.tolist():
        weights = [torch.ones(data.num_edges, dtype=torch.double, requires_grad=True) for _ in range(2)]
        out = masked(model, data, weights, sigmoid=False)[node]
        out[out.argmax()].backward()
        expected = torch.stack([torch.zeros_like(w) if w.grad is None else w.grad for w in weights])
        torch.testing.assert_close(scores[node], expected)
    assert not scores[:, :, loops].any()
    assert Maskable.of(network(GIN, 1), data).columns is None


# Sign flips ###########################################################################################################


def slow_tally(model, data, nodes, columns):
    """Counts of the script, one edge, weight and target at a time: counted, changed, + to −, − to +."""
    predicted = model(data.x, data.edge_index).argmax(dim=1)

    def signs(weight, *, sigmoid):
        def numbers(mask):
            set_masks(model, mask, data.edge_index, apply_sigmoid=sigmoid)
            out = model(data.x, data.edge_index)[nodes, predicted[nodes]]
            clear_masks(model)
            return out

        return torch.autograd.functional.jacobian(numbers, weight).sign()

    first = signs(torch.ones(data.num_edges, dtype=torch.double), sigmoid=False)
    flags = torch.zeros(3, *first.shape, dtype=torch.bool)
    for column in columns.tolist():
        for value in torch.arange(0, 1, 0.05):
            weight = torch.ones(data.num_edges, dtype=torch.double)
            weight[column] = value
            now = signs(weight, sigmoid=True)
            flags |= torch.stack([now != first, first - now > 1, now - first > 1])
    return [(first != 0).sum(dim=1), *flags.sum(dim=2)]


@pytest.mark.parametrize(("kind", "seed"), [(GCN, 0), (GIN, 1), (GCN, 6)])
def test_flips_are_those_of_the_script_one_edge_and_weight_at_a_time(kind, seed):
    data, model = random_graph(seed, nodes=6), network(kind, seed, 3)
    nodes, columns = torch.tensor([1, 3]), torch.arange(data.num_edges)
    tally, count = node_tally(model, data, nodes, columns)
    expected = slow_tally(model, data, nodes, columns)
    found = (tally.counted, tally.changed, tally.to_negative, tally.to_positive)
    assert count == 2
    assert [some.tolist() for some in found] == [some.double().tolist() for some in expected]
    total = max(float(expected[0].sum()), 1.0)
    assert tally.pooled()["all"] == pytest.approx(float(expected[1].sum()) / total)


def test_flips_of_graphs_count_changes_between_plus_and_minus_alone():
    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gnn = network(GCN, 3, 3)

        def forward(self, x, edge_index, batch=None):
            return global_mean_pool(self.gnn(x, edge_index)[:, :1], batch)

    graphs, model = [random_graph(seed, nodes=6, loops=False) for seed in (1, 2)], Pooled().eval()
    tally = graph_tally(model, graphs)
    for row, graph in enumerate(graphs):
        score = Score(model, [graph], task="graph")
        place = torch.zeros(graph.num_edges, dtype=torch.long)
        place[score.edge_id] = torch.arange(graph.num_edges)

        def signs(weight, score=score, place=place):
            omega = weight[score.edge_id].requires_grad_()
            (found,) = torch.autograd.grad(score(omega.expand(3, -1)).sum(), omega)
            return found[place].sign()

        first, down, up = signs(torch.ones(graph.num_edges).double()), 0, 0
        for column in range(graph.num_edges):
            for value in SCRIPTED.weights:
                weight = torch.full((graph.num_edges,), 1 / (1 + math.exp(-1)), dtype=torch.double)
                weight[column] = value
                down, up = down | (first - signs(weight) > 1), up | (signs(weight) - first > 1)
        assert float(tally.to_negative[row]) == float(down.sum())
        assert float(tally.to_positive[row]) == float(up.sum())
    assert tally.by_graph()["all"] == pytest.approx(tally.by_graph()["to_negative"] + tally.by_graph()["to_positive"])


def test_columns_of_large_graphs_lie_between_nodes_next_to_test_nodes():
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    assert scripted_columns(path, torch.tensor([2]), 5, large=True).tolist() == [
        1
    ]  # 1 → 2 is a step away, 2 → 3 leads on
    assert scripted_columns(path, torch.tensor([2]), 5, large=False).tolist() == [0, 1, 2, 3]


# Trainings ############################################################################################################


def test_the_linear_network_is_one_sgconv_a_layer():
    class Theirs(BasicGNN):
        supports_edge_weight, supports_edge_attr = True, False

        def init_conv(self, in_channels, out_channels, **settings):
            return SGConv(in_channels, out_channels, **settings)

    data = random_graph(2, nodes=12)
    data.x = data.x.float()
    found = NodeSet("graph", data, torch.arange(6), torch.arange(6, 12), 2)
    ours, _ = linear_network(3, 0, found, epochs=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = Theirs(3, 32, 3, 2, act=torch.nn.Identity(), dropout=0.5).eval()
    torch.testing.assert_close(ours(data.x, data.edge_index), theirs(data.x, data.edge_index))


@pytest.mark.parametrize("architecture", ["GCN", "GIN"])
def test_lean_batches_say_what_the_model_of_the_code_says(architecture):
    graphs = []
    for seed in range(5):
        graph = random_graph(seed, nodes=4 + seed, loops=False)
        graph.edge_index = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1).unique(dim=1)
        graphs.append(Data(x=graph.x, edge_index=graph.edge_index, y=torch.tensor([seed % 2])))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = graph_network(architecture, 3, 3, None).double()
    order = torch.tensor([3, 0, 4, 1, 2])
    shifted = [graphs[i] for i in order[:3].tolist()]
    together = Batch.from_data_list(shifted)
    lean, label = next(LeanGraphs(graphs, architecture).batches(order, 3))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        expected = coded_logits(model, {"x": together.x, "edge_index": together.edge_index, "batch": together.batch})
        torch.manual_seed(1)
        found = lean_logits(model, lean)
    torch.testing.assert_close(found, expected)
    assert label.tolist() == together.y.tolist()


def test_the_split_and_the_batches_are_those_of_the_scripts_stream():
    graphs = [Data(x=torch.zeros(1, 1), y=torch.tensor([0])) for _ in range(188)]
    training, validation, test = one_split(GraphSet("MUTAG", graphs))
    assert (len(training), len(validation), len(test)) == (112, 37, 39)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        order = torch.randperm(188)
        assert torch.equal(torch.cat([training, validation, test]), order)
        torch.manual_seed(3)
        shuffled, plain = DataLoader(range(70), batch_size=32, shuffle=True), DataLoader(range(23), batch_size=23)
        expected = []
        for _ in range(3):  # an epoch reads the training graphs, then the validation graphs
            expected.append(torch.cat(list(shuffled)))
            next(iter(plain))
        after = torch.get_rng_state()
        torch.manual_seed(3)
        assert torch.equal(torch.stack(list(batch_orders(70, 3))), torch.stack(expected))
        assert torch.equal(torch.get_rng_state(), after)


# Rebuilt networks #####################################################################################################


def test_graphs_of_negative_evidence_are_those_of_the_notebook():
    graph, targets = coloured_graph(2, random.Random(0))
    degree = torch.bincount(graph.edge_index[1], minlength=2000)
    assert len(targets) == 1232  # 1980 gray nodes, 90 pairs of counts of which 56 are told apart clearly
    assert graph.x[:, 1:].sum(dim=0).tolist() == [10.0, 10.0]
    assert int(degree[20:].min()) >= 3


@pytest.mark.slow
def test_the_published_infection_network_comes_out_again():
    found = rebuilt_infection()
    assert found.accuracy == 1.0
    assert found.data.num_edges == 4152
    walks = ew.walks(found.model, found.data, 50, target=3, search="dag")
    assert tuple(walks[0].nodes) == (960, 866, 340, 340, 50)
