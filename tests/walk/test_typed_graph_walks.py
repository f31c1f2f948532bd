"""Walks of whole typed graphs: a readout joins nodes of several types, and a walk may end at any of them."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import SAGEConv, global_add_pool, global_max_pool, global_mean_pool

import edgewise as ew
from typed_walks import (
    COUNTS,
    KINDS,
    TYPED,
    WIDTHS,
    A,
    B,
    Typed,
    check_walks,
    prepared,
    typed_blocks,
    typed_data,
    walks_to,
)


class Pooled(nn.Module):
    """Both types are pooled, each in its own way, and joined."""

    def __init__(self, inner, bias=True):
        super().__init__()
        self.inner, self.head, self.other = inner, nn.Linear(3, 2, bias=bias), nn.Linear(3, 2, bias=bias)

    def readout(self, rows, batch):
        first = self.head(global_add_pool(rows[A], batch[A]).tanh())
        return first + self.other(global_mean_pool(rows[B], batch[B]))

    def forward(self, x_dict, edge_index_dict, batch_dict):
        return self.readout(self.inner(x_dict, edge_index_dict), batch_dict)


class Stacked(Pooled):
    """Pools are stacked and added up; one type takes the largest numbers."""

    def readout(self, rows, batch):
        return self.head(torch.stack([global_max_pool(rows[A], batch[A]), global_add_pool(rows[B], batch[B])]).sum(0))


class OneType(Pooled):
    """What the other type gets in the last layer is never read."""

    def readout(self, rows, batch):
        return self.head(global_add_pool(rows[B].relu(), batch[B]))


class Beside(Pooled):
    """One layer, with a residual of the features of one type."""

    def forward(self, x_dict, edge_index_dict, batch_dict):
        rows = self.inner(x_dict, edge_index_dict)
        return self.readout({A: rows[A], B: rows[B] + x_dict[B]}, batch_dict)


def alone():
    return {name: torch.zeros(COUNTS[name], dtype=torch.long) for name in WIDTHS}


def gradients_at(model, state, target):
    """The gradient of the explained number at each node, behind the last layer."""
    rows = {name: x.detach().requires_grad_() for name, x in state.items()}
    value = model.readout(rows, alone())[0, target]
    found = torch.autograd.grad(value, list(rows.values()), allow_unused=True)
    return {
        (name, v): row
        for name, gradient in zip(rows, found, strict=True)
        if gradient is not None
        for v, row in enumerate(gradient)
    }


CASES = {
    "sage": lambda: Pooled(TYPED["sage"]()),
    "several convs": lambda: Pooled(TYPED["several convs, mean"]()),
    "attention": lambda: Stacked(TYPED["attention"]()),
    "one type": lambda: OneType(TYPED["several convs, mean"]()),
}


@pytest.mark.parametrize("name", CASES)
def test_walks_of_typed_graphs_are_products_of_jacobians(name):
    torch.manual_seed(0)
    model, data = prepared(CASES[name]()), typed_data(1)
    blocks, state = typed_blocks(model.inner, data)
    true = walks_to(blocks, lambda node: data[node[0]].x[node[1]], gradients_at(model, state, 1))
    assert len(true) > 20
    check_walks(model, [data], 0, true, target=1, task="graph")


def test_graphs_of_a_list_with_other_counts_have_the_walks_that_each_has_alone():
    torch.manual_seed(1)
    model, data = prepared(CASES["sage"]()), [typed_data(seed) for seed in range(3)]
    data[1]["a"].x = torch.cat([data[1]["a"].x, torch.randn(2, 2).double()])  # two more nodes, one edge from the last
    data[1][KINDS[0]].edge_index = torch.cat([data[1][KINDS[0]].edge_index, torch.tensor([[5], [1]])], dim=1)
    together = ew.walks(model, data, task="graph", k=20, sign="magnitude")
    for number, found in enumerate(together):
        (by_itself,) = ew.walks(model, [data[number]], task="graph", k=20, sign="magnitude")
        assert [walk.nodes for walk in found] == [walk.nodes for walk in by_itself]
        assert [walk.score for walk in found] == pytest.approx([walk.score for walk in by_itself], abs=1e-12)
        assert found.exact
    assert any(("a", 5) in walk.nodes for walk in together[1])
    assert str(together[1]).startswith("20 walks to graph 1 (class")


def test_walks_of_one_layer_with_a_residual_end_at_the_features_of_their_type():
    torch.manual_seed(2)
    model = prepared(Beside(Typed(lambda kind, widths, out: SAGEConv(widths, out), 1, "sum")))
    data = typed_data(2)
    blocks, state = typed_blocks(model.inner, data)
    for node in range(COUNTS[B]):
        blocks[0][((B, node), (B, node))] = blocks[0][((B, node), (B, node))] + torch.eye(3).double()
    state = {A: state[A], B: state[B] + data[B].x}
    true = walks_to(blocks, lambda node: data[node[0]].x[node[1]], gradients_at(model, state, 0))
    check_walks(model, [data], 0, true, target=0, task="graph")


def test_walks_through_a_typed_edge_of_a_graph_sum_to_its_gradient():
    """Bias-free, sums and means of pools: walks sum to the number, and those through a column to its layer gradient."""

    class Sums(Pooled):
        def readout(self, rows, batch):
            return self.head(global_add_pool(rows[A], batch[A])) + self.other(global_mean_pool(rows[B], batch[B]))

    torch.manual_seed(3)
    inner = Typed(lambda kind, widths, out: SAGEConv(widths, out, bias=False), 2, "sum")
    model, data = Sums(inner, bias=False).double().eval(), [typed_data(3), typed_data(4)]
    gradient = ew.explain(model, data, task="graph", level="layer")
    found = ew.explain(model, data, task="graph", level="layer", method="lrp", rule="lrp-epsilon", epsilon=0.0)
    for one, other in zip(found, gradient, strict=True):
        for kind in KINDS:
            torch.testing.assert_close(one.scores[kind], other.scores[kind], rtol=0, atol=1e-10)
    for rule in ("gradient", "lrp-gamma"):
        for walks in ew.walks(
            model, data, task="graph", k=10**5, search="exhaustive", sign="magnitude", limit=10**5, rule=rule
        ):
            assert sum(walk.score for walk in walks) == pytest.approx(walks.value, abs=1e-9)
            assert abs(walks.value) > 1e-3
