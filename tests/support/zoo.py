"""Small named models and small named graphs: float64, eval mode, seeded; everything the library promises to explain.

A `Case` says what is known about its model: how many message-passing calls it makes and, for every call, whether its
own term is defined (`YES`), is known to be inseparable (`NO`), or is left open (`OPEN`).
Activations are smooth, or the weights generic, so that finite differences are valid.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    MLP,
    PNA,
    ChebConv,
    EdgeCNN,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    GraphSAGE,
    LayerNorm,
    PNAConv,
    SAGEConv,
    Sequential,
    SGConv,
    TransformerConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from pyg_versions import RESIDUAL

FEATURES, WIDTH, CLASSES, EDGE_FEATURES = 5, 4, 3, 2
YES, NO, OPEN = "yes", "no", "open"


# Models ###############################################################################################################


class Chain(nn.Module):
    """Convs one after the other, with an activation in between and optional norms before it."""

    def __init__(self, *convs, act=torch.tanh, norms=()):
        super().__init__()
        self.convs, self.norms, self.act = nn.ModuleList(convs), nn.ModuleList(norms), act

    def forward(self, x, edge_index):
        return self.run(x, lambda conv, hidden: conv(hidden, edge_index))

    def run(self, x, step):
        for layer, conv in enumerate(self.convs):
            x = step(conv, x)
            if layer < len(self.norms):
                x = self.norms[layer](x)
            if layer + 1 < len(self.convs):
                x = self.act(x)
        return x


class ChainWithAttributes(Chain):
    def forward(self, x, edge_index, edge_attr):
        return self.run(x, lambda conv, hidden: conv(hidden, edge_index, edge_attr=edge_attr))


class ChainWithWeights(Chain):
    def forward(self, x, edge_index, edge_weight=None):
        return self.run(x, lambda conv, hidden: conv(hidden, edge_index, edge_weight))


class ChainOverData(ChainWithAttributes):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.edge_attr)


class PositionsBesideFeatures(Chain):
    """Reads an attribute that no signature names: only `forward=` can tell the library."""

    def forward(self, data):
        return super().forward(torch.cat([data.x, data.pos], dim=-1), data.edge_index)


class OtherOrder(nn.Module):
    """Registered last to first, and one of them in a dictionary."""

    def __init__(self):
        super().__init__()
        self.zoo = nn.ModuleDict({"last": GCNConv(WIDTH, CLASSES)})
        self.middle = SAGEConv(WIDTH, WIDTH, aggr="sum")
        self.alpha = GraphConv(FEATURES, WIDTH)

    def forward(self, x, edge_index):
        x = torch.tanh(self.alpha(x, edge_index))
        return self.zoo["last"](torch.tanh(self.middle(x, edge_index)), edge_index)


class Twice(nn.Module):
    """One conv called two times."""

    def __init__(self, first, shared, head):
        super().__init__()
        self.shared, self.first, self.head = shared, first, head

    def forward(self, x, edge_index):
        x = torch.tanh(self.first(x, edge_index))
        for _ in range(2):
            x = torch.tanh(self.shared(x, edge_index))
        return self.head(x)


class Residual(nn.Module):
    """Every call's input is added to its output, before or after the activation, as it is or through a matrix."""

    def __init__(self, make_conv, *, linear, after, act=torch.tanh, bias=True):
        super().__init__()
        self.encoder, self.head = nn.Linear(FEATURES, WIDTH, bias=bias), nn.Linear(WIDTH, CLASSES, bias=bias)
        self.convs = nn.ModuleList([make_conv(), make_conv()])
        self.skips = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]) if linear else None
        self.after, self.act = after, act

    def skip(self, layer, x):
        return x if self.skips is None else self.skips[layer](x)

    def forward(self, x, edge_index):
        x = self.encoder(x)
        for layer, conv in enumerate(self.convs):
            if self.after:
                x = self.act(conv(x, edge_index)) + self.skip(layer, x)
            else:
                x = self.act(conv(x, edge_index) + self.skip(layer, x))
        return self.head(x)


