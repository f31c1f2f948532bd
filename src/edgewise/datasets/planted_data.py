"""A data set whose right explanation is known: the graphs, the edges that were planted, and a model that learns the task."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.errors import InputError
from edgewise.graph.inputs import read_index
from edgewise.seeds import one_thread, seeded


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode, and the share of targets that it gets right."""

    model: nn.Module
    training_accuracy: float
    test_accuracy: float


@dataclass(frozen=True, eq=False)
class PlantedData:
    """What `ew.datasets.load` gives.

    `ew.explain(trained.model, found.data, index=found.targets[:50], task=found.task)` explains targets, and
    `ew.metrics.recovery(explained, found.truth(explained.index))` says whether the planted edges were found.
    """

    name: str
    data: Any
    """What to explain: a `Data` (node task) or a list of them (graph task)."""
    targets: Tensor
    """The nodes or graphs that have a truth."""
    seed: int
    task: ClassVar[str] = "node"

    def truth(self, index: Any = None) -> Any:
        """Per target (all of `targets` if not given): 1 for planted edges, −1 for planted opposition, 0 for others.

        `[targets, E]`, for graph tasks a list of `[E]`, int8, in the columns of each graph's `edge_index`.
        """
        return self._truth(self._read(index))

    def train(self, seed: int | None = None) -> Trained:
        """A small model of the task, in seconds on one thread; `seed` is that of the data if not given."""
        return self._train(self.seed if seed is None else seed)

    def _read(self, index: Any) -> Tensor:
        if index is None:
            return self.targets
        size = self.data.num_nodes if isinstance(self.data, Data) else len(self.data)
        chosen, _ = read_index(index, size, self.task)
        without = chosen[~torch.isin(chosen, self.targets)]
        if len(without):
            raise InputError(
                f"{self.name} has no truth for {self.task} {int(without[0])}; {len(self.targets)} have one, see .targets "
                f"({self.targets[:3].tolist()} …)."
            )
        return chosen

    def _truth(self, index: Tensor) -> Any:
        raise NotImplementedError

    def _train(self, seed: int) -> Trained:
        raise NotImplementedError

    def __repr__(self) -> str:
        graphs = "1 graph" if isinstance(self.data, Data) else f"{len(self.data)} graphs"
        return f"{type(self).__name__}({self.name}, {graphs}, {len(self.targets)} {self.task}s with a truth, seed {self.seed})"


# --- One training loop for the small models of the planted data sets ---------------------------------------------------


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
    """A model in eval mode, trained by Adam at a rate from `lr` to `last_lr`; `losses` are an epoch's, one step each."""
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
    """Accuracy."""
    return float((predicted == true).double().mean())
