from itertools import pairwise

import pytest
import torch
from torch_geometric.utils import degree

from edgewise.datasets import InfectionGraphs, infection, infection_model, infection_paths
from edgewise.datasets.infection import clear_nodes
from edgewise.errors import InputError, SettingError
from footprint import global_state


@pytest.fixture(scope="module")
def graphs():
    return infection(seed=0)


def test_five_graphs_of_the_published_size(graphs):
    assert len(graphs.training) == 4
    for graph in (*graphs.training, graphs.test):
        assert graph.num_nodes == 1000
        assert int(graph.x[:, 1].sum()) == 50
        assert 3 < float(degree(graph.edge_index[1], 1000).mean()) < 5  # 999 * 0.004, four standard deviations


def test_the_class_is_the_distance_to_the_nearest_infection(graphs):
    for node in range(200):
        paths = infection_paths(graphs.test, node)
        assert int(graphs.test.y[node]) == (len(paths[0]) - 1 if paths else 5)


def test_clear_nodes_have_one_infected_node_within_their_distance(graphs):
    graph = graphs.test
    senders = [set(graph.edge_index[0, graph.edge_index[1] == node].tolist()) for node in range(graph.num_nodes)]

    def infected_within(node, steps):
        seen = {node}
        for _ in range(steps):
            seen |= {sender for reached in seen for sender in senders[reached]}
        return sum(int(graph.x[reached, 1]) for reached in seen)

    classes = graph.y.tolist()
    expected = [node for node, steps in enumerate(classes) if steps < 5 and infected_within(node, steps) == 1]
    assert 100 < len(expected) < 1000
    assert clear_nodes(graph).tolist() == expected


def test_paths_run_along_edges_from_an_infected_node(graphs):
    edges = set(map(tuple, graphs.test.edge_index.t().tolist()))
    for node in range(50):
        for path in infection_paths(graphs.test, node):
            assert graphs.test.x[path[0], 1] == 1
            assert path[-1] == node
            assert all(step in edges for step in pairwise(path))


def test_the_same_seed_gives_the_same_graphs_and_model_and_another_seed_others(graphs):
    again, other = infection(seed=0), infection(seed=1)
    assert torch.equal(graphs.test.edge_index, again.test.edge_index)
    assert not torch.equal(graphs.test.edge_index, other.test.edge_index)
    one, two = (infection_model(0, graphs=graphs, epochs=2).model.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_random_state_and_threads_are_untouched():
    before = global_state()
    infection_model(3, epochs=1)
    assert global_state() == before


def test_random_state_is_untouched_after_an_error(graphs):
    before = global_state()
    with pytest.raises(SettingError):
        infection_model(3, graphs=graphs, epochs="many")
    assert global_state() == before


def test_the_model_learns_the_task(trained_infection):
    assert trained_infection.test_accuracy >= 0.99
    assert not trained_infection.model.training
    assert all(parameter.grad is None for parameter in trained_infection.model.parameters())


def test_without_a_training_graph_the_error_says_what_to_type():
    with pytest.raises(InputError, match="num_graphs=5"):
        infection_model(graphs=InfectionGraphs((), infection(num_graphs=1).test))
