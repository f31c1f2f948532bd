"""Networks that are trained side by side come out as each would alone."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.random_numbers import seeded
from edgewise_paper.authors_code import side_by_side
from edgewise_paper.authors_code.experiments import graph_tasks
from edgewise_paper.authors_code.side_by_side import JointTraining, keep_networks, kept_network
from edgewise_paper.authors_code.trainings import batch_orders, coded_logits, one_split
from edgewise_paper.context import Context
from edgewise_paper.data import GraphSet
from edgewise_paper.task import PaperOptions
from edgewise_paper.training.networks import Recipe
from edgewise_paper.training.train import Collated, untrained_on_graphs

SEEDS = [0, 5]


def _graphs(edge_dim: int) -> GraphSet:
    """Small undirected graphs, some with a node that has no edge, in float64."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(24):
        size = 3 + number % 4
        ends = torch.randint(0, size - number % 2, (2, 5), generator=generator)
        ends = ends[:, ends[0] != ends[1]].unique(dim=1)
        edge_index = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1)
        attr = torch.rand(edge_index.size(1), edge_dim, generator=generator).double() if edge_dim else None
        x = torch.rand(size, 3, generator=generator).double()
        graphs.append(Data(x=x, edge_index=edge_index, edge_attr=attr, y=torch.tensor([number % 2])))
    return GraphSet("MUTAG", graphs)


def _without_dropout(network):
    network.gnn.dropout.p = 0.0
    for conv in network.gnn.convs:
        if hasattr(conv, "dropout"):
            conv.dropout = 0.0
    return network


def _alone(recipe, seed, found):
    """The slow twin: one seed, PyG's own layers and batches, lines 85 to 96."""
    training, _, _ = one_split(found)
    collated = Collated.of([found.graphs[i] for i in training.tolist()], "cpu")
    collated = replace(collated, y=collated.y.double())
    with seeded(seed):
        torch.randperm(len(found.graphs))
        network = _without_dropout(untrained_on_graphs(recipe, found))
        orders = batch_orders(len(training), recipe.epochs)
        optimizer = torch.optim.Adam(network.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
        for order in orders:
            optimizer.zero_grad()
            for batch, labels in collated.batches(order, recipe.batch_size):
                functional.binary_cross_entropy_with_logits(coded_logits(network, batch), labels).backward()
                optimizer.step()
    return network


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("edge_dim", [0, 2])
@pytest.mark.parametrize("architecture", ["GCN", "GIN", "GAT"])
def test_seeds_side_by_side_are_those_trained_alone(double, architecture, edge_dim):
    found = _graphs(edge_dim)
    recipe = replace(
        Recipe.for_graphs("MUTAG", architecture, 3, 0, epochs=3), batch_size=4
    )  # 14 graphs: the last has 2
    together = JointTraining(recipe, SEEDS, found, "cpu")
    for network in together.networks:
        _without_dropout(network)
    for seed, network in zip(SEEDS, together.run(), strict=True):
        weights = dict(_alone(recipe, seed, found).named_parameters())
        for name, weight in network.named_parameters():
            torch.testing.assert_close(weight, weights[name], rtol=1e-9, atol=1e-11)


def test_a_gpu_trains_all_seeds_in_one_task_and_the_networks_are_kept(tmp_path, monkeypatch):
    tasks = graph_tasks(PaperOptions(tmp_path, seeds=2, device="cuda", published=True))
    assert {task.after.part for task in tasks} == {"training"}
    assert len({task.after.key for task in tasks}) == len(tasks) / 2
    alone = graph_tasks(PaperOptions(tmp_path, seeds=2, published=True))
    assert not {task.key for task in alone} & {task.key for task in tasks}  # other networks, other results
    found = _graphs(0)
    for graph in found.graphs:
        graph.x = graph.x.float()
    context = Context(PaperOptions(tmp_path))
    monkeypatch.setattr(Context, "graph_set", lambda self, name: found)
    recipe = replace(Recipe.for_graphs("MUTAG", "GCN", 2, 0, epochs=1), batch_size=4)
    keep_networks(context, recipe, 2)
    first, second = (kept_network(context, replace(recipe, seed=seed)) for seed in (0, 1))
    assert not torch.equal(first.gnn.convs[0].lin.weight, second.gnn.convs[0].lin.weight)
    assert not first.training
    assert side_by_side._key(recipe) != recipe.key  # never taken for a network that was trained alone
