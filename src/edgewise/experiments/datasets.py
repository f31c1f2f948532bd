"""The paper's real data sets, with the parts that are trained on, validated on and tested."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, TUDataset, WebKB

from edgewise.datasets.seeding import seeded
from edgewise.experiments.sentences import read_sentences
from edgewise.experiments.sources import RAW, Source

NODE_SETS = ("Cora", "CiteSeer", "Cornell", "Texas", "Wisconsin")
GRAPH_SETS = ("MUTAG", "PROTEINS", "Graph-SST2")
SPLIT = 0  # the paper uses the first of the ten splits of geom-gcn


@dataclass(frozen=True, eq=False)
class NodeSet:
    """One graph whose nodes are classified; the parts are node numbers."""

    name: str
    data: Data
    training: Tensor
    test: Tensor
    num_classes: int


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Graphs of two classes; `part` is 0, 1 or 2 where the data set brings its own split."""

    name: str
    graphs: list[Data]
    part: Tensor | None = None

    def split(self, seed: int) -> tuple[Tensor, Tensor]:
        """Numbers of the graphs to train on and to test: given ones, or 60 % and 20 % after a shuffle."""
        if self.part is not None:
            return (self.part == 0).nonzero().view(-1), (self.part == 2).nonzero().view(-1)
        with seeded(seed):
            order = torch.randperm(len(self.graphs))
        first, second = int(0.6 * len(order)), int(0.8 * len(order))
        return order[:first], order[second:]


def read_node_set(name: str, source: Source) -> NodeSet:
    """Cora and CiteSeer with the splits of geom-gcn, or a WebKB graph."""
    if name in ("Cora", "CiteSeer"):
        found = source.read(name, lambda root: Planetoid(root, name, split="geom-gcn"))
    else:
        found = source.read(name, lambda root: WebKB(root, name))
    graph = found[0]
    training, test = (mask[:, SPLIT].bool().nonzero().view(-1) for mask in (graph.train_mask, graph.test_mask))
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    return NodeSet(name, data, training, test, int(graph.y.max()) + 1)


def read_graph_set(name: str, source: Source) -> GraphSet:
    """Molecules, proteins, or sentences in their raw format."""
    if name == "Graph-SST2":
        root = source.prepare(name)
        graphs, part = read_sentences(Path(root) / RAW[name].folder, name)
        return GraphSet(name, graphs, part)
    found = source.read(name, lambda root: TUDataset(root, name))
    return GraphSet(name, [_plain(graph) for graph in found])


def _plain(graph: Data) -> Data:
    """Without what the model is not given; a graph of its own, not a view of the collated ones."""
    kept = {key: graph[key].clone() for key in ("x", "edge_index", "edge_attr", "y") if graph.get(key) is not None}
    return Data(**kept)
