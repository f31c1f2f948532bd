"""Which torch operations act on every row by itself, so that they can be run again on some of the rows.

Operations are known by name, without underscores: `torch.relu`, `relu_` and `Tensor.relu` are all "relu". First the tables and
`row_arguments`, which reads them; then `RowFunction`, a small network (the one inside a GIN) as a list of such operations, and
`read_row_function`, which records it.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.model.hooks import OperationMode
from edgewise.model.residuals import keys_of
from edgewise.trees import TreeSpec, tree_flatten, tree_unflatten

ACTIVATIONS = {
    "relu", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "softsign", "relu6",
    "hardtanh", "hardswish", "hardsigmoid", "logsigmoid", "threshold", "prelu", "tanhshrink", "softshrink", "hardshrink",
}  # fmt: skip
_ARITHMETIC = {
    "add", "sub", "mul", "div", "true_divide", "truediv", "radd", "rsub", "rmul", "neg", "abs", "exp", "log", "sqrt",
    "square", "pow", "clamp", "maximum", "minimum", "where",
}  # fmt: skip
_UNCHANGED = {"clone", "contiguous", "detach", "to", "type", "float", "double", "dropout", "alpha_dropout"}
_ELEMENT_WISE = frozenset(ACTIVATIONS | _ARITHMETIC | _UNCHANGED | {"batch_norm"})
_FIRST_ARGUMENT_ONLY = frozenset(["linear", "layer_norm", "batch_norm", "matmul", "prelu"])
_LAST_AXIS = frozenset(
    ["softmax", "log_softmax", "normalize", "cat", "concat", "stack", "sum", "mean", "max", "unsqueeze", "squeeze"]
)
_INFIX: dict[str, Callable[..., Any]] = {
    "iadd": operator.add,
    "isub": operator.sub,
    "imul": operator.mul,
    "itruediv": operator.truediv,
}


def plain_name(function: Any) -> str:
    """The name of a torch function, method or operator, without underscores.

    >>> plain_name(torch.Tensor.__iadd__), plain_name(torch.relu_), plain_name(torch.relu)
    ('iadd', 'relu', 'relu')
    """
    return str(getattr(function, "__name__", "")).strip("_")


def out_of_place(function: Any) -> Any:
    """The same function, but one that leaves its arguments alone.

    >>> out_of_place(torch.Tensor.__iadd__)(1, 2), out_of_place(torch.relu_) is torch.relu
    (3, True)
    """
    name = plain_name(function)
    if name in _INFIX:
        return _INFIX[name]
    raw = str(getattr(function, "__name__", ""))
    if raw.endswith("_") and not raw.endswith("__"):
        return getattr(torch, name, None) or getattr(functional, name)
    return function


def row_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """`"first"` or `"all"`: which tensor arguments have a row for each node; None if rows mix, or if that is not known.

    >>> x, weight = torch.ones(3, 2), torch.ones(4, 2)
    >>> row_arguments(torch.add, (x, x), {}), row_arguments(functional.linear, (x, weight), {})
    ('all', 'first')
    >>> row_arguments(torch.softmax, (x,), {"dim": 1}), row_arguments(torch.softmax, (x,), {"dim": 0})
    ('all', None)
    """
    name = plain_name(function)
    if kwargs.get("training") is True or (name == "dropout" and len(args) > 2 and args[2] is True):
        return None
    if name in _FIRST_ARGUMENT_ONLY:
        return None if name == "batch_norm" and _is_training(args, kwargs) else "first"
    if name in _ELEMENT_WISE or name in _INFIX:
        return "all"
    if name in ("max", "min") and len(args) > 1 and isinstance(args[1], Tensor):
        return "all"
    if name in _LAST_AXIS:
        return "all" if _axis(name, args, kwargs) in (-1, 1) else None
    if name in ("view", "reshape", "flatten"):
        return "all" if _keeps_rows(name, args) else None
    return None


def is_unchanged(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Whether an operation gives back the numbers of its first argument, as dropout does in eval mode."""
    return plain_name(function) in _UNCHANGED and row_arguments(function, args, kwargs or {}) is not None


