"""Scores are derivatives of what the model computes: no relation, mask, pooling, detach or large number hides a wrong one."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    DirGNNConv,
    FastRGCNConv,
    GCNConv,
    GraphConv,
    GraphNorm,
    GraphSAGE,
    LayerNorm,
    PairNorm,
    RGCNConv,
    SAGEConv,
    SAGPooling,
    SGConv,
    TopKPooling,
    global_add_pool,
)
from torch_geometric.utils import to_undirected

import edgewise as ew
from checks import assert_close, scores_of
from edgewise.question.gradient_audit import STEPS, compared

EDGES = torch.tensor([[0, 0, 0, 1, 2, 3, 3, 4, 2, 5, 6, 7], [1, 1, 1, 0, 3, 2, 3, 5, 4, 0, 7, 1]])  # twins and a loop
ONE_WAY = torch.tensor([[0, 1, 2, 3, 4, 0, 5, 1], [1, 2, 3, 4, 5, 2, 1, 4]])
KINDS = torch.tensor([2, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2])


class Net(nn.Module):
    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)
        self.double().eval()

    def forward(self, x, edge_index, edge_attr=None, edge_weight=None):
        return self.run(self, x, edge_index, edge_attr, edge_weight)


def graph(edge_index=EDGES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64) + 0.5
    x = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=edge_index, edge_attr=KINDS[: edge_index.size(1)], edge_weight=weight)


def two(make, **last):
    return {"one": make(4, 5), "two": make(5, 3)}


PLAIN = {"run": lambda s, x, e, t, w: s.two(s.one(x, e).relu(), e)}
TYPED = {"run": lambda s, x, e, t, w: s.two(s.one(x, e, t).relu(), e, t)}
MODELS = {
    "rgcn": (lambda: Net(**TYPED, **two(lambda a, b: RGCNConv(a, b, 3))), EDGES, 2),
    "fast rgcn": (lambda: Net(**TYPED, **two(lambda a, b: FastRGCNConv(a, b, 3))), EDGES, 2),
    "masked": (lambda: Net(lambda s, x, e, t, w: s.two(s.one(x, e[:, w > 0.9]).relu(), e), **two(GraphConv)), EDGES, 2),
    "both ways": (lambda: Net(**PLAIN, **two(lambda a, b: DirGNNConv(SAGEConv(a, b)))), EDGES, 2),
    "undirected": (
        lambda: Net(lambda s, x, e, t, w: s.two(s.one(x, u := to_undirected(e)).relu(), u), **two(SAGEConv)),
        ONE_WAY,
        2,
    ),
    "branches": (
        lambda: Net(
            lambda s, x, e, t, w: s.two((s.one(x, e) + s.side(x, e)).relu(), e), side=SAGEConv(4, 5), **two(GCNConv)
        ),
        EDGES,
        2,
    ),
    "three steps": (lambda: Net(lambda s, x, e, t, w: s.one(x, e), one=SGConv(4, 3, K=3)), EDGES, 3),
}


def differences(model, data, node, target, layers):
    """∂z/∂ω by central differences of the model itself, a message of one column at a time."""
    score = ew.Score(model, data, [node], target=target)
    found = torch.zeros(layers, data.edge_index.size(1), dtype=torch.float64)
    for copy, column in enumerate(score.edge_id.tolist()):
        for layer in range(layers):
            step = torch.zeros_like(score.ones())
            step[layer, copy] = 1e-6
            found[layer, column] = (score(score.ones() + step) - score(score.ones() - step)).item() / 2e-6
    return found


@pytest.mark.parametrize("name", MODELS)
def test_layer_scores_have_the_depth_of_the_model_and_are_its_derivatives(name):
    make, edges, depth = MODELS[name]
    torch.manual_seed(0)
    model, data = make(), graph(edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        for node in (1, 2, 5):
            why = ew.explain(model, data, node, level="layer")
            assert why.scores.shape == (depth, edges.size(1))
            assert_close(why.scores, differences(model, data, node, why.target, depth), 1e-7)
            assert why.settings["audit"]["slope"] < 1e-6


LOWERED = {
    "gcn": lambda: GCN(4, 8, 3, 3),
    "sage": lambda: GraphSAGE(4, 8, 3, 3),
    "gin": lambda: GIN(4, 8, 2, 3),
    "gat": lambda: GAT(4, 8, 2, 3, heads=2),
    "gatv2": lambda: GAT(4, 8, 2, 3, v2=True),
    "sgc": lambda: nn.ModuleDict({"conv": SGConv(4, 3, K=2)})["conv"],
    "batch norm": lambda: GCN(4, 8, 2, 3, norm="batch_norm"),
    "jumping": lambda: GCN(4, 8, 3, 3, jk="cat"),
    "prelu": lambda: GCN(4, 8, 2, 3, act="prelu"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOWERED)
def test_the_gradient_of_a_lowered_model_is_compared_with_differences_in_float64(name, dtype):
    torch.manual_seed(0)
    model, data = LOWERED[name]().to(dtype).eval(), Data(x=torch.randn(8, 4, dtype=dtype), edge_index=EDGES)
    why = ew.explain(model, data, 1)
    audit = why.settings["audit"]
    assert why.settings["way"] == "lowered"
    assert audit["targets"] == 1
    assert audit["undecided"] == ""
    assert audit["slope"] < 1e-5


@pytest.mark.parametrize("conv", [RGCNConv, FastRGCNConv])
def test_the_message_of_a_relation_belongs_to_the_column_of_that_relation(conv):
    """In one layer with sums, occlusion of a column is the difference of two runs of the model, one without it."""
    torch.manual_seed(0)
    model, data = Net(lambda s, x, e, t, w: s.one(x, e, t), one=conv(4, 3, 3, aggr="add")), graph()
    why = ew.explain(model, data, 1, method="occlusion", target=0)
    full = model(data.x, data.edge_index, data.edge_attr)[1, 0]
    for column in range(data.edge_index.size(1)):
        kept = torch.arange(data.edge_index.size(1)) != column
        less = model(data.x, data.edge_index[:, kept], data.edge_attr[kept])[1, 0]
        assert float(why.scores[column]) == pytest.approx(float((full - less).detach()), abs=1e-9)


@pytest.mark.parametrize("pool", [TopKPooling, SAGPooling])
def test_behind_a_pooling_the_right_edges_get_the_scores(pool):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.pool, self.two, self.head = (
                SAGEConv(4, 5),
                pool(5, ratio=0.6),
                SAGEConv(5, 5),
                nn.Linear(5, 2),
            )

        def forward(self, x, edge_index, batch):
            x, edge_index, _, batch, *_ = self.pool(self.one(x, edge_index).relu(), edge_index, batch=batch)
            return self.head(global_add_pool(self.two(x, edge_index).relu(), batch))

    for seed in range(3):
        torch.manual_seed(seed)
        model = Pooled().double().eval()
        data = Data(x=torch.randn(8, 4, dtype=torch.float64), edge_index=torch.randint(0, 8, (2, 20)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ew.LocalityWarning)
            why = ew.explain(model, [data], 0, task="graph", level="layer")
            score = ew.Score(model, [data], [0], task="graph", target=why.target)
        for layer in range(2):
            for copy, column in enumerate(score.edge_id.tolist()):
                step = torch.zeros_like(score.ones())
                step[layer, copy] = 1e-7
                slope = (score(score.ones() + step) - score(score.ones() - step)).item() / 2e-7
                assert float(why.scores[layer, column]) == pytest.approx(slope, abs=1e-5)


def test_edges_that_were_merged_inside_the_model_are_refused_with_the_name_of_the_layer():
    model = Net(lambda s, x, e, t, w: s.two(s.one(x, u := to_undirected(e)).relu(), u), **two(SAGEConv))
    with pytest.raises(ew.ModelError, match="one"):
        ew.explain(model, graph(), 1)


def test_a_detach_is_looked_through_where_the_model_is_lowered():
    torch.manual_seed(0)
    parts = two(GCNConv)
    detached = Net(lambda s, x, e, t, w: s.two(s.one(x, e).relu().detach(), e), **parts)
    plain = Net(**PLAIN, **parts)
    assert_close(
        ew.explain(detached, graph(), 1, level="layer").scores,
        ew.explain(plain, graph(), 1, level="layer").scores,
        1e-12,
    )


def _stopped(s, x, e, t, w):
    with torch.no_grad():
        hidden = s.one(x, e).relu()
    return s.two(hidden, e)


def test_where_a_stopped_gradient_cannot_be_looked_through_it_is_refused():
    torch.manual_seed(0)
    model, data = Net(_stopped, **two(lambda a, b: SAGEConv(a, b, aggr="max"))), graph(ONE_WAY)
    with pytest.raises(ew.ModelError, match=r"method='occlusion', or stopped='keep'"):
        ew.explain(model, data, 2)
    ew.explain(model, data, 2, method="occlusion")
    kept = ew.explain(model, data, 2, stopped="keep", level="layer")
    assert kept.settings["stopped"] == "keep"
    assert float(kept.scores[0].abs().max()) == 0


@pytest.mark.parametrize("shift", ["a masked class", "a large value"])
def test_large_numbers_do_not_hide_that_a_model_is_not_local(shift):
    class Far(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(4, 3)

        def forward(self, x, edge_index):
            rows = self.conv(x, edge_index)
            rows = rows - rows.mean(dim=0)
            if shift == "a masked class":
                return torch.cat([rows[:, :2], torch.full_like(rows[:, 2:], -1e9)], dim=1)
            return rows[:, :1] + 30_000

    torch.manual_seed(0)
    model, data = Far().eval(), graph()
    data = Data(x=data.x.float(), edge_index=data.edge_index)
    mode = "regression" if shift == "a large value" else None
    with pytest.warns(ew.LocalityWarning):
        why = ew.explain(model, data, 1, mode=mode)
    assert why.settings["way"] == "whole graph"


def test_a_residual_through_a_matrix_has_the_self_scores_of_autograd():
    """Its value is made and read between the same two calls; the reverse pass once forgot to scale it."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.skip, self.head = (
                GraphConv(4, 4),
                GraphConv(4, 4),
                nn.Linear(4, 4),
                nn.Linear(4, 3),
            )

        def forward(self, x, edge_index):
            x = self.one(x, edge_index).relu()
            skip = self.skip(x)
            return self.head((self.two(x, edge_index) + skip).relu())

    torch.manual_seed(0)
    model, data = Residual().double().eval(), graph()
    why = ew.explain(model, data, 1, level="layer")
    assert why.settings["way"] == "lowered"
    score = ew.Score(model, data, [1], target=why.target)
    own = score.self_ones().requires_grad_()
    (gradient,) = torch.autograd.grad(score(score.ones(), own).sum(), own)
    expected = torch.zeros_like(why.self_scores)
    expected[:, score.self_node] = gradient
    assert_close(why.self_scores, expected, 1e-12)


