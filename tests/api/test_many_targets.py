"""Many targets in one call are the same as one after the other, whatever the blocks, the order, the kind of index."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import edgewise as ew
import oracles
import zoo
from checks import (
    METHODS,
    alternating,
    assert_close,
    explain_nodes,
    node_problem,
    own_scores_of,
    quietly,
    scores_of,
)

SETTINGS = {"gnn_explainer": {"epochs": 8}, "integrated_gradients": {"steps": 5}}
MODELS = [
    "gcn",
    "sage_mean",
    "gin",
    "gat_with_attributes",
    "pna",
    "sgc_cached",
    "residual",
    "jumping_cat",
    "batch_norm",
    "binary",
]
MODELS += ["layer_norm_of_graphs", "gcn_against_the_arrows", "takes_data_and_positions", "gcn_with_weights"]


@pytest.fixture(scope="module")
def medium():
    """A graph that is large enough for neighbourhoods to differ from the whole: 120 nodes on a ring with chords."""
    ring = [(i, (i + 1) % 120) for i in range(120)] + [((i + 1) % 120, i) for i in range(120)]
    chords = [(i, (i * 7 + 3) % 120) for i in range(0, 120, 5)] + [(8, 8), (20, 20), (8, 9), (8, 9)]
    return zoo.graph(ring + chords, 120, weighted=True)


def single_calls(case, model, data, index, **options):
    with quietly(case):
        return [ew.explain(model, data, index=node, **case.arguments, **options) for node in index]


@pytest.mark.parametrize(("case_name", "level"), alternating(MODELS))
def test_many_targets_equal_single_calls(medium, case_name, level):
    case = zoo.BY_NAME[case_name]
    model, index = case.build(), [8, 117, 9, 20, 8, 64]
    if not case.local:  # every step of these runs the whole graph
        medium, index = zoo.GRAPHS["everything"](), [1, 5, 4, 1]
    for method in METHODS:
        options = {"method": method, "level": level, **SETTINGS.get(method, {})}
        alone = single_calls(case, model, medium, index, **options)
        with quietly(case):
            together = ew.explain(model, medium, index=index, **case.arguments, **options)
        assert isinstance(together, ew.ExplanationSet)
        assert [int(why.index) for why in together] == index
        assert_close(scores_of(together), scores_of(alone), 1e-9, method)
        assert [why.target for why in together] == [why.target for why in alone]
        if own_scores_of(alone) is not None:
            assert_close(
                own_scores_of(together).nan_to_num(-7),
                own_scores_of(alone).nan_to_num(-7),
                1e-9,
                f"self scores of {method}",
            )


@pytest.mark.parametrize("case_name", ["gcn", "gat_with_attributes", "layer_norm_of_graphs", "gin"])
@pytest.mark.parametrize("method", ["gradient", "occlusion", "gnn_explainer", "integrated_gradients"])
@pytest.mark.parametrize(
    "limits", [{"batch_size": 1}, {"batch_size": 3}, {"batch_size": 1000}, {"memory": "2MB"}, {"memory": "4GB"}]
)
def test_results_do_not_depend_on_the_blocks(medium, case_name, method, limits):
    case = zoo.BY_NAME[case_name]
    model, data, index = case.build(), medium, range(0, 120, 15)
    if not case.local:  # every step of these runs the whole graph
        data, index = zoo.GRAPHS["everything"](), range(5)
    options = {"index": index, "method": method, "level": "layer", **SETTINGS.get(method, {}), **case.arguments}
    with quietly(case):
        whole, blocks = (ew.explain(model, data, **limit, **options) for limit in ({}, limits))
    assert_close(scores_of(blocks), scores_of(whole), 1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_the_order_of_the_index(medium, method):
    model = zoo.BY_NAME["gcn"].build()
    index = [3, 99, 8, 9, 50]
    options = {"method": method, **SETTINGS.get(method, {})}
    forth = scores_of(ew.explain(model, medium, index=index, **options))
    back = scores_of(ew.explain(model, medium, index=index[::-1], **options))
    assert_close(back, forth.flip(0), 1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GCN(5, 16, 3, 4),
        lambda: GraphSAGE(5, 16, 3, 4),
        lambda: GIN(5, 16, 2, 4),
        lambda: GAT(5, 16, 2, 4, heads=2),
    ],
)
def test_in_single_precision_they_are_equal_to_one_in_a_hundred_thousand(medium, make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    data = Data(x=medium.x.float(), edge_index=medium.edge_index)
    index = list(range(0, 120, 9))
    for method in ("gradient", "occlusion", "gnn_explainer", "integrated_gradients"):
        options = {"method": method, "level": "layer", **SETTINGS.get(method, {})}
        alone = torch.stack([ew.explain(model, data, index=node, **options).scores for node in index])
        together = scores_of(ew.explain(model, data, index=index, **options))
        assert together.dtype == torch.float32
        assert_close(together, alone, 1e-5, method)


def test_many_targets_are_right_and_not_only_consistent(medium):
    for case_name in ("gcn", "gat_with_attributes", "sage_sum", "pna", "layer_norm_of_graphs"):
        case = zoo.BY_NAME[case_name]
        model = case.build()
        numbers = oracles.Numbers(model, medium, forward=case.forward)
        expected, _ = oracles.layer_gradient(numbers, *numbers.ones())
        assert_close(scores_of(explain_nodes(case, model, medium, level="layer")), expected, 1e-9, case_name)


# The kinds of index ###################################################################################################


def _index_kinds(nodes):
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[[1, 4, 6]] = True
    return {
        "list": ([1, 4, 6], [1, 4, 6]),
        "tuple": ((6, 1), [6, 1]),
        "range": (range(1, 6, 2), [1, 3, 5]),
        "slice": (slice(2, 5), [2, 3, 4]),
        "open slice": (slice(None, None, 3), [0, 3, 6]),
        "tensor": (torch.tensor([4, 0]), [4, 0]),
        "int32 tensor": (torch.tensor([4, 0], dtype=torch.int32), [4, 0]),
        "array": (np.array([4, 0]), [4, 0]),
        "bool mask": (mask, [1, 4, 6]),
        "uint8 mask": (mask.to(torch.uint8), [1, 4, 6]),
        "duplicates": ([3, 3, 1, 3], [3, 3, 1, 3]),
        "None": (None, list(range(nodes))),
        "one in a list": ([5], [5]),
    }


@pytest.mark.parametrize("kind", _index_kinds(7))
def test_every_kind_of_index_names_the_nodes_it_says(kind):
    _, model, data, _ = node_problem("gcn", "directed")
    index, nodes = _index_kinds(data.num_nodes)[kind]
    found = ew.explain(model, data, index=index)
    assert isinstance(found, ew.ExplanationSet)
    assert [int(why.index) for why in found] == nodes
    assert len(found) == len(nodes)
    everything = scores_of(ew.explain(model, data))
    assert_close(scores_of(found), everything[nodes], 1e-9)


@pytest.mark.parametrize("index", [3, np.int64(3), torch.tensor(3)])
def test_a_single_number_gives_one_explanation(index):
    _, model, data, _ = node_problem("gcn", "directed")
    why = ew.explain(model, data, index=index)
    assert isinstance(why, ew.Explanation)
    assert int(why.index) == 3


# Graph tasks ##########################################################################################################


def molecules():
    rows = [zoo.GRAPHS[name]() for name in ("directed", "everything", "no_edges", "isolated", "loops_on_some")]
    return [Data(x=data.x, edge_index=data.edge_index, edge_attr=data.edge_attr) for data in rows]


@pytest.mark.parametrize(("case_name", "level"), alternating(zoo.GRAPH_BY_NAME))
def test_a_list_of_graphs_equals_the_graphs_one_by_one(case_name, level):
    case, graphs = zoo.GRAPH_BY_NAME[case_name], molecules()
    model = case.build()
    for method in ("gradient", "occlusion", "gnn_explainer", "full"):
        options = {"task": "graph", "method": method, "level": level, **SETTINGS.get(method, {}), **case.arguments}
        with quietly(case):
            together = ew.explain(model, graphs, **options)
            blocks = ew.explain(model, graphs, batch_size=2, **options)
            alone = [ew.explain(model, data, **options) for data in graphs]
        assert isinstance(together, ew.ExplanationSet)
        assert len(together) == len(graphs)
        for position, (one, two, three) in enumerate(zip(together, blocks, alone, strict=True)):
            if method != "gnn_explainer":  # its start belongs to the position in the list
                assert_close(one.scores, three.scores, 1e-9, f"{method} of graph {position}")
            assert_close(two.scores, one.scores, 1e-9, f"{method} of graph {position}, in blocks")
            assert (int(one.index), one.num_nodes) == (position, graphs[position].num_nodes)
            assert torch.equal(one.edge_index, graphs[position].edge_index)


def test_some_graphs_of_a_list_can_be_asked_for():
    case, graphs = zoo.GRAPH_BY_NAME["mean_pool"], molecules()
    model = case.build()
    found = ew.explain(model, graphs, index=[3, 0], task="graph")
    assert [int(why.index) for why in found] == [3, 0]
    assert_close(found[0].scores, ew.explain(model, graphs[3], task="graph").scores, 1e-9)
    one = ew.explain(model, graphs, index=4, task="graph")
    assert isinstance(one, ew.Explanation)
    assert_close(one.scores, ew.explain(model, graphs[4], task="graph").scores, 1e-9)


def test_a_norm_that_reaches_across_the_batch_keeps_graphs_apart():
    model, graphs = zoo.GRAPH_BY_NAME["pooled_gin_layer_norm"].build(), molecules()
    found = ew.explain(model, graphs, task="graph", level="layer")
    assert found.settings["way"] == "copies"  # together, and each normalised by itself
    for why, data in zip(found, graphs, strict=True):
        batched = data.clone()
        batched.batch = torch.zeros(data.num_nodes, dtype=torch.long)
        numbers = oracles.Numbers(model, batched)
        assert_close(why.scores, oracles.layer_gradient(numbers, *numbers.ones())[0][0], 1e-9)


def test_a_data_set_of_pyg_is_a_list_of_graphs(raw_data):
    graphs = TUDataset(raw_data("MUTAG"), "MUTAG")[:6]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = zoo.Pooled(zoo.GCNConv(7, zoo.WIDTH), zoo.GCNConv(zoo.WIDTH, zoo.WIDTH), out=1).eval()
    found = ew.explain(model, graphs, task="graph")
    assert isinstance(found, ew.ExplanationSet)
    assert len(found) == 6
    for why, data in zip(found, graphs, strict=True):
        assert_close(why.scores, ew.explain(model, data, task="graph").scores, 1e-5)


def test_a_score_of_graphs_is_one_number_per_graph():
    model, graphs = zoo.GRAPH_BY_NAME["mean_pool"].build(), molecules()
    score = ew.Score(model, graphs, [1, 3, 0], task="graph")
    assert score.ones().shape == (2, sum(graphs[position].edge_index.shape[1] for position in (1, 3, 0)))
    expected = [float(ew.explain(model, graphs[position], task="graph").value) for position in (1, 3, 0)]
    assert score(score.ones()).tolist() == pytest.approx(expected, abs=1e-9)


# Models that are not local ############################################################################################


@pytest.mark.parametrize(
    "case_name", ["layer_norm_of_graphs", "layer_norm_inside_gin", "batch_norm_without_statistics"]
)
def test_a_model_that_is_not_local_is_explained_on_the_whole_graph_with_a_warning(medium, case_name):
    model = zoo.BY_NAME[case_name].build()
    with pytest.warns(UserWarning, match=r"(?i)whole graph"):
        found = ew.explain(model, medium, index=[3, 60, 100], level="layer")
    numbers = oracles.Numbers(model, medium)
    expected, _ = oracles.layer_gradient(numbers, *numbers.ones())
    assert_close(scores_of(found), expected[[3, 60, 100]], 1e-9)
    # Through the statistics even the far side of the ring counts.
    assert (found[0].scores[0] != 0).double().mean() > 0.9


class FarSum(torch.nn.Module):
    """Adds the mean of the whole graph to every node between two convs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = zoo.SAGEConv(5, 4), zoo.SAGEConv(4, 3)

    def forward(self, x, edge_index):
        x = torch.tanh(self.first(x, edge_index))
        return self.second(x + x.mean(dim=0), edge_index)