class LongSkip(nn.Module):
    """The features jump over two calls: a bypass, no call's own term."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.jump = (
            GCNConv(FEATURES, WIDTH),
            GCNConv(WIDTH, CLASSES),
            nn.Linear(FEATURES, CLASSES),
        )

    def forward(self, x, edge_index):
        return self.second(torch.tanh(self.first(x, edge_index)), edge_index) + self.jump(x)


class Squeezed(Chain):
    """One logit a node, returned as a vector."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index).squeeze(-1)


class Pooled(nn.Module):
    """A graph model: convs, a pooling, a linear head."""

    def __init__(self, *convs, pool=global_mean_pool, out=CLASSES, norm=None, act=torch.tanh, bias=True):
        super().__init__()
        self.convs, self.norm, self.pool, self.act = nn.ModuleList(convs), norm, pool, act
        self.head = nn.Linear(WIDTH, out, bias=bias)

    def embed(self, x, edge_index, batch, **extras):
        for conv in self.convs:
            x = conv(x, edge_index, **extras)
            x = self.act(x if self.norm is None else self.norm(x, batch))
        return x

    def forward(self, x, edge_index, batch):
        return self.head(self.pool(self.embed(x, edge_index, batch), batch))


class PooledWithAttributes(Pooled):
    def forward(self, x, edge_index, edge_attr, batch):
        return self.head(self.pool(self.embed(x, edge_index, batch, edge_attr=edge_attr), batch))


class PooledWithoutBatch(Pooled):
    """Takes one graph at a time: the batch vector is not even named."""

    def forward(self, x, edge_index):
        return self.head(self.embed(x, edge_index, None).mean(dim=0, keepdim=True))


