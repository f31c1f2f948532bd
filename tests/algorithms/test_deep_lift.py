"""`deep_lift`: contributions of every ω, from 0 to 1, by the rescale rule; a slow forward-mode twin is in `lift_twin.py`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

import edgewise as ew
import lift_twin
import zoo
from checks import assert_close, explain_graph, explain_nodes, graph_problem, node_problem, one_in, scores_of
from edgewise.program import lift_rules as rules
from edgewise.program.lift_rules import Lift
from footprint import Footprint

BY_HAND = {
    "gcn": (lift_twin.gcn, np.tanh),
    "gcn_relu": (lift_twin.gcn, lift_twin.relu),
    "sage_mean": (lift_twin.sage_mean, np.tanh),
    "gin_trained_epsilon": (lift_twin.gin, np.tanh),
    "gat": (lift_twin.gat, np.tanh),
    "gine": (None, np.tanh),
}
# What deep_lift has no rule for, or what is not lowered.
REFUSED = {
    *("sage_max", "sage_projected", "transformer", "transformer_with_attributes", "transformer_gated", "pna", "cheb"),
    *(
        "cheb_below_gcn",
        "jumping_max",
        "batch_norm_without_statistics",
        "layer_norm_of_graphs",
        "layer_norm_inside_gin",
    ),
    *("basic_pna", "basic_edge_cnn", "max_pool", "pooled_gin_layer_norm"),
}


@pytest.mark.parametrize("case_name", BY_HAND)
def test_contributions_equal_the_slow_twin(case_name):
    case, model, data, _ = node_problem(case_name, "parallel")
    make, act = BY_HAND[case_name]
    expected = lift_twin.shares(data, model, make or lift_twin.gine(data.edge_attr), act)
    for why in explain_nodes(case, model, data, method="deep_lift", level="layer"):
        assert_close(why.scores, torch.from_numpy(expected[int(why.index), int(why.target)]), 1e-9)
        assert why.self_scores is None


@given(st.integers(0, 10_000))
def test_on_random_graphs_it_equals_the_slow_twin(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(3, 7, (), generator=generator))
    edges = torch.randint(nodes, (2, int(torch.randint(1, 12, (), generator=generator))), generator=generator)
    data = Data(
        x=torch.randn(nodes, zoo.FEATURES, generator=generator).double(), edge_index=edges[:, edges[0] != edges[1]]
    )
    conv = [GCNConv, GATConv][seed % 2]
    model = zoo.randomise(zoo.chain(conv, 2, act=torch.relu), seed)
    expected = lift_twin.shares(data, model, lift_twin.gcn if seed % 2 == 0 else lift_twin.gat, lift_twin.relu)
    found = ew.explain(model, data, method="deep_lift", level="layer")
    for why in found:
        assert_close(why.scores, torch.from_numpy(expected[int(why.index), int(why.target)]), 1e-9)


def assert_complete(found, numbers, rows=None):
    """The scores of each target sum to z(1) − z(0)."""
    edge, own = numbers.ones()
    with torch.no_grad():
        change = numbers(edge, own) - numbers(torch.zeros_like(edge), own)
    assert_close(scores_of(found).flatten(1).sum(dim=1), change[: len(found)] if rows is None else change[rows], 1e-9)


@pytest.mark.parametrize("case_name", one_in(2, sorted(set(zoo.BY_NAME) - REFUSED)))
def test_they_sum_to_the_difference_between_all_edges_and_none(case_name):
    case, model, data, numbers = node_problem(case_name, "everything")
    for level in ("input", "layer"):
        assert_complete(explain_nodes(case, model, data, method="deep_lift", level=level), numbers)


@pytest.mark.parametrize("case_name", sorted(set(zoo.GRAPH_BY_NAME) - REFUSED))
def test_so_do_those_of_graphs(case_name):
    case, model, data, numbers = graph_problem(case_name, "everything")
    assert_complete([explain_graph(case, model, data, method="deep_lift")], numbers)


@pytest.mark.parametrize("of", ["prob", "log_prob"])
@pytest.mark.parametrize("case_name", ["gcn", "gat", "binary", "layer_norm_of_nodes"])
def test_so_do_those_of_probabilities(case_name, of):
    _, model, data, _ = node_problem(case_name, "everything")
    score = ew.Score(model, data, of=of)
    with torch.no_grad():
        change = score(score.ones()) - score(torch.zeros_like(score.ones()))
    found = ew.explain(model, data, method="deep_lift", of=of)
    assert_close(scores_of(found).sum(dim=1), change, 1e-9)


def test_the_input_level_is_the_sum_over_layers():
    case, model, data, _ = node_problem("gcn_relu", "everything")
    by_layer = scores_of(explain_nodes(case, model, data, method="deep_lift", level="layer"))
    assert_close(scores_of(explain_nodes(case, model, data, method="deep_lift")), by_layer.sum(dim=1), 1e-12)


def test_without_bends_it_is_what_the_products_of_weights_share():
    """A linear network of one layer: occlusion; of two layers, a walk's two factors share it in halves."""
    model = zoo.randomise(zoo.chain(zoo.LINEAR_CONVS["sage_sum"], 1), 0)
    data = zoo.GRAPHS["directed"]()
    expected = scores_of(ew.explain(model, data, method="occlusion"))
    assert_close(scores_of(ew.explain(model, data, method="deep_lift")), expected, 1e-12)


@pytest.mark.parametrize("case_name", ["sage_max", "jumping_max", "transformer"])
def test_models_without_rules_are_refused_with_another_method(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once")
    with pytest.raises(ew.ModelError, match="integrated_gradients"):
        explain_nodes(case, model, data, method="deep_lift")


def test_links_are_refused_with_another_method():
    class Dots(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(zoo.FEATURES, zoo.WIDTH)

        def forward(self, x, edge_index, edge_label_index):
            h = self.conv(x, edge_index)
            return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=-1)

    with pytest.raises(ew.ModelError, match="occlusion"):
        ew.explain(zoo.randomise(Dots()), zoo.GRAPHS["directed"](), (0, 1), task="link", method="deep_lift")


@pytest.mark.parametrize("function", [torch.relu, torch.tanh, torch.exp, torch.abs, torch.nn.functional.elu])
def test_the_rescale_rule_hands_on_the_whole_change(function):
    now = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0], dtype=torch.double).requires_grad_()
    before = torch.tensor([-1.0, -2.0, 3.0 + 1e-13, 2.0, 0.0], dtype=torch.double)
    found = rules.rescaled(function, Lift(now, before))
    (slope,) = torch.autograd.grad(found.actual.sum(), now)
    assert_close(slope * (now.detach() - before), found.actual.detach() - found.reference, 1e-12)
    assert bool(torch.isfinite(slope).all())


def test_results_do_not_depend_on_blocks_and_the_model_is_left_alone():
    case, model, data, _ = node_problem("gat", "everything")
    before = Footprint(model, data)
    together = scores_of(explain_nodes(case, model, data, method="deep_lift"))
    alone = scores_of(explain_nodes(case, model, data, method="deep_lift", batch_size=1))
    assert_close(together, alone, 1e-12)
    before.assert_unchanged()


def test_a_target_without_edges_has_zeros():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["no_edges"]()
    assert not scores_of(ew.explain(model, data, method="deep_lift")).any()
