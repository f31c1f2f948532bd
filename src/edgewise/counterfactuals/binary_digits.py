"""Binary digits of numbers: how many stand behind the point."""

import numpy as np
from torch import Tensor

LONGEST = 2.0**53
"""Whole numbers up to here are floating-point numbers."""
MANY = 1 << 12
"""Digits behind the point of numbers that are not exact."""


def digits(*parts: Tensor | None) -> int:
    """How many binary digits behind the point some numbers need, at most.

    >>> import torch
    >>> digits(torch.tensor([0.5, 2.0]).double(), None), digits(torch.tensor([3.0, 0.0]).double())
    (1, 0)
    """
    found = 0
    for part in parts:
        if part is None or part.numel() == 0:
            continue
        mantissa, exponent = np.frexp(part.detach().double().cpu().numpy().ravel())
        whole = (mantissa * LONGEST).astype(np.int64)  # the number is whole · 2^(exponent − 53)
        lowest = np.where(whole == 0, 0, np.log2(np.maximum(whole & -whole, 1)).astype(np.int64))
        found = max(found, int(np.where(whole == 0, 0, 53 - exponent - lowest).max()))
    return min(found, MANY)
