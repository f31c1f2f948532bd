"""`check`: every number against its definition, on linear networks exactly; and the words against models made for them."""

import dataclasses
import json
import math
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, SAGEConv, SGConv

import edgewise as ew
import oracles
import rectified
import zoo
from checks import assert_close, quietly, with_batch
from edgewise import random_numbers
from edgewise.trust import certify, sign_flips
from edgewise.trust.flips import WEIGHTS
from edgewise.trust.target_edges import Draw
from footprint import Footprint

EXACT = 1e-9
LINEAR = zoo.LINEAR_CONVS


def chain(make_conv, calls=3, out=zoo.CLASSES, act=lambda x: x, seed=0):
    return zoo.randomise(zoo.chain(make_conv, calls, out=out, act=act), seed)


def random_graph(seed, nodes=6, edges=11):
    return zoo.graph(zoo.random_edges(nodes, edges, seed), nodes, seed=seed)


# --- linear networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conv", LINEAR)
@settings(max_examples=200 if os.environ.get("EDGEWISE_THOROUGH") else 5)
@given(seed=st.integers(0, 10**6))
def test_on_linear_networks_nothing_is_missing_and_gradients_are_occlusions(conv, seed):
    report = ew.check(chain(LINEAR[conv], seed=seed), random_graph(seed))
    for layer in report.layers:
        assert float(layer.gap.value.max()) < EXACT
        assert layer.missing.value < EXACT
        assert not layer.difference.known or layer.difference.value < EXACT
        assert not layer.unevenness.known or layer.unevenness.value < EXACT
        assert abs(layer.constant.value) < EXACT
        assert abs(layer.rest.value) < EXACT
        assert layer.edges.value + layer.own.value == pytest.approx(1.0)


def enumerated(number, level):
    """Gradients at all weights of every edge, with what rounding alone may have made set to 0: [values, rows, L or 1, E]."""
    found = oracles.own_gradients(number, WEIGHTS, level)
    found = found.unsqueeze(2) if level == "input" else found
    scale = found.abs().amax(dim=(0, 2, 3), keepdim=True)
    return found.masked_fill(found.abs() <= 1e-12 * scale, 0.0)


@pytest.mark.parametrize(("conv", "seed"), [("gcn", 0), ("sage_sum", 3), ("sgc", 7)])  # each with a flip or two
def test_on_linear_networks_flips_are_counted_exactly_as_enumeration_counts_them(conv, seed):
    calls = 1 if conv == "sgc" else 2  # SGConv(K=2) is two calls
    model, data = chain(LINEAR[conv], calls, seed=seed), random_graph(seed, 4, 9)
    report, number = ew.check(model, data), oracles.Numbers(model, data)
    for level, parts in (("input", [report.whole]), ("layer", report.layers)):
        gradients = enumerated(number, level)
        for group, part in enumerate(parts):
            first, lowest, highest = (f(gradients[:, :, group]) for f in (lambda g: g[0], _least, _greatest))
            counted = int((first != 0).sum())
            down, up = int(((first > 0) & (lowest < 0)).sum()), int(((first < 0) & (highest > 0)).sum())
            assert part.flips.edges == counted
            if counted:
                found = (part.flips.share, part.flips.to_negative, part.flips.to_positive)
                assert [round(n.value * counted) for n in found] == [down + up, down, up]
    assert report.whole.flips.share.value > 0


def _least(gradients):
    return gradients.amin(dim=0)


def _greatest(gradients):
    return gradients.amax(dim=0)


def test_a_flip_of_a_linear_network_worked_out_by_hand():
    data = zoo.graph([(0, 0)], 1)
    data.x = torch.ones(1, 1, dtype=torch.double)
    report = ew.check(rectified.loop_model((1.0, 1.0), (-0.5, -0.5)), data, 0, target=0, mode="regression")
    assert report.whole.flips.to_negative.value == 1.0  # z = (ω − ½)², so ∂z/∂ω = 2ω − 1
    assert report.whole.flips.broken.value == 1.0
    assert [layer.flips.share.value for layer in report.layers] == [0.0, 0.0]  # in one layer it is linear
    assert [layer.flips.kept.value for layer in report.layers] == [1.0, 1.0]
    assert report.whole.worst.gradient == pytest.approx(1.0)
    assert report.whole.worst.occlusion == pytest.approx(0.0)  # (1 − ½)² − (0 − ½)²


