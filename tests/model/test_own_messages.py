"""A model that sends messages by code of its own is refused, with the line; reading columns for anything else is not."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, GraphConv, MessagePassing, SAGEConv

import edgewise as ew
from edgewise.errors import ModelError
from edgewise.model import own_messages
from edgewise.model.call import ModelCall
from edgewise.model.other_graphs import with_other_edges

REFUSED = "by code of its own, at test_own_messages.py, line"


def graph(nodes=12, edges=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, 4, generator=generator),
        edge_index=torch.randint(0, nodes, (2, edges), generator=generator),
        edge_attr=torch.rand(edges, 2, generator=generator),
        edge_weight=torch.rand(edges, generator=generator),
    )


def star():
    """Four nodes that send to one: no other graph has these degrees."""
    whole = graph(5, 4)
    whole.edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    return whole


class Net(nn.Module):
    """Two layers, and a step of the user's own in front of them, between them, behind them, or around the first."""

    def __init__(self, step, place="before"):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = GCNConv(4, 4), SAGEConv(4, 4), nn.Linear(4, 3)
        self.step, self.place = step, place

    def forward(self, x, edge_index, edge_attr=None, edge_weight=None):
        def step(rows):
            return self.step(rows, edge_index, edge_attr, edge_weight)

        if self.place == "around":
            return self.head(x + self.first(x, edge_index) + step(x))
        x = self.first(step(x) if self.place == "before" else x, edge_index).relu()
        x = self.second(step(x) if self.place == "between" else x, edge_index)
        return self.head(step(x) if self.place == "behind" else x)


def added(h, e):
    return torch.zeros_like(h).index_add(0, e[1], h[e[0]])


def dense(h, e):
    matrix = h.new_zeros(len(h), len(h))
    matrix[e[1], e[0]] = 1
    return matrix


def sparse(h, e):
    return torch.sparse_coo_tensor(e.flip(0), torch.ones(e.size(1)), (len(h), len(h)))


def in_python(h, e, a, w):
    out = h.clone()
    for u, v in e.t().tolist():
        out[v] += h[u]
    return out


def in_numpy(h, e, a, w):
    matrix = np.zeros((len(h), len(h)), np.float32)
    np.add.at(matrix, (e[1].numpy(), e[0].numpy()), 1.0)
    return torch.from_numpy(matrix) @ h


def by_running_sums(h, e, a, w):
    order, last = e[1].argsort(stable=True), torch.bincount(e[1], minlength=len(h)).cumsum(0)
    sums = torch.cat([h.new_zeros(1, h.size(1)), h[e[0][order]].cumsum(0)])
    return sums[last] - sums[torch.cat([last.new_zeros(1), last[:-1]])]


def masked_attention(h, e, a, w):
    mask = torch.eye(len(h), dtype=torch.bool)
    mask[e[1], e[0]] = True
    return nn.functional.scaled_dot_product_attention(h[None], h[None], h[None], attn_mask=mask[None])[0]


OWN = {
    "index_add": lambda h, e, a, w: added(h, e),
    "scatter_reduce": lambda h, e, a, w: h.scatter_reduce(0, e[1].view(-1, 1).expand(-1, 4), h[e[0]], "amax"),
    "scatter": lambda h, e, a, w: utils.scatter(h[e[0]], e[1], dim_size=len(h), reduce="mean"),
    "index_put": lambda h, e, a, w: torch.zeros_like(h).index_put((e[1],), h[e[0]], accumulate=True),
    "a dense product": lambda h, e, a, w: dense(h, e) @ h,
    "a sparse product": lambda h, e, a, w: torch.sparse.mm(sparse(h, e), h),
    "spmm": lambda h, e, a, w: utils.spmm(utils.to_torch_csr_tensor(e.flip(0), size=(len(h), len(h))), h),
    "einsum": lambda h, e, a, w: torch.einsum("ij,jk->ik", dense(h, e), h),
    "a masked maximum": lambda h, e, a, w: torch.where(dense(h, e)[:, :, None] > 0, h[None], -9.0).amax(1),
    "masked attention": masked_attention,
    "running sums": by_running_sums,
    "a loop in Python": in_python,
    "numpy": in_numpy,
    "a weighted count": lambda h, e, a, w: h + torch.bincount(e[1], h[e[0], 0], len(h)).float().view(-1, 1),
    "states of edges": lambda h, e, a, w: h + utils.scatter(a, e[1], dim_size=len(h)).sum(1, keepdim=True),
    "behind a detach": lambda h, e, a, w: h + added(h.detach(), e),
    "rows of the receivers": lambda h, e, a, w: torch.zeros_like(h).index_add(0, e[1], h[e[1]].tanh()),
    "vmap": lambda h, e, a, w: torch.vmap(lambda c: torch.zeros(len(h)).index_add(0, e[1], c[e[0]]), 1, 1)(h),
}


