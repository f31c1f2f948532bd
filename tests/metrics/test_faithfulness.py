"""Fidelity, curves and unfaithfulness: hand-worked numbers, slow twins on every kind of model, PyG's own metric."""

import copy
import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, metric
from torch_geometric.nn import GCNConv, SAGEConv

import edgewise as ew
import oracles
import zoo
from checks import assert_close, explain_nodes, quietly, with_batch
from edgewise.adapters.to_pyg import EdgewiseExplainer
from edgewise.results.explanation import Explanation
from footprint import Footprint

TOLERANCE = 1e-9


# --- three edges, worked out by hand ----------------------------------------------------------------------------------


def star(features, aggr):
    """Three neighbours of node 3, whose logit is the sum (or the mean) of their features."""
    conv = SAGEConv(1, 1, aggr=aggr, bias=False, root_weight=False).double()
    conv.lin_l.weight.data.fill_(1.0)
    x = torch.tensor([*features, 0.0], dtype=torch.double).view(-1, 1)
    return conv, Data(x=x, edge_index=torch.tensor([[0, 1, 2], [3, 3, 3]]))


def test_three_edges_by_masking_and_by_removing():
    model, data = star([6.0, 3.0, 0.0], "mean")  # the logit is (6 + 3 + 0) / 3 = 3
    why = ew.explain(model, data, index=3, target=1)
    masked = ew.metrics.fidelity(why, model, data, k=1)
    assert masked.plus.value.tolist() == [2.0]  # 3 − (3 + 0) / 3
    assert masked.minus.value.tolist() == [1.0]  # 3 − 6 / 3
    removed = ew.metrics.fidelity(why, model, data, k=1, how="removing")
    assert removed.plus.value.tolist() == [1.5]  # 3 − (3 + 0) / 2: two neighbours are left
    assert removed.minus.value.tolist() == [-3.0]  # 3 − 6 / 1
    assert removed.sparsity.value.tolist() == pytest.approx([2 / 3])


def test_support_opposition_and_irrelevance_on_three_edges():
    model, data = star([5.0, -2.0, 0.0], "sum")  # the logit is 3, the scores are 5, −2 and 0

    def fidelity(**choice):
        found = ew.metrics.fidelity(ew.explain(model, data, index=3, target=1), model, data, **choice)
        return [float(found.plus.value), float(found.minus.value)]

    assert fidelity(by="support") == [5.0, -2.0]  # without it −2, alone 5
    assert fidelity(by="opposition") == [-2.0, 5.0]
    assert fidelity(by="irrelevant") == [0.0, 3.0]
    assert fidelity(by="magnitude") == [3.0, 0.0]
    assert fidelity(k=1, by="magnitude") == [5.0, -2.0]
    assert fidelity(threshold=4.9) == [5.0, -2.0]
    assert fidelity(fraction=0.5, by="magnitude") == [3.0, 0.0]  # half of three edges, rounded up: two


def test_probability_and_label_on_three_edges():
    model, data = star([5.0, -2.0, -4.0], "sum")  # the logit is −1: class 0, its scores −5, 2 and 4
    why = ew.explain(model, data, index=3)
    assert why.target == 0
    probability = ew.metrics.fidelity(why, model, data, k=1, of="prob")  # alone −4; without it 3
    expected = [torch.sigmoid(torch.tensor(z, dtype=torch.double)) for z in (1.0, -3.0, 4.0)]
    assert_close(probability.plus.value, (expected[0] - expected[1]).view(1), TOLERANCE)
    assert_close(probability.minus.value, (expected[0] - expected[2]).view(1), TOLERANCE)
    label = ew.metrics.fidelity(why, model, data, k=1, of="label")
    assert (label.plus.value.tolist(), label.minus.value.tolist()) == ([1.0], [0.0])
    assert label.characterization.value.tolist() == [1.0]


def test_a_soft_mask_weights_messages():
    model, data = star([6.0, 3.0, 1.0], "sum")
    why = Explanation(torch.tensor([0.5, 1.0, 0.0]).double(), data.edge_index, 4, index=3, target=1, value=10.0)
    found = ew.metrics.fidelity(why, model, data)
    assert found.minus.value.tolist() == [4.0]  # 10 − (3 + 3)
    assert found.plus.value.tolist() == [6.0]  # 10 − (3 + 0 + 1)
    assert found.size.tolist() == [1.5]


