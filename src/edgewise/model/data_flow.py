"""What flows where in a recorded forward pass: operations and their tensors, the layer of each call, residuals and long skips.

A tensor is known by its `Key`. Operations that change no number are taken out first (`without_no_ops`). The layer of a call is
the number of calls on the longest way to it (`layers_of_calls`). A residual carries a call's own input around that call, into
the next call (or the output): it is a part of how a node reads itself, so it is scaled with the self weights. What jumps past
later calls (JumpingKnowledge, per-layer readouts) belongs to no single call and is only reported (`find_skips`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.arrays import Slots
from edgewise.graph.node_kinds import NodeKinds
from edgewise.model.module_tree import modules_of
from edgewise.program.operations import is_constant, is_unchanged, plain_name
from edgewise.trees import tree_leaves

Key: TypeAlias = "tuple[int, int] | None"
"""A tensor at one moment: its id and its version, because operations in place keep the id. None: not a tensor."""


def keys_of(tree: Any) -> list[Key]:
    """One key for each leaf, in the order of flattening."""
    return [(id(leaf), leaf._version) if isinstance(leaf, Tensor) else None for leaf in leaves_of(tree)]


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree; `(args, kwargs)` without containers inside, as of most calls, take a short way."""
    if isinstance(tree, Tensor):
        return [tree]
    if type(tree) is tuple and len(tree) == 2 and type(tree[0]) is tuple and type(tree[1]) is dict:
        flat = [*tree[0], *tree[1].values()]
        if not any(isinstance(leaf, (tuple, list, dict)) for leaf in flat):
            return flat
    return tree_leaves(tree)


@dataclass(frozen=True, eq=False)
class TypedTensors:
    """The tensors of a typed graph that a model gets: kinds are node types, by number."""

    kinds: NodeKinds
    rows: dict[Key, int]
    """Tensors with a row for each node of a kind."""
    ends: dict[Key, tuple[int, int]]
    """Tensors `edge_index`: the kinds at the two ends of their columns."""
    tensors: list[tuple[Key, Tensor]]
    """All of them, with their keys: kept alive, so that no other tensor gets their identity."""
    whole: tuple[int, ...]
    """Per kind: how many nodes the user's graph has."""
    features: frozenset[Key] = frozenset()
    """Those that are features: numbers of nodes, and `x` of any dtype; not the numbers of graphs."""


