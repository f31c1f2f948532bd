"""The parts of a target's record on a page: its nodes, its scores, the drawing of a molecule; plain data for the script.

Nodes in a record are positions in its list `nodes`, so that small numbers suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from edgewise.report.molecule_canvas import bond_ends, molecule_svg
from edgewise.report.page.html import floats, integers, number
from edgewise.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from edgewise.graph.type_table import TypeTable
    from edgewise.report.appearance import Nodes
    from edgewise.report.layout import Position
    from edgewise.report.page.page_scene import Scene
    from edgewise.report.page.top_edges import Kept


def places(scene: Scene) -> dict[int, int]:
    """Node → its position in the record."""
    return {node: position for position, node in enumerate(scene.nodes)}


def nodes_part(scene: Scene, look: Nodes) -> dict[str, Any]:
    """The part of a record about nodes: numbers, labels, colours, the tree around the root, rows, positions.

    `ways` and `context` are flat lists of pairs; `views` has for each view and method the nodes and their positions.
    """
    place = places(scene)
    return {
        "nodes": integers([look.number(node) for node in scene.nodes]),
        "inside": ["" if look.outside(node) else look.inside(node) for node in scene.nodes],
        "outside": [look.outside(node) for node in scene.nodes] if look.long else None,
        "names": [look.called(node) for node in scene.nodes],
        "fill": [look.colour(node) for node in scene.nodes],
        "rootFill": None if scene.root is None else look.colour(scene.root, is_root=True),
        "groups": list(look.colour_of.items()),
        "root": None if scene.root is None else place[scene.root],
        "ways": integers([part for node, way in scene.ways.items() for part in (place[node], place[way])]),
        "rows": integers([place[node] for node in scene.rows]),
        "place": _positions(scene.place, scene.nodes),
        "views": {view: [_layout(one, place) for one in layouts] for view, layouts in scene.views.items()},
        "context": integers([place[node] for pair in scene.context for node in pair]),
    }


def _layout(one: Mapping[int, Position], place: Mapping[int, int]) -> list[str]:
    """The nodes of one view, as positions in the record, and where they stand."""
    return [integers([place[node] for node in one]), _positions(one, one)]


def _positions(place: Mapping[int, Position], nodes: Iterable[int]) -> str:
    """`[nodes, 2]`: x and y of each."""
    return floats(torch.tensor([place[node] for node in nodes]).view(-1, 2))


def scores_part(scene: Scene, kept: Kept, edge_index: Tensor) -> dict[str, Any]:
    """The part of a record about scores; the ends of edges are positions in `nodes`.

    `scores` and `own` are `[methods, layers, items]` by level; `totals` has (count, magnitude, sum) of each view and
    method.
    """
    nodes = torch.tensor(scene.nodes)
    source, receiver = torch.searchsorted(nodes, edge_index[:, kept.edges.item].contiguous())
    return {
        "source": integers(source),
        "receiver": integers(receiver),
        "column": integers(kept.edges.item),
        "scores": {level: floats(part) for level, part in kept.edges.scores.items()},
        "ownNode": integers(torch.searchsorted(nodes, kept.own.item)),
        "own": {level: floats(part) for level, part in kept.own.scores.items()},
        "totals": {
            view: [[int(count), number(size), number(total)] for count, size, total in part.tolist()]
            for view, part in kept.totals.items()
        },
    }


def molecule_part(compound: Any, scene: Scene) -> dict[str, Any]:
    """The drawing of a molecule, and which nodes its bonds and atoms are."""
    place = places(scene)
    return {
        "svg": molecule_svg(compound),
        "bonds": [[place[one], place[other]] for one, other in bond_ends(compound)],
        "atoms": [place[atom] for atom in range(compound.GetNumAtoms())],
    }


@dataclass(frozen=True)
class EdgeWords:
    """The kept edges of one target in words."""

    item: Tensor
    """`[items]`: their columns, in order."""
    edge_index: Tensor
    look: Nodes
    types: TypeTable | None
    attributes: Sequence[Sequence[str]] | None
    as_bonds: bool
    """Whether two directions of an edge are one thing, which has no arrow."""

    def describe(self, columns: tuple[int, ...]) -> dict[str, Any]:
        """The name of an edge (or of a bond), its attributes, and its place among the kept edges; −1 if it is not there."""
        column = columns[0]
        source, receiver = self.edge_index[:, column].tolist()
        one, other = self.look.called(source), "itself" if source == receiver else self.look.called(receiver)
        place = int(torch.searchsorted(self.item, column))
        place = place if place < len(self.item) and int(self.item[place]) == column else -1
        about = self.attributes[place] if self.attributes is not None and place >= 0 else ()
        name = f"{one} – {other}" if self.as_bonds else f"{one} {self._arrow(column)} {other}"
        return {"name": name, "about": ", ".join(about), "edge": place}

    def _arrow(self, column: int) -> str:
        return "→" if self.types is None else f"–{plain_text(self.types.edge(column)[0][1])}→"
