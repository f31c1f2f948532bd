"""similarity(): the cosine of two explanations, target by target, from their stored entries alone.

The file is not called `similarity.py`, which would shadow the function. The other measures of agreement, for many methods
at once, are in `agreement.py`.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.arrays import plain_index
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.results.explanation import Explanation, refuse_other_layers
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.text import counted


@checked
def similarity(a: Explained, b: Explained, per_layer: bool = False) -> Tensor:  # noqa: FBT001, FBT002 (public contract)
    """Cosine of the scores of a and b, one for each target of a, matched by index; self scores ignored.

    `[targets]`, or `[targets, layers]` with `per_layer`; a single number for two `Explanation`s. NaN where one of the two is
    zero everywhere: there is no angle then. Both must be of one level, of the same nodes (or graphs) and without NaN; the
    classes may differ.

    >>> import torch
    >>> edges = torch.tensor([[0, 1], [2, 2]])
    >>> a = Explanation(torch.tensor([3.0, 0.0]), edges, 3, index=2, target=0, value=3.0)
    >>> b = Explanation(torch.tensor([3.0, 4.0]), edges, 3, index=2, target=0, value=7.0)
    >>> similarity(a, b)
    tensor(0.6000)
    """
    a, b = _untyped(a, b)
    _check(a, b, per_layer=per_layer)
    first, second = _as_list(a), _as_list(b)
    match = _matched(first, second)
    if isinstance(a, Explanation) and isinstance(b, Explanation):
        return _of_two(a, b, per_layer=per_layer)
    if (
        isinstance(first, ExplanationSet)
        and isinstance(second, ExplanationSet)
        and None not in (first.edges, second.edges)
    ):
        return _sparse_cosine(first, second[match], per_layer=per_layer)
    rows = [_of_two(first[i], second[j], per_layer=per_layer) for i, j in enumerate(match.tolist())]
    return torch.stack(rows)


def _untyped(a: Explained, b: Explained) -> tuple[Explained, Explained]:
    """Both over the union of all types, if they are of typed graphs; the types must be the same."""
    if getattr(a, "types", None) != getattr(b, "types", None):
        raise InputError(
            "The two explanations must be of the same typed graph and of nodes of one type. Explain the same index of the "
            "same data."
        )
    return _flat(a), _flat(b)


def _flat(explained: Explained) -> Explained:
    if isinstance(explained, TypedExplanation):
        return explained.flat
    return replace(explained, types=None) if isinstance(explained, ExplanationSet) else explained


def _of_two(a: Explanation, b: Explanation, *, per_layer: bool) -> Tensor:
    """The cosine of two explanations with dense scores."""
    if a.scores.shape != b.scores.shape:
        raise InputError(
            f"The scores must have the same shape, one for each column of edge_index (and each layer), got "
            f"{list(a.scores.shape)} and {list(b.scores.shape)}."
        )
    return _cosine(a.scores.double(), b.scores.double(), per_layer=per_layer).to(a.scores.dtype)


def _as_list(explained: Explained) -> "ExplanationSet | list[Explanation]":
    return [explained] if isinstance(explained, Explanation) else explained


def _check(a: Explained, b: Explained, *, per_layer: bool) -> None:
    """Refuse what has no angle: no results of `explain`, NaN scores, different levels."""
    for one in (a, b):
        if not isinstance(one, (Explanation, ExplanationSet)):
            raise InputError(f"similarity needs two results of explain(), got {type(one).__name__}.")
        scores = one.scores if isinstance(one, Explanation) else None if one.edges is None else one.edges.score
        if scores is not None and not bool(torch.isfinite(scores).all()):
            raise InputError(
                "The scores have NaN or infinite entries, which have no angle. Remove NaN from the model's weights and the "
                "data, and explain again."
            )
    if a.level != b.level:
        raise InputError(
            f"One explanation is at {a.level} level, the other at {b.level} level. Explain both with the same level=."
        )
    if a.level == "layer":
        older = a.settings if a.settings.get("layers") == "calls" else b.settings
        refuse_other_layers(_num_layers(a), _num_layers(b), older)
    if per_layer and a.level != "layer":
        raise InputError("per_layer=True needs layerwise explanations. Use explain(..., level='layer').")


def _num_layers(explained: Explained) -> int:
    return explained.scores.size(0) if isinstance(explained, Explanation) else explained.num_layers


def _indices(explained: "ExplanationSet | list[Explanation]") -> list[Any]:
    if isinstance(explained, ExplanationSet):
        return plain_index(explained.index)
    return [one.index for one in explained]


def _graph_of(explained: "ExplanationSet | list[Explanation]", position: int) -> Tensor:
    return explained.graph(position)[0] if isinstance(explained, ExplanationSet) else explained[position].edge_index


def _matched(a: "ExplanationSet | list[Explanation]", b: "ExplanationSet | list[Explanation]") -> Tensor:
    """`[targets of a]`: the position in b of every target of a; their graphs must be the same."""
    where = {index: position for position, index in reversed(list(enumerate(_indices(b))))}
    missing = [index for index in _indices(a) if index not in where]
    if missing:
        raise InputError(
            f"{counted(len(missing), 'target')} of the first missing in the second ({missing[:5]} …). Explain the same index."
        )
    match = torch.tensor([where[index] for index in _indices(a)])
    shared = isinstance(a, ExplanationSet) and isinstance(b, ExplanationSet) and len(a.graphs) == len(b.graphs) == 1
    for position in [0] if shared else range(len(match)):
        one, other = _graph_of(a, position), _graph_of(b, int(match[position]))
        if one is not other and not (one.shape == other.shape and torch.equal(one.cpu(), other.cpu())):
            raise InputError(
                "The two explanations belong to different graphs (their edge_index differs). Explain the same data."
            )
    return match


def _cosine(a: Tensor, b: Tensor, *, per_layer: bool) -> Tensor:
    """Σ ab / √(Σ a² Σ b²), over all entries or over those of each layer; NaN if one is zero."""
    if not per_layer:
        a, b = a.reshape(-1), b.reshape(-1)
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()


def _sparse_cosine(a: ExplanationSet, b: ExplanationSet, *, per_layer: bool) -> Tensor:
    """`[targets]` or `[targets, layers]`: the cosine from the stored entries alone, b in the order of a.

    An entry is named by a key, target · (places of the largest graph) + place. With 2 targets and graphs of up to 3 edges,
    edge 1 of target 1 has the key 1 · 4 + 1 = 5. Keys that both sets store are matched by a binary search, and their
    products summed by target (and layer).
    """
    assert a.edges is not None
    assert b.edges is not None
    groups = a.num_layers if per_layer else 1
    widths = torch.tensor([a.graph(i)[0].size(1) for i in range(len(a.graphs))])
    largest = int(widths.max()) * a.num_layers + 1

    def keyed(explained: ExplanationSet) -> tuple[Tensor, Tensor, Tensor]:
        entries = explained.edges
        assert entries is not None
        row = entries.rows()
        width = widths[row] if len(widths) > 1 else widths[0]
        group = row * groups + (entries.place // width if per_layer else 0)  # [entries]: target, or target and layer
        key, order = (row * largest + entries.place).sort()
        return key, group[order], entries.score.double()[order]

    (key_a, group_a, score_a), (key_b, group_b, score_b) = keyed(a), keyed(b)
    size = len(a) * groups
    dot = torch.zeros(size, dtype=torch.float64)
    if len(key_a) and len(key_b):
        place = torch.searchsorted(key_b, key_a).clamp(max=len(key_b) - 1)
        dot.index_add_(0, group_a, torch.where(key_b[place] == key_a, score_a * score_b[place], 0.0))
    square_a = torch.zeros(size, dtype=torch.float64).index_add_(0, group_a, score_a.square())
    square_b = torch.zeros(size, dtype=torch.float64).index_add_(0, group_b, score_b.square())
    cosine = (dot / (square_a * square_b).sqrt()).to(a.value.dtype)
    return cosine.view(len(a), groups) if per_layer else cosine
