"""Where the rows of a recorded pass come from: only rows that descend from given data mean the same in a cut and in the graph.

A cut has other row numbers than the graph. Whatever a model knows by row number (`torch.arange(len(x))`, a table by position,
noise, `cumsum`) is then another thing for the same node, although no operation mixes rows. So every value with a row for each
node must descend row by row from the data or from a layer, or have the same row everywhere by construction. Constants that take
part are written down: two recordings on cuts of different size must agree on them (`x * (100 / x.size(0))` does not).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.model.data_flow import Key, Operation, data_tensors, keys_of
from edgewise.model.node_tables import is_counted
from edgewise.model.trace import Trace
from edgewise.program.operations import is_constant, plain_name, row_arguments, turns_columns
from edgewise.trees import tree_leaves

_FILLED = frozenset(("zeros", "ones", "full", "scalar_tensor"))
"""Factories of equal rows, beside `zeros_like` and its kin."""
_LOOKUPS = frozenset(("getitem", "embedding", "index_select"))
_PICKS = frozenset(
    ("getitem", "select", "unbind", "chunk", "split", "t", "transpose", "flip", "contiguous", "clone", "long")
)
_REPEATS = frozenset(("expand", "expand_as", "broadcast_to", "repeat", "tile"))


@dataclass
class RowOrigins:
    """What is known of the rows of a pass, read off its operations in order."""

    sizes: frozenset[int]
    """How many rows values of nodes (of each kind) have."""
    given: set[Key]
    """Tensors whose rows descend from the data, row by row."""
    fixed: frozenset[Key]
    """Parameters and buffers: the same on every graph."""
    made: set[Key] = field(default_factory=set)
    """Tensors that depend on a layer; what happens to their rows is read off when the program is compiled."""
    uniform: set[Key] = field(default_factory=set)
    """Tensors with the same row for everybody, by construction."""
    ends: set[Key] = field(default_factory=set)
    """Links: tensors with row numbers of the pairs that are asked about."""
    pairs: set[Key] = field(default_factory=set)
    """Links: tensors made of the rows at the ends of each pair."""
    constants: list[Any] = field(default_factory=list)
    """What else took part: numbers, tensors without a row for each node, and the one row of uniform tensors."""
    is_apart: bool = True
    """Whether rows stay apart, and none is known by its number."""

    @classmethod
    def of(cls, trace: Trace, graph: Data) -> "RowOrigins":
        """Of a pass that was recorded on `graph` and still has its tensors."""
        tensors = data_tensors(graph) if trace.typed is None else {key for key, _ in trace.typed.tensors}
        kinds = [graph.num_nodes] if trace.typed is None else [len(nodes) for nodes in trace.typed.kinds.nodes]
        found = cls(frozenset(kinds), {trace.input_key, *tensors}, trace.fixed)
        for operation in trace.operations:
            found.is_apart = found.is_apart and found._read(operation)
        return found

    @classmethod
    def of_pairs(cls, trace: Trace, graph: Data) -> "RowOrigins":
        """Of a pass that scores pairs of nodes: what is behind the last layer reads the rows at their ends, and no others."""
        found = cls(frozenset([graph.num_nodes]), {trace.input_key, *data_tensors(graph)}, trace.fixed)
        found.ends.update(keys_of(graph.link_pairs.ends))
        last = max(number for number, operation in enumerate(trace.operations) if operation.is_layer)
        for number, operation in enumerate(trace.operations):
            read = found._read_pairs if number > last else found._read
            found.is_apart = found.is_apart and (found._picks_ends(operation) or read(operation))
        found.is_apart = found.is_apart and trace.output_key in found.pairs
        return found

    def agree(self, other: "RowOrigins") -> bool:
        """Whether two passes of the same model, on graphs of different sizes, used the same constants."""
        pairs = zip(self.constants, other.constants, strict=False)
        return len(self.constants) == len(other.constants) and all(_same(*pair) for pair in pairs)

    def _read(self, operation: Operation) -> bool:
        """Note what an operation makes; False if it mixes rows, or tells them apart by their numbers."""
        leaves = list(_leaves(operation))
        outputs: list[Key] = [key for key in operation.outputs if key is not None]
        if operation.is_layer:
            self.made.update(outputs)
            self._note(leaves, numbers=(bool, float))
            return all(self._fits_layer(leaf, key) for leaf, key in leaves if isinstance(leaf, Tensor))
        if any(key in self.made for key in operation.inputs):
            self.made.update(outputs)
            self._note([leaf for leaf in leaves if leaf[1] in self.uniform], numbers=())
            return all(self._fits(operation, leaf, key) for leaf, key in leaves if isinstance(leaf, Tensor))
        if any(key in self.given for key in operation.inputs):
            return self._read_data(operation, leaves, outputs)
        if self._is_uniform(operation, leaves):
            self.uniform.update(outputs)
        return True

    def _picks_ends(self, operation: Operation) -> bool:
        """Whether an operation hands on row numbers of pairs; it does not calculate with them."""
        reads = {key for key in operation.inputs if key is not None}
        if not reads or not reads <= self.ends or plain_name(operation.function) not in _PICKS:
            return False
        self.ends.update(operation.outputs)
        return True

    def _read_pairs(self, operation: Operation) -> bool:
        """An operation behind the last layer: a look-up at the ends of pairs, or one on what was looked up."""
        leaves = [(leaf, key) for leaf, key in _leaves(operation) if isinstance(leaf, Tensor)]
        keys, rows = {key for _, key in leaves}, self.given | self.made
        if keys & self.ends:
            tables = [(leaf, key) for leaf, key in leaves if key not in self.ends]
            self.pairs.update(operation.outputs)
            known = len(tables) == 1 and tables[0][1] in rows and plain_name(operation.function) in _LOOKUPS
            return known and len(tables[0][0]) in self.sizes
        if not keys & self.pairs:
            which = row_arguments(operation.function, operation.args, operation.kwargs or {})
            apart = which == "all" or (which == "first" and not any(key in rows for _, key in leaves[1:]))
            return (apart or not keys & rows) and self._read(operation)
        self.pairs.update(operation.outputs)
        self._note(list(_leaves(operation)), numbers=(bool, int, float, str))
        return not keys & rows

    def _read_data(self, operation: Operation, leaves: list[tuple[Any, Key]], outputs: list[Key]) -> bool:
        """An operation on data, in front of the layers: it must work row by row."""
        args, kwargs = operation.args, operation.kwargs or {}
        self.given.update(outputs)
        if self._is_all_rows(operation, leaves):
            return True
        self._note(leaves, numbers=(bool, int, float, str))
        if turns_columns(operation.function, args, kwargs):
            return True
        rows = row_arguments(operation.function, args, kwargs)
        if rows == "first":
            tensors = [key for leaf, key in leaves if isinstance(leaf, Tensor)]
            return tensors[0] in self.given and not any(key in self.given for key in tensors[1:])
        return rows is not None and all(
            self._fits(operation, leaf, key) for leaf, key in leaves if isinstance(leaf, Tensor)
        )

    def _is_all_rows(self, operation: Operation, leaves: list[tuple[Any, Key]]) -> bool:
        """Whether an operation looks up every row in order: `table[:len(h)]`, `emb(torch.arange(len(h)))`."""
        name = plain_name(operation.function)
        tables = [leaf for leaf, key in leaves if isinstance(leaf, Tensor) and key in self.given]
        others = [leaf for leaf, key in leaves if not isinstance(leaf, Tensor) or key not in self.given]
        if name not in _LOOKUPS or len(tables) != 1 or tables[0].dim() == 0:
            return False
        if name == "getitem":
            place = others[0] if len(others) == 1 else None
            if isinstance(place, slice):
                return place.start in (None, 0) and place.step in (None, 1) and place.stop in (None, len(tables[0]))
        else:
            place = next((leaf for leaf in others if isinstance(leaf, Tensor)), None)
            if name == "embedding" and any(leaf not in (None, -1, 2.0, False) for leaf in others if leaf is not place):
                return False  # a table that is rescaled as it is read
        return isinstance(place, Tensor) and len(place) == len(tables[0]) and is_counted(place)

    def _fits(self, operation: Operation, tensor: Tensor, key: Key) -> bool:
        """Whether a tensor may meet rows of nodes: as theirs, as a uniform one, or because it has none."""
        if key in self.given or key in self.made or key in self.uniform or tensor.dim() == 0:
            return True
        rows = row_arguments(operation.function, operation.args, operation.kwargs or {})
        if rows == "first":
            return True  # a matrix, or the numbers of a norm
        shape = operation.shapes[0] if operation.shapes else ()
        if rows == "all" and plain_name(operation.function) != "stack":
            return tensor.dim() < len(shape) or len(tensor) == 1 or len(tensor) != shape[0]
        return len(tensor) not in self.sizes

    def _fits_layer(self, tensor: Tensor, key: Key) -> bool:
        """Whether a layer may read a tensor: its rows or columns must be known, unless it is a parameter of the model."""
        return key in self.given or key in self.made or key in self.uniform or key in self.fixed or tensor.dim() == 0

    def _is_uniform(self, operation: Operation, leaves: list[tuple[Any, Key]]) -> bool:
        """Whether an operation on constants makes equal rows."""
        name, tensors = plain_name(operation.function), [one for one in leaves if isinstance(one[0], Tensor)]
        if name in _FILLED or is_constant(operation.function):
            return all(leaf.dim() == 0 or is_constant(operation.function) for leaf, _ in tensors)
        shape = operation.shapes[0] if operation.shapes else ()
        if name in _REPEATS and tensors:
            source, key = tensors[0]
            return key in self.uniform or source.dim() < len(shape) or source.dim() == 0 or len(source) == 1
        rows = row_arguments(operation.function, operation.args, operation.kwargs or {})
        if rows is None or not any(key in self.uniform for _, key in tensors):
            return False
        if rows == "first":
            return tensors[0][1] in self.uniform
        return all(key in self.uniform or leaf.dim() < len(shape) or len(leaf) == 1 for leaf, key in tensors)

    def _note(self, leaves: list[tuple[Any, Key]], numbers: tuple[type, ...]) -> None:
        """Write down the constants among the arguments of an operation."""
        for leaf, key in leaves:
            if not isinstance(leaf, Tensor):
                self.constants.extend([leaf] if numbers and isinstance(leaf, numbers) else [])
            elif key in self.uniform:
                self.constants.append(leaf[:1].detach().clone())
            elif not any(key in known for known in (self.given, self.made, self.fixed, self.pairs)):
                self.constants.append(leaf.detach())


def _leaves(operation: Operation) -> Iterator[tuple[Any, Key]]:
    """The arguments of an operation, nested ones too, with their keys."""
    yield from zip(tree_leaves((operation.args, operation.kwargs or {})), operation.inputs, strict=False)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and bool(a == b)