def mlp(inputs, outputs, *, bias=True):
    return nn.Sequential(nn.Linear(inputs, WIDTH, bias=bias), nn.Tanh(), nn.Linear(WIDTH, outputs, bias=bias))


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Generic values everywhere: PyG starts many biases, epsilons and statistics at exactly 0 or 1."""
    generator = torch.Generator().manual_seed(seed)

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float64)

    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.2 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(draw(parameter) * scale)
        for module in model.modules():
            if (
                isinstance(module, (nn.BatchNorm1d, LayerNorm, nn.LayerNorm))
                and getattr(module, "weight", None) is not None
            ):
                module.weight += 1
            if isinstance(module, nn.BatchNorm1d) and module.running_mean is not None:
                module.running_mean.copy_(draw(module.running_mean) * 0.3)
                module.running_var.copy_(0.5 + draw(module.running_var).abs())
            if isinstance(module, (GINConv, GINEConv)):
                module.eps.fill_(0.3)
    return model


@dataclass(frozen=True)
class Case:
    """A named model and what is known about it."""

    name: str
    make: Callable[[], nn.Module]
    layers: int
    own: tuple[str, ...]
    mode: str = "multiclass"
    target: int | None = None
    forward: Callable | None = None
    local: bool = True
    ties: bool = False  # parallel edges send equal messages into a maximum: no derivative there
    settings: dict = field(default_factory=dict)

    def build(self, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng():
            return randomise(self.make(), seed)

    @property
    def arguments(self) -> dict:
        """What `explain` must be told about this model."""
        given = {
            "mode": self.mode if self.mode == "regression" else None,
            "target": self.target,
            "forward": self.forward,
        }
        return {name: value for name, value in given.items() if value is not None}

    def __str__(self) -> str:
        return self.name


def _case(name, make, own, **known):
    return Case(name, make, len(own), tuple(own), **known)


LINEAR_CONVS = {
    "gcn": lambda a, b: GCNConv(a, b, bias=False),
    "sage_sum": lambda a, b: SAGEConv(a, b, aggr="sum", bias=False),
    "sage_mean": lambda a, b: SAGEConv(a, b, aggr="mean", bias=False),
    "graph_conv": lambda a, b: GraphConv(a, b, bias=False),
    "gin": lambda a, b: GINConv(nn.Linear(a, b, bias=False), train_eps=True),
    "sgc": lambda a, b: SGConv(a, b, K=2, bias=False),
}


def chain(make_conv, calls, *, out=CLASSES, kind=Chain, **options):
    """A chain of `calls` convs FEATURES → WIDTH → … → out."""
    widths = [FEATURES, *[WIDTH] * (calls - 1), out]
    return kind(*[make_conv(a, b) for a, b in pairwise(widths)], **options)


def _chain(make_conv, calls=2, norms=tuple, **options):
    """A function that makes such a chain, with new norms."""
    return lambda: chain(make_conv, calls, norms=norms(), **options)


def _pna(inputs, outputs):
    return PNAConv(
        inputs,
        outputs,
        aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"],
        deg=torch.tensor([1, 3, 4, 2, 1]),
        edge_dim=EDGE_FEATURES,
    )


def _two_headed(conv):
    """Heads concatenated in the first layer, averaged in the second."""
    return lambda: Chain(conv(FEATURES, 2, heads=2), conv(WIDTH, CLASSES, heads=2, concat=False))


def _two_headed_with_attributes(conv):
    return lambda: ChainWithAttributes(
        conv(FEATURES, 2, heads=2, edge_dim=EDGE_FEATURES),
        conv(WIDTH, CLASSES, heads=2, concat=False, edge_dim=EDGE_FEATURES),
    )


def _sequential():
    return Sequential(
        "x, edge_index",
        [
            (GCNConv(FEATURES, WIDTH), "x, edge_index -> x"),
            nn.Tanh(),
            (SAGEConv(WIDTH, WIDTH), "x, edge_index -> x"),
            nn.Softplus(),
            nn.Linear(WIDTH, CLASSES),
        ],
    )


def branching_sequence():
    """Made here and not in a test file: PyG imports the module that makes a Sequential by its name."""
    steps = [
        (GCNConv(FEATURES, WIDTH), "x, edge_index -> h"),
        (nn.ReLU(inplace=True), "h -> h"),
        (nn.Dropout(0.5), "h -> h"),
        (SAGEConv(WIDTH, WIDTH), "h, edge_index -> k"),
        (lambda h, k: h + k, "h, k -> h"),
        (MLP([WIDTH, WIDTH, CLASSES], act="tanh"), "h -> h"),
    ]
    return Sequential("x, edge_index", steps)


def _basic(kind, layers=2, **options):
    return lambda: kind(FEATURES, WIDTH, layers, CLASSES, act="tanh", **options)


_PNA_OPTIONS = {
    "aggregators": ["mean", "max", "std"],
    "scalers": ["identity"],
    "deg": torch.tensor([1, 3, 4, 2]),
    "edge_dim": EDGE_FEATURES,
}

CASES = [
    _case("gcn", _chain(GCNConv, 3), [YES] * 3),
    _case("gcn_relu", _chain(GCNConv, 3, act=torch.relu), [YES] * 3),
    _case("gcn_improved", _chain(lambda a, b: GCNConv(a, b, improved=True)), [YES] * 2),
    _case("gcn_without_added_loops", _chain(lambda a, b: GCNConv(a, b, add_self_loops=False)), [OPEN] * 2),
    _case("gcn_without_normalisation", _chain(lambda a, b: GCNConv(a, b, normalize=False)), [OPEN] * 2),
    _case("gcn_with_weights", _chain(GCNConv, kind=ChainWithWeights), [YES] * 2),
    _case("gcn_against_the_arrows", _chain(lambda a, b: GCNConv(a, b, flow="target_to_source")), [YES] * 2),
    _case("gcn_cached", _chain(lambda a, b: GCNConv(a, b, cached=True)), [YES] * 2),
    _case("sage_sum", _chain(lambda a, b: SAGEConv(a, b, aggr="sum"), 3), [YES] * 3),
    _case("sage_mean", _chain(lambda a, b: SAGEConv(a, b, aggr="mean"), 3), [YES] * 3),
    _case("sage_mean_relu", _chain(SAGEConv, 3, act=torch.relu), [YES] * 3),
    _case("sage_max", _chain(lambda a, b: SAGEConv(a, b, aggr="max")), [YES] * 2, ties=True),
    _case("sage_normalised", _chain(lambda a, b: SAGEConv(a, b, normalize=True)), [YES] * 2),
    _case("sage_projected", _chain(lambda a, b: SAGEConv(a, b, project=True)), [YES] * 2),
    _case("sage_without_root", _chain(lambda a, b: SAGEConv(a, b, aggr="sum", root_weight=False)), [OPEN] * 2),
    _case(
        "gcn_in_two_pieces",  # one call, whose messages are computed in two chunks of columns
        lambda: Chain(GCNConv(FEATURES, WIDTH, decomposed_layers=2), GCNConv(WIDTH, CLASSES)),
        [YES] * 2,
    ),
    _case("gin", _chain(lambda a, b: GINConv(mlp(a, b))), [YES] * 2),
    _case("gin_trained_epsilon", _chain(lambda a, b: GINConv(mlp(a, b), train_eps=True)), [YES] * 2),
    _case(
        "gine", _chain(lambda a, b: GINEConv(mlp(a, b), edge_dim=EDGE_FEATURES), kind=ChainWithAttributes), [YES] * 2
    ),
    _case("gat", _two_headed(GATConv), [YES] * 2),
    _case("gat_with_attributes", _two_headed_with_attributes(GATConv), [YES] * 2),
    _case("gat_without_added_loops", _chain(lambda a, b: GATConv(a, b, add_self_loops=False)), [OPEN] * 2),
    _case("gat_residual", _chain(lambda a, b: GATConv(a, b, **RESIDUAL)), [YES] * 2),
    _case("gatv2", _two_headed(GATv2Conv), [YES] * 2),
    _case("gatv2_with_attributes", _two_headed_with_attributes(GATv2Conv), [YES] * 2),
    _case("graph_conv", _chain(GraphConv, 3), [YES] * 3),
    _case(
        "graph_conv_with_weights", _chain(lambda a, b: GraphConv(a, b, aggr="mean"), kind=ChainWithWeights), [YES] * 2
    ),
    _case("transformer", _two_headed(TransformerConv), [OPEN] * 2),
    _case("transformer_with_attributes", _two_headed_with_attributes(TransformerConv), [OPEN] * 2),
    _case("transformer_gated", _chain(lambda a, b: TransformerConv(a, b, beta=True)), [OPEN] * 2),
    _case("pna", _chain(_pna, kind=ChainWithAttributes), [NO] * 2),
    _case("sgc", lambda: SGConv(FEATURES, CLASSES, K=3), [YES] * 3),
    _case("sgc_cached", lambda: SGConv(FEATURES, CLASSES, K=3, cached=True), [YES] * 3),
    # PyG's Laplacian divides by the number of edges that leave a node, so on a directed graph a ChebConv is not local.
    _case("cheb", _chain(lambda a, b: ChebConv(a, b, K=3)), [NO] * 4, local=False),
    _case(
        "cheb_below_gcn", lambda: Chain(ChebConv(FEATURES, WIDTH, K=2), GCNConv(WIDTH, CLASSES)), [NO, YES], local=False
    ),
    _case(
        "gcn_used_twice",
        lambda: Twice(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)),
        [YES] * 3,
    ),
    _case(
        "sage_used_twice",
        lambda: Twice(GCNConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)),
        [YES] * 3,
    ),
    _case("residual", lambda: Residual(lambda: GCNConv(WIDTH, WIDTH), linear=False, after=False), [YES] * 2),
    _case("residual_after", lambda: Residual(lambda: SAGEConv(WIDTH, WIDTH), linear=False, after=True), [YES] * 2),
    _case("residual_linear", lambda: Residual(lambda: GINConv(mlp(WIDTH, WIDTH)), linear=True, after=False), [YES] * 2),
    _case("residual_linear_after", lambda: Residual(lambda: GCNConv(WIDTH, WIDTH), linear=True, after=True), [YES] * 2),
    _case("long_skip", LongSkip, [YES] * 2),
    _case("jumping_cat", _basic(GCN, 3, jk="cat"), [YES] * 3),
    _case("jumping_max", _basic(GraphSAGE, 2, jk="max"), [YES] * 2),
    _case("batch_norm", _basic(GraphSAGE, 3, norm="BatchNorm"), [YES] * 3),
    _case(
        "batch_norm_without_statistics",
        _chain(GCNConv, norms=lambda: [nn.BatchNorm1d(WIDTH, track_running_stats=False)]),
        [YES] * 2,
        local=False,
    ),
    _case(
        "layer_norm_of_nodes",
        _chain(GCNConv, 3, norms=lambda: [LayerNorm(WIDTH, mode="node") for _ in range(2)]),
        [YES] * 3,
    ),
    _case("layer_norm_of_graphs", _basic(GCN, 3, norm="LayerNorm"), [YES] * 3, local=False),
    _case("layer_norm_inside_gin", _basic(GIN, 2, norm="LayerNorm"), [YES] * 2, local=False),
    _case("sequential", _sequential, [YES] * 2),
    _case("basic_gcn", _basic(GCN, 3), [YES] * 3),
    _case("basic_sage", _basic(GraphSAGE, 2), [YES] * 2),
    _case("basic_gin", _basic(GIN, 2), [YES] * 2),
    _case("basic_gat", _basic(GAT, 2, heads=2, edge_dim=EDGE_FEATURES), [YES] * 2),
    _case("basic_gatv2", _basic(GAT, 2, v2=True, heads=2, edge_dim=EDGE_FEATURES), [YES] * 2),
    _case("basic_pna", _basic(PNA, 2, **_PNA_OPTIONS), [NO] * 2),
    _case("basic_edge_cnn", _basic(EdgeCNN, 2), [OPEN] * 2, ties=True),
    _case("other_order", OtherOrder, [YES] * 3),
    _case(
        "takes_data",
        _chain(lambda a, b: GINEConv(mlp(a, b), edge_dim=EDGE_FEATURES), kind=ChainOverData),
        [YES] * 2,
        forward=lambda model, data: model(data),
    ),
    _case(
        "takes_data_and_positions",
        lambda: PositionsBesideFeatures(GCNConv(FEATURES + 2, WIDTH), SAGEConv(WIDTH, CLASSES)),
        [YES] * 2,
        forward=lambda model, data: model(data),
    ),
    _case("binary", lambda: Chain(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, 1)), [YES] * 2, mode="binary"),
    _case("binary_vector", lambda: Squeezed(GCNConv(FEATURES, WIDTH), SAGEConv(WIDTH, 1)), [YES] * 2, mode="binary"),
    _case("regression", lambda: Chain(SAGEConv(FEATURES, WIDTH), SAGEConv(WIDTH, 1)), [YES] * 2, mode="regression"),
    _case(
        "regression_second_column",
        lambda: Chain(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, 2)),
        [YES] * 2,
        mode="regression",
        target=1,
    ),
]
BY_NAME = {case.name: case for case in CASES}

GRAPH_CASES = [
    _case("mean_pool", lambda: Pooled(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH)), [YES] * 2),
    _case(
        "sum_pool", lambda: Pooled(SAGEConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), pool=global_add_pool), [YES] * 2
    ),
    _case(
        "max_pool",
        lambda: Pooled(GINConv(mlp(FEATURES, WIDTH)), GINConv(mlp(WIDTH, WIDTH)), pool=global_max_pool),
        [YES] * 2,
    ),
    _case(
        "pooled_with_attributes",
        lambda: PooledWithAttributes(
            GINEConv(mlp(FEATURES, WIDTH), edge_dim=EDGE_FEATURES), GATConv(WIDTH, 2, heads=2, edge_dim=EDGE_FEATURES)
        ),
        [YES] * 2,
    ),
    _case(
        "pooled_binary",
        lambda: Pooled(GraphConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), out=1),
        [YES] * 2,
        mode="binary",
    ),
    _case("pooled_regression", lambda: Pooled(GCNConv(FEATURES, WIDTH), out=1), [YES], mode="regression"),
    _case(
        "pooled_layer_norm",
        lambda: Pooled(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), norm=LayerNorm(WIDTH)),
        [YES] * 2,
    ),
    _case(
        "pooled_gin_layer_norm",
        lambda: Pooled(GINConv(nn.Sequential(nn.Linear(FEATURES, WIDTH), LayerNorm(WIDTH), nn.Tanh()))),
        [YES],
    ),
    _case(
        "pooled_without_batch",
        lambda: PooledWithoutBatch(GCNConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH)),
        [YES] * 2,
        local=False,
    ),
]


# Graphs ###############################################################################################################


def graph(edges, nodes, *, seed=0, weighted=False) -> Data:
    """A graph from (source, receiver) pairs, with generic features."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()
    count = edge_index.shape[1]
    data = Data(
        x=draw(nodes, FEATURES), edge_index=edge_index, edge_attr=draw(count, EDGE_FEATURES), pos=draw(nodes, 2)
    )
    if weighted:
        data.edge_weight = 0.5 + draw(count).abs()
    return data