# --- slow twins -------------------------------------------------------------------------------------------------------


def without_columns(data, kept):
    """The graph with the kept columns alone, attribute by attribute."""
    parts = {name: data[name][kept] for name in ("edge_attr", "edge_weight") if name in data}
    nodes = {name: data[name] for name in ("pos", "batch") if name in data}
    return Data(x=data.x, edge_index=data.edge_index[:, kept], **parts, **nodes)


class SlowFidelity:
    """One target after another, one forward pass of the whole graph each."""

    def __init__(self, case, model, data, how):
        self.case, self.data, self.how = case, data, how
        self.model, self.twin = copy.deepcopy(model).eval(), oracles.Twin(model, data, case.forward)

    @torch.no_grad()
    def outputs(self, mask):
        if self.how == "masking":
            own = self.twin.ones()[1]
            return self.twin(mask.expand(self.twin.layers, -1).to(own.dtype), own)
        output = oracles.call(copy.deepcopy(self.model), without_columns(self.data, mask.bool()), self.case.forward)
        return output if output.dim() == 2 else output.unsqueeze(-1)

    def __call__(self, why, mask):
        target = torch.tensor([why.target])

        def number(rows):
            return float(oracles.explained_number(rows[[why.index]], target, self.case.mode))

        full = number(self.outputs(torch.ones_like(mask)))
        return full - number(self.outputs(1 - mask)), full - number(self.outputs(mask))


CASES = [
    *["gcn", "gcn_with_weights", "gcn_against_the_arrows", "gcn_cached", "sage_sum", "sage_mean_relu", "gin"],
    *["gat_with_attributes", "gatv2", "transformer", "pna", "sgc", "cheb", "jumping_cat", "residual", "gine"],
    *["batch_norm_without_statistics", "layer_norm_of_graphs", "takes_data_and_positions", "binary", "regression"],
]


@pytest.mark.parametrize("how", ["masking", "removing"])
@pytest.mark.parametrize("name", CASES)
def test_fidelity_of_all_targets_equals_one_pass_of_the_whole_graph_for_each(name, how):
    case = zoo.BY_NAME[name]
    data = zoo.GRAPHS["weighted" if "weights" in name else "everything"]()
    model = case.build()
    found = explain_nodes(case, model, data)
    with quietly(case):
        fidelity = ew.metrics.fidelity(found, model, data, k=3, by="magnitude", how=how, forward=case.forward)
    slow = SlowFidelity(case, model, data, how)
    compared = 0
    for position, why in enumerate(found):
        mask = torch.zeros_like(why.scores)
        mask[[column for _, _, _, column in why.top(3, by="magnitude")]] = 1
        if not mask.any():
            assert fidelity.plus.value[position].isnan()
            assert fidelity.plus.reasons[position] in ("all scores are zero", "no edge can matter")
            continue
        plus, minus = slow(why, mask)
        assert float(fidelity.plus.value[position]) == pytest.approx(plus, abs=TOLERANCE)
        assert float(fidelity.minus.value[position]) == pytest.approx(minus, abs=TOLERANCE)
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize("name", ["gcn", "gat_with_attributes", "cheb"])
def test_layerwise_fidelity_masks_layer_by_layer(name):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["everything"]()
    model = case.build()
    found = explain_nodes(case, model, data, level="layer")
    with quietly(case):
        fidelity = ew.metrics.fidelity(found, model, data, k=4, by="magnitude")
    slow = SlowFidelity(case, model, data, "masking")
    for position, why in enumerate(found):
        mask = torch.zeros_like(why.scores)
        for _, _, _, column, layer in why.top(4, by="magnitude"):
            mask[layer, column] = 1
        if mask.any():
            plus, minus = slow(why, mask)
            assert float(fidelity.plus.value[position]) == pytest.approx(plus, abs=TOLERANCE)
            assert float(fidelity.minus.value[position]) == pytest.approx(minus, abs=TOLERANCE)


HOW = st.sampled_from(["masking", "removing"])


