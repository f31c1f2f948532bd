"""Walks where calls stand side by side (types, relations, branches): every walk by a product of autograd Jacobians."""

from itertools import product

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GCNConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    global_mean_pool,
    to_hetero,
)

import edgewise as ew
from typed_walks import (
    KINDS,
    TYPED,
    WIDTHS,
    B,
    Typed,
    all_walks,
    check_walks,
    prepared,
    typed_blocks,
    typed_data,
)


def plain_blocks(stages, x):
    """The same of a graph of one kind: `stages` map states to states."""
    blocks, state = [], x
    for stage in stages:
        found = torch.autograd.functional.jacobian(stage, state)  # [N, out, N, in]
        blocks.append({(u, v): found[v, :, u] for u, v in product(range(len(x)), repeat=2)})
        state = stage(state)
    return blocks, state


@pytest.mark.parametrize("name", TYPED)
def test_walks_over_typed_edges_are_products_of_jacobians(name):
    torch.manual_seed(0)
    model, data = prepared(TYPED[name]()), typed_data()
    blocks, state = typed_blocks(model, data)
    target = 1
    true = all_walks(blocks, lambda node: data[node[0]].x[node[1]], (B, 1), target)
    assert len(true) > 2
    assert ew.explain(model, data, (B, 1)).settings["way"] == "lowered"
    check_walks(model, data, (B, 1), true, target=target)
    assert state[B][1, target].item() == pytest.approx(ew.walks(model, data, (B, 1), target=target).value)


def sage(depth, seed):
    torch.manual_seed(seed)
    model = Typed(lambda kind, widths, out: SAGEConv(widths, out, bias=False), depth, "sum")
    return model.double().eval(), typed_data(seed)


def test_lrp_without_epsilon_is_the_gradient_and_with_gamma_keeps_the_sum():
    """Bias-free: the walks through a column of a depth sum to its layer gradient; LRP shares out z whatever γ is."""
    model, data = sage(2, 1)
    gradient = ew.explain(model, data, (B, 1), level="layer", target=0)
    found = ew.explain(model, data, (B, 1), level="layer", target=0, method="lrp", rule="lrp-epsilon", epsilon=0.0)
    for kind in KINDS:
        torch.testing.assert_close(found.scores[kind], gradient.scores[kind], rtol=0, atol=1e-9)
    for rule in ("gradient", "lrp-gamma"):
        walks = ew.walks(model, data, (B, 1), k=10**4, search="exhaustive", sign="magnitude", target=0, rule=rule)
        assert sum(walk.score for walk in walks) == pytest.approx(gradient.value, abs=1e-9)


def test_lrp_of_relations_takes_all_of_them_as_one_linear_map():
    """One layer: R(u → v) = q / q^γ · Σ_r λ W_r^γ x_u with q^γ over all relations, the root and the bias."""
    torch.manual_seed(3)
    model, data, gamma = prepared(RGCNConv(3, 2, 3)), graph(3), 0.5
    forward = lambda m, d: m(d.x, d.edge_index, d.edge_type)  # noqa: E731
    up = lambda m: m.detach() + gamma * m.detach().clamp(min=0)  # noqa: E731
    sources, receivers = data.edge_index
    node = int(receivers[0])
    received = {u: torch.zeros(2, dtype=torch.double) for u in range(6)}
    for relation in range(3):
        mine = ((receivers == node) & (data.edge_type == relation)).nonzero().view(-1)
        for column in mine.tolist():
            received[int(sources[column])] += up(model.weight[relation]).t() @ data.x[sources[column]] / len(mine)
    received[node] += up(model.root).t() @ data.x[node]
    raised = sum(received.values()) + up(model.bias)
    z = model(data.x, data.edge_index, data.edge_type)[node].detach()
    true = {(u, node): float((z / raised * part)[1]) for u, part in received.items() if bool(part.any())}
    found = ew.walks(
        model,
        data,
        node,
        k=99,
        search="exhaustive",
        sign="magnitude",
        rule="lrp-gamma",
        gamma=gamma,
        target=1,
        forward=forward,
    )
    assert {walk.nodes: pytest.approx(walk.score, abs=1e-10) for walk in found} == true


def column_steps(model, data, layer, node):
    """(sender, adjacency entry, column, matrix) of everything that a node receives in a layer of typed SAGE."""
    name, number = node
    for kind in KINDS:
        conv, ends = model.layers[layer].convs[kind], data[kind].edge_index
        if kind[2] != name:
            continue
        mine = (ends[1] == number).nonzero().view(-1).tolist()
        for column in mine:
            sender = (kind[0], int(ends[0, column]))
            yield sender, (sender, node), (kind, column), conv.lin_l.weight / len(mine)
        yield node, None, None, conv.lin_r.weight


def test_goat_walks_share_every_walk_among_its_factors():
    model, data = sage(2, 1)
    hidden = {name: (x > 0).double() for name, x in model.stage(0, data.x_dict, data.edge_index_dict).items()}
    true = {kind: torch.zeros(5, dtype=torch.double) for kind in KINDS}
    for middle, entry, column, matrix in column_steps(model, data, 1, (B, 1)):
        onward = matrix[0] * hidden[middle[0]][middle[1]]
        for source, earlier, before, weight in column_steps(model, data, 0, middle):
            score = (onward @ weight @ data[source[0]].x[source[1]]).item()
            used = {one for one in (entry, earlier) if one is not None}
            share = score / (4 + len(used))
            for one, place in ((entry, column), (earlier, before)):
                if one is not None:
                    true[place[0]][place[1]] += share / (2 if entry == earlier else 1)
    found = ew.explain(model, data, (B, 1), target=0, method="goat_walks")
    for kind in KINDS:
        torch.testing.assert_close(found.scores[kind], true[kind], rtol=0, atol=1e-10)


