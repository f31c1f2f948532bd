"""`certify`: what interval arithmetic proves about an edge's gradient holds for every weight that is tried."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN, SAGEConv

import edgewise as ew
import rectified
import zoo
from edgewise.program.intervals import Interval, TwoSided
from edgewise.trust import certify, sign_flips
from edgewise.trust.backward_bounds import Return
from edgewise.trust.certificate import _Verdict
from edgewise.trust.flips import sampled_gradients
from edgewise.trust.interval_model import follow, spreads
from edgewise.trust.target_edges import TargetEdges
from footprint import Footprint

GRID = tuple(torch.linspace(0, 1, 1000, dtype=torch.double).tolist())
every_model = pytest.mark.parametrize("name", sorted(rectified.MODELS))


def random_problem(name, seed, nodes=6, edges=12):
    return rectified.build(name, seed), zoo.graph(zoo.random_edges(nodes, edges, seed), nodes, seed=seed)


def sampled(model, data, values, level="input"):
    """Gradients by backward passes, which know nothing of intervals."""
    problem = ew.Score(model, data)._question
    return sampled_gradients(problem, level, tuple(values), 2**29, None)[1]


# What is proved is true ###############################################################################################


@every_model
def test_no_edge_that_is_proved_to_keep_its_sign_flips_on_a_grid_of_a_thousand_weights(name):
    model, data = random_problem(name, seed=3)
    found = certify(model, data)
    assert found.reason is None
    _, lowest, highest = sampled(model, data, GRID)
    assert not (found.keeps & (lowest < 0) & (highest > 0)).any()
    assert not (found.vanishes & ((lowest != 0) | (highest != 0))).any()
    assert (found.keeps & ~found.vanishes).sum() > 5


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(rectified.MODELS)),
    pieces=st.integers(1, 8),
    level=st.sampled_from(["input", "layer"]),
)
def test_no_certificate_is_contradicted_by_a_thousand_weights_on_random_networks(seed, name, pieces, level):
    model, data = random_problem(name, seed)
    found = certify(model, data, pieces=pieces, level=level)
    _, lowest, highest = sampled(model, data, GRID, level)
    assert not (found.keeps & (lowest < 0) & (highest > 0)).any()


@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(rectified.MODELS)), low=st.floats(0, 0.9))
def test_gradients_lie_within_the_bounds_of_both_ways(seed, name, low):
    model, data = random_problem(name, seed)
    bounds = (low, min(1.0, low + 0.3))
    weights = [bounds[0], sum(bounds) / 2, bounds[1]]
    problem = ew.Score(model, data)._question
    truth = {}
    for weight in weights:
        # A single weight has one gradient: the one of the range that is not the gradient at ω = 1, or both are.
        at_one, lowest, highest = sampled(model, data, [weight])
        truth[weight] = torch.where(lowest < at_one, lowest, highest)
    questions = certify(model, data)
    place = {pair: i for i, pair in enumerate(zip(questions.owner.tolist(), questions.edge_id.tolist(), strict=True))}
    checked = 0
    with torch.no_grad():
        (followed,) = follow(problem, 2**29)
        for spread in spreads(followed.at_one, "input", [bounds], 2**29):
            found = spread.slopes
            back = Return(spread, found.slot, found.position).bounds
            edge = spread.slots.edge[found.slot].tolist()
            where = torch.tensor([place[p, e] for p, e in zip(found.position.tolist(), edge, strict=True)]).long()
            for values in truth.values():
                true = values[where]
                room = 1e-12 * (1 + true.abs())  # of the backward passes that we compare with
                for interval in (found.bounds, back):
                    assert (interval.lo <= true + room).all()
                    assert (interval.hi >= true - room).all()
            checked += len(where)
    assert checked > 0


def test_a_flip_worked_out_by_hand_is_proved():
    data = zoo.graph([(0, 0)], 1)
    data.x = torch.ones(1, 1, dtype=torch.float64)
    model = rectified.loop_model((1.0, 1.0), (-0.5, -0.5))  # ∂z/∂ω = 2ω − 1
    found = certify(model, data, index=0, target=0, mode="regression")
    assert found.flips.tolist() == [True]
    assert found.keeps.tolist() == [False]
    assert certify(
        model, data, index=0, target=0, mode="regression", level="layer"
    ).keeps.all()  # one weight alone: linear


def test_a_gradient_that_touches_zero_keeps_its_sign():
    # z = relu(ω − 1/2): the gradient is 0 below 1/2 and 1 above.
    conv = SAGEConv(1, 1, aggr="sum", root_weight=False).double()
    conv.lin_l.weight.data.fill_(1.0)
    conv.lin_l.bias.data.fill_(-0.5)
    model = nn_after(conv, torch.relu)
    data = zoo.graph([(0, 1)], 2)
    data.x = torch.ones(2, 1, dtype=torch.float64)
    found = certify(model, data, index=1, target=0, mode="regression")
    assert found.keeps.tolist() == [True]
    assert found.vanishes.tolist() == [False]


def nn_after(conv, act):
    class After(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x, edge_index):
            return act(self.conv(x, edge_index))

    return After()


def test_an_edge_behind_dead_rectifiers_is_proved_to_do_nothing():
    model, data = rectified.build("gcn"), zoo.GRAPHS["directed"]()
    assert not certify(model, data).vanishes.any()
    model.convs[1].bias.data.fill_(-1e3)
    found = certify(model, data)
    assert found.vanishes.all()
    assert found.keeps.all()
    assert found.share != found.share  # no gradient, no share


def test_bounds_that_overflowed_prove_nothing():
    questions = TargetEdges(torch.tensor([7]), torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    verdict, nan = _Verdict(questions, (2,)), torch.tensor([torch.nan], dtype=torch.double)
    zero = torch.tensor([0])
    verdict.add(zero, zero, zero - 1, Interval(nan, nan))
    keeps, flips, vanishes = (flags.tolist() for flags in verdict.flags())
    assert (keeps, flips, vanishes) == ([False, True], [False, False], [False, True])


# How much is proved ###################################################################################################


@pytest.mark.parametrize("seed", range(5))
def test_on_one_layer_every_edge_is_certified(seed):
    with torch.random.fork_rng():
        model = zoo.randomise(SAGEConv(zoo.FEATURES, zoo.CLASSES), seed)
    found = certify(model, zoo.graph(zoo.random_edges(30, 120, seed), 30))
    assert found.keeps.all()
    assert not found.vanishes.any()


@every_model
def test_halving_the_pieces_proves_no_less(name):
    model, data = random_problem(name, seed=5)
    found = [certify(model, data, pieces=pieces) for pieces in (1, 2, 4)]
    for coarse, fine in pairwise(found):
        assert not (coarse.keeps & ~fine.keeps).any()
        assert not (coarse.flips & ~fine.flips).any()


def negative_evidence(seed=0, nodes=2000):
    """Gray nodes that hear a few red and blue ones among many gray ones; red speaks for, blue against."""
    generator = torch.Generator().manual_seed(seed)
    colour = torch.zeros(nodes, dtype=torch.long)
    colour[:10], colour[10:20] = 1, 2
    gray = torch.stack([torch.randint(20, nodes, (4 * nodes,), generator=generator) for _ in range(2)])
    hears = torch.arange(20, nodes).repeat_interleave(6)
    speaks = torch.randint(0, 20, (len(hears),), generator=generator)
    data = zoo.graph([], nodes)
    data.x = torch.eye(3)[colour]
    data.edge_index = torch.cat([gray, torch.stack([speaks, hears])], dim=1)
    data.edge_attr = None
    conv = SAGEConv(3, 1, aggr="sum", bias=False, root_weight=False)
    conv.lin_l.weight.data.copy_(torch.tensor([[0.0, 1.3, -1.1]]))
    return conv, data


def test_negative_evidence_is_certified_edge_by_edge():
    model, data = negative_evidence()
    found, sampled_flips = certify(model, data), sign_flips(model, data)
    assert sampled_flips.counted.sum() > 10_000
    assert found.keeps.all()
    assert torch.equal(~found.vanishes, sampled_flips.counted)
    assert (found.share, sampled_flips.share) == (1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 3, 4, 5])
def test_on_cora_nine_of_ten_edges_that_do_not_flip_are_certified(raw_data, layers):
    data = Planetoid(raw_data("Cora"), "Cora")[0]
    with torch.random.fork_rng():
        torch.manual_seed(layers)
        model = GCN(data.num_features, 32, layers, 7, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-5)
        for _ in range(60):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
            optimizer.step()
    index = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: 60 // layers]
    found, flips = certify(model, data, index), sign_flips(model, data, index, values=[i / 10 for i in range(11)])
    steady = flips.counted & ~flips.flipped
    assert steady.sum() > 500
    assert (found.keeps & steady).sum() >= 0.9 * steady.sum()
    assert not (found.keeps & flips.flipped).any()


# What is refused, and what is left alone ##############################################################################


@pytest.mark.parametrize(
    ("case_name", "reason"),
    [("gat", "tanh is not"), ("gcn", "tanh is not"), ("sage_max", "not lowered (SAGEConv")],
)
def test_other_models_are_not_certifiable_and_say_why(case_name, reason):
    model, data = zoo.BY_NAME[case_name].build(), zoo.GRAPHS["directed"]()
    found = certify(model, data)
    assert reason in found.reason
    assert not (found.keeps | found.flips | found.vanishes).any()
    assert found.share != found.share
    assert found.share_of_each.isnan().all()
    assert reason in repr(found)


def test_probabilities_and_smooth_pools_are_not_certifiable():
    model, data = rectified.build("gcn"), zoo.GRAPHS["directed"]()
    assert "of='logit'" in certify(model, data, of="prob").reason
    pooled = zoo.GRAPH_BY_NAME["sum_pool"].build()
    assert "tanh" in certify(pooled, data, task="graph").reason
    apart = zoo.GRAPH_BY_NAME["pooled_without_batch"].build()
    with pytest.warns(ew.LocalityWarning):
        assert "not run together" in certify(apart, [data, data], task="graph").reason


@pytest.mark.parametrize("pieces", [0, 2.5, True, "many"])
def test_a_number_of_pieces_that_is_none_is_refused(pieces):
    with pytest.raises(ew.SettingError, match="Use pieces=5"):
        certify(rectified.build("gcn"), zoo.GRAPHS["directed"](), pieces=pieces)


def test_a_graph_without_edges_has_nothing_to_certify():
    found = certify(rectified.build("gcn"), zoo.GRAPHS["no_edges"]())
    assert len(found.keeps) == 0
    assert found.share != found.share


def test_certificates_do_not_depend_on_memory_or_on_the_order_of_the_index():
    model, data = random_problem("gcn_deep", seed=1, nodes=30, edges=90)
    whole, parts = certify(model, data, [4, 9, 4]), certify(model, data, [4, 9, 4], memory="50KB")
    for name in ("keeps", "flips", "vanishes"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
        alone = getattr(certify(model, data, [9]), name)
        assert torch.equal(getattr(whole, name)[whole.owner == 1], alone)


def test_certify_leaves_no_trace():
    model, data = rectified.build("gin").train(), zoo.GRAPHS["everything"]()
    before = Footprint(model, data)
    certify(model, data, [1, 2])
    before.assert_unchanged()


# Intervals ############################################################################################################


@given(seed=st.integers(0, 10**6), width=st.integers(1, 40))
def test_interval_sums_hold_in_exact_arithmetic(seed, width):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.double) * 10 ** torch.randint(
            -8, 8, shape, generator=generator
        )

    low, high = draw(2, width), draw(2, width)
    rows = Interval(torch.minimum(low, high), torch.maximum(low, high))
    matrix, inside = draw(1, width), torch.where(torch.rand(2, width, generator=generator) < 0.5, rows.lo, rows.hi)
    exact = [
        sum(Fraction(a) * Fraction(b) for a, b in zip(row, matrix[0].tolist(), strict=True)) for row in inside.tolist()
    ]
    linear = rows.linear(TwoSided.of(matrix))
    dot = rows.dot(Interval.point(matrix.expand(2, -1)))
    together = Interval(linear.lo.expand(-1, 1), linear.hi).outward(2).sums(torch.zeros(2, dtype=torch.long), 1)
    for row, number in enumerate(exact):
        assert Fraction(linear.lo[row, 0].item()) <= number <= Fraction(linear.hi[row, 0].item())
        assert Fraction(dot.lo[row].item()) <= number <= Fraction(dot.hi[row].item())
    assert Fraction(together.lo.item()) <= sum(exact) <= Fraction(together.hi.item())
