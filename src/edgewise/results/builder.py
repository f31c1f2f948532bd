"""SetBuilder: collects the scores of blocks of targets and makes an `ExplanationSet` of them.

Scores are sparse from the start, so that memory grows with what is not zero, and with `top` only with what is kept.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.registry import Method
from edgewise.graph.type_table import TypeTable
from edgewise.question import PosedQuestion
from edgewise.results.entries import Entries, Part, strongest
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet
from edgewise.score import CopyScores, RowScores, Score, SparseScores

_FEW = 2**16
"""Scores that are looked through in one go; larger blocks layer by layer, each as far as it can matter."""


class SetBuilder:
    """The scores found so far, as sparse parts; `assemble` makes the set.

    `add` takes the scores of a block of copies (`Score`), `add_sparse` entries that know their target already, `add_rows` those
    of one target after another. With `top` only the strongest entries of each target are kept.
    """

    def __init__(self, question: PosedQuestion, method: Method, level: str, top: int | None) -> None:
        self.question, self.method, self.level, self.top = question, method, level, top
        self.edges: list[Part] = []
        self.own: list[Part] = []
        self.errors: list[Part] = []
        self.rows: dict[bool, list[RowScores]] = {False: [], True: []}
        """Entries of edges, and of own terms, that are in order already."""
        self.done = {False: 0, True: 0}
        """How many targets `add_rows` has cut to the strongest entries."""
        self.ways: list[str] = []

    def _went(self, way: str) -> None:
        """Note how a block was run."""
        if way not in self.ways:
            self.ways.append(way)

    @property
    def way(self) -> str:
        """How the model was run, such as `"lowered"`; several ways if blocks differed."""
        return ", ".join(self.ways) or "none"

    def add(self, positions: Tensor, score: Score, found: CopyScores) -> None:
        """The scores of one block: `positions` `[targets]` are those of its targets in the question's index."""
        self._went(score.way)
        copies = (score.owner, score.edge_id, score.num_edges)
        self.edges += self._parts(positions, copies, found.edge, score.edges_of, self.top)
        if found.error is not None:
            self.errors += self._parts(positions, copies, found.error, score.edges_of, None)
        if found.own is not None:
            copies = (score.self_owner, score.self_node, score.num_nodes)
            self.own += self._parts(positions, copies, found.own, score.pairs_of, self.top)

    def add_sparse(self, found: SparseScores, way: str) -> None:
        """Entries (target, layer, item, score), where an item is an edge or, for self scores, a node."""
        self._went(way)
        one = self.question.in_one_graph  # then all widths are the same
        nodes, edges = self.question.sizes(found.position[:1].cpu() if one else found.position.cpu())
        width = (nodes if found.of_self else edges).to(found.item.device)
        part = self._strongest(found.position, found.layer * width + found.item, found.score)
        (self.own if found.of_self else self.edges).append(part)

    def add_rows(self, found: RowScores, way: str) -> None:
        """Entries of the targets that come next, in order."""
        self._went(way)
        if self.top is None:
            self.rows[found.of_self].append(found)
            return
        done = self.done[found.of_self]
        row = torch.repeat_interleave(torch.arange(done, done + len(found.begin) - 1), found.begin.diff())
        self.done[found.of_self] += len(found.begin) - 1
        (self.own if found.of_self else self.edges).append(self._strongest(row, found.place, found.score))

    def _parts(
        self,
        positions: Tensor,
        copies: tuple[Tensor, Tensor, Tensor],
        found: Tensor,
        counts: list[int] | None,
        top: int | None,
    ) -> Iterator[Part]:
        """What is not zero of scores `[copies]` or `[L, copies]`; only the first `counts[layer]` copies can matter.

        `copies` are (owner, column, width): the target that a copy belongs to, its column in the target's graph, and the
        number of columns of that graph. Two targets of one graph with 3 edges: a score on the copy of edge 1 for the second
        target, in layer 1, becomes the entry (row 1, place 1 · 3 + 1 = 4).
        """
        owner, column, width = copies
        rows = found.detach().reshape(1 if self.level == "input" else self.question.num_layers, owner.numel())
        pieces = []
        if rows.numel() < _FEW:
            few = (positions, owner, column, width, rows)
            pieces.append(_nonzero(*((part.cpu() for part in few) if rows.is_cuda else few)))
            rows = rows[:0]
        for layer, scores in enumerate(rows):
            scores = scores if counts is None or self.level == "input" else scores[: counts[layer]]
            copy = scores.nonzero().view(-1)
            row = owner.index_select(0, copy)
            place = column.index_select(0, copy)
            if layer:
                place = place + layer * (width[0] if width.numel() == 1 else width[row])
            pieces.append((positions.to(row.device)[row], place, scores.index_select(0, copy)))
        if top is None:
            return (Part(*(t.cpu() for t in piece)) for piece in pieces)
        return iter([self._strongest(*(torch.cat(column) for column in zip(*pieces, strict=True)))])

    def _strongest(self, row: Tensor, place: Tensor, score: Tensor) -> Part:
        """The entries, or with `top` the strongest of each row."""
        if self.top is not None:
            kept = strongest(row, score.abs(), self.top)
            row, place, score = row[kept], place[kept], score[kept]
        return Part(row.cpu(), place.cpu(), score.cpu())

    def assemble(self, settings: dict[str, Any]) -> ExplanationSet:
        """Everything as one set, with the settings that the user gave; an initial mask is described, not stored."""
        question = self.question
        n_id, e_id = question.sampled() if question.in_one_graph else (None, None)
        missing = tuple(i for i, separable in enumerate(question.separable) if not separable)
        init = settings.get("init")
        if init is not None:
            settings["init"] = f"given {list(init.shape)}" if isinstance(init, Tensor) else "given"
        return ExplanationSet(
            index=question.index,
            target=question.target.column.cpu(),
            value=question.target.value(question.target.truth).detach().cpu(),
            method=self.method.name,
            level=self.level,
            num_layers=question.num_layers,
            graphs=question.result_graphs(),
            edges=None if self.method.is_drawn else self._entries(self.edges, self.rows[False]),
            own=self._entries(self.own, self.rows[True]) if self.own or self.rows[True] else None,
            own_missing=missing if self.own or self.rows[True] else (),
            settings=Settings(settings),
            errors=Entries(self.errors, len(question.index)) if self.errors else None,
            types=question.types if question.in_one_graph else None,
            graph_types=() if question.in_one_graph else tuple(self._graph_types()),
            n_id=n_id,
            e_id=e_id,
        )

    def _graph_types(self) -> Iterator[TypeTable]:
        """The types of the graph of each target; nothing for graphs of one type."""
        for position in range(len(self.question.index) if self.question.types is not None else 0):
            types = self.question.types_of(position)
            assert types is not None
            yield types

    def _entries(self, parts: list[Part], rows: list[RowScores]) -> Entries:
        """The parts as rows; a method that works on blocks of edges spreads a target over parts, so `top` cuts again."""
        if rows:
            return Entries.of_blocks([(part.begin, part.place, part.score) for part in rows])
        if self.top is not None and len(parts) > 1 and (self.method.lowered or self.method.walking):
            together = [torch.cat(column) for column in zip(*((p.row, p.place, p.score) for p in parts), strict=True)]
            parts = [self._strongest(*together)]
        nothing = torch.empty(0, dtype=torch.long)  # a graph without edges
        like = self.question.target.truth.detach().cpu()
        return Entries(parts or [Part(nothing, nothing, like.new_empty(0))], len(self.question.index))


def _nonzero(positions: Tensor, owner: Tensor, column: Tensor, width: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """(row, place, score) of what is not zero of few scores `[L, copies]`, in numpy, whose calls cost less than torch's."""
    scores = rows.numpy()
    layers, copy = scores.nonzero()
    row = owner.numpy()[copy]
    place = column.numpy()[copy] + layers * (int(width) if width.numel() == 1 else width.numpy()[row])
    found = (positions.numpy()[row], place, scores[layers, copy])
    return tuple(torch.from_numpy(part) for part in found)
