"""Training on many graphs: shuffled batches, one logit, binary cross-entropy, the last epoch's weights."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.datasets.seeding import seeded
from edgewise.experiments.architectures import graph_network
from edgewise.experiments.datasets import GraphSet
from edgewise.experiments.training.loop import Notebook, run_epochs, seed_device
from edgewise.experiments.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Collated:
    """Graphs one behind the other; nodes of each are numbered from 0."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    y: Tensor
    nodes: Tensor
    """`[graphs]`: how many each has."""
    edges: Tensor

    @staticmethod
    def of(graphs: list[Data], device: str) -> "Collated":
        """Copied to the device, once."""
        attributes = None if graphs[0].edge_attr is None else torch.cat([g.edge_attr for g in graphs]).to(device)
        return Collated(
            torch.cat([g.x for g in graphs]).to(device),
            torch.cat([g.edge_index for g in graphs], dim=1).to(device),
            attributes,
            torch.cat([g.y for g in graphs]).float().to(device),
            torch.tensor([g.num_nodes for g in graphs]),
            torch.tensor([g.num_edges for g in graphs]),
        )

    def batches(self, order: Tensor, size: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """Batches of graphs in the given order: what the model is called with, and the labels.

        The whole epoch is put in order at once; batches are then slices of it.
        """
        device = self.x.device
        nodes, edges = self.nodes[order], self.edges[order]
        x = self.x[_ranges(self.nodes, order).to(device)]
        places = _ranges(self.edges, order).to(device)
        graph = torch.arange(len(order)).repeat_interleave(nodes).to(device)
        first = nodes.cumsum(0) - nodes
        shift = first.repeat_interleave(edges).to(device)
        edge_index = self.edge_index[:, places] + shift
        attributes = None if self.edge_attr is None else self.edge_attr[places]
        node_ends, edge_ends = ([0, *ends.cumsum(0).tolist()] for ends in (nodes, edges))
        for begin in range(0, len(order), size):
            end = min(begin + size, len(order))
            of_nodes, of_edges = slice(node_ends[begin], node_ends[end]), slice(edge_ends[begin], edge_ends[end])
            extras = {} if attributes is None else {"edge_attr": attributes[of_edges]}
            batch = {
                "x": x[of_nodes], "edge_index": edge_index[:, of_edges] - node_ends[begin], "batch": graph[of_nodes] - begin,
            }  # fmt: skip
            yield batch | extras, self.y[order[begin:end].to(device)]


def _ranges(sizes: Tensor, order: Tensor) -> Tensor:
    """The places of the entries of graphs in a new order."""
    first, chosen = sizes.cumsum(0) - sizes, sizes[order]
    start = (first[order] - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return start + torch.arange(len(start))


def untrained(recipe: Recipe, found: GraphSet) -> nn.Module:
    """The network before training."""
    example = found.graphs[0]
    edge_dim = None if example.edge_attr is None else example.edge_attr.size(1)
    return graph_network(recipe.architecture, example.num_features, recipe.layers, edge_dim)


def train_on_graphs(recipe: Recipe, found: GraphSet, device: str, notebook: Notebook) -> tuple[nn.Module, float]:
    """The trained network in eval mode, on the CPU, and the seconds it took."""
    training, _ = found.split(recipe.seed)
    collated = Collated.of([found.graphs[i] for i in training.tolist()], device)
    seed_device(device, recipe.seed)
    with seeded(recipe.seed):
        model = untrained(recipe, found).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)

        def epoch() -> None:
            order = torch.randperm(len(training))
            for batch, labels in collated.batches(order, recipe.batch_size):
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(model(**batch).view(-1), labels).backward()
                optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, recipe.epochs, notebook)
    return model.cpu(), seconds


@torch.no_grad()
def logits(model: nn.Module, graphs: list[Data], batch_size: int = 1) -> Tensor:
    """One number for each graph; alone or together is not the same, where PyG's LayerNorm looks at all graphs of a batch."""
    collated = Collated.of(graphs, "cpu")
    return torch.cat([model(**batch).view(-1) for batch, _ in collated.batches(torch.arange(len(graphs)), batch_size)])
