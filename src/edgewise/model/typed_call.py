"""A model of typed graphs, called on the union of all types: `model(x_dict, edge_index_dict, …)`.

The union (`graph/type_table.py`) is cut and copied like any graph. Here the part that is run becomes a `HeteroData` again:
every type of the user's data is in it, in the user's order, also without nodes or edges, and rows and columns keep the order
of the part. Whose they are is told to whoever follows identities (`marks`), so that no owner has to be guessed.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from edgewise.errors import InputError, ModelError
from edgewise.graph.node_kinds import NodeKinds
from edgewise.graph.type_table import EdgeType, TypeTable
from edgewise.model.call import Forward, GraphForward, takes_data
from edgewise.model.call_arguments import argument_names, required_names
from edgewise.model.data_flow import Key, TypedTensors, keys_of
from edgewise.model.shadow import EDGE, NODE, OWN, Mark
from edgewise.torch_internals import no_dispatch, no_functions

_EXTRAS = ("edge_attr", "edge_weight")


@dataclass(frozen=True)
class TypedPart:
    """A part of the union as a typed graph."""

    of: Tensor
    """The `edge_index` of the part: the very tensor says which part this is."""
    data: HeteroData
    nodes: dict[str, Tensor]
    """For each node type, the rows of the part that are of that type, ascending."""
    columns: dict[EdgeType, Tensor]
    versions: list[int]

    def is_of(self, graph: Data) -> bool:
        """Whether it is this part, and the model has not written into it."""
        return self.of is graph.edge_index and self.versions == versions(self.data)


def versions(data: HeteroData) -> list[int]:
    """Torch's counts of changes in place of all tensors."""
    return [value._version for store in data.stores for value in store.values() if isinstance(value, Tensor)]