@pytest.mark.parametrize("place", ["before", "between", "behind", "around"])
@pytest.mark.parametrize("title", OWN)
def test_messages_by_own_code_are_refused_with_the_line(title, place):
    with pytest.raises(ModelError, match="by code of its own") as caught:
        ew.explain(Net(OWN[title], place).eval(), graph(), index=1)
    assert REFUSED in str(caught.value)


@pytest.mark.parametrize("title", ["index_add", "a dense product", "a loop in Python", "states of edges"])
def test_they_are_refused_on_a_star_too(title):
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Net(OWN[title]).eval(), star(), index=0)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("title", ["index_add", "a sparse product", "states of edges"])
def test_they_are_refused_where_all_columns_are_loops_of_one_node(title, nodes):
    data = graph(nodes, 2)
    data.edge_index = torch.zeros(2, 2, dtype=torch.long)
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Net(OWN[title]).eval(), data, index=0)
    assert ew.explain(Net(HARMLESS["a norm by degree"]).eval(), data, index=0).scores.any()


def test_they_are_refused_where_all_nodes_have_the_same_features():
    data = graph()
    data.x = torch.ones_like(data.x)
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Net(OWN["index_add"]).eval(), data, index=1)


@pytest.mark.parametrize(
    "name", ["explain", "features", "walks", "counterfactual", "compare", "check", "Question", "Score"]
)
def test_every_question_refuses_them(name):
    with pytest.raises(ModelError, match=REFUSED):
        getattr(ew, name)(Net(OWN["index_add"]).eval(), graph(), index=1)


def degrees(h, e):
    return utils.degree(e[1], len(h)).view(-1, 1)


HARMLESS = {
    "a norm by degree": lambda h, e, a, w: h * degrees(h, e).clamp(1).rsqrt(),
    "degrees as features": lambda h, e, a, w: torch.cat([h[:, :3], degrees(h, e)], dim=1),
    "a mask by degree": lambda h, e, a, w: torch.where(degrees(h, e) > 1, h, 0.0),
    "the number of nodes": lambda h, e, a, w: h * (int(e.max()) + 1) / len(h),
    "a mean of all attributes": lambda h, e, a, w: h + a.mean(),
    "a sum of all nodes": lambda h, e, a, w: h + (h * degrees(h, e)).mean(0),
    "a dense matrix for degrees": lambda h, e, a, w: h / dense(h, e).sum(1, keepdim=True).clamp(1),
    "degrees without directions": lambda h, e, a, w: h * degrees(h, utils.to_undirected(e)),
}


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
@pytest.mark.parametrize("place", ["before", "between", "behind"])
@pytest.mark.parametrize("title", HARMLESS)
def test_reading_columns_for_degrees_norms_and_masks_is_none(title, place):
    assert ew.explain(Net(HARMLESS[title], place).eval(), graph(), index=1).scores.any()


