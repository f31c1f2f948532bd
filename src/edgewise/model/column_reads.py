"""What a model's own code reads of the columns: whether rows of edges may reach nodes, or the output, past every layer.

Followed by storage over the steps of one pass, coarsely and with no rules of shapes: a tensor knows whether numbers of columns
went into it, data of nodes, and rows of edges. That decides only which models are looked at closely (`own_messages.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from edgewise.model.shadow import EDGE, Mark
from edgewise.program.operations import Kind, kind_of, plain_name
from edgewise.pyg_internals import plain
from edgewise.torch_internals import storage_key
from edgewise.trees import tree_leaves

DATA, ENDS, ROWS, OWN, TABLE = 1, 2, 4, 8, 16
"""Data of nodes; numbers of columns; rows of edges (gathered by columns, or attributes); an index or a square matrix
that the model keeps; another table that it keeps, which counts as one where data are multiplied by it."""
OF_EDGES = "what is of edges"
"""Where the step of a `propagate` keeps what it was given of edges, with the columns."""
ABOUT_SHAPES = frozenset(
    ("size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "__len__", "__get__", "get_device")
) | frozenset(("is_floating_point", "is_complex", "is_contiguous", "is_signed"))
"""Questions to a tensor whose answers do not depend on its numbers."""

_MIXING = (Kind.LINEAR, Kind.POOL)
_PRODUCTS = ("mm", "matmul", "einsum", "dot", "mv")
_LIKE_ANOTHER = ("expand_as", "view_as", "reshape_as", "type_as")
"""Operations that ask the second tensor for its shape or dtype alone."""
_REDUCTIONS = ("index_add", "index_reduce", "index_put", "scatter", "bincount")
_ENTRY_BY_ENTRY = frozenset(
    (
        "gt",
        "lt",
        "ge",
        "le",
        "eq",
        "ne",
        "logical_and",
        "logical_or",
        "logical_not",
        "masked_fill",
        "nan_to_num",
        "isnan",
    )
) | frozenset(
    ("isinf", "rsqrt", "reciprocal", "log1p", "expm1", "sin", "cos", "sign", "round", "floor", "ceil", "lerp", "invert")
)


class PassStep(NamedTuple):
    """An operation, a layer of PyG's, or a `propagate` of any other layer with the tables of nodes that it got."""

    function: Any
    args: Any
    kwargs: dict[str, Any]
    result: Any
    line: str = ""
    """Of the user's code, if somebody asked for it."""
    of_edges: bool = False
    """Whether a layer gave a row for each edge: attention, which `edge_updater` makes for `propagate`."""


def is_foreign(module: MessagePassing) -> bool:
    """Whether a layer's `forward` or `propagate` is not one of PyG's, so that anything may happen in it around messages."""
    return has_own(module, "forward") or has_own(module, "propagate")


def reduces_itself(module: MessagePassing) -> bool:
    """Whether code of a layer's own may put rows of edges together inside `propagate`."""
    return has_own(module, "aggregate") or has_own(module, "update")


def has_own(module: MessagePassing, method: str) -> bool:
    """Whether a method of a layer is not one of PyG's, nor one that PyG writes for the class."""
    return any(
        method in vars(kind) and not str(getattr(vars(kind)[method], "__module__", "")).endswith(f"_{method}")
        for kind in type(module).__mro__
        if not kind.__module__.startswith(("torch_geometric.", "torch."))
    )


