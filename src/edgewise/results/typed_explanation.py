"""TypedExplanation: the scores of one node of a typed graph, or of one typed graph, by edge type and node type."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.graph.type_table import TypeTable
from edgewise.results.explanation import Explanation
from edgewise.results.ranked_rows import Ranked, TypedTopEdge, TypedTopStep
from edgewise.text import by_auto, read_labels, target_in_words, typed_name

if TYPE_CHECKING:
    from edgewise.results.typed_subgraph import TypedSubgraph


class TypedScores(Mapping[Any, Tensor]):
    """A tensor `[E]` or `[L, E]` over all types, read type by type: `scores[("user", "rates", "movie")]` is `[L, E_type]`.

    >>> scores = TypedScores(torch.tensor([1.0, 2.0, 3.0]), {"user": range(0, 2), "movie": range(2, 3)})
    >>> scores["user"], list(scores)
    (tensor([1., 2.]), ['user', 'movie'])
    """

    def __init__(self, all_types: Tensor, ranges: Mapping[Any, range]) -> None:
        self._all, self._ranges = all_types, dict(ranges)

    def __getitem__(self, kind: Any) -> Tensor:
        if kind not in self._ranges:
            raise KeyError(f"{kind!r}; known are {', '.join(map(repr, self._ranges))}")
        return self._all[..., self._ranges[kind].start : self._ranges[kind].stop]

    @property
    def joined(self) -> Tensor:
        """The tensor over all types."""
        return self._all

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{kind!r}: {list(part.shape)}" for kind, part in self.items()) + "}"


class TypedExplanation(Explanation):
    """Why the model gave one node of a typed graph, or a whole typed graph, its number.

    `scores` and `standard_errors` are mappings by edge type, `[E_type]` or `[L, E_type]` in the order of that type's columns;
    `self_scores` is one by node type. `index` is `(node type, number)`, of a link `(edge type, (u, v))`, or the number of a
    graph. `flat` is the same explanation of the union of all types, one homogeneous graph: what pictures, exports and metrics
    work on; `types` says which of its nodes and columns are of which type.

    >>> flat = Explanation(torch.tensor([0.5, -2.0]), torch.tensor([[1, 1], [0, 0]]), 2, index=0, target=1, value=1.5)
    >>> rates, sees = ("user", "rates", "movie"), ("user", "sees", "movie")
    >>> types = TypeTable("movie", (("user", 1), ("movie", 1)), ((rates, 1), (sees, 1)))
    >>> why = TypedExplanation.of(flat, types)
    >>> why.scores["user", "sees", "movie"], why.index
    (tensor([-2.]), ('movie', 0))
    >>> why.top(1)
    [(0.5, ('user', 0), ('movie', 0), 0)]
    """

    flat: Explanation
    types: TypeTable

    @classmethod
    def of(
        cls, flat: Explanation, types: TypeTable, n_id: Tensor | None = None, e_id: Tensor | None = None
    ) -> "TypedExplanation":
        """The typed form of an explanation of the union; `n_id` and `e_id` are those of a sampled batch."""
        nodes = {name: types.node_range(name) for name in types.node_types}
        edges = {kind: types.edge_range(kind) for kind in types.edge_types}
        ends = {kind: _local_ends(flat.edge_index, types, kind) for kind in types.edge_types}
        why = object.__new__(cls)
        own, errors = flat.self_scores, flat.standard_errors
        why.__dict__.update(
            flat=flat,
            types=types,
            edge_index=ends,
            num_nodes={name: len(numbers) for name, numbers in nodes.items()},
            index=types.asked(flat.index) if types.explained else flat.index,
            target=flat.target,
            value=flat.value,
            method=flat.method,
            level=flat.level,
            settings=flat.settings,
            self_scores=None if own is None else TypedScores(own, nodes),
            standard_errors=None if errors is None else TypedScores(errors, edges),
            _make={"scores": lambda: TypedScores(flat.scores, edges)},
            n_id=None if n_id is None else TypedScores(n_id, nodes),
            e_id=None if e_id is None else TypedScores(e_id, edges),
        )
        return why

    @checked
    def top(self, k: int = 10, by: str = "support") -> Ranked:
        """The k strongest edges, best first: `(score, (type, source), (type, receiver), column)`, and at layer level the layer.

        The column is that of the edge type's own `edge_index`; each row knows its type, `row.edge_type`. `by` as for other
        explanations.
        """
        row: Any = TypedTopStep if self.level == "layer" else TypedTopEdge
        found = Ranked()
        for score, source, receiver, column, *layer in self.flat.top(k, by):
            kind, place = self.types.edge(column)
            found.append(row.of_type(kind, score, self._shown(source), self._shown(receiver), place, *layer))
        return found

    def _shown(self, node: int) -> tuple[str, int]:
        """A node of the union as `top` lists it: its type and its number there, or in the whole graph."""
        name, number = self.types.node(node)
        return name, number if self.n_id is None else int(self.n_id[name][number])

    def edge_scores(self) -> TypedScores:  # type: ignore[override]
        """By edge type `[E_type]`: the scores themselves, at layer level summed over the layers."""
        return TypedScores(
            self.flat.edge_scores(), {kind: self.types.edge_range(kind) for kind in self.types.edge_types}
        )

    def to_pyg(self) -> Any:
        """A `torch_geometric.explain.HeteroExplanation`: `edge_mask` `[E_type]`, at layer level also `layer_edge_mask`."""
        from torch_geometric.explain import HeteroExplanation

        found = HeteroExplanation()
        for kind, count in self.types.nodes:
            found[kind].num_nodes = count
        for kind, mask in self.edge_scores().items():
            found[kind].edge_index, found[kind].edge_mask = self.edge_index[kind], mask
            if self.level == "layer":
                found[kind].layer_edge_mask = self.scores[kind].t().contiguous()
        for key, numbers in (("n_id", self.n_id), ("e_id", self.e_id)):
            for kind, part in ({} if numbers is None else numbers).items():
                found[kind][key] = part
        if self.types.link is not None:
            found[self.types.link].edge_label_index = torch.tensor(self.index[1]).view(2, 1)
        elif self.types.explained:
            found[self.types.explained].index = torch.tensor([self.flat.index])
        else:
            found.index = torch.tensor([self.flat.index])
        found.target = torch.tensor([self.target])
        return found

    @checked
    def to_networkx(self, *, edges: int | None = None) -> Any:
        """As for other graphs; nodes are `(type, number)`, edges have `kind` and the column of their type."""
        import networkx

        flat = self.flat.to_networkx(edges=edges)
        named = networkx.relabel_nodes(flat, {node: self.types.node(node) for node in flat.nodes})
        named.graph["index"] = self.index
        for _, _, attributes in named.edges(data=True):
            attributes["kind"], attributes["column"] = self.types.edge(attributes["column"])
        return named

    @checked
    def to_graphml(
        self, path: str | Path, *, edges: int | None = None, labels: Any = None, classes: Any = None
    ) -> None:
        """As for other graphs; nodes are named `type/number` and have `type`, edges have `type`. `labels` by node type.

        `classes` must be left out: `type` is there instead.
        """
        from edgewise.results.export import write_graphml

        if classes is not None:
            raise InputError("`classes` must be left out for a typed graph: nodes have the attribute type instead.")
        graph = self.to_networkx(edges=edges)
        for (name, number), attributes in graph.nodes(data=True):
            attributes["type"] = name
            attributes["label"] = typed_name(name, number, _names_of(labels, name, self.types))
        for _, _, attributes in graph.edges(data=True):
            attributes["type"] = "__".join(attributes.pop("kind"))
        graph.graph["index"] = target_in_words(self.index) if self.types.explained else self.index
        write_graphml(graph, path, 0)

    @checked
    def subgraph(  # type: ignore[override]
        self,
        k: int | None = None,
        *,
        by: str = "support",
        threshold: float = 0.0,
        connected: bool = False,
        undirected: str | None = None,
    ) -> "TypedSubgraph":
        """As for other graphs, over all edge types together: `.columns`, `.mask` and `.edge_index` are by edge type."""
        from edgewise.results.subgraph import select
        from edgewise.results.typed_subgraph import TypedSubgraph

        pairs = None if undirected is None else self._pairs()
        found = select(self.flat, k, by, threshold, connected=connected, undirected=undirected, pairs=pairs)
        return TypedSubgraph(self.with_flat(found.whole), found)

    @checked
    def merged(self, undirected: str = "sum") -> "TypedExplanation":
        """As for other graphs; the way back of (user, rates, movie) is `rev_rates`, or the only type that leads back."""
        from edgewise.results.subgraph import merge

        return self.with_flat(merge(self.flat, undirected, self._pairs()))

    def _pairs(self) -> Tensor:
        from edgewise.results.typed_subgraph import typed_pairs

        return typed_pairs(self.flat.edge_index, self.types)

    def with_flat(self, flat: Explanation) -> "TypedExplanation":
        """The same with another explanation of the union."""
        numbers = [None if part is None else part.joined for part in (self.n_id, self.e_id)]
        return TypedExplanation.of(flat, self.types, *numbers)

    def __repr__(self) -> str:
        count = int((self.flat.scores != 0).sum())
        return (
            f"TypedExplanation({self.method}, {self.level} level, index={self.index}, target={self.target}, "
            f"value={self.value:.4g}, {len(self.types.edges)} edge types, {count} scores not zero){by_auto(self.settings)}"
        )


def _names_of(labels: Any, name: str, types: TypeTable) -> dict[int, str]:
    """The labels of one node type."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not set(labels) <= set(types.node_types):
        raise InputError(f"`labels` of a typed graph must be a mapping {{node type: names}}, types {types.node_types}.")
    return read_labels(labels.get(name), len(types.node_range(name)))


def _local_ends(edge_index: Tensor, types: TypeTable, kind: tuple[str, str, str]) -> Tensor:
    """`[2, E_type]`: the ends of the columns of one type, numbered within their types."""
    columns = types.edge_range(kind)
    starts = [types.node_range(end).start for end in (kind[0], kind[2])]
    return edge_index[:, columns.start : columns.stop] - torch.tensor(starts, device=edge_index.device).view(2, 1)
