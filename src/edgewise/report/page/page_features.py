"""Features on a page: the strongest of every node that is shown, with their names, values and scores; attributes of edges.

`FeatureNotes` has them for all targets. Scores are gradient × input (`ew.features`), whatever method of edges the reader looks
at; where they cannot be had, values of edge attributes are still told, and a sentence says why there are no scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.arrays import rank_in_group
from edgewise.report.page.html import number
from edgewise.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgewise.question import PosedQuestion
    from edgewise.results.feature_scores import FeatureSet

OF_A_NODE = 5
"""How many features of a node are told: its strongest ones."""
_UNNAMED = "attribute "
_SHOWN = 8
"""Attributes of an edge that a tooltip has room for."""


class FeatureNotes:
    """What a page tells about features: `about()` once for all targets, `of(…)` for each of them."""

    def __init__(
        self, question: PosedQuestion, found: FeatureSet | None, reason: str, edge_texts: Mapping[str, Sequence[str]]
    ) -> None:
        self._question, self._found, self._reason, self._edge_texts = question, found, reason, edge_texts
        self._names: dict[int, str] = {}

    def about(self) -> dict[str, Any]:
        """The names of the features that any record has, and why there are none; asked for when all records are made."""
        names = [[feature, name] for feature, name in sorted(self._names.items())]
        return {"featureNames": names, "noFeatures": self._reason}

    def of(self, position: int, nodes: Sequence[int], columns: Tensor) -> dict[str, Any]:
        """The part of a record: `features` `[nodes]` of `[feature, value, score]`, `attributes` `[edges]` of lines of text."""
        graph = self._graph(position)
        found = self._typed_attributes(columns) if graph is None else _attributes(graph, columns)
        if self._edge_texts:
            lines = found or [[] for _ in columns]
            found = [[*line, *self._texts_of(column)] for line, column in zip(lines, columns.tolist(), strict=True)]
        return {"features": self._features(position, nodes, graph), "attributes": found}

    def _texts_of(self, column: int) -> list[str]:
        """What the user's texts say about an edge; nothing where one is empty."""
        told = {name: plain_text(texts[column]) for name, texts in self._edge_texts.items()}
        return [f"{plain_text(name)} = {text}" for name, text in told.items() if text]

    def _graph(self, position: int) -> Any:
        """The graph of a target, as the user gave it; None if it has several types."""
        question = self._question
        if question.types is not None:
            return None
        return question.data if question.in_one_graph else question.graphs[int(question.index[position])]

    def _features(self, position: int, nodes: Sequence[int], graph: Any) -> list[list[list[Any]]] | None:
        if self._found is None:
            return None
        if graph is None:
            return self._typed_features(position, nodes) if self._question.in_one_graph else None
        why = self._found[position]
        assert why.stored is not None
        place, score = why.stored
        order = score.abs().argsort(descending=True, stable=True)
        order = order[(place[order] // why.num_features).argsort(stable=True)]  # node by node, the strongest first
        node, feature = place[order] // why.num_features, place[order] % why.num_features
        kept = (rank_in_group(node) < OF_A_NODE) & torch.isin(node, torch.tensor(list(nodes)))
        x = graph.x.detach().cpu()
        told: dict[int, list[list[Any]]] = {}
        for i in kept.nonzero().view(-1).tolist():
            n, f = int(node[i]), int(feature[i])
            self._names.setdefault(f, self._name(f))
            value = float(x[n].reshape(-1)[f])
            told.setdefault(n, []).append([f, number(value), number(float(score[order[i]]))])
        return [told.get(n, []) for n in nodes]

    def _typed_features(self, position: int, nodes: Sequence[int]) -> list[list[list[Any]]]:
        """The same of a typed graph: every type has features of its own, with numbers of their own on the page."""
        assert self._found is not None
        types = self._question.types
        assert types is not None
        told: dict[int, list[list[Any]]] = {}
        shown = set(nodes)
        for score, (kind, inside), feature, *named in self._found[position].top(10**9, by="magnitude"):
            node = types.node_range(kind).start + inside
            if node not in shown or len(told.setdefault(node, [])) == OF_A_NODE:
                continue
            key = types.node_types.index(kind) * 2**20 + feature
            self._names.setdefault(key, plain_text(named[0]) if named else f"feature {feature}")
            value = float(self._question.typed_data[kind].x[inside].reshape(-1)[feature])
            told[node].append([key, number(value), number(score)])
        return [told.get(n, []) for n in nodes]

    def _typed_attributes(self, columns: Tensor) -> list[list[str]] | None:
        """The attributes of edges of a typed graph: each type has its own."""
        types = self._question.types
        if types is None or not self._question.in_one_graph:
            return None
        place, inside = types.edges_of(columns)
        lines: list[list[str]] = [[] for _ in columns]
        for at_type, kind in enumerate(types.edge_types):
            chosen = (place == at_type).nonzero().view(-1)
            found = _attributes(self._question.typed_data[kind], inside[chosen], "feature_names")
            for at, told in zip(chosen.tolist(), found or (), strict=False):
                lines[at] = told
        return lines if any(lines) else None

    def _name(self, feature: int) -> str:
        names = None if self._found is None else self._found.feature_names
        return f"feature {feature}" if names is None else plain_text(names[feature])


def _attributes(graph: Any, columns: Tensor, named_by: str = "edge_feature_names") -> list[list[str]] | None:
    """For every edge, its attributes as lines `name = value`; None if the graph (or the edge type) has none."""
    tables: list[tuple[list[str], Tensor]] = []
    weight, attributes = graph.get("edge_weight"), graph.get("edge_attr")
    if isinstance(weight, Tensor) and weight.dim() == 1:
        tables.append((["weight"], weight.view(-1, 1)))
    if isinstance(attributes, Tensor) and attributes.dim() in (1, 2):
        flat = attributes.view(-1, 1) if attributes.dim() == 1 else attributes
        given = graph.get(named_by)
        names = [plain_text(name) for name in given] if given is not None and len(given) == flat.size(1) else None
        tables.append((names or [f"{_UNNAMED}{i}" for i in range(flat.size(1))], flat))
    if not tables:
        return None
    names = [name for part, _ in tables for name in part]
    rows = torch.cat([values[columns.to(values.device)].detach().cpu().double() for _, values in tables], dim=1)
    return [_lines(names, row) for row in rows.tolist()]


def _lines(names: Sequence[str], values: Sequence[float]) -> list[str]:
    """The attributes of one edge; of many, the first and how many more there are. Zeros without a name say nothing.

    >>> _lines(["years", "amount"], [3.0, 0.0]), _lines(["attribute 0", "attribute 1"], [0.0, 1.0])
    (['years = 3', 'amount = 0'], ['attribute 1 = 1'])
    """
    both = zip(names, values, strict=True)
    told = [f"{name} = {value:.4g}" for name, value in both if value or not name.startswith(_UNNAMED)]
    return told if len(told) <= _SHOWN else [*told[:_SHOWN], f"and {len(told) - _SHOWN} more"]
