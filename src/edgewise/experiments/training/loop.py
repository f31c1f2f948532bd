"""The loop of epochs: interrupted, it goes on from where it was to exactly the model that it would have made at once."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from edgewise.errors import ModelError
from edgewise.experiments import stopping

CHECKPOINT_EVERY = 20.0  # seconds: what a killed run can lose of a training


class Notebook(Protocol):
    """Where a training writes down how far it is."""

    def read(self) -> dict[str, Any] | None:
        """The last state, or None."""

    def write(self, state: dict[str, Any]) -> None:
        """A state from which to go on."""


class NoNotebook:
    """For trainings that are over before it would matter."""

    def read(self) -> None:
        """Nothing was written."""

    def write(self, state: dict[str, Any]) -> None:
        """Nothing is."""


def seed_device(device: str, seed: int) -> None:
    """Dropout on a GPU draws from the GPU's own generator."""
    if device.startswith("cuda"):
        torch.cuda.manual_seed(seed)


def run_epochs(
    model: nn.Module, optimizer: torch.optim.Optimizer, epoch: Callable[[], None], epochs: int, notebook: Notebook
) -> float:
    """Call `epoch` so many times, counting those before an interruption; the seconds that they took."""
    kept = notebook.read()
    begin, seconds = _restore(model, optimizer, kept) if kept else (0, 0.0)
    start = written = time.monotonic()
    model.train()
    for number in range(begin, epochs):
        epoch()
        now = time.monotonic()
        if stopping.asked() or now - written > CHECKPOINT_EVERY:
            notebook.write(_state(model, optimizer, number + 1, seconds + now - start))
            written = now
        if stopping.asked():
            raise stopping.Stopped
    optimizer.zero_grad()
    model.eval()
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise ModelError("Training ended with weights that are not numbers, so there is nothing to explain.")
    return seconds + time.monotonic() - start


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, seconds: float) -> dict[str, Any]:
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
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    if state["device_random"] is not None:
        torch.cuda.set_rng_state(state["device_random"], next(model.parameters()).device)
    return state["epoch"], state["seconds"]
