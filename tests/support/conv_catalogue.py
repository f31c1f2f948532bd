"""PyG's convolutions with their options: how each is built, how it is called, and how deep its calls are."""

import itertools
from dataclasses import dataclass, field

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from pyg_versions import HAS_RESIDUAL

WIDTH, EDGE_WIDTH, RELATIONS = 4, 3, 3


@dataclass(frozen=True)
class Conv:
    """One convolution with one choice of its options."""

    title: str
    make: object
    how: str = "x"
    """What it is called with besides the features: a letter each, see `Net`."""
    width: int = WIDTH
    """Columns of its output."""
    layers: tuple[int, ...] = ()
    """The layer of each of its calls, from 0; empty if they are a chain."""


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh(), nn.Linear(outputs, outputs))


class Net(nn.Module):
    """Two convolutions of a kind and a row of numbers for each of three classes."""

    def __init__(self, conv: Conv):
        super().__init__()
        self.how = conv.how
        self.first, self.second = conv.make(), conv.make()
        self.between, self.head = nn.Linear(conv.width, WIDTH), nn.Linear(conv.width, 3)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        x0 = x
        kinds = edge_attr[:, 0].mul(RELATIONS).long().clamp(max=RELATIONS - 1)
        ways = {
            "x": lambda conv, x: conv(x, edge_index),
            "w": lambda conv, x: conv(x, edge_index, edge_weight),
            "a": lambda conv, x: conv(x, edge_index, edge_attr),
            "0": lambda conv, x: conv(x, x0, edge_index),
            "0w": lambda conv, x: conv(x, x0, edge_index, edge_weight),
            "t": lambda conv, x: conv(x, edge_index, kinds),
            "ta": lambda conv, x: conv(x, edge_index, kinds, edge_attr),
            "p": lambda conv, x: conv(x, x0[:, :3], edge_index),
            "n": lambda conv, x: conv(x, x0[:, :3], nn.functional.normalize(x0[:, 1:4]), edge_index),
            "d": lambda conv, x: conv(torch.stack([x0, x], dim=1), edge_index),
            "dw": lambda conv, x: conv(torch.stack([x0, x], dim=1), edge_index, edge_weight),
            "s": lambda conv, x: conv(x, edge_index, edge_index.flip(0)),
            "na": lambda conv, x: conv(x, edge_index, (x0[:, 0] > 0).long(), kinds, edge_attr),
        }
        call = ways[self.how]
        x = self.between(call(self.first, x)).tanh()
        return self.head(call(self.second, x))


def graph(seed=0, nodes=6, edges=11) -> Data:
    """A random graph in float64 with two parallel edges and one explicit self-loop."""
    draw = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=draw)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = torch.cat([edge_index, edge_index[:, :1], torch.tensor([[2], [2]])], dim=1)
    count = edge_index.size(1)
    real = {"generator": draw, "dtype": torch.float64}
    return Data(
        x=torch.randn(nodes, WIDTH, **real),
        edge_index=edge_index,
        edge_weight=torch.rand(count, **real) + 0.3,
        edge_attr=torch.rand(count, EDGE_WIDTH, **real),
    )


@dataclass
class _Catalogue:
    found: list = field(default_factory=list)

    def add(self, kind, *arguments, how="x", width=WIDTH, layers=(), of="", **options):
        """Every combination of the options, which are tuples of values; `width` may depend on the choice."""
        for choice in itertools.product(*options.values()):
            given = dict(zip(options, choice, strict=True))
            said = ", ".join(f"{key}={_word(value)}" for key, value in given.items())
            for way in how.split():
                self.found.append(
                    Conv(
                        f"{kind.__name__}({of}{said}) {way}",
                        _maker(kind, arguments, given),
                        way,
                        width(given) if callable(width) else width,
                        layers,
                    )
                )


def _word(value):
    return getattr(value, "__name__", type(value).__name__ if isinstance(value, nn.Module) else str(value))


def _maker(kind, arguments, given):
    def make():
        built = [argument() if callable(argument) else argument for argument in arguments]
        return kind(*built, **given)

    return make


