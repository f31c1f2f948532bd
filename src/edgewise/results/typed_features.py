"""TypedFeatureScores: the feature scores of one node, link or graph with types, by node type and edge type.

Types have features of different widths. Laid one after the other, type by type, node by node, they are one long row, in which
every number has a place; `FeatureTable` knows where each type begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.graph.type_table import EdgeType, TypeTable
from edgewise.results.feature_scores import FeatureScores
from edgewise.results.ranked_rows import NamedTopFeature, Ranked, TopFeature


@dataclass(frozen=True)
class FeatureTable:
    """Where the features of a typed graph stand among all of them.

    >>> types = TypeTable("movie", (("user", 3), ("movie", 2)), ())
    >>> table = FeatureTable(types, (("user", 4), ("movie", 7)), (), (("user", ("a", "b", "c", "d")),))
    >>> table.place(13), table.size
    (('movie', 0, 1), 26)
    """

    types: TypeTable
    widths: tuple[tuple[str, int], ...]
    """Node types, and how many features a node has; 0 where they are no floating-point numbers."""
    attributes: tuple[tuple[EdgeType, int], ...]
    """Edge types, and how many attributes an edge has; 0 where the model reads none."""
    names: tuple[tuple[str, tuple[str, ...]], ...]
    """Names of the features, for node types that have some."""

    @cached_property
    def nodes(self) -> dict[str, tuple[range, int]]:
        """Node type → the places of its features, and how many a node has."""
        return _laid_out(self.widths, dict(self.types.nodes))

    @cached_property
    def edges(self) -> dict[EdgeType, tuple[range, int]]:
        """Edge type → the places of its attributes, and how many an edge has."""
        return _laid_out(self.attributes, dict(self.types.edges))

    @property
    def size(self) -> int:
        """How many numbers the features are."""
        return sum(len(places) for places, _ in self.nodes.values())

    @property
    def num_attributes(self) -> int:
        """How many numbers the edge attributes are."""
        return sum(len(places) for places, _ in self.edges.values())

    def place(self, number: int) -> tuple[str, int, int]:
        """A place as `(node type, node, feature)`."""
        name = next(name for name, (places, _) in self.nodes.items() if number in places)
        places, width = self.nodes[name]
        return name, *divmod(number - places.start, width)

    def plain(self) -> tuple[Any, ...]:
        """As nested tuples, for a file; `FeatureTable.of_plain` is the same table."""
        return self.types.plain(), self.widths, self.attributes, self.names

    @classmethod
    def of_plain(cls, plain: tuple[Any, ...]) -> "FeatureTable":
        """The table that gave `plain`."""
        types, *rest = plain
        return cls(TypeTable(*types), *rest)


def _laid_out(widths: tuple[tuple[Any, int], ...], counts: Mapping[Any, int]) -> dict[Any, tuple[range, int]]:
    found, start = {}, 0
    for kind, width in widths:
        found[kind] = range(start, start := start + counts[kind] * width), width
    return found


@dataclass(frozen=True, eq=False)
class TypedFeatureScores:
    """Which features of which nodes, of any type, made the number of one target what it is.

    `flat` are the scores of all features in one long row, `table` says which are whose.

    >>> types = TypeTable("movie", (("user", 1), ("movie", 1)), ())
    >>> table = FeatureTable(types, (("user", 2), ("movie", 1)), (), (("user", ("age", "debt")),))
    >>> stored = (torch.tensor([1, 2]), torch.tensor([0.5, -2.0]))
    >>> why = TypedFeatureScores(FeatureScores(0, 1, 1.5, "occlusion", 3, 1, stored), table)
    >>> why.scores["user"], why.top(2, by="magnitude")
    (tensor([[0.0000, 0.5000]]), [(-2.0, ('movie', 0), 0), (0.5, ('user', 0), 1, 'debt')])
    """

    flat: FeatureScores
    table: FeatureTable

    @property
    def index(self) -> Any:
        """`(node type, number)`, of a link `(edge type, (u, v))`, or the number of a graph."""
        types = self.table.types
        return types.asked(self.flat.index) if types.explained else self.flat.index

    @property
    def target(self) -> int:
        """The explained class."""
        return self.flat.target

    @property
    def value(self) -> float:
        """The explained number."""
        return self.flat.value

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.flat.method

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the scores were made with."""
        return self.flat.settings

    @cached_property
    def scores(self) -> dict[str, Tensor]:
        """By node type `[N_type, F_type]`, with zeros."""
        assert self.flat.scores is not None
        return _by_type(self.flat.scores.view(-1), self.table.nodes, dict(self.table.types.nodes))

    @cached_property
    def edge_scores(self) -> dict[EdgeType, Tensor] | None:
        """By edge type `[E_type, D_type]`: scores of edge attributes; None if the model reads none."""
        if self.flat.edge_scores is None:
            return None
        return _by_type(self.flat.edge_scores.view(-1), self.table.edges, dict(self.table.types.edges))

    def per_node(self) -> dict[str, Tensor]:
        """By node type `[N_type]`: the scores of each node's features, added up."""
        return {name: part.sum(dim=1) for name, part in self.scores.items()}

    def per_feature(self) -> dict[str, Tensor]:
        """By node type `[F_type]`: the scores of each feature, added up over the nodes."""
        return {name: part.sum(dim=0) for name, part in self.scores.items()}

    @checked
    def top(self, k: int = 10, by: str = "support") -> Ranked:
        """The k strongest, best first: `(score, (type, node), feature)`, with the feature's name behind where there are names.

        `by` as for `FeatureScores.top`.
        """
        names, found = dict(self.table.names), Ranked()
        for score, number, _ in self.flat.top(k, by):
            name, node, feature = self.table.place(number)
            plain = (score, (name, node), feature)
            found.append(NamedTopFeature(*plain, names[name][feature]) if name in names else TopFeature(*plain))
        return found

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for every score other than zero: `index`, `target`, `node_type`, `node`, `feature`, its `name`, `score`.

        `index_type` is the type of the target; of a link the ends are `index` and `index_to`, each with its type.
        """
        rows = []
        for score, (name, node), feature, *named in self.top(10**18, by="magnitude"):
            about = {**self._asked_columns(), "target": self.target, "score": score}
            rows.append(
                {**about, "node_type": name, "node": node, "feature": feature, "name": named[0] if named else ""}
            )
        return rows

    def _asked_columns(self) -> dict[str, Any]:
        types = self.table.types
        if types.link is None:
            return {**({"index_type": types.explained} if types.explained else {}), "index": self.flat.index}
        source, _, receiver = types.link
        u, v = self.index[1]
        return {"index_type": source, "index": u, "index_to_type": receiver, "index_to": v}

    def __repr__(self) -> str:
        stored = 0 if self.flat.stored is None else len(self.flat.stored[0])
        return (
            f"TypedFeatureScores({self.method}, index={self.index}, target={self.target}, value={self.value:.4g}, "
            f"{len(self.table.widths)} node types, {stored} stored)"
        )


def _by_type(row: Tensor, laid_out: Mapping[Any, tuple[range, int]], counts: Mapping[Any, int]) -> dict[Any, Tensor]:
    """One long row as a table for each type."""
    return {
        kind: row[places.start : places.stop].view(counts[kind], width) for kind, (places, width) in laid_out.items()
    }


def feature_tables(graphs: list[Any], tables: list[TypeTable], *, attributes: bool) -> tuple[FeatureTable, ...]:
    """The layout of the features of typed graphs; `attributes` says whether those of edges are scored, too."""
    return tuple(_table(graph, table, attributes=attributes) for graph, table in zip(graphs, tables, strict=True))


def _table(data: Any, types: TypeTable, *, attributes: bool) -> FeatureTable:
    widths = tuple((name, _width(data[name].get("x"))) for name in types.node_types)
    of_edges = tuple((kind, _width(data[kind].get("edge_attr")) if attributes else 0) for kind in types.edge_types)
    if not any(width for _, width in widths):
        raise InputError(
            "`data` must have floating-point features x of some node type to be scored feature by feature, got none. Use "
            "ew.explain(...) for edges."
        )
    names = []
    for name, width in widths:
        given = data[name].get("feature_names")
        if given is not None and len(given) != width:
            raise InputError(
                f"`data[{name!r}].feature_names` must have a name for each of the {width} features, got {len(given)}."
            )
        names += [] if given is None else [(name, tuple(map(str, given)))]
    return FeatureTable(types, widths, of_edges, tuple(names))


def _width(values: Any) -> int:
    """How many numbers a row has; 0 where they cannot be moved."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        return 0
    return int(torch.tensor(values.shape[1:]).prod()) if values.dim() > 1 else 1
