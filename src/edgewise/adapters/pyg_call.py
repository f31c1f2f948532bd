"""A user's model and graph as PyG's explainers want them."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.graph.type_table import EdgeType
from edgewise.model.call import ModelCall
from edgewise.model.typed_call import TypedForward
from edgewise.question.target import Target


class CalledByPyG(nn.Module):
    """A model as PyG calls it, `model(x, edge_index)`; the rest of the graph, and the user's `forward`, are kept here."""

    def __init__(self, call: ModelCall, graph: Data, explained: Target | None) -> None:
        """With `explained`, the output is the explained number of every row instead of the row."""
        super().__init__()
        self.model = call.model
        self._call, self._graph, self._explained = call, graph, explained

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """`[rows, classes]`: the model's output; or `[rows]`, the explained number of every row."""
        graph = copy.copy(self._graph)
        graph.x, graph.edge_index = x, edge_index
        rows = self._call(graph)
        return rows if self._explained is None else self._explained.value(rows)


def loops_last(graph: Data) -> tuple[Data, Tensor]:
    """The graph with its self-loops as the last columns, in the order of nodes, if every node has one; and the order.

    PyG matches masks to messages by position, and convs that add loops put them last: in any other order the masks of loops
    and edges are mixed up silently.

    >>> graph, order = loops_last(Data(edge_index=torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]]), num_nodes=2))
    >>> graph.edge_index, order                                  # 1→0, 0→1, then the loops of 0 and 1
    (tensor([[1, 0, 0, 1],
            [0, 1, 0, 1]]), tensor([1, 2, 0, 3]))
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


class TypedCalledByPyG(nn.Module):
    """A model of typed graphs as PyG calls it, `model(x_dict, edge_index_dict)`; all else of the graph is kept here."""

    def __init__(
        self, call: ModelCall, graph: Data, given: dict[tuple[Any, str], Tensor], explained: Target | None
    ) -> None:
        """With `explained`, the output is the explained number of every row instead of the row."""
        super().__init__()
        self.model = call.model
        self._call, self._graph, self._given, self._explained = call, graph, given, explained

    def forward(self, x: dict[str, Tensor], edge_index: dict[EdgeType, Tensor]) -> Tensor:
        """`[rows of the union, classes]`: zeros for other types; or `[rows]`, the explained number of every row."""
        forward = self._call.forward
        assert isinstance(forward, TypedForward)
        values = {**self._given, **{(name, "x"): value for name, value in x.items()}}
        values |= {(kind, "edge_index"): ends for kind, ends in edge_index.items()}
        rows = replace(self._call, forward=forward.with_values(values))(self._graph)
        return rows if self._explained is None else self._explained.value(rows)
