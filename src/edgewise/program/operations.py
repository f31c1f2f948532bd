"""The one table of torch operations: what kind of operation a name is, and what its arguments say.

Operations are known by name, without underscores: `torch.relu`, `relu_` and `Tensor.relu` are all "relu". Whoever reads a model
asks here: which operations hand their numbers on (`is_unchanged`, dropped when a pass is recorded), which act on every row by
itself (`row_arguments`). Where a piecewise linear function has its kinks is in `bends.py`.
"""

import operator
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class Kind(Enum):
    """What an operation does, whatever its name."""

    UNCHANGED = "the same numbers: clone, detach, to, dropout in eval mode"
    RECTIFIER = "piecewise linear, number by number: relu, clamp, abs"
    ACTIVATION = "a bent function, number by number: tanh, gelu"
    ELEMENTWISE = "any other function, number by number: exp, where"
    SCALE = "a product or quotient"
    SUM = "a sum or difference"
    LINEAR = "a matrix times each row"
    JOIN = "values side by side"
    NORM = "numbers of a row on a common scale: layer_norm, softmax"
    POOL = "one number from several along an axis"
    SHAPE = "the same numbers in another shape"
    FILL = "a constant that only has the shape of its argument: zeros_like"


_NAMES = {
    Kind.UNCHANGED: "clone contiguous detach to type type_as float double half bfloat16 cpu cuda requires_grad positive "
    "dropout alpha_dropout feature_dropout feature_alpha_dropout dropout1d dropout2d dropout3d",
    Kind.RECTIFIER: "relu leaky_relu prelu rrelu threshold relu6 hardtanh clamp clip clamp_min clamp_max maximum minimum abs",
    Kind.ACTIVATION: "elu selu celu gelu silu mish sigmoid tanh softplus softsign hardswish hardsigmoid logsigmoid tanhshrink "
    "softshrink hardshrink",
    Kind.ELEMENTWISE: "exp log sqrt square pow where",
    Kind.SCALE: "mul rmul imul div true_divide truediv itruediv neg multiply divide",
    Kind.SUM: "add radd iadd sub rsub isub subtract",
    Kind.LINEAR: "linear matmul",
    Kind.JOIN: "cat concat stack",
    Kind.NORM: "batch_norm layer_norm normalize softmax log_softmax",
    Kind.POOL: "sum mean max min",
    Kind.SHAPE: "view reshape flatten unsqueeze squeeze view_as reshape_as expand_as expand",
    Kind.FILL: "zeros_like ones_like full_like new_zeros new_ones new_full",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_EACH_NUMBER = {Kind.UNCHANGED, Kind.RECTIFIER, Kind.ACTIVATION, Kind.ELEMENTWISE, Kind.SCALE, Kind.SUM}
_FIRST_ARGUMENT_ONLY = {"linear", "matmul", "layer_norm", "batch_norm", "prelu"}
_INFIX: dict[str, Callable[..., Any]] = {
    "iadd": operator.add, "isub": operator.sub, "imul": operator.mul, "itruediv": operator.truediv,
}  # fmt: skip


def plain_name(function: Any) -> str:
    """The name of a torch function, method or operator, without underscores.

    >>> plain_name(torch.Tensor.__iadd__), plain_name(torch.relu_), plain_name(torch.relu)
    ('iadd', 'relu', 'relu')
    """
    return str(getattr(function, "__name__", "")).strip("_")


def kind_of(function: Any, args: tuple[Any, ...] = ()) -> Kind | None:
    """The kind of an operation; None if it is not in the table.

    >>> kind_of(torch.relu).name, kind_of(torch.max).name, kind_of(torch.sort)
    ('RECTIFIER', 'POOL', None)
    >>> kind_of(torch.max, (torch.ones(1), torch.zeros(1))).name       # of two tensors it is `maximum`
    'RECTIFIER'
    """
    name = plain_name(function)
    if name in ("max", "min") and len(args) > 1 and not isinstance(args[1], int):
        return Kind.RECTIFIER
    return _KINDS.get(name)


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


# --- Operations that hand their numbers on, and such that read no numbers -----------------------------------------------


def is_unchanged(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """Whether an operation gave back the numbers of its first tensor, in the same shape and dtype, with derivative 1.

    >>> x = torch.ones(3, 2)
    >>> [is_unchanged(torch.mul, (x, factor), {}, x * factor) for factor in (1, 2)]
    [True, False]
    >>> [is_unchanged(torch.Tensor.to, (x, dtype), {}, x.to(dtype)) for dtype in (x.dtype, torch.double)]
    [True, False]
    """
    kind, name = kind_of(function, args), plain_name(function)
    if kind not in (Kind.UNCHANGED, Kind.SHAPE, Kind.SUM, Kind.SCALE) and name != "pow":
        return False
    before = next((leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, Tensor)), None)
    if before is None or not isinstance(result, Tensor) or result.shape != before.shape:
        return False
    if result.dtype != before.dtype or result.device != before.device or result.layout != before.layout:
        return False
    if kind is Kind.UNCHANGED:
        return not _is_training(name, args, kwargs)
    if kind is Kind.SHAPE:
        return True
    other = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("exponent"))
    if not isinstance(other, (int, float)) or not isinstance(args[0], Tensor) or kwargs.get("rounding_mode"):
        return False
    if kind is Kind.SUM:
        return name != "rsub" and other == 0
    return other == 1


