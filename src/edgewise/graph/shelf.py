"""Many graphs, of which batches are taken again and again."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.copies import Copies, side_by_side

_SIMPLE = {"x", "edge_index", "edge_attr", "edge_weight", "y", "num_nodes"}


class Shelf:
    """Graphs in order. Those without attributes of their own kind are joined once: a batch is then a slice."""

    def __init__(self, graphs: list[Data], *, simple: bool) -> None:
        self.graphs = graphs
        stores = [graph._store for graph in graphs]
        self.edge_index: list[Tensor] = [store["edge_index"] for store in stores]
        nodes = [store["x"].size(0) for store in stores]
        self.counts = torch.tensor([nodes, [edges.size(1) for edges in self.edge_index]]).t()
        self._ends = torch.cat([torch.zeros(1, 2, dtype=torch.long), self.counts.cumsum(0)]).tolist()
        keys = set(stores[0].keys())
        simple = simple and not keys - _SIMPLE and all(set(store.keys()) == keys for store in stores)
        self._joined = self._join(keys) if simple else None

    def _join(self, keys: set[str]) -> Data:
        union = Data()
        for key in keys & {"x", "edge_attr", "edge_weight"}:
            union[key] = torch.cat([graph._store[key] for graph in self.graphs])
        union.edge_index = torch.cat(self.edge_index, dim=1)
        numbers = torch.arange(len(self.graphs))
        union.batch = torch.repeat_interleave(numbers, self.counts[:, 0]).to(union.edge_index.device)
        union.owner = torch.repeat_interleave(numbers, self.counts[:, 1]).to(union.edge_index.device)
        shift = self.counts[:, 0].cumsum(0) - self.counts[:, 0]
        union.edge_index += shift.to(union.edge_index.device)[union.owner]
        return union

    def take(self, positions: Tensor) -> Copies:
        """Some graphs side by side."""
        first, last = int(positions[0]), int(positions[-1])
        in_order = last - first == len(positions) - 1 and bool((positions.diff() == 1).all())
        if self._joined is None or not in_order:
            return side_by_side([self.graphs[i] for i in positions.tolist()])
        (node, edge), (node_end, edge_end) = self._ends[first], self._ends[last + 1]
        joined, data = self._joined, Data()
        for key in ("x", "edge_attr", "edge_weight"):
            if key in joined:
                data[key] = joined[key][node:node_end] if key == "x" else joined[key][edge:edge_end]
        data.edge_index = joined.edge_index[:, edge:edge_end] - node
        data.batch, data.num_nodes = joined.batch[node:node_end] - first, node_end - node
        data.num_graphs = len(positions)
        starts = (
            (torch.tensor(self._ends[first : last + 1]) - torch.tensor([node, edge])).to(data.batch.device).unbind(1)
        )
        owner = joined.owner[edge:edge_end] - first
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
            self_hops=none.expand(len(place)),
        )
