"""PlantedData: a data set whose right explanation is known. The graphs, the planted edges, and a model that learns the task.

`fit`, at the end, is the training loop of these small models.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.question.target import read_index
from edgewise.random_numbers import one_thread, seeded


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode, and the share of targets that it gets right."""

    model: nn.Module
    training_accuracy: float
    test_accuracy: float


@dataclass(frozen=True, eq=False)
class PlantedData:
    """What `ew.datasets.load` returns.

    `ew.explain(trained.model, found.data, index=found.targets[:50], task=found.task)` explains targets, and
    `ew.metrics.recovery(explained, found.truth(explained.index))` says whether the planted edges were found.
    """

    name: str
    data: Any
    """What to explain: a `Data` (node task) or a list of them (graph task)."""
    targets: Tensor
    """`[T]`: the nodes or graphs that have a truth."""
    seed: int
    """The random seed that the data was generated with."""
    task: ClassVar[str] = "node"

    @checked
    def truth(self, index: Any = None) -> Any:
        """The truth of some targets (all of `targets` if not given): 1 for planted edges, −1 for planted opposition, else 0.

        The result is `[targets, E]`, for graph tasks a list of `[E]`; int8, in the columns of each graph's `edge_index`.
        """
        return self._truth(self._read(index))

    @checked
    def train(self, seed: int | None = None) -> Trained:
        """Train a small model on the task, in seconds on one thread; without `seed`, with the seed of the data."""
        return self._train(self.seed if seed is None else seed)

    def _read(self, index: Any) -> Tensor:
        """The asked targets, all of which must have a truth."""
        if index is None:
            return self.targets
        size = self.data.num_nodes if isinstance(self.data, Data) else len(self.data)
        chosen, _ = read_index(index, size, self.task)
        without = chosen[~torch.isin(chosen, self.targets)]
        if len(without):
            raise InputError(
                f"{self.name} has no truth for {self.task} {int(without[0])}. Use targets that have one, see .targets "
                f"({self.targets[:3].tolist()} …, {len(self.targets)} in all)."
            )
        return chosen

    def _truth(self, index: Tensor) -> Any:
        """The truth of checked targets; every data set has its own."""
        raise NotImplementedError

    def _train(self, seed: int) -> Trained:
        """The trained model; every data set has its own."""
        raise NotImplementedError

    def __repr__(self) -> str:
        graphs = "1 graph" if isinstance(self.data, Data) else f"{len(self.data)} graphs"
        return f"{type(self).__name__}({self.name}, {graphs}, {len(self.targets)} {self.task}s with a truth, seed {self.seed})"


# --- Training ----------------------------------------------------------------------------------------------------------


def fit(
    make: Callable[[], nn.Module],
    losses: Callable[[nn.Module], Iterable[Tensor]],
    *,
    seed: int,
    epochs: int,
    lr: float = 0.01,
    last_lr: float = 0.01,
    weight_decay: float = 0.0,
) -> nn.Module:
    """A model in eval mode, trained by Adam on one thread.

    Args:
        make: Makes the untrained model, from the random state that `seed` sets.
        losses: The losses of one epoch, one optimizer step each.
        seed: Random seed of weights and training.
        epochs: How often `losses` is called.
        lr: The first learning rate.
        last_lr: The last one; in between it falls linearly.
        weight_decay: Adam's.
    """
    with seeded(seed), one_thread():
        model = make()
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, last_lr / lr, total_iters=epochs)
        model.train()
        for _ in range(epochs):
            for loss in losses(model):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
        optimizer.zero_grad()
        return model.eval()


def share_right(predicted: Tensor, true: Tensor) -> float:
    """The accuracy, in [0, 1]."""
    return float((predicted == true).double().mean())
