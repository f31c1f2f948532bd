"""What others do: PyG's explainers, a target at a time, and the textbook loops, a forward pass an edge.

Every peer gets its own copy of the model: PyG's GNNExplainer leaves a parameter behind that spoils later gradients.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import k_hop_subgraph

MULTICLASS = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
# PyG's binary mode wants probabilities; the logit itself is a number like any other.
ONE_LOGIT = {
    "mode": "regression",
    "task_level": "graph",
    "return_type": "raw",
}


def _explainer(model: nn.Module, algorithm: Any, config: dict[str, str]) -> Explainer:
    return Explainer(
        copy.deepcopy(model), algorithm, explanation_type="model", edge_mask_type="object", model_config=config
    )


def captum(model: nn.Module, data: Data, method: str, **settings: Any) -> Callable[[int], Tensor]:
    """node → signed edge scores by PyG's CaptumExplainer."""
    explainer = _explainer(model, CaptumExplainer(method, **settings), MULTICLASS)
    return lambda node: explainer(data.x, data.edge_index, index=node).edge_mask


def captum_on_cut(model: nn.Module, data: Data, hops: int) -> Callable[[int], Tensor]:
    """node → signed edge scores of the columns of its neighbourhood, cut out by hand first; zeros elsewhere."""

    def explain(node: int) -> Tensor:
        nodes, edge_index, place, kept = k_hop_subgraph(
            node, hops, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes
        )
        part = Data(x=data.x[nodes], edge_index=edge_index)
        scores = torch.zeros(data.num_edges)
        scores[kept] = captum(model, part, "Saliency", abs=False)(int(place))
        return scores

    return explain


def captum_graph(model: nn.Module, graphs: list[Data], method: str, **settings: Any) -> Callable[[int], Tensor]:
    """graph → signed edge scores of its logit."""
    explainer = _explainer(model, CaptumExplainer(method, **settings), ONE_LOGIT)
    batches = [torch.zeros(graph.num_nodes, dtype=torch.long) for graph in graphs]
    return lambda i: explainer(graphs[i].x, graphs[i].edge_index, batch=batches[i]).edge_mask


def gnn_explainer(model: nn.Module, data: Data, epochs: int) -> Callable[[int], Tensor]:
    """node → mask by PyG's GNNExplainer, started from `start(data, node)`."""
    explainer = _explainer(model, GNNExplainer(epochs=epochs), MULTICLASS)

    def explain(node: int) -> Tensor:
        torch.manual_seed(node)  # PyG draws the start from the global generator
        return explainer(data.x, data.edge_index, index=node).edge_mask

    return explain


def start(data: Data, node: int) -> Tensor:
    """The logits that PyG's GNNExplainer draws after `torch.manual_seed(node)`."""
    generator = torch.Generator().manual_seed(node)
    spread = nn.init.calculate_gain("relu") * math.sqrt(2.0 / (2 * data.num_nodes))
    return torch.randn(data.num_edges, generator=generator) * spread


class OcclusionLoop:
    """One forward pass of the whole graph without one message, shared by all targets: the drop of each one's logit.

    Unit `e` leaves out edge e in every layer; with `layerwise`, unit `layer · E + e` in that layer alone. The hook needs a
    graph without self-loops: message e is then edge e, whatever loops a layer appends.
    """

    def __init__(self, model: nn.Module, data: Data, targets: Tensor, *, layerwise: bool) -> None:
        if bool((data.edge_index[0] == data.edge_index[1]).any()):
            raise ValueError("the graph has self-loops; messages could not be matched by position")
        self.model, self.data, self.layerwise = copy.deepcopy(model), data, layerwise
        layers = [module for module in self.model.modules() if isinstance(module, MessagePassing)]
        self.edge, self.layer, self.num_layers = -1, -1, len(layers)
        for number, layer in enumerate(layers):
            layer.register_message_forward_hook(self._hook(number))
        with torch.no_grad():
            output = self.model(data.x, data.edge_index)
        self.targets, self.classes = targets, output[targets].argmax(dim=1)
        self.full = output[self.targets, self.classes]

    def _hook(self, number: int) -> Callable[..., Tensor]:
        def without_edge(module: nn.Module, inputs: Any, message: Tensor) -> Tensor:
            if self.edge >= 0 and (not self.layerwise or self.layer == number):
                message[self.edge] = 0
            return message

        return without_edge

    @torch.no_grad()
    def __call__(self, units: Tensor) -> Tensor:
        """`[units, targets]`."""
        drops = torch.empty(len(units), len(self.targets))
        for row, unit in enumerate(units.tolist()):
            self.layer, self.edge = divmod(unit, self.data.num_edges)
            output = self.model(self.data.x, self.data.edge_index)
            drops[row] = self.full - output[self.targets, self.classes]
        self.edge = -1
        return drops
