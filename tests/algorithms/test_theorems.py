"""Completeness, occlusion and sensitivity in linear networks, and where they end. Names are the claims.

Linear, bias-free chains: every quantity is a polynomial that float64 evaluates to about 1e-14 of its size, and the
claims are promised to 1e-9. A boundary ("fails with …") must miss by more than 1e-3, so that rounding cannot pass it.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINEConv,
    LayerNorm,
    SAGEConv,
    global_add_pool,
)

import edgewise as ew
import zoo
from checks import assert_close, node_problem

EXACT, CLEARLY = 1e-9, 1e-3


def identity(x):
    return x


def leaky(x):
    return nn.functional.leaky_relu(x, 0.2)


def _chain(make_conv, calls=3, **options):
    return zoo.chain(make_conv, calls, **{"act": identity, **options})


CONVS = zoo.LINEAR_CONVS
HOMOGENEOUS = {**CONVS, "sage_max": lambda a, b: SAGEConv(a, b, aggr="max", bias=False)}


@st.composite
def graphs(draw, loops=True):
    """A graph of up to seven nodes; parallel edges and, if wanted, loops included; and one of its nodes."""
    nodes = draw(st.integers(2, 7))
    node = st.integers(0, nodes - 1)
    pairs = st.tuples(node, node) if loops else st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
    edges = draw(st.lists(pairs, max_size=14))
    return zoo.graph(edges, nodes, seed=draw(st.integers(0, 10_000))), draw(node)


def explained(model, data, index, method="gradient", level="layer", **options):
    return ew.explain(model, data, index=index, method=method, level=level, **options)


def shares(why):
    """Every call's edge scores and self scores together, [L]."""
    return why.scores.sum(dim=1) + why.self_scores.sum(dim=1)


def size(why):
    """What rounding errors are measured against."""
    return max(1.0, float(why.scores.abs().sum() + why.self_scores.abs().sum()), abs(float(why.value)))


def missing(why):
    """How much of the value each call leaves unexplained, relative to the size of the numbers, [L]."""
    return (shares(why) - float(why.value)).abs() / max(float(why.scores.abs().max()), abs(float(why.value)))


def assert_complete(why):
    assert float((shares(why) - float(why.value)).abs().max()) <= EXACT * size(why)


on_linear_chains = pytest.mark.parametrize("conv", CONVS)


# What holds ###########################################################################################################


@on_linear_chains
@given(case=graphs(), seed=st.integers(0, 100))
def test_in_a_linear_network_the_scores_of_every_layer_sum_to_the_logit(conv, case, seed):
    data, index = case
    assert_complete(explained(zoo.randomise(_chain(CONVS[conv]), seed), data, index))


@on_linear_chains
@given(case=graphs(loops=False), seed=st.integers(0, 100))
def test_so_they_do_without_self_loops_in_the_input(conv, case, seed):
    data, index = case
    assert_complete(explained(zoo.randomise(_chain(CONVS[conv]), seed), data, index))


@on_linear_chains
@given(case=graphs(), seed=st.integers(0, 100))
def test_in_a_linear_network_layer_occlusion_equals_the_layer_gradient(conv, case, seed):
    data, index = case
    model = zoo.randomise(_chain(CONVS[conv]), seed)
    gradient, occlusion = (explained(model, data, index, method) for method in ("gradient", "occlusion"))
    assert_close(occlusion.scores, gradient.scores, EXACT)
    assert_close(occlusion.self_scores, gradient.self_scores, EXACT)


@on_linear_chains
@given(
    case=graphs(),
    seed=st.integers(0, 100),
    layer=st.integers(0, 2),
    chosen=st.lists(st.booleans(), min_size=14, max_size=14),
)
def test_silencing_any_edges_of_one_layer_costs_the_sum_of_their_scores(conv, case, seed, layer, chosen):
    data, index = case
    model = zoo.randomise(_chain(CONVS[conv]), seed)
    why, score = explained(model, data, index), ew.Score(model, data, [index])
    silenced = torch.tensor(chosen)[: data.edge_index.shape[1]]
    weight = score.ones()
    weight[layer, silenced[score.edge_id]] = 0
    with torch.no_grad():
        change = float(score(score.ones()) - score(weight))
    assert abs(change - float(why.scores[layer, silenced].sum())) <= EXACT * size(why)