class Written(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.gat, self.function = GraphConv(4, 3), pyg.GATv2Conv(4, 3, edge_dim=2), function

    def forward(self, x, edge_index, edge_attr, edge_weight):
        return self.function(self, x, edge_index, edge_attr, edge_weight)


TO_LAYERS = {
    "cosines": lambda s, x, e, a, w: s.conv(x, e, (x[e[0]] * x[e[1]]).sum(-1).sigmoid()),
    "softmax": lambda s, x, e, a, w: s.conv(x, e, utils.softmax((x[e[0]] * x[e[1]]).sum(-1), e[1], num_nodes=len(x))),
    "softmax beside degrees": lambda s, x, e, a, w: (
        s.conv(x, e, utils.softmax((x[e[0]] * x[e[1]]).sum(-1), e[1], num_nodes=len(x))) * degrees(x, e)
    ),
    "gcn_norm": lambda s, x, e, a, w: s.conv(x, *pyg.conv.gcn_conv.gcn_norm(e, w, len(x), add_self_loops=False)),
    "a mask": lambda s, x, e, a, w: s.conv(x, e[:, w > 0.5]),
    "attributes": lambda s, x, e, a, w: s.gat(x, e, a * 2),
    "attention beside": lambda s, x, e, a, w: s.gat(x, e, a, return_attention_weights=True)[0],
}


@pytest.mark.parametrize("title", TO_LAYERS)
def test_what_own_code_makes_of_edges_for_a_layer_is_none(title):
    assert ew.explain(Written(TO_LAYERS[title]).eval(), graph(), index=1).scores.any()


SUMS_TO_LAYERS = {
    "differences of sums": lambda s, x, e, a, w: s.conv(
        x, e, (added(x, e)[e[0]] - added(x, e)[e[1]]).sum(-1).sigmoid()
    ),
    "a gate of the receiver": lambda s, x, e, a, w: s.conv(x, e, added(x, e)[e[1]].mean(-1).tanh()),
    "a gate of the sender": lambda s, x, e, a, w: s.conv(x, e, edge_weight=added(x, e)[e[0]].mean(-1).tanh()),
    "attributes": lambda s, x, e, a, w: s.gat(x, e, torch.stack([w, (dense(x, e) @ x)[e[1]].sum(-1)], dim=1)),
    "behind a layer": lambda s, x, e, a, w: s.conv(
        torch.cat([s.gat(x, e, a), x[:, :1]], 1), e, added(s.gat(x, e, a), e)[e[0]].sum(-1).sigmoid()
    ),
    "an own layer": lambda s, x, e, a, w: s.gate(x, e, added(x, e)[e[1]].sum(-1).sigmoid()),
    "inside an own layer": lambda s, x, e, a, w: s.gate(x, e, None),
}


class Gate(MessagePassing):
    """Weights its messages by what it is given, or by a sum over neighbours that it makes itself."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index, gate):
        gate = added(x, edge_index)[edge_index[0]].sum(-1).sigmoid() if gate is None else gate
        return self.propagate(edge_index, x=self.lin(x), gate=gate)

    def message(self, x_j, gate):
        return x_j * gate.view(-1, 1)


@pytest.mark.parametrize("title", SUMS_TO_LAYERS)
def test_sums_over_neighbours_that_reach_a_layer_as_weights_of_edges_are_refused(title):
    model = Written(SUMS_TO_LAYERS[title])
    model.gate = Gate()
    data = graph()
    data.edge_index = torch.unique(data.edge_index, dim=1)
    data.edge_attr, data.edge_weight = (data[key][: data.num_edges] for key in ("edge_attr", "edge_weight"))
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(model.eval(), data, index=1)


def test_attention_of_a_layer_that_own_code_sums_up_is_one():
    def forward(s, x, e, a, w):
        out, (edges, alpha) = s.gat(x, e, a, return_attention_weights=True)
        return out + torch.zeros_like(out).index_add(0, edges[1], alpha * out[edges[0]])

    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Written(forward).eval(), graph(), index=1)


class Beside(MessagePassing):
    """A layer whose `forward` scatters beside its `propagate`."""

    def __init__(self, *, scatters):
        super().__init__(aggr="add")
        self.lin, self.scatters = nn.Linear(4, 4), scatters

    def forward(self, x, edge_index):
        norm = utils.degree(edge_index[1], len(x)).clamp(1).rsqrt()
        out = self.propagate(edge_index, x=self.lin(x), norm=norm[edge_index[0]])
        if self.scatters:
            out = out + added(x, edge_index)
        return out * norm.view(-1, 1)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class OneLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.conv = layer, GCNConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(self.layer(x, edge_index).relu(), edge_index)


def test_own_code_inside_a_layer_is_seen():
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(OneLayer(Beside(scatters=True)).eval(), graph(), index=1)
    assert ew.explain(OneLayer(Beside(scatters=False)).eval(), graph(), index=1).scores.any()


class Attends(MessagePassing):
    """A layer with attention of its own, which may be made of own messages, or be added up beside `propagate`."""

    def __init__(self, how):
        super().__init__(aggr="add", node_dim=0)
        self.lin, self.how = nn.Linear(4, 1), how

    def forward(self, x, edge_index):
        alpha = self.lin(x + added(x, edge_index) if self.how == "of messages" else x)
        alpha = self.edge_updater(edge_index, alpha=alpha)
        out = self.propagate(edge_index, x=x, alpha=alpha)
        return out + utils.scatter(alpha, edge_index[1], dim_size=len(x)) if self.how == "added up" else out

    def edge_update(self, alpha_j, alpha_i, index, dim_size):
        alpha = (alpha_j + alpha_i).tanh()
        return alpha if self.how == "added up" else utils.softmax(alpha, index, num_nodes=dim_size)

    def message(self, x_j, alpha):
        return alpha * x_j


@pytest.mark.parametrize("make", [graph, star])
def test_attention_of_an_own_layer_is_none_but_what_it_is_made_of_may_be_one(make):
    assert ew.explain(OneLayer(Attends("plainly")).eval(), make(), index=0).scores.any()
    for how in ("of messages", "added up"):
        with pytest.raises(ModelError, match=REFUSED):
            ew.explain(OneLayer(Attends(how)).eval(), make(), index=0)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), pyg.DiffGroupNorm(4, 2), pyg.GraphNorm(4)])
def test_means_of_all_nodes_beside_degrees_are_none_where_there_is_one_column(norm):
    data = graph(2, 1)
    data.edge_index = torch.tensor([[0], [1]])
    assert ew.explain(Net(lambda h, e, a, w: norm(h * degrees(h, e) + h.mean(0)), "between").eval(), data, index=1)
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Net(lambda h, e, a, w: norm(added(h, e) + h.mean(0)), "between").eval(), data, index=1)


class Held(nn.Module):
    """A model that keeps what it multiplies with."""

    def __init__(self, matrix=None, edge_index=None, square=None, second=None):
        super().__init__()
        self.conv = GCNConv(4, 3)
        self.register_buffer("second", second)
        self.register_buffer("matrix", matrix)
        self.register_buffer("edge_index", edge_index)
        self.register_buffer("square", square)

    def forward(self, x, edge_index):
        if self.matrix is not None:
            x = x + self.matrix @ (x if self.second is None else self.second.t() @ x)
        if self.edge_index is not None:
            x = x.index_add(0, self.edge_index[1], x[self.edge_index[0]])
        if self.square is not None:
            x = x @ self.square if self.second is None else x @ self.square @ self.second.t()
        return self.conv(x, edge_index)


def test_an_adjacency_that_the_model_keeps_is_seen():
    data = graph()
    for kept in ({"matrix": dense(data.x, data.edge_index)}, {"edge_index": data.edge_index.clone()}):
        with pytest.raises(ModelError, match=REFUSED):
            ew.explain(Held(**kept).eval(), data, index=1)
    sent, received = (nn.functional.one_hot(row, 12).float().t() for row in data.edge_index)
    with pytest.raises(ModelError, match=f"{REFUSED}.*that the model keeps"):
        ew.explain(Held(matrix=received, second=sent).eval(), data, index=1)
    assert ew.explain(Held(square=torch.eye(4)).eval(), data, index=1).scores.any()
    assert ew.explain(Held(square=torch.ones(4, 3), second=torch.ones(4, 3)).eval(), data, index=1).scores.any()


class OfGraphs(nn.Module):
    def __init__(self, step, pool=None):
        super().__init__()
        self.conv, self.step, self.pool, self.norm = GCNConv(4, 3), step, pool, pyg.GraphNorm(4)

    def forward(self, x, edge_index, batch):
        x = self.step(self, x, edge_index, batch)
        if self.pool is not None:
            x, edge_index, _, batch, *_ = self.pool(x, edge_index, None, batch)
        return pyg.global_mean_pool(self.conv(x, edge_index), batch)


def virtual_node(s, x, e, b):
    return x + pyg.global_add_pool(x, b)[b]


OF_GRAPHS = {
    "plain": (lambda s, x, e, b: x, None),
    "a norm": (lambda s, x, e, b: s.norm(x, b), None),
    "a virtual node": (virtual_node, None),
    "a virtual node of degrees": (lambda s, x, e, b: virtual_node(s, x * degrees(x, e), e, b), None),
    "TopK": (lambda s, x, e, b: x, lambda: pyg.TopKPooling(4, 0.7)),
    "SAG": (lambda s, x, e, b: x, lambda: pyg.SAGPooling(4, 0.7)),
}


@pytest.mark.parametrize("title", OF_GRAPHS)
def test_readouts_pools_and_virtual_nodes_of_graphs_are_none(title):
    step, pool = OF_GRAPHS[title]
    graphs = [graph(6, 14, seed) for seed in range(3)]
    for number in range(2):
        model = OfGraphs(step if number == 0 else lambda s, x, e, b: x + added(x, e), pool and pool()).eval()
        if number == 0:
            assert len(ew.explain(model, graphs, task="graph")) == 3
        else:
            with pytest.raises(ModelError, match=REFUSED):
                ew.explain(model, graphs, task="graph")


class ReadOut(nn.Module):
    """A graph's output, linear in its nodes: it is the same whichever columns carry the rows."""

    def __init__(self, step, norm=None):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.step, self.norm = GCNConv(4, 3), step, norm

    def forward(self, x, edge_index, batch):
        x = self.conv(x, edge_index)
        x = x if self.norm is None else self.norm(x, batch)
        return pyg.global_mean_pool(self.step(x, edge_index), batch)


def test_messages_are_seen_in_front_of_a_linear_readout():
    graphs = [graph(6, 14, seed) for seed in range(3)]
    for one in ("index_add", "a dense product", "a loop in Python", "running sums"):
        with pytest.raises(ModelError, match=REFUSED):
            ew.explain(
                ReadOut(lambda h, e, one=one: h + OWN[one](h, e, None, None)[:, :3]).eval(), graphs, task="graph"
            )


def test_messages_over_two_columns_are_seen_where_edges_cannot_be_swapped():
    full = graph(6, 1)
    full.edge_index = torch.cartesian_prod(torch.arange(6), torch.arange(6)).t()[
        :, [1, 2, 3, 6, 8, 9, 12, 13, 15, 18, 19]
    ]
    full.edge_attr, full.edge_weight = torch.rand(11, 2), torch.rand(11)
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(ReadOut(lambda h, e: h + dense(h, e) @ dense(h, e) @ h).eval(), [full], task="graph")


@pytest.mark.parametrize("seed", range(10))
def test_norms_over_graphs_beside_degrees_are_none_on_small_graphs(seed):
    small = graph(5, 7, seed)
    model = ReadOut(lambda h, e: h * degrees(h, e).log1p(), pyg.GraphNorm(3)).eval()
    assert ew.explain(model, [small, small], task="graph")[0].settings["task"] == "graph"


@pytest.mark.parametrize("is_undirected", [False, True])
def test_graphs_with_other_edges_have_the_same_degrees(is_undirected):
    for seed in range(20):
        data = graph(9, 18, seed)
        data.edge_index = utils.to_undirected(data.edge_index) if is_undirected else data.edge_index
        moved, share = with_other_edges(ModelCall(nn.Identity()), data, seed)
        assert share > 0
        for change in (lambda e: e, lambda e: e.flip(0), lambda e: e.unique(dim=1), utils.to_undirected):
            one, two = (utils.degree(change(d.edge_index)[1], 9) for d in (data, moved))
            assert torch.equal(one, two)


@pytest.mark.parametrize("title", ["index_add", "a sparse product", "a mean"])
def test_they_are_refused_in_front_of_a_linear_readout(title):
    """The sum over all nodes is the same for all graphs of the same degrees."""
    sends = {**OWN, "a mean": lambda h, e, a, w: utils.scatter(h[e[0]], e[0], dim_size=len(h), reduce="mean")}[title]

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(4, 3)

        def forward(self, x, edge_index, batch):
            x = self.conv(x, edge_index)
            return pyg.global_add_pool(x + sends(x, edge_index, None, None), batch)

    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Linear().eval(), [graph(6, 14, seed) for seed in range(3)], task="graph")