@pytest.mark.parametrize("is_told", [True, False], ids=["with batch", "without batch"])
@pytest.mark.parametrize("norm", [LayerNorm, GraphNorm, lambda width: PairNorm()], ids=["layer", "graph", "pair"])
def test_a_node_of_a_batch_is_explained_as_the_model_computes_it_there(norm, is_told):
    """A norm that is not told which graph a node is in reaches over all of them: that is what the model does."""
    torch.manual_seed(0)

    def run(net, x, edge_index, *_):
        hidden = net.first(x, edge_index).relu()
        return net.second(net.norm(hidden, BATCH.batch) if is_told else net.norm(hidden), edge_index)

    model = Net(run, first=GraphConv(4, 8), norm=norm(8), second=GraphConv(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        why = ew.explain(model, BATCH, 8, level="layer")
        slopes = differences(model, BATCH, 8, why.target, 2)
    assert why.value == pytest.approx(model(BATCH.x, BATCH.edge_index)[8, why.target].item(), abs=1e-12)
    assert_close(why.scores, slopes, 1e-7)


BATCH = Batch.from_data_list(
    [Data(x=torch.randn(6, 4, dtype=torch.double), edge_index=torch.randint(0, 6, (2, 14))) for _ in range(3)]
)


class NotANumberForSome(nn.Module):
    """Rows of nodes with a large first feature are no numbers."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(4, 3)

    def forward(self, x, edge_index):
        return torch.where(x[:, :1] > 100, torch.nan, self.conv(x, edge_index))


def test_a_row_that_is_no_number_is_no_reason_to_refuse_the_others():
    torch.manual_seed(0)
    model, x = NotANumberForSome().double().eval(), torch.randn(6, 4, dtype=torch.float64)
    x[5, 0] = 1000.0
    data = Data(x=x, edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]))
    plain = Data(x=x, edge_index=data.edge_index)
    expected = ew.explain(model.conv, plain, [1, 2], level="layer", target=0)
    assert_close(scores_of(ew.explain(model, data, [1, 2], level="layer", target=0)), scores_of(expected), 1e-9)
    with pytest.raises(ew.ModelError, match="NaN"):
        ew.explain(model, data, 5)


class Rescaled(nn.Module):
    """Sums of equal neighbours under a graph-wide LayerNorm: to the first order weights change nothing."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = SAGEConv(3, 8, aggr="sum", root_weight=False, bias=False), LayerNorm(8)
        self.last = nn.Linear(8, 1)

    def forward(self, x, edge_index, batch):
        return self.last(global_add_pool(self.norm(self.conv(x, edge_index), batch).relu(), batch))


def test_a_gradient_that_is_rounding_alone_is_told_and_not_refused():
    edges = torch.combinations(torch.arange(6)).t()
    data = Data(x=torch.ones(6, 3), edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    told = 0
    for seed in range(12):
        torch.manual_seed(seed)
        why = ew.explain(Rescaled().eval(), data, task="graph")
        assert float(why.scores.abs().max()) < 1e-5  # zero, and a few units in the last place of sums
        told += "less than the rounding" in why.settings["audit"]["undecided"]
    assert told, "every gradient is right by chance: the case is not tested"


def test_only_a_slope_of_a_few_units_in_the_last_place_counts_as_rounding():
    steps = torch.tensor(STEPS, dtype=torch.float64)
    for slope, is_told in ((1e-8, True), (1e-6, False)):
        values = (0.5 + slope * steps).tolist()
        found = compared(0.0, 0.0, values, torch.float32)
        assert bool(found.undecided) == is_told
        assert found.error == pytest.approx(1, rel=1e-2)  # less what differences cannot tell
    assert not compared(0.0, 0.0, (0.5 + 1e-8 * steps).tolist(), torch.float64).undecided


@pytest.mark.parametrize(("sides", "gradient", "is_beyond"), [((1.0, 1.003), 0.8, True), ((0.0, 1.0), 1.5, False)])
def test_a_kink_excuses_no_gradient_that_is_much_further_from_both_sides(sides, gradient, is_beyond):
    low, high = sides
    found = compared(gradient, 1.0, [0.0, high * 1e-4, -low * 1e-4, high * 1e-5, -low * 1e-5], torch.float64)
    assert found.undecided == "the slope at a kink"
    assert found.is_beyond_kink == is_beyond
