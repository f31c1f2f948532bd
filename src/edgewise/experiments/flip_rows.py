"""Sign flips of a trained network as rows: both counts, with the text's weights and with those of the authors' script."""

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from edgewise.experiments.desk import Desk
from edgewise.experiments.flips import THROUGH_SIGMOID, WEIGHTS, count_flips, edges_to_vary, work
from edgewise.experiments.rows import Row
from edgewise.experiments.similarities import CODE, Subject
from edgewise.experiments.tasks import Task
from edgewise.score import Score

BUDGET = 5e6
"""Gradients of edge copies for each weight: beyond it, a random part of the targets is counted (`count` says how many)."""
AT_LEAST = 10


def flip_rows(task: Task, desk: Desk, subject: Subject, columns: Tensor | Sequence[Tensor]) -> Iterator[Row]:
    """`columns` are varied: of the one graph of a node task, or for each graph of a graph task."""
    index = subject.index if subject.index is not None else torch.arange(len(subject.data))
    score = Score(subject.model, subject.data, index, task=subject.task, device=desk.options.device)
    varied = edges_to_vary(score, columns) if isinstance(columns, Tensor) else list(columns)
    chosen = _affordable(work(score, varied), task.settings["seed"])
    for variant, weights in (("", WEIGHTS), (CODE, THROUGH_SIGMOID)):
        start = time.perf_counter()
        counts = count_flips(
            subject.model, subject.data, index[chosen], [varied[i] for i in chosen.tolist()],
            weights=weights, task=subject.task, device=desk.options.device,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        for whose, found in zip(("own gradient", "any gradient"), counts, strict=True):
            for method in ("all", "to_negative", "to_positive"):
                yield task.row(
                    "sign flips", getattr(found, method), method=method, reference=whose, variant=variant,
                    count=found.targets, seconds=seconds,
                )  # fmt: skip


def _affordable(costs: Tensor, seed: int) -> Tensor:
    """A random part of the targets whose work fits the budget: the mean over them estimates that over all."""
    total = float(costs.sum())
    number = len(costs) if total <= BUDGET else max(int(len(costs) * BUDGET / total), AT_LEAST)
    order = torch.randperm(len(costs), generator=torch.Generator().manual_seed(seed))
    return order[:number].sort().values
