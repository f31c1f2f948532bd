"""How the operations between the calls of a model are written in those of interval arithmetic (`interval_operations.py`)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.program.bends import Bend, bends
from edgewise.program.intervals import Interval, TwoSided
from edgewise.program.ir import Ref
from edgewise.program.operations import plain_name
from edgewise.trust.attention_operation import Attention
from edgewise.trust.interval_operations import Affine, EdgeMessages, Join, Messages, Pool, Rectify, Sum

Operation = Messages | EdgeMessages | Attention | Affine | Rectify | Sum | Join | Pool
_SIDE_BY_SIDE = (-1, 1, 2)


class NotCertifiable(Exception):  # noqa: N818 (it names a state of affairs; users read it as `reason`)
    """The reason why nothing can be proved about a model this way."""


@dataclass
class PlanOperations:
    """A plan while it is made: operations in order, and the values that no weight changes."""

    num_nodes: int
    owner: Tensor | None = None
    """`[N]`: the graph of each node (graph tasks); None: there are no pools."""
    num_graphs: int = 0
    operations: list[Operation] = field(default_factory=list)
    constants: dict[int, Tensor] = field(default_factory=dict)
    of_graphs: set[int] = field(default_factory=set)
    """Values with a row for each graph, in place of one for each node."""
    output: int = -1
    _count: int = 0

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, kind: Any, *args: Any, **parts: Any) -> Ref:
        """A new operation; a reference to the value that it makes. The first argument is what it reads."""
        reads, *rest = args
        output = self._new()
        operation = kind(reads, output, *rest, **parts)
        of_graphs = {value in self.of_graphs for value in operation.reads if value not in self.constants}
        if len(of_graphs) > 1:
            raise NotCertifiable("a row of a graph is combined with rows of nodes")
        if kind is Pool or True in of_graphs:
            self.of_graphs.add(output)
        self.operations.append(operation)
        return Ref(output)

    def _rows_of(self, given: Any) -> Any:
        """A table of numbers, one row for each node or graph, as a constant value; anything else as it is."""
        if isinstance(given, Tensor) and given.dim() == 2 and len(given) > 1:
            if len(given) not in (self.num_nodes, self.num_graphs):
                raise TypeError(f"a constant of shape {list(given.shape)}")
            value = self._new()
            self.constants[value] = given.detach().double()
            return Ref(value)
        return given

    @staticmethod
    def _value(given: Any) -> Ref:
        if not isinstance(given, Ref):
            raise TypeError("what it reads is not a value of the model")
        return given

    def _bent(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        """A function with kinks, one after the other: each is a kink at 0, with shifts around it."""
        name = plain_name(function)
        args = tuple(self._rows_of(part) for part in args)
        if name in ("maximum", "minimum", "max", "min") and self._is_fixed(args[0]):
            args = (args[1], args[0])
        found = bends(function, args, kwargs)
        if found is None:
            raise NotCertifiable(f"{name} has a jump, or is not followed with these arguments")
        return self._through_bends(self._value(found[0]), found[1])

    def _through_bends(self, value: Ref, kinks: tuple[Bend, ...]) -> Ref:
        for bend in kinks:
            at = self._plain(bend.at)
            shifted = value if at is None else self._sum(value, at, -1)
            below, above = (_double_of(part) for part in (bend.below, bend.above))
            bent = self._add(Rectify, shifted.value, below, above, bend.is_off_at_kink, bend.is_on_at_kink)
            value = bent if at is None else self._sum(bent, at, 1)
        return value

    def _plain(self, given: Any) -> Any:
        """A number, tensor or value; None if it is 0 wherever it is read."""
        numbers = self.constants.get(given.value) if isinstance(given, Ref) else _double_of(given)
        return None if numbers is not None and not bool(numbers.any()) else given

    def _linear(self, name: str, input: Any, weight: Any, bias: Any = None) -> Ref:  # noqa: A002 (torch's name)
        matrix = weight.detach().double()
        two_sided = TwoSided.of(matrix.t() if name == "matmul" else matrix)
        return self._affine(input, matrix=two_sided, shift=None if bias is None else _point(bias))

    def _affine(self, source: Any, **parts: Any) -> Ref:
        return self._add(Affine, self._value(source).value, **parts)

    def _product(self, name: str, input: Any, other: Any = -1, rounding_mode: Any = None) -> Ref:  # noqa: A002
        """A value times, or divided by, what no edge weight changes."""
        if rounding_mode is not None:
            raise NotCertifiable(f"{name} with rounding_mode has jumps")
        if name not in ("neg", "div", "divide", "truediv", "true_divide") and self._is_fixed(input):
            input, other = other, input  # noqa: A001
        if not self._is_fixed(other) or self._is_fixed(input):
            raise NotCertifiable(f"{name} of two values that edges change is not piecewise linear")
        factor = self._numbers(other)
        return self._affine(input, scale=factor if name in ("neg", "mul", "rmul", "multiply") else 1 / factor)

    def _is_fixed(self, given: Any) -> bool:
        """Whether no edge weight changes it."""
        return not isinstance(given, Ref) or given.value in self.constants

    def _numbers(self, given: Any) -> Tensor:
        """A constant in float64: one number, `[width]`, or `[N, width]`."""
        if isinstance(given, Ref):
            return self.constants[given.value]
        found = _double_of(given)
        if found.numel() == 1:
            return found.view(())
        if found.dim() == 2 and len(found) in (1, self.num_nodes, self.num_graphs):
            return found[0] if len(found) == 1 else found
        if found.dim() != 1:
            raise TypeError(f"a constant of shape {list(found.shape)}")
        return found

    def _sum_of(self, name: str, input: Any, other: Any, alpha: float = 1) -> Ref:  # noqa: A002 (torch's names)
        """A sum or difference of values and constants."""
        if alpha != 1:
            other = self._product("mul", other, alpha)
        if name == "rsub":
            return self._sum(other, input, -1)
        return self._sum(input, other, -1 if name in ("sub", "isub", "subtract") else 1)

    def _sum(self, first: Any, second: Any, sign: int) -> Ref:
        """First + sign · second, where one of them may be a constant."""
        first, second = self._rows_of(first), self._rows_of(second)
        if isinstance(first, Ref) and isinstance(second, Ref):
            return self._add(Sum, (first.value, second.value), sign)
        if isinstance(first, Ref):
            return self._affine(first, shift=Interval.point(sign * self._numbers(second)))
        scale = torch.tensor(float(sign), dtype=torch.double)
        return self._affine(second, scale=scale, shift=Interval.point(self._numbers(first)))

    def _batch_norm(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        """With the statistics of training: a number for each column, and a shift."""
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        scale = (given["running_var"].detach().double() + given.get("eps", 1e-5)).rsqrt()
        if given.get("weight") is not None:
            scale = scale * given["weight"].detach().double()
        centred = self._affine(given["input"], shift=_point(-given["running_mean"]))
        return self._affine(centred, scale=scale, shift=None if given.get("bias") is None else _point(given["bias"]))

    # --- over several values, or columns ------------------------------------------------------------------------------

    def _pool_of(self, name: str, *args: Any, **kwargs: Any) -> Ref:
        """`sum`, `mean`, `max` or `min`: over values side by side, over columns, or over the nodes of the only graph."""
        given, dim, keepdim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None), kwargs.get("keepdim")
        keepdim = args[2] if len(args) > 2 else keepdim
        if isinstance(given, tuple):  # a stack
            if dim not in _SIDE_BY_SIDE:
                raise TypeError(f"dim={dim} of a stack")
            return self._over(name, list(given))
        if keepdim and dim in (0, -2) and self.owner is not None and self.num_graphs == 1:
            found = self.pool(given, largest=name in ("max", "min"), sign=-1 if name == "min" else 1)
            return self._product("div", found, self.num_nodes) if name == "mean" else found
        if not keepdim or dim not in (1, -1):
            raise TypeError(f"dim={dim}, keepdim={keepdim}")
        return self._over_columns(name, self._value(given))

    def _over(self, name: str, values: list[Ref]) -> Ref:
        """The sum, mean, maximum or minimum of values, number by number, in pairs."""
        count = len(values)
        while len(values) > 1:
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = [pair[0] if len(pair) == 1 else self._of_two(name, *pair) for pair in pairs]
        return self._product("div", values[0], count) if name == "mean" else values[0]

    def _of_two(self, name: str, first: Ref, second: Ref) -> Ref:
        if name in ("sum", "mean"):
            return self._sum(first, second, 1)
        kink = Bend(0, 1, second) if name == "max" else Bend(1, 0, second)
        return self._through_bends(first, (kink,))

    def _over_columns(self, name: str, value: Ref) -> Ref:
        """Over the columns of each row, which is `[rows, 1]` then."""
        width = self._width(value.value)
        if name in ("sum", "mean"):
            total = self._affine(value, matrix=TwoSided.of(torch.ones(1, width, dtype=torch.double)))
            return self._product("div", total, width) if name == "mean" else total
        while width > 1:
            half = (width + 1) // 2
            choice = torch.eye(width, dtype=torch.double)
            first, second = (self._affine(value, matrix=TwoSided.of(part)) for part in (choice[:half], choice[-half:]))
            value, width = self._of_two(name, first, second), half
        return value

    def _width(self, value: int) -> int:
        """How many columns a value has, from what made it."""
        if value in self.constants:
            return self.constants[value].size(1)
        operation = next(one for one in self.operations if one.output == value)
        if isinstance(operation, Messages):
            matrix = operation.layer.matrix
            return self._width(operation.source) if matrix is None else matrix.size(0)
        if isinstance(operation, Attention):
            return operation.channels * (operation.heads if operation.concat else 1)
        if isinstance(operation, Affine) and operation.matrix is not None:
            return operation.matrix.both.size(1) // 2
        widths = [self._width(read) for read in operation.reads]
        return sum(widths) if isinstance(operation, Join) else max(widths)

    def pool(self, value: Any, *, largest: bool, sign: int = 1) -> Ref:
        """One row for each graph; the smallest number is minus the largest of the negated ones."""
        source = self._value(value)
        if source.value in self.of_graphs:
            raise TypeError("rows of graphs are pooled again")
        if sign < 0:
            return self._product("neg", self.pool(self._product("neg", source), largest=largest))
        return self._add(Pool, source.value, largest)

    def _scatter(self, name: str, *args: Any, **kwargs: Any) -> Ref:
        """`scatter_add(zeros, 0, batch, x)` and `scatter_reduce(…, "amax")`, as PyG's pools have them."""
        names = ("input", "dim", "index", "src", "reduce")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        index, how = given["index"], given.get("reduce", "sum")
        same = (
            self.owner is not None
            and isinstance(index, Tensor)
            and given["dim"] in (0, -2)
            and torch.equal(index.reshape(len(index), -1)[:, 0], self.owner.to(index.device))
        )
        if not same or how not in ("sum", "amax", "amin") or not isinstance(given["input"], Tensor):
            raise NotCertifiable(f"{name} is no sum, mean, maximum or minimum over the nodes of each graph")
        if how == "sum" and bool(given["input"].any()):
            raise NotCertifiable(f"{name} adds to numbers that are there already")
        return self.pool(given["src"], largest=how != "sum", sign=-1 if how == "amin" else 1)

    def _soft_shrink(self, source: Any, lambd: float = 0.5) -> Ref:
        """Softshrink is x minus `clamp(x, −λ, λ)`."""
        value = self._value(source)
        return self._sum(value, self._through_bends(value, (Bend(0, 1, -lambd), Bend(1, 0, lambd))), -1)

    def _hard_sigmoid(self, source: Any) -> Ref:
        """Hardsigmoid is `clamp(x + 3, 0, 6) / 6`."""
        moved = self._sum(self._value(source), 3, 1)
        return self._product("div", self._through_bends(moved, (Bend(0, 1, 0), Bend(1, 0, 6))), 6)


def _double_of(given: Any) -> Tensor:
    """A number or tensor in float64; a Python number must not go through torch's default float32."""
    return given.detach().double() if isinstance(given, Tensor) else torch.tensor(float(given), dtype=torch.double)


def _point(rows: Tensor) -> Interval:
    return Interval.point(rows.detach().double())
