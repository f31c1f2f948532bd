"""Names on the page of a job: of classes, nodes, edges and targets, as the user gave them, or as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgewise.arguments import shown
from edgewise.contract import fits
from edgewise.errors import InputError
from edgewise.text import plain_text, read_labels, typed_name

if TYPE_CHECKING:
    from edgewise.graph.type_table import TypeTable
    from edgewise.jobs.summary.job_facts import JobFacts

_MOST_CLASSES = 10**6  # a list is made up to the largest number that has a name


@dataclass(frozen=True, eq=False)
class JobNames:
    """What things are called."""

    classes: list[str]
    """Names of the first classes; the others have numbers."""
    nodes: Mapping[int, str]
    """Names of nodes; of a typed graph by their number in the union of the types."""
    noun: str = "class"
    types: TypeTable | None = None
    story: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says about the question."""

    @classmethod
    def read(cls, facts: JobFacts, manifest: Mapping[str, Any], class_names: Any, node_names: Any) -> JobNames:
        """The names that a user gave for a job."""
        settings, sample = facts.settings, facts.sample
        noun = "output" if settings.get("mode") == "regression" else "class"
        types = None if sample is None else sample.types
        is_link = settings.get("task") == "link" and noun == "class"
        classes = ["no link", "a link"] if is_link and class_names is None else _classes(class_names, noun)
        nodes: Mapping[int, str] = {}
        if node_names is not None and sample is not None and len(sample.graphs) == 1:
            nodes = _typed(node_names, types) if types else read_labels(node_names, sample.graphs[0][1])
        about = {
            name: value
            for name, value in manifest["identity"].get("question", {}).items()
            if value not in (None, [], {}, False)
        }
        versions = ", ".join(f"{name} {value}" for name, value in manifest["identity"].get("versions", {}).items())
        return cls(classes, nodes, noun, types, {**about, "begun": manifest.get("begun"), "versions": versions})

    def of_class(self, number: int) -> str:
        """The name of a class."""
        return self.classes[number] if 0 <= number < len(self.classes) else f"{self.noun} {number}"

    def node(self, number: int) -> str:
        """The name of a node; of a typed graph with its type."""
        if self.types is not None:
            kind, inside = self.types.node(number)
            return typed_name(kind, inside, {inside: self.nodes[number]} if number in self.nodes else None)
        return self.nodes.get(number, str(number))

    def short(self, number: int) -> str:
        """The number of a node; of a typed graph that in its type."""
        return str(number if self.types is None else self.types.node(number)[1])

    def edge(self, column: int, source: int, receiver: int) -> str:
        """An edge by its ends; of a typed graph with its relation, where that is not the only one."""
        relation = f" ({self.types.edge(column)[0][1]})" if self.types is not None and len(self.types.edges) > 1 else ""
        return f"{self.node(source)} → {self.node(receiver)}{relation}"

    def target(self, index: Any, task: str) -> str:
        """A target in words, from its number in the job."""
        if task == "link":
            return " – ".join(map(self.node, index))
        if task == "graph":
            return f"graph {index}"
        return self.node(index) if self.types is not None or index in self.nodes else f"node {index}"


def _classes(given: Any, noun: str) -> list[str]:
    """Names of classes, from a sequence or a mapping."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        if all(type(number) is int and 0 <= number < _MOST_CLASSES for number in given):
            return [plain_text(given.get(number, f"{noun} {number}")) for number in range(1 + max(given, default=-1))]
    elif fits("Sequence", given):
        return [plain_text(name) for name in given]
    raise InputError(f"`class_names` must be a list of names or a mapping {{class: name}}, got {shown(given)}.")


def _typed(given: Any, types: TypeTable) -> dict[int, str]:
    """Names by node type, as names of the nodes of the union."""
    if not isinstance(given, Mapping) or set(given) - set(types.node_types):
        raise InputError(
            f"`node_names` of a typed graph must be a mapping {{node type: names}} with types of "
            f"{', '.join(types.node_types)}, got {shown(given)}."
        )
    found: dict[int, str] = {}
    for kind, names in given.items():
        numbers = types.node_range(kind)
        found |= {numbers.start + at: name for at, name in read_labels(names, len(numbers)).items()}
    return found
