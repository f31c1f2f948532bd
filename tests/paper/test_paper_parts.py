"""Pieces of the experiments against slow twins: neighbourhoods, sign flips, differences, averages."""

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, global_mean_pool

import edgewise as ew
from checks import scores_of
from edgewise.score import Score
from edgewise.trust.flips import WEIGHTS
from edgewise_paper.code_habits import full_as_coded, magnitudes, neighbourhood
from edgewise_paper.negative_evidence import difference
from edgewise_paper.sign_flips import count_flips, edges_to_vary, work
from edgewise_paper.similarity import Average, cosines

EXPLAINER = {"epochs": 5, "lr": 0.1, "edge_size": 0.005, "edge_ent": 1.0}


def random_graph(seed, nodes=9, chance=0.25):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(nodes, nodes, generator=generator) < chance
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=dense.nonzero().t().contiguous())


def gcn(seed, layers=2, norm=None):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GCN(3, 4, layers, 3, norm=norm).double().eval()


# Neighbourhoods #######################################################################################################


@given(st.integers(0, 10**6), st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_a_neighbourhood_has_every_edge_between_nodes_that_reach_the_target_in_so_many_steps(seed, hops):
    data = random_graph(seed)
    full = ew.explain(gcn(seed), data, method="full", level="layer")
    backwards = nx.DiGraph(data.edge_index.flip(0).t().tolist())
    backwards.add_nodes_from(range(data.num_nodes))
    for why in neighbourhood(full, hops):
        steps = nx.single_source_shortest_path_length(backwards, why.index)
        for layer, number in enumerate(hops):
            near = {node for node, step in steps.items() if step <= number}
            expected = [float(s in near and r in near) for s, r in data.edge_index.t().tolist()]
            assert why.scores[layer].tolist() == expected


def test_full_masks_of_the_code_grow_with_the_layer():
    full = ew.explain(gcn(0, layers=3), random_graph(3), method="full", level="layer")
    assert torch.equal(scores_of(full_as_coded(full)), scores_of(neighbourhood(full, [1, 2, 3])))


# Sign flips ###########################################################################################################


def gradients(model, data, index, weight):
    """∂z/∂ω of one node or graph, one weight for all layers, by autograd on the score of it alone."""
    task = "graph" if isinstance(data, list) else "node"
    truth = Score(model, data, [index], task=task)
    place = torch.empty_like(truth.edge_id)
    place[truth.edge_id.argsort()] = torch.arange(len(truth.edge_id))
    omega = weight[truth.edge_id].requires_grad_()
    (found,) = torch.autograd.grad(truth(omega.expand(truth.num_layers, -1)).sum(), omega)
    full = torch.zeros_like(weight)
    full[truth.edge_id] = found
    return full


def slow_flips(model, data, index, varied):
    """Per target: the shares [any, own] × [down, up] of gradients that change their sign, edge by edge, weight by weight."""
    shares = []
    for target, edges in zip(index, varied, strict=True):
        width = (data[target] if isinstance(data, list) else data).num_edges
        first = gradients(model, data, target, torch.ones(width, dtype=torch.double))
        size = first.abs().max()
        alive = first.abs() > 1e-6 * size
        down, up = torch.zeros(width, dtype=torch.bool), torch.zeros(width, dtype=torch.bool)
        own_down = own_up = own_counted = 0
        for edge in edges.tolist():
            lowest, highest = first.clone(), first.clone()
            for value in WEIGHTS[1:]:
                weight = torch.ones(width, dtype=torch.double)
                weight[edge] = value
                now = gradients(model, data, target, weight)
                now = torch.where(now.abs() > 1e-6 * now.abs().max(), now, 0.0)
                lowest, highest = torch.minimum(lowest, now), torch.maximum(highest, now)
            down |= alive & (first > 0) & (lowest < 0)
            up |= alive & (first < 0) & (highest > 0)
            own_counted += int(alive[edge])
            own_down += int(alive[edge] and first[edge] > 0 and lowest[edge] < 0)
            own_up += int(alive[edge] and first[edge] < 0 and highest[edge] > 0)
        if alive.any():
            counted = int(alive.sum())
            shares.append((down.sum() / counted, up.sum() / counted, own_down, own_up, own_counted))
    return shares


def assert_flips_are(found, shares):
    own, anything = found
    assert anything.to_negative == pytest.approx(sum(float(s[0]) for s in shares) / len(shares))
    assert anything.to_positive == pytest.approx(sum(float(s[1]) for s in shares) / len(shares))
    counted = [(s[2] / s[4], s[3] / s[4]) for s in shares if s[4]]
    assert own.to_negative == pytest.approx(sum(down for down, _ in counted) / len(counted))
    assert own.to_positive == pytest.approx(sum(up for _, up in counted) / len(counted))
    assert own.all == pytest.approx(own.to_negative + own.to_positive)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_flips_of_nodes_are_counted_as_edge_by_edge(double, seed):
    data, model = random_graph(seed), gcn(seed, layers=3)
    index = torch.arange(data.num_nodes)
    columns = torch.arange(0, data.num_edges, 2)
    score = Score(model, data, index)
    varied = edges_to_vary(score, columns)
    assert int(work(score, varied).sum()) > 0
    shares = slow_flips(model, data, index.tolist(), varied)
    assert sum(float(s[0]) for s in shares) > 0, "nothing flips: the test could not fail"
    assert_flips_are(count_flips(model, data, index, varied), shares)


class Pooled(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.gnn = GIN(3, 4, 2, 1, norm="LayerNorm").double()

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.gnn(x, edge_index, batch=batch), batch)


def test_flips_of_graphs_are_counted_as_edge_by_edge(double):
    graphs, model = [random_graph(seed, nodes=5, chance=0.4) for seed in range(3)], Pooled(0).eval()
    varied = [torch.arange(graph.num_edges)[:3] for graph in graphs]
    shares = slow_flips(model, graphs, range(3), varied)
    assert_flips_are(count_flips(model, graphs, torch.arange(3), varied, task="graph"), shares)


def test_a_target_that_no_varied_edge_can_reach_counts_as_one_without_flips():
    data = Data(x=torch.ones(4, 3, dtype=torch.double), edge_index=torch.tensor([[0, 2], [1, 3]]))
    own, anything = count_flips(
        gcn(0), data, torch.tensor([1, 3]), [torch.tensor([0]), torch.tensor([], dtype=torch.long)]
    )
    assert (own.targets, anything.targets, anything.varied) == (1, 2, 1)


# Arithmetic and averages ##############################################################################################


def test_a_difference_is_taken_edge_by_edge():
    data, model = random_graph(0), gcn(0)
    one, other = (ew.explain(model, data, method=method) for method in ("gradient", "full"))
    assert torch.allclose(scores_of(difference(one, other)), scores_of(one) - scores_of(other))


def test_where_only_the_explanation_is_zero_the_cosine_is_zero_and_where_the_reference_is_there_is_none():
    edges = torch.tensor([[0, 1], [1, 0]])
    data = Data(x=torch.ones(3, 3, dtype=torch.double), edge_index=edges)  # node 2 receives nothing
    full = ew.explain(gcn(0), data, method="full")
    nothing = difference(full, full)
    assert cosines(nothing, full)[:2].tolist() == [0, 0]
    assert cosines(full, nothing).isnan().all()
    assert cosines(full, full)[2].isnan()


def test_an_average_of_nothing_is_not_a_number():
    assert Average.of(torch.tensor([torch.nan])).count == 0


# Habits of the authors' code ##########################################################################################


def test_magnitudes_are_scores_without_signs():
    occlusion = ew.explain(gcn(0), random_graph(3), method="occlusion")
    assert (scores_of(occlusion) < 0).any()
    assert torch.equal(scores_of(magnitudes(occlusion)), scores_of(occlusion).abs())