@given(st.integers(0, 10**6), st.sampled_from(["gcn", "sage_mean", "gatv2", "gin"]), st.integers(1, 6), HOW)
def test_on_random_graphs_the_k_strongest_are_taken_among_the_edges_that_can_matter(seed, name, k, how):
    case, data = zoo.BY_NAME[name], zoo.graph(zoo.random_edges(9, 22, seed), 9, seed=seed)
    model = case.build(seed % 7)
    found = explain_nodes(case, model, data, method="random", seed=seed)
    fidelity = ew.metrics.fidelity(found, model, data, k=k, how=how)
    slow = SlowFidelity(case, model, data, how)
    hops = oracle_hops(data, case.layers)
    for position, why in enumerate(found):
        reachable = hops[position]
        if not reachable.any():
            assert fidelity.plus.value[position].isnan()
            continue
        mask = torch.zeros_like(why.scores)
        mask[torch.where(reachable, why.scores, -1.0).argsort(descending=True)[: min(k, int(reachable.sum()))]] = 1
        plus, minus = slow(why, mask)
        assert float(fidelity.plus.value[position]) == pytest.approx(plus, abs=TOLERANCE)
        assert float(fidelity.minus.value[position]) == pytest.approx(minus, abs=TOLERANCE)
        assert int(fidelity.size[position]) == int(mask.sum())


def oracle_hops(data, layers):
    """For every node, which edges can reach it within the layers: powers of the adjacency."""
    source, receiver = data.edge_index
    step = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.bool)
    step[receiver, source] = True
    near = torch.eye(data.num_nodes, dtype=torch.bool)
    for _ in range(layers - 1):
        near = near | ((near.float() @ step.float()) > 0)
    return near[:, receiver]


def test_a_complement_by_removing_keeps_the_edges_beyond_the_neighbourhood():
    """A GCN reads the degrees of rim nodes, so edges that send nothing to the target matter when they are removed."""
    data = zoo.graph([(0, 1), (1, 2), (3, 0), (4, 0), (2, 1)], 5)
    case = zoo.BY_NAME["gcn"]
    model = zoo.Chain(GCNConv(zoo.FEATURES, zoo.CLASSES)).double().eval()
    why = ew.explain(model, data, index=1)
    part = why.subgraph(k=1, by="magnitude")
    found = ew.metrics.fidelity(part.complement().as_mask(), model, data, how="removing")
    plus, minus = SlowFidelity(case, model, data, "removing")(why, (~part.mask).to(why.scores.dtype))
    assert float(found.plus.value) == pytest.approx(plus, abs=TOLERANCE)
    assert float(found.minus.value) == pytest.approx(minus, abs=TOLERANCE)


@pytest.mark.parametrize("how", ["masking", "removing"])
@pytest.mark.parametrize("name", ["mean_pool", "max_pool", "pooled_with_attributes", "pooled_gin_layer_norm"])
def test_fidelity_of_many_graphs_equals_a_pass_for_each(name, how):
    case = zoo.GRAPH_BY_NAME[name]
    model = case.build()
    graphs = [zoo.graph(zoo.random_edges(5 + i, 9 + i, i), 5 + i, seed=i) for i in range(5)]
    with quietly(case):
        found = ew.explain(model, graphs, task="graph")
        fidelity = ew.metrics.fidelity(found, model, graphs, k=2, by="magnitude", how=how)
    for position, (graph, why) in enumerate(zip(graphs, found, strict=True)):
        slow = SlowFidelity(case, model, with_batch(graph), how)
        mask = why.subgraph(k=2, by="magnitude").mask.to(why.scores.dtype)
        plus, minus = slow(dataclasses.replace(why, index=0), mask)
        assert float(fidelity.plus.value[position]) == pytest.approx(plus, abs=TOLERANCE)
        assert float(fidelity.minus.value[position]) == pytest.approx(minus, abs=TOLERANCE)


def test_one_graph_needs_no_list():
    case, graph = zoo.GRAPH_BY_NAME["mean_pool"], zoo.GRAPHS["directed"]()
    model = case.build()
    for how in ("masking", "removing"):
        alone = ew.metrics.fidelity(ew.explain(model, graph, task="graph"), model, graph, k=2, how=how)
        listed = ew.metrics.fidelity(ew.explain(model, [graph], task="graph"), model, [graph], k=2, how=how)
        assert alone.plus.value.tolist() == listed.plus.value.tolist()


