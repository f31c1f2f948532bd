"""The targets of a job from Python, and a question about them: also where the model answers NaN, or fails, for some of them.

A question about all targets is refused as a whole if the model fails on one. A job goes on with the others, so it asks about
single ones, all over the job, until the model answers; if it never does, the fault is not that of some targets.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.arguments import shown
from edgewise.arrays import plain_index
from edgewise.errors import EdgewiseError, InputError, ModelError, SettingError
from edgewise.graph.neighbour_sample import Bounds, LargeNeighbourhoodError
from edgewise.graph.sample import seeds
from edgewise.graph.type_table import read_typed_index
from edgewise.jobs.plan import spread
from edgewise.question import PosedQuestion, pose
from edgewise.question.memory import LEAST_CEILING, read_memory
from edgewise.question.pair_index import read_pairs
from edgewise.question.source_question import SourceQuestion
from edgewise.question.target import named_part, read_index
from edgewise.store.graph_store import GraphStore

NEIGHBOURHOOD_SHARE = 4
"""A neighbourhood may take one part in so many of the memory: beside it there are activations and messages."""


def posed_targets(
    model: nn.Module, data: Any, index: Any, target: Any, asked: dict[str, Any], memory: Any = None
) -> tuple[PosedQuestion, Tensor]:
    """A question that the model answers, and all targets, `[T]` or `[T, 2]`, whether it is about all of them or not.

    Of a graph on disk the question is about a target whose neighbourhood fits into the memory, or else about another node.

    Raises:
        ModelError: If the model fails on all that is tried, or on some targets of a typed graph.
    """
    if isinstance(target, str):
        raise SettingError(
            f"`target` must be a class, or one class for each index, in a job, got {shown(target)}. Repeat each index "
            f"for its classes."
        )
    if isinstance(data, GraphStore):  # of a graph on disk, one target at a time is looked at
        return _posed_on_one(model, data, index, target, asked, memory)
    try:
        posed = pose(model, data, index, target=target, **asked)
    except ModelError as error:
        targets = _read(data, index, asked["task"])
        if targets is None:
            raise
        for position in spread(len(targets)):
            part = slice(position, position + 1)
            try:
                some: Any = plain_index(targets[part])
                return pose(model, data, some, target=classes_of(target, part, len(targets)), **asked), targets
            except ModelError:
                continue
        raise error from error.__cause__
    return posed, posed.index


def _read_stored(store: GraphStore, index: Any) -> Tensor:
    """The targets in a graph on disk; of a typed one, numbers of the type that the index names."""
    if not store.is_typed:
        return read_index(index, store.num_nodes, "node")[0]
    name, inside = read_typed_index(index, store.data)
    return read_index(inside, store.nodes(name).count, "node")[0]


def _posed_on_one(
    model: nn.Module, store: GraphStore, index: Any, target: Any, asked: dict[str, Any], memory: Any
) -> tuple[PosedQuestion, Tensor]:
    """A question about the first target that the model answers, of some all over the job; others stand in for hubs."""
    targets = _read(store, index, asked["task"]) if asked["task"] == "node" else None
    if asked["task"] == "link":
        raise InputError(
            "A job over a graph store explains nodes, got task='link'. For links use ew.explain(model, store, pairs, …)."
        )
    if targets is None:
        return pose(model, store, index, **asked), torch.empty(0)  # refused in its own words
    name = read_typed_index(named_part(store.data, index, "node"), store.data)[0] if store.is_typed else None
    bounds = Bounds(max(read_memory(memory), LEAST_CEILING) // NEIGHBOURHOOD_SHARE)
    some = [slice(position, position + 1) for position in spread(len(targets))]
    tried = [(targets[part], classes_of(target, part, len(targets))) for part in some]
    found, failed = _first_answer(model, store, tried, asked, bounds, name)
    if found is None and isinstance(failed, LargeNeighbourhoodError) and name is None:
        others = torch.tensor(spread(store.num_nodes)).split(1)
        found, _ = _first_answer(model, store, [(node, tried[0][1]) for node in others], asked, bounds, name)
    if found is None:
        assert failed is not None
        raise failed
    return found.within(None), targets


def _first_answer(
    model: nn.Module,
    store: GraphStore,
    tried: Sequence[tuple[Tensor, Any]],
    asked: dict[str, Any],
    bounds: Bounds,
    name: str | None,
) -> tuple[SourceQuestion | None, EdgewiseError | None]:
    """A question about the first of some nodes `[1]`, each with its class, that the model answers, or why the first is none."""
    failed: EdgewiseError | None = None
    for node, classes in tried:
        index: Any = plain_index(node) if name is None else (name, plain_index(node))
        try:
            posed = pose(model, store, index, target=classes, bounds=bounds, **asked)
        except (ModelError, InputError) as error:
            failed = failed or error
            continue
        assert isinstance(posed, SourceQuestion)
        return posed, None
    return None, failed


def classes_of(target: Any, part: slice, count: int) -> Any:
    """The classes of some of `count` targets, if one was given for each.

    >>> classes_of([2, 0, 1], slice(1, 3), 3), classes_of(2, slice(1, 3), 3)
    ([0, 1], 2)
    """
    return target[part] if is_each(target, count) else target


def is_each(target: Any, count: int) -> bool:
    """Whether classes were given one for each target."""
    array = isinstance(target, (Tensor, np.ndarray)) and target.ndim > 0
    return (array or isinstance(target, (list, tuple, range))) and len(target) == count


def _read(data: Any, index: Any, task: str) -> Tensor | None:
    """The targets without asking the model; None of typed graphs, and of graphs that are not in a list."""
    if task == "graph":
        plain = isinstance(data, (list, tuple)) and all(isinstance(graph, Data) for graph in data)
        return read_index(index, len(data), "graph")[0] if plain else None
    if isinstance(data, GraphStore):
        return _read_stored(data, named_part(data.data, index, task))
    if not isinstance(data, Data):
        return None
    nodes = int(data.num_nodes or 0)
    if task == "link":
        return read_pairs(index, data.get("edge_label_index"), nodes)[0]
    index = named_part(data, index, task)
    return read_index(seeds(data) if index is None else index, nodes, "node")[0]
