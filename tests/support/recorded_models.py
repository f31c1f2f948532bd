"""Models and graphs of the recorded answers: nothing in them depends on a random generator of torch or on Edgewise.

Every number is a hash of a name and a position. Names are seeds: a model that is renamed is another model.
"""

import zlib
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import scatter, softmax

FEATURES, WIDTH, CLASSES, EDGE_FEATURES, RELATIONS = 4, 4, 3, 2, 3
SMALL = ((0, 1), (1, 0), (1, 2), (2, 3), (3, 1), (3, 1), (4, 2), (2, 4), (5, 3), (4, 4), (6, 5), (0, 6), (6, 4), (3, 0))
SMALL_NODES = 8  # node 7 is isolated
NODES, PAIRS = (1, 4), ((0, 1), (4, 3))


# Numbers ##############################################################################################################


def _bits(name: str, count: int) -> np.ndarray:
    """64 bits for each position: the generator splitmix64 (Steele et al., 2014), started from a name."""
    with np.errstate(over="ignore"):
        bits = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 20)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def numbers(name: str, *shape: int) -> torch.Tensor:
    """Between -1 and 1, float64."""
    drawn = (_bits(name, int(np.prod(shape))) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
    return torch.from_numpy(drawn).view(shape)


def integers(name: str, below: int, *shape: int) -> torch.Tensor:
    drawn = (_bits(name, int(np.prod(shape))) >> np.uint64(20)) % np.uint64(below)
    return torch.from_numpy(drawn.astype(np.int64)).view(shape)


def fill(name: str, model: nn.Module) -> nn.Module:
    """Generic values everywhere, in float64: biases, slopes and statistics of norms included."""
    model = model.double().eval()
    scales = {id(norm.weight) for norm in model.modules() if "Norm" in type(norm).__name__ and hasattr(norm, "weight")}
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            drawn = numbers(f"{name}, {place}", *parameter.shape)
            wide = parameter.dim() > 1
            parameter.copy_(drawn * (2 / parameter.shape[-1] ** 0.5 if wide else 0.5) + (id(parameter) in scales))
        for place, module in enumerate(model.modules()):
            if getattr(module, "running_mean", None) is not None:
                module.running_mean.copy_(numbers(f"{name}, mean {place}", *module.running_mean.shape) * 0.5)
                module.running_var.copy_(numbers(f"{name}, variance {place}", *module.running_var.shape) * 0.5 + 1)
    return model


# Graphs ###############################################################################################################


def plain_graph(name: str = "small", edges=SMALL, nodes: int = SMALL_NODES) -> Data:
    edge_index = edges if isinstance(edges, torch.Tensor) else torch.tensor(edges).t().contiguous()
    count = edge_index.size(1)
    return Data(
        x=numbers(f"{name}, x", nodes, FEATURES),
        edge_index=edge_index,
        edge_weight=1 + 0.5 * numbers(f"{name}, weight", count),
        edge_attr=numbers(f"{name}, attributes", count, EDGE_FEATURES),
        edge_type=integers(f"{name}, relation", RELATIONS, count),
        pos=numbers(f"{name}, position", nodes, 2),
    )


def drawn_graph(name: str, nodes: int, edges: int, *, loops: bool = True) -> Data:
    """Random edges; a tenth of the nodes receive a third of them."""
    source, receiver = integers(f"{name}, sources", nodes, edges), integers(f"{name}, receivers", nodes, edges)
    crowded = integers(f"{name}, crowd", 3, edges) == 0
    receiver = torch.where(crowded, receiver % max(nodes // 10, 1), receiver)
    if not loops:
        receiver = torch.where(source == receiver, (receiver + 1) % nodes, receiver)
    return plain_graph(name, torch.stack([source, receiver]), nodes)


def molecules(count: int = 4, name: str = "molecule") -> list[Data]:
    """Rings with a tail, bonds both ways, each of another size."""
    found = []
    for number in range(count):
        ring, tail = 3 + number % 3, 1 + number % 2
        bonds = [(i, (i + 1) % ring) for i in range(ring)] + [(ring - 1 + i, ring + i) for i in range(tail)]
        both = [end for a, b in bonds for end in ((a, b), (b, a))]
        found.append(plain_graph(f"{name} {number}", both, ring + tail))
    return found


WIDTHS = {"user": 3, "movie": 4, "genre": 2}
COUNTS = {"user": 6, "movie": 5, "genre": 3}
KINDS = [
    ("user", "rates", "movie"),
    ("movie", "rated_by", "user"),
    ("user", "follows", "user"),
    ("movie", "has", "genre"),
    ("genre", "tags", "movie"),
]
RATES = KINDS[0]


def typed_graph(name: str = "typed", edges: int = 6) -> HeteroData:
    data = HeteroData()
    for kind, width in WIDTHS.items():
        data[kind].x = numbers(f"{name}, {kind}", COUNTS[kind], width)
    for kind in KINDS:
        ends = [integers(f"{name}, {kind[1]} {end}", COUNTS[end] - 1, edges) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
        data[kind].edge_attr = numbers(f"{name}, {kind[1]} attributes", edges, EDGE_FEATURES)
        data[kind].edge_weight = 1 + 0.5 * numbers(f"{name}, {kind[1]} weight", edges)
    return data


# Plain models #########################################################################################################


def mlp(inputs: int, outputs: int, norm: type | None = None) -> nn.Module:
    middle = [nn.Linear(inputs, WIDTH), *([] if norm is None else [norm(WIDTH)]), nn.ReLU()]
    return nn.Sequential(*middle, nn.Linear(WIDTH, outputs))


class Layers(nn.Module):
    """Convs with an activation, norms and skips between them; `encode` gives rows of the width of the last one."""

    def __init__(self, *convs, act=torch.relu, norms=(), skip=None, jump=None, head=None, end=None):
        super().__init__()
        self.convs, self.norms, self.act, self.skip = nn.ModuleList(convs), nn.ModuleList(norms), act, skip
        self.jump = None if jump is None else pyg.JumpingKnowledge(jump, WIDTH, len(convs))
        self.skips = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in convs]) if skip == "linear" else None
        self.head, self.end = head, end

    def encode(self, x, edge_index, *more, batch=None):
        states = []
        for layer, conv in enumerate(self.convs):
            out = conv(x, edge_index, *more)
            if layer < len(self.norms):
                norm = self.norms[layer]
                out = norm(out, batch) if batch is not None and isinstance(norm, GRAPH_NORMS) else norm(out)
            if layer + 1 < len(self.convs) or self.jump is not None:
                out = self.act(out)
            if self.skip and out.shape == x.shape:
                out = out + (x if self.skips is None else self.skips[layer](x))
            states.append(out)
            x = out
        return x if self.jump is None else self.jump(states)

    def finish(self, x):
        x = x if self.head is None else self.head(x)
        return x if self.end is None else self.end(x)

    def forward(self, x, edge_index):
        return self.finish(self.encode(x, edge_index))


GRAPH_NORMS = (pyg.LayerNorm, pyg.GraphNorm)


class WithWeights(Layers):
    def forward(self, x, edge_index, edge_weight):
        return self.finish(self.encode(x, edge_index, edge_weight))


class WithAttributes(Layers):
    def forward(self, x, edge_index, edge_attr):
        return self.finish(self.encode(x, edge_index, edge_attr))


class WithRelations(Layers):
    def forward(self, x, edge_index, edge_type):
        return self.finish(self.encode(x, edge_index, edge_type))


class WithFeatures(Layers):
    """Convs that read the first state again."""

    def encode(self, x, edge_index):
        first = x
        for conv in self.convs:
            x = self.act(conv(x, first, edge_index))
        return x


class BothWays(Layers):
    """Edges are taken in both directions."""

    def encode(self, x, edge_index):
        return super().encode(x, torch.cat([edge_index, edge_index.flip(0)], dim=1))


class Context(Layers):
    """The mean of all nodes is added: explained on the whole graph."""

    def encode(self, x, edge_index):
        x = super().encode(x, edge_index)
        return x + x.mean(dim=0, keepdim=True).tanh()


class LongSkip(Layers):
    def encode(self, x, edge_index):
        return super().encode(x, edge_index) + x[:, :CLASSES]


class Positions(Layers):
    def forward(self, x, edge_index, pos):
        return self.finish(self.encode(torch.cat([x, pos], dim=-1), edge_index))


class Stopped(Layers):
    """A gradient that stops half way."""

    def encode(self, x, edge_index):
        first, second = self.convs
        hidden = first(x, edge_index).relu()
        return second(hidden + hidden.detach().sigmoid(), edge_index)


class Gated(pyg.MessagePassing):
    """A user's own layer: a gate that reads both ends, and a root."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="mean")
        self.lin, self.root = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        self.gate = nn.Linear(2 * inputs, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) + self.root(x)

    def message(self, x_i, x_j):
        return self.gate(torch.cat([x_i, x_j], dim=-1)).sigmoid() * self.lin(x_j)


class Attended(pyg.MessagePassing):
    """A user's own attention."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="sum")
        self.lin, self.key = nn.Linear(inputs, outputs), nn.Linear(2 * inputs, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j, index, size_i):
        score = self.key(torch.cat([x_i, x_j], dim=-1)).tanh()
        return softmax(score, index, num_nodes=size_i) * self.lin(x_j)


class ByHand(nn.Module):
    """Messages without PyG: rows are gathered, transformed and scattered."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin, self.root = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        sent = self.lin(x)[edge_index[0]]
        return scatter(sent, edge_index[1], dim=0, dim_size=len(x), reduce="sum") + self.root(x)


class ByProduct(nn.Module):
    """Messages as a sparse product, A @ X."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin, self.root = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        ones = x.new_ones(edge_index.size(1))
        matrix = torch.sparse_coo_tensor(edge_index.flip(0), ones, (len(x), len(x)))
        return torch.sparse.mm(matrix, self.lin(x)) + self.root(x)


def chain(conv, calls: int = 2, kind: type = Layers, out: int = CLASSES, **options):
    """A function that makes a chain of convs `conv(inputs, outputs)`."""

    def make():
        widths = [FEATURES, *[WIDTH] * (calls - 1), out]
        given = {key: value() if key in ("norms", "head") else value for key, value in options.items()}
        return kind(*[conv(a, b) for a, b in pairwise(widths)], **given)

    return make


def headed(conv, kind: type = Layers, **options):
    """Two heads side by side, then two heads averaged."""
    return lambda: kind(
        conv(FEATURES, WIDTH // 2, heads=2, **options), conv(WIDTH, CLASSES, heads=2, concat=False, **options)
    )


def norms(norm):
    return lambda: [norm(WIDTH)]


def classes():
    return nn.Linear(WIDTH, CLASSES)


def _pna(inputs, outputs):
    scalers = ["identity", "amplification", "attenuation"]
    degree = torch.tensor([1, 3, 2, 1])
    return pyg.PNAConv(inputs, outputs, ["mean", "max", "std"], scalers, degree, edge_dim=EDGE_FEATURES)


EDGES = {"edge_dim": EDGE_FEATURES}
NODE_MODELS = {
    "gcn": chain(pyg.GCNConv, 3),
    "gcn weights": chain(lambda a, b: pyg.GCNConv(a, b, improved=True), kind=WithWeights),
    "gcn reversed": chain(lambda a, b: pyg.GCNConv(a, b, flow="target_to_source")),
    "gcn bare": chain(lambda a, b: pyg.GCNConv(a, b, add_self_loops=False, normalize=False, bias=False)),
    "sage mean": chain(pyg.SAGEConv, 3),
    "sage sum": chain(lambda a, b: pyg.SAGEConv(a, b, aggr="sum")),
    "sage max": chain(lambda a, b: pyg.SAGEConv(a, b, aggr="max")),
    "sage normalised": chain(lambda a, b: pyg.SAGEConv(a, b, normalize=True, project=True)),
    "gin": chain(lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True)),
    "gin batch norm": chain(lambda a, b: pyg.GINConv(mlp(a, b, nn.BatchNorm1d), train_eps=True)),
    "gine": chain(lambda a, b: pyg.GINEConv(mlp(a, b), train_eps=True, **EDGES), kind=WithAttributes),
    "graph conv": chain(pyg.GraphConv, 3, kind=WithWeights),
    "graph conv max": chain(lambda a, b: pyg.GraphConv(a, b, aggr="max")),
    "gat": headed(pyg.GATConv),
    "gat attributes": headed(pyg.GATConv, WithAttributes, **EDGES),
    "gat residual": headed(pyg.GATConv, residual=True),
    "gatv2": headed(pyg.GATv2Conv),
    "gatv2 attributes": headed(pyg.GATv2Conv, WithAttributes, **EDGES),
    "gatv2 mean": headed(pyg.GATv2Conv, aggr="mean", add_self_loops=False, share_weights=True),
    "transformer": headed(pyg.TransformerConv),
    "transformer attributes": headed(pyg.TransformerConv, WithAttributes, **EDGES),
    "transformer gated": headed(pyg.TransformerConv, beta=True),
    "sg": chain(lambda a, b: pyg.SGConv(a, b, K=2), 1),
    "ssg": chain(lambda a, b: pyg.SSGConv(a, b, alpha=0.2, K=2), 1),
    "tag": chain(lambda a, b: pyg.TAGConv(a, b, K=2), kind=WithWeights),
    "cheb": chain(lambda a, b: pyg.ChebConv(a, b, K=2)),
    "arma": chain(lambda a, b: pyg.ARMAConv(a, b, num_stacks=2, num_layers=1)),
    "gated graph": chain(pyg.ResGatedGraphConv),
    "gated graph attributes": chain(lambda a, b: pyg.ResGatedGraphConv(a, b, **EDGES), kind=WithAttributes),
    "rgcn": chain(lambda a, b: pyg.RGCNConv(a, b, RELATIONS), kind=WithRelations),
    "rgat": chain(lambda a, b: pyg.RGATConv(a, b, RELATIONS), kind=WithRelations),
    "film": chain(lambda a, b: pyg.FiLMConv(a, b, RELATIONS), kind=WithRelations),
    "pna": chain(_pna, kind=WithAttributes),
    "appnp": lambda: Layers(pyg.SAGEConv(FEATURES, CLASSES), pyg.APPNP(2, 0.2)),
    "gcn2": lambda: WithFeatures(*[pyg.GCN2Conv(WIDTH, 0.2, 0.5, 1) for _ in range(2)], head=classes()),
    "fa": lambda: WithFeatures(*[pyg.FAConv(WIDTH, 0.2) for _ in range(2)], head=classes()),
    "le": chain(pyg.LEConv, kind=WithWeights),
    "gen": chain(lambda a, b: pyg.GENConv(a, b, aggr="softmax", norm="layer", **EDGES), kind=WithAttributes),
    "edge conv": chain(lambda a, b: pyg.EdgeConv(mlp(2 * a, b), aggr="max")),
    "nn conv": chain(lambda a, b: pyg.NNConv(a, b, mlp(EDGE_FEATURES, a * b), aggr="mean"), kind=WithAttributes),
    "super gat": headed(pyg.SuperGATConv),
    "general": chain(lambda a, b: pyg.GeneralConv(a, b, attention=True, heads=2)),
    "hypergraph": chain(pyg.HypergraphConv),
    "dir gcn": chain(lambda a, b: pyg.DirGNNConv(pyg.GCNConv(a, b, add_self_loops=False), alpha=0.3)),
    "dir sage": chain(lambda a, b: pyg.DirGNNConv(pyg.SAGEConv(a, b), alpha=0.6, root_weight=True)),
    "own gated": chain(Gated),
    "own attention": chain(Attended),
    "own scatter": chain(ByHand),
    "own product": chain(ByProduct),
    "both ways": chain(pyg.SAGEConv, kind=BothWays),
    "context": chain(pyg.SAGEConv, kind=Context),
    "positions": lambda: Positions(pyg.GCNConv(FEATURES + 2, WIDTH), pyg.SAGEConv(WIDTH, CLASSES)),
    "batch norm": chain(pyg.SAGEConv, norms=norms(nn.BatchNorm1d)),
    "layer norm": chain(pyg.GCNConv, norms=norms(lambda width: pyg.LayerNorm(width, mode="node"))),
    "layer norm of graphs": chain(pyg.GCNConv, norms=norms(pyg.LayerNorm)),
    "graph norm": chain(pyg.SAGEConv, norms=norms(pyg.GraphNorm)),
    "jump cat": chain(pyg.GCNConv, out=WIDTH, jump="cat", head=lambda: nn.Linear(2 * WIDTH, CLASSES)),
    "jump max": chain(pyg.SAGEConv, out=WIDTH, jump="max", head=classes),
    "jump lstm": chain(pyg.GCNConv, out=WIDTH, jump="lstm", head=classes),
    "residual": chain(pyg.GCNConv, 3, out=WIDTH, skip="plain", head=classes),
    "residual linear": chain(pyg.SAGEConv, out=WIDTH, skip="linear", head=classes),
    "long skip": chain(pyg.GCNConv, kind=LongSkip),
    "leaky": chain(pyg.GCNConv, act=nn.LeakyReLU(0.2)),
    "smooth": chain(pyg.SAGEConv, act=nn.functional.gelu),
    "tall head": chain(pyg.SAGEConv, out=WIDTH, head=lambda: mlp(WIDTH, CLASSES)),
    "log softmax": chain(pyg.GCNConv, end=nn.LogSoftmax(dim=-1)),
    "softmax": chain(pyg.GCNConv, end=nn.Softmax(dim=-1)),
    "sigmoid": chain(pyg.SAGEConv, end=nn.Sigmoid()),
    "one logit": chain(pyg.GCNConv, out=1),
    "one probability": chain(pyg.GCNConv, out=1, end=nn.Sigmoid()),
    "value": chain(pyg.GATv2Conv, out=2),
    "stopped": chain(pyg.GCNConv, kind=Stopped),
}
TOLD = {
    "value": {"mode": "regression", "target": 1},
    "positions": {"forward": lambda model, data: model(data.x, data.edge_index, data.pos)},
    "rgcn": {"forward": lambda model, data: model(data.x, data.edge_index, data.edge_type)},
}
TOLD |= {"rgat": TOLD["rgcn"], "film": TOLD["rgcn"]}
"""What the library must be told about a model besides its graph and its targets."""


# Models of graphs and of links ########################################################################################


class Pooled(nn.Module):
    """Layers, a pool, a head; `middle` pools in between and adds the graph to its nodes."""

    def __init__(self, layers, pool=pyg.global_mean_pool, out=CLASSES, width=WIDTH, *, middle=False):
        super().__init__()
        self.layers, self.pool, self.middle, self.head = layers, pool, middle, nn.Linear(width, out)

    def run(self, batch, x, edge_index, *more):
        if self.middle:
            x = x + pyg.global_mean_pool(x, batch)[batch].tanh()
        return self.head(self.pool(self.layers.encode(x, edge_index, *more, batch=batch).relu(), batch))

    def forward(self, x, edge_index, batch):
        return self.run(batch, x, edge_index)


class PooledWithAttributes(Pooled):
    def forward(self, x, edge_index, edge_attr, batch):
        return self.run(batch, x, edge_index, edge_attr)


def two_pools(x, batch):
    return torch.cat([pyg.global_mean_pool(x, batch), pyg.global_max_pool(x, batch)], dim=-1)


def pooled(layers, pool=pyg.global_mean_pool, kind: type = Pooled, **options):
    return lambda: kind(layers(), pool, **options)


def _wide(conv, kind: type = Layers, **options):
    return chain(conv, kind=kind, out=WIDTH, **options)


GRAPH_MODELS = {
    "gcn, mean": pooled(_wide(pyg.GCNConv)),
    "sage, sum": pooled(_wide(pyg.SAGEConv), pyg.global_add_pool),
    "gin, max": pooled(_wide(lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True)), pyg.global_max_pool),
    "gin batch norm, sum": pooled(
        _wide(lambda a, b: pyg.GINConv(mlp(a, b, nn.BatchNorm1d)), norms=norms(nn.BatchNorm1d)), pyg.global_add_pool
    ),
    "gine, sum": pooled(
        _wide(lambda a, b: pyg.GINEConv(mlp(a, b), **EDGES), WithAttributes), pyg.global_add_pool, PooledWithAttributes
    ),
    "gat, mean": pooled(_wide(lambda a, b: pyg.GATConv(a, b, **EDGES), WithAttributes), kind=PooledWithAttributes),
    "gatv2, two pools": pooled(_wide(pyg.GATv2Conv), two_pools, width=2 * WIDTH),
    "transformer, mean": pooled(_wide(pyg.TransformerConv)),
    "gated graph, sum": pooled(_wide(pyg.ResGatedGraphConv), pyg.global_add_pool),
    "layer norm, mean": pooled(_wide(pyg.GCNConv, norms=norms(pyg.LayerNorm))),
    "attention pool": lambda: Pooled(_wide(pyg.SAGEConv)(), pyg.AttentionalAggregation(nn.Linear(WIDTH, 1))),
    "pool between": pooled(_wide(pyg.SAGEConv), middle=True),
    "one logit": pooled(_wide(pyg.GraphConv), out=1),
}


class Linked(nn.Module):
    """Layers, and a decoder of both ends: a product, a weighted product with a sigmoid, or an MLP."""

    def __init__(self, layers, decoder):
        super().__init__()
        self.layers, self.decoder = layers, decoder
        self.weight = nn.Parameter(torch.ones(WIDTH)) if decoder == "weighted" else None
        self.score = mlp(2 * WIDTH, 1) if decoder == "mlp" else None

    def encode(self, x, edge_index):
        return self.layers.encode(x, edge_index)

    def decode(self, z, edge_label_index):
        a, b = z[edge_label_index[0]], z[edge_label_index[1]]
        if self.score is not None:
            return self.score(torch.cat([a, b], dim=-1)).view(-1)
        return (a * b).sum(dim=-1) if self.weight is None else (a * self.weight * b).sum(dim=-1).sigmoid()


def linked(conv, decoder, **options):
    return lambda: Linked(_wide(conv, **options)(), decoder)


LINK_MODELS = {
    "gcn, product": linked(pyg.GCNConv, "product"),
    "sage, mlp": linked(pyg.SAGEConv, "mlp"),
    "gat, weighted": linked(pyg.GATConv, "weighted"),
    "gin, mlp": linked(lambda a, b: pyg.GINConv(mlp(a, b)), "mlp"),
    "gatv2, product": linked(pyg.GATv2Conv, "product"),
    "jump, mlp": linked(pyg.SAGEConv, "mlp", jump="max"),
    "layer norm, product": linked(pyg.GCNConv, "product", norms=norms(pyg.LayerNorm)),
}


# Models of typed graphs ###############################################################################################


class Typed(nn.Module):
    """Two layers by edge type, and a head for each node type."""

    def __init__(self, conv, aggr="sum", act=torch.relu):
        super().__init__()
        self.act = act
        hidden = dict.fromkeys(WIDTHS, WIDTH)
        self.convs = nn.ModuleList(
            [
                pyg.HeteroConv({kind: conv(kind, (width[kind[0]], width[kind[2]])) for kind in KINDS}, aggr)
                for width in (WIDTHS, hidden)
            ]
        )
        self.head = nn.ModuleDict({name: nn.Linear(WIDTH, CLASSES) for name in WIDTHS})

    def encode(self, x_dict, edge_index_dict, **more):
        for conv in self.convs:
            x_dict = {name: self.act(x) for name, x in conv(x_dict, edge_index_dict, **more).items()}
        return x_dict

    def forward(self, x_dict, edge_index_dict):
        return {name: self.head[name](x) for name, x in self.encode(x_dict, edge_index_dict).items()}


class TypedWithAttributes(Typed):
    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        found = self.encode(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        return {name: self.head[name](x) for name, x in found.items()}


class TypedWithWeights(Typed):
    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        found = self.encode(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        return {name: self.head[name](x) for name, x in found.items()}


class Grouped(nn.Module):
    """HGT or HAN: one module for all types."""

    def __init__(self, conv):
        super().__init__()
        meta = (list(WIDTHS), KINDS)
        self.one, self.two = conv(WIDTHS, WIDTH, meta, heads=2), conv(WIDTH, WIDTH, meta, heads=2)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x_dict, edge_index_dict):
        hidden = {name: x.relu() for name, x in self.one(x_dict, edge_index_dict).items()}
        return self.head(self.two(hidden, edge_index_dict)["movie"])


class Joined(nn.Module):
    """Types encoded to one width and joined to one graph with relations."""

    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleDict({name: nn.Linear(width, WIDTH) for name, width in WIDTHS.items()})
        self.one, self.two = pyg.RGCNConv(WIDTH, WIDTH, len(KINDS)), pyg.RGCNConv(WIDTH, CLASSES, len(KINDS))

    def forward(self, x_dict, edge_index_dict):
        starts, start = {}, 0
        for name in WIDTHS:
            starts[name], start = start, start + len(x_dict[name])
        x = torch.cat([self.encoders[name](x_dict[name]) for name in WIDTHS])
        shifts = [torch.tensor([[starts[kind[0]]], [starts[kind[2]]]]) for kind in KINDS]
        edge_index = torch.cat(
            [edge_index_dict[kind] + shift for kind, shift in zip(KINDS, shifts, strict=True)], dim=1
        )
        counts = torch.tensor([edge_index_dict[kind].size(1) for kind in KINDS])
        relation = torch.repeat_interleave(torch.arange(len(KINDS)), counts)
        x = self.two(self.one(x, edge_index, relation).relu(), edge_index, relation)
        return x[starts["movie"] : starts["movie"] + len(x_dict["movie"])]


class TypedPool(Typed):
    def forward(self, x_dict, edge_index_dict, batch_dict):
        found = self.encode(x_dict, edge_index_dict)
        return self.head["movie"](sum(pyg.global_add_pool(x, batch_dict[name]) for name, x in found.items()))


class TypedLink(Typed):
    """A product, or an MLP, of a user and a movie."""

    def __init__(self, conv, aggr="sum", *, deep=False):
        super().__init__(conv, aggr, torch.tanh)
        self.score = mlp(2 * WIDTH, 1) if deep else None

    def decode(self, z_dict, edge_label_index):
        user, movie = z_dict["user"][edge_label_index[0]], z_dict["movie"][edge_label_index[1]]
        if self.score is None:
            return (user * movie).sum(dim=-1)
        return self.score(torch.cat([user, movie], dim=-1)).view(-1)


def _each(conv, **options):
    """The same conv for every edge type."""
    return lambda kind, widths: conv(widths, WIDTH, **options)


def _mixed(kind, widths):
    convs = dict(
        zip(
            KINDS,
            (
                lambda: pyg.GATConv(widths, WIDTH, add_self_loops=False),
                lambda: pyg.SAGEConv(widths, WIDTH, aggr="sum"),
                lambda: pyg.GCNConv(widths[0], WIDTH),
                lambda: pyg.GraphConv(widths, WIDTH),
                lambda: pyg.TransformerConv(widths, WIDTH),
            ),
            strict=True,
        )
    )
    return convs[kind]()


ATTENTION = {"add_self_loops": False, "heads": 2, "concat": False}
TYPED_MODELS = {
    "sage": lambda: Typed(_each(pyg.SAGEConv)),
    "sage max": lambda: Typed(_each(pyg.SAGEConv, aggr="max"), "max"),
    "graph conv weights": lambda: TypedWithWeights(_each(pyg.GraphConv), "mean"),
    "gat": lambda: Typed(_each(pyg.GATConv, **ATTENTION)),
    "gatv2 attributes": lambda: TypedWithAttributes(_each(pyg.GATv2Conv, **ATTENTION, **EDGES), "mean"),
    "transformer attributes": lambda: TypedWithAttributes(_each(pyg.TransformerConv, **EDGES)),
    "mixed": lambda: Typed(_mixed),
    "hgt": lambda: Grouped(pyg.HGTConv),
    "han": lambda: Grouped(pyg.HANConv),
    "rgcn": Joined,
}
TYPED_GRAPH_MODELS = {
    "sage, sum": lambda: TypedPool(_each(pyg.SAGEConv)),
    "gatv2, sum": lambda: TypedPool(_each(pyg.GATv2Conv, **ATTENTION)),
}
TYPED_LINK_MODELS = {
    "sage, product": lambda: TypedLink(_each(pyg.SAGEConv)),
    "gat, mlp": lambda: TypedLink(_each(pyg.GATConv, **ATTENTION), deep=True),
}
