"""Typed graphs (`HeteroData`) as one graph: the table of their types, and the union that all machinery runs on.

The union has the nodes of all types one after the other, those of the explained type first (so that a target has the same
number in its type and in the union), and the columns of all edge types one after the other. It carries no features: `x` is
`[N, 1]`, the number of each node, and `edge_number` `[E]` the number of each column. Cuts and copies of it therefore carry
the numbers along, and `model/typed_call.py` looks up whatever the model reads, of any width and dtype.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData

from edgewise.arguments import shown
from edgewise.errors import InputError
from edgewise.graph.inputs import check_typed_store, said_nodes
from edgewise.graph.sample import seed_type, seeds, typed_numbers

EdgeType = tuple[str, str, str]


@dataclass(frozen=True)
class TypeTable:
    """Which numbers of the union belong to which type; types are in the order of the user's data.

    >>> table = TypeTable("movie", (("user", 3), ("movie", 2)), ((("user", "rates", "movie"), 4),))
    >>> table.node_range("user"), table.node_range("movie")                  # the explained type comes first
    (range(2, 5), range(0, 2))
    >>> table.node(3), table.edge(1)
    (('user', 1), (('user', 'rates', 'movie'), 1))
    """

    explained: str
    """The node type whose nodes are asked about; empty where the graph itself is."""
    nodes: tuple[tuple[str, int], ...]
    """Node types, and how many nodes each has."""
    edges: tuple[tuple[EdgeType, int], ...]
    """Edge types, and how many columns each has."""
    link: EdgeType | None = None
    """Of links: the edge type that is asked about; `explained` is then the type of its first end."""

    @classmethod
    def of(cls, data: HeteroData, explained: str, link: EdgeType | None = None) -> "TypeTable":
        """The table of a graph."""
        nodes = tuple((name, int(data[name].num_nodes)) for name in data.node_types)
        edges = tuple((kind, data[kind].edge_index.size(1)) for kind in data.edge_types)
        return cls(explained, nodes, edges, link)

    @cached_property
    def _nodes(self) -> dict[str, range]:
        found, start = {}, 0
        for name, count in sorted(self.nodes, key=lambda one: one[0] != self.explained):
            found[name] = range(start, start := start + count)
        return {name: found[name] for name, _ in self.nodes}

    @cached_property
    def _edges(self) -> dict[EdgeType, range]:
        found, start = {}, 0
        for kind, count in self.edges:
            found[kind] = range(start, start := start + count)
        return found

    @property
    def node_types(self) -> list[str]:
        """In the order of the user's data."""
        return [name for name, _ in self.nodes]

    @property
    def edge_types(self) -> list[EdgeType]:
        """In the order of the user's data."""
        return [kind for kind, _ in self.edges]

    def node_range(self, name: str) -> range:
        """The nodes of the union that are of a type."""
        return self._nodes[name]

    def edge_range(self, kind: EdgeType) -> range:
        """The columns of the union that are of a type."""
        return self._edges[kind]

    def node(self, number: int) -> tuple[str, int]:
        """A node of the union as `(type, number in it)`."""
        name = next(name for name, numbers in self._nodes.items() if number in numbers)
        return name, number - self._nodes[name].start

    def edge(self, column: int) -> tuple[EdgeType, int]:
        """A column of the union as `(edge type, column in it)`."""
        kind = next(kind for kind, columns in self._edges.items() if column in columns)
        return kind, column - self._edges[kind].start

    def nodes_of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of the union, all at once, `[n]` each: the place of their type in `node_types`, and their number in it.

        >>> table = TypeTable("movie", (("user", 3), ("movie", 2)), ())
        >>> table.nodes_of(torch.tensor([0, 3]))
        (tensor([1, 0]), tensor([0, 1]))
        """
        return _located(numbers, list(self._nodes.values()))

    def edges_of(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Columns of the union, `[n]` each: the place of their type in `edge_types`, and their column in it."""
        return _located(columns, list(self._edges.values()))

    @property
    def link_starts(self) -> tuple[int, int]:
        """Of links: the first nodes of the union that are of the types of the two ends."""
        assert self.link is not None
        return self.node_range(self.link[0]).start, self.node_range(self.link[2]).start

    def asked(self, index: Any) -> Any:
        """A target of the union, or many, as the user names them: `("movie", 3)`, or of links `(edge type, (u, v))`.

        >>> table = TypeTable("user", (("user", 3), ("movie", 2)), (), ("user", "rates", "movie"))
        >>> table.asked((2, 4)), table.asked([(2, 4), (0, 3)])
        ((('user', 'rates', 'movie'), (2, 1)), (('user', 'rates', 'movie'), [(2, 1), (0, 0)]))
        """
        if self.link is None:
            return self.explained, index
        first, second = self.link_starts
        if isinstance(index, list):
            return self.link, [(u - first, v - second) for u, v in index]
        return self.link, (index[0] - first, index[1] - second)

    def number(self, asked: tuple[Any, Any]) -> Any:
        """The inverse for one target; of another type it is one that no target has."""
        named, inside = asked
        if self.link is None:
            return inside if named == self.explained else -1
        first, second = self.link_starts
        return (inside[0] + first, inside[1] + second) if named == self.link else (-1, -1)

    def plain(self) -> tuple[Any, ...]:
        """As nested tuples, for a file; `TypeTable(*table.plain())` is the same table."""
        found = (self.explained, self.nodes, self.edges)
        return found if self.link is None else (*found, self.link)


