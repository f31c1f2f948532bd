"""Copies of the targets' neighbourhoods side by side in one graph: one ω per copy of an edge.

The user's model then runs once for many targets, and the gradient of the sum of all explained numbers holds the separate
gradients of all of them. Ways to get a `Copies`: `neighbourhoods` (node tasks), `side_by_side` and `JoinedGraphs` (graph
tasks), `whole_graph` (one target of a model that is not local); those of links are in `pair_copies.py`.

The path 0 → 1 → 2 with edges e0, e1, two layers and the targets (2, 1): the copy of target 2 has the nodes 0, 1, 2 and both
edges, that of target 1 has the nodes 0, 1 and e0. Side by side they are a graph with five nodes and three edges, `edge_id` is
(e0, e1, e0) and `owner` is (0, 0, 1).
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from edgewise.arrays import enumerated
from edgewise.graph.computation_graph import InEdges, Reach, nearest_once, reach


@dataclass(frozen=True)
class Copies:
    """One graph that holds a copy for every target, and where each copy comes from.

    T targets; M copies of edges that get a weight ω, S copies of nodes that get a weight s on their own term. The graph may
    have more edges and nodes than that (a rim that layers read but that cannot reach the target).
    """

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
    """`[S]`: the node of the original graph."""
    self_owner: Tensor
    """`[S]`: the position of the target."""
    self_place: Tensor
    """`[S]`: the node in `data`."""
    column_edge: Tensor | None = None
    """For every column of `data`, the column of the original graph; None: as `edge_id`, which then lists them all."""
    column_owner: Tensor | None = None
    """For every column of `data`, the position of the target; None: as `owner`."""
    near_node: Tensor | None = None
    """For every node of `data`, the node of the original graph; None: as `self_node`, which then lists them all."""
    near_owner: Tensor | None = None
    """For every node of `data`, the position of the target; None: as `self_owner`."""
    near_hops: Tensor | None = None
    """For every node of `data`, fewest edges to the target; None: any node may matter."""

    @property
    def nodes(self) -> tuple[Tensor, Tensor]:
        """For every node of `data`, the node of the original graph and the position of the target."""
        if self.near_node is None or self.near_owner is None:
            return self.self_node, self.self_owner
        return self.near_node, self.near_owner

    @property
    def columns(self) -> tuple[Tensor, Tensor]:
        """For every column of `data`, the column of the original graph and the position of the target."""
        if self.column_edge is None or self.column_owner is None:
            return self.edge_id, self.owner
        return self.column_edge, self.column_owner

    @property
    def num_targets(self) -> int:
        """How many copies there are."""
        return self.rows.numel()


def neighbourhoods(graph: Data, in_edges: InEdges, targets: Tensor, num_layers: int, *, rim: int) -> Copies:
    """The `num_layers`-hop neighbourhood of every target, and `rim` hops more for layers that read senders' degrees.

    An edge gets a weight if its receiver is less than `num_layers` hops from the target: later than that, its message comes
    too late. Where messages run both ways, either end may be the receiver. The rim has edges without a weight.

    >>> path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))       # 0 → 1 → 2
    >>> copies = neighbourhoods(path, InEdges.of(path.edge_index, 3), torch.tensor([2, 1]), 2, rim=0)
    >>> copies.edge_id.tolist(), copies.owner.tolist()
    ([0, 1, 0], [0, 0, 1])
    >>> copies.data.edge_index.tolist()                 # nodes 0, 1, 2 are the copy of target 2; 3, 4 that of target 1
    [[0, 1, 3], [1, 2, 4]]
    >>> copies.rows.tolist()
    [2, 4]
    """
    near = reach(in_edges, targets, num_layers + rim)
    rows = near.find(torch.arange(len(targets), device=targets.device), targets, in_edges.num_nodes)
    return laid_out(graph, in_edges, near, rows, num_layers, rim=rim)


def laid_out(graph: Data, in_edges: InEdges, near: Reach, rows: Tensor, num_layers: int, *, rim: int) -> Copies:
    """The P pairs (target, node) that lie near as the nodes of a new graph; `rows` `[T]` are the targets' rows of output."""
    size = in_edges.num_nodes
    inner = (near.hops < num_layers + rim).nonzero().view(-1)  # pairs whose in-edges are inside, too
    position, place = in_edges.of_nodes(near.node[inner])
    receiver = inner[position]  # [edges]: pair
    sender = near.find(near.target[receiver], in_edges.sender[place], size)  # [edges]: pair of the same target
    edge_id = in_edges.edge[place]  # [edges]: column of the original graph
    ends = torch.stack([sender, receiver])
    if in_edges.both_ways:
        once = nearest_once(near.target[receiver] * graph.edge_index.size(1) + edge_id, near.hops[receiver])
        receiver, edge_id = receiver[once], edge_id[once]
        ends = torch.stack([near.find(near.target[receiver], end, size) for end in graph.edge_index[:, edge_id]])
    elif sends_second(graph, in_edges):
        ends = ends.flip(0)
    column = torch.arange(len(edge_id), device=rows.device)
    scored = near.hops[receiver] < num_layers  # [edges]: M of them are true
    own = (near.hops < num_layers).nonzero().view(-1)  # [S]: pairs
    return Copies(
        data=assemble(graph, near.node, edge_id, ends),
        rows=rows,
        edge_id=edge_id[scored],
        owner=near.target[receiver[scored]],
        edge_place=column[scored],
        edge_hops=near.hops[receiver[scored]],
        self_node=near.node[own],
        self_owner=near.target[own],
        self_place=own,
        column_edge=edge_id,
        column_owner=near.target[receiver],
        near_node=near.node,
        near_owner=near.target,
        near_hops=near.hops,
    )


