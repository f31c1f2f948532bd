"""Models that are lists of calls, so that every call can be differentiated by itself (`walk_oracles.py`).

`Stack`: encoder → calls → head. A call is its conv (`received`) and what happens at the nodes afterwards (`after`). The library
sees nothing but `forward`.
"""

from itertools import pairwise

import torch
from torch import nn
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    SAGEConv,
    SGConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

import zoo
from pyg_versions import RESIDUAL
from zoo import CLASSES, EDGE_FEATURES, FEATURES, WIDTH

POOLS = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}


class Stack(nn.Module):
    """The output of the last call is the output, unless there is a head; `pool` makes it a model of graphs."""

    def __init__(self, *convs, act=torch.relu, norms=(), residual=None, encoder=None, head=None, pool=None, extra=None):
        super().__init__()
        self.convs, self.norms = nn.ModuleList(convs), nn.ModuleList(norms)
        self.encoder, self.head = encoder or nn.Identity(), head or nn.Identity()
        self.act, self.residual, self.pool, self.extra = act, residual, pool, extra
        self.skips = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in convs) if residual == "linear" else None
        self.acts_at_the_end = not isinstance(self.head, nn.Identity)

    def received(self, call, x, edge_index, given):
        return self.convs[call](x, edge_index) if self.extra is None else self.convs[call](x, edge_index, given)

    def after(self, call, received, x):
        if call < len(self.norms):
            received = self.norms[call](received)
        fits = self.residual is not None and received.shape == x.shape
        if fits and self.residual == "before":
            received = received + x
        if call + 1 < len(self.convs) or self.acts_at_the_end:
            received = self.act(received)
        if fits and self.residual != "before":
            received = received + (x if self.skips is None else self.skips[call](x))
        return received

    @property
    def num_calls(self):
        return len(self.convs)

    def read(self, x, batch):
        return self.head(x if self.pool is None else POOLS[self.pool](x, batch))

    def forward(self, x, edge_index, edge_attr=None, edge_weight=None, batch=None):
        x = self.encoder(x)
        given = {"edge_attr": edge_attr, "edge_weight": edge_weight, None: None}[self.extra]
        for call in range(len(self.convs)):
            x = self.after(call, self.received(call, x, edge_index, given), x)
        return self.read(x, batch)

    def calls(self, data):
        """From the nodes' states to the next ones, one function for each call."""
        given = None if self.extra is None else data[self.extra]

        def function(call):
            def run(x):
                x = self.encoder(x) if call == 0 else x
                return self.after(call, self.received(call, x, data.edge_index, given), x)

            return run

        return [function(call) for call in range(len(self.convs))]


class SimpleStack(Stack):
    """One SGConv: K calls without a matrix, the last one with it."""

    def calls(self, data):
        (conv,) = self.convs
        mixing = gcn_coefficients(data)
        return [lambda x: mixing @ x] * (conv.K - 1) + [lambda x: self.after(0, conv.lin(mixing @ x), x)]


def edge_counts(data):
    """[N, N]: how many edges lead from a node (column) to another one (row)."""
    counts = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    source, receiver = data.edge_index
    return counts.index_put_((receiver, source), torch.ones(len(source), dtype=torch.float64), accumulate=True)


def gcn_coefficients(data):
    """[N, N]: D^-½ (A + I) D^-½, one loop on every node whatever the input has."""
    adjacency = edge_counts(data)
    adjacency.fill_diagonal_(1.0)
    degree = adjacency.sum(dim=1)
    return adjacency / (degree.view(-1, 1) * degree).sqrt()


def mlp(inputs, outputs, *, bias=True):
    return nn.Sequential(nn.Linear(inputs, 2 * WIDTH, bias=bias), nn.ReLU(), nn.Linear(2 * WIDTH, outputs, bias=bias))


def attention(kind, **options):
    """Two heads: concatenated where the width allows it, averaged otherwise."""

    def make(inputs, outputs, *, bias=True):
        if outputs % 2 == 0 and options.get("concat", True):
            return kind(inputs, outputs // 2, heads=2, bias=bias, **options)
        return kind(inputs, outputs, heads=2, bias=bias, **{**options, "concat": False})

    return make


MAKERS = {
    "gcn": GCNConv,
    "sage_sum": lambda a, b, *, bias=True: SAGEConv(a, b, aggr="sum", bias=bias),
    "sage_mean": lambda a, b, *, bias=True: SAGEConv(a, b, aggr="mean", bias=bias),
    "sage_without_root": lambda a, b, *, bias=True: SAGEConv(a, b, aggr="sum", root_weight=False, bias=bias),
    "sage_mean_without_root": lambda a, b, *, bias=True: SAGEConv(a, b, aggr="mean", root_weight=False, bias=bias),
    "graph_conv": GraphConv,
    "gin": lambda a, b, *, bias=True: GINConv(mlp(a, b, bias=bias), train_eps=True),
    "gine": lambda a, b, *, bias=True: GINEConv(mlp(a, b, bias=bias), edge_dim=EDGE_FEATURES, train_eps=True),
    "gat": attention(GATConv),
    "gat_averaged": attention(GATConv, concat=False),
    "gat_attributes": attention(GATConv, edge_dim=EDGE_FEATURES),
    "gat_without_loops": attention(GATConv, add_self_loops=False),
    "gat_residual": attention(GATConv, **RESIDUAL),
    "gatv2": attention(GATv2Conv),
    "gatv2_averaged": attention(GATv2Conv, concat=False),
    "gatv2_attributes": attention(GATv2Conv, edge_dim=EDGE_FEATURES),
    "gatv2_without_loops": attention(GATv2Conv, add_self_loops=False),
}
KINDS = [*MAKERS, "sgc"]
ATTENTION = [name for name in MAKERS if name.startswith("gat")]
PLAIN = [name for name in KINDS if name not in ATTENTION]
WITH_RULES = ["gcn", "sage_sum", "sage_mean", "sage_without_root", "graph_conv", "gin", "gat", "gat_averaged"]


def stack(kind, calls, *, seed=0, bias=True, inputs=FEATURES, outputs=CLASSES, **options):
    """A randomised chain of one kind of conv: FEATURES (or `inputs`) → WIDTH → … → CLASSES."""
    with torch.random.fork_rng():
        if kind == "sgc":
            return zoo.randomise(SimpleStack(SGConv(inputs, outputs, K=calls, bias=bias), **options), seed)
        widths = [inputs, *[WIDTH] * (calls - 1), outputs]
        extra = "edge_attr" if kind == "gine" or kind.endswith("attributes") else None
        convs = [MAKERS[kind](a, b, bias=bias) for a, b in pairwise(widths)]
        return zoo.randomise(Stack(*convs, extra=extra, **options), seed)


def wide_stack(kind, calls, *, seed=0, bias=True, head=None, pool=None, **options):
    """All calls WIDTH wide (so that residuals fit), with a linear head or the given one."""
    with torch.random.fork_rng():
        head = nn.Linear(WIDTH, CLASSES, bias=bias) if head is None else head
    return stack(kind, calls, seed=seed, bias=bias, outputs=WIDTH, head=head, pool=pool, **options)
