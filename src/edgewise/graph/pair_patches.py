"""Pairs without their own link, all in one graph: the graph itself, with new nodes for whatever the missing link changes.

Taking the columns u → v and v → u out changes degrees and messages around u and v, for this pair alone. A patch holds new nodes
in place of all that are less than L hops from either end; their in-edges come from one another, without the link, and beyond
that from the graph as it is, which never receives anything from a patch. At L hops only features are read, and they do not
change. So one run of the model on the patched graph gives the scores of many pairs, each without its own link.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import assemble, sends_second
from edgewise.graph.pair_copies import LinkColumns, pair_reach, without_columns


@dataclass(frozen=True)
class PatchedGraph:
    """A graph with patches behind its own nodes and columns, and what each node and column is a copy of."""

    data: Data
    pairs: Tensor
    """`[T, 2]`: the ends of the pairs in this graph; those of a pair that has no link are the old nodes."""
    node_id: Tensor
    """`[N + new nodes]`: the node of the graph."""
    edge_id: Tensor
    """`[E + new columns]`: the column of the graph."""

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the graph, from columns of the patched one."""
        return self.edge_id.to(local.device)[local]

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the graph, from nodes of the patched one."""
        return self.node_id.to(local.device)[local]


def patch_size(in_edges: InEdges, pairs: Tensor, links: LinkColumns, hops: int) -> int:
    """How many new nodes the pairs `[T, 2]` need, if nodes within so many hops of the ends of those with a link are new."""
    return len(pair_reach(in_edges, pairs[links.counts > 0], hops).node)


def patched_graph(graph: Data, in_edges: InEdges, pairs: Tensor, links: LinkColumns, hops: int) -> PatchedGraph:
    """The graph with a patch for every pair `[T, 2]` that has a link, `links` being those; `hops`: how far a patch reaches.

    >>> path = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))                # 0 → 1 → 2
    >>> pairs = torch.tensor([[1, 2], [0, 2]])
    >>> links = LinkColumns.of(pairs, path.edge_index, 3)
    >>> patched = patched_graph(path, InEdges.of(path.edge_index, 3), pairs, links, 0)
    >>> patched.pairs.tolist(), patched.node_id.tolist()                    # 3 and 4 are 1 and 2 without 1 → 2
    ([[3, 4], [0, 2]], [0, 1, 2, 1, 2])
    >>> patched.data.edge_index.tolist()
    [[0, 1, 0], [1, 2, 3]]
    """
    size, device = graph.num_nodes, pairs.device
    losing = links.counts.nonzero().view(-1)
    near = pair_reach(in_edges, pairs[losing], hops)
    position, place = in_edges.of_nodes(near.node)
    target, edge_id = near.target[position], in_edges.edge[place]
    kept = without_columns(target, edge_id, *links.select(losing), graph.edge_index.size(1))
    position, place, target, edge_id = position[kept], place[kept], target[kept], edge_id[kept]
    key = target * size + in_edges.sender[place]
    found = torch.searchsorted(near.key, key).clamp(max=len(near.key) - 1)
    sender = torch.where(near.key[found] == key, found + size, in_edges.sender[place])
    ends = torch.stack([sender, position + size])
    if sends_second(graph, in_edges):
        ends = ends.flip(0)
    node_id = torch.cat([torch.arange(size, device=device), near.node])
    columns = torch.cat([torch.arange(graph.edge_index.size(1), device=device), edge_id])
    rows = torch.arange(len(losing), device=device)
    new = torch.stack([near.find(rows, pairs[losing, end], size) + size for end in (0, 1)], dim=1)
    data = assemble(graph, node_id, columns, torch.cat([graph.edge_index, ends], dim=1))
    return PatchedGraph(data, pairs.index_copy(0, losing, new), node_id, columns)
