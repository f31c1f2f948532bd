"""Copies of the targets' neighbourhoods side by side in one graph: one ω per copy of an edge."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from edgewise.graph.computation_graph import InEdges, reach


@dataclass(frozen=True)
class Copies:
    """One graph that holds a copy for every target, and where each copy comes from."""

    data: Data
    rows: Tensor
    """`[T]`: the row of the model's output that belongs to each target."""
    edge_id: Tensor
    """`[M]`: the column of the original graph; only edges that can reach their target are listed."""
    owner: Tensor
    """`[M]`: the position of the target."""
    edge_place: Tensor
    """`[M]`: the column in `data`."""
    edge_hops: Tensor
    """`[M]`: fewest edges from the receiver to the target."""
    self_node: Tensor
    self_owner: Tensor
    self_place: Tensor
    self_hops: Tensor
    column_edge: Tensor | None = None
    """Of every column of `data`, the column of the original graph; None: as `edge_id`, which then lists them all."""
    column_owner: Tensor | None = None

    @property
    def num_targets(self) -> int:
        """How many copies there are."""
        return self.rows.numel()


def neighbourhoods(graph: Data, in_edges: InEdges, targets: Tensor, num_layers: int, *, rim: int) -> Copies:
    """The `num_layers`-hop neighbourhood of every target, and `rim` hops more for layers that read senders' degrees."""
    near = reach(in_edges, targets, num_layers + rim)
    size = in_edges.num_nodes
    inner = (near.hops < num_layers + rim).nonzero().view(-1)
    position, place = in_edges.of_nodes(near.node[inner])
    receiver = inner[position]
    sender = near.find(near.target[receiver], in_edges.sender[place], size)
    edge_id = in_edges.edge[place]
    column = torch.arange(len(edge_id), device=targets.device)
    scored = near.hops[receiver] < num_layers
    own = (near.hops < num_layers).nonzero().view(-1)
    ends = torch.stack([sender, receiver])
    if _sends_second(graph, in_edges):
        ends = ends.flip(0)
    return Copies(
        data=_assemble(graph, near.node, edge_id, ends),
        rows=near.find(torch.arange(len(targets), device=targets.device), targets, size),
        edge_id=edge_id[scored],
        owner=near.target[receiver[scored]],
        edge_place=column[scored],
        edge_hops=near.hops[receiver[scored]],
        self_node=near.node[own],
        self_owner=near.target[own],
        self_place=own,
        self_hops=near.hops[own],
        column_edge=edge_id,
        column_owner=near.target[receiver],
    )


def _sends_second(graph: Data, in_edges: InEdges) -> bool:
    """Whether messages run against the columns (`flow="target_to_source"`)."""
    return in_edges.sender.numel() > 0 and not torch.equal(graph.edge_index[0][in_edges.edge], in_edges.sender)


def _assemble(graph: Data, node_id: Tensor, edge_id: Tensor, edge_index: Tensor) -> Data:
    """The attributes of the graph, row by row for the copies."""
    union = Data()
    for key in graph.keys():  # noqa: SIM118 (Data is not a dict)
        value = graph[key]
        if key in ("edge_index", "num_nodes"):
            continue
        if isinstance(value, Tensor) and graph.is_node_attr(key):
            value = value[node_id]
        elif isinstance(value, Tensor) and graph.is_edge_attr(key):
            value = value[edge_id]
        union[key] = value
    union.edge_index, union.num_nodes = edge_index, len(node_id)
    return union


def side_by_side(graphs: list[Data]) -> Copies:
    """Whole graphs as one batch, a target each (a graph task): every edge and node can reach the readout."""
    union = join(graphs)
    device = union.edge_index.device
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs], device=device)
    nodes = torch.tensor([graph.num_nodes for graph in graphs], device=device)
    owner, edge_id = enumerated(edges)
    self_owner, self_node = enumerated(nodes)
    column, node = torch.arange(len(owner), device=device), torch.arange(len(self_owner), device=device)
    none = torch.zeros(1, dtype=torch.long, device=device)
    return Copies(
        union,
        torch.arange(len(graphs), device=device),
        edge_id,
        owner,
        column,
        none.expand(len(owner)),
        self_node,
        self_owner,
        node,
        none.expand(len(self_owner)),
    )


def enumerated(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For counts (2, 1): owners (0, 0, 1) and numbers (0, 1, 0)."""
    owner = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    return owner, torch.arange(len(owner), device=counts.device) - start[owner]


def join(graphs: list[Data]) -> Data:
    """Graphs as one disconnected graph with `batch`; attributes that only some graphs have are left out."""
    keys = [set(graph.keys()) for graph in graphs]
    partial = set.union(*keys) - set.intersection(*keys)
    return Batch.from_data_list(graphs, exclude_keys=[*partial, "batch", "ptr"])


def whole_graph(graph: Data, in_edges: InEdges, target: int, num_layers: int) -> Copies:
    """The graph itself for one target (a model that is not local)."""
    device = graph.edge_index.device
    near = reach(in_edges, torch.tensor([target], device=device), num_layers - 1)
    hops = torch.full((graph.num_nodes,), num_layers, device=device)
    hops[near.node] = near.hops
    receiver = torch.empty_like(in_edges.edge)
    receiver[in_edges.edge] = torch.repeat_interleave(
        torch.arange(graph.num_nodes, device=device), in_edges.start.diff()
    )
    column, node = torch.arange(len(receiver), device=device), torch.arange(graph.num_nodes, device=device)
    none = torch.zeros(1, dtype=torch.long, device=device)
    return Copies(
        graph,
        torch.tensor([target], device=device),
        edge_id=column,
        owner=none.expand(len(column)),
        edge_place=column,
        edge_hops=hops[receiver],
        self_node=node,
        self_owner=none.expand(len(node)),
        self_place=node,
        self_hops=hops,
    )
