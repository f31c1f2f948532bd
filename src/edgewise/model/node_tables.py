"""Parameters and buffers with a row for each node of a graph, such as `self.emb.weight` in `x + self.emb.weight`.

Such a tensor is data of the graph: a cut needs its rows at the nodes of the cut. Which tensors are is seen when the model runs
on a small cut (`find_tables`): one with as many rows as the graph has nodes that meets the cut's nodes row by row, or that is
looked up by row numbers of the cut. A look-up by ids that came with the data needs nothing, and an equal size by chance meets
no node. What was found travels as an attribute of the graph, so that cuts and copies take its rows along; while the model runs,
the attribute stands in the parameter's place.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data

from edgewise.errors import EdgewiseError
from edgewise.model.borrow import ours
from edgewise.model.hooks import Layers
from edgewise.model.module_tree import named_modules
from edgewise.program.operations import plain_name
from edgewise.trees import tree_leaves

_PREFIX = "node_table_of_"
_LOOKUPS = frozenset(("getitem", "index_select", "embedding", "gather", "take_along_dim"))


@dataclass(frozen=True)
class NodeParameter:
    """A parameter or buffer with a row for each node."""

    module: str
    name: str
    kind: str = ""
    """Of a typed graph: the type of the nodes."""

    @property
    def attribute(self) -> str:
        """Its name in a graph."""
        return _PREFIX + f"{self.module}_{self.name}".replace(".", "_")


def with_tables(
    graph: Data, model: nn.Module, tables: tuple[NodeParameter, ...], node_id: Tensor | None = None
) -> Data:
    """The graph with the rows of its nodes; `node_id` says which nodes of the whole graph it has, None: all."""
    found = copy.copy(graph) if tables else graph
    for table in tables:
        rows = rows_in(model, table)
        found[table.attribute] = rows if node_id is None else rows.index_select(0, node_id.to(rows.device))
    return found


def rows_in(model: nn.Module, table: NodeParameter) -> Tensor:
    """`[N, …]`: the model's own rows."""
    rows: Tensor = _place(named_modules(model)[table.module], table.name)[table.name]
    return rows.detach()


@contextmanager
def standing_in(model: nn.Module, rows: dict[NodeParameter, Tensor]) -> Iterator[None]:
    """Other rows in the places of the parameters."""
    modules = named_modules(model)
    with ExitStack() as stack:
        for table, own in rows.items():
            place = _place(modules[table.module], table.name)
            stack.callback(place.__setitem__, table.name, place[table.name])
            place[table.name] = own
        yield


def _place(module: nn.Module, name: str) -> dict[str, Any]:
    """The dictionary of a module in which it keeps a tensor."""
    return module._parameters if name in module._parameters else module._buffers


Prepared: TypeAlias = tuple[Callable[[], Any], list[Tensor]]
"""A run of a model on a part of a graph, and the tensors that have row numbers of the part."""


def find_tables(
    model: nn.Module,
    layers: Layers,
    prepared: Callable[[tuple[NodeParameter, ...]], Prepared],
    sizes: dict[str, tuple[int, int]],
) -> tuple[NodeParameter, ...]:
    """The tables that a model reads row by row, seen on a part of a graph, where `prepared` runs it with some in place.

    `sizes` are the numbers of nodes in the graph and in the part, for each node type (`""` if there are none).
    """
    known = _candidates(model, sizes)
    found: tuple[NodeParameter, ...] = ()
    for _ in range(len(known)):
        run, local = prepared(found)
        use = _TableUse(known, sizes, local)
        try:
            with use.watching(layers):
                run()
        except EdgewiseError:
            pass  # the sizes of a table and of the part do not fit: that is how it is found
        new = [table for table in use.met if table not in found]
        if not new or use.looked_up & {*found, *new}:
            return found if not new else ()
        found = (*found, *new)
    return found


def _candidates(model: nn.Module, sizes: dict[str, tuple[int, int]]) -> dict[int, NodeParameter]:
    """The tensors with as many rows as the graph has nodes, of one type alone, by identity."""
    counts = [whole for whole, _ in sizes.values()]
    kinds = {whole: kind for kind, (whole, part) in sizes.items() if part < whole and counts.count(whole) == 1}
    return {
        id(tensor): NodeParameter(path, name, kinds[len(tensor)])
        for path, module in named_modules(model).items()
        for place in (module._parameters, module._buffers)
        for name, tensor in place.items()
        if tensor is not None and tensor.dim() > 0 and len(tensor) in kinds
    }


def is_counted(numbers: Tensor) -> bool:
    """Whether whole numbers count rows: 0, 1, 2 and so on.

    >>> is_counted(torch.tensor([0, 1, 2])), is_counted(torch.tensor([0, 2]))
    (True, False)
    """
    if numbers.dim() != 1 or numbers.dtype != torch.int64:
        return False
    return torch.equal(numbers, torch.arange(len(numbers), device=numbers.device))


class _TableUse(TorchFunctionMode):
    """Notes what is done with tensors that have a row for each node of the whole graph."""

    def __init__(self, known: dict[int, NodeParameter], sizes: dict[str, tuple[int, int]], local: list[Tensor]) -> None:
        super().__init__()
        self.met: dict[NodeParameter, None] = {}
        """Tables that nodes of the part meet row by row."""
        self.looked_up: set[NodeParameter] = set()
        """Tables that are read by ids of the user's."""
        self._tables: dict[int, set[NodeParameter]] = {key: {table} for key, table in known.items()}
        self._sizes = sizes
        self._local = {id(tensor) for tensor in local}
        self._keep: list[Any] = []

    @contextmanager
    def watching(self, layers: Layers) -> Iterator[None]:
        """Active, with hooks on the layers, which read rows of nodes."""

        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            for leaf in tree_leaves((args, kwargs)):
                self._meet(self._tables.get(id(leaf), set()))

        handles = [module.register_forward_pre_hook(ours(enter), with_kwargs=True) for _, module in layers]
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        tables = set[NodeParameter]().union(*(self._tables.get(id(leaf), ()) for leaf in leaves))
        try:
            result = func(*args, **kwargs)
        except Exception:
            self._meet(tables)
            raise
        self._keep.append((args, kwargs, result))
        is_local = any(id(leaf) in self._local for leaf in leaves)
        if tables and plain_name(func) in _LOOKUPS:
            self._look_up(tables, [leaf for leaf in leaves if id(leaf) not in self._tables])
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and made.dim():
                rows = {table for table in tables if len(made) == self._sizes[table.kind][0]}
                self._tables.update({id(made): rows} if rows else {})
            if isinstance(made, Tensor) and is_local and not made.is_floating_point():
                self._local.add(id(made))
        return result

    def _look_up(self, tables: set[NodeParameter], places: list[Any]) -> None:
        """Rows of a table by row numbers of the part, or by ids that came with the data."""
        rows = {self._sizes[table.kind][1] for table in tables}
        for place in places:
            if isinstance(place, slice):
                if place.stop in rows and place.start in (None, 0):
                    self._meet(tables)
            elif isinstance(place, Tensor) and not place.is_floating_point() and place.dim():
                if id(place) in self._local or (len(place) in rows and is_counted(place)):
                    self._meet(tables)
                else:
                    self.looked_up |= tables

    def _meet(self, tables: set[NodeParameter]) -> None:
        self.met.update(dict.fromkeys(sorted(tables, key=lambda table: table.attribute)))
