"""A step that is repeated many times on a GPU, recorded once and replayed: what is launched then is one graph, not its kernels.

A training step of a small model is some hundred kernels of a few microseconds each, and launching them takes longer than they
run. CUDA can record a sequence of launches and repeat it as a whole. A step can be recorded if it never waits for the GPU and
works on the same memory every time; what cannot be recorded is simply run.
"""

import logging
from collections.abc import Callable

import torch

log = logging.getLogger("edgewise")
_WORTH_IT = 8
"""Repetitions from which recording pays."""


def repeat(step: Callable[[], None], times: int, device: torch.device, *, recordable: bool) -> None:
    """Run a step some times. `recordable`: it works in place, on the same tensors each time, and never waits for the GPU.

    >>> total = torch.zeros(2)
    >>> repeat(lambda: total.add_(1), 3, total.device, recordable=True)      # on the CPU there is nothing to record
    >>> total
    tensor([3., 3.])
    """
    if device.type != "cuda" or not recordable or times < _WORTH_IT:
        for _ in range(times):
            step()
        return
    done = 0
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        step()  # once as it is: libraries set themselves up, and memory is asked for
        done += 1
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        _record(graph, stream, step)
    except RuntimeError as reason:
        log.debug("the step cannot be recorded: %s", reason)
        torch.cuda.synchronize(device)
        for _ in range(times - done):
            step()
        return
    for _ in range(times - done):
        graph.replay()
    torch.cuda.current_stream(device).synchronize()  # the graph and its memory go with this function


def _record(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, step: Callable[[], None]) -> None:
    """As `torch.cuda.graph` does, without collecting garbage first, which takes longer than the step."""
    torch.cuda.synchronize(stream.device)
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            step()
        finally:
            graph.capture_end()