# --- every number against its definition ------------------------------------------------------------------------------

MODELS = ["gcn_relu", "sage_mean_relu", "gin", "gat", "batch_norm", "binary", "regression", "long_skip", "pna"]


def shares(parts, value):
    return float((parts * value.sign()).sum() / value.abs().sum())


@pytest.mark.parametrize("name", MODELS)
def test_layers_carry_what_the_definition_says(name):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["everything_once"]()
    model = case.build()
    report = ew.check(model, data, **case.arguments)
    number = oracles.Numbers(model, data, mode=case.mode, target=case.target)
    edge, own = number.ones()
    gradient, own_gradient = oracles.layer_gradient(number, edge, own)
    value, occlusion = number().detach(), oracles.layer_occlusion(number)
    for l, layer in enumerate(report.layers):
        edges, selves = gradient[:, l].sum(dim=1), own_gradient[:, l].sum(dim=1)
        assert layer.edges.value == pytest.approx(shares(edges, value), abs=1e-9)
        distance = (gradient - occlusion)[:, l].abs()
        worst = layer.worst
        assert abs(worst.gradient - worst.occlusion) == pytest.approx(float(distance.max()))
        assert float(distance[worst.index, worst.column]) == pytest.approx(float(distance.max()))
        assert [worst.source, worst.receiver] == data.edge_index[:, worst.column].tolist()
        if case.own[l] == zoo.NO:
            assert "cannot be told apart" in layer.own.reason
            assert layer.gap.undefined == data.num_nodes
            continue
        silent = [part.clone() for part in (edge, own)]
        silent[0][l], silent[1][l] = 0, 0
        constant = number(*silent).detach()
        assert_close(layer.gap.value, (edges + selves - value).abs(), 1e-9)
        assert layer.own.value == pytest.approx(shares(selves, value), abs=1e-9)
        assert layer.constant.value == pytest.approx(shares(constant, value), abs=1e-9)
        assert layer.rest.value == pytest.approx(shares(value - edges - selves - constant, value), abs=1e-9)


@pytest.mark.parametrize("name", ["gcn_relu", "gat"])
def test_random_halves_miss_what_loops_say_they_miss(name):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["everything"]()
    model = case.build()
    report, number = ew.check(model, data, [0, 1, 4], seed=3), oracles.Numbers(model, data)
    edge, own = number.ones()
    gradient, _ = oracles.layer_gradient(number, edge, own)
    column = torch.arange(data.edge_index.size(1))
    for l, layer in enumerate(report.layers):
        miss = falls = 0.0
        for node in (0, 1, 4):
            for draw in range(4):
                coordinates = (torch.tensor(draw), torch.tensor(l), torch.tensor(node), column)
                gone = random_numbers.uniform(3, *coordinates) < 0.5
                weight = edge.clone()
                weight[l, gone] = 0
                fall = float((number()[node] - number(weight, own)[node]).detach())
                miss, falls = miss + abs(fall - float(gradient[node, l, gone].sum())), falls + abs(fall)
        assert layer.unevenness.value == pytest.approx(miss / falls)


def test_gradients_beside_occlusions_are_those_of_explain():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    report = ew.check(model, data)
    for level in ("layer", "input"):
        sets = [ew.explain(model, data, method=method, level=level) for method in ("gradient", "occlusion")]
        cosine = ew.similarity(*sets, per_layer=level == "layer").view(8, -1)
        for group, part in enumerate(report.layers if level == "layer" else [report.whole]):
            torch.testing.assert_close(part.cosine.value, cosine[:, group], equal_nan=True, rtol=1e-9, atol=1e-12)
            assert all(
                bool(why) == bool(number.isnan())
                for why, number in zip(part.cosine.reasons, cosine[:, group], strict=True)
            )