def test_they_are_refused_behind_a_unit_that_is_off_for_these_features():
    class Off(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = SAGEConv(4, 4), nn.Linear(4, 3)

        def forward(self, x, edge_index):
            return self.head((self.conv(x, edge_index) + added(x, edge_index) - 20).relu())

    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Off().eval(), graph(), index=1)


class OfPairs(nn.Module):
    def __init__(self, *, scatters):
        super().__init__()
        self.conv, self.scatters = GCNConv(4, 4), scatters

    def forward(self, x, edge_index, edge_label_index):
        z = self.conv(x, edge_index)
        z = z + added(z, edge_index) if self.scatters else z
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)


def test_decoders_of_pairs_send_none_even_if_the_pairs_are_the_edges():
    data = graph()
    assert len(ew.explain(OfPairs(scatters=False).eval(), data, task="link", index=data.edge_index)) == 40
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(OfPairs(scatters=True).eval(), data, task="link", index=[(1, 2), (3, 4)])
    for pair in [(1, 2), (3, 4), (5, 6), (7, 8)]:
        with pytest.raises(ModelError, match=REFUSED):
            ew.explain(OfPairs(scatters=True).eval(), data, task="link", index=pair)


def test_they_are_refused_for_a_pair_that_none_of_them_reaches():
    data = star()
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(OfPairs(scatters=True).eval(), data, task="link", index=[(1, 1)])


