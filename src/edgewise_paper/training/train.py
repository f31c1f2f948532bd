"""Trains networks on one graph (`train_on_nodes`) or on many (`train_on_graphs`).

Both run `run_epochs`, which can be interrupted: resumed from its checkpoint, a training ends with exactly the weights that it
would have had. The last epoch's weights are kept, as in the paper.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.random_numbers import seeded
from edgewise_paper.data import GraphSet, NodeSet
from edgewise_paper.training.fast_forward import fast_forward
from edgewise_paper.training.networks import Recipe, graph_network, node_network
from edgewise_paper.workers import Stopped, stop_was_asked

# --- The loop of epochs ------------------------------------------------------------------------------------------------

CHECKPOINT_EVERY = 20.0  # seconds: what a killed run can lose of a training


class Checkpoint(Protocol):
    """Where a training writes how far it is."""

    def read(self) -> dict[str, Any] | None:
        """The last state, or None."""

    def write(self, state: dict[str, Any]) -> None:
        """Keep a state from which to go on."""


def seed_device(device: str, seed: int) -> None:
    """Seed the generator of a GPU, from which dropout on it draws; `seeded` leaves it alone."""
    if device.startswith("cuda"):
        torch.cuda.manual_seed(seed)


def run_epochs(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: Callable[[], None],
    epochs: int,
    checkpoint: Checkpoint | None = None,
) -> float:
    """Call `epoch` until `epochs` are done, those before an interruption included; the model ends in eval mode.

    Returns:
        The seconds that all epochs took.

    Raises:
        Stopped: If a stop was asked; how far the training is has then been written to the checkpoint.
    """
    kept = checkpoint.read() if checkpoint else None
    begin, seconds = _restore(model, optimizer, kept) if kept else (0, 0.0)
    start = written = time.monotonic()
    model.train()
    for number in range(begin, epochs):
        epoch()
        now = time.monotonic()
        if checkpoint and (stop_was_asked() or now - written > CHECKPOINT_EVERY):
            checkpoint.write(_state(model, optimizer, number + 1, seconds + now - start))
            written = now
        if stop_was_asked():
            raise Stopped
    optimizer.zero_grad()
    model.eval()
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise ModelError("Training ended with weights that are not finite, so there is nothing to explain.")
    return seconds + time.monotonic() - start


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, seconds: float) -> dict[str, Any]:
    """All that the next epoch depends on: weights, the optimizer's state, random generators."""
    device = next(model.parameters()).device
    return {
        "epoch": epoch,
        "seconds": seconds,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "device_random": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def _restore(model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> tuple[int, float]:
    """Put a state of `_state` back; the number of finished epochs and the seconds that they took."""
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    if state["device_random"] is not None:
        torch.cuda.set_rng_state(state["device_random"], next(model.parameters()).device)
    return state["epoch"], state["seconds"]


# --- One graph: full batch, cross-entropy on the training nodes --------------------------------------------------------


def untrained_on_nodes(recipe: Recipe, found: NodeSet) -> nn.Module:
    """The network of a recipe before training."""
    return node_network(recipe.architecture, found.data.num_features, recipe.layers, found.num_classes)


def train_on_nodes(
    recipe: Recipe, found: NodeSet, device: str, checkpoint: Checkpoint | None = None
) -> tuple[nn.Module, float]:
    """Train on the training nodes of a graph; `checkpoint=None` trains without the possibility to go on.

    Returns:
        The network in eval mode, on the CPU, and the seconds that its training took.
    """
    data = found.data.clone().to(device)
    rows, labels = found.training.to(device), data.y[found.training.to(device)]
    seed_device(device, recipe.seed)
    with seeded(recipe.seed):
        model = untrained_on_nodes(recipe, found).to(device)
        forward = fast_forward(model, data)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)

        def epoch() -> None:
            optimizer.zero_grad()
            functional.cross_entropy(forward()[rows], labels).backward()
            optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, recipe.epochs, checkpoint)
    return model.cpu(), seconds


