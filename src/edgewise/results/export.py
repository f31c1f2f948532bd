"""Results as networkx graphs, as GraphML files, and as rows and data frames.

`Explanation`, `ExplanationSet` and `WalkSet` offer these as methods (`to_networkx`, `to_graphml`, `to_rows`, `to_frame`).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from edgewise.arguments import one_of, whole_number
from edgewise.errors import missing_extra
from edgewise.files import write_whole
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_table import index_columns
from edgewise.results.storage import edge_columns
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.results.typed_tables import typed_columns
from edgewise.results.walk_set import WalkSet
from edgewise.text import read_classes, read_labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgewise.results.explanation import Explanation


def explanation_network(why: Explanation, edges: int | None = None) -> Any:
    """Every edge of the graph, or the strongest `edges` of them and their nodes, and the explained node."""
    graph = _empty(why, method=why.method, level=why.level)
    wanted = range(why.edge_index.size(1)) if edges is None else _strongest_columns(why, edges)
    ends, total = why.edge_index.t().tolist(), why.edge_scores().tolist()
    kept = {node for column in wanted for node in ends[column]} | _explained(why)
    graph.add_nodes_from(range(why.num_nodes) if edges is None else sorted(kept))
    for column in wanted:
        layers = {"layers": why.scores[:, column].tolist()} if why.level == "layer" else {}
        graph.add_edge(*ends[column], key=column, column=column, score=total[column], **layers)
    _own_scores(graph, why)
    for node in _explained(why) & set(graph):
        graph.nodes[node]["explained"] = True
    return graph


def walks_network(walks: WalkSet) -> Any:
    """The spots `(column, node)` of all walks; every step is an edge of its own, keyed by the walk's rank."""
    graph = _empty(walks, exact=walks.exact, upper_bound=walks.upper_bound)
    for rank, walk in enumerate(walks, start=1):
        spots = list(enumerate(walk.nodes))
        graph.add_nodes_from((spot, {"column": spot[0], "node": spot[1]}) for spot in spots)
        for start, end in pairwise(spots):
            graph.add_edge(start, end, key=rank, rank=rank, layer=start[0], score=walk.score)
    for node in _explained(walks):
        for spot in [(walks.num_layers, node)] if (walks.num_layers, node) in graph else []:
            graph.nodes[spot]["explained"] = True
    return graph


def _empty(found: Explanation | WalkSet, **attributes: Any) -> Any:
    """A graph without nodes that knows what was explained."""
    try:
        import networkx
    except ImportError as error:
        raise missing_extra("networkx", "plot", "to_networkx()") from error
    return networkx.MultiDiGraph(index=found.index, target=found.target, value=found.value, **attributes)


def _explained(found: Explanation | WalkSet) -> set[int]:
    """The explained node, or both ends of a link; nothing if a whole graph was explained."""
    task = found.settings.get("task", "node")
    return set() if task == "graph" else set(found.index) if task == "link" else {found.index}


def _strongest_columns(why: Explanation, edges: int) -> list[int]:
    """The columns of the edges with the largest magnitudes, in ascending order; never one of score zero, NaN or infinity."""
    count = whole_number("edges", edges, at_least=0, such_as=30)
    scores = why.edge_scores().detach().cpu().double()
    magnitude = torch.where(scores.isfinite(), scores, 0.0).abs()
    order = magnitude.argsort(descending=True, stable=True)[:count]
    return sorted(order[magnitude[order] > 0].tolist())


def _own_scores(graph: Any, why: Explanation) -> None:
    """Write the self scores to the nodes: `self_score`, at layer level also `self_layers`."""
    if why.self_scores is None:
        return
    own = why.self_scores if why.level == "input" else why.self_scores.sum(dim=0)
    total, layers = own.tolist(), why.self_scores.t().tolist() if why.level == "layer" else None
    for node, attributes in graph.nodes.items():
        attributes["self_score"] = total[node]
        if layers is not None:
            attributes["self_layers"] = layers[node]


# --- GraphML files, for Gephi, Cytoscape and others: plain attributes only ---------------------------------------------


NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Letters that XML 1.0 does not allow."""

LAYERS = {"layers": "score_layer", "self_layers": "self_score_layer"}
"""Attributes that are lists → the name that each of their entries gets in a file."""


def write_graphml(graph: Any, path: Any, num_nodes: int, labels: Any = None, classes: Any = None) -> None:
    """Write what `to_networkx` gave; nodes also get `label` and `class`, edges `weight`, the magnitude of their score."""
    import networkx

    named, classed = read_labels(labels, num_nodes), read_classes(classes, num_nodes)
    plain = networkx.MultiDiGraph(**_plain(graph.graph))
    for spot, attributes in graph.nodes(data=True):
        node = attributes.get("node", spot)
        more = {"label": named.get(node, str(node))} | ({"class": classed[node]} if node in classed else {})
        plain.add_node(_name(spot), **_plain(more | attributes))
    for number, (start, end, attributes) in enumerate(graph.edges(data=True)):
        weight = {"weight": abs(attributes["score"])}  # Gephi takes no negative weight
        plain.add_edge(_name(start), _name(end), key=number, **_plain(attributes | weight))
    lines = "\n".join(networkx.generate_graphml(plain, named_key_ids=True))
    text = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'.encode()
    write_whole(Path(path), lambda file: file.write(text))


def _name(spot: Any) -> str:
    """A node's name in a file; a spot `(column, node)` of a walk becomes `column/node`."""
    return "/".join(map(str, spot)) if isinstance(spot, tuple) else str(spot)


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_spread(attributes))


