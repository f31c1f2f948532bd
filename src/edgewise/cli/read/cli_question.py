"""`CliQuestion`: everything that a command needs before it can ask the library, read from the shared options.

`read_question` reads the parts in the order in which mistakes are cheapest to find: arguments, data, targets, classes,
model, weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from edgewise.cli.options import CommonOptions
from edgewise.cli.output import digest_of
from edgewise.cli.pairs import read_pairs
from edgewise.cli.read.data import Graphs, read_data
from edgewise.cli.read.model_factory import make_model
from edgewise.cli.read.targets import read_classes, read_targets
from edgewise.cli.read.weights import load_weights
from edgewise.cli.terminal import Voice
from edgewise.errors import ModelError
from edgewise.question import pose
from edgewise.question.target import Target


@dataclass(frozen=True, eq=False)
class CliQuestion:
    """A model, data, and the targets in it."""

    model: nn.Module
    """In eval mode, with its weights."""
    graphs: Graphs
    index: Tensor
    """`[targets]`: positions of nodes or graphs."""
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
        }

    def classes_of(self, positions: slice) -> Any:
        """The classes of some of the targets, in the form of `classes`."""
        return self.classes[positions] if isinstance(self.classes, Tensor) else self.classes

    def answers(self, count: int) -> Target:
        """The model's output for the first `count` targets, and the classes that are explained."""
        asked = {name: value for name, value in self.options.items() if name != "memory"}
        some = self.index[:count]
        return pose(
            self.model, self.graphs.data, some, target=self.classes_of(slice(count)), forward=None, **asked
        ).target

    def node_name(self, node: int) -> str:
        """The data's name of a node, safe to print; its number if it has none."""
        return printable(self.graphs.names[node]) if self.graphs.names else str(node)

    def target_name(self, index: int) -> str:
        """The name of a node that is explained, or the number of a graph."""
        return self.node_name(index) if self.graphs.task == "node" else str(index)

    def class_name(self, number: int) -> str:
        """The data's name of a class, safe to print; its number if it has none."""
        known = self.graphs.class_names
        return printable(known[number]) if known and number < len(known) else str(number)


def printable(text: str) -> str:
    r"""A text of the data, without characters that would steer the terminal.

    >>> printable("a\x1b[31mb")
    'a�[31mb'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def read_question(asked: CommonOptions, voice: Voice) -> CliQuestion:
    """Read and check everything that the shared options name; notes about it go to `voice`.

    Data comes before the model, so that an error about the model's arguments can name the sizes of the data.
    """
    arguments = read_pairs(asked.model_args, "--model-args")
    graphs = read_data(asked.data, asked.root, asked.task, asked.seed)
    for note in graphs.notes:
        voice.note(note)
    index = read_targets(asked.index, graphs)
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
