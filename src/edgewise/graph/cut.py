"""Cuts: the part of a graph that some targets can see, with the numbers that its nodes and columns have in the graph.

Explaining one node of a large graph needs its neighbourhood and nothing else. A cut is a graph of its own: its nodes and
columns keep their order, so that ties are broken as in the whole graph; `node_id` and `edge_id` say which they are there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges

_SMALL = 2**17
"""Numbers (features and ends of edges) of a graph that is not worth cutting."""
_MOST = 0.5
"""A cut that keeps more than this share of the edges is no gain."""


@dataclass(frozen=True)
class Cut:
    """A part of a graph, or all of it (`node_id` and `edge_id` are then None)."""

    data: Data
    num_nodes: int
    """Of the whole graph."""
    num_edges: int
    node_id: Tensor | None = None
    """`[n]`: the node of the whole graph, ascending."""
    edge_id: Tensor | None = None
    """`[m]`: the column of the whole graph, ascending."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off."""
        return self.node_id is None

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the whole graph, from columns of the cut."""
        return local if self.edge_id is None else self.edge_id.to(local.device)[local]

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the whole graph, from nodes of the cut."""
        return local if self.node_id is None else self.node_id.to(local.device)[local]

    def places(self, nodes: Tensor) -> Tensor:
        """Nodes of the cut, from nodes of the whole graph that are known to be in it."""
        return nodes if self.node_id is None else torch.searchsorted(self.node_id, nodes)


def whole(graph: Data) -> Cut:
    """No cut at all."""
    return Cut(graph, graph.num_nodes, graph.edge_index.size(1))


def worth_cutting(graph: Data) -> bool:
    """Whether a graph is so large that a part of it may be much cheaper."""
    return graph.x.numel() + graph.edge_index.numel() > _SMALL


def cut_out(graph: Data, targets: Tensor, hops: int, *, flow: str | None, in_edges: InEdges | None = None) -> Cut:
    """The nodes from which a message can reach a target within some hops, and all edges into them but the farthest.

    `flow=None` follows edges both ways. With `in_edges` at hand the cost depends on the cut alone; without, each hop is one
    pass over `edge_index`.

    >>> path = Data(x=torch.eye(8), edge_index=torch.tensor([range(7), range(1, 8)]))       # 0 → 1 → … → 7
    >>> cut = cut_out(path, torch.tensor([5]), 2, flow="source_to_target")
    >>> cut.node_id.tolist(), cut.edge_id.tolist(), cut.data.edge_index.tolist()
    ([3, 4, 5], [3, 4], [[0, 1], [1, 2]])
    """
    if in_edges is not None and flow is not None:
        node_id, edge_id = _by_groups(in_edges, targets, hops)
    else:
        node_id, edge_id = _by_passes(graph, targets, hops, flow)
    if len(edge_id) > _MOST * graph.edge_index.size(1) and len(node_id) > _MOST * graph.num_nodes:
        return whole(graph)
    return Cut(part_of(graph, node_id, edge_id), graph.num_nodes, graph.edge_index.size(1), node_id, edge_id)


def _by_passes(graph: Data, targets: Tensor, hops: int, flow: str | None) -> tuple[Tensor, Tensor]:
    """Nodes and columns by marking nodes, one pass over all columns a hop."""
    marked = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.edge_index.device)
    marked[targets] = True
    sender, receiver = graph.edge_index if flow != "target_to_source" else graph.edge_index.flip(0)
    used = torch.zeros(0, dtype=torch.long, device=targets.device)
    for _ in range(hops):
        inside = marked[receiver]  # [E]
        if flow is None:
            inside = inside | marked[sender]
        used = inside.nonzero().view(-1)
        before = int(marked.sum())
        marked[sender[used]] = True
        if flow is None:
            marked[receiver[used]] = True
        if int(marked.sum()) == before:
            break
    return marked.nonzero().view(-1), used


def _by_groups(in_edges: InEdges, targets: Tensor, hops: int) -> tuple[Tensor, Tensor]:
    """The same from edges that are grouped by receiver."""
    frontier = known = targets.unique()
    columns = []
    for _ in range(hops):
        _, place = in_edges.of_nodes(frontier)
        columns.append(in_edges.edge[place])
        senders = in_edges.sender[place].unique()
        frontier = senders[~torch.isin(senders, known, assume_unique=True)]
        if len(frontier) == 0:
            break
        known = torch.cat([known, frontier]).sort().values
    edge_id = torch.cat(columns).sort().values if columns else known[:0]
    return known, edge_id


def part_of(graph: Data, node_id: Tensor, edge_id: Tensor) -> Data:
    """The attributes of some nodes and columns; whatever belongs to neither is kept as it is."""
    part = Data()
    number = torch.empty(graph.num_nodes, dtype=torch.long, device=node_id.device)
    number[node_id] = torch.arange(len(node_id), device=node_id.device)
    for key in graph.keys():  # noqa: SIM118 (Data is not a dict)
        value = graph[key]
        if key in ("edge_index", "num_nodes"):
            continue
        if isinstance(value, Tensor) and graph.is_node_attr(key):
            value = value.index_select(0, node_id)
        elif isinstance(value, Tensor) and graph.is_edge_attr(key):
            value = value.index_select(0, edge_id)
        part[key] = value
    part.edge_index = number[graph.edge_index.index_select(1, edge_id)]
    part.num_nodes = len(node_id)
    return part