TYPE, BACK = ("u", "r", "m"), ("m", "s", "u")


class OfTypes(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.conv, self.step = pyg.HeteroConv({TYPE: SAGEConv(4, 3), BACK: SAGEConv(4, 3)}), step

    def forward(self, x_dict, edge_index_dict):
        return self.conv({**x_dict, "m": self.step(x_dict, edge_index_dict[TYPE])}, edge_index_dict)


class Weighted(nn.Module):
    def __init__(self, weigh):
        super().__init__()
        self.first, self.last = (
            pyg.HeteroConv({kind: GraphConv((4, 4), 4) for kind in (TYPE, BACK)}) for _ in range(2)
        )
        self.weigh = weigh

    def forward(self, x_dict, edge_index_dict):
        weights = {k: self.weigh(x_dict[k[0]], x_dict[k[2]], edge_index_dict[k]) for k in (TYPE, BACK)}
        return self.last(self.first(x_dict, edge_index_dict, edge_weight_dict=weights), edge_index_dict)


@pytest.mark.parametrize("nodes", [5, 7])  # types with as many nodes, or not
def test_weights_of_typed_edges_are_looked_at_too(nodes):
    torch.manual_seed(0)
    data = HeteroData()
    data["u"].x, data["m"].x = torch.randn(7, 4), torch.randn(nodes, 4)
    data[TYPE].edge_index = torch.unique(torch.stack([torch.randint(7, (20,)), torch.randint(nodes, (20,))]), dim=1)
    data[BACK].edge_index = data[TYPE].edge_index.flip(0)

    def alike(x, y, e):
        return (x[e[0]] * y[e[1]]).sum(1)

    def summed(x, y, e):
        return torch.zeros(len(y)).index_add(0, e[1], x[e[0]].sum(1))[e[1]].tanh()

    for harmless in (alike, lambda x, y, e: utils.softmax(alike(x, y, e), e[1], num_nodes=len(y))):
        assert ew.explain(Weighted(harmless).eval(), data, index={"m": [1]})
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(Weighted(summed).eval(), data, index={"m": [1]})


@pytest.mark.parametrize("seed", range(5))
def test_typed_models_are_asked_as_well(seed):
    torch.manual_seed(seed)
    data = HeteroData()
    data["u"].x, data["m"].x = torch.randn(6, 4), torch.randn(5, 4)
    data[TYPE].edge_index = torch.stack([torch.randint(0, 6, (14,)), torch.randint(0, 5, (14,))])
    data[BACK].edge_index = data[TYPE].edge_index.flip(0)
    counted = OfTypes(lambda x, e: x["m"] * utils.degree(e[1], len(x["m"])).view(-1, 1))
    assert len(ew.explain(counted.eval(), data, index=("m", [0, 2]))) == 2
    with pytest.raises(ModelError, match=REFUSED):
        ew.explain(OfTypes(lambda x, e: x["m"].index_add(0, e[1], x["u"][e[0]])).eval(), data, index=("m", [0, 2]))


def test_plain_models_are_not_run_again(monkeypatch):
    def never(*_):
        raise AssertionError("a plain model is not looked at closely")

    monkeypatch.setattr(own_messages, "_reads", never)
    assert ew.explain(Net(lambda h, e, a, w: h.relu()).eval(), graph(), index=1).scores.any()


class Reduces(MessagePassing):
    """A layer that keeps what it was given, so that its other methods may put it together."""

    def __init__(self, channels_in, channels_out):
        super().__init__(aggr="add")
        self.lin = nn.Linear(channels_in, channels_out)

    def forward(self, x, edge_index):
        self.ends, self.rows = edge_index, self.lin(x)
        return self.propagate(edge_index, x=self.rows, ends=edge_index)

    def message(self, x_j):
        self.kept = x_j**2
        return x_j.sin()


def reducing(**methods):
    """A class with methods of its own, named by what is in them: PyG knows layers and methods by their names."""
    kind = "Reduces" + "".join(method.__qualname__.title() for method in methods.values())
    for name, method in methods.items():
        method.__name__ = name
    return type(kind, (Reduces,), methods)


def sum_in_update(self, inputs):
    return inputs + added(self.rows, self.ends)


def gate_in_update(self, inputs):
    return inputs * added(inputs, self.ends).sigmoid()


def sum_in_aggregate(self, inputs, index, x, ends, dim_size=None):
    return utils.scatter(inputs, index, 0, dim_size) + utils.scatter(x[ends[0]], ends[1], 0, dim_size)


def kept_in_aggregate(self, inputs, index, dim_size=None):
    return utils.scatter(inputs, index, 0, dim_size) + utils.scatter(self.kept, index, 0, dim_size)


def kept_as_gate(self, inputs, index, dim_size=None):
    return utils.scatter(inputs, index, 0, dim_size) * utils.scatter(self.kept, index, 0, dim_size).sigmoid()


INSIDE = {
    "update": [sum_in_update, gate_in_update],
    "aggregate": [sum_in_aggregate, kept_in_aggregate, kept_as_gate],
}


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in INSIDE for method in INSIDE[name]])
def test_sums_of_other_rows_inside_a_layer_are_refused_with_the_line(name, method):
    kind = reducing(**{name: method})
    with pytest.raises(ew.ModelError, match=REFUSED):
        ew.explain(Chain(kind), RING, 2)


