"""`CliQuestion`: everything that a command needs before it can ask the library, read from the shared options.

`read_question` reads the parts in the order in which mistakes are cheapest to find: arguments, data, targets, classes,
model, weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.arrays import asked_index
from edgewise.cli.named_values import named_values
from edgewise.cli.options import CommonOptions
from edgewise.cli.read.data import read_data
from edgewise.cli.read.graphs import Graphs
from edgewise.cli.read.links import read_links
from edgewise.cli.read.targets import positions_of, read_classes, read_targets, read_type
from edgewise.cli.read.trained_model import load_weights, make_model
from edgewise.cli.terminal import Voice
from edgewise.errors import ModelError
from edgewise.files import digest_of
from edgewise.graph.type_table import TypeTable
from edgewise.question import pose
from edgewise.question.target import Target
from edgewise.text import printable, typed_name


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

    @property
    def type(self) -> Any:
        """Of a typed graph: the node type, or of links the edge type, that is explained; else None."""
        return self.graphs.link or self.graphs.explained

    @property
    def stored_index(self) -> Tensor:
        """The targets as results keep them: the ends of typed links are nodes of the union of all types."""
        if self.graphs.link is None:
            return self.index
        data, kind = self.graphs.data, self.graphs.link
        nodes = tuple((name, int(data[name].num_nodes)) for name in data.node_types)
        return self.index + torch.tensor(TypeTable(kind[0], nodes, (), kind).link_starts)

    def targets(self, positions: slice) -> Any:
        """Some of the targets as `ew.explain` takes them: a list, or of a typed graph `(type, list)`."""
        listed = self.index[positions].tolist()
        return listed if self.type is None else (self.type, listed)

    def answers(self, count: int) -> Target:
        """The model's output for the first `count` targets, and the classes that are explained."""
        asked = {name: value for name, value in self.options.items() if name != "memory"}
        some = self.targets(slice(count)) if self.type else asked_index(self.index[:count])
        return pose(
            self.model, self.graphs.data, some, target=self.classes_of(slice(count)), forward=None, **asked
        ).target

    def node_name(self, node: Any, graph: int | None = None) -> str:
        """The data's name of a node (of one of several graphs), safe to print; its number if it has none.

        Of a typed graph with its type before it.
        """
        return _called(node, self.graphs.node_names if graph is None else self.graphs.names_of(graph))

    def node_label(self, node: Any, graph: int | None = None) -> str:
        """What a reader sees: the id, where the data has ids, and the name; of a typed graph with the type before them."""
        return _called(node, self.graphs.page_names if graph is None else self.graphs.names_of(graph))

    def node_id(self, node: Any) -> str | None:
        """The data's id of a node; None if it has none."""
        ids = self.graphs.node_ids
        if isinstance(node, tuple):
            kind, node = node
            ids = (ids or {}).get(kind)
        return None if ids is None else str(ids[node])

    def target_name(self, index: Any) -> str:
        """The name of a node that is explained, of both ends of a link, or the number of a graph."""
        return " : ".join(map(self.node_name, self._ends(index))) if self.graphs.is_one else str(index)

    def target_label(self, index: Any) -> str:
        """The same as a reader sees it, with ids."""
        return " : ".join(map(self.node_label, self._ends(index))) if self.graphs.is_one else str(index)

    def target_id(self, index: Any) -> str | None:
        """The id of a node that is explained, or of both ends of a link; None where the data has no ids."""
        found = {end: self.node_id(end) for end in self._ends(index)} if self.graphs.is_one else {}
        return " : ".join(own or self.node_name(end) for end, own in found.items()) if any(found.values()) else None

    def _ends(self, index: Any) -> list[Any]:
        """The node that is explained, or both ends of a link."""
        if self.graphs.task != "link":
            return [index]
        return list(index if self.graphs.link is None else zip(self.graphs.link[::2], index[1], strict=True))

    def class_name(self, number: int) -> str:
        """The data's name of a class, safe to print; its number if it has none. A link is there or not."""
        known = self.graphs.class_names
        if self.graphs.task == "link" and self.asked.mode != "regression" and self.asked.output != "value":
            known = ["no link", "link"]
        return printable(known[number]) if known and number < len(known) else str(number)


def _called(node: Any, names: Any) -> str:
    """A node by its name, of a typed graph after its type; by its number if it has none."""
    if isinstance(node, tuple):
        kind, number = node
        return printable(typed_name(kind, number, (names or {}).get(kind)))
    return printable(names[node]) if names else str(node)


def read_question(asked: CommonOptions, voice: Voice) -> CliQuestion:
    """Read and check everything that the shared options name; notes about it go to `voice`.

    Data comes before the model, so that an error about the model's arguments can name the sizes of the data.
    """
    arguments = named_values(asked.model_args, "--model-args")
    graphs = read_data(asked.data, asked.root, "link" if asked.link and asked.task is None else asked.task, asked.seed)
    for note in graphs.notes:
        voice.note(note)
    text = asked.index
    if graphs.types is not None and graphs.task == "node" and not asked.link:
        graphs, text = read_type(asked.index, graphs)
    if graphs.task == "link" or asked.link:
        graphs, index = read_links(asked, graphs, positions_of)
    else:
        index = read_targets(text, graphs)
    classes = read_classes(asked.target, graphs, index)
    model, source = _read_model(asked, arguments, graphs, voice)
    hashes = {
        "model source": digest_of(source) if source is not None else None,
        "weights": digest_of(asked.weights) if asked.weights is not None else None,
        "data": graphs.digest,
    }
    question = CliQuestion(model, graphs, index, classes, hashes, asked)
    return _of_every_class(question) if asked.target == "all" else question


def _of_every_class(question: CliQuestion) -> CliQuestion:
    """The question about every class, or column, of each target."""
    asked = {name: value for name, value in question.options.items() if name != "memory"}
    first = pose(question.model, question.graphs.data, question.targets(slice(1)), target="all", **asked)
    count, size = len(first.index), len(question.index)
    index = question.index.repeat_interleave(count, dim=0)
    return replace(question, index=index, classes=torch.arange(count).repeat(size))


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
