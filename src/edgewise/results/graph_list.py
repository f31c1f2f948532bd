"""GraphList: many graphs as one joined `edge_index` and their sizes; each is cut out when it is looked at."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Graph = tuple[Tensor, int]
"""`edge_index` `[2, E]` and the number of nodes."""


class GraphList(Sequence[Graph]):
    """The graphs of a set: a sequence of `(edge_index, number of nodes)`, made from three tensors however many there are.

    >>> graphs = GraphList(torch.tensor([[0, 1, 0], [1, 2, 0]]), torch.tensor([2, 1]), torch.tensor([3, 1]))
    >>> len(graphs), graphs[1]
    (2, (tensor([[0],
            [0]]), 1))
    """

    def __init__(self, edge_index: Tensor, edges: Tensor, nodes: Tensor) -> None:
        self._edge_index, self._nodes = edge_index, nodes
        self._start = torch.cat([edges.new_zeros(1), edges.cumsum(0)])

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, place: Any) -> Any:
        """One graph by its place, or a tuple of graphs for a slice."""
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        place = range(len(self))[place]
        begin, end = self._start[place : place + 2].tolist()
        return self._edge_index[:, begin:end], int(self._nodes[place])

    def __iter__(self) -> Iterator[Graph]:
        return (self[place] for place in range(len(self)))
