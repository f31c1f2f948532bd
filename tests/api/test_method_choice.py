"""`method="auto"`: what is measured, what follows from it, and that every door gives the method that was chosen."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

import edgewise as ew
import zoo
from checks import assert_close, node_problem, scores_of
from edgewise.api.method_choice import TARGETS, Evidence, _gain, decide
from edgewise.score import Score
from link_models import link_graph, make_model
from page_files import data_of
from typed_zoo import typed_model

GOOD = Evidence(8, 100, 0.99, flips_alone=0.01, flips_together=0.01, saturation=0.0, completeness=1.0)
GAINS = {"occlusion": 0.50, "integrated_gradients": 0.80, "lrp": 0.79}


def test_gradients_that_agree_keep_their_signs_and_do_not_fade_are_taken():
    assert decide(GOOD).name == "gradient"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"agreement": 0.5}, "differ from occlusions"),
        ({"agreement": float("nan")}, "differ from occlusions"),
        ({"flips_alone": 0.2}, "when an edge is weakened alone"),
        ({"flips_together": 0.2}, "when all edges are weakened together"),
        ({"saturation": 0.9}, "saturated"),
    ],
)
def test_otherwise_the_method_whose_edges_decide_most_is_taken_and_the_reason_is_told(change, word):
    choice = decide(replace(GOOD, gains=GAINS, **change))
    assert choice.name == "integrated_gradients"
    assert word in choice.why
    assert "0.80" in choice.why


def test_of_methods_that_are_about_as_good_the_cheaper_one_is_taken():
    assert decide(replace(GOOD, flips_together=0.5, gains={**GAINS, "occlusion": 0.795})).name == "occlusion"
    choice = decide(replace(GOOD, flips_together=0.5, gains={**GAINS, "lrp": 1.5}))
    assert (choice.name, choice.settings) == ("lrp", {"rule": "lrp-gamma"})
    assert choice.method.settings["rule"] == "lrp-gamma"


def test_a_linear_network_gets_gradients_and_a_bent_one_the_better_of_the_others():
    data = zoo.GRAPHS["everything"]()
    linear = zoo.randomise(zoo.chain(zoo.LINEAR_CONVS["gcn"], 1), 0)
    found = ew.explain(linear, data, method="auto")
    assert found.method == "gradient"
    assert (
        "cosine to occlusion 1.00, flips alone 0% of the edges, flips together 0% of the gradient"
        in found.settings["auto"]
    )
    _, model, data, _ = node_problem("gin", "everything")
    ask = ew.Question(model, data)
    choice = ask.choose_method()
    gains = choice.evidence.gains
    assert set(gains) == {"occlusion", "integrated_gradients", "lrp"}
    assert gains[choice.name] >= 0.98 * max(gains.values())
    why = ask.explain("auto")
    assert why.method == choice.name
    assert why.settings["auto"] == choice.why
    assert choice.why in repr(why)
    assert choice.why in repr(why[0])
    assert_close(scores_of(why), scores_of(ask.explain(choice.name, **choice.settings)), 1e-12)


@pytest.mark.parametrize("name", ["gcn_relu", "gin", "gat", "sage_max"])
@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
def test_auto_check_and_page_say_the_same_about_one_target(tmp_path, name):
    case, data = zoo.BY_NAME[name], zoo.GRAPHS["everything_once"]()
    model = case.build()
    report = ew.check(model, data)
    for node, each in enumerate(report.reliance_of_each):
        ask = ew.Question(model, data, node, **case.arguments)
        seen = ask.choose_method().evidence
        alone = ask.check().reliance
        for part in ("holds", "doubts", "edges", "targets"):
            assert getattr(seen, part) == getattr(alone, part) == getattr(each, part)
        for part in ("agreement", "flips_alone", "flips_together", "saturation"):
            numbers = [getattr(one, part) for one in (seen, alone, each)]
            assert numbers == pytest.approx([numbers[0]] * 3, abs=1e-6, nan_ok=True)
        if alone.edges:
            assert alone.sentence[1:] in str(ask.check())
            assert ask.choose_method().why.startswith(seen.sentence)
            ew.write_page(tmp_path / "why.html", model, data, [node], epochs=5, **case.arguments)
            (record,) = data_of(tmp_path / "why.html")["targets"]
            assert alone.sentence[1:] in str(record["answer"]["trust"])


def test_flips_alone_and_together_are_two_measures():
    data = zoo.graph([(0, 1), (2, 1)], 3)
    data.x = torch.ones(3, 1, dtype=torch.double)

    class Square(nn.Module):  # z = (ω₀ + ω₁ − 1)²: by itself no edge turns its gradient round, together both do
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(1, 1, aggr="sum", root_weight=False)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).square()

    model = Square().double()
    with torch.no_grad():
        model.conv.lin_l.weight.fill_(1.0)
        model.conv.lin_l.bias.fill_(-1.0)
    report = ew.check(model, data, 1, mode="regression")
    assert report.whole.flips.share.value == 0.0
    assert report.whole.flips.together.value == 1.0
    assert "they change their signs when all edges are weakened together" in report.reliance.doubts
    for text in (str(report), ew.explain(model, data, 1, mode="regression", method="auto").settings["auto"]):
        assert "flips alone 0% of the edges, flips together 100% of the gradient" in text


def test_the_gain_is_what_the_best_edges_keep_minus_what_is_left_without_them():
    _, model, data, numbers = node_problem("gcn", "directed")
    score = Score(model, data, index=[4, 1])
    values = ew.explain(model, data, index=[4, 1], method="occlusion")
    flat = torch.stack([values[int(o)].scores[e] for o, e in zip(score.owner, score.edge_id, strict=True)])
    edge, own = numbers.ones()
    for position, node in enumerate((4, 1)):
        mine = score.edge_id[score.owner == position]
        order = mine[values[position].scores[mine].argsort(descending=True, stable=True)]
        expected = 0.0
        for share in (0.05, 0.1, 0.2, 0.4):
            best = order[: -int(-share * len(order) // 1)]
            alone, without = torch.zeros_like(edge), edge.clone()
            alone[:, best], without[:, best] = 1.0, 0.0
            alone[:, [e for e in range(edge.size(1)) if e not in mine.tolist()]] = 1.0
            with torch.no_grad():
                expected += float(numbers(alone, own)[node] - numbers(without, own)[node]) / 4
        assert float(_gain(score, flat)[position]) == pytest.approx(expected, abs=1e-9)


def test_which_targets_are_measured_does_not_depend_on_their_order():
    _, model, _, _ = node_problem("gcn", "directed")
    generator = torch.Generator().manual_seed(0)
    data = zoo.graph([tuple(pair) for pair in torch.randint(40, (120, 2), generator=generator).tolist()], 40)
    ask = ew.Question(model, data)
    there, back = ask.choose_method(), ask.of(list(range(39, -1, -1))).choose_method()
    assert there.evidence.targets == TARGETS
    assert there == back


def test_no_edges_and_one_target_are_no_problem():
    model = zoo.BY_NAME["gcn"].build()
    assert "no edge" in ew.explain(model, zoo.GRAPHS["no_edges"](), 0, method="auto").settings["auto"]
    assert ew.Question(model, zoo.GRAPHS["directed"](), 4).choose_method().evidence.targets == 1


def test_stopped_gradients_are_answered_by_occlusion():
    class Stopped(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (SAGEConv(*size, aggr="max") for size in ((zoo.FEATURES, 4), (4, zoo.CLASSES)))

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).detach().tanh(), edge_index)

    found = ew.explain(zoo.randomise(Stopped()), zoo.GRAPHS["directed"](), 4, method="auto")
    assert found.method == "occlusion"
    assert "stopped" in found.settings["auto"]


@pytest.mark.parametrize("case_name", ["sage_max", pytest.param("layer_norm_of_graphs", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
def test_models_that_are_run_as_they_are_have_a_choice_too(case_name):
    case = zoo.BY_NAME[case_name]
    found = ew.explain(case.build(), zoo.GRAPHS["everything_once"](), method="auto")
    assert found.method in ("gradient", "occlusion", "integrated_gradients")


def test_where_occlusion_would_take_too_long_integrated_gradients_are_taken(monkeypatch):
    monkeypatch.setattr("edgewise.api.method_choice._MOST_PASSES", 3)
    case, data = zoo.BY_NAME["sage_max"], zoo.GRAPHS["everything_once"]()
    found = ew.explain(case.build(), data, method="auto")
    assert found.method == "integrated_gradients"
    assert "passes" in found.settings["auto"]


def test_many_links_and_typed_targets_are_sampled_too():
    model, data = make_model("gcn, dot"), link_graph()
    pairs = [(u, v) for u in range(3) for v in range(3, 6)]
    assert ew.Question(model, data, pairs, task="link").choose_method().evidence.targets == TARGETS
    typed, graph = typed_model("to_hetero sage", 6)
    ask = ew.Question(typed, graph, ("user", list(range(9))))
    assert ask.choose_method().evidence.targets == TARGETS


def test_typed_graphs_have_one_and_nothing_is_touched():
    model, data = typed_model("to_hetero sage", 6)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = ew.explain(model, data, ("movie", [0, 3]), method="auto")
    assert found.method in ("gradient", "occlusion", "integrated_gradients")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_it_has_no_settings_of_its_own_and_both_levels():
    _, model, data, _ = node_problem("gcn", "directed")
    assert ew.explain(model, data, 4, method="auto", level="layer").scores.shape == (3, data.edge_index.size(1))
    with pytest.raises(ew.SettingError, match="auto has no setting 'steps'"):
        ew.explain(model, data, 4, method="auto", steps=9)


def test_all_shards_of_a_job_get_the_same_method(tmp_path):
    _, model, data, _ = node_problem("gin", "directed")
    expected = ew.explain(model, data, [4, 1], method="auto")
    for _ in range(2):  # the second run finds everything done
        job = ew.jobs.run(model, data, [4, 1], method="auto", out=tmp_path / "job")
        assert job[1].method == expected.method
        assert job[1].settings["auto"] == expected.settings["auto"]


def test_it_can_be_compared_with_others():
    _, model, data, _ = node_problem("gin", "directed")
    ask = ew.Question(model, data, [4, 1])
    found = ask.compare(methods=["auto", ask.choose_method().name], levels="input", yardsticks=False)
    assert found.running[0].method == "auto"
    assert found.pair("auto", found.running[1].method).mean == pytest.approx(1.0)


def test_the_preflight_recommends_it():
    _, model, data, _ = node_problem("gcn", "directed")
    assert 'Recommended: method="auto"' in str(ew.Question(model, data, 4))
