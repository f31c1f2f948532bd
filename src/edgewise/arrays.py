"""Arrays: names for those that pass between files, each with its axis order, and ranks within groups.

Layer 0 reads the features, layer -1 writes the output. An edge copy belongs to one target: a column of the graph appears once
for every target that it can reach (`graph/copies.py`). Ranks within groups are the vectorised form of "for each group, the
first, second, …".
"""

import operator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.arguments import shown
from edgewise.errors import InputError

LayerWeight: TypeAlias = Tensor
"""[layer, edge copy]: ω, all ones is the model."""
SelfWeight: TypeAlias = Tensor
"""[layer, node copy]: s, the weight of a node's own term (self-loop, root weight, residual); all ones is the model."""
Slots: TypeAlias = Tensor
"""[message]: column of the edge that owns a message, or number of edges + node for a self edge.

On the path 0 → 1 → 2 a layer that adds self-loops sends five messages, with the slots (0, 1, 2, 3, 4): the two edges, then
2 + node.
"""


_FEW = 2**20
"""Numbers that fit a processor's cache; beyond, torch's own sort is as fast."""


def group_order(group: Tensor, groups: int) -> Tensor:
    """`[n]`: the entries group by group, those of a group in the order in which they came; groups are 0 to `groups` − 1.

    The stable sort of small numbers: numpy sorts 16 bits at a time by counting, five to ten times faster than torch compares.

    >>> group_order(torch.tensor([2, 0, 2, 1]), 3)
    tensor([1, 3, 0, 2])
    """
    if group.is_cuda or len(group) > _FEW:
        return group.argsort(stable=True)
    numbers: Any = np.from_dlpack(group)  # `numpy()` would leave a mark: a user's tensor could not be resized any more
    order = numbers.astype(np.uint16).argsort(kind="stable")
    for shift in range(16, (groups - 1).bit_length(), 16):
        order = order[(numbers >> shift).astype(np.uint16)[order].argsort(kind="stable")]
    return torch.from_numpy(order)


def narrowed(numbers: Tensor, end: int) -> Tensor:
    """Whole numbers below `end`, in 32 bits where those do: half the memory.

    >>> narrowed(torch.tensor([3, 5]), 6).dtype, narrowed(torch.tensor([3, 5]), 2**40).dtype
    (torch.int32, torch.int64)
    """
    return numbers.to(torch.int32) if end <= 2**31 else numbers


def has_few_digits(numbers: Any) -> bool:
    """Whether it is a tensor in float16 or bfloat16."""
    return isinstance(numbers, Tensor) and numbers.dtype in (torch.float16, torch.bfloat16)


def with_digits(numbers: Tensor) -> Tensor:
    """The same numbers in float32, where they have few digits: their gradients and shares would be rounded."""
    return numbers.float() if has_few_digits(numbers) else numbers


def rank_in_group(group: Tensor) -> Tensor:
    """`[n]`: how many entries of the same group stand before each one; the entries of a group must stand together.

    >>> rank_in_group(torch.tensor([4, 4, 4, 7, 7]))
    tensor([0, 1, 2, 0, 1])
    """
    place = torch.arange(len(group), device=group.device)
    starts = torch.ones_like(group, dtype=torch.bool)
    starts[1:] = group[1:] != group[:-1]
    return place - torch.where(starts, place, 0).cummax(0).values if len(group) else place


def occurrence(key: Tensor) -> Tensor:
    """`[n]`: how many equal keys stand before each one; the keys may come in any order.

    >>> occurrence(torch.tensor([7, 4, 7, 7, 4]))
    tensor([0, 0, 1, 2, 1])
    """
    order = key.argsort(stable=True)
    rank = torch.empty_like(order)
    rank[order] = rank_in_group(key[order])
    return rank


