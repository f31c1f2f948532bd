"""What an encoder in front of the first call makes of the features: each value's change along them, J · x.

A walk starts at x itself, so whatever an encoder makes of x is a part of its first block, on every way into the model: through
the first call, and through a residual around it. What depends on x and is read later belongs to no call.

Example: an encoder e(x) = relu(W x + b) before the first call. The value e(x) has the change J · x = diag(relu') W x; the bias
b is not part of it. Without an encoder the change of x along x is x. It is computed with dual numbers (forward-mode automatic
differentiation): what was recorded before the first call is a list of steps (`_prelude`), and `Duals` is the domain in which it
is interpreted, on x + ε·x.
"""

from typing import Any

from torch import Tensor
from torch.autograd import forward_ad
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.model.data_flow import Key, Operation, keys_of
from edgewise.model.trace import Trace
from edgewise.program.domains import Domain, interpret
from edgewise.program.ir import Ref, RowStep
from edgewise.program.operations import out_of_place
from edgewise.trees import tree_flatten, tree_leaves, tree_unflatten


class Moving:
    """Constants of a program by where they lie in memory, and how they change along the features.

    A program stores what was computed before its first call as constants; a tensor is recognised by address, shape and strides.
    """

    def __init__(self) -> None:
        self._found: dict[Any, tuple[Tensor, Tensor]] = {}

    def add(self, tensor: Tensor, tangent: Tensor) -> None:
        """Note a tensor and its change. The tensor is kept alive, so that no other one can lie at its address."""
        self._found[_place(tensor)] = (tensor, tangent)

    def tangent(self, tensor: Tensor) -> Tensor | None:
        """J · x of a tensor; None if it does not depend on the features."""
        found = self._found.get(_place(tensor))
        return None if found is None else found[1]

    def everything(self) -> list[tuple[Tensor, Tensor]]:
        """All tensors with their changes."""
        return list(self._found.values())


