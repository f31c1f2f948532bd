"""How typed graphs look in every picture and page: a colour for each node type, a line for each edge type, names by type.

Colours go to node types in the order of the data, whatever is shown, so that a type has the same colour for every target.
Where several edge types join the same two node types, their lines differ; elsewhere the colours of the ends tell.
"""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgewise.arguments import shown
from edgewise.arrays import is_position
from edgewise.contract import fits
from edgewise.errors import InputError
from edgewise.report.appearance import GROUPS, SHORT, Nodes, each_once
from edgewise.text import plain_text, read_labels, typed_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgewise.graph.type_table import EdgeType, TypeTable

DASHES: tuple[tuple[float, ...], ...] = ((), (6.0, 1.6), (1.4, 1.2), (6.0, 1.4, 1.2, 1.4), (3.0, 3.0))
"""Lengths of strokes and gaps, as multiples of the width: solid first. The sixth relation looks like the second."""


def type_colours(types: TypeTable) -> dict[str, str]:
    """Node type → colour: those of groups, and further light ones if there are more types.

    >>> from edgewise.graph.type_table import TypeTable
    >>> type_colours(TypeTable("b", (("a", 1), ("b", 2)), ()))
    {'a': '#44bb99', 'b': '#77aadd'}
    """
    return {name: GROUPS[n] if n < len(GROUPS) else _further(n) for n, name in enumerate(types.node_types)}


def _further(number: int) -> str:
    """A light colour whose hue is far from those of the numbers before."""
    parts = colorsys.hls_to_rgb(0.618034 * number % 1.0, 0.78, 0.62)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def relation(kind: EdgeType) -> str:
    """An edge type in words.

    >>> relation(("user", "rates", "movie"))
    'user –rates→ movie'
    """
    return f"{plain_text(kind[0])} –{plain_text(kind[1])}→ {plain_text(kind[2])}"


def dash_of(types: TypeTable) -> dict[EdgeType, tuple[float, ...]]:
    """Edge type → its line: the first relation between two node types is solid, the second dashed, and so on."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for kind in types.edge_types:
        found[kind] = DASHES[seen[kind[0], kind[2]] % len(DASHES)]
        seen[kind[0], kind[2]] += 1
    return found


def union_labels(given: Any, types: TypeTable) -> dict[int, str]:
    """Labels by node type as labels of the union: `{"user": ["Ann", "Bob"]}`, or `{"user": {3: "Ann"}}`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(types.node_types):
        got = (
            f"the keys {', '.join(map(repr, list(given)[:4]))}" if isinstance(given, Mapping) else type(given).__name__
        )
        raise InputError(
            f"`labels` (on a page `node_names`) of a typed graph must be a mapping {{node type: names}} with the types "
            f"{', '.join(map(repr, types.node_types))}, got {got}. Use {{{types.node_types[0]!r}: names}}, for example."
        )
    found: dict[int, str] = {}
    for name, labels in given.items():
        numbers = types.node_range(name)
        found |= {numbers.start + node: text for node, text in read_labels(labels, len(numbers)).items()}
    return found


def refuse_classes(classes: Any) -> None:
    """Nodes of a typed graph have the colours of their types, and no others."""
    if classes is not None:
        raise InputError(
            "`classes` (on a page `node_classes`) must be left out for a typed graph: nodes have the colours of their types. "
            "Use marked={'fraud': [('account', 3)]} in a picture to point out some nodes."
        )


def typed_nodes(
    shown: Iterable[int],
    types: TypeTable,
    labels: Any = None,
    marked: Mapping[str, Any] | None = None,
    classes: Any = None,
) -> Nodes:
    """The looks of nodes of the union: in circles their numbers within their types, or short labels; long ones outside."""
    refuse_classes(classes)
    shown = sorted(shown)
    named = union_labels(labels, types)
    marks = {plain_text(name): _union_nodes(nodes, types) for name, nodes in (marked or {}).items()}
    kind = {node: types.node(node) for node in shown}
    group = {node: plain_text(name) for node, (name, _) in kind.items()}
    for name, nodes in reversed(marks.items()):
        group |= dict.fromkeys(nodes, name)
    colours = {plain_text(name): colour for name, colour in type_colours(types).items()}
    colours = {**_mark_colours(marks, len(colours)), **colours}
    used = {group[node] for node in shown}
    long = any(len(named[node]) > SHORT for node in shown if node in named)
    named = each_once(named, {node: place for node, (_, place) in kind.items()}) if long else named
    number = {node: str(place) for node, (_, place) in kind.items()}
    inside = [number[node] if long else named.get(node, number[node]) for node in shown]
    full = {
        node: typed_name(plain_text(name), place, {place: named.get(node, "")}) for node, (name, place) in kind.items()
    }
    return Nodes(
        {node: named[node] for node in shown if node in named},
        group,
        {name: colour for name, colour in colours.items() if name in used},
        long,
        max(8.5, 2.3 * min(max(map(len, inside), default=1), 8)),
        number,
        full,
    )


def _mark_colours(marks: Mapping[str, Any], taken: int) -> dict[str, str]:
    """Colours for marked groups, after those of types."""
    both = range(taken, taken + len(marks))
    return {name: GROUPS[n] if n < len(GROUPS) else _further(n) for n, name in zip(both, marks, strict=True)}


def _union_nodes(nodes: Any, types: TypeTable) -> list[int]:
    """The numbers in the union of marked nodes, such as `[("user", 3)]`."""
    found = []
    for node in nodes if fits("Sequence", nodes) else [nodes]:
        known = isinstance(node, tuple) and len(node) == 2 and node[0] in types.node_types and is_position(node[1])
        if not known or not 0 <= int(node[1]) < len(types.node_range(node[0])):
            raise InputError(
                f"`marked` must name nodes of a typed graph by type and number, got {shown(node)}. Use "
                f"marked={{'fraud': [({types.node_types[0]!r}, 0)]}}, for example."
            )
        found.append(types.node_range(node[0]).start + int(node[1]))
    return found