class RefusesCopies(zoo.Chain):
    """Knows how many nodes its graph has and raises on any other number."""

    def forward(self, x, edge_index):
        if len(x) != 120:
            raise RuntimeError("I was made for 120 nodes")
        return super().forward(x, edge_index)


def test_a_model_that_pools_in_between_is_explained_on_the_whole_graph(medium):
    model = zoo.randomise(FarSum())
    with pytest.warns(UserWarning, match=r"(?i)whole graph"):
        found = ew.explain(model, medium, index=[3, 60], level="layer")
    numbers = oracles.Numbers(model, medium)
    expected, _ = oracles.layer_gradient(numbers, *numbers.ones())
    assert_close(scores_of(found), expected[[3, 60]], 1e-9)


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
@pytest.mark.parametrize("act", [torch.tanh, lambda x: x * torch.sigmoid(x)])
def test_a_model_that_raises_on_copies_is_explained_all_the_same(medium, act):
    model = zoo.randomise(RefusesCopies(zoo.GCNConv(5, 4), zoo.TransformerConv(4, 3), act=act))
    found = ew.explain(model, medium, index=[3, 60], level="layer")
    numbers = oracles.Numbers(model, medium)
    expected, _ = oracles.layer_gradient(numbers, *numbers.ones())
    assert_close(scores_of(found), expected[[3, 60]], 1e-9)


