"""A walk set as a result: what it holds, how it prints, what edges and sources make of it; wrong questions; no traces."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, SAGEConv

import edgewise as ew
import zoo
from edgewise.errors import EdgewiseError, InputError, SettingError
from edgewise.examples import path_model
from footprint import Footprint
from walk_checks import SEARCHES, crowded
from walk_models import stack
from zoo import CLASSES, FEATURES


@pytest.fixture(scope="module")
def question():
    return stack("gcn", 2, seed=3), crowded()


def test_a_walk_set_is_a_sequence_that_says_what_was_asked(question):
    model, data = question
    found = ew.walks(model, data, 4, k=2)
    assert [walk.source for walk in found] == [walk.nodes[0] for walk in found]
    assert all(walk.nodes[-1] == 4 and len(walk.nodes) == 3 for walk in found)
    assert (found.index, found.num_nodes, found.num_layers, len(found)) == (4, data.num_nodes, 2, 2)
    assert found[0] == found.walks[0]
    assert found[1:] == found.walks[1:]
    output = model(data.x, data.edge_index)[4].detach()
    assert (found.target, found.value) == (int(output.argmax()), pytest.approx(float(output.max())))
    assert found.settings["search"] == "exact"
    assert found.settings["rule"] == "gradient"
    assert dict(found.settings)["k"] == 2


def test_it_prints_its_walks_and_whether_they_are_proven(question):
    model, data = question
    proven, open_ = ew.walks(model, data, 4, k=2), ew.walks(model, data, 4, search="amp_ave")
    assert "proven" in str(proven)
    assert str(proven[0]) in str(proven)
    assert " → ".join(map(str, proven[0].nodes)) in str(proven[0])
    assert "not proven: another may have up to" in str(open_)


def test_nothing_of_a_result_can_be_changed(question):
    found = ew.walks(*question, 4)
    for thing, name in ((found, "exact"), (found[0], "score")):
        with pytest.raises(AttributeError):
            setattr(thing, name, 0)


def test_the_path_worked_by_hand():
    model, data = path_model(gains=[2.0, -3.0, 5.0])  # 0 → 1 → 2 → 3
    found = ew.walks(model, data, 3, sign="negative", mode="regression", target=0)
    assert [(walk.nodes, walk.score) for walk in found] == [((0, 1, 2, 3), -30.0)]
    assert len(ew.walks(model, data, 3, mode="regression", target=0)) == 0
    assert found.edge_scores().tolist() == [-30.0] * 3
    assert found.edge_scores("layer").tolist() == [[-30.0, 0, 0], [0, -30.0, 0], [0, 0, -30.0]]


def test_edges_share_the_walks_that_take_them():
    """Two parallel edges 0 → 1 and a root: 0→1→1 uses an edge once, 0→0→1 too, in the other layer."""
    conv = SAGEConv(1, 1, aggr="sum", bias=False)
    torch.nn.init.ones_(conv.lin_l.weight)
    torch.nn.init.ones_(conv.lin_r.weight)
    model = GraphSAGE(1, 1, 2, 1, aggr="sum", act=None, bias=False)
    model.load_state_dict({f"convs.{n}.{k}": v for n in range(2) for k, v in conv.state_dict().items()}, strict=False)
    data = Data(x=torch.tensor([[1.0], [0.0]]), edge_index=torch.tensor([[0, 0], [1, 1]]))
    found = ew.walks(model, data, 1, k=9, mode="regression", target=0)
    assert {walk.nodes: walk.score for walk in found} == {(0, 1, 1): 2.0, (0, 0, 1): 2.0}
    assert found.edge_scores().tolist() == [2.0, 2.0]
    assert found.edge_scores("layer").tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_all_walks_as_edge_scores_are_the_layer_gradient_where_the_theorem_holds():
    data, model = zoo.GRAPHS["directed"](), stack("sage_mean", 3, seed=3, bias=False)
    for found, why in zip(
        ew.walks(model, data, k=10_000, sign="magnitude", search="exhaustive"),
        ew.explain(model, data, level="layer"),
        strict=True,
    ):
        scores = found.edge_scores("layer") if len(found) else torch.zeros(3, data.num_edges, dtype=torch.float64)
        assert torch.allclose(scores, why.scores, rtol=0, atol=1e-9)


def test_walks_are_grouped_by_the_node_that_gave_the_features(question):
    found = ew.walks(*question, 4, k=20, sign="magnitude")
    groups = found.by_source()
    assert all(walk.source == source for source, group in groups.items() for walk in group)
    assert sorted(w.nodes for group in groups.values() for w in group) == sorted(w.nodes for w in found)
    sums = [abs(sum(walk.score for walk in group)) for group in groups.values()]
    assert sums == sorted(sums, reverse=True)


# Wrong questions ######################################################################################################

WRONG = [
    ({"k": 0}, "`k` must be .*got 0"),
    ({"k": 1.5}, "`k` must be .*got 1.5"),
    ({"k": True}, "`k` must be .*got True"),
    ({"search": "best"}, "search 'best'.*exact, dag"),
    ({"sign": "both"}, "sign 'both'.*positive, negative, magnitude"),
    ({"rule": "lrp"}, r"rule.*'lrp'.*gradient.*lrp-epsilon.*lrp-gamma"),
    ({"attention": "none"}, r"attention.*'none'.*full.*fixed"),
    ({"norm": "layer"}, r"norm.*'layer'.*fixed"),
    ({"budget": 0}, "budget.*None"),
    ({"budget": 2.5}, r"budget.*2\.5"),
    ({"width": 0}, "width.*0"),
    ({"limit": -1}, "limit.*-1"),
    ({"rule": "lrp-epsilon", "epsilon": -1.0}, r"epsilon.*-1\.0"),
    ({"rule": "lrp-epsilon", "epsilon": "small"}, "epsilon.*'small'"),
    ({"rule": "lrp-gamma", "gamma": [0.1]}, r"gamma.*(2 layers.*\[0\.1\]|\[0\.1\].*2 layers)"),
    ({"rule": "lrp-gamma", "gamma": -0.1}, r"gamma.*-0\.1"),
    ({"rule": "lrp-gamma", "gamma": "much"}, "gamma.*'much'"),
    ({"memory": "lots"}, "memory"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_wrong_setting_is_named_with_what_is_needed(question, options, words):
    with pytest.raises(SettingError, match=words):
        ew.walks(*question, 4, **options)


def test_an_unknown_setting_is_no_setting(question):
    with pytest.raises(ew.SettingError, match="widht"):
        ew.walks(*question, 4, widht=3)


def test_a_node_that_is_not_there_is_named(question):
    with pytest.raises(InputError, match="99"):
        ew.walks(*question, 99)


def test_graphs_of_several_kinds_of_nodes_are_refused(question):
    with pytest.raises(EdgewiseError, match="HeteroData"):
        ew.walks(question[0], HeteroData(), 0)


# No traces ############################################################################################################


@pytest.mark.parametrize("search", SEARCHES)
def test_nothing_is_left_behind(search):
    model, data = zoo.randomise(GraphSAGE(FEATURES, 4, 3, CLASSES, dropout=0.5, norm="BatchNorm")), crowded()
    model.train()
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number % 3 != 0)
        parameter.grad = torch.ones_like(parameter) if number % 2 else None
    before = Footprint(model, data)
    for options in ({}, {"sign": "negative", "k": 5}, {"rule": "lrp-epsilon"}):
        ew.walks(model, data, [0, 3], search=search, **options)
    before.assert_unchanged()


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"rule": "lrp-gamma", "gamma": [1.0]},
        {"search": "exhaustive", "limit": 1},
        {"index": 99},
        {"target": 77},
    ],
)
def test_nothing_is_left_behind_by_a_question_that_fails(options):
    model, data = zoo.randomise(GraphSAGE(FEATURES, 4, 3, CLASSES, dropout=0.5)).train(), crowded()
    before = Footprint(model, data)
    with pytest.raises(EdgewiseError):
        ew.walks(model, data, **options)
    before.assert_unchanged()


def test_a_layer_that_cannot_be_followed_leaves_nothing_behind():
    model, data = zoo.BY_NAME["layer_norm_of_graphs"].build().train(), crowded()
    before = Footprint(model, data)
    with pytest.raises(EdgewiseError):
        ew.walks(model, data)
    before.assert_unchanged()


def test_walks_against_the_arrows_take_the_edges_backwards():
    model, data = zoo.BY_NAME["gcn_against_the_arrows"].build(), zoo.GRAPHS["everything"]()
    found = ew.walks(model, data, 3, k=1)
    (walk,) = found
    steps = [(a, b) for a, b in zip(walk.nodes, walk.nodes[1:], strict=False) if a != b]
    taken = found.edge_scores().nonzero().view(-1).tolist()
    assert sorted({tuple(data.edge_index[:, column].flip(0).tolist()) for column in taken}) == sorted(set(steps))