def test_rectifiers_are_counted_where_targets_see_them():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    index = [1, 4]
    report = ew.check(model, data, index)
    x, seen = data.x, []
    for conv in model.convs[:-1]:
        seen.append(conv(x, data.edge_index) > 0)
        x = conv(x, data.edge_index).relu()
    for l, on in enumerate(seen):
        counts, units = [0, 0], set()
        for node in index:
            near = {node}
            for _ in range(3 - (l + 1)):
                near |= {u for u, v in data.edge_index.t().tolist() if v in near}
            counts = [counts[0] + int(on[list(near)].sum()), counts[1] + on[list(near)].numel()]
            units |= near
        rows = on[list(units)]
        assert report.layers[l].rate.value == pytest.approx(counts[0] / counts[1])
        assert report.layers[l].fixed.value == pytest.approx(float((rows.all(0) | ~rows.any(0)).double().mean()))
        assert report.layers[l].activations == ("relu",)
    assert report.layers[2].activations == ()
    assert "no ReLU" in report.layers[2].rate.reason


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gat", ("leaky_relu (on messages)", "tanh")),
        ("gine", ("relu (on messages)", "tanh")),
        ("gin", ("tanh",)),
        ("sequential", ("tanh",)),
    ],
)
def test_activations_are_named_wherever_they_are(name, expected):
    report = ew.check(zoo.BY_NAME[name].build(), zoo.GRAPHS["everything_once"](), [1])
    assert report.layers[0].activations == expected


def test_rectifiers_inside_a_layer_and_of_many_graphs_are_counted():
    def conv(a, b):
        return GINConv(nn.Sequential(nn.Linear(a, zoo.WIDTH), nn.ReLU(inplace=True), nn.Linear(zoo.WIDTH, b)))

    model = zoo.randomise(zoo.Pooled(conv(zoo.FEATURES, zoo.WIDTH), act=lambda x: x))
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "parallel")]
    on = []
    for graph in graphs:
        heard = 1.3 * graph.x + torch.zeros_like(graph.x).index_add_(
            0, graph.edge_index[1], graph.x[graph.edge_index[0]]
        )
        on.append(model.convs[0].nn[0](heard) > 0)
    on = torch.cat(on)
    (layer,) = ew.check(model, graphs, task="graph").layers
    assert layer.rate.value == pytest.approx(float(on.double().mean()))
    assert layer.fixed.value == pytest.approx(float((on.all(0) | ~on.any(0)).double().mean()))


def star(*features, weight=1.0):
    """One sum layer without bias and root: z = weight · Σ features."""
    conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False).double()
    conv.lin_l.weight.data.fill_(weight)
    count = len(features)
    ends = torch.stack([torch.arange(count), torch.full((count,), count)])
    return conv, Data(x=torch.tensor([[*features, 0.0]], dtype=torch.double).t(), edge_index=ends)


def test_a_flat_sigmoid_worked_out_by_hand():
    model, data = star(5.0, 0.2, -1.0)  # z = 4.2, p = 0.985; the log-probability pulls with (1 − p) · score
    report = ew.check(model, data, [3])
    p = 1 / (1 + math.exp(-4.2))
    assert float(report.softmax.probability.value) == pytest.approx(p)
    assert (1 - p) * 0.2 < 0.005 < (1 - p) * 5.0
    assert report.softmax.weak.value == 0.5  # one of two supporting edges pulls less than the size penalty
    assert report.softmax.saturated.value == 0.0
    assert report.softmax.opposed.value == 0.0
    assert ew.check(*star(5.0, 0.2), [2]).softmax.saturated.value == 1.0  # p = 0.9945


