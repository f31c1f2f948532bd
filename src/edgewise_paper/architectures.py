"""The paper's networks: GCN, GAT (v2, four heads) and GIN of PyG, ReLU, width 32; one logit after mean pooling for graphs."""

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GIN, MLP, GINEConv, global_mean_pool

from edgewise.errors import SettingError

ARCHITECTURES = ("GCN", "GAT", "GIN")
LINEAR = "linear GCN"
"""Published as SGC. Numbers say that every layer has its own matrix: see docs/reproduce.md."""
HIDDEN, DROPOUT, HEADS = 32, 0.5, 4


class GINE(GIN):
    """GIN whose messages hear the edge features too (Hu et al., ICLR 2020)."""

    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> GINEConv:
        """One layer: PyG's block for GIN inside of a GINE layer."""
        block = MLP(
            [in_channels, out_channels, out_channels],
            act=self.act,
            act_first=self.act_first,
            norm=self.norm,
            norm_kwargs=self.norm_kwargs,
        )
        return GINEConv(block, **settings)


class GraphClassifier(nn.Module):
    """A network with one output a node, averaged over the graph: one logit."""

    def __init__(self, gnn: nn.Module) -> None:
        super().__init__()
        self.gnn = gnn

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """`[graphs, 1]`."""
        extras = {"edge_attr": edge_attr} if self.gnn.supports_edge_attr else {}
        return global_mean_pool(self.gnn(x, edge_index, batch=batch, **extras), batch)


def node_network(architecture: str, num_features: int, layers: int, num_classes: int) -> nn.Module:
    """For nodes; the linear network is a GCN without activations."""
    if architecture == LINEAR:
        return _network("GCN", num_features, layers, num_classes, {"act": nn.Identity()})
    return _network(architecture, num_features, layers, num_classes, {})


def graph_network(architecture: str, num_features: int, layers: int, edge_dim: int | None) -> nn.Module:
    """For graphs, with PyG's LayerNorm (over the whole graph) between the layers."""
    settings: dict[str, Any] = {"norm": "LayerNorm"}
    if edge_dim is not None and architecture != "GCN":  # GCN has no use for edge features
        settings["edge_dim"] = edge_dim
    return GraphClassifier(_network(architecture, num_features, layers, 1, settings))


def _network(architecture: str, num_features: int, layers: int, outputs: int, settings: dict[str, Any]) -> nn.Module:
    shape = (num_features, HIDDEN, layers, outputs, DROPOUT)
    if architecture == "GCN":
        return GCN(*shape, **settings)
    if architecture == "GAT":
        return GAT(*shape, v2=True, heads=HEADS, **settings)
    if architecture == "GIN":
        return (GINE if "edge_dim" in settings else GIN)(*shape, **settings)
    raise SettingError(f"architecture is {architecture!r}; known are {', '.join(ARCHITECTURES)} and {LINEAR}.")
