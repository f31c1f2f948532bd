"""Training on one graph: full batch, cross-entropy on the training nodes, the last epoch's weights."""

import torch
from torch import nn
from torch.nn import functional

from edgewise.datasets.seeding import seeded
from edgewise.experiments.architectures import node_network
from edgewise.experiments.datasets import NodeSet
from edgewise.experiments.training.lean import lean_forward
from edgewise.experiments.training.loop import Notebook, run_epochs, seed_device
from edgewise.experiments.training.recipe import Recipe


def untrained(recipe: Recipe, found: NodeSet) -> nn.Module:
    """The network before training."""
    return node_network(recipe.architecture, found.data.num_features, recipe.layers, found.num_classes)


def train_on_nodes(recipe: Recipe, found: NodeSet, device: str, notebook: Notebook) -> tuple[nn.Module, float]:
    """The trained network in eval mode, on the CPU, and the seconds it took."""
    data = found.data.clone().to(device)
    rows, labels = found.training.to(device), data.y[found.training.to(device)]
    seed_device(device, recipe.seed)
    with seeded(recipe.seed):
        model = untrained(recipe, found).to(device)
        forward = lean_forward(model, data)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)

        def epoch() -> None:
            optimizer.zero_grad()
            functional.cross_entropy(forward()[rows], labels).backward()
            optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, recipe.epochs, notebook)
    return model.cpu(), seconds


@torch.no_grad()
def accuracy(model: nn.Module, found: NodeSet) -> float:
    """The share of test nodes that the network gets right."""
    said = model(found.data.x, found.data.edge_index)[found.test].argmax(dim=1)
    return float((said == found.data.y[found.test]).double().mean())