@dataclass(frozen=True)
class Operation:
    """One torch operation outside the layers, or one whole layer."""

    name: str
    inputs: list[Key]
    outputs: list[Key]
    position: int = -1
    """Its number among the operations outside the layers; -1 for a layer."""
    jumps: bool = False
    own_input: Key = None
    calls: range = range(0)
    function: Any = None
    """The torch function, or the layer."""
    args: Any = ()
    kwargs: Any = None
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Of the tensors that came out."""
    result: Any = None
    logits: Tensor | None = None
    """What a function that makes probabilities was given, as it was then."""

    @property
    def is_layer(self) -> bool:
        """Whether this is a whole message-passing layer."""
        return len(self.calls) > 0


def without_no_ops(operations: list[Operation]) -> tuple[list[Operation], dict[Key, Key]]:
    """The operations that make new numbers, as if `clone`, `1 * x` or a dropout that is off had not been written.

    Whoever reads what such an operation handed on reads its input instead: the dictionary says which key stands for which. An
    operation that reads only a shape (`zeros_like`) reads nothing.

    >>> import torch
    >>> x, y, z = torch.ones(1), torch.ones(1), torch.ones(1)
    >>> twice = Operation("clone", keys_of(x), keys_of(y), function=torch.clone, args=(x,), kwargs={}, result=y)
    >>> relu = Operation("relu", keys_of(y), keys_of(z), function=torch.relu, args=(y,), kwargs={}, result=z)
    >>> (kept,), _ = without_no_ops([twice, relu])
    >>> kept.name, kept.inputs == keys_of(x)
    ('relu', True)
    """
    same: dict[Key, Key] = {}
    kept = []
    for operation in operations:
        inputs, outputs = ([same.get(key, key) for key in keys] for keys in (operation.inputs, operation.outputs))
        function, args, kwargs = operation.function, operation.args, operation.kwargs or {}
        if not operation.is_layer and is_unchanged(function, args, kwargs, operation.result):
            same[operation.outputs[0]] = next(key for key in inputs if key is not None)
            continue
        if not operation.is_layer and is_constant(function):
            inputs = [None for _ in inputs]
        own = same.get(operation.own_input, operation.own_input)
        kept.append(replace(operation, inputs=inputs, outputs=outputs, own_input=own))
    return kept, same


def changed_by(func: Any, args: Any, kwargs: Any) -> Tensor | None:
    """The tensor that an operation in place, or one with `out=`, is about to change; None of others."""
    name = getattr(func, "__name__", "")
    in_place = name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
    found = args[0] if in_place and args else kwargs.get("out")
    return found if isinstance(found, Tensor) else None


def before_change(args: Any, changed: Tensor | None) -> Any:
    """The arguments with a copy of what an operation is about to change."""
    return args if changed is None else tuple(arg.clone() if arg is changed else arg for arg in args)


def written(tensor: Tensor, index: Any, value: Any) -> Tensor:
    """What `tensor[index] = value` makes of a tensor, out of place.

    >>> import torch
    >>> h = torch.tensor([1.0, -2.0])
    >>> written(h, h < 0, 0.0), h
    (tensor([1., 0.]), tensor([ 1., -2.]))
    """
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


def shapes_of(result: Any) -> list[tuple[int, ...]]:
    """The shapes of the tensors that an operation made."""
    return [tuple(leaf.shape) for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


_EXTREMES = frozenset(("max", "min", "amax", "amin", "aminmax", "median", "nanmedian", "quantile", "nanquantile"))
_EXTREMES |= frozenset(("kthvalue", "topk", "mode", "argmax", "argmin", "any", "all", "unique"))
_ORDERS = frozenset(("sort", "argsort", "msort", "cummax", "cummin"))


def picks_rows(operations: list[Operation], output: list[Key], num_nodes: int, *, orders: bool = True) -> str:
    """`"messages"` or `"features"` if the output depends on which of all nodes has the largest number of something, else `""`.

    Then a node may be without any influence at the given numbers, and have some as soon as these change a little: what comes
    out of a layer changes with messages, what stands in front of all layers with features alone. `orders`: whether the place
    in an order counts, too; the pools of graphs sort the nodes of each graph by themselves.

    >>> import torch
    >>> x, top, y = torch.ones(3, 2), torch.ones(()), torch.ones(3, 2)
    >>> steps = [Operation("max", keys_of(x), keys_of(top), function=torch.Tensor.max, args=(x,), shapes=[()])]
    >>> steps.append(Operation("div", keys_of([x, top]), keys_of(y), function=torch.div, args=(x, top), shapes=[(3, 2)]))
    >>> picks_rows(steps, keys_of(y), 3), picks_rows(steps, keys_of(x), 3)
    ('features', '')
    """
    needed, picking = {key for key in output if key is not None}, []
    for operation in reversed(operations):
        if needed.isdisjoint(operation.outputs):
            continue
        needed.update(key for key in operation.inputs if key is not None)
        if not operation.is_layer and _picks(operation, num_nodes, orders=orders):
            picking.append(operation)
    if not picking:
        return ""
    made: set[Key] = set()
    for operation in operations:
        if operation.is_layer or not made.isdisjoint(operation.inputs):
            made.update(key for key in operation.outputs if key is not None)
    return "features" if all(made.isdisjoint(operation.inputs) for operation in picking) else "messages"


def _picks(operation: Operation, num_nodes: int, *, orders: bool) -> bool:
    name = plain_name(operation.function)
    if name not in _EXTREMES and not (orders and name in _ORDERS):
        return False
    table = next(
        (leaf for leaf in leaves_of((operation.args, operation.kwargs or {})) if isinstance(leaf, Tensor)), None
    )
    if table is None or table.dim() == 0 or len(table) != num_nodes:
        return False
    if name in _ORDERS:
        places = [leaf for leaf in operation.args[1:2] if type(leaf) is int]
        place = (operation.kwargs or {}).get("dim", *places or [0 if name == "msort" else -1])
        return place % table.dim() == 0
    return any(shape[:1] != (num_nodes,) for shape in operation.shapes)


def weighs_by_nodes(operations: list[Operation], input_key: Key) -> bool:
    """Whether a layer gets numbers of edges that the model has made from nodes, such as weights from both ends."""
    made = {input_key}
    for operation in operations:
        if operation.is_layer and not made.isdisjoint(set(keys_of(_edge_numbers(operation))) - {operation.own_input}):
            return True
        if operation.is_layer or not made.isdisjoint(operation.inputs):
            made.update(key for key in operation.outputs if key is not None)
    return False


def _edge_numbers(layer: Operation) -> list[Tensor]:
    """What a layer gets behind its `edge_index` that has a number, or some, for each edge."""
    found: list[Tensor] = []
    count = -1
    for leaf in leaves_of((layer.args, layer.kwargs or {})):
        if not isinstance(leaf, Tensor) or leaf.dim() == 0:
            continue
        if leaf.dim() == 2 and len(leaf) == 2 and leaf.dtype == torch.long:
            count = leaf.size(1)
        elif len(leaf) == count and leaf.is_floating_point():
            found.append(leaf)
    return found


# --- Layers of calls ----------------------------------------------------------------------------------------------------

_IN_A_ROW = (pyg.SGConv, pyg.SSGConv, pyg.TAGConv, pyg.APPNP, pyg.ChebConv)
"""Layers that call `propagate` several times, each time on what the last one gave."""


def fixed_tensors(model: nn.Module) -> set[Key]:
    """Keys of parameters and buffers."""
    tables = [table for module in modules_of(model) for table in (module._parameters, module._buffers)]
    return set(keys_of([tensor for table in tables for tensor in table.values() if tensor is not None]))


def data_tensors(data: Data) -> set[Key]:
    """Keys of the tensors of a graph."""
    return set(keys_of([value for value in data.to_dict().values() if isinstance(value, Tensor)]))


def layers_of_calls(operations: list[Operation], known: set[Key], output: list[Key]) -> list[int] | None:
    """The layer of each call; None if a layer reads something whose making was not seen.

    Two branches on one input share layer 0, a call on their sum has layer 1:

    >>> a, b, x, h, y = ((number, 0) for number in range(5))
    >>> branch = [Operation("conv", [x], [a], calls=range(0, 1)), Operation("conv", [x], [b], calls=range(1, 2))]
    >>> rest = [Operation("add", [a, b], [h]), Operation("conv", [h], [y], calls=range(2, 3))]
    >>> layers_of_calls([*branch, *rest], {x}, [y])
    [0, 0, 1]
    """
    depth: dict[Key, int] = dict.fromkeys(known, 0)
    layers: dict[int, int] = {}
    for operation in operations:
        reads = [key for key in operation.inputs if key is not None]
        if operation.is_layer:
            if any(key not in depth for key in reads) or not _in_a_row(operation):
                return None
            before = max((depth[key] for key in reads), default=0)
            layers.update({call: before + i for i, call in enumerate(operation.calls)})
        before = max((depth.get(key, 0) for key in reads), default=0) + len(operation.calls)
        for key in operation.outputs:
            depth[key] = max(before, depth.get(key, 0))
    if any(key not in depth for key in output if key is not None):
        return None
    return [layers[call] for call in sorted(layers)]


def _in_a_row(operation: Operation) -> bool:
    return len(operation.calls) == 1 or isinstance(operation.function, _IN_A_ROW)


# --- Residuals and skips ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residual:
    """An operation whose `arguments` (numbers of flattened leaves) are a layer's own input, carried around that layer."""

    position: int
    arguments: tuple[int, ...]
    layer: int
    name: str = ""
    """Of the operation: whoever finds another one at this position has counted otherwise."""


