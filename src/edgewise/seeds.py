"""Blocks of code with seeded global generators, or on one thread; the caller's state is restored afterwards."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with every global generator started from `seed`, and put the generators back afterwards.

    For code that draws from the global generators, as PyG's data sets do; our own draws use `random_numbers.py`.

    >>> import torch
    >>> with seeded(7): first = torch.rand(2)
    >>> with seeded(7): again = torch.rand(2)
    >>> torch.equal(first, again)
    True
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    torch_state = torch.default_generator.get_state()
    try:
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would restart the GPU's generators too
        with warnings.catch_warnings():  # PyG's graph generators add a global warning filter
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.default_generator.set_state(torch_state)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block on one torch thread: on small graphs more threads are slower, and sums depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
