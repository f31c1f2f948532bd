"""Everything that the page's script reads, as plain data: what all targets share, and a record for each of them.

`contents` is the way in. Arrays are base64 (`html.floats`, `html.integers`); nodes in a record are positions in its list
`nodes`, so that small numbers suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from edgewise.arrays import enumerated
from edgewise.metrics.runs import YARDSTICKS
from edgewise.report import appearance
from edgewise.report.appearance import Nodes
from edgewise.report.molecule import molecule_of
from edgewise.report.molecule_canvas import atom_names
from edgewise.report.page.answer_words import Wording
from edgewise.report.page.html import floats, integers, number
from edgewise.report.page.page_answer import Answers
from edgewise.report.page.page_features import FeatureNotes
from edgewise.report.page.page_record import EdgeWords, molecule_part, nodes_part, places, scores_part
from edgewise.report.page.page_scene import Scene, place_nodes
from edgewise.report.page.page_words import class_names, groups_of, names_of, outputs, read_edge_texts
from edgewise.report.page.top_edges import Keeper, Kept
from edgewise.report.scene import WHOLE_GRAPH
from edgewise.report.typed_look import dash_of, relation, type_colours, typed_nodes
from edgewise.results.comparison import MEASURES
from edgewise.results.score_rows import rows_of
from edgewise.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from edgewise.graph.type_table import TypeTable
    from edgewise.question import PosedQuestion
    from edgewise.report.page.page_run import Findings, PageAbout
    from edgewise.report.page.silence import Group
    from edgewise.results.comparison import Agreement


FAINT = 0.01
"""The weight of yardsticks (random, full) where methods decide together in which order nodes stand."""


@dataclass(frozen=True)
class Names:
    """Names of nodes, classes of nodes, names of classes and texts of edges, as the user gave them."""

    nodes: Any = None
    node_classes: Any = None
    classes: Any = None
    edges: Any = None
    """Texts of edges, `{name: a text for every edge}`."""


def contents(asked: PageAbout, found: Findings, names: Names) -> dict[str, Any]:
    """The data of a page, without its title; `targets` has a record for each target, in the order of `index`."""
    question = asked.question
    labels = [one.label for one in asked.contenders]
    notes = FeatureNotes(question, found.features, found.no_features, read_edge_texts(names.edges, question))
    records = Records(asked, found, names, notes)
    targets = records.every()
    return {
        "task": question.task,
        "explained": "" if question.types is None else plain_text(question.types.explained),
        "kinds": records.kinds(),
        "mode": question.target.mode,
        "of": question.target.of,
        "layers": question.num_layers,
        "methods": labels,
        "first": labels.index(records.ranked_by),
        "levels": list(asked.levels),
        "absent": [[*key, reason] for key, reason in found.absent.items()],
        "edges": asked.edges,
        "noWalks": found.no_walks,
        "classes": class_names(names.classes, question.target, question.task),
        "colours": appearance.page_colours(),
        "agreement": _agreement(found, labels),
        "targets": targets,
        **notes.about(),
    }


def _agreement(found: Findings, labels: Sequence[str]) -> list[dict[str, Any]]:
    """For every level, layer and measure: the mean over the targets `[methods, methods]`, and each target's own.

    `each` is `[targets, methods, methods]`. Agreements are stored once for a pair, so both orders read the same cell.
    """

    def cell(a: str, b: str, level: str, layer: int | None, measure: str) -> Agreement:
        first, second = sorted((a, b), key=labels.index)
        return found.agreements[first, second, level, layer, measure]

    records = []
    for level, layer in dict.fromkeys((level, layer) for _, _, level, layer, _ in found.agreements):
        for measure in MEASURES:
            cells = [[cell(a, b, level, layer, measure) for b in labels] for a in labels]
            rows = [torch.stack([one.value[0] for one in row]) for row in cells]
            each = torch.stack(rows)  # [methods, methods, targets]
            mean = [[number(one.mean) for one in row] for row in cells]
            record = {"level": level, "layer": layer, "measure": measure, "mean": mean}
            records.append({**record, "each": floats(each.permute(2, 0, 1))})
    return records


# --- One record for each target -----------------------------------------------------------------------------------------


class Records:
    """The records of all targets: what can be computed for all at once is, then each record is made.

    A record has the prediction (`logits`, `chances`), the nodes with their looks and places (`_nodes`), the scores of the
    kept edges (`_scores`), the walks, and the drawing of a molecule.
    """

    def __init__(self, asked: PageAbout, found: Findings, names: Names, notes: FeatureNotes) -> None:
        self._asked, self._names, self._question, self._notes = asked, names, asked.question, notes
        self._walks = found.walks
        self._any_set = next(iter(found.sets.values()))
        labels = [one.label for one in asked.contenders]
        keeper = Keeper(found.sets, labels, asked.levels, asked.question.num_layers, asked.edges)
        self._kept = keeper.keep(_of_small_graphs(asked.question, keeper))
        self._matter = rows_of(self._any_set, edges_only=True)
        is_yardstick = [one.method.name in YARDSTICKS for one in asked.contenders]
        self._weights = torch.where(torch.tensor(is_yardstick), FAINT, 1.0).double()
        self._outputs = outputs(asked.question.target)
        self._class_names = class_names(names.classes, asked.question.target, asked.question.task)
        self._types = [asked.question.types_of(position) for position in range(len(asked.index))]
        self._kinds = {
            kind: dash for types in self._types if types is not None for kind, dash in dash_of(types).items()
        }
        self._compounds = [self._compound(position) for position in range(len(asked.index))]
        self._answers = Answers(asked, found, self._kept, [self._units(place) for place in range(len(asked.index))])

    @property
    def ranked_by(self) -> str:
        """The method whose edges the answer speaks of: the picture begins with it."""
        return self._answers.ranked_by

    def kinds(self) -> list[dict[str, Any]]:
        """The edge types of all targets: what an arrow is called, the type in words, and its dashes in pixels."""
        colours = {
            name: colour for types in self._types if types is not None for name, colour in type_colours(types).items()
        }
        return [
            {
                "arrow": f"–{plain_text(kind[1])}→",
                "name": relation(kind),
                "dash": [round(1.6 * part, 1) for part in dash],
                "ends": [colours[kind[0]], colours[kind[2]]],
            }
            for kind, dash in self._kinds.items()
        ]

    def every(self) -> list[dict[str, Any]]:
        """The records, in the order of `index`."""
        return [self._one(position) for position in range(len(self._asked.index))]

    def _one(self, position: int) -> dict[str, Any]:
        """The record of one target."""
        index, kept = self._asked.index[position], self._kept[position]
        edge_index, num_nodes = self._any_set.graph(position)
        scene, types = self._scene(position, edge_index.cpu(), num_nodes), self._types[position]
        compound = self._compounds[position]
        look = self._look(position, scene, num_nodes, compound)
        logits, chances = self._outputs
        notes = self._notes.of(position, scene.nodes, kept.edges.item)
        who = self._who(position, look)
        words = Wording(who, self._question.target, position, self._class_names, "bond" if compound else "edge")
        edges = EdgeWords(kept.edges.item, edge_index.cpu(), look, types, notes["attributes"], as_bonds=bool(compound))
        return {
            "index": self._shown(index),
            "title": who,
            "target": int(self._question.target.column[position]),
            "value": number(float(self._any_set.value[position])),
            "logits": [number(value) for value in logits[position].tolist()],
            "chances": None if chances is None else [number(value) for value in chances[position].tolist()],
            "answer": self._answers.of(position, words, edges.describe),
            **nodes_part(scene, look),
            **scores_part(scene, kept, edge_index.cpu()),
            **({} if types is None else self._typed_edges(kept, types)),
            **self._walks_of(position, scene),
            **notes,
            "ends": [places(scene)[node] for node in index] if isinstance(index, tuple) else None,
            "molecule": None if compound is None else molecule_part(compound, scene),
        }

    def _who(self, position: int, look: Nodes) -> str:
        """The explained node, link or graph by its name."""
        index, task = self._asked.index[position], self._question.task
        if isinstance(index, tuple):
            pair = " – ".join(look.called(node) for node in index)
            return pair if look.labels or look.full else f"link {pair}"
        if task == "node":
            return look.called(index) if index in look.labels or look.full else f"node {look.number(index)}"
        return f"{'molecule' if self._compounds[position] else 'graph'} {index}"

    def _compound(self, position: int) -> Any:
        """The molecule that a target is, if it is one."""
        if self._question.task != "graph" or self._types[position] is not None:
            return None
        return molecule_of(self._question.graphs[self._asked.index[position]])

    def _units(self, position: int) -> dict[int, Group]:
        """Columns that are one thing to a reader: both directions of a bond; every other edge is its own."""
        if self._compounds[position] is None:
            return {}
        groups: dict[frozenset[int], list[int]] = {}
        for column, ends in enumerate(self._any_set.graph(position)[0].t().tolist()):
            groups.setdefault(frozenset(ends), []).append(column)
        return {column: tuple(group) for group in groups.values() for column in group}

    def _scene(self, position: int, edge_index: Tensor, num_nodes: int) -> Scene:
        """Which nodes are shown, and where; `matters` `[E]` is 1 for edges that can matter to the target."""
        matters = torch.zeros(edge_index.size(1))
        matters[self._matter.column[self._matter.row == position]] = 1.0
        root: Any = self._asked.index[position] if self._question.in_one_graph else None
        found = self._walks[position] if self._walks else None
        walks = [found.numbers_of(walk) for walk in found] if found is not None else []
        if self._question.task == "link":  # drawn around its first end; the second one is shown whatever reaches it
            root, other = root
            walks = [*walks, (other,)]
        return place_nodes(
            self._kept[position], edge_index, num_nodes, root, self._weights, walks, matters, self._asked.edges
        )

    def _look(self, position: int, scene: Scene, num_nodes: int, compound: Any) -> Nodes:
        """Labels and colours of the nodes; atoms without names have their symbols."""
        task, index = self._question.task, self._asked.index[position]
        names = names_of(self._names.nodes, task, index)
        if names is None and compound is not None:
            names = atom_names(compound)
        groups = names_of(self._names.node_classes, task, index)
        types = self._types[position]
        if types is not None:
            return typed_nodes(scene.nodes, types, names, classes=groups)
        if self._question.in_one_graph:  # nodes have the classes that are predicted
            groups = groups_of(groups, self._class_names)
        return Nodes.read(scene.nodes, num_nodes, names, groups, None, self._any_set.n_id)

    def _shown(self, index: Any) -> Any:
        """The explained node, pair or graph as the page names it: nodes of a sampled batch by their numbers in the whole."""
        n_id = self._any_set.n_id
        if n_id is not None:
            index = tuple(n_id[list(index)].tolist()) if isinstance(index, tuple) else int(n_id[index])
        return " – ".join(map(str, index)) if isinstance(index, tuple) else index

    def _typed_edges(self, kept: Kept, types: TypeTable) -> dict[str, Any]:
        """Of the kept edges their types, as places in `kinds`, and their columns within these."""
        place, column = types.edges_of(kept.edges.item)
        numbers = {kind: number for number, kind in enumerate(self._kinds)}
        return {
            "kind": integers(torch.tensor([numbers[kind] for kind in types.edge_types])[place]),
            "column": integers(column),
        }

    def _walks_of(self, position: int, scene: Scene) -> dict[str, Any]:
        """The best walks, whether they are proven, and what an unknown one could reach at most."""
        if self._walks is None:
            return {"walks": [], "certain": True, "bound": None}
        found, place = self._walks[position], places(scene)
        walks = [{"score": number(walk.score), "nodes": [place[n] for n in found.numbers_of(walk)]} for walk in found]
        return {"walks": walks, "certain": found.exact, "bound": number(found.upper_bound)}


def _of_small_graphs(question: PosedQuestion, keeper: Keeper) -> Tensor:
    """`[2, edges]`: (target, column) of all edges of the graphs that are shown whole."""
    small = (keeper.num_nodes <= WHOLE_GRAPH) & (question.task == "graph")
    return torch.stack(enumerated(torch.where(small, keeper.num_edges, 0)))
