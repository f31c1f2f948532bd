"""Scores and walks as rows and data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.collection import ExplanationSet
from edgewise.errors import SettingError, missing_extra
from edgewise.storage import edge_columns
from edgewise.walk.results import WalkSet

if TYPE_CHECKING:
    from edgewise.explanation import Explanation

WHAT = ("edges", "self")


def rows(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> list[dict[str, Any]]:
    """A dict for each row of `columns`, of plain numbers and texts."""
    table = {name: column.tolist() for name, column in columns(found, what).items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def frame(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> Any:
    """The columns as a pandas data frame."""
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("pandas", "table", "to_frame()") from error
    return pandas.DataFrame(columns(found, what))


def columns(found: Explanation | ExplanationSet | WalkSet, what: str = "edges") -> dict[str, np.ndarray]:
    """Name → values: scores other than zero, in the order of target, layer and edge (or node); walks, best first.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([0.0, -2.0]), torch.tensor([[0, 1], [2, 2]]), 3, index=2, target=1, value=1.5)
    >>> rows(why)
    [{'index': 2, 'target': 1, 'column': 1, 'source': 1, 'receiver': 2, 'score': -2.0}]
    """
    if what not in WHAT:
        raise SettingError(f"what is {what!r}; known are {', '.join(WHAT)}.")
    if isinstance(found, WalkSet):
        return _of_walks(found)
    if isinstance(found, ExplanationSet):
        return _of_set(found, what)
    return _of_self(found) if what == "self" else _of_edges(found)


def _of_edges(why: Explanation) -> dict[str, np.ndarray]:
    scores = why.scores.detach().cpu().numpy()
    *layer, column = scores.nonzero()
    source, receiver = why.edge_index.cpu().numpy()[:, column]
    ends = {"column": column, "source": source, "receiver": receiver}
    return _head(why, len(column)) | _layer(layer) | ends | {"score": scores[(*layer, column)]}


def _of_self(why: Explanation) -> dict[str, np.ndarray]:
    """NaN, where a layer's own term cannot be separated, is no score."""
    layers = () if why.level == "input" else (len(why.scores),)
    own = np.zeros((*layers, why.num_nodes)) if why.self_scores is None else why.self_scores.detach().cpu().numpy()
    *layer, node = np.nan_to_num(own, nan=0.0).nonzero()
    return _head(why, len(node)) | _layer(layer) | {"node": node, "score": own[(*layer, node)]}


def _head(why: Explanation, size: int) -> dict[str, np.ndarray]:
    return {"index": np.full(size, why.index), "target": np.full(size, why.target)}


def _layer(layer: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {"layer": layer[0]} if layer else {}


def _of_set(found: ExplanationSet, what: str) -> dict[str, np.ndarray]:
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
    size = len(walks)
    head = {"index": np.full(size, walks.index), "target": np.full(size, walks.target), "rank": np.arange(1, size + 1)}
    table = head | {"score": np.array([walk.score for walk in walks], dtype=float)}
    for name, places in (("node", [walk.nodes for walk in walks]), ("neuron", [walk.neurons or () for walk in walks])):
        for column in range(len(places[0]) if places else 0):
            table[f"{name}_{column}"] = np.array([place[column] for place in places])
    return table
