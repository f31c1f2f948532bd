"""The texts of `--index` and `--target` as numbers.

`--index` is a list with commas; each part is, in this order: an id of the data, `all`, a part of the data (`test`), a
position (`row:3`), a number or a range, or a name. Where the data has ids, plain numbers are ids. Of a typed graph it begins
with the node type: `account:3,5-9`.
"""

import re
from typing import Any

import torch
from torch import Tensor

from edgewise.cli.read.graphs import PARTS, Graphs
from edgewise.errors import InputError
from edgewise.store.name_table import NameTable

_RANGE = re.compile(r"(\d+)-(\d+)")
_FEW = 5
_ROW = "row:"  # a position, where the data has ids


def read_type(text: str, graphs: Graphs) -> tuple[Graphs, str]:
    """The typed graph about the node type that `--index` names, and what it says about it.

    `"paper:3,5-9"` asks about papers, and what is left is `"3,5-9"`; the type may stand before every part, too.
    """
    known, found, parts = graphs.data.node_types, list[str](), list[str]()
    for part in (piece.strip() for piece in text.split(",")):
        kind, colon, rest = part.partition(":")
        typed = bool(colon) and kind.strip() in known
        found += [kind.strip()] if typed and kind.strip() not in found else []
        parts.append(rest.strip() if typed else part)
    if len(found) != 1:
        what = f"one node type at a time, got {' and '.join(found)}" if found else f"a node type, got {text!r}"
        raise InputError(
            f"--index must name {what}. The types are {', '.join(known)}: use --index {(found or known)[0]}:0-9, for example."
        )
    return graphs.of_type(found[0]), ",".join(parts)


def read_targets(text: str, graphs: Graphs) -> Tensor:
    """The positions `[targets]` of the nodes or graphs that `--index` names, in its order, each once.

    For example `"5,2-4, 3"` gives `[5, 2, 3, 4]`.
    """
    found: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part:
            found += positions_of(part, graphs)
    if not found:
        raise InputError(
            f"--index names no {graphs.task}, got {text!r}. Use --index 0, --index 3,17,100-200 or --index all."
        )
    return torch.tensor(list(dict.fromkeys(found)))


def read_classes(text: str, graphs: Graphs, index: Tensor) -> Any:
    """The class or classes that `--target` names, as `ew.explain` takes them.

    Returns:
        `None` for the predicted class (and for all classes, whose number the model must tell), an int for one class, or a
        tensor `[targets]` with the label of each target.
    """
    if text in ("predicted", "all"):
        return None
    if text == "label":
        labels = graphs.labels
        if labels is None or (labels.is_floating_point() and bool((labels != labels.round()).any())):
            raise InputError(
                "--target label needs integers y in the data, one for each target. Use --target predicted."
            )
        return labels.long()[index]
    if text.isdecimal():
        return int(text)
    if graphs.class_names and text in graphs.class_names:
        return graphs.class_names.index(text)
    known = f", or a class of the data: {', '.join(graphs.class_names[:_FEW])}" if graphs.class_names else ""
    raise InputError(f"--target must be predicted, label, all, or the number of a class{known}; got {text!r}.")


def positions_of(part: str, graphs: Graphs) -> list[int]:
    """The targets that one part of `--index` names."""
    if graphs.ids is not None and part in graphs.ids:
        return [graphs.ids.index(part)]
    if part == "all":
        return list(range(graphs.size))
    if part in graphs.parts:
        return _of_part(part, graphs)
    if part.startswith(_ROW):
        return _numbered(part.removeprefix(_ROW), graphs)
    if graphs.ids is not None:
        return _by_id(part, graphs, graphs.ids)
    if part.isdecimal() or _RANGE.fullmatch(part):
        return _numbered(part, graphs)
    return _by_name(part, graphs)


def _of_part(part: str, graphs: Graphs) -> list[int]:
    """Every target of `train`, `val`, `test`, or another part of the data."""
    found: list[int] = graphs.parts[part].tolist()
    if not found:
        raise InputError(f"--index {part}: the data's {part} part is empty.")
    return found


def _numbered(part: str, graphs: Graphs) -> list[int]:
    """Positions: `"3"` is `[3]`, `"3-5"` is `[3, 4, 5]`."""
    low, high = _ends(part)
    if high >= graphs.size:
        raise InputError(
            f"--index names {graphs.task} {high}; there are {graphs.size} {graphs.task}s, 0 to {graphs.size - 1}."
        )
    return list(range(low, high + 1))


def _ends(part: str) -> tuple[int, int]:
    """The first and the last number of a range; a single number is both.

    >>> _ends("3-5"), _ends("7")
    ((3, 5), (7, 7))
    """
    ends = _RANGE.fullmatch(part)
    if not ends and not part.isdecimal():
        raise InputError(f"--index must have numbers or ranges such as 100-200, got {part!r}.")
    low, high = (int(ends[1]), int(ends[2])) if ends else (int(part), int(part))
    if low > high:
        raise InputError(f"--index range {part} is descending; use {high}-{low}.")
    return low, high


def _by_id(part: str, graphs: Graphs, ids: list[str]) -> list[int]:
    """Where the data has ids: a range of numeric ids, else a name."""
    if _RANGE.fullmatch(part) and all(one.isdecimal() for one in ids):
        low, high = _ends(part)
        found = [place for place, one in enumerate(ids) if low <= int(one) <= high]
        if found:
            return found
    if graphs.names is not graphs.ids and graphs.names is not None and part in graphs.names:
        return _by_name(part, graphs)
    raise InputError(
        f"--index names {part!r}, which is not an id of the data ({', '.join(ids[:_FEW])} ...). Use row:0 for a position."
    )


def _by_name(part: str, graphs: Graphs) -> list[int]:
    """The one node of that name; a name that several nodes have is refused with their positions."""
    names: Any = graphs.names or ()
    found = names.find(part) if isinstance(names, NameTable) else [n for n, name in enumerate(names) if name == part]
    if len(found) == 1:
        return found
    if found:
        places = ", ".join(f"{_ROW}{place}" for place in found[:_FEW])
        raise InputError(f"--index names {part!r}, and {len(found)} nodes have that name. Use one of {places}.")
    if part in PARTS:
        known = ", ".join(graphs.parts) or "none"
        raise InputError(
            f"--index {part} needs a {part}_mask in the data; parts that it has: {known}. Use numbers instead."
        )
    known = f" The data has nodes named {', '.join(names[:_FEW])} ..." if names else ""
    raise InputError(f"--index must have numbers, ranges such as 100-200, all, test or names; got {part!r}.{known}")