def random_edges(nodes: int, count: int, seed: int = 0) -> list[list[int]]:
    return torch.randint(0, nodes, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()


_DIRECTED = [(0, 1), (1, 2), (2, 0), (3, 1), (1, 4), (4, 3), (5, 2), (2, 6), (6, 4), (3, 5), (0, 6), (6, 1), (5, 0)]
_EVERYTHING = [
    *[(0, 1), (1, 1), (1, 2), (2, 0), (3, 1), (3, 1), (2, 2), (1, 4), (4, 3), (2, 6), (2, 2)],
    *[(6, 4), (4, 6), (6, 1), (3, 1), (0, 0), (7, 0)],
]
GRAPHS = {
    "directed": lambda: graph(_DIRECTED, 7),
    "loops_on_some": lambda: graph([_DIRECTED[0], (4, 4), *_DIRECTED[1:7], (1, 1), *_DIRECTED[7:]], 7),
    "loops_on_all_shuffled": lambda: graph(
        [(5, 5), *_DIRECTED[:4], (0, 0), (6, 6), *_DIRECTED[4:9], (2, 2), (1, 1), *_DIRECTED[9:], (4, 4), (3, 3)], 7
    ),
    "parallel": lambda: graph([(3, 1), *_DIRECTED[:5], (0, 1), *_DIRECTED[5:], (3, 1), (4, 3)], 7),
    "parallel_loops": lambda: graph([(1, 1), *_DIRECTED[:6], (1, 1), (4, 4), *_DIRECTED[6:], (1, 1)], 7),
    "isolated": lambda: graph(_DIRECTED[:8], 9),
    "no_in_edges": lambda: graph([(a, b) for a, b in _DIRECTED if b != 3], 7),
    "no_edges": lambda: graph([], 4),
    "weighted": lambda: graph([*_DIRECTED[:6], (1, 1), (4, 4), *_DIRECTED[6:], (4, 4)], 7, weighted=True),
    # Loops (some of them parallel), parallel edges, node 5 isolated, node 7 without in-edges; columns in no order.
    "everything": lambda: graph(_EVERYTHING, 8),
    "everything_once": lambda: graph(list(dict.fromkeys(_EVERYTHING)), 8),
}
# One model of every way to treat self-loops and own terms, for the graphs that are special in one respect.
FAMILIES = [
    "gcn",
    "sage_mean",
    "gin_trained_epsilon",
    "gat_with_attributes",
    "gatv2",
    "transformer",
    "sgc",
    "cheb",
    "pna",
    "graph_conv",
]


SPECIAL = [name for name in GRAPHS if not name.startswith("everything") and name != "weighted"]
# A quick run keeps two special graphs of each family, and so at least two families of each special graph.
LEFT_TO_SLOW_RUNS = {
    (name, graph_name)
    for row, name in enumerate(FAMILIES)
    for column, graph_name in enumerate(SPECIAL)
    if (row + column) % 4
}


def node_pairs() -> list[tuple[str, str]]:
    """(case, graph) names: every model on the graph that has everything, one of each family on every special graph."""
    pairs = [(case.name, "everything_once" if case.ties else "everything") for case in CASES]
    pairs += [(name, graph_name) for name in FAMILIES for graph_name in SPECIAL]
    weighted = ["gcn_with_weights", "graph_conv_with_weights", "basic_gcn"]
    return pairs + [(name, "weighted") for name in weighted]


def graph_pairs() -> list[tuple[str, str]]:
    names = ["directed", "everything", "no_edges"]
    return [(case.name, graph_name) for case in GRAPH_CASES for graph_name in names]


GRAPH_BY_NAME = {case.name: case for case in GRAPH_CASES}
