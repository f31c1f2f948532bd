"""What is asked in the table of memory: nodes, links, whole graphs and typed graphs, and a model for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GCNConv, GraphNorm, GraphSAGE, global_mean_pool

from benchmarks.data import cora, even_graph, proteins
from benchmarks.models import proteins_model
from benchmarks.typed import shop
from edgewise.random_numbers import seeded

WIDTH = 64


@dataclass(frozen=True)
class MemorySubject:
    """A model, its data, and which targets there are."""

    model: nn.Module
    data: Any
    index: Any
    """All targets: a range of nodes or graphs, pairs `[2, T]`, or (node type, range)."""
    task: str = "node"

    def first(self, count: int | None) -> Any:
        """The first targets."""
        if isinstance(self.index, tuple):
            return self.index[0], self.index[1][:count]
        return self.index[:, :count] if isinstance(self.index, Tensor) else self.index[:count]

    @property
    def size(self) -> int:
        """How many targets there are."""
        if isinstance(self.index, tuple):
            return len(self.index[1])
        return self.index.size(1) if isinstance(self.index, Tensor) else len(self.index)


class PooledGCN(nn.Module):
    """Three layers of GCN and the mean over the nodes of a graph."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gnn, self.head = GCN(features, WIDTH, 3), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.gnn(x, edge_index), batch))


class PooledMaximum(nn.Module):
    """SAGE with a maximum, which is not lowered: batches of graphs go through the model itself."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gnn, self.head = GraphSAGE(features, WIDTH, 2, aggr="max"), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.gnn(x, edge_index), batch))


class DotProduct(nn.Module):
    """Two layers of GCN, and for a pair the product of both ends."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gnn = GCN(features, WIDTH, 2)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gnn(x, edge_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=1)


class GraphWide(nn.Module):
    """Two layers of GCN with a norm over all nodes between them: no target can be run on its neighbourhood alone."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.one, self.norm, self.two = GCNConv(features, WIDTH), GraphNorm(WIDTH), GCNConv(WIDTH, 7)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.norm(self.one(x, edge_index)).relu(), edge_index)


def _nodes(make: Callable[[int], nn.Module]) -> MemorySubject:
    """Nodes of Cora, after a few steps of training."""
    data = cora()
    with seeded(0):
        model = make(data.num_features)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
            optimizer.step()
    model.zero_grad()
    return MemorySubject(model.eval(), data, range(data.num_nodes))


def _graphs(make: Callable[[int], nn.Module], graphs: list[Data]) -> MemorySubject:
    """Whole graphs; the model is as it was born, cost does not depend on the weights."""
    with seeded(0):
        return MemorySubject(make(graphs[0].num_features).eval(), graphs, range(len(graphs)), "graph")


def _links() -> MemorySubject:
    data = cora()
    with seeded(0):
        pairs = torch.randint(0, data.num_nodes, (2, 2000))
        return MemorySubject(DotProduct(data.num_features).eval(), data, pairs, "link")


def _typed() -> MemorySubject:
    model, data = shop(4)
    return MemorySubject(model, data, ("movie", range(data["movie"].num_nodes)))


def _many() -> list[Data]:
    """2,000 graphs of 300 nodes and 1,200 edges."""
    return [even_graph(1200, features=32, seed=seed) for seed in range(2000)]


def _large() -> list[Data]:
    """Six graphs of 20,000 nodes and 80,000 edges."""
    return [even_graph(80_000, features=32, seed=seed) for seed in range(6)]


SUBJECTS: dict[str, Callable[[], MemorySubject]] = {
    "GCN": lambda: _nodes(lambda features: GCN(features, WIDTH, 2, 7)),
    "GATv2": lambda: _nodes(lambda features: GAT(features, WIDTH, 2, 7, v2=True, heads=8)),
    "SAGE-max": lambda: _nodes(lambda features: GraphSAGE(features, WIDTH, 2, 7, aggr="max")),
    "graph-wide norm": lambda: _nodes(GraphWide),
    "links of Cora": _links,
    "typed graph": _typed,
    "PROTEINS, GIN": lambda: MemorySubject(proteins_model(), proteins(), range(len(proteins())), "graph"),
    "PROTEINS, GCN": lambda: _graphs(PooledGCN, proteins()),
    "2,000 graphs, GCN": lambda: _graphs(PooledGCN, _many()),
    "2,000 graphs, SAGE-max": lambda: _graphs(PooledMaximum, _many()),
    "large graphs, GCN": lambda: _graphs(PooledGCN, _large()),
    "large graphs, SAGE-max": lambda: _graphs(PooledMaximum, _large()),
}
"""By name: nodes of Cora, pairs of it, a typed graph of 10,100 nodes, and lists of graphs."""