def _spread(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """One attribute per layer; numbers that are not finite are left out, because readers spell them differently."""
    for name, value in attributes.items():
        if isinstance(value, list):
            each = {f"{LAYERS[name]}_{layer}": score for layer, score in enumerate(value)}
            yield from _spread(each)
        elif isinstance(value, str):
            yield name, NOT_XML.sub(" ", value)
        elif isinstance(value, bool):
            yield name, int(value)  # GraphML says true, Python True
        elif not isinstance(value, float) or math.isfinite(value):
            yield name, value


# --- Scores and walks as rows and data frames --------------------------------------------------------------------------


WHAT = ("edges", "self")
"""Which scores a table has."""


def rows(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> list[dict[str, Any]]:
    """The table of `columns` as a list of dicts with plain numbers and texts."""
    table = {name: column.tolist() for name, column in columns(found, what).items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def frame(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> Any:
    """The table of `columns` as a pandas data frame."""
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("pandas", "table", "to_frame()") from error
    return pandas.DataFrame(columns(found, what))


def columns(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> dict[str, np.ndarray]:
    """A table, column by column: scores other than zero, ordered by target, layer and edge (or node); walks, best first.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([0.0, -2.0]), torch.tensor([[0, 1], [2, 2]]), 3, index=2, target=1, value=1.5)
    >>> rows(why)
    [{'index': 2, 'target': 1, 'column': 1, 'source': 1, 'receiver': 2, 'score': -2.0}]
    """
    one_of("`what`", what, WHAT)
    if isinstance(found, WalkSet):
        return _of_walks(found)
    if isinstance(found, TypedExplanation):
        return typed_columns(columns(found.flat, what), [found.types])
    types = found.type_tables if isinstance(found, ExplanationSet) else ()
    if isinstance(found, ExplanationSet) and types:
        return typed_columns(_of_set(replace(found, types=None, graph_types=()), what), types)
    if isinstance(found, ExplanationSet):
        return _of_set(found, what)
    return _of_self(found) if what == "self" else _of_edges(found)


def _of_edges(why: Explanation) -> dict[str, np.ndarray]:
    """The edge scores of one explanation."""
    scores = why.scores.detach().cpu().numpy()
    *layer, column = scores.nonzero()
    source, receiver = why.edge_index.cpu().numpy()[:, column]
    ends = {"column": column, "source": source, "receiver": receiver}
    return _head(why, len(column)) | _layer(layer) | ends | {"score": scores[(*layer, column)]}


def _of_self(why: Explanation) -> dict[str, np.ndarray]:
    """The self scores of one explanation; NaN (a layer's own term cannot be separated) is left out."""
    layers = () if why.level == "input" else (len(why.scores),)
    own = np.zeros((*layers, why.num_nodes)) if why.self_scores is None else why.self_scores.detach().cpu().numpy()
    *layer, node = np.nan_to_num(own, nan=0.0).nonzero()
    return _head(why, len(node)) | _layer(layer) | {"node": node, "score": own[(*layer, node)]}


def _head(why: Explanation, size: int) -> dict[str, np.ndarray]:
    return {**_index(why, size), "target": np.full(size, why.target)}


def _index(found: Explanation | WalkSet, size: int) -> dict[str, np.ndarray]:
    """The explained node or graph in every row, or the two ends of the link."""
    return index_columns(np.tile(np.array(found.index), (size, 1) if isinstance(found.index, tuple) else size))


def _layer(layer: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"layer": layer[0]} if layer else {}


def _of_set(found: ExplanationSet, what: str) -> dict[str, np.ndarray]:
    """The scores of a set with their position in it; edge scores come from the stored entries at once."""
    if what == "edges" and found.edges is not None:
        table = edge_columns(found)
        order = np.lexsort([table[name] for name in ("column", "layer", "position") if name in table])
        order = order[table["score"][order] != 0]
        return {name: values[order] for name, values in table.items()}
    each = [columns(why, what) for why in found]
    count = [len(part["score"]) for part in each]
    together = {"position": np.repeat(np.arange(len(each)), count)}
    return together | {name: np.concatenate([part[name] for part in each]) for name in (each[0] if each else ())}


def _of_walks(walks: WalkSet) -> dict[str, np.ndarray]:
    """A row for each walk: rank, score, and a column for each of its nodes (and neurons)."""
    size = len(walks)
    index = _index(walks, size) if walks.types is None else {"index": np.full(size, walks.index[1])}
    head = {**index, "target": np.full(size, walks.target), "rank": np.arange(1, size + 1)}
    table = head | {"score": np.array([walk.score for walk in walks], dtype=float)}
    for name, places in (("node", [walk.nodes for walk in walks]), ("neuron", [walk.neurons or () for walk in walks])):
        for column in range(len(places[0]) if places else 0):
            each: list[Any] = [place[column] for place in places]
            if name == "node" and walks.types is not None:
                table[f"{name}_{column}_type"] = np.array([kind for kind, _ in each], dtype=str)
                each = [number for _, number in each]
            table[f"{name}_{column}"] = np.array(each)
    return table