@pytest.mark.parametrize("conv", HOMOGENEOUS)
@pytest.mark.parametrize("act", [torch.relu, leaky])
@given(case=graphs(), seed=st.integers(0, 100))
def test_without_biases_completeness_survives_relu_leaky_relu_and_max(conv, act, case, seed):
    data, index = case
    assert_complete(explained(zoo.randomise(_chain(HOMOGENEOUS[conv], act=act), seed), data, index))


@given(case=graphs(), seed=st.integers(0, 100))
def test_completeness_survives_sum_pooling(case, seed):
    data, _ = case
    convs = [GCNConv(zoo.FEATURES, zoo.WIDTH, bias=False), SAGEConv(zoo.WIDTH, zoo.WIDTH, bias=False)]
    model = zoo.randomise(zoo.Pooled(*convs, pool=global_add_pool, act=torch.relu, bias=False), seed)
    assert_complete(ew.explain(model, data, task="graph", level="layer"))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_completeness_survives_a_residual_because_the_residual_is_counted(linear, after):
    data = zoo.GRAPHS["everything"]()
    for act in (identity, torch.relu):
        make = lambda: GCNConv(zoo.WIDTH, zoo.WIDTH, bias=False)  # noqa: E731
        model = zoo.randomise(zoo.Residual(make, linear=linear, after=after, act=act, bias=False))
        for index in (0, 1, 5):
            assert_complete(explained(model, data, index))


@pytest.mark.parametrize("name", ["gat", "gine"])
def test_gat_and_gine_are_complete_in_the_last_call(name):
    model, data = _attention_or_gine(name), zoo.GRAPHS["everything"]()
    for index in (0, 1, 4):
        assert missing(explained(model, data, index))[-1] < EXACT


def _attention_or_gine(name):
    if name == "gat":
        return zoo.randomise(_chain(lambda a, b: GATConv(a, b, bias=False), 2))
    convs = [GINEConv(nn.Linear(a, b, bias=False), edge_dim=zoo.EDGE_FEATURES) for a, b in ((5, 4), (4, 3))]
    return zoo.randomise(zoo.ChainWithAttributes(*convs, act=identity))


def test_below_a_layer_norm_the_scores_sum_to_zero():
    norm = LayerNorm(zoo.WIDTH, mode="node", eps=1e-14)  # ε alone breaks the invariance to scale
    model = zoo.randomise(_chain(CONVS["sage_sum"], 2, norms=[norm]))
    data = zoo.GRAPHS["everything"]()
    for index in (0, 1, 4):
        why = explained(model, data, index)
        assert abs(float(shares(why)[0])) < 1e-7 * size(why)
        assert abs(float(why.value)) > CLEARLY


# Where it ends ########################################################################################################


def worst_missing(model, graph_name="everything", **options):
    """[L]: the worst relative lack of completeness over the nodes of a graph."""
    found = ew.explain(model, zoo.GRAPHS[graph_name](), level="layer", **options)
    return torch.stack([missing(why) for why in found]).amax(dim=0)


def test_completeness_fails_with_biases():
    model = zoo.randomise(_chain(lambda a, b: GCNConv(a, b, bias=True)))
    assert (worst_missing(model) > CLEARLY).all()


def test_completeness_fails_with_tanh():
    lack = worst_missing(zoo.randomise(_chain(CONVS["gcn"], act=torch.tanh)))
    assert (lack[:-1] > CLEARLY).all()
    assert lack[-1] < EXACT  # nothing bends after the last call


def test_completeness_fails_with_the_shift_of_a_batch_norm():
    lack = worst_missing(zoo.randomise(_chain(CONVS["gcn"], 2, norms=[nn.BatchNorm1d(zoo.WIDTH)])))
    assert lack[0] > CLEARLY
    assert lack[1] < EXACT


@pytest.mark.parametrize("name", ["gat", "gine"])
def test_completeness_of_gat_and_gine_fails_below_the_last_call(name):
    data = zoo.GRAPHS["everything"]()
    found = ew.explain(_attention_or_gine(name), data, level="layer")
    assert max(float(missing(why)[0]) for why in found) > CLEARLY


def test_completeness_fails_where_a_long_skip_passes_by():
    model = zoo.randomise(zoo.LongSkip())
    with torch.no_grad():
        for bias in (model.first.bias, model.second.bias, model.jump.bias):
            bias.zero_()
    lack = worst_missing(model)
    assert (lack > CLEARLY).all()


def test_without_the_self_scores_nothing_is_complete():
    model, data = zoo.randomise(_chain(CONVS["gcn"])), zoo.GRAPHS["directed"]()
    why = explained(model, data, 1)
    assert ((why.scores.sum(dim=1) - float(why.value)).abs() > CLEARLY).all()