BOTH = (True, False)
SIMPLE_AGGREGATIONS = ("sum", "mean", "max", "min", "mul")
FLOWS = ("source_to_target", "target_to_source")


def _heads(given):
    return WIDTH * given["heads"] if given.get("concat", True) else WIDTH


def catalogue() -> list[Conv]:
    """All of them."""
    c = _Catalogue()
    w = (WIDTH, WIDTH)
    c.add(pyg.GCNConv, *w, how="x w", improved=BOTH, add_self_loops=BOTH, normalize=(True,), bias=BOTH, flow=FLOWS)
    c.add(pyg.GCNConv, *w, how="x w", normalize=(False,), add_self_loops=(False,), bias=BOTH, cached=BOTH)
    c.add(pyg.GCNConv, *w, how="x w", aggr=("mean", "max", "min"), cached=BOTH)
    c.add(pyg.SAGEConv, *w, aggr=("mean", "sum", "max", "min", "mul"), normalize=BOTH, root_weight=BOTH, project=BOTH)
    c.add(pyg.SAGEConv, *w, aggr=("std", "var", "median", "softmax", "powermean", "lstm"), root_weight=BOTH)
    c.add(pyg.SAGEConv, *w, aggr=(["mean", "max"], ["sum", "std"]), flow=FLOWS, bias=BOTH)
    c.add(pyg.GraphConv, *w, how="x w", aggr=(*SIMPLE_AGGREGATIONS[:4], "softmax"), bias=BOTH, flow=FLOWS)
    gat = {"heads": (1, 2), "concat": BOTH, "add_self_loops": BOTH, "bias": BOTH}
    for kind in (pyg.GATConv, pyg.GATv2Conv):
        c.add(kind, *w, width=_heads, **({"residual": BOTH} if HAS_RESIDUAL else {}), **gat)
        c.add(kind, *w, how="a", width=_heads, edge_dim=(EDGE_WIDTH,), fill_value=("mean", "add", 0.5), **gat)
        c.add(kind, *w, width=_heads, heads=(2,), aggr=("mean", "max"), flow=FLOWS)
    c.add(pyg.GATv2Conv, *w, width=_heads, heads=(1, 2), share_weights=(True,), dropout=(0.5,))
    transformer = {"heads": (1, 2), "concat": BOTH, "beta": BOTH, "root_weight": BOTH}
    c.add(pyg.TransformerConv, *w, width=_heads, **transformer)
    c.add(pyg.TransformerConv, *w, how="a", width=_heads, edge_dim=(EDGE_WIDTH,), bias=BOTH, **transformer)
    c.add(pyg.SuperGATConv, *w, width=_heads, attention_type=("MX", "SD"), **gat)
    c.add(pyg.GINConv, lambda: mlp(*w), eps=(0.0, 0.3), train_eps=BOTH, aggr=(*SIMPLE_AGGREGATIONS[:4], "softmax"))
    c.add(pyg.GINEConv, lambda: mlp(*w), how="a", eps=(0.0, 0.3), train_eps=BOTH, edge_dim=(EDGE_WIDTH,))
    c.add(pyg.GINEConv, lambda: mlp(*w), how="a", edge_dim=(EDGE_WIDTH,), aggr=("mean", "max"), flow=FLOWS)
    c.add(pyg.SGConv, *w, how="x w", K=(1, 2, 3), add_self_loops=BOTH, cached=BOTH, bias=BOTH)
    c.add(pyg.SSGConv, *w, how="x w", alpha=(0.1, 0.5), K=(1, 2), add_self_loops=BOTH, cached=BOTH)
    c.add(pyg.TAGConv, *w, how="x w", K=(1, 2), normalize=BOTH, bias=BOTH)
    c.add(pyg.APPNP, how="x w", K=(1, 2), alpha=(0.1, 0.5), add_self_loops=BOTH, normalize=BOTH, cached=BOTH)
    c.add(pyg.ARMAConv, *w, how="x w", num_stacks=(1, 2), num_layers=(1, 2), shared_weights=BOTH, bias=BOTH)
    c.add(pyg.ChebConv, *w, how="x w", K=(2, 3), normalization=("sym", "rw"), bias=BOTH)
    c.add(pyg.LEConv, *w, how="x w", bias=BOTH, aggr=("sum", "mean"))
    c.add(pyg.LGConv, how="x w", normalize=BOTH)
    c.add(pyg.MFConv, *w, bias=BOTH, max_degree=(2, 10))
    c.add(pyg.FeaStConv, *w, heads=(1, 2), add_self_loops=BOTH, bias=BOTH)
    c.add(pyg.AGNNConv, requires_grad=BOTH, add_self_loops=BOTH)
    c.add(pyg.ClusterGCNConv, *w, diag_lambda=(0.0, 0.5), add_self_loops=BOTH, bias=BOTH)
    c.add(pyg.GENConv, *w, aggr=("softmax", "powermean", "sum", "mean", "max"), msg_norm=BOTH, learn_t=BOTH)
    c.add(pyg.GENConv, *w, how="a", edge_dim=(EDGE_WIDTH,), aggr=("softmax", "mean"), num_layers=(1, 2), bias=BOTH)
    c.add(pyg.GCN2Conv, WIDTH, how="0 0w", alpha=(0.1,), theta=(0.5,), layer=(1,), shared_weights=BOTH, cached=BOTH)
    c.add(pyg.GCN2Conv, WIDTH, how="0 0w", alpha=(0.5,), add_self_loops=BOTH, normalize=BOTH)
    c.add(pyg.FAConv, WIDTH, how="0", eps=(0.1, 0.5), add_self_loops=BOTH, cached=BOTH)
    c.add(pyg.ResGatedGraphConv, *w, root_weight=BOTH, bias=BOTH, aggr=("sum", "mean"))
    c.add(pyg.ResGatedGraphConv, *w, how="a", edge_dim=(EDGE_WIDTH,), root_weight=BOTH, bias=BOTH)
    c.add(pyg.GeneralConv, *w, heads=(1, 2), attention=BOTH, skip_linear=BOTH, l2_normalize=BOTH)
    c.add(pyg.GeneralConv, *w, attention=(True,), attention_type=("additive", "dot_product"), directed_msg=BOTH)
    c.add(pyg.GeneralConv, *w, how="a", in_edge_channels=(EDGE_WIDTH,), heads=(1, 2), attention=BOTH)
    c.add(pyg.EdgeConv, lambda: mlp(2 * WIDTH, WIDTH), aggr=("sum", "mean", "max"), flow=FLOWS)
    c.add(pyg.NNConv, *w, lambda: mlp(EDGE_WIDTH, WIDTH**2), how="a", aggr=("sum", "mean", "max"), root_weight=BOTH)
    c.add(pyg.CGConv, WIDTH, how="a", dim=(EDGE_WIDTH,), aggr=("sum", "mean"), batch_norm=BOTH, bias=BOTH)
    c.add(pyg.CGConv, WIDTH, aggr=("sum", "max"), batch_norm=BOTH)
    c.add(pyg.GMMConv, *w, EDGE_WIDTH, 2, how="a", separate_gaussians=BOTH, aggr=("mean", "sum"), root_weight=BOTH)
    degree = torch.tensor([1, 2, 2, 1])
    scalers = (["identity"], ["identity", "amplification", "attenuation"], ["linear", "inverse_linear"])
    many = (["mean", "max"], ["sum", "std", "min"])
    c.add(pyg.PNAConv, *w, aggregators=many, scalers=scalers, deg=(degree,), towers=(1, 2), divide_input=BOTH)
    c.add(pyg.PNAConv, *w, how="a", aggregators=many, scalers=scalers, deg=(degree,), edge_dim=(EDGE_WIDTH,))
    c.add(
        pyg.EGConv, WIDTH, 8, width=8, num_heads=(2, 4), aggregators=(["symnorm"], ["sum", "max"]), add_self_loops=BOTH
    )
    c.add(pyg.PDNConv, *w, EDGE_WIDTH, 4, how="a", add_self_loops=BOTH, normalize=BOTH, bias=BOTH)
    c.add(pyg.PANConv, *w, 2)
    c.add(pyg.MixHopConv, *w, how="x w", width=3 * WIDTH, powers=([0, 1, 2],), add_self_loops=BOTH, bias=BOTH)
    c.add(pyg.GatedGraphConv, WIDTH, how="x w", num_layers=(1, 2), aggr=("sum", "mean", "max"), bias=BOTH)
    c.add(pyg.SimpleConv, how="x w", aggr=("sum", "mean", "median", "max"), combine_root=(None, "sum", "self_loop"))
    c.add(pyg.SimpleConv, how="x w", width=2 * WIDTH, combine_root=("cat",))
    c.add(pyg.WLConvContinuous, how="x w")
    c.add(pyg.DNAConv, WIDTH, how="d dw", width=WIDTH, heads=(1, 2), normalize=BOTH, add_self_loops=BOTH)
    c.add(pyg.PointNetConv, lambda: mlp(WIDTH + 3, WIDTH), lambda: mlp(*w), how="p", add_self_loops=BOTH)
    c.add(pyg.PPFConv, lambda: mlp(WIDTH + 4, WIDTH), lambda: mlp(*w), how="n", add_self_loops=BOTH)
    c.add(pyg.PointTransformerConv, *w, how="p", add_self_loops=BOTH)
    point = (lambda: mlp(WIDTH, 3), lambda: mlp(WIDTH + 3, WIDTH), lambda: mlp(WIDTH, WIDTH))
    c.add(pyg.PointGNNConv, *point, how="p")
    sides = (0,) * RELATIONS
    typed = {"aggr": ("mean", "sum", "max"), "root_weight": BOTH, "bias": BOTH}
    c.add(pyg.RGCNConv, *w, RELATIONS, how="t", layers=sides, num_bases=(None, 2), **typed)
    c.add(pyg.RGCNConv, *w, RELATIONS, how="t", layers=sides, num_blocks=(2,), **typed)
    c.add(pyg.FastRGCNConv, *w, RELATIONS, how="t", num_bases=(None, 2), **typed)
    c.add(pyg.RGATConv, *w, RELATIONS, how="t", width=_heads, heads=(1, 2), concat=BOTH)
    c.add(
        pyg.RGATConv,
        *w,
        RELATIONS,
        how="t",
        attention_mechanism=("within-relation", "across-relation"),
        attention_mode=("additive-self-attention", "multiplicative-self-attention"),
        mod=(None, "additive", "scaled", "f-additive"),
    )
    c.add(pyg.RGATConv, *w, RELATIONS, how="ta", edge_dim=(EDGE_WIDTH,), num_bases=(None, 2))
    c.add(pyg.FiLMConv, *w, how="t", layers=sides, num_relations=(RELATIONS,), aggr=("mean", "sum", "max"))
    c.add(pyg.FiLMConv, *w, aggr=("mean", "sum", "max"), act=(None, nn.Tanh()))
    c.add(pyg.HEATConv, *w, 2, RELATIONS, 3, EDGE_WIDTH, 3, how="na", width=_heads, heads=(1, 2), concat=BOTH)
    for name in ("GCNConv", "SAGEConv", "GATConv"):
        c.add(pyg.DirGNNConv, _inner(name), of=f"{name}, ", layers=(0, 0), alpha=(0.3, 0.5), root_weight=BOTH)
    for name in ("GCNConv", "GraphConv"):
        c.add(pyg.AntiSymmetricConv, WIDTH, _inner(name), of=f"{name}, ", num_iters=(1, 2), bias=BOTH)
    c.add(pyg.GPSConv, WIDTH, lambda: pyg.GINConv(mlp(*w)), heads=(1, 2), norm=(None, "batch_norm"))
    c.add(pyg.HypergraphConv, *w, bias=BOTH)
    c.add(pyg.SignedConv, *w, how="s", width=2 * WIDTH, layers=(0, 0), first_aggr=(True,), bias=BOTH)
    return c.found


def _inner(name):
    options = {"GCNConv": {"add_self_loops": False}, "GATConv": {"add_self_loops": False}}.get(name, {})
    return lambda: getattr(pyg, name)(WIDTH, WIDTH, **options)
