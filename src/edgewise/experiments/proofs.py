"""The one place that uses `edgewise.trust`: sign flips, sampled for every edge and proved."""

import time
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from edgewise import trust
from edgewise.experiments.rows import Row
from edgewise.experiments.tasks import Task

PIECES = 5


def certified(task: Task, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """The share of edges whose gradient provably keeps its sign on all of [0, 1], and the share that was seen to change it."""
    for pieces in (1, PIECES):
        start = time.perf_counter()
        proof = trust.certify(model, data, index, pieces=pieces)
        about = {"variant": f"{pieces} pieces", "count": len(index), "seconds": time.perf_counter() - start}
        yield task.row("sign proved", proof.share, method="certify", **about)
    start = time.perf_counter()
    seen = trust.sign_flips(model, data, index)
    about = {"count": len(index), "seconds": time.perf_counter() - start}
    yield task.row("sign kept", 1 - seen.share, method="sign_flips", **about)