def several(self, inputs, index, dim_size=None):
    mean = utils.scatter(inputs, index, 0, dim_size, "mean")
    spread = utils.scatter((inputs - mean[index]) ** 2, index, 0, dim_size, "mean")
    return mean + (spread + 1e-3).sqrt() + utils.scatter(inputs, index, 0, dim_size, "max")


def pooled(self, inputs, index, dim_size=None):
    score = utils.softmax(inputs.sum(1), index, num_nodes=dim_size)
    return utils.scatter(inputs * score[:, None], index, 0, dim_size)


def attention(self, inputs, index, x_i, x_j, dim_size=None):
    score = utils.softmax((x_i * x_j).sum(1), index, num_nodes=dim_size)
    return utils.scatter(inputs * score[:, None], index, 0, dim_size)


def normed(self, inputs, index, x, dim_size=None):
    count = utils.degree(index, dim_size, dtype=inputs.dtype).clamp(min=1)
    return utils.scatter(inputs * count[index, None].rsqrt(), index, 0, dim_size) + x


def with_the_nodes_own(self, inputs, x):
    return inputs.tanh() + x - x.mean(0)


@pytest.mark.filterwarnings("ignore:The model is not local")  # a mean of all nodes
@pytest.mark.parametrize("method", [several, pooled, attention, normed, with_the_nodes_own])
def test_what_a_layer_makes_of_its_messages_is_none(method):
    kind = reducing(**{"update" if method is with_the_nodes_own else "aggregate": method})
    model = Chain(kind)
    found = ew.explain(model, RING, 2)
    weight = torch.ones(RING.num_edges, dtype=torch.double, requires_grad=True)
    handles = [
        layer.register_message_forward_hook(lambda _module, _inputs, rows: rows * weight[:, None])
        for layer in (model.one, model.two)
    ]
    (slope,) = torch.autograd.grad(model(RING.x, RING.edge_index)[2, found.target], weight)
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(found.scores, slope)


class Chain(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = kind(4, 6).double(), kind(6, 3).double()
        self.eval()

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index), edge_index)


RING = Data(
    x=torch.rand(12, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1)),
    edge_index=torch.stack([torch.arange(12).repeat(3), torch.cat([torch.arange(12).roll(k) for k in (1, 3, 4)])]),
)


def test_a_layer_that_is_made_in_forward_is_refused_with_the_line_that_makes_it():
    class Late(Chain):
        def forward(self, x, edge_index):
            return self.two(self.one(pyg.SimpleConv()(x, edge_index), edge_index), edge_index)

    with pytest.raises(ew.ModelError, match=REFUSED + r".*SimpleConv.*make it in `__init__`"):
        ew.explain(Late(SAGEConv), RING, 2)
