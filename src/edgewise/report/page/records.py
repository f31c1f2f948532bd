"""What a page says about each target, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from edgewise.graph.copies import enumerated
from edgewise.metrics.contenders import YARDSTICKS
from edgewise.metrics.rows import rows_of
from edgewise.report.nodes import Nodes
from edgewise.report.page.keeping import Keeper, Kept
from edgewise.report.page.molecule_svg import atom_names, bond_ends, molecule_of, molecule_svg
from edgewise.report.page.packing import floats, integers, number
from edgewise.report.page.placing import Scene, place_nodes
from edgewise.report.page.wording import class_names, groups_of, names_of, outputs
from edgewise.report.picture import WHOLE_GRAPH

if TYPE_CHECKING:
    from torch import Tensor

    from edgewise.problem import Problem
    from edgewise.report.page.asking import Asked
    from edgewise.report.page.finding import Findings

FAINT = 0.01
"""The weight of yardsticks where methods decide together how nodes are ordered."""


@dataclass(frozen=True)
class Names:
    """As the user gave them."""

    nodes: Any = None
    node_classes: Any = None
    classes: Any = None


class Records:
    """Made for all targets at once, as far as that is possible, then told one by one."""

    def __init__(self, asked: Asked, found: Findings, names: Names) -> None:
        self._asked, self._names, self._problem = asked, names, asked.problem
        self._walks = found.walks
        self._any_set = next(iter(found.sets.values()))
        labels = [one.label for one in asked.contenders]
        keeper = Keeper(found.sets, labels, asked.levels, asked.problem.num_layers, asked.edges)
        self._kept = keeper.keep(_of_small_graphs(asked.problem, keeper))
        self._matter = rows_of(self._any_set, edges_only=True)
        is_yardstick = [one.method.name in YARDSTICKS for one in asked.contenders]
        self._weights = torch.where(torch.tensor(is_yardstick), FAINT, 1.0).double()
        self._outputs = outputs(asked.problem.target)
        self._class_names = class_names(names.classes, asked.problem.target)

    def every(self) -> list[dict[str, Any]]:
        """In the order of `index`."""
        return [self._one(position) for position in range(len(self._asked.index))]

    def _one(self, position: int) -> dict[str, Any]:
        index, kept = self._asked.index[position], self._kept[position]
        edge_index, num_nodes = self._any_set.graph(position)
        scene = self._scene(position, edge_index.cpu(), num_nodes)
        compound = molecule_of(self._problem.graphs[index]) if self._problem.task == "graph" else None
        logits, chances = self._outputs
        return {
            "index": index,
            "target": int(self._problem.target.column[position]),
            "value": number(float(self._any_set.value[position])),
            "logits": [number(value) for value in logits[position].tolist()],
            "chances": None if chances is None else [number(value) for value in chances[position].tolist()],
            **_nodes(scene, self._look(position, scene, num_nodes, compound)),
            **_scores(scene, kept, edge_index.cpu()),
            **self._walks_of(position, scene),
            "molecule": None if compound is None else _molecule(compound, scene),
        }

    def _scene(self, position: int, edge_index: Tensor, num_nodes: int) -> Scene:
        matters = torch.zeros(edge_index.size(1))
        matters[self._matter.column[self._matter.row == position]] = 1.0
        root = self._asked.index[position] if self._problem.task == "node" else None
        walks = [walk.nodes for walk in self._walks[position]] if self._walks else []
        return place_nodes(self._kept[position], edge_index, num_nodes, root, self._weights, walks, matters)

    def _look(self, position: int, scene: Scene, num_nodes: int, compound: Any) -> Nodes:
        task, index = self._problem.task, self._asked.index[position]
        names = names_of(self._names.nodes, task, index)
        if names is None and compound is not None:
            names = atom_names(compound)
        groups = names_of(self._names.node_classes, task, index)
        if task == "node":  # nodes have the classes that are predicted
            groups = groups_of(groups, self._class_names)
        return Nodes.read(scene.nodes, num_nodes, names, groups, None)

    def _walks_of(self, position: int, scene: Scene) -> dict[str, Any]:
        if self._walks is None:
            return {"walks": [], "certain": True, "bound": None}
        found, place = self._walks[position], _places(scene)
        walks = [{"score": number(walk.score), "nodes": [place[node] for node in walk.nodes]} for walk in found]
        return {"walks": walks, "certain": found.exact, "bound": number(found.upper_bound)}


def _places(scene: Scene) -> dict[int, int]:
    """Node → its position in the record."""
    return {node: position for position, node in enumerate(scene.nodes)}


def _of_small_graphs(problem: Problem, keeper: Keeper) -> Tensor:
    """`[2, edges]`: (target, column) of all edges of the graphs that are shown whole."""
    small = (keeper.num_nodes <= WHOLE_GRAPH) & (problem.task == "graph")
    return torch.stack(enumerated(torch.where(small, keeper.num_edges, 0)))


def _nodes(scene: Scene, look: Nodes) -> dict[str, Any]:
    place = _places(scene)
    return {
        "nodes": integers(scene.nodes),
        "inside": [look.inside(node) for node in scene.nodes],
        "outside": [look.outside(node) for node in scene.nodes] if look.long else None,
        "fill": [look.colour(node) for node in scene.nodes],
        "rootFill": None if scene.root is None else look.colour(scene.root, is_root=True),
        "groups": list(look.colour_of.items()),
        "root": None if scene.root is None else place[scene.root],
        "ways": integers([part for node, way in scene.ways.items() for part in (place[node], place[way])]),
        "rows": integers([place[node] for node in scene.rows]),
        "place": None if scene.place is None else floats(torch.tensor([scene.place[node] for node in scene.nodes])),
        "context": integers([place[node] for pair in scene.context for node in pair]),
    }


def _scores(scene: Scene, kept: Kept, edge_index: Tensor) -> dict[str, Any]:
    """Ends are positions in `nodes`."""
    nodes = torch.tensor(scene.nodes)
    source, receiver = torch.searchsorted(nodes, edge_index[:, kept.edges.item].contiguous())
    return {
        "source": integers(source),
        "receiver": integers(receiver),
        "column": integers(kept.edges.item),
        "scores": {level: floats(part) for level, part in kept.edges.scores.items()},
        "ownNode": integers(torch.searchsorted(nodes, kept.own.item)),
        "own": {level: floats(part) for level, part in kept.own.scores.items()},
        "totals": {view: [[int(c), number(t)] for c, t in part.tolist()] for view, part in kept.totals.items()},
    }


def _molecule(compound: Any, scene: Scene) -> dict[str, Any]:
    place = _places(scene)
    return {
        "svg": molecule_svg(compound),
        "bonds": [[place[one], place[other]] for one, other in bond_ends(compound)],
        "atoms": [place[atom] for atom in range(compound.GetNumAtoms())],
    }