class TypedForward(GraphForward):
    """How a model of typed graphs is called on (a part of) their union, and whose rows come out."""

    def __init__(self, data: HeteroData, table: TypeTable, forward: Forward | None) -> None:
        self.data, self.table, self.forward = data, table, forward
        self._double = False
        self._last: TypedPart | None = None
        self._values: Mapping[tuple[Any, str], Tensor] = {}
        self.returned_table = False
        """Whether the model gave a dictionary by node type: then no count can be mistaken."""

    def in_double(self) -> "TypedForward":
        """The same with features in float64."""
        other = copy.copy(self)
        other._double, other._last = True, None
        return other

    def store_of(self, graph: Data, kind: str) -> Any:
        """The attributes of a node type in the part."""
        return self.part(graph).data[kind]

    def carry(self, rows: Mapping[tuple[str, str], Tensor]) -> None:
        """Hand out further attributes of nodes with each part: `{("user", "name"): rows of all users}`."""
        self.data, self._last = copy.copy(self.data), None
        for (kind, name), values in rows.items():
            self.data[kind][name] = values

    def with_values(self, values: Mapping[tuple[Any, str], Tensor]) -> "TypedForward":
        """The same with other values in the part that is run: `{("user", "x"): features}`."""
        other = copy.copy(self)
        other._values = values
        return other

    def data_of(self, number: int) -> HeteroData:
        """The typed graph of that number: here there is one."""
        return self.data

    def given(self, part: TypedPart) -> HeteroData:
        """What the model gets of a part; it may write into it."""
        data = copy.copy(part.data)
        for (key, name), value in self._values.items():
            data[key][name] = value.clone()
        return data

    # --- the call -----------------------------------------------------------------------------------------------------

    def __call__(self, model: nn.Module, graph: Data) -> Tensor:
        """`[nodes of the explained type, columns]`, in the order of the part."""
        part = self.part(graph)
        given = self.given(part)
        if self.forward is not None:
            found = self.forward(model, given)
        elif takes_data(model):
            found = model(given)
        else:
            found = model(*tables_of(model, given), **extras_of(model, given))
        return self._rows(found, part)

    def describe(self, model: nn.Module) -> str:
        """The call in words."""
        name = type(model).__name__
        if self.forward is not None:
            return f"forward({name}, data)"
        if takes_data(model):
            return f"{name}(data)"
        extras = "".join(f", {key}={key}" for key in extras_of(model, self.data))
        return f"{name}(x_dict, edge_index_dict{extras})"

    def hint(self) -> str:
        """What may help if the model raised."""
        shapes = {name: list(self.data[name].x.shape) for name in self.table.node_types if "x" in self.data[name]}
        return (
            f"x_dict has the shapes {shapes}; do they fit the first layer? If the model must be called in another way, say "
            f"how: forward=lambda model, data: model(...), where data is a HeteroData."
        )

    def _rows(self, found: Any, part: TypedPart) -> Tensor:
        name = self.table.explained
        if isinstance(found, (tuple, list)) and found and isinstance(found[0], (Tensor, dict)):
            found = found[0]
        if isinstance(found, dict):
            self.returned_table = True
            if name not in found:
                raise ModelError(
                    f"The model gives outputs of {', '.join(map(repr, found)) or 'no type'}, none of {name!r}. Explain nodes "
                    f"of another type, or use forward=lambda model, data: … for another output."
                )
            found = found[name]
        count = len(part.nodes[name])
        if isinstance(found, Tensor) and (found.dim() == 0 or len(found) != count):
            got = "one number" if found.dim() == 0 else f"{len(found)} rows"
            raise ModelError(
                f"The model gave {got} for {count} nodes of type {name!r}. Explain the type that its rows belong to, or pick "
                f"the rows of {name!r}: forward=lambda model, data: model(data.x_dict, data.edge_index_dict)[{name!r}]."
            )
        rows: Tensor = found
        return rows

    def spread(self, rows: Tensor, graph: Data) -> Tensor:
        """`[nodes of the part, columns]`: the rows in the places of the explained type, zeros elsewhere."""
        place = self.part(graph).nodes[self.table.explained]
        return rows.new_zeros(graph.num_nodes, rows.size(1)).index_copy(0, place, rows)

    def table_of(self, graph: Data, used: Tensor) -> EdgeType | None:
        """The edge type whose `edge_index` this very tensor is."""
        part = self.part(graph)
        return next((kind for kind in part.columns if used is part.data[kind].edge_index), None)

    def columns_of(self, graph: Data, table: EdgeType) -> Tensor:
        """The columns of an edge type."""
        return self.part(graph).columns[table]

    def column_groups(self, graph: Data) -> list[Tensor]:
        """The columns of each edge type."""
        return list(self.part(graph).columns.values())

    def receivers_of(self, graph: Data, table: EdgeType, flow: str) -> Tensor:
        """The nodes of the type that its edges point to."""
        return self.part(graph).nodes[table[2] if flow == "source_to_target" else table[0]]

    def typed_tensors(self, graph: Data) -> TypedTensors:
        """The tensors that the model got of this part; kinds are numbered in the order of the user's node types."""
        part = self.part(graph)
        number = {name: kind for kind, name in enumerate(part.nodes)}
        rows: dict[Key, int] = {}
        features: set[Key] = set()
        for name, kind in number.items():
            own = {k: v for k, v in _tensors(part.data[name]) if part.data[name].is_node_attr(k) and v.dim()}
            rows.update(dict.fromkeys(keys_of(list(own.values())), kind))
            features.update(keys_of([v for k, v in own.items() if k == "x" or v.is_floating_point()]))
        ends = {keys_of(part.data[k].edge_index)[0]: (number[k[0]], number[k[2]]) for k in part.columns}
        tensors = [value for store in part.data.stores for _, value in _tensors(store)]
        kinds = NodeKinds.of(list(part.nodes.values()), graph.num_nodes)
        whole = tuple(len(self.table.node_range(name)) for name in part.nodes)
        kept = list(zip(keys_of(tensors), tensors, strict=True))
        return TypedTensors(kinds, rows, ends, kept, whole, frozenset(features))

    # --- parts of the union -------------------------------------------------------------------------------------------

    def marks(self, graph: Data) -> Iterator[tuple[Tensor, Mark]]:
        """The tensors that the model will get, and whose rows or columns they have."""
        part = self.part(graph)
        for name, rows in part.nodes.items():
            for key, value in _tensors(part.data[name]):
                own = part.data[name].is_node_attr(key)
                yield value, Mark({(_axis(part.data, part.data[name], key), NODE): rows} if own else {}, of_nodes=True)
        for kind, columns in part.columns.items():
            for key, value in _tensors(part.data[kind]):
                own = key == "edge_index" or part.data[kind].is_edge_attr(key)
                yield value, Mark({(_axis(part.data, part.data[kind], key), EDGE): columns} if own else {}, OWN)

    def part(self, graph: Data) -> TypedPart:
        """The part as a typed graph; the last one is kept."""
        with no_dispatch(), no_functions(), torch.no_grad():  # nobody counts these
            if self._last is None or not self._last.is_of(graph):
                self._last = self._made(graph)
        return self._last

    def _made(self, graph: Data) -> TypedPart:
        if graph.x.dtype != torch.int64:
            raise InputError("The features of a typed graph cannot be replaced: each node type has its own.")
        node, column, table = graph.x.view(-1), graph.edge_number, self.table
        nodes = {name: members(node, table.node_range(name)) for name in table.node_types}
        columns = {kind: members(column, table.edge_range(kind)) for kind in table.edge_types}
        place = torch.empty_like(node)
        part = HeteroData()
        for name, rows in nodes.items():
            place[rows] = torch.arange(len(rows), device=rows.device)
            part[name].num_nodes = len(rows)
            self._fill(part, name, node[rows] - table.node_range(name).start)
        for kind, chosen in columns.items():
            self._fill(part, kind, column[chosen] - table.edge_range(kind).start)
            part[kind].edge_index = place[graph.edge_index[:, chosen]]
        for key, value in self.data.to_dict()["_global_store"].items():
            part[key] = value
        return TypedPart(graph.edge_index, part, nodes, columns, versions(part))

    def _fill(self, part: HeteroData, key: Any, chosen: Tensor) -> None:
        """The attributes of some nodes or columns of one type; whatever belongs to neither is kept as it is."""
        store = self.data[key]
        for name, value in store.items():
            if name in ("edge_index", "num_nodes"):
                continue
            if isinstance(value, Tensor):
                own = store.is_edge_attr(name) if isinstance(key, tuple) else store.is_node_attr(name)
                value = value.detach()
                value = value.index_select(_axis(self.data, store, name), chosen) if own else value.clone()
                value = value.double() if self._double and value.is_floating_point() else value
            part[key][name] = value