def _place(tensor: Tensor) -> Any:
    """Where a tensor lies in memory, and how it is laid out."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def follow(trace: Trace, data: Data) -> Moving:
    """Find everything before the first call that depends on the features, with its change along them.

    Raises a `ModelError` if nodes mix before the first call (found by moving every second node only: then no other node may
    move), or if the edge inputs of a layer depend on the features.
    """
    starts = {trace.input_key: data.x}
    if trace.typed is not None:
        starts = {key: tensor for key, tensor in trace.typed.tensors if key in trace.typed.features}
    moving, sizes = _along(trace, starts, every_second=False), {len(rows) for rows in starts.values()}
    for tensor, tangent in _along(trace, starts, every_second=True).everything():
        if not bool(tangent.isfinite().all()) and bool(tensor.isfinite().all()):
            raise ModelError(
                "Before the first layer the model has no finite slope at these features, as a root, a power or a logarithm at "
                "0, so nothing says how much a walk carries. Use method='occlusion' of ew.explain or ew.features."
            )
        if len(tangent) in sizes and bool((tangent[1::2] != 0).any()) and moving.tangent(tensor) is not None:
            raise ModelError(
                "Before the first layer the model mixes the features of different nodes (a norm over the whole graph?), so "
                "no single node gives what a walk carries. Prepare such features outside the model."
            )
    return moving


def _along(trace: Trace, starts: dict[Key, Tensor], *, every_second: bool) -> Moving:
    """Interpret what lies before the first call in dual numbers, along the features of all nodes or of every second one."""
    moving, (steps, number) = Moving(), _prelude(trace, list(starts))
    with forward_ad.dual_level():
        looks_up = not all(x.is_floating_point() for x in starts.values())
        domain = Duals(looks_up=looks_up, every_second=every_second)
        values = interpret(steps, domain, {number[key]: domain.start(x) for key, x in starts.items()})
        for operation in trace.operations:
            leaves = tree_leaves((operation.args, operation.kwargs))
            for leaf, key in zip(leaves, operation.inputs, strict=True):
                tangent = forward_ad.unpack_dual(values[number[key]]).tangent if key in number else None
                if tangent is not None:
                    _check_layer(operation, key)
                    moving.add(leaf.detach(), tangent.detach())
    return moving


def _prelude(trace: Trace, starts: list[Key]) -> tuple[list[RowStep], dict[Key, int]]:
    """The operations before the first call that depend on the features, as steps; and the number of each tensor's value.

    What depends on a layer is not among them. They need not work row by row: all rows are there.
    """
    number, steps, made = {key: place for place, key in enumerate(starts)}, list[RowStep](), set[Key]()
    behind: set[Key] = set()  # what was written through a view of it
    for operation in trace.operations:
        reads = [key for key in operation.inputs if key is not None]
        if not behind.isdisjoint(reads):
            raise ModelError(
                f"The walks of this model cannot be followed: before the first layer {operation.name} reads what was written "
                f"through a view (h[:, 0] += 1, for example). Explain its edges instead: ew.explain(model, data, ...)."
            )
        if operation.is_layer or any(key in made for key in reads):
            made.update(operation.outputs)
        elif any(key in number for key in reads):
            leaves, form = tree_flatten((operation.args, operation.kwargs))
            known = zip(operation.inputs, leaves, strict=True)
            args, kwargs = tree_unflatten([Ref(number[k]) if k in number else leaf for k, leaf in known], form)
            filled, form = tree_flatten((args, {name: value for name, value in kwargs.items() if name != "inplace"}))
            results = len(keys_of(operation.result))
            behind.update(operation.outputs[results:])
            for place, key in (
                (place, key) for place, key in enumerate(operation.outputs[:results]) if key is not None
            ):
                number[key] = len(starts) + len(steps)
                function = _result(out_of_place(operation.function), place)
                steps.append(RowStep(function, tuple(filled), form, number[key], calls_done=0))
    return steps, number


def _result(function: Any, place: int) -> Any:
    """One of the results of a function that may have several (`chunk`, `max` along an axis)."""
    return lambda *args, **kwargs: tree_leaves(function(*args, **kwargs))[place]


class Duals(Domain[Tensor]):
    """Dual numbers: a value and its change along the features. Rows that whole numbers look up (an embedding) start there."""

    def __init__(self, *, looks_up: bool, every_second: bool) -> None:
        self._looks_up, self._every_second = looks_up, every_second

    def start(self, x: Tensor) -> Tensor:
        """Features with their own change; categories have none."""
        return _dual(x.detach(), every_second=self._every_second) if x.is_floating_point() else x

    def operation(self, step: RowStep, sources: list[Tensor]) -> Tensor:
        """The operation itself, on dual numbers."""
        try:
            result = step.run(sources)
        except (
            NotImplementedError
        ) as reason:  # torch cannot differentiate it forwards, as fused attention between all nodes
            raise ModelError(
                f"The walks of this model cannot be followed: of what it does to the features before the first layer, torch "
                f"has no derivative ({str(reason).split('.')[0]}). Explain its edges instead: ew.explain(model, data, ...)."
            ) from reason
        found = self._looks_up and result.is_floating_point() and not _moves(result)
        return _dual(result, every_second=self._every_second) if found else result


def _dual(rows: Tensor, *, every_second: bool) -> Tensor:
    """Rows + ε·rows; with `every_second`, ε·0 at the others."""
    along = rows
    if every_second:
        along = rows.clone()
        along[1::2] = 0
    return forward_ad.make_dual(rows, along)


def _moves(tensor: Tensor) -> bool:
    """Whether a tensor is a dual number."""
    return forward_ad.unpack_dual(tensor).tangent is not None


def _check_layer(operation: Operation, key: Key) -> None:
    """Refuse a layer whose edge features or edge weights depend on x."""
    if operation.is_layer and key not in _feature_keys(operation):
        raise ModelError(
            f"{operation.name} reads more than node features from the model's input x (edge features made from it?), so its "
            f"walks would miss what passes there. Prepare such inputs outside the model, in edge_attr or edge_weight."
        )


def _feature_keys(operation: Operation) -> set[Key]:
    """The features that a layer reads: a tensor, or those of senders and receivers."""
    x = operation.kwargs.get("x", operation.args[0] if operation.args else None)
    ids = {id(one) for one in (x if isinstance(x, (tuple, list)) else [x]) if isinstance(one, Tensor)}
    leaves = tree_leaves((operation.args, operation.kwargs))
    found = {key for leaf, key in zip(leaves, operation.inputs, strict=False) if id(leaf) in ids}
    return {operation.own_input, *found}
