"""The batches of an epoch for several seeds at once, padded to one size, so that a recorded step fits all of them.

`MessageGraphs` holds all training graphs behind one another, with the edges that an architecture passes messages along (GCN:
with self-loops, normalised; GAT: with self-loops). `EpochBatches` writes the order of an epoch into tensors that stay where
they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops


@dataclass(frozen=True, eq=False)
class MessageGraphs:
    """G graphs: N nodes and M edges in all, and behind them one more of each, which stands for none."""

    x: Tensor
    """`[N + 1, d]`; the last row is 0."""
    sender: Tensor
    """`[M + 1]`: within its graph."""
    receiver: Tensor
    weight: Tensor
    """`[M + 1]`: of a message; that of the last is 0."""
    attr: Tensor
    """`[M + 1, edge_dim]`, with no columns where edges have no features."""
    nodes: Tensor
    """`[G]`."""
    edges: Tensor
    """`[G]`."""
    y: Tensor
    """`[G]`."""

    @staticmethod
    def of(graphs: list[Data], architecture: str) -> "MessageGraphs":
        """The graphs as an architecture sees them."""
        parts = [_messages(graph, architecture) for graph in graphs]
        x = torch.cat([graph.x for graph in graphs])
        sender, receiver = (torch.cat([*(part[0][end] for part in parts), torch.zeros(1).long()]) for end in (0, 1))
        weight, attr = (torch.cat([part[place] for part in parts]) for place in (1, 2))
        return MessageGraphs(
            torch.cat([x, x.new_zeros(1, x.size(1))]),
            sender,
            receiver,
            torch.cat([weight, weight.new_zeros(1)]),
            torch.cat([attr, attr.new_zeros(1, attr.size(1))]),
            torch.tensor([graph.num_nodes for graph in graphs]),
            torch.tensor([part[0].size(1) for part in parts]),
            torch.cat([graph.y for graph in graphs]).to(x.dtype),
        )

    def to(self, device: torch.device) -> "MessageGraphs":
        """The same on a device."""
        return replace(self, **{one.name: getattr(self, one.name).to(device) for one in fields(self)})


def _messages(graph: Data, architecture: str) -> tuple[Tensor, Tensor, Tensor]:
    """Edges `[2, m]`, their weights `[m]` and features `[m, edge_dim]`, as the layers of an architecture make them."""
    attr = graph.x.new_zeros(graph.num_edges, 0) if graph.edge_attr is None else graph.edge_attr
    if architecture == "GCN":
        edge_index, weight = gcn_norm(graph.edge_index, None, graph.num_nodes, dtype=graph.x.dtype)
        return edge_index, weight, graph.x.new_zeros(len(weight), 0)
    edge_index = graph.edge_index
    if architecture == "GAT":  # GATv2Conv: self-loops have the mean of the features of the edges that come in
        edge_index, attr = remove_self_loops(edge_index, attr)
        edge_index, attr = add_self_loops(edge_index, attr, fill_value="mean", num_nodes=graph.num_nodes)
    return edge_index, graph.x.new_ones(edge_index.size(1)), attr


@dataclass(frozen=True, eq=False)
class SeedBatch:
    """One batch of each of S seeds: P nodes and Q edges of each, the last of which stand for none."""

    x: Tensor
    """`[S, P, d]`."""
    real: Tensor
    """`[S, P, 1]`: 1 for a node, 0 for none."""
    graph: Tensor
    """`[S · P]`: (seed, graph), as one number; graph `size` of a seed takes the nodes that stand for none."""
    size: int
    """Graphs in a batch, at most."""
    sender: Tensor
    """`[S · Q]`: (seed, node), as one number."""
    receiver: Tensor
    weight: Tensor
    """`[S · Q, 1]`."""
    attr: Tensor
    """`[S, Q, edge_dim]`."""
    label: Tensor
    """`[S, size]`."""
    share: Tensor
    """`[S, size]`: 1 / (graphs in the batch), 0 for none."""


class EpochBatches:
    """The batches of one epoch, in memory that is written anew for the next.

    Args:
        graphs: What is trained on.
        orders: `[epochs, S, G]`: the graphs in their order.
        size: Graphs in a batch.
    """

    def __init__(self, graphs: MessageGraphs, orders: Tensor, size: int) -> None:
        self.graphs, self.size = graphs, size
        device = graphs.x.device
        self.orders = orders.to(device)
        _, self.seeds, count = orders.shape
        self.steps = -(-count // size)
        self.batch = torch.arange(count, device=device) // size  # [G]: the batch of a place in the order
        most = [int(self._sums(sizes[self.orders]).max()) for sizes in (graphs.nodes, graphs.edges)]
        self.width, self.breadth = most[0] + 1, max(most[1], 1)  # one node more, which stands for none
        self.node, self.graph = self._table(self.width), self._table(self.width)
        self.edge, self.first = self._table(self.breadth), self._table(self.breadth)  # first: node of the edge's graph
        self.chosen = self._table(size)
        self.total_nodes = int(graphs.nodes.sum()) * self.seeds
        self.total_edges = int(graphs.edges.sum()) * self.seeds

    def _table(self, width: int) -> Tensor:
        """`[steps, S, width]`: written by `fill`, read by every step."""
        return torch.zeros(self.steps, self.seeds, width, dtype=torch.long, device=self.orders.device)

    def _sums(self, sizes: Tensor) -> Tensor:
        """`[..., steps]`: sums over batches of `[..., G]`."""
        return sizes.new_zeros(*sizes.shape[:-1], self.steps).index_add_(-1, self.batch, sizes)

    def fill(self, epoch: int) -> None:
        """Write the order of an epoch."""
        order, graphs = self.orders[epoch], self.graphs
        nodes, edges = graphs.nodes[order], graphs.edges[order]  # [S, G]
        node_start, edge_start = (self._offset(sizes) for sizes in (nodes, edges))  # [S, G]: within the batch
        first = (graphs.nodes.cumsum(0) - graphs.nodes)[order], (graphs.edges.cumsum(0) - graphs.edges)[order]
        row = self.batch * self.seeds + torch.arange(self.seeds, device=order.device).view(-1, 1)  # [S, G]
        place = torch.arange(order.size(1), device=order.device) % self.size  # [G]: within the batch
        self.node.fill_(len(graphs.x) - 1)
        self.graph.fill_(self.size)
        token, within = _tokens(nodes, self.total_nodes)
        where = (row * self.width + node_start).view(-1)[token] + within
        self.node.view(-1)[where] = first[0].view(-1)[token] + within
        self.graph.view(-1)[where] = place.repeat(self.seeds)[token]
        self.edge.fill_(len(graphs.sender) - 1)
        self.first.fill_(self.width - 1)
        token, within = _tokens(edges, self.total_edges)
        where = (row * self.breadth + edge_start).view(-1)[token] + within
        self.edge.view(-1)[where] = first[1].view(-1)[token] + within
        self.first.view(-1)[where] = node_start.view(-1)[token]
        self.chosen.fill_(-1)
        self.chosen.view(-1)[(row * self.size + place).view(-1)] = order.reshape(-1)

    def _offset(self, sizes: Tensor) -> Tensor:
        """`[S, G]`: how much of the batch lies before each graph."""
        before = sizes.cumsum(-1) - sizes
        return before - before[:, :: self.size][:, self.batch]

    def __iter__(self) -> Iterator[SeedBatch]:
        """The batches; reading them takes tensor operations alone, so it can be recorded."""
        graphs, device = self.graphs, self.node.device
        seed = torch.arange(self.seeds, device=device).view(-1, 1)
        for step in range(self.steps):
            node, edge, chosen = self.node[step], self.edge[step], self.chosen[step]
            start = self.first[step] + seed * self.width
            known = (chosen >= 0).to(graphs.y.dtype)
            yield SeedBatch(
                x=graphs.x[node],
                real=(node < len(graphs.x) - 1).to(graphs.x.dtype).unsqueeze(-1),
                graph=(self.graph[step] + seed * (self.size + 1)).view(-1),
                size=self.size,
                sender=(graphs.sender[edge] + start).view(-1),
                receiver=(graphs.receiver[edge] + start).view(-1),
                weight=graphs.weight[edge].view(-1, 1),
                attr=graphs.attr[edge],
                label=graphs.y[chosen.clamp(min=0)] * known,
                share=known / known.sum(dim=1, keepdim=True),
            )


def _tokens(sizes: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """For each of `total` entries of things of `sizes`: whose it is, and its place there."""
    flat = sizes.reshape(-1)
    whose = torch.arange(len(flat), device=flat.device).repeat_interleave(flat, output_size=total)
    return whose, torch.arange(total, device=flat.device) - (flat.cumsum(0) - flat)[whose]