def find_skips(
    operations: list[Operation], output: list[Key], layers: list[int]
) -> tuple[tuple[Residual, ...], tuple[str, ...]]:
    """The residuals, and the long skips in words; `layers` has the layer of each call."""
    groups = _by_layer(operations, layers)
    residuals: dict[int, Residual] = {}
    bypass: list[str] = []
    uses = (
        (layer, number, use)
        for layer, group in sorted(groups.items())
        for number in group
        for use in _uses(operations, number)
    )
    for layer, number, use in uses:
        calls = [layers[call] for call in operations[number].calls]
        deep = 1 + max(calls) - min(calls)  # relations of one layer are calls side by side
        following = groups.get(layer + deep, [])
        reached = _reached(operations, use, groups[layer])
        last = not following and not bypass and not operations[use].jumps
        goes_around = any(later in reached and use < later for later in following) or (last and _hits(reached, output))
        if goes_around and deep == 1:
            residuals[operations[use].position] = _residual(operations[use], operations[number], layer)
        elif _hits(reached, output):
            bypass.append(f"{operations[use].name} carries the input of {operations[number].name} past it")
    return tuple(residuals.values()), tuple(dict.fromkeys(bypass))


def _by_layer(operations: list[Operation], layers: list[int]) -> dict[int, list[int]]:
    """Layer ↦ the numbers of its operations."""
    groups: dict[int, list[int]] = {}
    for number, operation in enumerate(operations):
        if operation.is_layer:
            groups.setdefault(layers[operation.calls[0]], []).append(number)
    return groups


