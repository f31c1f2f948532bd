"""Models of typed graphs, a random typed graph, and an oracle that weights the messages of the user's own run.

The oracle shares nothing with the library: it runs the model on the `HeteroData` itself, finds the edge type of a call by
the very `edge_index` tensor that the layer was handed, and its layer by the name of the module (`one`, `two`).
"""

from collections import Counter

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINEConv,
    GraphConv,
    HANConv,
    HeteroConv,
    HGTConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    TransformerConv,
    to_hetero,
)

WIDTHS = {"user": 4, "movie": 5, "genre": 3}
COUNTS = {"user": 9, "movie": 7, "genre": 4}
RATES, RATED, FOLLOWS, HAS, TAGS = KINDS = [
    ("user", "rates", "movie"),
    ("movie", "rated_by", "user"),
    ("user", "follows", "user"),
    ("movie", "has", "genre"),
    ("genre", "tags", "movie"),
]
SIZES = {RATES: 16, RATED: 12, FOLLOWS: 11, HAS: 9, TAGS: 0}
HIDDEN, CLASSES = 6, 3


def typed_graph(seed=0, attributes=False):
    """Three node types, five edge types: parallel edges, a relation with loops, an empty type, isolated nodes."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, width in WIDTHS.items():
        data[name].x = torch.randn(COUNTS[name], width, generator=generator, dtype=torch.float64)
    for kind, size in SIZES.items():
        most = [COUNTS[kind[0]] - 1, COUNTS[kind[2]] - 1]  # the last node of each type is isolated
        ends = torch.stack([torch.randint(0, count, (size,), generator=generator) for count in most])
        if kind == FOLLOWS:
            ends[:, 3] = ends[0, 3]  # an explicit loop
        if kind == RATES:
            ends[:, 5] = ends[:, 4]  # a parallel edge
        data[kind].edge_index = ends
        if attributes:
            data[kind].edge_attr = torch.randn(size, 2, generator=generator, dtype=torch.float64)
            data[kind].edge_weight = torch.rand(size, generator=generator, dtype=torch.float64) + 0.5
    return data


def parts(conv, *, first):
    """A conv for each edge type: from the features, or between hidden states."""
    widths = WIDTHS if first else dict.fromkeys(WIDTHS, HIDDEN)
    return {kind: conv(kind, (widths[kind[0]], widths[kind[2]])) for kind in KINDS}


class Stacked(nn.Module):
    """Two layers by edge type, ReLU in between, a linear map to classes: a dict by node type comes out."""

    def __init__(self, conv, aggr="sum"):
        super().__init__()
        self.one = HeteroConv(parts(conv, first=True), aggr=aggr)
        self.two = HeteroConv(parts(conv, first=False), aggr=aggr)
        self.head = nn.ModuleDict({name: nn.Linear(HIDDEN, CLASSES) for name in WIDTHS})

    def forward(self, x_dict, edge_index_dict):
        hidden = {name: x.relu() for name, x in self.one(x_dict, edge_index_dict).items()}
        out = self.two(hidden, edge_index_dict)
        return {name: self.head[name](x) for name, x in out.items()}


class WithAttributes(Stacked):
    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        hidden = {n: x.relu() for n, x in self.one(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict).items()}
        out = self.two(hidden, edge_index_dict, edge_attr_dict=edge_attr_dict)
        return {name: self.head[name](x) for name, x in out.items()}


class WithWeights(Stacked):
    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        hidden = {n: x.tanh() for n, x in self.one(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict).items()}
        return self.two(hidden, edge_index_dict, edge_weight_dict=edge_weight_dict)


class Grouped(nn.Module):
    """HGT or HAN: one module for all types."""

    def __init__(self, conv):
        super().__init__()
        meta = (list(WIDTHS), KINDS)
        self.one, self.two = conv(WIDTHS, HIDDEN, meta, heads=2), conv(HIDDEN, HIDDEN, meta, heads=2)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x_dict, edge_index_dict):
        hidden = {name: x.relu() for name, x in self.one(x_dict, edge_index_dict).items()}
        return self.head(self.two(hidden, edge_index_dict)["movie"])


class Plain(nn.Module):
    """What `to_hetero` multiplies."""

    def __init__(self, conv):
        super().__init__()
        self.one, self.two = conv(HIDDEN), conv(HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        return self.head(self.two(self.one(x, edge_index).relu(), edge_index))


class ByHand(nn.Module):
    """Hand-written: movies read users, users follow users, movies read them again; a skip, log_softmax at the end."""

    def __init__(self):
        super().__init__()
        self.one = nn.ModuleDict({"a": GraphConv((4, 5), HIDDEN), "b": SAGEConv(4, 4)})
        self.two = nn.ModuleDict({"a": GATv2Conv((4, HIDDEN), HIDDEN, add_self_loops=False)})
        self.skip, self.head = nn.Linear(5, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x_dict, edge_index_dict):
        user, movie = x_dict["user"], x_dict["movie"]
        hidden = self.one["a"]((user, movie), edge_index_dict[RATES]).relu() + self.skip(movie)
        user = self.one["b"](user, edge_index_dict[FOLLOWS]).relu()
        out = self.two["a"]((user, hidden), edge_index_dict[RATES])
        return torch.log_softmax(self.head(out), dim=-1)


def _small(widths):
    return nn.Sequential(nn.Linear(widths[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))


class EqualWidth(nn.Module):
    """GINE needs senders and receivers of one width: features are encoded first."""

    def __init__(self):
        super().__init__()
        self.encode = nn.ModuleDict({name: nn.Linear(width, HIDDEN) for name, width in WIDTHS.items()})
        self.inner = WithAttributes(lambda kind, widths: GINEConv(_small((HIDDEN,)), edge_dim=2))

    @property
    def one(self):
        return self.inner.one

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        x_dict = {name: self.encode[name](x) for name, x in x_dict.items()}
        return self.inner(x_dict, edge_index_dict, edge_attr_dict)


def mixed(kind, widths):
    convs = {
        RATES: lambda: GATConv(widths, HIDDEN, add_self_loops=False),
        RATED: lambda: SAGEConv(widths, HIDDEN, aggr="sum"),
        FOLLOWS: lambda: GCNConv(widths[0], HIDDEN),
        HAS: lambda: GraphConv(widths, HIDDEN),
        TAGS: lambda: TransformerConv(widths, HIDDEN),
    }
    return convs[kind]()


class Joined(nn.Module):
    """Types encoded to one width and joined to one graph with `edge_type`: what relational convolutions take."""

    def __init__(self, conv):
        super().__init__()
        self.encode = nn.ModuleDict({name: nn.Linear(width, HIDDEN) for name, width in WIDTHS.items()})
        self.one, self.two = (conv(HIDDEN, HIDDEN, num_relations=len(KINDS)) for _ in range(2))
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x_dict, edge_index_dict):
        start, starts = 0, {}
        for name in WIDTHS:
            starts[name], start = start, start + len(x_dict[name])
        x = torch.cat([self.encode[name](x_dict[name]) for name in WIDTHS])
        shift = {kind: torch.tensor([[starts[kind[0]]], [starts[kind[2]]]]) for kind in KINDS}
        edge_index = torch.cat([edge_index_dict[kind] + shift[kind] for kind in KINDS], dim=1)
        counts = torch.tensor([edge_index_dict[kind].size(1) for kind in KINDS])
        edge_type = torch.repeat_interleave(torch.arange(len(KINDS)), counts)
        x = self.two(self.one(x, edge_index, edge_type).relu(), edge_index, edge_type)
        movies = starts["movie"]
        return self.head(x[movies : movies + len(x_dict["movie"])])


def _known(kind, widths):
    convs = {
        RATES: lambda: GATConv(widths, HIDDEN, add_self_loops=False),
        RATED: lambda: SAGEConv(widths, HIDDEN, aggr="sum"),
        FOLLOWS: lambda: GCNConv(widths[0], HIDDEN),
        HAS: lambda: GraphConv(widths, HIDDEN, aggr="mean"),
        TAGS: lambda: GATv2Conv(widths, HIDDEN, add_self_loops=False),
    }
    return convs[kind]()


def _hetero(conv):
    return to_hetero(Plain(conv), (list(WIDTHS), KINDS), aggr="sum")


MODELS = {
    "to_hetero sage": lambda: _hetero(lambda n: SAGEConv((-1, -1), n)),
    "to_hetero gat": lambda: _hetero(lambda n: GATConv((-1, -1), n, add_self_loops=False)),
    "sage sum": lambda: Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN)),
    "sage max": lambda: Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN, aggr="max"), aggr="max"),
    "gatv2 mean": lambda: Stacked(
        lambda kind, w: GATv2Conv(w, HIDDEN, add_self_loops=False, heads=2, concat=False), "mean"
    ),
    "mixed": lambda: Stacked(mixed),
    "known convs": lambda: Stacked(_known, aggr="mean"),
    "transformer edge_attr": lambda: WithAttributes(lambda kind, w: TransformerConv(w, HIDDEN, edge_dim=2)),
    "graphconv edge_weight": lambda: WithWeights(lambda kind, w: GraphConv(w, HIDDEN)),
    "gine": EqualWidth,
    "hgt": lambda: Grouped(HGTConv),
    "han": lambda: Grouped(HANConv),
    "by hand": ByHand,
    "rgcn": lambda: Joined(RGCNConv),
    "fast rgcn": lambda: Joined(FastRGCNConv),
    "sage mean": lambda: Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN, aggr="sum"), aggr="mean"),
    "graphconv min": lambda: Stacked(lambda kind, widths: GraphConv(widths, HIDDEN), aggr="min"),
    "to_hetero graphconv": lambda: _hetero(lambda n: GraphConv((-1, -1), n)),
}
LATE = ("fast rgcn", "sage mean", "graphconv min", "to_hetero graphconv")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LATE else name for name in MODELS]
"""The names of all models; some of them are left to slow runs."""
NOT_LOCAL = {"han"}
LOWERED = {
    "to_hetero sage",
    "to_hetero gat",
    "sage sum",
    "gatv2 mean",
    "graphconv edge_weight",
    "known convs",
    "by hand",
    "sage mean",
    "graphconv min",
    "to_hetero graphconv",
}
WITH_ATTRIBUTES = {"transformer edge_attr", "graphconv edge_weight", "gine"}


def typed_model(name, seed=0):
    """A model in float64 with random biases, and its graph."""
    torch.manual_seed(seed)
    model, data = MODELS[name]().double().eval(), typed_graph(seed, attributes=name in WITH_ATTRIBUTES)
    with torch.no_grad():
        call(model, data)  # lazy layers
        for parameter in model.parameters():
            if parameter.dim() <= 1 or bool((parameter == 0).all()):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model, data


def call(model, data):
    """The model as its documentation says, on the user's own graph."""
    names = model.forward.__code__.co_varnames
    more = {key: getattr(data, key) for key in ("edge_attr_dict", "edge_weight_dict") if key in names}
    return model(data.x_dict, data.edge_index_dict, **more)


