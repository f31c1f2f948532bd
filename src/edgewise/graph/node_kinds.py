"""Kinds of nodes: a graph whose nodes have tables of their own, one for each kind (the types of a `HeteroData`).

A value of one kind has a row for each node of that kind, in the order of the nodes. A graph of one kind needs none of this:
`None` stands for it everywhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NodeKinds:
    """Which kind each of N nodes is of, and its row in the tables of that kind.

    >>> kinds = NodeKinds.of([torch.tensor([0, 3]), torch.tensor([1, 2])], 4)      # two kinds with two nodes each
    >>> kinds.of_node.tolist(), kinds.place.tolist()
    ([0, 1, 1, 0], [0, 0, 1, 1])
    """

    of_node: Tensor
    """`[N]`."""
    place: Tensor
    """`[N]`: the row of each node among those of its kind."""
    nodes: tuple[Tensor, ...]
    """For each kind: its nodes, ascending."""

    @staticmethod
    def of(nodes: list[Tensor], num_nodes: int) -> "NodeKinds":
        """From the nodes of each kind, ascending; together they are all nodes, each once."""
        of_node = torch.empty(num_nodes, dtype=torch.long, device=nodes[0].device)
        place = torch.empty_like(of_node)
        for kind, rows in enumerate(nodes):
            of_node[rows] = kind
            place[rows] = torch.arange(len(rows), device=rows.device)
        return NodeKinds(of_node, place, tuple(nodes))

    def size(self, kind: int) -> int:
        """How many nodes are of a kind."""
        return len(self.nodes[kind])
