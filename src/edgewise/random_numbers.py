"""Random numbers that belong to a (seed, target, layer, edge), not to an order of drawing; and blocks of seeded code.

Our own draws come from a counter-based generator: every number is a hash of its coordinates. So results do not depend on
`batch_size`, on the order of `index` or on the device, nothing has to be stored, and the global random state is not touched.
For code that does draw from the global generators, `seeded` starts them and puts them back; `torch_threads` sees to threads.
"""

import math
import random
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import SettingError

_GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed 64-bit number
_MIX1, _MIX2 = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15  # the two multipliers of splitmix64
_BITS = 53  # what a float64 holds exactly


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Shift with zeros from the left, as a hash needs; torch shifts arithmetically."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the input."""
    bits = (bits ^ _shift_right(bits, 30)) * _MIX1
    bits = (bits ^ _shift_right(bits, 27)) * _MIX2
    return bits ^ _shift_right(bits, 31)


def uniform(seed: int, *coordinates: Tensor) -> Tensor:
    """Numbers in [0, 1), float64, one for each entry of the (broadcast) integer coordinates.

    >>> import torch
    >>> a = uniform(0, torch.tensor([7]), torch.arange(3))
    >>> bool((a == uniform(0, torch.tensor([7]), torch.arange(5))[:3]).all())
    True
    """
    bits = torch.tensor(seed, dtype=torch.int64, device=coordinates[0].device)
    for coordinate in coordinates:
        bits = _mix((bits + coordinate.to(torch.int64) + 1) * _GOLDEN)
    return _shift_right(bits, 64 - _BITS).to(torch.float64) * 2.0**-_BITS


def normal(seed: int, *coordinates: Tensor) -> Tensor:
    """Standard normal numbers, float64, one for each entry of the coordinates, by the method of Box and Muller."""
    zero = torch.zeros((), dtype=torch.int64, device=coordinates[0].device)
    radius = (-2 * torch.log1p(-uniform(seed, *coordinates, zero))).sqrt()
    return radius * torch.cos(2 * math.pi * uniform(seed, *coordinates, zero + 1))


def random_scores(seed: int, index: int, num_layers: int | None, num_edges: int) -> Tensor:
    """Uniform in [0, 1) on every edge of the graph, `[E]` or `[L, E]` (with `num_layers`).

    They are drawn when they are looked at, and depend on the seed and the target's `index` alone: the same every time.

    >>> random_scores(0, 7, None, 3).shape, bool((random_scores(0, 7, None, 3) == random_scores(0, 7, None, 3)).all())
    (torch.Size([3]), True)
    """
    layer = torch.arange(num_layers or 1).view(-1, 1)
    drawn = uniform(seed, torch.tensor(index), layer, torch.arange(num_edges)).to(torch.float32)
    return drawn if num_layers else drawn[0]


# --- The global generators and threads, put back afterwards -----------------------------------------------------------


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with every global generator started from `seed`, and put the generators back afterwards.

    For code that draws from the global generators, as PyG's data sets do; our own draws use `uniform` and `normal`.

    >>> import torch
    >>> with seeded(7): first = torch.rand(2)
    >>> with seeded(7): again = torch.rand(2)
    >>> torch.equal(first, again)
    True
    """
    if not 0 <= seed < 2**32:
        raise SettingError(
            f"`seed` must be between 0 and 2**32 - 1, as numpy's generator wants it, got {seed}. Use seed=0."
        )
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
def torch_threads(count: int) -> Iterator[None]:
    """Run a block on so many torch threads; afterwards there are as many as before."""
    before = torch.get_num_threads()
    if before == count:  # setting it costs more than looking
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """Run a block on one torch thread: on small graphs more threads are slower, and sums depend on their number."""
    return torch_threads(1)
