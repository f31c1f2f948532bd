"""One training loop for the small models of the planted data sets."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from edgewise.datasets.seeding import one_thread, seeded


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
