"""Trains all seeds of one recipe of graph data at once, on a GPU: what `trainings.train_graphs` does, seed beside seed.

A step on 32 small graphs is some two hundred tiny kernels, so ten networks take as long as one. Parameters are stacked,
`[S, …]` for S seeds; every seed has its own start and its own order of batches, as alone. Batches are padded to one size,
so that the steps of an epoch can be recorded once and replayed. Dropout is drawn on the GPU, as the authors' was.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.random_numbers import seeded
from edgewise_paper.authors_code.epoch_batches import EpochBatches, MessageGraphs, SeedBatch
from edgewise_paper.authors_code.stacked_layers import stacked_logits
from edgewise_paper.authors_code.trainings import batch_orders, one_split
from edgewise_paper.context import Context
from edgewise_paper.data import GraphSet
from edgewise_paper.store import Store
from edgewise_paper.task import fingerprint
from edgewise_paper.training.networks import Recipe
from edgewise_paper.training.train import seed_device, untrained_on_graphs

WARM_EPOCHS = 3
"""Epochs that run as they are before one is recorded: libraries set themselves up, and memory is asked for."""


class JointTraining:
    """A training of several seeds; `run` trains to the end, `epoch` one epoch, `models` gives the networks as they are.

    Args:
        recipe: Of any seed; only architecture, depth and optimiser matter.
        seeds: What is trained.
        found: The data set.
        device: A GPU, or `"cpu"`, where nothing is recorded.
    """

    def __init__(self, recipe: Recipe, seeds: list[int], found: GraphSet, device: str) -> None:
        self.recipe, self.device = recipe, torch.device(device)
        training, _, _ = one_split(found)
        graphs = [found.graphs[i] for i in training.tolist()]
        self.networks, orders = [], []
        for seed in seeds:
            with seeded(seed):
                torch.randperm(len(found.graphs))  # as train_graphs: what the split takes from the stream
                self.networks.append(untrained_on_graphs(recipe, found))
                orders.append(list(batch_orders(len(training), recipe.epochs)))
        self.orders = torch.stack([torch.stack(one) for one in orders], dim=1)  # [epochs, S, graphs]
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0
        with self._own_stream():
            self._set_up(MessageGraphs.of(graphs, recipe.architecture))

    def _own_stream(self) -> AbstractContextManager[Any]:
        """Where everything of this training runs: several trainings of one process can run at the same time."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _set_up(self, graphs: MessageGraphs) -> None:
        """Batches, stacked weights and their optimiser, on the device."""
        recipe = self.recipe
        self.batches = EpochBatches(graphs.to(self.device), self.orders, recipe.batch_size)
        self.weights = {
            name: torch.stack([dict(one.named_parameters())[name].detach() for one in self.networks])
            .to(self.device)
            .requires_grad_()
            for name, _ in self.networks[0].named_parameters()
        }
        for weight in self.weights.values():
            weight.grad = torch.zeros_like(weight)
        on_card, decay = self.stream is not None, recipe.weight_decay
        self.optimizer = torch.optim.Adam(
            self.weights.values(), lr=recipe.lr, weight_decay=decay, fused=True, capturable=on_card
        )

    def run(self) -> list[nn.Module]:
        """Train all epochs; the networks in eval mode, on the CPU."""
        for _ in range(self.done, self.recipe.epochs):
            self.epoch()
        return self.models()

    def epoch(self) -> None:
        """One epoch of every seed; on a GPU it is queued, and the call does not wait for it."""
        with self._own_stream():
            self.batches.fill(self.done)
            if self.stream is None:
                self._steps()
            else:
                self._on_card()
        self.done += 1

    def _on_card(self) -> None:
        """The steps of the epoch: as they are at first, then recorded, then replayed."""
        if self.done < WARM_EPOCHS:
            self._steps()
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize(self.device)
            self.graph.capture_begin()
            try:
                self._steps()
            finally:
                self.graph.capture_end()
        self.graph.replay()

    def _steps(self) -> None:
        """train/train_graph_classification.py, lines 85 to 96: gradients are set to zero once, those of the batches add up."""
        for weight in self.weights.values():
            assert weight.grad is not None
            weight.grad.zero_()
        for batch in self.batches:
            self.loss(batch).backward()
            self.optimizer.step()

    def loss(self, batch: SeedBatch) -> Tensor:
        """The sum over seeds of the mean over the graphs of their batches."""
        out = stacked_logits(self.recipe, self.networks[0], self.weights, batch)  # [S, size]
        each = functional.binary_cross_entropy_with_logits(out, batch.label, reduction="none")
        return (each * batch.share).sum()

    def models(self) -> list[nn.Module]:
        """The networks of all seeds as they are now, on the CPU, in eval mode."""
        if self.stream is not None:
            torch.cuda.synchronize(self.device)
        for place, network in enumerate(self.networks):
            own = {name: weight.detach()[place].cpu() for name, weight in self.weights.items()}
            network.load_state_dict(own, strict=False)  # the ε of GIN is 0, and no parameter
            network.eval()
        return self.networks


# --- For tasks ---------------------------------------------------------------------------------------------------------

SIDE_BY_SIDE = "side by side"


def keep_networks(context: Context, recipe: Recipe, seeds: int) -> None:
    """Train the seeds 0, 1, … of a recipe at once and keep their weights in the store."""
    device = context.options.device
    seed_device(device, recipe.seed)
    training = JointTraining(recipe, list(range(seeds)), context.graph_set(recipe.dataset), device)
    keep(context.store, recipe, training.run())


def keep(store: Store, recipe: Recipe, networks: list[nn.Module]) -> None:
    """Write the weights of the networks of the seeds 0, 1, … of a recipe."""
    for seed, network in enumerate(networks):
        store.keep_tensors("models", _key(replace(recipe, seed=seed)), network.state_dict())


def kept_network(context: Context, recipe: Recipe) -> nn.Module:
    """A network that `keep_networks` trained, on the CPU, in eval mode."""
    weights = context.store.tensors("models", _key(recipe))
    assert weights is not None  # its task comes after that of the training
    network = untrained_on_graphs(recipe, context.graph_set(recipe.dataset))
    network.load_state_dict(weights)
    return network.eval()


def _key(recipe: Recipe) -> str:
    return fingerprint(SIDE_BY_SIDE, recipe.plain)