def is_element_wise(function: Any) -> bool:
    """Whether each number of the result depends on one number of each row argument."""
    return plain_name(function) in _ELEMENT_WISE or plain_name(function) in _INFIX


def _is_training(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a `batch_norm` uses the statistics of the batch, which mixes rows."""
    flag = kwargs.get("training", args[5] if len(args) > 5 else False)
    return bool(flag) or (args[1] if len(args) > 1 else kwargs.get("running_mean")) is None


def _axis(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The axis along which an operation works; None if it works along all of them."""
    default = {"normalize": 1, "cat": 0, "concat": 0, "stack": 0}.get(name)
    place = 2 if name == "normalize" else 1
    return kwargs.get("dim", args[place] if len(args) > place else default)


def _keeps_rows(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a change of shape leaves the first axis: `view(-1, 4, 2)` does for any number of rows, `view(8, -1)` does not."""
    if name == "flatten":
        return len(args) > 1 and args[1] in (1, -1)
    sizes = args[1] if len(args) > 1 and isinstance(args[1], (tuple, list, torch.Size)) else args[1:]
    return len(sizes) > 1 and sizes[0] == -1 and all(size != -1 for size in sizes[1:])


def is_aligned(tensor: Tensor, num_rows: int, dims: int) -> bool:
    """Whether a constant `[num_rows, …]` has a row for each node: it then takes part row by row."""
    return tensor.dim() == dims and tensor.size(0) == num_rows and num_rows > 1


@dataclass(frozen=True)
class Place:
    """Stands for a value of a `RowFunction`: 0 is its input."""

    value: int


@dataclass(frozen=True, eq=False)
class RowFunction:
    """A small network as the operations that it made, to be run on any rows.

    Values are numbered: 0 is the input, i the result of operation i.

    >>> network = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    >>> _ = network[0].weight.data.fill_(2.0), network[0].bias.data.fill_(-5.0)
    >>> function = read_row_function(network, torch.ones(3, 1))
    >>> [plain_name(operation[0]) for operation in function.operations]
    ['linear', 'relu']
    >>> function(torch.tensor([[1.0], [10.0]]))
    tensor([[ 0.],
            [15.]])
    """

    operations: tuple[tuple[Any, tuple[Any, ...], TreeSpec], ...]
    """Each is (function, leaves, form): the arguments, flattened, with a `Place` where a value has to be put in."""

    def __call__(self, rows: Tensor) -> Tensor:
        """The network on some rows, `[n, in]` to `[n, out]`."""
        values = [rows]
        for function, leaves, form in self.operations:
            args, kwargs = tree_unflatten(self.filled(leaves, values), form)
            values.append(function(*args, **kwargs))
        return values[-1]

    @staticmethod
    def filled(leaves: tuple[Any, ...], values: list[Any]) -> list[Any]:
        """An operation's leaves with the values so far put in."""
        return [values[x.value] if isinstance(x, Place) else x for x in leaves]

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
        self.places: dict[Any, int] = {keys_of(sample)[0]: 0}
        self.operations: list[tuple[Any, tuple[Any, ...], TreeSpec]] = []
        self.fine: list[bool] = []
        self.keep: list[Any] = []

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation (never in place), and record it if it reads a recorded value."""
        keys = keys_of((args, kwargs))
        kwargs = {key: value for key, value in kwargs.items() if key != "inplace"}
        result = out_of_place(func)(*args, **kwargs)
        if isinstance(result, Tensor) and any(key in self.places for key in keys if key is not None):
            self.fine.append(row_arguments(func, args, kwargs) is not None)
            leaves, form = tree_flatten((args, kwargs))
            marked = [
                Place(self.places[k]) if k in self.places else _fixed(x) for k, x in zip(keys, leaves, strict=False)
            ]
            self.operations.append((out_of_place(func), tuple(marked), form))
            self.places[keys_of(result)[0]] = len(self.operations)
            self.keep.append((args, kwargs, result))
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
