"""Lists of graphs from which batches are taken again and again."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.copies import Copies, side_by_side
from edgewise.pyg_internals import attributes

MOST_KEPT = 2**24
"""Bytes of graphs of which a second copy is held."""
_SIMPLE = {"x", "edge_index", "edge_attr", "edge_weight", "y", "num_nodes"}


class JoinedGraphs:
    """A list of graphs from which batches are taken again and again.

    If all graphs have the same, well-known attributes, they are joined by `torch.cat`: few of them once for all, and a batch of
    graphs that follow each other is then a slice; many of them, or in another order, again for each batch, so that no second
    copy of all is held. Otherwise every batch is put together by PyG (`side_by_side`).

    >>> path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))       # 0 → 1 → 2
    >>> graphs = JoinedGraphs([path, path, path], simple=True)                           # nodes 0-2, 3-5, 6-8
    >>> graphs.take(torch.tensor([1, 2])).data.edge_index.tolist()                       # columns 2 to 5, moved by 3 nodes
    [[0, 1, 3, 4], [1, 2, 4, 5]]
    """

    def __init__(self, graphs: list[Data], *, simple: bool) -> None:
        """`simple=False`: the model may read any attribute of a batch, so PyG has to make it."""
        self.graphs = graphs
        stores = [attributes(graph) for graph in graphs]
        self.edge_index: list[Tensor] = [store["edge_index"] for store in stores]
        nodes = [store["x"].size(0) for store in stores]
        self.counts = torch.tensor([nodes, [edges.size(1) for edges in self.edge_index]]).t()
        """`[graphs, 2]`: how many nodes and edges each has."""
        self._ends = torch.cat([torch.zeros(1, 2, dtype=torch.long), self.counts.cumsum(0)]).tolist()
        keys = set(stores[0].keys())
        simple = simple and not keys - _SIMPLE and all(set(store.keys()) == keys for store in stores)
        self._keys = keys & {"x", "edge_attr", "edge_weight"}
        self.nbytes = sum(store[key].nbytes for store in stores for key in (*self._keys, "edge_index")) if simple else 0
        """Of what would be joined."""
        self._is_simple = simple
        self._joined = self._join(torch.arange(len(graphs))) if simple and self.nbytes <= MOST_KEPT else None

    def _join(self, positions: Tensor) -> Data:
        """Some graphs as one: `batch` `[nodes]` and `owner` `[edges]` say which of them a node or an edge is of, from 0 on."""
        union, chosen = Data(), positions.tolist()
        for key in self._keys:
            union[key] = torch.cat([attributes(self.graphs[i])[key] for i in chosen])
        union.edge_index = torch.cat([self.edge_index[i] for i in chosen], dim=1)
        numbers, counts = torch.arange(len(chosen)), self.counts[positions]
        union.batch = torch.repeat_interleave(numbers, counts[:, 0]).to(union.edge_index.device)
        union.owner = torch.repeat_interleave(numbers, counts[:, 1]).to(union.edge_index.device)
        shift = counts[:, 0].cumsum(0) - counts[:, 0]  # [graphs]: the first node of each
        union.edge_index += shift.to(union.edge_index.device)[union.owner]
        return union

    def take(self, positions: Tensor) -> Copies:
        """The graphs at some positions side by side.

        Graphs `first` to `last` of the joined one are its nodes `node:node_end` and its columns `edge:edge_end`. In a slice all
        numbers start again at 0: those of nodes, of graphs (`batch`, `owner`), and within each graph those of its edges
        (`edge_id`) and nodes (`self_node`).
        """
        if not self._is_simple:
            return side_by_side([self.graphs[i] for i in positions.tolist()])
        first, last = int(positions[0]), int(positions[-1])
        in_order = last - first == len(positions) - 1 and bool((positions.diff() == 1).all())
        joined, data = self._joined, Data()
        if joined is None or not in_order:
            joined, first, node, edge = self._join(positions), 0, 0, 0
            node_end, edge_end = len(joined.batch), len(joined.owner)
        else:
            (node, edge), (node_end, edge_end) = self._ends[first], self._ends[last + 1]
        for key in ("x", "edge_attr", "edge_weight"):
            if key in joined:
                data[key] = joined[key][node:node_end] if key == "x" else joined[key][edge:edge_end]
        data.edge_index = joined.edge_index[:, edge:edge_end] - node
        data.batch, data.num_nodes = joined.batch[node:node_end] - first, node_end - node
        data.num_graphs = len(positions)
        counts = self.counts[positions].to(data.batch.device)
        starts = (counts.cumsum(0) - counts).unbind(1)  # [T] each: the first node and the first column of every graph
        owner = joined.owner[edge:edge_end] - first  # [M]
        column, place = (torch.arange(n, device=owner.device) for n in (len(owner), len(data.batch)))
        none = torch.zeros(1, dtype=torch.long, device=owner.device)
        return Copies(
            data,
            torch.arange(len(positions), device=owner.device),
            edge_id=column - starts[1][owner],
            owner=owner,
            edge_place=column,
            edge_hops=none.expand(len(column)),
            self_node=place - starts[0][data.batch],
            self_owner=data.batch,
            self_place=place,
        )
