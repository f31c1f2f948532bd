"""Networks of the authors' that can be trained as theirs were, but not rebuilt: their dropout was drawn on a GPU.

`linear_network` is the one published as SGC, `train_graphs` the recipe of graph data, `one_split` its only split. Networks on
nodes (`train/train_node_classification.py`) are those of `training/train.py`: lines 43 to 53 are its recipe, and what line 88
calls the best state is an alias of the live weights, so the last epoch is kept.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCN, SGConv, global_mean_pool

from edgewise.random_numbers import seeded
from edgewise_paper.authors_code.lean_batches import LeanGraphs, is_lean, lean_logits
from edgewise_paper.data import GraphSet, NodeSet
from edgewise_paper.training.fast_forward import fast_forward
from edgewise_paper.training.networks import DROPOUT, HIDDEN, GraphClassifier, Recipe
from edgewise_paper.training.train import Checkpoint, Collated, run_epochs, untrained_on_graphs

LINEAR_EPOCHS = 2000
"""train/train_sgc.py, line 76; other networks on nodes have 1000."""


def linear_network(
    layers: int, seed: int, found: NodeSet, epochs: int = LINEAR_EPOCHS, checkpoint: Checkpoint | None = None
) -> tuple[nn.Module, float]:
    """The linear network (util/models.py, lines 26 to 34; train/train_sgc.py, lines 43 to 87), and its seconds of training.

    One `SGConv` with K = 1 a layer is a `GCNConv` with another start: both are W (A x) + b. So it is trained, and explained,
    as a GCN without activations whose matrices are drawn as `SGConv` draws them.
    """
    with seeded(seed):
        model = untrained_linear(layers, found)
        forward = fast_forward(model, found.data)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-5, fused=True)  # line 46
        labels = found.data.y[found.training]

        def epoch() -> None:  # lines 49 to 56
            optimizer.zero_grad()
            functional.cross_entropy(forward()[found.training], labels).backward()
            optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, epochs, checkpoint)
    return model, seconds


def untrained_linear(layers: int, found: NodeSet) -> GCN:
    """The linear network before training, from the current state of the global random numbers."""
    widths = [found.data.num_features, *[HIDDEN] * (layers - 1), found.num_classes]
    drawn = [SGConv(read, written) for read, written in itertools.pairwise(widths)]
    model = GCN(widths[0], HIDDEN, layers, widths[-1], DROPOUT, act=nn.Identity())
    with torch.no_grad():
        for conv, like in zip(model.convs, drawn, strict=True):
            conv.lin.weight.copy_(like.lin.weight)
            conv.bias.copy_(like.lin.bias)
    return model


# --- Graphs ------------------------------------------------------------------------------------------------------------


def one_split(found: GraphSet) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the graphs to train on, to validate and to test: one split for all networks, from seed 0.

    train/train_graph_classification.py, lines 16 and 42 to 49; the test part begins at int(0.6 n) + int(0.2 n).
    """
    with seeded(0):
        order = torch.randperm(len(found.graphs))
    first, second = int(len(order) * 0.6), int(len(order) * 0.6) + int(len(order) * 0.2)
    return order[:first], order[first:second], order[second:]


def train_graphs(recipe: Recipe, found: GraphSet) -> tuple[nn.Module, float]:
    """Train on graphs (train/train_graph_classification.py), and the seconds that it took.

    Gradients are set to zero once an epoch, before its first batch (line 87), so those of its batches add up. A seed other
    than 0 draws other weights and other batches of the same split.
    """
    training, _, _ = one_split(found)
    with seeded(recipe.seed):
        torch.randperm(len(found.graphs))  # line 42: what the split takes from the stream
        model: Any = untrained_on_graphs(recipe, found)  # lines 55 to 81
        orders = batch_orders(len(training), recipe.epochs)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
        graphs = [found.graphs[i] for i in training.tolist()]
        lean = is_lean(model)
        batches: Any = LeanGraphs(graphs, recipe.architecture) if lean else Collated.of(graphs, "cpu")
        logits: Any = lean_logits if lean else coded_logits

        def epoch() -> None:  # lines 85 to 96
            optimizer.zero_grad()
            for batch, labels in batches.batches(next(orders), recipe.batch_size):
                functional.binary_cross_entropy_with_logits(logits(model, batch), labels).backward()
                optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, recipe.epochs)
    return model, seconds


def coded_logits(model: GraphClassifier, batch: dict[str, Tensor]) -> Tensor:
    """`[graphs]`: what the model of the code says about a batch.

    Its GCN gets `batch` in the place of `edge_attr` (line 58), which it does not read: its norms look at all nodes of the
    mini-batch together. GAT and GIN get it in its own place.
    """
    if isinstance(model.gnn, GCN):
        return global_mean_pool(model.gnn(batch["x"], batch["edge_index"]), batch["batch"]).view(-1)
    return model(**batch).view(-1)


def batch_orders(training: int, epochs: int) -> Iterator[Tensor]:
    """The order of the training graphs in each epoch, from the current state of the global random numbers.

    What the loaders of lines 51 and 52 draw, all epochs at once: on a GPU, where theirs was drawn, dropout takes nothing from
    this stream. An epoch draws a number for the loader (lines 89 and 101) and the seed of a shuffle; reading the validation
    graphs, which are not shuffled, draws another number for their loader. A test compares this with the loaders themselves.
    """
    orders = []
    for _ in range(epochs):
        _drawn()
        orders.append(torch.randperm(training, generator=torch.Generator().manual_seed(_drawn())))
        _drawn()
    return iter(orders)


def _drawn() -> int:
    """A number from the global stream, as `torch.utils.data` draws its seeds."""
    return int(torch.empty((), dtype=torch.int64).random_().item())
