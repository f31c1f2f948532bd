"""A user's model and graph as PyG's explainers want them."""

import copy

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.model.call import ModelCall
from edgewise.target import Target


class Called(nn.Module):
    """A model as PyG calls it, `model(x, edge_index)`; whatever else it needs is at hand here."""

    def __init__(self, call: ModelCall, graph: Data, explained: Target | None) -> None:
        super().__init__()
        self.model = call.model
        self._call, self._graph, self._explained = call, graph, explained

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Rows of outputs, or the explained number of every row."""
        graph = copy.copy(self._graph)
        graph.x, graph.edge_index = x, edge_index
        rows = self._call(graph)
        return rows if self._explained is None else self._explained.value(rows)


def loops_last(graph: Data) -> tuple[Data, Tensor]:
    """The graph with its self-loops as the last columns, in the order of nodes, if every node has one; and the order.

    PyG matches masks to messages by position, and convs that add loops put them there: in any other order the masks of loops
    and edges are mixed up without a word.
    """
    source, receiver = graph.edge_index
    order = torch.arange(len(source), device=source.device)
    loops = (source == receiver).nonzero().view(-1)
    nodes = source[loops].sort()
    if not torch.equal(nodes.values, torch.arange(graph.num_nodes, device=source.device)):
        return graph, order
    order = torch.cat([(source != receiver).nonzero().view(-1), loops[nodes.indices]])
    moved = copy.copy(graph)
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor) and key != "edge_index" and graph.is_edge_attr(key):
            moved[key] = value[order]
    moved.edge_index = graph.edge_index[:, order]
    return moved, order
