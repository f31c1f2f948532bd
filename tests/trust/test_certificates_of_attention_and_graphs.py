"""`certify` for attention, for kinks on edges, for pools and for every piecewise linear operation: sound, and not empty."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch_geometric.nn import (
    GCN,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINEConv,
    GraphConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

import edgewise as ew
import zoo
from edgewise.program.intervals import Interval
from edgewise.trust import certify
from edgewise.trust.attention_bounds import softmax_bounds, softmax_slopes
from edgewise.trust.backward_bounds import Return
from edgewise.trust.flips import sampled_gradients
from edgewise.trust.interval_model import follow, spreads
from pyg_versions import RESIDUAL
from zoo import CLASSES, FEATURES, WIDTH

GRID = tuple(torch.linspace(0, 1, 41, dtype=torch.double).tolist())


class Heads(nn.Module):
    """Two calls of one conv with two heads, then a head of its own."""

    def __init__(self, conv, **options):
        super().__init__()
        self.first = conv(FEATURES, WIDTH, heads=2, **options)
        self.second = conv(2 * WIDTH, WIDTH, heads=2, concat=False, **options)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        return self.head(torch.relu(self.second(torch.relu(self.first(x, edge_index)), edge_index)))


class WithAttributes(nn.Module):
    """Edge features in both calls."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index, edge_attr):
        h = torch.relu(self.first(x, edge_index, edge_attr))
        return self.second(h, edge_index, edge_attr)


def _gine(inputs, outputs):
    network = nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))
    return GINEConv(network, edge_dim=zoo.EDGE_FEATURES, train_eps=True)


ATTENTION = {
    "gat": lambda: Heads(GATConv),
    "gat_residual": lambda: Heads(GATConv, **RESIDUAL),
    "gat_without_loops": lambda: Heads(GATConv, add_self_loops=False),
    "gatv2": lambda: Heads(GATv2Conv),
    "gatv2_shared": lambda: Heads(GATv2Conv, share_weights=True),
    "transformer": lambda: Heads(TransformerConv),
    "transformer_without_root": lambda: Heads(TransformerConv, root_weight=False),
    "gat_with_attributes": lambda: WithAttributes(
        GATConv(FEATURES, WIDTH, edge_dim=zoo.EDGE_FEATURES), GATConv(WIDTH, CLASSES, edge_dim=zoo.EDGE_FEATURES)
    ),
    "gatv2_with_attributes": lambda: WithAttributes(
        GATv2Conv(FEATURES, WIDTH, edge_dim=zoo.EDGE_FEATURES), GATv2Conv(WIDTH, CLASSES, edge_dim=zoo.EDGE_FEATURES)
    ),
    "transformer_with_attributes": lambda: WithAttributes(
        TransformerConv(FEATURES, WIDTH, edge_dim=zoo.EDGE_FEATURES),
        TransformerConv(WIDTH, CLASSES, edge_dim=zoo.EDGE_FEATURES),
    ),
    "gine": lambda: WithAttributes(_gine(FEATURES, WIDTH), _gine(WIDTH, CLASSES)),
}


