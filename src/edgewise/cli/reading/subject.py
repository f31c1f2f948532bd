"""Everything that a question needs, read in the order in which mistakes are cheapest to find."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgewise.cli.asked import Asked
from edgewise.cli.reading.factory import make_model
from edgewise.cli.reading.graphs import Graphs, read_data
from edgewise.cli.reading.picking import read_classes, read_targets
from edgewise.cli.reading.values import read_pairs
from edgewise.cli.reading.weights import load_weights
from edgewise.cli.saying import Voice
from edgewise.cli.writing.manifest import digest_of
from edgewise.errors import ModelError
from edgewise.problem import pose
from edgewise.target import Target


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, data, and the targets in it."""

    model: nn.Module
    graphs: Graphs
    index: Tensor
    classes: Any
    """None: the predicted ones; else a number, or one for each target."""
    hashes: Mapping[str, str | None]
    asked: Asked

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


def read_subject(asked: Asked, voice: Voice) -> Subject:
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
    return Subject(model, graphs, index, classes, hashes, asked)


def _model(asked: Asked, arguments: dict[str, Any], graphs: Graphs, voice: Voice) -> Any:
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
