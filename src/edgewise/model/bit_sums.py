"""What large tensors held, in four numbers: sums of their bits, to say later whether any bit has changed.

A sum of floating-point numbers depends on the order of its terms, so on the number of threads and on the device. These sums
are of integers, modulo 2⁶⁴: exact, whatever the order. Each 64-bit word is multiplied by an odd number of its place, so that a
single word that changes always shows. The upper halves of the words are summed once more on their own: whatever it is
multiplied by, the top bit of a word moves nothing but the top bit of a sum, and two changes of sign would cancel. The numbers
were drawn at random, so that other contents have the same four sums with a chance of about 2⁻⁶⁴ (multilinear hashing). A core
does two to three gigabytes a second; the hashes of Python's own library do less on processors without instructions for them.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_ROW = 1024
"""Words that are summed together."""
_AT_ONCE = 128
"""Rows that are worked on at once: a mebibyte, which stays in the cache of a core."""
_AT_ONCE_ON_GPU = 2**14
_SUMS = 4


def bit_sums(tensor: Tensor) -> tuple[int, ...]:
    """Numbers that change with any bit of a dense tensor; neither threads nor device matter.

    >>> import torch
    >>> zeros = torch.zeros(5)
    >>> bit_sums(zeros) == bit_sums(torch.zeros(5)), bit_sums(zeros) == bit_sums(-zeros)
    (True, False)
    """
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
    sums = _on_gpu(flat) if flat.is_cuda else _row_sums(_bytes_of(flat))
    while len(sums) > _SUMS:
        sums = _row_sums(sums.view(np.uint8))
    return tuple(sums.tolist())


def _bytes_of(flat: Tensor) -> np.ndarray:
    found: np.ndarray = np.from_dlpack(flat.view(torch.uint8))  # unlike `.numpy()`, this leaves no mark on the tensor
    return found


def _row_sums(octets: np.ndarray) -> np.ndarray:
    """The sums of each row of words, one row after the other; the last row is filled with zeros."""
    size = 8 * _ROW
    whole = len(octets) // size * size
    parts = [octets[:whole].view(np.int64).reshape(-1, _ROW)]
    if whole < len(octets) or not whole:
        rest = np.zeros(size, np.uint8)
        rest[: len(octets) - whole] = octets[whole:]
        parts.append(rest.view(np.int64).reshape(1, _ROW))
    halves = np.empty((_AT_ONCE, _ROW), np.int64)
    blocks = [part[begin : begin + _AT_ONCE] for part in parts for begin in range(0, len(part), _AT_ONCE)]
    return np.concatenate([_sums(block, halves) for block in blocks])


def _sums(rows: np.ndarray, halves: np.ndarray) -> np.ndarray:
    upper = np.right_shift(rows, 32, out=halves[: len(rows)])
    first, second, third, fourth = _weights()
    return np.stack([rows @ first, rows @ second, upper @ third, upper @ fourth], axis=1).reshape(-1)


def _on_gpu(flat: Tensor) -> np.ndarray:
    """The same sums of each row, made where the tensor is."""
    octets = flat.view(torch.uint8)
    size = 8 * _ROW
    whole = len(octets) // size * size
    first, second, third, fourth = torch.from_numpy(_weights()).to(flat.device)
    found = []
    main = octets[:whole] if octets.data_ptr() % 8 == 0 else octets[:whole].clone()
    for rows in main.view(torch.int64).view(-1, _ROW).split(_AT_ONCE_ON_GPU):
        upper = rows >> 32
        sums = [(rows * first).sum(1), (rows * second).sum(1), (upper * third).sum(1), (upper * fourth).sum(1)]
        found.append(torch.stack(sums, dim=1).view(-1))
    ours = [torch.cat(found).cpu().numpy()] if whole else []
    if whole < len(octets) or not whole:
        ours.append(_row_sums(octets[whole:].cpu().numpy()))
    return np.concatenate(ours)


@lru_cache(maxsize=1)
def _weights() -> np.ndarray:
    """`[4, words of a row]`: odd numbers, drawn once; a generator of our own."""
    draw = np.random.default_rng(20250803)
    drawn: np.ndarray = draw.integers(-(2**63), 2**63 - 1, (_SUMS, _ROW)) | 1
    return drawn