def test_a_local_model_is_explained_without_any_warning(medium, recwarn):
    cases = ("gcn", "sage_mean", "gat_with_attributes", "batch_norm", "layer_norm_of_nodes", "pna")
    models = [zoo.BY_NAME[case_name].build() for case_name in cases]
    recwarn.clear()  # what PyG says when layers are made
    for model in models:
        ew.explain(model, medium, index=[3, 60, 100])
    assert not list(recwarn)


def test_the_score_lists_each_targets_own_copies(medium):
    model = zoo.BY_NAME["gcn"].build()
    index = [8, 70, 8]
    score = ew.Score(model, medium, index)
    ones = score.ones()
    assert ones.shape == (score.num_layers, len(score.edge_id)) == (3, len(score.owner))
    assert (ones == 1).all()
    assert len(score.self_node) == len(score.self_owner)
    for position, node in enumerate(index):
        hops = oracles.reach(medium.edge_index, node, 3).any(dim=0).nonzero().view(-1)
        assert sorted(score.edge_id[score.owner == position].tolist()) == hops.tolist()
    values = score(ones)
    assert tuple(values.shape) == (3,)
    with torch.no_grad():
        output = model(medium.x, medium.edge_index)
    assert_close(values.detach(), output[index].amax(dim=1), 1e-9)


