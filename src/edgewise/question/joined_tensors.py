"""JoinedTensors: what many small graphs hold, kept and compared together."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from edgewise.model.contents import is_same_leaf, same_tensor


@dataclass(frozen=True, eq=False)
class JoinedTensors:
    """Attributes of many graphs, those of all graphs one behind the other: a few tensors instead of thousands.

    >>> joined = JoinedTensors.of([[("x", torch.ones(2, 1)), ("y", 3)], [("x", torch.zeros(1, 1)), ("y", 4)]])
    >>> joined.numbers["x"], joined.plain
    (tensor([1., 1., 0.]), {'y': [3, 4]})
    >>> [seen["x"].tolist() for seen in joined.of_each()]
    [[[1.0], [1.0]], [[0.0]]]
    """

    shapes: dict[str, list[Any]]
    numbers: dict[str, Tensor]
    """`[all numbers]` of each attribute that is a tensor in every graph."""
    plain: dict[str, list[Any]]
    """Attributes that are no tensors."""

    @staticmethod
    def of(watched: list[list[tuple[str, Any]]]) -> "JoinedTensors | None":
        """A copy of (name, value) pairs of graphs; None if names, kinds, types or devices differ between graphs."""
        names = [name for name, _ in watched[0]]
        if any([name for name, _ in some] != names for some in watched):
            return None
        joined = JoinedTensors({}, {}, {})
        for place, name in enumerate(names):
            values = [some[place][1] for some in watched]
            kinds = {_kind(value) for value in values}
            if len(kinds) > 1 or kinds == {None}:
                return None
            if isinstance(values[0], Tensor):
                joined.shapes[name] = [value.shape for value in values]
                joined.numbers[name] = torch.cat([value.detach().reshape(-1) for value in values])
            else:
                joined.plain[name] = values
        return joined

    def is_same(self, other: "JoinedTensors | None") -> bool:
        """Whether all names, shapes and numbers are equal."""
        if other is None or self.shapes != other.shapes or self.plain.keys() != other.plain.keys():
            return False
        values = (
            (mine, theirs)
            for name in self.plain
            for mine, theirs in zip(self.plain[name], other.plain[name], strict=True)
        )
        tensors = ((numbers, other.numbers[name]) for name, numbers in self.numbers.items())
        return all(_same(*pair) for pair in (*values, *tensors))

    def of_each(self) -> list[dict[str, Any]]:
        """The attributes of each graph."""
        count = len(next(iter([*self.shapes.values(), *self.plain.values()])))
        found: list[dict[str, Any]] = [{name: values[i] for name, values in self.plain.items()} for i in range(count)]
        for name, shapes in self.shapes.items():
            ends = torch.tensor([0, *(shape.numel() for shape in shapes)]).cumsum(0).tolist()
            for seen, shape, (begin, end) in zip(found, shapes, pairwise(ends), strict=True):
                seen[name] = self.numbers[name][begin:end].view(shape)
        return found


_PLAIN = (int, float, str, bool)


def _kind(value: Any) -> Any:
    """What values of one attribute must have in common to be kept together; None: they cannot be."""
    if not isinstance(value, Tensor):
        return type(value) if type(value) in _PLAIN else None
    return (value.dtype, value.device) if value.layout == torch.strided else None


def _same(a: Any, b: Any) -> bool:
    """Whether two values are of one kind and equal: tensors bit by bit."""
    return same_tensor(a, b) if isinstance(a, Tensor) else is_same_leaf(a, b)