def _located(numbers: Tensor, ranges: list[range]) -> tuple[Tensor, Tensor]:
    """Which of some ranges each number lies in, and how far; together the ranges cover all numbers."""
    order = sorted((part for part in enumerate(ranges) if len(part[1])), key=lambda part: part[1].start)
    place = torch.tensor([place for place, _ in order], dtype=torch.long, device=numbers.device)
    start = torch.tensor([part.start for _, part in order], dtype=torch.long, device=numbers.device)
    if not order:
        return numbers.long(), numbers.long()
    found = torch.searchsorted(start, numbers, right=True) - 1
    return place[found], numbers - start[found]


def union_of(data: HeteroData, table: TypeTable) -> Data:
    """All nodes and all columns of a typed graph in one, without features.

    >>> data = HeteroData()
    >>> data["user"].x, data["movie"].x = torch.rand(3, 4), torch.rand(2, 7)
    >>> data["user", "rates", "movie"].edge_index = torch.tensor([[0, 2], [1, 1]])
    >>> union_of(data, TypeTable.of(data, "movie")).edge_index.tolist()      # users are the nodes 2, 3 and 4
    [[2, 4], [1, 1]]
    """
    ends = [torch.empty(2, 0, dtype=torch.long, device=_device(data))]
    for kind in table.edge_types:
        source, receiver = data[kind].edge_index
        ends.append(torch.stack([source + table.node_range(kind[0]).start, receiver + table.node_range(kind[2]).start]))
    edge_index = torch.cat(ends, dim=1)
    count = sum(number for _, number in table.nodes)
    union = Data(
        x=torch.arange(count, device=edge_index.device).view(-1, 1),
        edge_index=edge_index,
        edge_number=torch.arange(edge_index.size(1), device=edge_index.device),
        num_nodes=count,
    )
    in_order: list[Any] = sorted(table.node_types, key=lambda name: table.node_range(name).start)
    for name, keys in (("n_id", in_order), ("e_id", table.edge_types)):
        if (numbers := typed_numbers(data, list(keys), name)) is not None:
            union[name] = numbers.to(edge_index.device)
    return union


def _device(data: HeteroData) -> torch.device:
    return next((store.edge_index.device for store in data.edge_stores), torch.device("cpu"))


