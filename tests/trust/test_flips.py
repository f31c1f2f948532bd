"""`sign_flips`: an edge's own gradient at many weights of that edge, all others at 1; a backward pass for each is the twin."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
import oracles
import rectified
import zoo
from checks import alternating, assert_close, node_problem, quietly, with_batch
from edgewise.trust import sign_flips
from edgewise.trust.flips import sampled_gradients
from footprint import Footprint

FEW = (1.0, 0.6, 0.25, 0.0)
INTERVALS = ["gcn", "leaky", "graph_conv", "gin", "sgc", "batch_norm", "jumping", "residual", "pair", "binary"]
PASSES = ["gcn", "gat", "gine", "sage_max", "layer_norm_of_nodes", "gcn_used_twice", "cheb", "pna"]


def dense(found, part, rows, width):
    """One of its arrays as [rows, E] or [rows, L, E]; zero where an edge cannot reach a target."""
    shape = (rows, width) if found.level == "input" else (rows, part.shape[0], width)
    full = torch.zeros(shape, dtype=part.dtype)
    if found.level == "input":
        full[found.owner, found.edge_id] = part
    else:
        full[found.owner, :, found.edge_id] = part.t()
    return full


def assert_equals_its_definition(found, numbers, tolerance=1e-9):
    expected = oracles.own_gradients(numbers, found.values, found.level)
    rows, width = expected.shape[1], expected.shape[-1]
    assert_close(dense(found, found.gradient, rows, width), expected[list(found.values).index(1.0)], tolerance)
    assert_close(dense(found, found.lowest, rows, width), expected.amin(dim=0), tolerance)
    assert_close(dense(found, found.highest, rows, width), expected.amax(dim=0), tolerance)


@pytest.mark.parametrize(("name", "level"), alternating(INTERVALS))
def test_gradients_along_an_edge_equal_their_definition_where_intervals_follow(name, level):
    model, data = rectified.build(name), zoo.GRAPHS["everything"]()
    numbers = oracles.Numbers(model, data, mode="binary" if name == "binary" else "multiclass")
    assert_equals_its_definition(sign_flips(model, data, values=FEW, level=level), numbers)


@pytest.mark.parametrize(("case_name", "level"), alternating(PASSES))
def test_gradients_along_an_edge_equal_their_definition_for_any_model(case_name, level):
    case, model, data, numbers = node_problem(case_name, "everything_once")
    with quietly(case):
        found = sign_flips(model, data, values=FEW, level=level, **case.arguments)
    assert_equals_its_definition(found, numbers)


@pytest.mark.parametrize("of", ["prob", "log_prob"])
def test_gradients_of_another_number_go_through_passes(of):
    model, data = rectified.build("gcn"), zoo.GRAPHS["directed"]()
    assert_equals_its_definition(
        sign_flips(model, data, values=FEW, of=of, target=1), oracles.Numbers(model, data, of=of, target=1)
    )


def test_graphs_are_asked_one_by_one():
    case, model = zoo.GRAPH_BY_NAME["sum_pool"], zoo.GRAPH_BY_NAME["sum_pool"].build()
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything")]
    found = sign_flips(model, graphs, task="graph", values=FEW, **case.arguments)
    for position, graph in enumerate(graphs):
        expected = oracles.own_gradients(oracles.Numbers(model, with_batch(graph)), FEW, "input")[:, 0]
        mine = found.owner == position
        assert_close(found.lowest[mine], expected.amin(dim=0), 1e-9)
        assert_close(found.highest[mine], expected.amax(dim=0), 1e-9)


@pytest.mark.parametrize(("sign", "share"), [(1.0, (1.0, 1.0, 0.0)), (-1.0, (1.0, 0.0, 1.0))])
def test_a_flip_worked_out_by_hand(sign, share):
    data = zoo.graph([(0, 0)], 1)
    data.x = torch.tensor([[sign]], dtype=torch.float64)
    found = sign_flips(rectified.loop_model((1.0, 1.0), (-0.5, -0.5)), data, index=0, target=0, mode="regression")
    assert found.gradient.tolist() == pytest.approx([sign])  # ∂z/∂ω = (2ω − 1) x
    assert (found.lowest.item(), found.highest.item()) == pytest.approx((-1.0, 1.0))
    assert (found.share, found.share_to_negative, found.share_to_positive) == share
    assert found.share_of_each.tolist() == [1.0]


def test_without_any_gradient_there_is_no_share():
    data = zoo.graph([(0, 1)], 2)
    model = rectified.build("sage_sum")
    found = sign_flips(model, data, index=0)
    assert found.share != found.share
    assert found.share_of_each.isnan().all()


def test_both_ways_agree():
    model, data = rectified.build("gcn_deep"), zoo.graph(zoo.random_edges(30, 90), 30)
    found = sign_flips(model, data, values=FEW)
    problem = ew.Score(model, data)._question
    questions, (gradient, lowest, highest) = sampled_gradients(problem, "input", FEW, 2**29, None)
    assert torch.equal(questions.edge_id, found.edge_id)
    for one, other in ((gradient, found.gradient), (lowest, found.lowest), (highest, found.highest)):
        assert_close(one, other, 1e-10)
    assert found.counted.sum() > 100


@pytest.mark.parametrize("name", ["gat", "gcn_relu"])
def test_flips_do_not_depend_on_blocks_or_on_the_order_of_the_index(name):
    model, data = zoo.BY_NAME[name].build(), zoo.graph(zoo.random_edges(20, 50), 20)
    index = [3, 11, 3, 7, 0]
    whole = sign_flips(model, data, index, values=FEW)
    parts = sign_flips(model, data, index, values=FEW, batch_size=2, memory="100KB")
    backwards = sign_flips(model, data, index[::-1], values=FEW)
    for name in ("gradient", "lowest", "highest"):
        assert_close(getattr(parts, name), getattr(whole, name), 1e-10)
        mirrored = [getattr(backwards, name)[backwards.owner == 4 - position] for position in range(5)]
        assert_close(torch.cat(mirrored), getattr(whole, name), 1e-10)


@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(rectified.MODELS)))
def test_intervals_of_single_weights_are_the_gradients_on_random_graphs(seed, name):
    model = rectified.build(name, seed)
    data = zoo.graph(zoo.random_edges(6, 12, seed), 6, seed=seed)
    found = sign_flips(model, data, values=FEW)
    problem = ew.Score(model, data)._question
    _, parts = sampled_gradients(problem, "input", FEW, 2**29, None)
    for mine, other in zip((found.gradient, found.lowest, found.highest), parts, strict=True):
        assert_close(mine, other, 1e-10)


@pytest.mark.parametrize("name", ["gcn_relu", "gat"])
def test_sign_flips_leave_no_trace(name):
    model, data = zoo.BY_NAME[name].build().train(), zoo.GRAPHS["everything"]()
    before = Footprint(model, data)
    sign_flips(model, data, [1, 2], values=FEW)
    before.assert_unchanged()


@pytest.mark.parametrize("values", [[], [2.0], ["a"], 3, [float("nan")], [-0.1]])
def test_weights_outside_their_range_are_refused(values):
    with pytest.raises(ew.SettingError, match="`values`"):
        sign_flips(rectified.build("gcn"), zoo.GRAPHS["directed"](), values=values)


def test_an_unknown_level_is_refused():
    with pytest.raises(ew.SettingError, match=r"level.*input"):
        sign_flips(rectified.build("gcn"), zoo.GRAPHS["directed"](), level="edge")
