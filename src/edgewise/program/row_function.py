"""A small network (the one inside a GIN) as a list of row-wise operations: recorded once, then inlined into a program.

`read_row_function` records it, `lower_…` of `layers/` hand it on, and the compiler makes a `RowStep` of every operation.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.model.data_flow import Key, keys_of
from edgewise.model.hooks import OperationMode
from edgewise.program.operations import is_unchanged, out_of_place, plain_name, row_arguments
from edgewise.trees import TreeSpec, tree_flatten, tree_unflatten


@dataclass(frozen=True)
class Place:
    """Stands for a value of a `RowFunction`: 0 is its input."""

    value: int


@dataclass(frozen=True, eq=False)
class RowFunction:
    """A small network as the operations that it made. Values are numbered: 0 is the input, i the result of operation i.

    >>> function = read_row_function(nn.Sequential(nn.Linear(1, 1), nn.Dropout().eval(), nn.ReLU()), torch.ones(3, 1))
    >>> [plain_name(operation[0]) for operation in function.operations]
    ['linear', 'relu']
    """

    operations: tuple[tuple[Any, tuple[Any, ...], TreeSpec], ...]
    """Each is (function, leaves, form): the arguments, flattened, with a `Place` where a value has to be put in."""

    @staticmethod
    def of(function: Any, **kwargs: Any) -> "RowFunction":
        """One operation: `function(rows, **kwargs)`."""
        leaves, form = tree_flatten(((Place(0),), kwargs))
        return RowFunction(((function, tuple(leaves), form),))

    def split_linear(self) -> tuple[Tensor, Tensor | None, "RowFunction"] | None:
        """The matrix and bias of a first linear map, and what follows; None if it begins otherwise.

        Only if nothing else reads the input: what follows then starts from the result of the linear map, which becomes value 0.
        """
        if not self.operations or plain_name(self.operations[0][0]) != "linear":
            return None
        uses = sum(leaf == Place(0) for _, leaves, _ in self.operations for leaf in leaves)
        _, leaves, form = self.operations[0]
        (rows, weight, *rest), _ = tree_unflatten(list(leaves), form)
        if uses != 1 or rows != Place(0):
            return None
        later = [
            (f, tuple(Place(x.value - 1) if isinstance(x, Place) else x for x in ls), fm)
            for f, ls, fm in self.operations[1:]
        ]
        return weight, rest[0] if rest else None, RowFunction(tuple(later))


class _Collector(OperationMode):
    """Records operations while a network runs, and which of them work row by row.

    `places` has the number of the value that a tensor is; `keep` holds on to the tensors, so that no other gets their identity.
    """

    def __init__(self, sample: Tensor) -> None:
        super().__init__()
        self.places: dict[Key, int] = {keys_of(sample)[0]: 0}
        self.operations: list[tuple[Any, tuple[Any, ...], TreeSpec]] = []
        self.fine: list[bool] = []
        self.keep: list[Any] = []

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation (never in place), and record it if it reads a recorded value and changes numbers."""
        kwargs = {key: value for key, value in kwargs.items() if key != "inplace"}
        keys = keys_of((args, kwargs))
        result = out_of_place(func)(*args, **kwargs)
        if isinstance(result, Tensor) and any(key in self.places for key in keys if key is not None):
            self.keep.append((args, kwargs, result))
            first = next(key for key in keys if key is not None)
            if first in self.places and is_unchanged(func, args, kwargs, result):
                self.places[keys_of(result)[0]] = self.places[first]
                return result
            self.fine.append(row_arguments(func, args, kwargs) is not None)
            leaves, form = tree_flatten((args, kwargs))
            marked = [
                Place(self.places[k]) if k in self.places else _fixed(x) for k, x in zip(keys, leaves, strict=False)
            ]
            self.operations.append((out_of_place(func), tuple(marked), form))
            self.places[keys_of(result)[0]] = len(self.operations)
        return result

    def leading_to(self, last: int) -> RowFunction | None:
        """The operations that value `last` needs, numbered anew from 1; None if one of them mixes rows."""
        needed = {last}
        for number in range(last, 0, -1):
            if number in needed:
                needed |= {leaf.value for leaf in self.operations[number - 1][1] if isinstance(leaf, Place)}
        order = sorted(needed - {0})
        if not all(self.fine[number - 1] for number in order):
            return None
        place = {0: 0, **{number: i + 1 for i, number in enumerate(order)}}
        chosen = [self.operations[number - 1] for number in order]
        return RowFunction(
            tuple(
                (f, tuple(Place(place[x.value]) if isinstance(x, Place) else x for x in leaves), form)
                for f, leaves, form in chosen
            )
        )


def _fixed(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def read_row_function(module: nn.Module, like: Tensor) -> RowFunction | None:
    """A module (the network inside a GIN) as row-wise operations; None if it mixes rows.

    It is run once, on three made-up rows with the width, dtype and device of `like`.
    """
    width = like.size(-1)
    sample = torch.linspace(-1, 1, 3 * width, dtype=like.dtype, device=like.device).view(3, width)
    collector = _Collector(sample)
    with torch.no_grad(), collector:
        result = module(sample)
    last = collector.places.get(keys_of(result)[0]) if isinstance(result, Tensor) else None
    return None if last is None else collector.leading_to(last)
