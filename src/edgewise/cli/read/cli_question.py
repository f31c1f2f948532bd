"""Everything that a question needs, read in the order in which mistakes are cheapest to find."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.cli.options import CommonOptions, read_pairs
from edgewise.cli.output import digest_of
from edgewise.cli.read.data import PARTS, Graphs, read_data
from edgewise.cli.read.model_factory import load_weights, make_model
from edgewise.cli.terminal import Voice
from edgewise.errors import InputError, ModelError
from edgewise.question import pose
from edgewise.question.target import Target

# --- `--index` and `--target`: texts into numbers of targets and classes -----------------------------------------------


_RANGE = re.compile(r"(\d+)-(\d+)")
_FEW = 5
_ROW = "row:"  # a position, where the data has ids


def read_targets(text: str, graphs: Graphs) -> Tensor:
    """The nodes or graphs, in the order in which they were named, each once."""
    found: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part:
            found += _positions(part, graphs)
    if not found:
        raise InputError(
            f"--index is {text!r}, which names no {graphs.task}. Type --index 0, --index 3,17,100-200 or --index all."
        )
    return torch.tensor(list(dict.fromkeys(found)))


def _positions(part: str, graphs: Graphs) -> list[int]:
    if graphs.ids is not None and part in graphs.ids:
        return [graphs.ids.index(part)]
    if part == "all":
        return list(range(graphs.size))
    if part in graphs.parts:
        return _part(part, graphs)
    if part.startswith(_ROW):
        return _numbered(part.removeprefix(_ROW), graphs)
    if graphs.ids is not None:
        return _by_id(part, graphs, graphs.ids)
    if part.isdecimal() or _RANGE.fullmatch(part):
        return _numbered(part, graphs)
    return _by_name(part, graphs)


def _part(part: str, graphs: Graphs) -> list[int]:
    found: list[int] = graphs.parts[part].tolist()
    if not found:
        raise InputError(f"--index {part}: the data's {part} part is empty.")
    return found


def _numbered(part: str, graphs: Graphs) -> list[int]:
    low, high = _ends(part, graphs)
    if high >= graphs.size:
        raise InputError(
            f"--index names {graphs.task} {high}; there are {graphs.size} {graphs.task}s, 0 to {graphs.size - 1}."
        )
    return list(range(low, high + 1))


def _ends(part: str, graphs: Graphs) -> tuple[int, int]:
    ends = _RANGE.fullmatch(part)
    if not ends and not part.isdecimal():
        raise InputError(f"--index has {part!r}; needed is a number or a range such as 100-200.")
    low, high = (int(ends[1]), int(ends[2])) if ends else (int(part), int(part))
    if low > high:
        raise InputError(f"--index has {part!r}, which goes down; type {high}-{low}.")
    return low, high


def _by_id(part: str, graphs: Graphs, ids: list[str]) -> list[int]:
    if _RANGE.fullmatch(part) and all(one.isdecimal() for one in ids):
        low, high = _ends(part, graphs)
        found = [place for place, one in enumerate(ids) if low <= int(one) <= high]
        if found:
            return found
    if graphs.names is not graphs.ids and graphs.names is not None and part in graphs.names:
        return _by_name(part, graphs)
    raise InputError(
        f"--index names {part!r}, which is no id of the data ({', '.join(ids[:_FEW])} ...); a position is row:0."
    )


def _by_name(part: str, graphs: Graphs) -> list[int]:
    found = [place for place, name in enumerate(graphs.names or ()) if name == part]
    if len(found) == 1:
        return found
    if found:
        places = ", ".join(f"{_ROW}{place}" for place in found[:_FEW])
        raise InputError(f"--index names {part!r}, which {len(found)} nodes are called; say which: {places}.")
    if part in PARTS:
        known = ", ".join(graphs.parts) or "none"
        raise InputError(
            f"--index {part} needs a {part}_mask in the data; parts that it has: {known}. Name numbers instead."
        )
    names = f" It has nodes called {', '.join((graphs.names or [])[:_FEW])} ..." if graphs.names else ""
    raise InputError(f"--index has {part!r}; needed are numbers, ranges such as 100-200, all, test or names.{names}")


def read_classes(text: str, graphs: Graphs, index: Tensor) -> Any:
    """What `target=` of `explain` takes: None for the predicted class, a number, or one for each target."""
    if text == "predicted":
        return None
    if text == "label":
        labels = graphs.labels
        if labels is None or (labels.is_floating_point() and bool((labels != labels.round()).any())):
            raise InputError(
                "--target label needs whole numbers y in the data, one for each target. Type --target predicted."
            )
        return labels.long()[index]
    if text.isdecimal():
        return int(text)
    if graphs.class_names and text in graphs.class_names:
        return graphs.class_names.index(text)
    known = f", or a class of the data: {', '.join(graphs.class_names[:_FEW])}" if graphs.class_names else ""
    raise InputError(f"--target is {text!r}; needed is predicted, label, or the number of a class{known}.")


# --- The whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CliQuestion:
    """A model, data, and the targets in it."""

    model: nn.Module
    graphs: Graphs
    index: Tensor
    classes: Any
    """None: the predicted ones; else a number, or one for each target."""
    hashes: Mapping[str, str | None]
    asked: CommonOptions

    @property
    def options(self) -> dict[str, Any]:
        """What `explain`, `walks`, `compare` and `check` take in the same way."""
        asked = self.asked
        return {
            "task": self.graphs.task,
            "mode": asked.mode,
            "of": asked.of,
            "device": asked.device,
            "memory": asked.memory,
        }

    def classes_of(self, positions: slice) -> Any:
        """The classes of some of the targets."""
        return self.classes[positions] if isinstance(self.classes, Tensor) else self.classes

    def answers(self, count: int) -> Target:
        """What the model says about the first targets."""
        asked = {name: value for name, value in self.options.items() if name != "memory"}
        some = self.index[:count]
        return pose(
            self.model, self.graphs.data, some, target=self.classes_of(slice(count)), forward=None, **asked
        ).target

    def node_name(self, node: int) -> str:
        """For people: the data's name of a node, else its number."""
        return printable(self.graphs.names[node]) if self.graphs.names else str(node)

    def target_name(self, index: int) -> str:
        """The node, or the graph, for people."""
        return self.node_name(index) if self.graphs.task == "node" else str(index)

    def class_name(self, number: int) -> str:
        """The data's name of a class, else its number."""
        known = self.graphs.class_names
        return printable(known[number]) if known and number < len(known) else str(number)


def printable(text: str) -> str:
    """A text of the data, without what would steer the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def read_subject(asked: CommonOptions, voice: Voice) -> CliQuestion:
    """Data first, since errors about the model's arguments can then name the numbers that it needs."""
    arguments = read_pairs(asked.model_args, "--model-args")
    graphs = read_data(asked.data, asked.root, asked.task, asked.seed)
    for note in graphs.notes:
        voice.note(note)
    index = read_targets(asked.index, graphs)
    classes = read_classes(asked.target, graphs, index)
    model, source = _model(asked, arguments, graphs, voice)
    hashes = {
        "model source": digest_of(source) if source is not None else None,
        "weights": digest_of(asked.weights) if asked.weights is not None else None,
        "data": graphs.digest,
    }
    return CliQuestion(model, graphs, index, classes, hashes, asked)


def _model(asked: CommonOptions, arguments: dict[str, Any], graphs: Graphs, voice: Voice) -> Any:
    if asked.model is None:
        if graphs.model is None:
            raise ModelError("There is no --model. Type --model package.module:factory and --weights weights.pt.")
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
