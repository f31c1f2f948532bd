"""Faster training of GCN and GIN on batches of graphs: the adjacency of every graph is normalised once, not in every layer.

`lean_logits` returns what the model itself returns for the same batch, up to rounding (the tests compare them), and draws
dropout in the same order. Models with edge features or attention are run as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from edgewise_paper.training.fast_forward import ConstantMatrix
from edgewise_paper.training.networks import GINE, GraphClassifier
from edgewise_paper.training.train import ranges


@dataclass(frozen=True, eq=False)
class LeanBatch:
    """A batch of graphs as one block-diagonal symmetric matrix."""

    x: Tensor
    adjacency: ConstantMatrix
    graph: Tensor
    """`[N]`: the graph of each node."""
    nodes: Tensor
    """`[graphs]`: nodes of each."""


class LeanGraphs:
    """Undirected graphs whose matrices stand behind one another in compressed rows, so that a batch is a few slices.

    Args:
        graphs: What is trained on.
        architecture: GCN: D^-½ (A + I) D^-½. GIN: A + I.
    """

    def __init__(self, graphs: list[Data], architecture: str) -> None:
        self.y = torch.cat([graph.y for graph in graphs]).float()
        self.x = torch.cat([graph.x for graph in graphs])
        self.nodes = torch.tensor([graph.num_nodes for graph in graphs])
        parts = [_matrix(graph, architecture) for graph in graphs]
        self.column = torch.cat([part.col_indices() for part in parts])
        self.value = torch.cat([part.values() for part in parts])
        self.in_row = torch.cat([part.crow_indices().diff() for part in parts])  # [N]: entries of each row
        self.entries = torch.tensor([part.values().numel() for part in parts])  # [graphs]

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[LeanBatch, Tensor]]:
        """Batches of `size` graphs in the given order, with their labels."""
        for chosen in order.split(size):
            nodes, rows, entries = self.nodes[chosen], ranges(self.nodes, chosen), ranges(self.entries, chosen)
            first = (nodes.cumsum(0) - nodes).repeat_interleave(self.entries[chosen])
            start = functional.pad(self.in_row[rows].cumsum(0), (1, 0))
            matrix = torch.sparse_csr_tensor(
                start, self.column[entries] + first, self.value[entries], (len(rows), len(rows)), check_invariants=False
            )
            adjacency = ConstantMatrix(matrix.matmul, matrix.matmul)  # symmetric: its transpose is itself
            graph = torch.arange(len(chosen)).repeat_interleave(nodes)
            yield LeanBatch(self.x[rows], adjacency, graph, nodes), self.y[chosen]


def _matrix(graph: Data, architecture: str) -> Tensor:
    """The matrix of one graph, in compressed rows."""
    size = graph.num_nodes
    if architecture == "GCN":
        edge_index, weight = gcn_norm(graph.edge_index, None, size, dtype=graph.x.dtype)
    else:
        loops = torch.arange(size).expand(2, -1)
        edge_index = torch.cat([graph.edge_index, loops], dim=1)
        weight = graph.x.new_ones(edge_index.size(1))
    found = torch.sparse_coo_tensor(edge_index.flip(0), weight, (size, size)).coalesce()
    if not torch.allclose(found.to_dense(), found.to_dense().t()):
        raise AssertionError("a graph of TU Dortmund must be undirected")
    return found.to_sparse_csr()


def is_lean(model: GraphClassifier) -> bool:
    """Whether `lean_logits` knows the model: GCN and GIN without edge features."""
    return isinstance(model.gnn, (GCN, GIN)) and not isinstance(model.gnn, GINE)


def lean_logits(model: GraphClassifier, batch: LeanBatch) -> Tensor:
    """`[graphs]`: the logits of a batch, with the norms of the code (`trainings.coded_logits`)."""
    gnn: Any = model.gnn
    layer = _gcn_layer if isinstance(gnn, GCN) else _gin_layer
    rows = batch.x
    for number, conv in enumerate(gnn.convs):
        rows = layer(conv, batch, rows)
        if number < len(gnn.convs) - 1:
            norm = gnn.norms[number]
            rows = norm(rows) if isinstance(gnn, GCN) else norm(rows, batch.graph, len(batch.nodes))
            rows = functional.dropout(rows.relu(), gnn.dropout.p, gnn.training)
    total = rows.new_zeros(len(batch.nodes)).index_add(0, batch.graph, rows.view(-1))
    return total / batch.nodes


def _gcn_layer(conv: Any, batch: LeanBatch, rows: Tensor) -> Tensor:
    return (batch.adjacency @ conv.lin(rows)) + conv.bias


def _gin_layer(conv: Any, batch: LeanBatch, rows: Tensor) -> Tensor:
    one, two = conv.nn.lins
    return two(conv.nn.norms[0](one(batch.adjacency @ rows)).relu())