def test_with_several_classes_the_log_probability_may_pull_the_other_way():
    model = SAGEConv(1, 2, aggr="sum", bias=False, root_weight=False).double()
    model.lin_l.weight.data.copy_(torch.tensor([[1.0], [3.0]]))
    _, data = star(2.0, -1.0)
    report = ew.check(model, data, [2], target=0)  # z₀ = x and z₁ = 3x: what raises z₀ raises z₁ more
    assert report.softmax.opposed.value == 1.0
    assert "log-probability" in report.statement("Proposition 1").why


# --- words ------------------------------------------------------------------------------------------------------------


def verdicts(report):
    return {one.name: one.verdict for one in report.statements}


def test_one_linear_layer_with_one_logit_has_every_statement_of_the_paper():
    found = verdicts(ew.check(*star(2.0, 1.0, -0.5), [3]))
    assert found == dict.fromkeys(found, "holds")
    assert len(found) == 9


def test_a_bias_breaks_the_sum_and_nothing_else():
    model = zoo.randomise(SGConv(zoo.FEATURES, zoo.CLASSES, K=2))
    report = ew.check(model, random_graph(1))
    found = verdicts(report)
    assert found["Proposition 3"] in ("nearly", "fails")
    assert "biases" in report.statement("Proposition 3").why
    assert (found["Corollary 1"], found["Sensitivity-n"]) == ("holds", "holds")
    assert found["Corollary 2"] == "does not apply"


def test_without_biases_relu_keeps_the_sum_but_not_the_occlusions():
    model = chain(LINEAR["sage_sum"], act=torch.relu, seed=2)
    report = ew.check(model, random_graph(5, 8, 30))
    found = verdicts(report)
    assert found["Proposition 3"] == "holds"
    assert "ReLU is enough" in report.statement("Proposition 3").why
    assert found["Corollary 1"] in ("nearly", "fails")
    assert found["Corollary 2"] == "open"
    assert "ρ runs from" in report.statement("Corollary 2").why
    assert found["Proposition 5"] == "holds"


@pytest.mark.parametrize(
    ("calls", "task", "expected"), [(2, "node", "holds"), (3, "node", "fails"), (2, "graph", "fails")]
)
def test_algorithm_1_is_exact_only_for_few_layers(calls, task, expected):
    if task == "node":
        report = ew.check(chain(LINEAR["gcn"], calls), random_graph(3))
    else:
        model = zoo.GRAPH_BY_NAME["mean_pool"].build()
        report = ew.check(model, [zoo.GRAPHS["directed"]()], task="graph")
    assert verdicts(report)["Theorem 1"] == expected
    word = "dag" if expected == "holds" else "exact"
    assert f"search='{word}'" in report.statement("Theorem 1").so


def test_skips_attention_and_other_numbers_are_named():
    jumping = ew.check(rectified.build("jumping"), random_graph(3))
    assert verdicts(jumping)["Theorem 1"] == "does not apply"
    attention = ew.check(zoo.BY_NAME["gat"].build(), random_graph(3))
    assert "GATConv" in attention.statement("Proposition 5").why
    regression = ew.check(zoo.BY_NAME["regression"].build(), random_graph(3), mode="regression")
    assert verdicts(regression)["Proposition 2"] == "does not apply"
    assert "regression has no probability" in regression.softmax.saturated.reason


def test_flips_decide_how_far_positive_gradients_stand_in_for_gnn_explainer():
    model, data = rectified.build("gcn_deep", 2), random_graph(2, 12, 40)
    report = ew.check(model, data)
    flips, proof = sign_flips(model, data), certify(model, data)
    assert not torch.equal(flips.counted, ~proof.vanishes)  # some gradients are 0 at ω = 1 and not for smaller weights
    assert report.whole.flips.share.value == flips.share
    assert report.whole.flips.kept.value == proof.share
    assert (
        report.whole.flips.kept.value + report.whole.flips.broken.value + report.whole.flips.unknown.value
        == pytest.approx(1)
    )
    assert f"{1 - flips.share:.1%} of the edges" in report.statement("Proposition 2").so
    other = ew.check(zoo.BY_NAME["gcn"].build(), random_graph(3), [1])
    assert "tanh" in other.whole.flips.kept.reason