def is_typed(data: Any) -> bool:
    """Whether a typed graph came, or several of them: a list, a `Batch` or a `Dataset`."""
    if isinstance(data, (Sequence, Dataset)) and not isinstance(data, (str, bytes)) and len(data):
        data = data[0]
    return isinstance(data, HeteroData)


def read_typed_graphs(data: Any) -> list[HeteroData]:
    """The typed graphs of a graph task, checked: all of them have the same types, with or without nodes and edges."""
    if isinstance(data, Batch):
        data = data.to_data_list()
    graphs = [data] if isinstance(data, HeteroData) else [data[number] for number in range(len(data))]
    for number, graph in enumerate(graphs):
        where = f"data[{number}]"
        if not isinstance(graph, HeteroData):
            raise InputError(f"`{where}` must be a HeteroData like data[0], got {type(graph).__name__}.")
        check_typed(graph, "data" if len(graphs) == 1 else where)
        if not graph.num_nodes:
            raise InputError(f"`{where}` must have at least one node, of any type, got none. Leave it out.")
        for what in ("node_types", "edge_types"):
            ours, first = getattr(graph, what), getattr(graphs[0], what)
            if ours != first:
                raise InputError(
                    f"`{where}` must have the {what.replace('_', ' ')} of data[0] in the same order, {first}, got {ours}. Add "
                    f"those that it lacks without nodes or edges: x of shape [0, features], edge_index of shape [2, 0]."
                )
    return graphs


def check_typed(data: HeteroData, where: str = "data") -> None:
    """Refuse a typed graph whose tables do not fit together; values are looked at, too."""
    if not data.node_types:
        raise InputError(f"`{where}` must have nodes: a HeteroData without node types came. Use {where}['paper'].x = …")
    for kind in data.edge_types:
        for end in (kind[0], kind[2]):
            if end not in data.node_types:
                raise InputError(
                    f"`{where}` has edges of type {kind}, but no nodes of type {end!r}. Set {where}[{end!r}].x."
                )
    for name in data.node_types:
        if said_nodes(data[name], f"{where}[{name!r}]") is None:
            raise InputError(
                f"`{where}[{name!r}]` must have features or num_nodes, got neither. Set {where}[{name!r}].x."
            )
    for key in (*data.node_types, *data.edge_types):
        sizes = [int(data[end].num_nodes) for end in (key[0], key[2])] if isinstance(key, tuple) else None
        check_typed_store(data[key], f"{where}[{key!r}]", sizes)


def read_typed_index(index: Any, data: HeteroData) -> tuple[str, Any]:
    """The node type that is asked about, and the index in it: from `("paper", 3)`, `("paper", [3, 5])` or `{"paper": …}`.

    >>> data = HeteroData(); data["paper"].x = torch.ones(9, 1)
    >>> read_typed_index({"paper": [3, 5]}, data), read_typed_index(("paper", 3), data)
    (('paper', [3, 5]), ('paper', 3))
    """
    if index is None and (sampled := seed_type(data)) is not None:
        index = (sampled, None)
    if isinstance(index, Mapping):
        if len(index) != 1:
            raise InputError(
                f"`index` must name one node type of a typed graph at a time, got {len(index)}: {list(index)}. Explain one "
                f"after the other: their outputs may have different columns."
            )
        name, inside = next(iter(index.items()))
        if isinstance(inside, int) and not isinstance(inside, bool):
            inside = [inside]
    elif isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str):
        name, inside = index
    else:
        example = data.node_types[0]
        raise InputError(
            f"`index` must name a node type of a typed graph, got {shown(index)}. Use index=({example!r}, 3), "
            f"index=({example!r}, [3, 5]) or index={{{example!r}: [3, 5]}}."
        )
    if name not in data.node_types:
        raise InputError(f"`index` names the node type {name!r}; `data` has {', '.join(map(repr, data.node_types))}.")
    return name, seeds(data[name]) if inside is None else inside