def members(numbers: Tensor, of: range) -> Tensor:
    """Where numbers lie in a range, ascending."""
    return ((numbers >= of.start) & (numbers < of.stop)).nonzero().view(-1)


def _tensors(store: Any) -> Iterator[tuple[str, Tensor]]:
    return ((key, value) for key, value in store.items() if isinstance(value, Tensor))


def _axis(data: HeteroData, store: Any, key: str) -> int:
    """Along which axis an attribute has a row for each node or edge."""
    return int(data.__cat_dim__(key, store[key], store)) % max(store[key].dim(), 1)


def extras_of(model: nn.Module, data: HeteroData) -> dict[str, Any]:
    """Attributes of edges that `forward` names: `edge_attr_dict`, or `edge_attr` in a model that `to_hetero` made."""
    return typed_extras(argument_names(model), data, required_names(model))


def tables_of(model: nn.Module, data: HeteroData) -> tuple[Any, Any]:
    """The first two arguments: features and edges by type; what has another name, if `forward` begins with that: `z_dict`."""
    first = argument_names(model)[:1]
    other = first[0].removesuffix("_dict") if first and first[0].endswith("_dict") else "x"
    return data.collect(other, allow_empty=True) or data.collect("x", allow_empty=True), data.collect("edge_index")


def typed_extras(names: list[str], data: HeteroData, required: list[str]) -> dict[str, Any]:
    """Attributes of edges that are among the names of arguments, and what else is asked for without a default, by type."""
    asked = [name.removesuffix("_dict") for name in required[2:] if name.endswith("_dict")]
    found = {f"{key}_dict": data.collect(key, allow_empty=True) for key in asked if key != "edge_label_index"}
    found = {name: values for name, values in found.items() if values}
    for key in _EXTRAS:
        named = next((name for name in (f"{key}_dict", key) if name in names), None)
        if named is not None and (values := data.collect(key, allow_empty=True)):
            found[named] = values
    return found
