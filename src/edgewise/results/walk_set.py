"""WalkSet: what `walks` returns. The best walks of one target, whether that is proven, and a bound on all others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.graph.type_table import TypeTable
from edgewise.results.explanation import Settings
from edgewise.text import counted


@dataclass(frozen=True)
class Walk:
    """A walk from the node that gives its features to the explained node, one step per layer.

    >>> print(Walk((7, 3, 3, 5), 0.25))
    7 → 3 → 3 → 5: +0.25
    >>> print(Walk((("user", 4), ("movie", 2)), -0.5))
    user 4 → movie 2: -0.5
    """

    nodes: tuple[Any, ...]
    """Numbers; of a typed graph pairs (node type, number in it)."""
    score: float
    neurons: tuple[int, ...] | None = None
    """Neuron-level walks only: the neuron at each node."""

    @property
    def source(self) -> Any:
        """The node whose features the walk carries."""
        return self.nodes[0]

    def __str__(self) -> str:
        return f"{' → '.join(map(_named, self.nodes))}: {self.score:+.4g}"


def _named(node: Any) -> str:
    """A node in words: a number, or type and number."""
    return " ".join(map(str, node)) if isinstance(node, tuple) else str(node)


@dataclass(frozen=True, eq=False)
class WalkSet:
    """The walks of one target, best first.

    `exact`: whether they are proven to be the top k. `upper_bound`: no walk that is not listed comes before it in the
    searched order (its score for `sign="positive"`, −score for `"negative"`, |score| for `"magnitude"`).
    """

    walks: tuple[Walk, ...]
    exact: bool
    upper_bound: float
    index: Any
    """The explained node or graph, or the pair `(u, v)` of a link."""
    target: int
    value: float
    """The explained number."""
    settings: Settings
    edge_index: Tensor = field(repr=False)
    num_nodes: int = 0
    expansions: int = 0
    """How many prefixes the search expanded."""
    types: TypeTable | None = None
    """Of a typed graph: its types. `edge_index` is then that of the union of all types."""

    @overload
    def __getitem__(self, place: int) -> Walk: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Walk, ...]: ...
    def __getitem__(self, place: int | slice) -> Any:
        """The walk at a position (0 is the best), or a tuple of walks for a slice."""
        return self.walks[place]

    def __len__(self) -> int:
        return len(self.walks)

    def __iter__(self) -> Iterator[Walk]:
        return iter(self.walks)

    @property
    def num_layers(self) -> int:
        """Steps of a walk; 0 if there is none."""
        return len(self.walks[0].nodes) - 1 if self.walks else 0

    @checked
    def edge_scores(self, level: str = "input") -> Any:
        """The listed walks as scores of edges: each walk's score on every edge that it takes, `[E]` or `[L, E]`.

        Steps that stay on a node belong to no edge, unless it has a loop. Parallel edges share a step equally. At input level
        an edge that a walk takes twice gets its score once. Of a typed graph: a dict by edge type.
        """
        found = self._edge_scores(level)
        if self.types is None:
            return found
        ranges = {kind: self.types.edge_range(kind) for kind in self.types.edge_types}
        return {kind: found[..., columns.start : columns.stop] for kind, columns in ranges.items()}

    def _edge_scores(self, level: str) -> Tensor:
        """The same of all columns of `edge_index`."""
        size, layers = self.edge_index.size(1), self.num_layers
        scores = torch.zeros(layers, size, dtype=torch.double)
        total = torch.zeros(size, dtype=torch.double)
        flow = self.settings.get("flow")
        flows = list(flow) if isinstance(flow, (list, tuple)) else [flow or "source_to_target"] * layers
        columns = {way: _columns(self.edge_index, way) for way in set(flows)}
        for walk in self.walks:
            shares: dict[int, float] = {}
            for layer, (way, step) in enumerate(zip(flows, self._steps(walk), strict=True)):
                taken = columns[way].get(step, ())
                for column in taken:
                    scores[layer, column] += walk.score / len(taken)
                    shares[column] = max(shares.get(column, 0.0), 1 / len(taken))
            for column, share in shares.items():
                total[column] += walk.score * share
        return total if level == "input" else scores

    def _steps(self, walk: Walk) -> list[tuple[int, int]]:
        """(sender, receiver) of every step, the first layer first, as ends of `edge_index`."""
        return list(pairwise(self.numbers_of(walk)))

    def numbers_of(self, walk: Walk) -> tuple[int, ...]:
        """The nodes of a walk as ends of `edge_index`: of a typed graph, numbers of the union of its types."""
        if self.types is None:
            return walk.nodes
        return tuple(self.types.node_range(name).start + number for name, number in walk.nodes)

    @property
    def number(self) -> Any:
        """The target as results keep it: of a typed graph, a number (or a pair of numbers) of the union of its types."""
        return self.types.number(self.index) if self.types is not None and self.types.explained else self.index

    def by_source(self) -> dict[Any, tuple[Walk, ...]]:
        """The walks grouped by the node whose features they carry; the source with the largest |sum| first."""
        groups: dict[Any, list[Walk]] = {}
        for walk in self.walks:
            groups.setdefault(walk.source, []).append(walk)
        order = sorted(groups, key=lambda source: -abs(sum(walk.score for walk in groups[source])))
        return {source: tuple(groups[source]) for source in order}

    @checked
    def plot(
        self,
        *,
        count: int = 5,
        labels: Any = None,
        classes: Any = None,
        marked: Mapping[str, Any] | None = None,
        title: str = "",
    ) -> Any:
        """A matplotlib figure of the first `count` walks as routes through the unrolled computation graph.

        The arguments are those of `edgewise.report.draw_walks`. Needs `edgewise[plot]`.
        """
        from edgewise.report import draw_walks

        return draw_walks(self, count=count, labels=labels, classes=classes, marked=marked, title=title)

    def _repr_html_(self) -> str:
        from edgewise.report.notebook import html_of

        return html_of(self)

    def to_networkx(self) -> Any:
        """A directed multigraph of `(column, node)` spots, column 0 the features; a walk's steps have its `score` and `rank`.

        Needs `edgewise[plot]`.
        """
        from edgewise.results.export import walks_network

        return walks_network(self)

    @checked
    def to_graphml(self, path: str | Path, *, labels: Any = None, classes: Any = None) -> None:
        """Write the network of `to_networkx` to a GraphML file, for Gephi, Cytoscape and others. Needs `edgewise[plot]`."""
        from edgewise.results.export import write_graphml

        if self.types is not None:
            raise InputError("to_graphml() does not take walks of a typed graph yet. Use to_networkx(), or to_rows().")
        write_graphml(self.to_networkx(), path, self.num_nodes, labels, classes)

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for every walk: `index`, `target`, `rank` (1 is the best), `score`, `node_0` (the source) to `node_L`.

        Of a typed graph `node_0_type` and so on stand beside them.
        """
        from edgewise.results.export import rows

        return rows(self)

    def to_frame(self) -> Any:
        """The rows of `to_rows` as a pandas data frame. Needs `edgewise[table]`."""
        from edgewise.results.export import frame

        return frame(self)

    def __str__(self) -> str:
        proof = (
            "proven up to ties of 1e-9" if self.exact else f"not proven: another may have up to {self.upper_bound:.4g}"
        )
        kind = self.settings.get("task", "node")
        number = f"class {self.target}, {self.settings.get('of', 'logit')} {self.value:.4g}"
        end = _named(self.index) if self.types is not None and self.types.explained else f"{kind} {self.index}"
        head = f"{counted(len(self), 'walk')} to {end} ({number}), {proof}"
        return "\n".join([head, *(f"  {walk}" for walk in self.walks)])


class WalkSets(list[WalkSet]):
    """The walks of several targets: a list like any other, which `print` and notebooks show one below the other."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self)) if self else "no targets"

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self)


def _columns(edge_index: Tensor, flow: str | None) -> dict[tuple[int, int], list[int]]:
    """(sender, receiver) → the columns of `edge_index` that a step can take; several where edges are parallel.

    `flow=None`: messages run both ways, so that a step can also take a column that leads back.
    """
    columns: dict[tuple[int, int], list[int]] = {}
    for column, (first, second) in enumerate(edge_index.t().tolist()):
        if flow != "target_to_source":
            columns.setdefault((first, second), []).append(column)
        if flow == "target_to_source" or (flow is None and first != second):
            columns.setdefault((second, first), []).append(column)
    return columns
