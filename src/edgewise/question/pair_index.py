"""Which links are explained: `read_pairs` turns what the user passes as `index` into pairs of nodes, `[T, 2]`.

Of a typed graph `read_typed_pairs` does so, for pairs of one edge type.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from edgewise.arguments import shown
from edgewise.arrays import gives_number, read_tensor
from edgewise.errors import InputError
from edgewise.graph.inputs import in_words
from edgewise.graph.type_table import EdgeType

_USE = "Use index=(3, 17) for one pair, a list of such pairs, or a tensor [2, T]."


def read_pairs(index: Any, given: Any, num_nodes: int) -> tuple[Tensor, bool]:
    """The pairs `[T, 2]`, and whether a single one was passed; `given` is `data.edge_label_index`, which `None` means.

    >>> read_pairs((3, 1), None, 4)
    (tensor([[3, 1]]), True)
    >>> read_pairs(torch.tensor([[3, 1, 0], [0, 2, 0]]), None, 4)[0].tolist()
    [[3, 0], [1, 2], [0, 0]]
    >>> read_pairs([3, 1], None, 4)
    Traceback (most recent call last):
    edgewise.errors.InputError: `index` must say which two nodes belong together, got the list [3, 1]. Write a tuple, \
index=(3, 1), for one pair, or a tensor [2, T] for several.
    """
    if index is None:
        return _in_range(_all_pairs(given), num_nodes), False
    if isinstance(index, tuple) and len(index) == 2 and all(map(_is_node, index)):
        return _in_range(torch.tensor([[int(end) for end in index]]), num_nodes), True
    if isinstance(index, (Tensor, np.ndarray)):
        try:
            return _in_range(_columns(read_tensor(index), "index"), num_nodes), False
        except TypeError as error:
            raise InputError(f"`index` must be pairs of nodes (u, v), got {_short(index)}. {_USE}") from error
    return _in_range(_listed(index), num_nodes), False


def _is_node(end: Any) -> bool:
    """Whether this is one whole number, of Python, numpy or torch."""
    if isinstance(end, (bool, np.bool_)):
        return False
    if isinstance(end, Tensor):
        return end.dim() == 0 and _is_whole(end) and gives_number(end)
    return isinstance(end, (int, np.integer)) and abs(int(end)) < 2**63


def _is_whole(numbers: Tensor) -> bool:
    return not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)


def _all_pairs(given: Any) -> Tensor:
    """The pairs that the data bring along."""
    if given is None:
        raise InputError(
            "`index` must name the pairs to explain, got None, and data.edge_label_index, which None means, is missing. "
            + _USE
        )
    if not isinstance(given, Tensor):
        raise InputError(f"`data.edge_label_index` must be a tensor [2, T] of torch.int64, got {in_words(given)}.")
    return _columns(given.detach().cpu(), "data.edge_label_index")


def _columns(pairs: Tensor, name: str) -> Tensor:
    """`[T, 2]` of a tensor `[2, T]`."""
    if pairs.dim() != 2 or pairs.size(0) != 2 or not _is_whole(pairs):
        turn = " Use index.t() if its rows are pairs." if pairs.dim() == 2 and pairs.size(1) == 2 else ""
        raise InputError(
            f"`{name}` must be whole numbers [2, T], a column for each pair, got {in_words(pairs)}. {_USE}{turn}"
        )
    return pairs.long().t()


def _listed(index: Any) -> Tensor:
    """`[T, 2]` of a list (or another iterable) of pairs."""
    refusal = InputError(f"`index` must be pairs of nodes (u, v), got {_short(index)}. {_USE}")
    pairs = _entries(index)
    if pairs is None:
        raise refusal
    if len(pairs) == 2 and all(map(_is_node, pairs)):
        u, v = (int(end) for end in pairs)
        raise InputError(
            f"`index` must say which two nodes belong together, got the list [{u}, {v}]. Write a tuple, index=({u}, {v}), for "
            f"one pair, or a tensor [2, T] for several."
        )
    ends: list[list[int]] = []
    for pair in pairs:
        both = _entries(pair)
        if both is None or len(both) != 2 or not all(map(_is_node, both)):
            raise refusal
        ends.append([int(end) for end in both])
    return torch.tensor(ends, dtype=torch.long).view(-1, 2)


def _entries(given: Any) -> list[Any] | None:
    """What a list or another iterable holds; None if it is none, such as a text."""
    if isinstance(given, (str, bytes, dict)) or (isinstance(given, range) and given[2:]):  # no pair, nor a list of them
        return None
    try:
        return list(given)
    except Exception:  # whatever a stranger's object raises
        return None


def _short(index: Any) -> str:
    text = f"{type(index).__name__} {shown(index)}"
    return text if len(text) < 80 else text[:77] + "..."


def _in_range(pairs: Tensor, num_nodes: int) -> Tensor:
    """The pairs, if there is at least one and all ends are nodes of the graph."""
    if len(pairs) == 0:
        raise InputError(f"`index` must name at least one pair, got none. {_USE}")
    low, high = int(pairs.min()), int(pairs.max())
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"`index` must name nodes from 0 to {num_nodes - 1} ({num_nodes} nodes), got {low if low < 0 else high}. {_USE}"
        )
    return pairs.contiguous()


# --- Typed graphs -------------------------------------------------------------------------------------------------------


def read_typed_pairs(index: Any, data: HeteroData) -> tuple[EdgeType, Tensor, bool]:
    """The edge type that is asked about, its pairs `[T, 2]` as numbers within the types of their ends, and whether it is one.

    >>> data = HeteroData(); data["user"].x, data["movie"].x = torch.ones(4, 1), torch.ones(9, 1)
    >>> rates = ("user", "rates", "movie")
    >>> data[rates].edge_index = torch.tensor([[0], [8]])
    >>> read_typed_pairs((rates, (3, 7)), data)[1:], read_typed_pairs({rates: [(3, 7), (0, 1)]}, data)[1:]
    ((tensor([[3, 7]]), True), (tensor([[3, 7],
            [0, 1]]), False))
    """
    if index is None:
        kinds = [kind for kind in data.edge_types if "edge_label_index" in data[kind]]
        if len(kinds) != 1:
            raise InputError(
                f"`index` must name the pairs to explain, got None, which means those of the one edge type with an "
                f"edge_label_index; {len(kinds)} have one. {_typed_use(data)}"
            )
        kind, inside = kinds[0], None
    else:
        kind, inside = _kind_and_pairs(index, data)
    if isinstance(inside, tuple) and len(inside) == 2 and all(map(_is_node, inside)) and isinstance(index, Mapping):
        inside = [inside]
    ends = (kind[0], kind[2])
    missing = [end for end in ends if end not in data.node_types]
    if missing:
        raise InputError(f"`index` names the edge type {kind}, but `data` has no nodes of type {missing[0]!r}.")
    given = data[kind].get("edge_label_index") if kind in data.edge_types else None
    sizes = [int(data[end].num_nodes) for end in ends]
    pairs, single = read_pairs(inside, given, max(sizes))
    for end, numbers, size in zip(ends, pairs.t(), sizes, strict=True):
        if int(numbers.max()) >= size:
            raise InputError(f"`index` names {end!r} {int(numbers.max())}, but there are {size} nodes of that type.")
    return kind, pairs, single


def _kind_and_pairs(index: Any, data: HeteroData) -> tuple[EdgeType, Any]:
    """`{kind: pairs}` or `(kind, pairs)`; a kind may be written as its relation if only one type has it."""
    if isinstance(index, Mapping):
        if len(index) != 1:
            raise InputError(
                f"`index` must name one edge type of a typed graph at a time, got {len(index)}: {list(index)}. Explain one "
                f"after the other."
            )
        kind, inside = next(iter(index.items()))
    elif isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], (str, tuple)) and not _is_pair(index):
        kind, inside = index
    else:
        raise InputError(f"`index` must name an edge type of a typed graph, got {_short(index)}. {_typed_use(data)}")
    if isinstance(kind, str):
        named = [one for one in data.edge_types if one[1] == kind]
        if len(named) != 1:
            raise InputError(
                f"`index` names the relation {kind!r}, which {len(named)} edge types of `data` have. {_typed_use(data)}"
            )
        kind = named[0]
    if not (isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(part, str) for part in kind)):
        raise InputError(f"`index` must name an edge type by three words, got {kind!r}. {_typed_use(data)}")
    return kind, inside


def _is_pair(index: tuple[Any, Any]) -> bool:
    """Whether this is a tuple of two pairs, which name no type."""
    return isinstance(index[0], tuple) and len(index[0]) == 2


def _typed_use(data: HeteroData) -> str:
    kind = data.edge_types[0] if data.edge_types else ("user", "rates", "movie")
    return f"Use index=({kind}, (3, 17)) for one pair, or index={{{kind}: pairs}} with a tensor [2, T]."