class Pooled(nn.Module):
    """Two calls, a pool, and a head with a kink."""

    def __init__(self, pool, conv=GCNConv, *, both=False):
        super().__init__()
        self.pool, self.both = pool, both
        self.first, self.second = conv(FEATURES, WIDTH), conv(WIDTH, WIDTH)
        self.hidden = nn.Linear(WIDTH * (2 if both else 1), WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        low = torch.relu(self.first(x, edge_index))
        high = torch.relu(self.second(low, edge_index))
        rows = self.pool(high, batch)
        if self.both:
            rows = torch.cat([self.pool(low, batch), rows], dim=1)
        return self.head(torch.relu(self.hidden(rows)))


POOLED = {
    "sum": lambda: Pooled(global_add_pool),
    "mean": lambda: Pooled(global_mean_pool),
    "max": lambda: Pooled(global_max_pool),
    "readout_of_every_layer": lambda: Pooled(global_mean_pool, GraphConv, both=True),
    "mean_gat": lambda: Pooled(global_mean_pool, GATConv),
    "max_gatv2": lambda: Pooled(global_max_pool, GATv2Conv),
}


class Between(nn.Module):
    """A function between two calls."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.second = SAGEConv(FEATURES, WIDTH), SAGEConv(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.function(self.first(x, edge_index)), edge_index)


class Folded(nn.Module):
    """Something of all columns of a row, added to each of them."""

    def __init__(self, fold):
        super().__init__()
        self.fold, self.wide = fold, nn.Linear(1, WIDTH)

    def forward(self, h):
        return torch.relu(h) + self.wide(self.fold(h))


OPERATIONS = {
    "relu6": lambda: Between(functional.relu6),
    "hardtanh": lambda: Between(functional.hardtanh),
    "hardsigmoid": lambda: Between(functional.hardsigmoid),
    "softshrink": lambda: Between(lambda h: functional.softshrink(h, 0.1)),
    "abs": lambda: Between(torch.abs),
    "clamp": lambda: Between(lambda h: h.clamp(-0.2, 0.4)),
    "add_alpha": lambda: Between(lambda h: torch.add(torch.relu(h), h, alpha=-0.25)),
    "mean_of_columns": lambda: Between(Folded(lambda h: h.mean(dim=1, keepdim=True))),
    "max_of_columns": lambda: Between(Folded(lambda h: h.max(dim=1, keepdim=True)[0])),
    "min_of_a_stack": lambda: Between(lambda h: torch.stack([h, -h, 2 * h + 1], dim=-1).min(dim=-1)[0]),
    "jumping_max": lambda: GCN(FEATURES, WIDTH, 3, CLASSES, jk="max", act="relu"),
}
NODES = {**ATTENTION, **OPERATIONS}


def build(make, seed=0):
    with torch.random.fork_rng():
        return zoo.randomise(make(), seed)


def graph(seed, nodes=6, edges=12):
    return zoo.graph(zoo.random_edges(nodes, edges, seed), nodes, seed=seed)


def problem(name, seed):
    """A random model, its data, and the task."""
    if name in POOLED:
        return build(POOLED[name], seed), [graph(seed + i, 4 + i, 7 + 2 * i) for i in range(3)], {"task": "graph"}
    return build(NODES[name], seed), graph(seed), {}


def sampled(model, data, how, level="input", values=GRID):
    """Gradients by backward passes, which know nothing of intervals."""
    return sampled_gradients(ew.Score(model, data, **how)._question, level, tuple(values), 2**29, None)[1]


every = pytest.mark.parametrize("name", sorted([*NODES, *POOLED]))


SHARE = dict.fromkeys(NODES | POOLED, 0.9) | dict.fromkeys([*ATTENTION, "max", "mean_gat", "max_gatv2"], 0.7)
SHARE |= {name: 0.4 for name in ATTENTION if "transformer" in name}
"""Of the edges whose gradient does not flip on the grid, so many are certified with 5 pieces, at least."""


def contradictions_and_shares(name, seeds, level="input"):
    """How many edges a certificate is wrong about; how many keep their sign on the grid; how many of those are certified."""
    wrong = counted = certified = 0
    for seed in seeds:
        model, data, how = problem(name, seed)
        found = certify(model, data, level=level, **how)
        assert found.reason is None
        _, lowest, highest = sampled(model, data, how, level)
        moves, flips = (lowest != 0) | (highest != 0), (lowest < 0) & (highest > 0)
        wrong += int(((found.keeps & flips) | (found.vanishes & moves) | (found.flips & ~flips & ~moves)).sum())
        counted += int((moves & ~flips).sum())
        certified += int((found.keeps & moves & ~flips).sum())
    return wrong, counted, certified


@every
def test_no_weight_contradicts_a_certificate(name):
    wrong, counted, certified = contradictions_and_shares(name, [3])
    assert (wrong, counted > 5, certified > 3) == (0, True, True)


@pytest.mark.slow
@every
def test_a_stated_share_of_the_edges_that_keep_their_sign_is_certified(name):
    wrong, counted, certified = contradictions_and_shares(name, range(6))
    assert wrong == 0
    assert counted > 40
    assert certified >= SHARE[name] * counted


def test_at_layer_level_no_weight_contradicts_a_certificate_either():
    for name in ("gatv2", "transformer_with_attributes", "gine", "max", "readout_of_every_layer"):
        wrong, counted, certified = contradictions_and_shares(name, [1], "layer")
        assert wrong == 0
        assert certified > 0.5 * counted > 5


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(NODES | POOLED)), low=st.floats(0, 0.9))
def test_gradients_lie_within_the_bounds_of_both_ways(seed, name, low):
    assert_bounds_hold(seed, name, low)


@pytest.mark.slow
@settings(max_examples=400)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(NODES | POOLED)), low=st.floats(0, 0.9))
def test_gradients_of_many_random_models_lie_within_the_bounds_of_both_ways(seed, name, low):
    assert_bounds_hold(seed, name, low)


@torch.no_grad()
def assert_bounds_hold(seed, name, low):
    """Every gradient at three weights of an interval lies within the bounds, forwards and backwards."""
    model, data, how = problem(name, seed)
    ends = (low, min(1.0, low + 0.2))
    listed = certify(model, data, **how)
    place = {pair: i for i, pair in enumerate(zip(listed.owner.tolist(), listed.edge_id.tolist(), strict=True))}
    with torch.enable_grad():
        tried = [sampled(model, data, how, values=[weight]) for weight in (ends[0], sum(ends) / 2, ends[1])]
    truth = [torch.where(lowest < at_one, lowest, highest) for at_one, lowest, highest in tried]
    question, checked = ew.Score(model, data, **how)._question, 0
    with question.borrowed():
        for part in follow(question, 2**29):
            for spread in spreads(part.at_one, "input", [ends], 2**29):
                found = spread.slopes
                back = Return(spread, found.slot, found.position).bounds
                position, column = part.position(found.position), part.columns(spread.slots.edge[found.slot])
                where = [place[pair] for pair in zip(position.tolist(), column.tolist(), strict=True)]
                for values in truth:
                    true = values[where]
                    # of the backward passes that we compare with; torch's hardsigmoid has its 1/6 in float32
                    room = (1e-7 if name == "hardsigmoid" else 1e-10) * (1 + true.abs())
                    for interval in (found.bounds, back):
                        assert ((interval.lo <= true + room) & (interval.hi >= true - room)).all()
                checked += len(where)
    assert checked > 0


# The softmax ##########################################################################################################


@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 1e-9, 0.1, 3.0, 400.0]))
def test_the_softmax_and_its_slope_lie_within_their_bounds(seed, spread):
    generator = torch.Generator().manual_seed(seed)

    def draw(scale):
        return torch.randn(12, 2, generator=generator, dtype=torch.double) * scale

    head = torch.randint(0, 4, (12,), generator=generator)
    logits, slack, slope, width = draw(2), draw(spread).abs(), draw(1), draw(spread / 10).abs()
    prior = groups_softmax(logits, head)
    alpha = softmax_bounds(Interval.point(prior).outward(8), Interval(-slack, slack), head, 4, 16)
    slopes = softmax_slopes(alpha, Interval(slope - width, slope + width), head, 4, 16)
    for _ in range(20):
        share = torch.rand(12, 2, generator=generator, dtype=torch.double).mul(2).sub(1).sign()
        mine, along = groups_softmax(logits + share * slack, head), slope + share.flip(0) * width
        assert ((alpha.lo <= mine) & (mine <= alpha.hi)).all()
        mean = torch.zeros(4, 2, dtype=torch.double).index_add(0, head, mine * along)[head]
        moving = mine * (along - mean)
        room = 1e-14 * (1 + along.abs())
        assert ((slopes.lo <= moving + room) & (moving - room <= slopes.hi)).all()


def groups_softmax(logits, head):
    """Group by group, written from the formula."""
    found = torch.zeros_like(logits)
    for group in head.unique():
        found[head == group] = logits[head == group].softmax(dim=0)
    return found


def test_weights_stay_between_zero_and_one_where_exponentials_overflow():
    wide = Interval(torch.tensor([[-1e6], [-1e6]]).double(), torch.tensor([[1e6], [1e6]]).double())
    half = Interval.point(torch.full((2, 1), 0.5).double())
    found = softmax_bounds(half, wide, torch.tensor([0, 0]), 1, 4)
    assert found.lo.tolist() == [[0.0], [0.0]]
    assert found.hi.tolist() == [[1.0], [1.0]]


# What is refused, and what does not matter ############################################################################


class Normed(nn.Module):
    """A norm between the calls that mixes the columns."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = GATConv(FEATURES, WIDTH), nn.LayerNorm(WIDTH), GATConv(WIDTH, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.norm(self.first(x, edge_index)), edge_index)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Between(torch.tanh), "tanh"),
        (lambda: Between(lambda h: h * h), "mul of two values"),
        (lambda: Between(lambda h: functional.hardshrink(h)), "hardshrink"),
        (Normed, "layer_norm"),
        (lambda: zoo.chain(lambda a, b: SAGEConv(a, b, aggr="max"), 2), "SAGEConv"),
        (lambda: zoo.chain(lambda a, b: TransformerConv(a, b, beta=True), 2), "beta=True"),
    ],
)
def test_the_reason_names_the_operation(make, named):
    found = certify(build(make), graph(1))
    assert named in found.reason
    assert not (found.keeps | found.flips | found.vanishes).any()


def test_graphs_are_certified_alike_in_any_company_and_for_any_part_of_their_edges():
    model, data, how = problem("mean_gat", 5)
    whole = certify(model, data, **how)
    for position, one in enumerate(data):
        alone = certify(model, one, **how)
        assert torch.equal(whole.keeps[whole.owner == position], alone.keeps)
    small = certify(model, data, memory="1KB", **how)
    assert torch.equal(whole.keeps, small.keeps)
    part = certify(model, data, edges=12, **how)
    assert 0 < len(part.edge_id) < len(whole.edge_id)
    pairs = zip(whole.owner.tolist(), whole.edge_id.tolist(), strict=True)
    listed = dict(zip(pairs, whole.keeps.tolist(), strict=True))
    for owner, edge, keeps in zip(part.owner.tolist(), part.edge_id.tolist(), part.keeps.tolist(), strict=True):
        assert listed[owner, edge] == keeps