def disturbed(copies: Copies, which: Tensor) -> Copies:
    """The same copies, where those of some targets (a mask `[T]`) have other features and edge attributes."""
    data = copy.copy(copies.data)
    for name, (_, owner) in (("x", copies.nodes), ("edge_attr", copies.columns), ("edge_weight", copies.columns)):
        values = data.get(name)
        if isinstance(values, Tensor) and values.is_floating_point():
            mask = which[owner].view(-1, *[1] * (values.dim() - 1))
            data[name] = torch.where(mask, 3 - 7 * values, values)
    return replace(copies, data=data)


def sends_second(graph: Data, in_edges: InEdges) -> bool:
    """Whether messages run against the columns (`flow="target_to_source"`)."""
    return in_edges.sender.numel() > 0 and not torch.equal(graph.edge_index[0][in_edges.edge], in_edges.sender)


def assemble(graph: Data, node_id: Tensor, edge_id: Tensor, edge_index: Tensor) -> Data:
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


def whole_graph(graph: Data, in_edges: InEdges, target: int, num_layers: int) -> Copies:
    """The graph itself for one target (a model that is not local): every edge has a weight, whatever its distance."""
    device = graph.edge_index.device
    near = reach(in_edges, torch.tensor([target], device=device), num_layers - 1)
    hops = torch.full((graph.num_nodes,), num_layers, device=device)  # [N]: `num_layers` stands for "further away"
    hops[near.node] = near.hops
    column, node = (torch.arange(n, device=device) for n in (graph.edge_index.size(1), graph.num_nodes))
    received = torch.repeat_interleave(hops, in_edges.start.diff())  # of the receiver of each in-edge
    edge_hops = torch.full_like(column, num_layers).scatter_reduce(0, in_edges.edge, received, "amin")
    none = torch.zeros(1, dtype=torch.long, device=device)
    return Copies(
        graph,
        torch.tensor([target], device=device),
        edge_id=column,
        owner=none.expand(len(column)),
        edge_place=column,
        edge_hops=edge_hops,
        self_node=node,
        self_owner=none.expand(len(node)),
        self_place=node,
    )


# --- Graph tasks: every graph is a target ------------------------------------------------------------------------------


def side_by_side(graphs: list[Data]) -> Copies:
    """Whole graphs as one batch, a target each (a graph task): every edge and node can reach the readout.

    >>> path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))       # 0 → 1 → 2
    >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[1], [0]]))             # 1 → 0
    >>> copies = side_by_side([path, pair])
    >>> copies.data.edge_index.tolist()
    [[0, 1, 4], [1, 2, 3]]
    >>> copies.edge_id.tolist(), copies.owner.tolist(), copies.self_node.tolist()
    ([0, 1, 0], [0, 0, 1], [0, 1, 2, 0, 1])
    """
    union = join(graphs)
    device = union.edge_index.device
    edges = torch.tensor([graph.edge_index.size(1) for graph in graphs], device=device)  # [T]
    nodes = torch.tensor([graph.num_nodes for graph in graphs], device=device)  # [T]
    owner, edge_id = enumerated(edges)  # [M] each
    self_owner, self_node = enumerated(nodes)  # [S] each
    column, node = torch.arange(len(owner), device=device), torch.arange(len(self_owner), device=device)
    none = torch.zeros(1, dtype=torch.long, device=device)
    return Copies(
        union,
        torch.arange(len(graphs), device=device),
        edge_id=edge_id,
        owner=owner,
        edge_place=column,
        edge_hops=none.expand(len(owner)),
        self_node=self_node,
        self_owner=self_owner,
        self_place=node,
    )


def join(graphs: list[Data]) -> Data:
    """Graphs as one disconnected graph with `batch`; attributes that only some graphs have are left out."""
    keys = [set(graph.keys()) for graph in graphs]
    partial = set.union(*keys) - set.intersection(*keys)
    return Batch.from_data_list(graphs, exclude_keys=[*partial, "batch", "ptr"])