@dataclass
class ColumnReads:
    """What every storage knows, kept up to date step by step."""

    known: dict[int, int]
    escaped: bool = False
    """Whether numbers of columns went to Python, so that any index may come from there."""
    fixed: bool = False
    """Whether the model has an index or a matrix of its own that rows of nodes met: it may hold the columns."""
    unseen: bool = False
    """Whether a tensor was read that is neither the model's nor the graph's, and that no step made."""
    lines: list[tuple[str, Any, Any]] = field(default_factory=list)
    """(line, function, result) of the steps that made rows of edges, or moved them."""

    met: str = ""
    """The first line that met rows of edges, or handed columns to Python."""

    @classmethod
    def of(cls, origins: Iterable[tuple[Tensor, Mark]], parameters: Iterable[Tensor]) -> "ColumnReads":
        """What the tensors of a graph know, and the numbers of a model."""
        reads = cls({place_of(parameter): 0 for parameter in parameters})
        for tensor, mark in origins:
            reads.known[place_of(tensor)] = reads.known.get(place_of(tensor), 0) | _at_first(tensor, mark)
        return reads

    def reach(self, steps: Iterable[PassStep], output: Any) -> bool:
        """Whether rows of edges may have reached nodes, or the output, past the layers."""
        reached = False
        for step in steps:
            if isinstance(step.function, MessagePassing):
                reached |= bool(self._all(node_tables(step.function, step.args, step.kwargs)) & ROWS)
                self._layer(step)
            else:
                self._operation(step)
        return reached or bool(self._all(output) & ROWS)

    def reach_edges(self, steps: Iterable[PassStep]) -> bool:
        """Whether a layer was given numbers of edges into which the model's own code put rows of nodes; after `reach`."""
        layers = (step for step in steps if isinstance(step.function, MessagePassing))
        given = (state for step in layers for _, state in edge_states(step.function, step.args, step.kwargs))
        return any(self._all(state) & (DATA | ROWS) == DATA | ROWS for state in given)

    def used(self, steps: list[PassStep], output: Any) -> list[int]:
        """The numbers of the operations whose results come to tables of nodes that a layer gets, or to the output."""
        found = []
        places = {place_of(tensor) for tensor in tensors(output)}
        for number in reversed(range(len(steps))):
            step = steps[number]
            if isinstance(step.function, MessagePassing):
                places.update(map(place_of, node_tables(step.function, step.args, step.kwargs)))
            elif not places.isdisjoint(map(place_of, _written(step))):
                places.update(map(place_of, tensors(_read(step))))
                found.append(number)
        return found

    def readouts(self, steps: list[PassStep], used: list[int], num_nodes: int) -> list[tuple[int, int]]:
        """Which operations read tables of nodes that rows of edges may have reached into something that is none.

        Each as the number of the step from the end, and of the tensor that it got.
        """
        return [
            (number - len(steps), leaf)
            for number in used
            if not any(_is_table(tensor, num_nodes) for tensor in _written(steps[number]))
            for leaf, tensor in enumerate(tensors(_read(steps[number])))
            if _is_table(tensor, num_nodes) and self._all(tensor) & (DATA | ROWS) == DATA | ROWS
        ]

    def puts_together(self, step: PassStep, ends: Tensor) -> bool:
        """Whether an operation adds up (or so) rows of edges by the very ends of the columns, for all to see."""
        if not any(word in plain_name(step.function) for word in _REDUCTIONS):
            return False
        count = ends.size(1)
        given = [one for one in tensors((step.args, step.kwargs)) if one.dim() and len(one) == count]
        index = [one.reshape(count, -1)[:, 0] for one in given if one.dtype == torch.long and one.numel()]
        rows = [one for one in given if one.is_floating_point() and self._all(one) & (DATA | ROWS) == DATA | ROWS]
        return bool(rows) and any(torch.equal(one.sort().values, side) for one in index for side in ends.sort(1).values)

    def _layer(self, step: PassStep) -> None:
        for number, tensor in enumerate(tensors(step.result)):
            beside = step.of_edges or (number and isinstance(step.result, (tuple, list)))  # attention, and whose it is
            self.known[place_of(tensor)] = DATA | ENDS | ROWS if beside else DATA

    def _operation(self, step: PassStep) -> None:
        function, args, kwargs = step.function, step.args, step.kwargs
        made = _written(step)
        if not made and getattr(function, "__name__", "") in ABOUT_SHAPES:
            return
        found = self._all(_read(step))
        if found & ROWS or (found & ENDS and not made):
            self.met = self.met or step.line
        if not made:
            self.escaped |= bool(found & (ENDS | ROWS))
            return
        found = self._made(function, args, kwargs, found)
        if step.line and found & ROWS and not self._stays(function, args, kwargs):
            self.lines.append((step.line, function, made[0]))
        for tensor in made:
            self.known[place_of(tensor)] = self.known.get(place_of(tensor), 0) | found

    def _made(self, function: Any, args: Any, kwargs: dict[str, Any], found: int) -> int:
        """What the result of an operation knows, whose arguments know what was `found`."""
        if kind_of(function, args) is Kind.FILL:
            return 0
        if found & DATA and found & TABLE:
            found = found & ~TABLE | (OWN if any(word in plain_name(function) for word in _PRODUCTS) else 0)
        if self.escaped and next(tensors((args, kwargs)), None) is None:
            return ENDS | ROWS  # made of numbers in Python
        if found & DATA and not self._stays(function, args, kwargs):
            self.fixed |= bool(found & OWN)
            return found | ROWS if self.escaped or found & (ENDS | OWN) else found
        return found

    def _stays(self, function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether an operation leaves rows of nodes in their places."""
        if plain_name(function) == "linear":
            return not self._all((args[1:], kwargs)) & (ENDS | OWN)
        return _is_plain(function, args)

    def _all(self, values: Any) -> int:
        found = 0
        for tensor in tensors(values):
            known = self.known.get(place_of(tensor))
            if known is None:
                known = self._of_stranger(tensor)
            found |= known
        return found

    def _of_stranger(self, tensor: Tensor) -> int:
        """A tensor that nobody was seen to make: perhaps out of columns."""
        if self.escaped:
            return ENDS | ROWS
        if may_hold_columns(tensor):
            return OWN
        self.unseen |= tensor.is_floating_point()
        return ENDS | ROWS if tensor.is_floating_point() else 0


def _read(step: PassStep) -> Any:
    """The arguments whose numbers an operation reads."""
    return step.args[:1] if plain_name(step.function) in _LIKE_ANOTHER else (step.args, step.kwargs)


def _written(step: PassStep) -> list[Tensor]:
    """The tensors that an operation made, or wrote into."""
    return list(tensors(step.args[:1] if getattr(step.function, "__name__", "") == "__setitem__" else step.result))


def _is_table(tensor: Tensor, num_nodes: int) -> bool:
    """Whether a tensor has a row of numbers for each node."""
    return tensor.is_floating_point() and tensor.shape[:1] == (num_nodes,)


def may_hold_columns(tensor: Tensor) -> bool:
    """Whether a constant of the model may be an index of nodes, or a matrix between them."""
    if tensor.layout is not torch.strided:
        return True
    if not tensor.dim() or tensor.numel() < 2:
        return False
    return not tensor.is_floating_point() or (tensor.dim() > 1 and tensor.size(-1) == tensor.size(-2))


def _is_plain(function: Any, args: Any) -> bool:
    """Whether an operation works entry by entry, or on each row by itself."""
    kind = kind_of(function, args)
    return (kind is not None and kind not in _MIXING) or plain_name(function) in _ENTRY_BY_ENTRY


def _at_first(tensor: Tensor, mark: Mark) -> int:
    if mark.has_edges:
        return ENDS if (1, EDGE) in mark.labels and not tensor.is_floating_point() else ENDS | ROWS
    return DATA if mark.of_nodes else 0


def node_tables(module: MessagePassing, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """What a layer was given of nodes: what comes before the columns in its signature."""
    if is_foreign(module):
        return list(tensors(args))
    found: list[Any] = []
    for value in args:
        if any(not tensor.is_floating_point() and tensor.dim() == 2 and len(tensor) == 2 for tensor in tensors(value)):
            break
        found.append(value)
    found += [value for name, value in kwargs.items() if not name.startswith(("edge", "adj", "hyperedge"))]
    return list(tensors(found))


def edge_states(module: MessagePassing, args: Any, kwargs: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """What a layer was given of edges, each with the columns it belongs to: weights, attributes, values of a sparse matrix."""
    if OF_EDGES in kwargs:
        return list(kwargs[OF_EDGES])
    of_nodes = {id(tensor) for tensor in node_tables(module, args, kwargs)}
    return states_by_column([one for one in tensors((args, kwargs)) if id(one) not in of_nodes])


def states_by_column(given: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Of tensors that a layer was given of edges: those with numbers, each with its columns `[2, edges]`."""
    ends = next((one for one in given if not one.is_floating_point() and one.dim() == 2 and len(one) == 2), None)
    found = []
    for one in given:
        if one.layout is not torch.strided:
            matrix = one.to_sparse_coo().coalesce()
            found.append((matrix.indices(), matrix.values()))
        elif ends is not None and one.is_floating_point() and one.dim() and len(one) == ends.size(1):
            found.append((ends, one))
    return [(ends, values.reshape(len(values), -1)) for ends, values in found if values.numel()]


def tensors(values: Any) -> Iterator[Tensor]:
    """The tensors in nested containers, without PyG's wrappers."""
    return (plain(leaf) for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def place_of(tensor: Tensor) -> int:
    """The storage of a tensor, which its views share; or the tensor itself, where none is to be seen."""
    try:
        return storage_key(tensor)
    except NotImplementedError:  # sparse ones, and those inside `torch.vmap`
        return id(tensor)