@torch.no_grad()
def accuracy(model: nn.Module, found: NodeSet) -> float:
    """The share of test nodes that the network gets right."""
    predicted = model(found.data.x, found.data.edge_index)[found.test].argmax(dim=1)
    return float((predicted == found.data.y[found.test]).double().mean())


# --- Many graphs: shuffled batches, one logit, binary cross-entropy ----------------------------------------------------


@dataclass(frozen=True, eq=False)
class Collated:
    """All graphs in few tensors, one graph behind the other, so that a batch is a slice and not a loop over graphs."""

    x: Tensor
    """`[N, d]`: features of the nodes of all graphs."""
    edge_index: Tensor
    """`[2, E]`; the nodes of each graph are numbered from 0."""
    edge_attr: Tensor | None
    """`[E, edge_dim]`."""
    y: Tensor
    """`[graphs]`, as floats."""
    nodes: Tensor
    """`[graphs]`: number of nodes of each."""
    edges: Tensor
    """`[graphs]`: number of edges of each."""

    @staticmethod
    def of(graphs: list[Data], device: str) -> "Collated":
        """Collate graphs and copy them to the device."""
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
        """Batches of `size` graphs in the given order: what the model is called with, and the labels.

        The whole epoch is put in order at once; batches are then slices of it, with nodes and graphs numbered from 0.
        """
        device = self.x.device
        nodes, edges = self.nodes[order], self.edges[order]
        x = self.x[ranges(self.nodes, order).to(device)]  # [N', d], N' nodes of the graphs in `order`
        places = ranges(self.edges, order).to(device)  # [E']
        graph = torch.arange(len(order)).repeat_interleave(nodes).to(device)  # [N']
        first = nodes.cumsum(0) - nodes  # [len(order)]: the first node of each graph
        shift = first.repeat_interleave(edges).to(device)  # [E']
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


def ranges(sizes: Tensor, order: Tensor) -> Tensor:
    """The places of the entries of graphs in a new order.

    >>> ranges(torch.tensor([2, 1, 3]), torch.tensor([2, 0]))      # graph 2 has the entries 3, 4, 5; graph 0 has 0, 1
    tensor([3, 4, 5, 0, 1])
    """
    first, chosen = sizes.cumsum(0) - sizes, sizes[order]
    start = (first[order] - (chosen.cumsum(0) - chosen)).repeat_interleave(chosen)
    return start + torch.arange(len(start))


def untrained_on_graphs(recipe: Recipe, found: GraphSet) -> nn.Module:
    """The network of a recipe before training."""
    example = found.graphs[0]
    edge_dim = None if example.edge_attr is None else example.edge_attr.size(1)
    return graph_network(recipe.architecture, example.num_features, recipe.layers, edge_dim)


def train_on_graphs(
    recipe: Recipe, found: GraphSet, device: str, checkpoint: Checkpoint | None = None
) -> tuple[nn.Module, float]:
    """Train on the training graphs of the recipe's seed; otherwise as `train_on_nodes`."""
    training, _ = found.split(recipe.seed)
    collated = Collated.of([found.graphs[i] for i in training.tolist()], device)
    seed_device(device, recipe.seed)
    with seeded(recipe.seed):
        model = untrained_on_graphs(recipe, found).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)

        def epoch() -> None:
            order = torch.randperm(len(training))
            for batch, labels in collated.batches(order, recipe.batch_size):
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(model(**batch).view(-1), labels).backward()
                optimizer.step()

        seconds = run_epochs(model, optimizer, epoch, recipe.epochs, checkpoint)
    return model.cpu(), seconds


@torch.no_grad()
def logits(model: nn.Module, graphs: list[Data], batch_size: int = 1) -> Tensor:
    """The logit of each graph, `[graphs]`, in batches of that size.

    The size matters where PyG's LayerNorm looks at all graphs of a batch (inside the blocks of GIN).
    """
    collated = Collated.of(graphs, "cpu")
    return torch.cat([model(**batch).view(-1) for batch, _ in collated.batches(torch.arange(len(graphs)), batch_size)])
