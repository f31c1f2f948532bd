"""Parts of one question as one set, as if it had been asked at once."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet


def joined(sets: Sequence[ExplanationSet]) -> ExplanationSet:
    """The parts of one question as one set, as if it had been asked at once.

    Nodes and links share one graph, so the first part's is kept; graph tasks bring the graphs of every part. If the parts
    were computed in different ways, `settings["way"]` lists all of them.
    """
    first = sets[0]
    if len(sets) == 1:
        return first
    ways = dict.fromkeys(way for one in sets for way in str(one.settings.get("way", "")).split(", "))
    shared = first.settings.get("task", "node") != "graph"
    return replace(
        first,
        index=torch.cat([one.index for one in sets]),
        target=torch.cat([one.target for one in sets]),
        value=torch.cat([one.value for one in sets]),
        graphs=first.graphs if shared else tuple(graph for one in sets for graph in one.graphs),
        graph_types=tuple(types for one in sets for types in one.graph_types),
        edges=_joined([one.edges for one in sets], sets),
        own=_joined([one.own for one in sets], sets),
        own_missing=tuple(sorted({layer for one in sets for layer in one.own_missing})),
        errors=_joined([one.errors for one in sets], sets),
        settings=Settings({**first.settings, "way": ", ".join(ways)}),
    )


def _joined(parts: Sequence[Entries | None], sets: Sequence[ExplanationSet]) -> Entries | None:
    """The stored entries of all parts, row after row; a part without such entries still has its (empty) rows.

    For example, parts with 2 and 1 targets, the second one without entries: the counts per row are `[3, 1, 0]`, and the
    rows start at `[0, 3, 4, 4]`.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    counts = [
        torch.zeros(len(one), dtype=torch.long) if part is None else part.start.diff()
        for part, one in zip(parts, sets, strict=True)
    ]
    start = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(counts).cumsum(0)])
    return Entries.of_rows(start, torch.cat([part.place for part in known]), torch.cat([part.score for part in known]))