def graph(seed=0):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, 6, (2, 14), generator=generator)
    edge_index[:, 3] = edge_index[:, 2]
    edge_index[:, 5] = 4  # a loop
    x = torch.randn(6, 3, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=edge_index, edge_type=torch.randint(0, 3, (14,), generator=generator))


class Relations(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.layers = nn.ModuleList([conv(3, 4, 3), conv(4, 4, 3), conv(4, 2, 3)])

    def stages(self, data):
        one, two, three = self.layers
        yield lambda x: one(x, data.edge_index, data.edge_type).relu()
        yield lambda x: two(x, data.edge_index, data.edge_type).relu() + x  # a residual
        yield lambda x: three(x, data.edge_index, data.edge_type)

    def forward(self, x, edge_index, edge_type):
        data = Data(edge_index=edge_index, edge_type=edge_type)
        for stage in self.stages(data):
            x = stage(x)
        return x


class Branches(nn.Module):
    """Two convs on one input, added or side by side, three times."""

    def __init__(self, cat):
        super().__init__()
        self.cat = cat
        wide = 8 if cat else 4
        self.left = nn.ModuleList([SAGEConv(3, 4), GATConv(wide, 4), GraphConv(wide, 4)])
        self.right = nn.ModuleList([GCNConv(3, 4), SAGEConv(wide, 4), GCNConv(wide, 4)])

    def stages(self, data):
        for left, right in zip(self.left, self.right, strict=True):

            def stage(x, left=left, right=right):
                both = left(x, data.edge_index), right(x, data.edge_index)
                return torch.cat(both, dim=-1).tanh() if self.cat else (both[0] + both[1]).tanh()

            yield stage

    def forward(self, x, edge_index):
        for stage in self.stages(Data(edge_index=edge_index)):
            x = stage(x)
        return x


PLAIN = {
    "rgcn": lambda: Relations(RGCNConv),
    "fast rgcn": lambda: Relations(FastRGCNConv),
    "branches added": lambda: Branches(cat=False),
    "branches side by side": lambda: Branches(cat=True),
}


@pytest.mark.parametrize("name", PLAIN)
def test_walks_of_relations_and_branches_are_products_of_jacobians(name):
    torch.manual_seed(0)
    model, data = prepared(PLAIN[name]()), graph()
    forward = (lambda m, d: m(d.x, d.edge_index, d.edge_type)) if "rgcn" in name else None
    blocks, _ = plain_blocks(list(model.stages(data)), data.x)
    true = all_walks(blocks, lambda node: data.x[node], 2, 0)
    assert len(true) > 5
    check_walks(model, data, 2, true, target=0, forward=forward)


def test_the_walks_of_a_whole_graph_sum_to_its_logit():
    """Relations behind an encoder, bias-free, and a log_softmax at the end: the logit that goes into it is explained."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(3, 4, bias=False)
            self.one, self.two = RGCNConv(4, 4, 3, bias=False), RGCNConv(4, 2, 3, bias=False)

        def forward(self, x, edge_index, edge_type, batch):
            hidden = self.one(self.encode(x), edge_index, edge_type).relu()
            return global_mean_pool(self.two(hidden, edge_index, edge_type), batch).log_softmax(dim=-1)

    torch.manual_seed(4)
    model, data = Pooled().double().eval(), [graph(seed) for seed in range(3)]
    forward = lambda m, d: m(d.x, d.edge_index, d.edge_type, d.batch)  # noqa: E731
    for found in ew.walks(model, data, task="graph", k=10**4, search="exhaustive", sign="magnitude", forward=forward):
        assert sum(walk.score for walk in found) == pytest.approx(found.value, abs=1e-10)
        assert abs(found.value) > 1e-3


def test_a_value_that_skips_a_depth_has_no_walks():
    class Unequal(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.beside = SAGEConv(3, 4), SAGEConv(4, 2), GraphConv(3, 2)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index) + self.beside(x, edge_index)

    model, data = prepared(Unequal()), graph()
    with pytest.raises(ew.ModelError, match="past later layers"):
        ew.walks(model, data, 2)


def test_to_hetero_is_walked_like_the_typed_layers_it_makes():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = SAGEConv((-1, -1), 3), SAGEConv((-1, -1), 2)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index)

    torch.manual_seed(2)
    data = typed_data(2)
    model = to_hetero(Plain(), data.metadata()).double().eval()
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    model = prepared(model)
    found = ew.walks(model, data, (B, 1), k=5)
    assert found.exact
    assert found.index == (B, 1)
    assert all(walk.nodes[-1] == (B, 1) and walk.nodes[0][0] in WIDTHS for walk in found)
    scores = found.edge_scores("layer")
    assert list(scores) == KINDS
    assert all(scores[kind].shape == (2, 5) for kind in KINDS)
    first = found.to_rows()[0]
    assert (first["index"], (first["node_0_type"], first["node_0"])) == (1, found[0].nodes[0])
    assert str(found).startswith(f"{len(found)} walks to b 1 (class")
