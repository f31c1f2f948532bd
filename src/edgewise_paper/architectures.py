"""The paper's networks: GCN, GAT (v2, four heads) and GIN of PyG with ReLU and width 32.

`node_network` gives one logit a class for each node, `graph_network` one logit a graph, after mean pooling.
"""

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GIN, MLP, GINEConv, global_mean_pool

from edgewise.arguments import one_of

ARCHITECTURES = ("GCN", "GAT", "GIN")
LINEAR = "linear GCN"
"""A GCN without activations, published as SGC. The numbers say that every layer has its own matrix: docs/reproduce.md."""
HIDDEN, DROPOUT, HEADS = 32, 0.5, 4


class GINE(GIN):
    """GIN whose messages include the edge features (Hu et al., ICLR 2020), for the bonds of MUTAG."""

    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> GINEConv:
        """One layer: the MLP that PyG's GIN has, inside a GINE layer."""
        block = MLP(
            [in_channels, out_channels, out_channels],
            act=self.act,
            act_first=self.act_first,
            norm=self.norm,
            norm_kwargs=self.norm_kwargs,
        )
        return GINEConv(block, **settings)


class GraphClassifier(nn.Module):
    """One logit a graph: the mean over the nodes of a network with one output a node.

    Args:
        gnn: A model of `torch_geometric.nn` with one output channel.
    """

    def __init__(self, gnn: nn.Module) -> None:
        super().__init__()
        self.gnn = gnn

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Logits, `[graphs, 1]`; `batch` is the graph of each node, None for a single graph."""
        extras = {"edge_attr": edge_attr} if self.gnn.supports_edge_attr else {}
        return global_mean_pool(self.gnn(x, edge_index, batch=batch, **extras), batch)


def node_network(architecture: str, num_features: int, layers: int, num_classes: int) -> nn.Module:
    """A network for nodes, `[N, num_features]` to `[N, num_classes]`.

    >>> node_network("GCN", num_features=5, layers=2, num_classes=3)
    GCN(5, 3, num_layers=2)
    """
    if architecture == LINEAR:
        return _network("GCN", num_features, layers, num_classes, {"act": nn.Identity()})
    return _network(architecture, num_features, layers, num_classes, {})


def graph_network(architecture: str, num_features: int, layers: int, edge_dim: int | None) -> nn.Module:
    """A network for graphs, with PyG's LayerNorm (over the whole graph) between the layers.

    Edge features of width `edge_dim` are used by GAT and GIN; None: the data set has none.
    """
    settings: dict[str, Any] = {"norm": "LayerNorm"}
    if edge_dim is not None and architecture != "GCN":  # GCN has no use for edge features
        settings["edge_dim"] = edge_dim
    return GraphClassifier(_network(architecture, num_features, layers, 1, settings))


def _network(architecture: str, num_features: int, layers: int, outputs: int, settings: dict[str, Any]) -> nn.Module:
    one_of("architecture", architecture, ARCHITECTURES, also=f"or {LINEAR} for nodes")
    shape = (num_features, HIDDEN, layers, outputs, DROPOUT)
    if architecture == "GCN":
        return GCN(*shape, **settings)
    if architecture == "GAT":
        return GAT(*shape, v2=True, heads=HEADS, **settings)
    return (GINE if "edge_dim" in settings else GIN)(*shape, **settings)