def is_constant(function: Any) -> bool:
    """Whether an operation reads only the shape of its arguments: `zeros_like(x)` does not depend on the numbers of x."""
    return kind_of(function) is Kind.FILL


def _is_training(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a dropout is on, or a `batch_norm` uses the statistics of the batch, which mixes rows."""
    if name == "batch_norm":
        flag = kwargs.get("training", args[5] if len(args) > 5 else False)
        return bool(flag) or (args[1] if len(args) > 1 else kwargs.get("running_mean")) is None
    if "dropout" in name:
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        return (
            rate != 0 and kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True)) is not False
        )
    return kwargs.get("training", name == "rrelu" and len(args) > 3 and args[3]) is True


# --- Rows ---------------------------------------------------------------------------------------------------------------


def row_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """`"first"` or `"all"`: which tensor arguments have a row for each node; None if rows mix, or if that is not known.

    >>> x, weight = torch.ones(3, 2), torch.ones(4, 2)
    >>> row_arguments(torch.add, (x, x), {}), row_arguments(functional.linear, (x, weight), {})
    ('all', 'first')
    >>> row_arguments(torch.softmax, (x,), {"dim": 1}), row_arguments(torch.softmax, (x,), {"dim": 0})
    ('all', None)
    """
    name, kind = plain_name(function), kind_of(function, args)
    if kind is None or _is_training(name, args, kwargs):
        return None
    if name in _FIRST_ARGUMENT_ONLY:
        return "first"
    if kind in _EACH_NUMBER or kind is Kind.FILL:
        return "all"
    if name in ("view", "reshape", "flatten"):
        return "all" if _keeps_rows(name, args) else None
    if kind is Kind.SHAPE and name not in ("squeeze", "unsqueeze"):
        return None
    return "all" if _axis(name, args, kwargs) in (-1, 1) else None


def is_element_wise(function: Any, args: tuple[Any, ...] = ()) -> bool:
    """Whether each number of the result depends on one number of each row argument."""
    return kind_of(function, args) in _EACH_NUMBER or plain_name(function) == "batch_norm"


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


PRODUCTS = ("mul", "rmul", "imul", "multiply")
QUOTIENTS = ("div", "true_divide", "truediv", "itruediv", "divide")
_AFFINE_KINDS = (Kind.SUM, Kind.JOIN, Kind.SHAPE, Kind.FILL)
_AFFINE_NAMES = (
    *("neg", "sum", "mean", "expand_as", "scatter_add", "index_add", "index_select", "gather", "getitem", "transpose"),
    *("permute", "t"),
)


def takes_shape_of(function: Any) -> bool:
    """Whether an operation reads its second argument for its shape alone.

    >>> takes_shape_of(torch.Tensor.expand_as), takes_shape_of(torch.Tensor.expand)
    (True, False)
    """
    return plain_name(function) in ("expand_as", "view_as", "reshape_as", "type_as")


def is_affine(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], moves: Callable[[Any], bool]) -> bool:
    """Whether an operation is an affine function of those of its arguments that move, together; not known is no.

    >>> is_affine(torch.add, ("x", "y"), {}, lambda value: True), is_affine(torch.mul, ("x", "y"), {}, lambda value: True)
    (True, False)
    >>> is_affine(torch.mul, ("x", 2.0), {}, lambda value: value == "x")
    True
    """
    name, kind = plain_name(function), kind_of(function, args)
    first_alone = bool(args) and moves(args[0]) and not any(moves(value) for value in (*args[1:], *kwargs.values()))
    if kind is Kind.UNCHANGED or name in ("linear", "matmul", "batch_norm"):
        return first_alone and not _is_training(name, args, kwargs)
    if name == "where":
        return len(args) == 3 and not moves(args[0])
    if name in PRODUCTS:
        return len(args) == 2 and not (moves(args[0]) and moves(args[1]))
    if name in QUOTIENTS:
        return first_alone and not kwargs.get("rounding_mode")
    return kind in _AFFINE_KINDS or name in _AFFINE_NAMES


def turns_columns(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation on edges `[2, E]` works column by column: it swaps both ends, or puts columns side by side.

    >>> edges = torch.tensor([[0, 1], [1, 2]])
    >>> turns_columns(torch.flip, (edges, [0]), {}), turns_columns(torch.flip, (edges, [1]), {})
    (True, False)
    >>> turns_columns(torch.cat, ([edges, edges],), {"dim": 1})
    True
    """
    name = plain_name(function)
    parts = args[0] if args and isinstance(args[0], (list, tuple)) else args[:1]
    if not all(isinstance(p, Tensor) and p.dim() == 2 and len(p) == 2 and not p.is_floating_point() for p in parts):
        return False
    if name == "flip":
        dims = kwargs.get("dims", args[1] if len(args) == 2 else args[1:])
        return (tuple(dims) if isinstance(dims, (list, tuple)) else (dims,)) in ((0,), (-2,))
    return name in ("cat", "concat") and _axis(name, args, kwargs) in (1, -1)


def moves_columns(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation picks or moves columns of a table and leaves its rows where they are; not known is no.

    >>> table = torch.ones(3, 2)
    >>> moves_columns(torch.Tensor.__getitem__, (table, (slice(None), [1, 0])), {}), moves_columns(torch.flip, (table, [0]), {})
    (True, False)
    """
    name = plain_name(function)
    if name == "getitem":
        return len(args) == 2 and isinstance(args[1], tuple) and args[1][0] in (slice(None), Ellipsis)
    if name not in ("index_select", "flip", "narrow", "select", "roll"):
        return False
    axis = kwargs.get("dim", kwargs.get("dims", args[2 if name == "roll" else 1] if len(args) > 1 else None))
    axis = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    return axis in ((1,), (-1,))


# --- Tables on top of each other ----------------------------------------------------------------------------------------


def is_stack_of_tables(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation puts tables on top of each other, `[tables, rows, columns]`: `torch.stack(tables)`.

    >>> is_stack_of_tables(torch.stack, ([torch.ones(3, 2)],), {}), is_stack_of_tables(torch.stack, ([],), {"dim": 1})
    (True, False)
    """
    return plain_name(function) == "stack" and _axis("stack", args, kwargs) == 0


def folds_first_axis(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation makes one table of tables on top of each other: `sum`, `mean`, `max` or `min` along axis 0."""
    name = plain_name(function)
    return kind_of(function) is Kind.POOL and _axis(name, args, kwargs) in (0, -3) and not kwargs.get("keepdim")