def _uses(operations: list[Operation], layer: int) -> Iterator[int]:
    """Operations that read the layer's own input, beside layers; an operation that hands it on unchanged is none."""
    own = operations[layer].own_input
    for number, operation in enumerate(operations):
        if own is not None and own in operation.inputs and own not in operation.outputs and not operation.is_layer:
            yield number


def _reached(operations: list[Operation], start: int, group: list[int]) -> dict[Any, None]:
    """Numbers of the operations, and keys of the tensors, that depend on an operation other than through a layer's calls."""
    reached: dict[Any, None] = dict.fromkeys(key for key in operations[start].outputs if key is not None)
    for number in range(start + 1, len(operations)):
        if number not in group and any(key in reached for key in operations[number].inputs if key is not None):
            reached[number] = None
            reached.update(dict.fromkeys(key for key in operations[number].outputs if key is not None))
    return reached


def _hits(reached: dict[Any, None], output: list[Key]) -> bool:
    return any(key in reached for key in output if key is not None)


def _residual(operation: Operation, call: Operation, layer: int) -> Residual:
    arguments = tuple(i for i, key in enumerate(operation.inputs) if key == call.own_input)
    return Residual(operation.position, arguments, layer, operation.name)


@dataclass(frozen=True)
class Call:
    """One message-passing call."""

    name: str
    module: MessagePassing
    layer: int
    """The most calls on a path from the features up to this one: calls side by side share a layer."""
    separable: bool
    """Whether the node's own term can be scaled apart from the edges."""
    message_width: int
    dtype: torch.dtype
    """Of the messages."""
    slots: Slots
    """Which edge (or self edge) owns each message."""
    arguments: dict[str, Any]
    """What the layer handed to `propagate`: normalised weights, for one."""
    edge_features: Tensor | None
    """What its attention read of each message's edge."""
    backward: Tensor | None = None
    """`[messages]`: which run from the second end of their column to the first; None: all as the layer's flow says."""
    is_mirrored: bool = False
    """Whether `slots` are columns of a mirrored graph (`program/mirror.py`)."""

    @cached_property
    def flow(self) -> str | None:
        """The direction of the messages on their columns, whatever the layer was told; None: both."""
        if self.is_mirrored:
            return "source_to_target"
        if self.backward is None:
            return str(self.module.flow)
        if bool((self.backward != self.backward[:1]).any()):
            return None
        return "target_to_source" if bool(self.backward[0]) else "source_to_target"