def rows_of(output, name):
    """The output of one type before a log_softmax of ours could be undone: as the model gives it."""
    return output[name] if isinstance(output, dict) else output


def weighted_value(model, data, weights, name, number, target):
    """The model's output of one node and column with ω on every message: `weights[kind]` is `[2, E_kind]`."""
    given = {data[kind].edge_index.data_ptr(): kind for kind in KINDS if SIZES[kind]}
    current, calls = {}, Counter()

    def before(module, inputs):
        used, layer = inputs[0], layers[module]
        kind = given.get(used.data_ptr())
        if kind is not None:
            current[module] = weights[kind][layer]
        elif isinstance(module, RGCNConv) and not isinstance(
            module, FastRGCNConv
        ):  # a call for each relation, in their order
            current[module] = weights[KINDS[calls[module]]][layer]
            calls[module] += 1
        elif used.size(1) == sum(
            data[kind].num_edges for kind in KINDS
        ):  # HGT: all types in the order of the dictionary
            current[module] = torch.cat([weights[kind][layer] for kind in KINDS])
        elif used.size(1) == 0:
            current[module] = torch.ones(0, dtype=torch.float64)
        else:  # a GCN on users that follow users: loops are taken out, and one is added for each node
            ends = data[FOLLOWS].edge_index
            plain = ends[0] != ends[1]
            last = {
                int(ends[0, column]): column for column in (~plain).nonzero().view(-1).tolist()
            }  # the last one counts
            loops = [weights[FOLLOWS][layer, last[v]] if v in last else weights[FOLLOWS].new_ones(()) for v in range(9)]
            current[module] = torch.cat([weights[FOLLOWS][layer][plain], torch.stack(loops)])

    def message(module, inputs, output):
        shape = [1] * output.dim()
        shape[module.node_dim] = -1
        return output * current[module].view(shape)

    layers = {m: int(".two" in f".{n}") for n, m in model.named_modules() if isinstance(m, MessagePassing)}
    handles = [m.register_propagate_forward_pre_hook(before) for m in layers]
    handles += [m.register_message_forward_hook(message) for m in layers]
    try:
        return rows_of(call(model, data), name)[number, target]
    finally:
        for handle in handles:
            handle.remove()


def ones(dtype=torch.float64):
    """ω = 1 for every layer and edge type."""
    return {kind: torch.ones(2, size, dtype=dtype) for kind, size in SIZES.items()}
