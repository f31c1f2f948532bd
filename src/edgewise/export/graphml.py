"""GraphML files, for Gephi, Cytoscape and others: plain attributes only, complete or not there."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.report.captions import read_classes, read_labels
from edgewise.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

LAYERS = {"layers": "score_layer", "self_layers": "self_score_layer"}


def write_graphml(graph: Any, path: Any, num_nodes: int, labels: Any = None, classes: Any = None) -> None:
    """Write what `to_networkx` gave; nodes also get `label` and `class`, edges `weight`, the magnitude of their score."""
    import networkx

    named, classed = read_labels(labels, num_nodes), read_classes(classes, num_nodes)
    plain = networkx.MultiDiGraph(**_plain(graph.graph))
    for spot, attributes in graph.nodes(data=True):
        node = attributes.get("node", spot)
        more = {"label": named.get(node, str(node))} | ({"class": classed[node]} if node in classed else {})
        plain.add_node(_name(spot), **_plain(attributes | more))
    for number, (start, end, attributes) in enumerate(graph.edges(data=True)):
        weight = {"weight": abs(attributes["score"])}  # Gephi takes no negative weight
        plain.add_edge(_name(start), _name(end), key=number, **_plain(attributes | weight))
    lines = "\n".join(networkx.generate_graphml(plain, named_key_ids=True))
    text = f'<?xml version="1.0" encoding="utf-8"?>\n{lines}\n'.encode()
    write_whole(Path(path), lambda file: file.write(text))


def _name(spot: Any) -> str:
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
