"""Random numbers that belong to a (seed, target, layer, edge), not to an order of drawing.

A counter-based generator: every number is a hash of its coordinates. So results do not depend on `batch_size`, on the order
of `index` or on the device, nothing has to be stored, and the global random state is not touched.
"""

import math

import torch
from torch import Tensor

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