class NeedsEdges(nn.Module):
    """The logarithm of what the neighbours say: minus infinity without any."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).abs().log()


def test_a_model_that_breaks_without_edges_is_named_as_the_reason():
    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    model = NeedsEdges()
    found = ew.metrics.fidelity(ew.explain(model, data, method="full"), model, data)
    assert found.plus.why_undefined() == {"the model gives NaN or infinity without some of the edges": 2}


def test_results_do_not_depend_on_the_size_of_the_blocks():
    case, data = zoo.BY_NAME["transformer"], zoo.GRAPHS["directed"]()
    model = case.build()
    found = explain_nodes(case, model, data)
    for how in ("masking", "removing"):
        whole, parts = (ew.metrics.fidelity(found, model, data, k=2, how=how, batch_size=b) for b in (None, 2))
        assert_close(whole.plus.value.nan_to_num(), parts.plus.value.nan_to_num(), TOLERANCE)
        assert whole.plus.reasons == parts.plus.reasons


# --- PyG's metric -----------------------------------------------------------------------------------------------------


def pyg_fidelity(model, data, index, mode, kind, target=None):
    """The mask of PyG's explanation of one node, and PyG's fidelity of it."""
    explainer = Explainer(
        model,
        EdgewiseExplainer("gnn_explainer", epochs=5, lr=1.0, seed=index),
        explanation_type=kind,
        edge_mask_type="object",
        model_config={"mode": mode, "task_level": "node", "return_type": "raw"},
    )
    found = explainer(data.x, data.edge_index, index=index, target=target)
    if mode == "binary_classification":  # PyG compares labels of shape [N] with outputs of shape [N, 1] otherwise
        found.target = found.target.view(-1)
    return found.edge_mask, metric.fidelity(explainer, found)


WITH_PYG = [("gcn", "model"), ("gcn", "phenomenon"), ("gatv2", "model"), ("binary", "phenomenon")]
MORE_WITH_PYG = [(name, kind) for name in ("sage_mean", "gin") for kind in ("model", "phenomenon")]
MORE_WITH_PYG += [("gatv2", "phenomenon"), ("binary", "model")]


@pytest.mark.parametrize(
    ("name", "kind"), [*WITH_PYG, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in MORE_WITH_PYG)]
)
def test_fidelity_by_masking_equals_pyg(name, kind):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["directed"]()
    mode = "binary_classification" if case.mode == "binary" else "multiclass_classification"
    differed = set()
    for seed in range(6):
        model = case.build(seed)
        predicted = oracles.predicted(model(data.x, data.edge_index), case.mode)
        label = (predicted + seed % 2) % (2 if case.mode == "binary" else zoo.CLASSES)
        for index in range(data.num_nodes):
            target = label if kind == "phenomenon" else None
            mask, (plus, minus) = pyg_fidelity(model, data, index, mode, kind, target)
            explained = label if kind == "phenomenon" else predicted
            why = ew.explain(model, data, index=index, target=int(explained[index]))
            why = Explanation(
                mask, data.edge_index, data.num_nodes, index, why.target, why.value, settings=why.settings
            )
            ours = ew.metrics.fidelity(why, model, data, of="label")
            if mask.any():
                assert (float(ours.plus.value), float(ours.minus.value)) == (plus, minus)
                differed |= {plus, minus}
    assert differed == {0.0, 1.0}, "the comparison saw both answers"


# --- curves -----------------------------------------------------------------------------------------------------------


def test_a_curve_is_fidelity_at_every_size_and_its_area_the_trapezoid():
    model, data = star([6.0, 3.0, 1.0], "mean")
    why = ew.explain(model, data, index=3, target=1)
    for how in ("masking", "removing"):
        curve = ew.metrics.fidelity_curve(why, model, data, ks=[0, 1, 2, 3], how=how)
        single = [ew.metrics.fidelity(why, model, data, k=k, how=how) for k in (1, 2, 3)]
        assert_close(curve.plus[0, 1:], torch.cat([one.plus.value for one in single]), TOLERANCE)
        assert_close(curve.minus[0, 1:], torch.cat([one.minus.value for one in single]), TOLERANCE)
    masked = ew.metrics.fidelity_curve(why, model, data, ks=[0, 1, 3])
    assert masked.plus.tolist() == [[0.0, 2.0, pytest.approx(10 / 3)]]
    assert float(masked.area_plus.value) == pytest.approx((1 * 1.0 + 2 * (2 + 10 / 3) / 2) / 3)


def test_curves_of_probabilities_give_pygs_area_too():
    case, data = zoo.BY_NAME["gcn"], zoo.GRAPHS["directed"]()
    model = case.build()
    curve = ew.metrics.fidelity_curve(explain_nodes(case, model, data), model, data, of="prob")
    for plus, minus, known in zip(curve.plus, curve.minus, curve.area_plus.defined, strict=True):
        if known:
            ours = ew.metrics.area(curve.x, plus / (1 - minus))
            assert_close(ours, metric.fidelity_curve_auc(plus, minus, curve.x), TOLERANCE)


def test_opposition_has_a_curve_of_its_own():
    model, data = star([6.0, -3.0, -1.0], "sum")
    why = ew.explain(model, data, index=3, target=1)
    curve = ew.metrics.fidelity_curve(why, model, data, ks=[0, 1, 2, 3], by="opposition")
    assert curve.plus.tolist() == [[0.0, -3.0, -4.0, -4.0]]  # flat once every opposing edge is gone


# --- unfaithfulness ---------------------------------------------------------------------------------------------------


def test_unfaithfulness_of_one_logit_is_not_zero():
    model, data = star([3.0, -1.0, 0.0], "sum")  # the logit is 2, with the first edge alone 3
    found = ew.metrics.unfaithfulness(ew.explain(model, data, index=3), model, data, k=1)
    p, q = (torch.sigmoid(torch.tensor(z, dtype=torch.double)) for z in (2.0, 3.0))
    divergence = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    assert_close(found.value, (1 - (-divergence).exp()).view(1), TOLERANCE)
    assert float(found.value) > 0.01


@torch.no_grad()
def test_unfaithfulness_of_several_classes_is_the_divergence_from_the_models_probabilities():
    case, data = zoo.BY_NAME["gcn"], zoo.GRAPHS["directed"]()
    model = case.build()
    found = explain_nodes(case, model, data)
    measured = ew.metrics.unfaithfulness(found, model, data, k=2)
    twin = oracles.Twin(model, data)
    for position, why in enumerate(found):
        mask = why.subgraph(k=2).mask
        if mask.any():
            edge, own = twin.ones()
            p, q = (rows[why.index].softmax(0) for rows in (twin(), twin(edge * mask, own)))
            expected = 1 - torch.exp(-(p * (p / q).log()).sum())
            assert float(measured.value[position]) == pytest.approx(float(expected), abs=TOLERANCE)


def test_the_whole_graph_is_perfectly_faithful():
    case, data = zoo.BY_NAME["sage_sum"], zoo.GRAPHS["directed"]()
    model = case.build()
    found = explain_nodes(case, model, data, method="full")
    measured = ew.metrics.unfaithfulness(found, model, data)
    assert float(measured.value[measured.defined].abs().max()) < TOLERANCE
    fidelity = ew.metrics.fidelity(found, model, data)
    assert float(fidelity.minus.value[fidelity.minus.defined].abs().max()) < TOLERANCE


# --- undefined and refused --------------------------------------------------------------------------------------------


def test_without_positive_scores_there_is_a_reason_and_no_number():
    model, data = star([-5.0, -2.0, 0.0], "sum")
    found = ew.metrics.fidelity(ew.explain(model, data, index=[3, 0], target=1), model, data, k=2)
    assert found.plus.value.isnan().all()
    assert found.plus.reasons == ("no edge has a positive score", "no edge can matter")
    assert "1 (no edge has a positive score)" in repr(found)
    assert found.plus.mean() != found.plus.mean()


def test_equal_scores_have_no_k_strongest():
    model, data = star([2.0, 2.0, 2.0], "sum")
    why = ew.explain(model, data, index=3, target=1)
    assert ew.metrics.fidelity(why, model, data, k=2).plus.value.isnan().all()
    assert ew.metrics.fidelity(why, model, data, k=3).plus.value.tolist() == [6.0]
    assert ew.metrics.fidelity(why, model, data, threshold=0.0).plus.value.tolist() == [6.0]


def test_characterization_of_logits_says_why_it_has_none():
    model, data = star([6.0, 3.0, 1.0], "sum")
    found = ew.metrics.fidelity(ew.explain(model, data, index=3, target=1), model, data, k=1)
    assert "outside [0, 1]" in found.characterization.reasons[0]


@pytest.fixture
def problem():
    model, data = star([5.0, -2.0, 1.0], "sum")
    return ew.explain(model, data, index=3, target=1), model, data


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "k=10"),  # signed scores are no mask
        ({"k": -1}, "k=10"),
        ({"k": 2, "fraction": 0.5}, "one of"),
        ({"fraction": 1.5}, "≥ 0 and ≤ 1"),
        ({"threshold": -1.0}, "by='opposition'"),
        ({"by": "sign"}, "irrelevant"),
        ({"by": "irrelevant", "k": 3}, "Leave k out"),
        ({"k": 1, "how": "dropping"}, "removing"),
        ({"k": 1, "of": "logit"}, "label"),
    ],
)
def test_bad_settings_are_refused_with_what_to_type(problem, options, text):
    with pytest.raises(ew.EdgewiseError, match=text):
        ew.metrics.fidelity(*problem, **options)


def test_explanations_of_other_graphs_models_and_numbers_are_refused(problem):
    why, model, data = problem
    with pytest.raises(ew.InputError, match="data that was explained"):
        ew.metrics.fidelity(why, model, Data(x=data.x, edge_index=data.edge_index.flip(1)), k=1)
    other = copy.deepcopy(model)
    other.lin_l.weight.data.fill_(3.0)
    with pytest.raises(ew.InputError, match="another model"):
        ew.metrics.fidelity(why, other, data, k=1)
    broken = Explanation(torch.tensor([1.0, torch.nan, 0.0]), data.edge_index, 4, index=3, target=1, value=4.0)
    with pytest.raises(ew.InputError, match="NaN"):
        ew.metrics.fidelity(broken, model, data, k=1)
    short = Explanation(torch.tensor([1.0, 2.0]), data.edge_index, 4, index=3, target=1, value=4.0)
    with pytest.raises(ew.InputError, match="shape"):
        ew.metrics.fidelity(short, model, data, k=1)
    with pytest.raises(ew.InputError, match=r"must be an Explanation"):
        ew.metrics.fidelity(why.scores, model, data, k=1)


def test_soft_masks_and_layerwise_scores_cannot_be_removed(problem):
    why, model, data = problem
    soft = Explanation(torch.tensor([0.5, 1.0, 0.0]), data.edge_index, 4, index=3, target=1, value=why.value)
    with pytest.raises(ew.InputError, match="soft mask"):
        ew.metrics.fidelity(soft, model, data, how="removing")
    layered = ew.explain(model, data, index=3, target=1, level="layer")
    with pytest.raises(ew.InputError, match="level='input'"):
        ew.metrics.fidelity(layered, model, data, k=1, how="removing")


def test_regressions_have_no_labels_and_no_probabilities():
    model, data = star([5.0, -2.0, 1.0], "sum")
    why = ew.explain(model, data, index=3, mode="regression")
    assert ew.metrics.fidelity(why, model, data, k=1).plus.value.tolist() == [5.0]
    for measure in (
        lambda: ew.metrics.fidelity(why, model, data, k=1, of="label"),
        lambda: ew.metrics.unfaithfulness(why, model, data, k=1),
    ):
        with pytest.raises(ew.SettingError, match="regression"):
            measure()


# --- no trace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["masking", "removing"])
@pytest.mark.parametrize("name", ["gcn_cached", "transformer", "layer_norm_of_graphs"])
def test_metrics_leave_no_trace(name, how):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["directed"]()
    model = case.build().train()
    found = explain_nodes(case, model, data)
    before = Footprint(model, data)
    with quietly(case):
        ew.metrics.fidelity(found, model, data, k=2, how=how)
        ew.metrics.fidelity_curve(found, model, data, how=how)
        ew.metrics.unfaithfulness(found, model, data, k=2, how=how)
    before.assert_unchanged()


class Refusing(nn.Module):
    """Breaks on a graph that lost most of its edges."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(zoo.FEATURES, zoo.CLASSES)

    def forward(self, x, edge_index):
        if edge_index.size(1) < 3:
            raise RuntimeError("too few edges")
        return self.conv(x, edge_index)


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
def test_after_an_exception_in_the_middle_there_is_no_trace_either():
    data = zoo.GRAPHS["directed"]()
    model = Refusing().double().train()
    found = ew.explain(model, data, index=1)
    before = Footprint(model, data)
    with pytest.raises(ew.ModelError, match="too few edges"):
        ew.metrics.fidelity(found, model, data, k=1, by="magnitude", how="removing")
    before.assert_unchanged()