def test_the_score_of_one_target_is_touched_by_its_own_weights_only(medium):
    score = ew.Score(zoo.BY_NAME["sage_mean"].build(), medium, [8, 70])
    weight = score.ones()
    weight[:, score.owner == 0] = 0.25
    before, after = score(score.ones()).detach(), score(weight).detach()
    assert abs(float(after[0] - before[0])) > 1e-3
    assert float(after[1]) == pytest.approx(float(before[1]), abs=1e-12)


def test_the_score_can_be_differentiated_in_both_arguments(medium):
    model = zoo.BY_NAME["gcn"].build()
    score = ew.Score(model, medium, [8])
    weight = score.ones().requires_grad_()
    own = torch.ones(score.num_layers, len(score.self_node), dtype=torch.float64, requires_grad=True)
    edge_part, self_part = torch.autograd.grad(score(weight, own).sum(), (weight, own))
    why = ew.explain(model, medium, index=8, level="layer")
    scores, self_scores = torch.zeros_like(why.scores), torch.zeros_like(why.self_scores)
    scores[:, score.edge_id], self_scores[:, score.self_node] = edge_part, self_part
    assert_close(scores, why.scores, 1e-12)
    assert_close(self_scores, why.self_scores, 1e-12)


def test_top_keeps_the_strongest_edges_of_every_target(medium):
    model = zoo.BY_NAME["gcn"].build()
    whole = scores_of(ew.explain(model, medium, index=[8, 70]))
    kept = scores_of(ew.explain(model, medium, index=[8, 70], top=4))
    for full, few in zip(whole, kept, strict=True):
        strongest = full.abs().topk(4).indices
        expected = torch.zeros_like(full)
        expected[strongest] = full[strongest]
        assert torch.equal(few, expected)


def test_copies_of_a_model_give_the_same(medium):
    model = zoo.BY_NAME["gcn"].build()
    assert_close(
        scores_of(ew.explain(copy.deepcopy(model), medium, index=[8])),
        scores_of(ew.explain(model, medium, index=[8])),
        0.0,
    )
