"""`CliQuestion`: everything that a command needs before it can ask the library, read from the shared options.

`read_question` reads the parts in the order in which mistakes are cheapest to find: arguments, data, targets, classes,
model, weights. `read_targets` and `read_classes` turn the texts of `--index` and `--target` into numbers.

`--index` is a list with commas; each part is, in this order: an id of the data, `all`, a part of the data (`test`), a
position (`row:3`), a number or a range, or a name. Where the data has ids, plain numbers are ids. Of a typed graph it begins
with the node type: `account:3,5-9`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.arrays import asked_index
from edgewise.cli.named_values import named_values
from edgewise.cli.options import CommonOptions
from edgewise.cli.read.data import read_data
from edgewise.cli.read.graphs import PARTS, Graphs, NodeNames
from edgewise.cli.read.links import read_links
from edgewise.cli.read.trained_model import load_weights, make_model
from edgewise.cli.terminal import Voice
from edgewise.errors import InputError, ModelError
from edgewise.files import digest_of
from edgewise.question import pose
from edgewise.question.target import Target
from edgewise.text import printable, typed_name

_RANGE = re.compile(r"(\d+)-(\d+)")
_FEW = 5
_ROW = "row:"  # a position, where the data has ids


@dataclass(frozen=True, eq=False)
class CliQuestion:
    """A model, data, and the targets in it."""

    model: nn.Module
    """In eval mode, with its weights."""
    graphs: Graphs
    index: Tensor
    """`[targets]`: positions of nodes or graphs; `[targets, 2]`: the ends of links."""
    classes: Any
    """`None` for the predicted ones; else an int, or a tensor `[targets]`."""
    hashes: Mapping[str, str | None]
    """SHA-256 of the model's source, the weights and the data; `None` where there is no file."""
    asked: CommonOptions

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments that `explain`, `walks`, `compare` and `check` take in the same way."""
        asked = self.asked
        return {
            "task": self.graphs.task,
            "mode": asked.mode,
            "of": asked.of,
            "output": asked.output,
            "device": asked.device,
            "memory": asked.memory,
            **({"without_itself": True} if asked.without_itself else {}),
        }

    def classes_of(self, positions: slice) -> Any:
        """The classes of some of the targets, in the form of `classes`."""
        return self.classes[positions] if isinstance(self.classes, Tensor) else self.classes

    def targets(self, positions: slice) -> Any:
        """Some of the targets as `ew.explain` takes them: a list, or of a typed graph `(node type, list)`."""
        listed = self.index[positions].tolist()
        return listed if self.graphs.explained is None else (self.graphs.explained, listed)

    def answers(self, count: int) -> Target:
        """The model's output for the first `count` targets, and the classes that are explained."""
        asked = {name: value for name, value in self.options.items() if name != "memory"}
        some = self.targets(slice(count)) if self.graphs.explained else asked_index(self.index[:count])
        return pose(
            self.model, self.graphs.data, some, target=self.classes_of(slice(count)), forward=None, **asked
        ).target

    def node_name(self, node: Any) -> str:
        """The data's name of a node, safe to print; its number if it has none. Of a typed graph with its type before it."""
        if isinstance(node, tuple):
            kind, number = node
            names = (self.graphs.types or {}).get(kind, NodeNames()).names
            return printable(typed_name(kind, number, names))
        return printable(self.graphs.names[node]) if self.graphs.names else str(node)

    def target_name(self, index: Any) -> str:
        """The name of a node that is explained, of both ends of a link, or the number of a graph."""
        if self.graphs.task == "link":
            return " : ".join(self.node_name(end) for end in index)
        return self.node_name(index) if self.graphs.task == "node" else str(index)

    def class_name(self, number: int) -> str:
        """The data's name of a class, safe to print; its number if it has none. A link is there or not."""
        known = self.graphs.class_names
        if self.graphs.task == "link" and self.asked.mode != "regression" and self.asked.output != "value":
            known = ["no link", "link"]
        return printable(known[number]) if known and number < len(known) else str(number)


def read_question(asked: CommonOptions, voice: Voice) -> CliQuestion:
    """Read and check everything that the shared options name; notes about it go to `voice`.

    Data comes before the model, so that an error about the model's arguments can name the sizes of the data.
    """
    arguments = named_values(asked.model_args, "--model-args")
    graphs = read_data(asked.data, asked.root, "link" if asked.link and asked.task is None else asked.task, asked.seed)
    for note in graphs.notes:
        voice.note(note)
    text = asked.index
    if graphs.types is not None and (asked.link or graphs.task == "link"):
        raise InputError(
            "--link names pairs of nodes of one type; the data is a typed graph. Use --index TYPE:3 for nodes."
        )
    if graphs.types is not None and graphs.task == "node":
        graphs, text = read_type(asked.index, graphs)
    index = read_links(asked, graphs, _positions) if graphs.task == "link" or asked.link else read_targets(text, graphs)
    classes = read_classes(asked.target, graphs, index)
    model, source = _read_model(asked, arguments, graphs, voice)
    hashes = {
        "model source": digest_of(source) if source is not None else None,
        "weights": digest_of(asked.weights) if asked.weights is not None else None,
        "data": graphs.digest,
    }
    return CliQuestion(model, graphs, index, classes, hashes, asked)


def _read_model(
    asked: CommonOptions, arguments: dict[str, Any], graphs: Graphs, voice: Voice
) -> tuple[nn.Module, Path | None]:
    """The model with its weights, and its source file; without `--model`, the one that a generated data set brings."""
    if asked.model is None:
        if graphs.model is None:
            raise ModelError("There is no --model. Use --model package.module:factory and --weights weights.pt.")
        if asked.weights is not None or arguments:
            raise ModelError("--weights and --model-args need a --model that they belong to.")
        voice.note("No --model: a small one is trained for this data set.")
        return graphs.model(), None
    model, source = make_model(asked.model, arguments, asked.seed, graphs.shape_hint)
    if asked.weights is None:
        voice.note(
            "No --weights: the model is explained as the factory made it, untrained unless the factory loads weights."
        )
        return model, source
    for note in load_weights(model, asked.weights):
        voice.note(note)
    return model, source


# --- `--index` and `--target` -------------------------------------------------------------------------------------------


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
            found += _positions(part, graphs)
    if not found:
        raise InputError(
            f"--index names no {graphs.task}, got {text!r}. Use --index 0, --index 3,17,100-200 or --index all."
        )
    return torch.tensor(list(dict.fromkeys(found)))


def read_classes(text: str, graphs: Graphs, index: Tensor) -> Any:
    """The class or classes that `--target` names, as `ew.explain` takes them.

    Returns:
        `None` for the predicted class, an int for one class, or a tensor `[targets]` with the label of each target.
    """
    if text == "predicted":
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
    raise InputError(f"--target must be predicted, label, or the number of a class{known}; got {text!r}.")


def _positions(part: str, graphs: Graphs) -> list[int]:
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
    found = [place for place, name in enumerate(graphs.names or ()) if name == part]
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
    names = f" The data has nodes named {', '.join((graphs.names or [])[:_FEW])} ..." if graphs.names else ""
    raise InputError(f"--index must have numbers, ranges such as 100-200, all, test or names; got {part!r}.{names}")
