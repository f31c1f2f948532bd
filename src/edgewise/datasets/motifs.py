"""Motifs planted in random graphs: BA-Shapes, Tree-Cycles, Tree-Grid (nodes), BA-2Motifs (graphs).

After Ying et al., NeurIPS 2019 ("GNNExplainer") and Luo et al., NeurIPS 2020 ("PGExplainer"). All features are 1, so a model
must read the structure; the truth of a node is its own motif, that of a graph the motif in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import ExplainerDataset
from torch_geometric.datasets.graph_generator import BAGraph, GraphGenerator, TreeGraph
from torch_geometric.datasets.motif_generator import CycleMotif, GridMotif, HouseMotif, MotifGenerator
from torch_geometric.nn import GraphSAGE, global_add_pool

from edgewise.datasets.planted_data import PlantedData, Trained, fit, share_right
from edgewise.random_numbers import seeded

NUM_MOTIFS, NUM_GRAPHS = 80, 1000
TRAINING_SHARE = 0.8
HIDDEN, NUM_LAYERS = 20, 3
NODE_EPOCHS, GRAPH_EPOCHS, BATCH = 800, 40, 50


@dataclass(frozen=True, eq=False, repr=False)
class NodeMotifs(PlantedData):
    """One graph with many motifs; the truth of a node in a motif is the edges of that motif."""

    motif: Tensor
    """`[N]`: the number of the motif that a node belongs to, −1 outside."""
    planted: Tensor
    """`[E]`: whether an edge belongs to a motif."""

    def _truth(self, index: Tensor) -> Tensor:
        source = self.motif[self.data.edge_index[0]]
        return ((source == self.motif[index].view(-1, 1)) & self.planted).to(torch.int8)

    def _train(self, seed: int) -> Trained:
        """A GraphSAGE on the nodes of `train_mask`."""
        data = self.data

        def losses(model: nn.Module) -> Iterator[Tensor]:
            yield F.cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])

        classes = int(data.y.max()) + 1
        model = fit(lambda: _sage(classes), losses, seed=seed, epochs=NODE_EPOCHS, last_lr=0.0, weight_decay=1e-4)
        with torch.no_grad():
            found = model(data.x, data.edge_index).argmax(dim=1)
        return Trained(model, *(share_right(found[m], data.y[m]) for m in (data.train_mask, data.test_mask)))


def _sage(outputs: int) -> GraphSAGE:
    """A GraphSAGE with sums, because equal features can only be counted, and a norm, because hubs make sums large."""
    return GraphSAGE(1, HIDDEN, NUM_LAYERS, outputs, aggr="sum", norm="BatchNorm")


def ba_shapes(seed: int) -> NodeMotifs:
    """A Barabási–Albert graph (300 nodes, 5 edges each), 80 houses, and 0.1·N random edges.

    Four classes: the base, and the middle, the bottom and the top of a house.
    """
    return _node_motifs("ba_shapes", seed, BAGraph(300, 5), HouseMotif(), noise=0.1)


def tree_cycles(seed: int) -> NodeMotifs:
    """A balanced binary tree of eight levels below its root, and 80 cycles of six nodes. Two classes: tree, cycle."""
    return _node_motifs("tree_cycles", seed, TreeGraph(8, undirected=True), CycleMotif(6))


def tree_grid(seed: int) -> NodeMotifs:
    """The same tree and 80 grids of 3 × 3 nodes. Two classes: tree, grid."""
    return _node_motifs("tree_grid", seed, TreeGraph(8, undirected=True), GridMotif(), by_role=False)


def _node_motifs(
    name: str, seed: int, base: GraphGenerator, shape: MotifGenerator, *, noise: float = 0.0, by_role: bool = True
) -> NodeMotifs:
    """A base graph with `NUM_MOTIFS` motifs attached, `noise` · N random edges, and a random split of the nodes.

    PyG marks the nodes of motifs, which come one motif after another: with motifs of three nodes behind a base of two, the
    mask (0, 0, 1, 1, 1, 1, 1, 1) gives the motif numbers (−1, −1, 0, 0, 0, 1, 1, 1). `by_role` keeps PyG's classes (the role
    of a node in its motif); otherwise the class is whether a node is in a motif.
    """
    with seeded(seed):
        graph = ExplainerDataset(base, shape, num_motifs=NUM_MOTIFS)[0]
        number = graph.node_mask.long().cumsum(0) - 1
        motif = torch.where(graph.node_mask > 0, number // int(graph.node_mask.sum() // NUM_MOTIFS), -1)
        extra = _random_edges(graph.edge_index, len(motif), int(noise * len(motif)))
        training = torch.zeros(len(motif), dtype=torch.bool)
        training[torch.randperm(len(motif))[: int(TRAINING_SHARE * len(motif))]] = True
    data = Data(
        x=torch.ones(len(motif), 1),
        edge_index=torch.cat([graph.edge_index, extra], dim=1),
        y=graph.y if by_role else (motif >= 0).long(),
        train_mask=training,
        test_mask=~training,
    )
    planted = torch.cat([graph.edge_mask > 0, torch.zeros(extra.size(1), dtype=torch.bool)])
    return NodeMotifs(name, data, (motif >= 0).nonzero().view(-1), seed, motif, planted)


def _random_edges(edge_index: Tensor, num_nodes: int, count: int) -> Tensor:
    """`[2, 2 · count]`: new undirected edges, both directions of each; no loops, no edge twice."""
    low, high = torch.randint(num_nodes, (2, 4 * count)).sort(dim=0).values
    key = (low * num_nodes + high)[low != high]
    taken = edge_index[0] * num_nodes + edge_index[1]
    key = key[~torch.isin(key, taken)].unique()
    key = key[torch.randperm(len(key))[:count]]
    ends = torch.stack([key // num_nodes, key % num_nodes])
    return torch.cat([ends, ends.flip(0)], dim=1)


class PooledSAGE(nn.Module):
    """A GraphSAGE whose node vectors are summed, graph by graph, and read by a linear map."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.nodes, self.head = _sage(HIDDEN), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """`[graphs, classes]`: logits."""
        return self.head(global_add_pool(self.nodes(x, edge_index).relu(), batch))


@dataclass(frozen=True, eq=False, repr=False)
class GraphMotifs(PlantedData):
    """Many graphs with one motif each, which decides the class; `training` and `test` are numbers of graphs."""

    training: Tensor
    test: Tensor
    planted: tuple[Tensor, ...]
    task: ClassVar[str] = "graph"
    epochs: ClassVar[int] = GRAPH_EPOCHS

    def _truth(self, index: Tensor) -> list[Tensor]:
        return [self.planted[graph] for graph in index.tolist()]

    def _train(self, seed: int) -> Trained:
        """A pooled model on batches of the training graphs."""

        def losses(model: nn.Module) -> Iterator[Tensor]:
            for part in self.training[torch.randperm(len(self.training))].split(BATCH):
                batch = Batch.from_data_list([self.data[i] for i in part.tolist()])
                yield F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)

        model = fit(self._make, losses, seed=seed, epochs=self.epochs, last_lr=0.0)
        return Trained(model, *(self._accuracy(model, part) for part in (self.training, self.test)))

    def _make(self) -> nn.Module:
        """The untrained model."""
        return PooledSAGE(2)

    @torch.no_grad()
    def _accuracy(self, model: nn.Module, part: Tensor) -> float:
        batch = Batch.from_data_list([self.data[i] for i in part.tolist()])
        return share_right(model(batch.x, batch.edge_index, batch.batch).argmax(dim=1), batch.y)


def ba_2motifs(seed: int) -> GraphMotifs:
    """1000 Barabási–Albert graphs (20 nodes, 1 edge each) with a house (class 0) or a cycle of five nodes (class 1)."""
    with seeded(seed):
        halves: list[list[Any]] = [
            list(ExplainerDataset(BAGraph(20, 1), shape, num_motifs=1, num_graphs=NUM_GRAPHS // 2))
            for shape in (HouseMotif(), CycleMotif(5))
        ]
        order = torch.randperm(NUM_GRAPHS)
    graphs = [
        Data(x=torch.ones(graph.num_nodes, 1), edge_index=graph.edge_index, y=torch.tensor([label]))
        for label, half in enumerate(halves)
        for graph in half
    ]
    planted = tuple((graph.edge_mask > 0).to(torch.int8) for half in halves for graph in half)
    training, test = order.split(int(TRAINING_SHARE * NUM_GRAPHS))
    return GraphMotifs("ba_2motifs", graphs, torch.arange(NUM_GRAPHS), seed, training, test.sort().values, planted)