def test_in_three_relu_layers_layer_occlusion_differs_from_the_layer_gradient():
    model, data = zoo.randomise(_chain(CONVS["gcn"], act=torch.relu)), zoo.GRAPHS["everything"]()
    gaps = []
    for index in range(data.num_nodes):
        gradient, occlusion = (explained(model, data, index, method) for method in ("gradient", "occlusion"))
        gaps.append((gradient.scores - occlusion.scores).abs().amax(dim=1))
        assert gaps[-1][-1] < EXACT  # the last call is linear in its messages
    assert torch.stack(gaps).amax(dim=0)[:-1].max() > CLEARLY


def test_even_in_linear_networks_input_occlusion_differs_from_the_edge_gradient():
    model, data = zoo.randomise(_chain(CONVS["sage_sum"])), zoo.GRAPHS["everything"]()
    gradient, occlusion = (explained(model, data, 1, method, "input") for method in ("gradient", "occlusion"))
    assert (gradient.scores - occlusion.scores).abs().max() > CLEARLY


def test_the_others_of_several_parallel_loops_score_zero_where_the_conv_uses_one():
    for case_name in ("gcn", "sgc", "gat_with_attributes", "gatv2"):
        _, model, data, _ = node_problem(case_name, "parallel_loops")
        loops = [column for column, (a, b) in enumerate(data.edge_index.t().tolist()) if (a, b) == (1, 1)]
        why = ew.explain(model, data, index=1, level="layer")
        assert (why.scores[:, loops[:-1]] == 0).all()
        assert (why.scores[:, loops[-1]].abs() > 1e-6).any()
        assert (why.self_scores[:, 1] == 0).all()  # the explicit loop owns the message, so nothing is left for the node


# Proposition 1: one linear layer ######################################################################################


def one_linear_layer(out=1, scale=0.15, seed=0):
    """Small weights: the sigmoid stays far from saturation."""
    model = zoo.randomise(zoo.Chain(SAGEConv(zoo.FEATURES, out, aggr="sum", bias=False, root_weight=False)), seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


# After 300 steps of Adam with step 0.5 the logits of the mask are beyond ±8: σ is within 1e-3 of 0 or 1.
LONG = {"method": "gnn_explainer", "level": "input", "epochs": 300, "lr": 0.5}


@pytest.mark.parametrize("target", [None, 0, 1])
def test_the_mask_of_one_linear_layer_converges_to_the_indicator_of_positive_gradients(target):
    data = zoo.GRAPHS["directed"]()
    model = one_linear_layer()
    for index in (1, 2, 4):
        gradient = explained(model, data, index, level="input", target=target)
        mask = explained(model, data, index, target=target, edge_size=0.0, edge_ent=0.0, **LONG)
        used = gradient.scores != 0
        assert used.sum() >= 2
        assert_close(mask.scores, (gradient.scores > 0).double(), 1e-3, "mask")


def test_a_size_penalty_moves_the_threshold_of_that_indicator():
    data = zoo.graph([(source, 0) for source in range(1, 13)], 13, seed=5)
    model = one_linear_layer()
    gradient = explained(model, data, 0, level="input", target=1).scores
    alpha = float(gradient[gradient > 0].median()) * 0.5
    mask = explained(model, data, 0, target=1, edge_size=alpha, edge_ent=0.0, **LONG).scores
    probability = float(torch.sigmoid((mask * gradient).sum()))
    margin = (1 - probability) * gradient - alpha
    assert (margin.abs() > 0.05 * alpha).all(), "an edge sits on the threshold: the test shows nothing"
    assert_close(mask, (margin > 0).double(), 1e-2, "mask")
    assert ((gradient > 0) & (mask < 0.5)).any(), "the penalty silenced no positive edge: the test shows nothing"


def test_multiclass_masks_follow_the_log_probability_and_not_the_logit():
    data = zoo.GRAPHS["directed"]()
    differ = 0
    for seed in range(4):
        model = one_linear_layer(out=2, seed=seed)
        for index in (1, 2, 4):
            logit = explained(model, data, index, level="input").scores
            log_prob = explained(model, data, index, level="input", of="log_prob").scores
            mask = explained(model, data, index, edge_size=0.0, edge_ent=0.0, **LONG).scores
            assert_close(mask, (log_prob > 0).double(), 1e-3, "mask")
            differ += int(((logit > 0) != (log_prob > 0)).sum())
    assert differ > 0, "logit and log-probability agree everywhere: the test shows nothing"