# --- parts of the edges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("name", ["gcn_relu", "gat"])
def test_a_random_part_of_the_edges_has_the_numbers_of_the_whole(name, level):
    model, data = zoo.BY_NAME[name].build(), zoo.graph(zoo.random_edges(20, 60), 20)
    whole = sign_flips(model, data, range(5), level=level)
    part = sign_flips(model, data, range(5), level=level, edges=40, seed=1)
    assert 0 < len(part.owner) < len(whole.owner)
    assert part.chance == pytest.approx(40 / len(whole.owner))
    place = {pair: i for i, pair in enumerate(zip(whole.owner.tolist(), whole.edge_id.tolist(), strict=True))}
    found = torch.tensor([place[pair] for pair in zip(part.owner.tolist(), part.edge_id.tolist(), strict=True)])
    for array in ("gradient", "lowest", "highest"):
        assert_close(getattr(part, array), getattr(whole, array)[..., found], 1e-12)
    proof, some = (
        certify(model, data, range(5), level=level),
        certify(model, data, range(5), level=level, edges=40, seed=1),
    )
    assert torch.equal(some.keeps, proof.keeps[..., found])
    assert "of all" in repr(part)


@pytest.mark.parametrize("chance", [0.1, 0.7])
def test_every_edge_has_the_same_chance_to_be_asked_about(chance):
    problem = ew.Score(zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]())._question
    column = torch.arange(20_000)
    kept = Draw(chance, seed=4).keeps(problem, column, column)
    halves = [float(part.double().mean()) for part in kept.split(10_000)]
    assert halves == pytest.approx([chance, chance], abs=0.02)  # four standard deviations
    assert not torch.equal(kept, Draw(chance, seed=5).keeps(problem, column, column))


def test_graphs_draw_edges_of_their_own():
    case, graphs = zoo.GRAPH_BY_NAME["sum_pool"], [zoo.GRAPHS["directed"]()] * 8
    part = sign_flips(case.build(), graphs, task="graph", edges=50)
    chosen = {tuple(part.edge_id[part.owner == position].tolist()) for position in range(8)}
    assert len(chosen) > 1


def test_the_report_says_which_part_of_the_edges_was_asked_about():
    model, data = zoo.BY_NAME["gat"].build(), zoo.graph(zoo.random_edges(20, 60), 20)
    report = ew.check(model, data, edges=100)
    assert 0 < report.question.chance < 1
    assert f"a random {report.question.chance:.1%} of them" in str(report)
    assert ew.check(model, data, [1], edges=None).question.chance == 1
    assert "random" not in str(ew.check(model, data, [1], edges=None)).splitlines()[0]


def test_occlusions_by_passes_are_those_of_the_edges_asked_about():
    case, data = zoo.BY_NAME["pna"], zoo.GRAPHS["everything_once"]()
    model = case.build()
    report = ew.check(model, data, [1, 2], edges=12)
    sets = [ew.explain(model, data, [1, 2], method=method, level="layer") for method in ("gradient", "occlusion")]
    kept = set(sign_flips(model, data, [1, 2], edges=12).edge_id.tolist())
    worst = max(((sets[0][t].scores - sets[1][t].scores)[1, column].abs(), column) for t in (0, 1) for column in kept)
    assert report.question.chance < 1
    assert abs(report.layers[1].worst.gradient - report.layers[1].worst.occlusion) == pytest.approx(float(worst[0]))


# --- any model, any task, no trace ------------------------------------------------------------------------------------


def missing_without_reason(part):
    """Every number that is missing and says nothing of it."""
    if isinstance(part, dict):
        if set(part) == {"value", "reason"}:
            return [] if (part["value"] is None) == bool(part["reason"]) else [part]
        if "why_undefined" in part:
            return [] if sum(part["why_undefined"].values()) == part["undefined"] else [part]
        return [bad for value in part.values() for bad in missing_without_reason(value)]
    return [bad for item in part for bad in missing_without_reason(item)] if isinstance(part, list) else []


