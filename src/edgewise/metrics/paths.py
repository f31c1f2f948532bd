"""Is the explanation exactly the path along which the truth was planted?"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from edgewise.collection import ExplanationSet
from edgewise.errors import InputError
from edgewise.explanation import Explanation
from edgewise.metrics.agreement import Explained
from edgewise.metrics.measured import Measured, with_reasons
from edgewise.metrics.planted import recovery
from edgewise.metrics.rows import as_set

Path: TypeAlias = Sequence[int]
NO_PATH = "there is no true path with an edge"


def path_recovery(found: Explained | Sequence[Path], paths: Sequence[Sequence[Path]]) -> Measured:
    """1 where the explanation is exactly one of the true paths, 0 where it is not; paths run from source to target.

    Args:
        found: For each target a walk (its nodes, source first; waiting on a node counts once); or a result of `explain`, of
            which the strongest edges, as many as the path has, must be the path's. Ties at the cut count as not found.
        paths: For each target its true paths, nodes from the source on, as `infection_paths` gives them.

    NaN, with the reason, where a target has no path of at least one edge, or nothing but the path can reach it.

    >>> path_recovery([(7, 7, 3, 5), (4, 2, 1)], [[(7, 3, 5)], [(4, 3, 1), (6, 3, 1)]]).value
    tensor([1., 0.])
    """
    number = 1 if isinstance(found, Explanation) else len(found)
    if number != len(paths):
        raise InputError(f"There are {number} explanations and {len(paths)} lists of paths; needed is a list for each.")
    whole = [[tuple(map(int, path)) for path in some if len(path) > 1] for some in paths]
    none = torch.tensor([not some for some in whole], dtype=torch.bool)
    if isinstance(found, (Explanation, ExplanationSet)):
        explained = as_set(found, "path_recovery")
        value, trivial = _strongest_edges(explained, whole)
        undefined = [
            (none, NO_PATH),
            (trivial & ~none, "nothing but the path can reach the target, or all scores are equal"),
        ]
        return with_reasons("exact path", value, explained.index, undefined)
    hits = [tuple(node for node, _ in groupby(walk)) in some for walk, some in zip(found, whole, strict=True)]
    value = torch.tensor(hits, dtype=torch.get_default_dtype())
    return with_reasons("exact path", value, torch.arange(number), [(none, NO_PATH)])


def _strongest_edges(found: ExplanationSet, paths: list[list[tuple[int, ...]]]) -> tuple[Tensor, Tensor]:
    """`[targets]`: whether the strongest edges are one of the paths, and whether that can be said of no path."""
    if len(found.graphs) > 1:
        raise InputError("Paths lead to nodes; these explanations are of whole graphs. Use recovery(found, truth).")
    owner = torch.tensor([position for position, some in enumerate(paths) for _ in some], dtype=torch.long)
    value, unknown = torch.zeros(len(found), dtype=found.value.dtype), torch.ones(len(found), dtype=torch.bool)
    if len(owner):
        edges = _edges_of([path for some in paths for path in some], *found.graphs[0])
        exact = recovery(found[owner], edges).exact.value
        value = value.scatter_reduce(0, owner, exact.nan_to_num(0.0), "amax")
        unknown[owner[~exact.isnan()]] = False
    return value, unknown


def _edges_of(paths: list[tuple[int, ...]], edge_index: Tensor, num_nodes: int) -> Tensor:
    """`[paths, E]`: which columns each path takes (parallel ones all)."""
    step = torch.tensor([(row, *pair) for row, path in enumerate(paths) for pair in pairwise(path)])
    known, column = (edge_index[0] * num_nodes + edge_index[1]).cpu().unique(return_inverse=True)
    key = step[:, 1] * num_nodes + step[:, 2]
    place = torch.searchsorted(known, key).clamp(max=max(len(known) - 1, 0))
    missing = (known[place] != key) if len(known) else torch.ones_like(key, dtype=torch.bool)
    if bool(missing.any()):
        _, source, receiver = step[missing][0].tolist()
        raise InputError(f"A path goes from {source} to {receiver}, which is not an edge of the explained graph.")
    taken = torch.zeros(len(paths), len(known), dtype=torch.int8)
    taken[step[:, 0], place] = 1
    return taken[:, column]