def enumerated(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of these sizes one after the other: the group of each entry, and its number within the group.

    >>> [part.tolist() for part in enumerated(torch.tensor([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    return owner, torch.arange(len(owner), device=counts.device) - start[owner]


def plain_index(index: Tensor) -> list[Any]:
    """An `index` in Python's numbers: those of nodes or graphs as they are, the rows `[T, 2]` of links as pairs.

    >>> plain_index(torch.tensor([4, 7])), plain_index(torch.tensor([[4, 7]]))
    ([4, 7], [(4, 7)])
    """
    return list(map(tuple, index.tolist())) if index.dim() == 2 else index.tolist()


def positions_of(index: Tensor, asked: Any) -> list[int]:
    """Where in an `index` a node, a graph or a pair stands; empty if it does not, or if it is none of them.

    >>> positions_of(torch.tensor([4, 7, 4]), 4), positions_of(torch.tensor([[4, 7]]), (4, 7))
    ([0, 2], [0])
    """
    numbers = asked if isinstance(asked, (tuple, list)) else [asked.item() if _is_one(asked) else asked]
    if len(numbers) != (2 if index.dim() == 2 else 1) or (index.dim() == 1 and numbers is asked):
        return []
    if not all(gives_number(one) and not isinstance(one, (bool, Tensor, np.ndarray)) for one in numbers):
        return []
    same = index.view(len(index), -1) == torch.tensor([min(int(one), 2**62) for one in numbers])
    found: list[int] = same.all(dim=1).nonzero().view(-1).tolist()
    return found


def is_position(item: Any) -> bool:
    """Whether this is one whole number, also as a tensor or an array without dimensions; True and False are none.

    >>> [is_position(item) for item in (3, True, torch.tensor(3), np.array([3]), np.array("three"), 1.5)]
    [True, False, True, False, False, False]
    """
    if isinstance(item, Tensor):
        return _is_one(item)
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "iu"
    return not isinstance(item, bool) and gives_number(item)


def gives_number(item: Any) -> bool:
    """Whether a whole number can be read from this, as Python does where it needs one; an object's own code may fail.

    >>> gives_number(3), gives_number(torch.tensor(3)), gives_number(torch.tensor(3, device="meta")), gives_number("3")
    (True, True, False, False)
    """
    try:
        operator.index(item)
    except Exception:  # whatever a stranger's `__index__` raises
        return False
    return True


def _is_one(asked: Any) -> bool:
    is_number = isinstance(asked, Tensor) and asked.dim() == 0 and asked.dtype != torch.bool
    return is_number and not asked.is_floating_point() and gives_number(asked)


def asked_index(index: Tensor) -> Tensor:
    """The `index` of a result as `explain` takes it: the pairs `[T, 2]` of links as columns.

    >>> asked_index(torch.tensor([[4, 7]])).shape
    torch.Size([2, 1])
    """
    return index.t() if index.dim() == 2 else index


def index_keys(index: Tensor, num_nodes: int) -> Tensor:
    """`[T]`: a number for each target, of a pair (u, v) u · N + v: random numbers are drawn from it.

    >>> index_keys(torch.tensor([[4, 7]]), 10), index_keys(torch.tensor([4, 7]), 10)
    (tensor([47]), tensor([4, 7]))
    """
    return index[:, 0] * num_nodes + index[:, 1] if index.dim() == 2 else index


def read_tensor(given: Any) -> Tensor:
    """A user's numbers as a tensor on the CPU; `TypeError` if they are none, whatever a stranger's object in a list raises.

    >>> read_tensor([3, 4])
    tensor([3, 4])
    """
    try:
        if isinstance(given, (list, tuple)):
            _count(given, {})
        masked = np.ma.is_masked(given) if isinstance(given, np.ma.MaskedArray) else hasattr(given, "_masked_mask")
        found = torch.as_tensor(_counted(given)).detach().cpu()
        odd = masked or found.is_nested or found.is_quantized or found.layout != torch.strided or is_endless(found)
    except Exception as error:
        raise TypeError(f"{shown(given)} cannot be read as numbers") from error
    if odd:
        raise TypeError(f"{shown(given)} cannot be read as plain numbers")
    return found


_MOST = 2**24
"""Numbers that a list may hold in one entry, and a tensor in less memory than they take."""
_MOST_LISTED = 2**28
"""Numbers that a list may hold, with those of lists in it."""
_NUMBERS = (int, float, bool, str)


def _counted(given: Any) -> Any:
    """A long range as a tensor at once, where torch would read number by number; one that no memory holds is refused."""
    if not isinstance(given, range) or not given[_MOST:]:
        return given
    if given[2**31 :]:
        raise ValueError(given)
    return torch.arange(given.start, given.stop, given.step)


def _count(given: Any, known: dict[int, int]) -> int:
    """How many numbers a list holds, `ValueError` if too many: torch would read them one by one.

    A list that is repeated counts every time, but is read once; `known` holds the counts of lists read before.

    >>> _count([[range(10), 3]] * 2, {})
    22
    """
    if not isinstance(given, (list, tuple)):
        return _entries(given)
    if id(given) not in known:
        known[id(given)] = _MOST_LISTED + 1  # if it holds itself
        known[id(given)] = sum(1 if type(part) in _NUMBERS else _count(part, known) for part in given)
        if known[id(given)] > _MOST_LISTED:
            raise ValueError(given)
    return known[id(given)]


def _entries(given: Any) -> int:
    """The same of an entry of a list, such as `range(10**12)` or a tensor that was expanded to as many."""
    size = given.numel() if isinstance(given, Tensor) else given.size if isinstance(given, np.ndarray) else 1
    if size > _MOST or (isinstance(given, range) and given[_MOST:]):
        raise ValueError(given)
    return len(given) if isinstance(given, range) else size


def is_endless(found: Tensor, most: int = _MOST) -> bool:
    """Whether a tensor is a view that repeats a few numbers very often: to look at all of them would take for ever.

    >>> is_endless(torch.ones(1).expand(10**12)), is_endless(torch.ones(1).expand(10))
    (True, False)
    """
    return found.numel() > most and found.numel() * found.element_size() > found.untyped_storage().nbytes()


def chosen_positions(item: Any, size: int) -> Tensor:
    """`[n]`: the positions that a slice, a list, a mask or a tensor names among `size`, as a list's own indexing would.

    >>> chosen_positions([2, -1], 4), chosen_positions(slice(None, None, -2), 4)
    (tensor([2, 3]), tensor([3, 1]))
    >>> chosen_positions([1.5], 4)
    Traceback (most recent call last):
    edgewise.errors.InputError: Positions must be integers, a slice or a mask of 4, got list [1.5].
    """
    everyone = torch.arange(size)
    try:
        if isinstance(item, (list, tuple)) and any(isinstance(entry, (list, tuple)) for entry in item):
            raise IndexError(item)  # lists in lists may hold more numbers than there is memory
        if isinstance(item, slice):
            return torch.tensor(range(size)[item], dtype=torch.long)
        if isinstance(item, range) and item[size:]:
            raise IndexError(item)  # more numbers than there are positions
        asked = read_tensor(list(item) if isinstance(item, (range, tuple, set)) else item)
        if asked.dim() == 1 and (asked.numel() == 0 or not (asked.is_floating_point() or asked.is_complex())):
            return everyone[asked if asked.dtype == torch.bool else asked.long()]
    except (TypeError, ValueError, RuntimeError, IndexError):
        pass
    raise InputError(f"Positions must be integers, a slice or a mask of {size}, got {shown(item)}.")