@pytest.mark.parametrize(
    "name", [*zoo.FAMILIES, "gine", "residual", "long_skip", "regression", "takes_data", "cheb_below_gcn"]
)
@pytest.mark.parametrize("graph", ["everything_once", "no_edges"])
def test_any_model_is_reported_on_and_what_is_missing_says_why(name, graph):
    case = zoo.BY_NAME[name]
    with quietly(case):
        report = ew.check(case.build(), zoo.GRAPHS[graph](), [0, 1], edges=40, **case.arguments)
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert missing_without_reason(plain) == []
    assert len(plain["layers"]) == case.layers
    for text in (str(report), report._repr_html_()):
        assert all(one.name in text for one in report.statements)


@pytest.mark.parametrize("case", [c for c in zoo.GRAPH_CASES if c.local], ids=str)
def test_graphs_are_reported_on(case):
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything_once")]
    model = case.build()
    report = ew.check(model, graphs, task="graph", **case.arguments)
    number = [oracles.Numbers(model, with_batch(graph), mode=case.mode) for graph in graphs]
    for l, layer in enumerate(report.layers):
        for position, one in enumerate(number):
            gradient, own = (part[0, l].sum() for part in oracles.layer_gradient(one, *one.ones()))
            expected = float((gradient + own - one()[0]).abs().detach())
            assert float(layer.gap.value[position]) == pytest.approx(expected, abs=1e-9)
    assert missing_without_reason(report.to_dict()) == []
    assert "graphs" in str(report)


def test_one_target_many_targets_and_blocks_agree():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    whole = ew.check(model, data, [1, 4, 6])
    blocks = ew.check(model, data, [1, 4, 6], batch_size=1)
    single = ew.check(model, data, 4)
    for l, layer in enumerate(whole.layers):
        assert_close(blocks.layers[l].gap.value, layer.gap.value, 1e-9)
        assert_close(single.layers[l].gap.value, layer.gap.value[1:2], 1e-9)
        assert blocks.layers[l].unevenness.value == pytest.approx(layer.unevenness.value)
        assert blocks.layers[l].worst == layer.worst or blocks.layers[l].worst.column == layer.worst.column


@pytest.mark.parametrize("name", ["gcn_relu", "gat", "pna"])
def test_checking_leaves_no_trace(name):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["everything_once"]()
    model = case.build().train()
    before = Footprint(model, data)
    ew.check(model, data, [1, 2], edges=20)
    before.assert_unchanged()


def test_checking_leaves_no_trace_after_an_error_on_the_way(monkeypatch):
    from edgewise.api import check

    def broken(*_):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(check, "activity", broken)
    model, data = zoo.BY_NAME["gat"].build().train(), zoo.GRAPHS["everything_once"]()
    before = Footprint(model, data)
    with pytest.raises(RuntimeError, match="on purpose"):
        ew.check(model, data, [1, 2], edges=20)
    before.assert_unchanged()


def test_the_report_cannot_be_changed_and_escapes_what_it_shows():
    model, data = star(1.0, 2.0)
    holder = nn.Module()
    holder.add_module("<b>", model)
    holder.forward = lambda x, edge_index: holder.get_submodule("<b>")(x, edge_index)
    report = ew.check(holder, data, [2])
    assert "<b>" in str(report)
    assert "<b>" not in report._repr_html_()
    assert "&lt;b&gt;" in report._repr_html_()
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.layers = ()
    with pytest.raises(ew.SettingError, match="Choose one of: Proposition 1"):
        report.statement("Proposition 9")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"edges": 0}, "`edges` must be .*got 0"),
        ({"edges": True}, "`edges` must be .*got True"),
        ({"seed": "a"}, "`seed` must be an integer, got 'a'"),
        ({"index": [99]}, "99"),
        ({"memory": "much"}, "memory.*'much'"),
        ({"task": "edge"}, "task.*'edge'"),
    ],
)
def test_bad_input_is_refused(options, says):
    with pytest.raises(ew.EdgewiseError, match=says):
        ew.check(zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"](), **options)
