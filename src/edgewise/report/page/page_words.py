"""Names of targets, classes and nodes on a page, predictions, and the settings that made it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch

from edgewise import __version__
from edgewise.arguments import shown
from edgewise.errors import InputError
from edgewise.report.page.silence import chances
from edgewise.text import plain_text

if TYPE_CHECKING:
    from edgewise.question import PosedQuestion
    from edgewise.question.target import Target
    from edgewise.report.page.page_run import Findings, PageAbout

_QUIET = ("of", "mode", "task", "top", "hops", "flow", "bypass", "way", "seed", "audit", "layers", "model")
"""Settings that are the same for every method, or that no reader needs."""
_LONGEST = 400  # letters of a setting of the user's own
_WAYS = {
    "lowered": "computed with the model lowered to a program of its layers",
    "copies": "computed with the model itself, on each target's neighbourhood",
    "whole graph": "computed with the model itself, on the whole graph",
    "outside": "computed by PyG's explainer",
}


def class_names(given: Any, target: Target, task: str = "node") -> list[str]:
    """A name for every class (for a regression, every output), from what the user gave; links are there or not.

    >>> from edgewise.question.target import choose_target
    >>> class_names({1: "toxic"}, choose_target(torch.tensor([[0.5]]), None, None, "logit"))
    ['class 0', 'toxic']
    """
    count = 2 if target.mode == "binary" else target.truth.size(1)
    noun = "output" if target.mode == "regression" else "class"
    names = [f"{noun} {number}" for number in range(count)]
    if task == "link":
        names = ["no link", "a link"] if target.mode == "binary" else ["the score"]
    if given is None:
        return names
    if isinstance(given, Mapping):
        return [plain_text(given.get(number, name)) for number, name in enumerate(names)]
    listed = isinstance(given, Collection) and not isinstance(given, (str, bytes)) and getattr(given, "ndim", 1) == 1
    if not listed or len(given) != count:
        raise InputError(
            f"`class_names` must have a name for each of the {count} classes, got {shown(given)}. Use "
            f"class_names=('no', 'yes'), for example, or a mapping {{class: name}}."
        )
    return [plain_text(name) for name in given]


def groups_of(given: Any, names: list[str]) -> Any:
    """The user's classes of nodes, with the names of the model's classes in place of their numbers.

    >>> groups_of([0, 1, "other"], ["no", "yes"])
    ['no', 'yes', 'other']
    """
    values = given.tolist() if hasattr(given, "tolist") else given

    def name(value: Any) -> Any:
        is_class = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names)
        return names[value] if is_class else value

    if isinstance(values, Mapping):
        return {node: name(value) for node, value in values.items()}
    return [name(value) for value in values] if isinstance(values, list | tuple) else values


def outputs(target: Target) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The logits and the probabilities, `[targets, classes]` each; a regression has no probabilities.

    A binary model has one logit z; its two classes have −z and z.
    """
    truth = target.truth.detach().cpu().double()
    return torch.cat([-truth, truth], dim=1) if target.mode == "binary" else truth, chances(truth, target.mode)


def names_of(given: Any, task: str, index: Any) -> Any:
    """The names of the nodes of one target's graph; for a graph task, the entry of that graph.

    >>> names_of({7: ["C", "O"]}, "graph", 7)
    ['C', 'O']
    """
    if given is None or task in ("node", "link"):
        return given
    if isinstance(given, Mapping):
        return given.get(index)
    try:
        return given[index]
    except (IndexError, KeyError, TypeError) as error:
        raise InputError(
            f"`node_names` and `node_classes` of graphs must be a mapping {{graph: names}} or have an entry for every graph, "
            f"got none for graph {index}."
        ) from error


def read_edge_texts(given: Any, question: PosedQuestion) -> dict[str, list[Any]]:
    """Texts of edges by name, each with one for every edge of the one graph."""
    if given is None:
        return {}
    if question.types is not None or not question.in_one_graph:
        raise InputError("`edge_texts` must be left out here: it is for nodes and links of one graph without types.")
    count = question.source_edge_index(0).size(1)
    if not isinstance(given, Mapping) or any(
        not isinstance(one, list | tuple) or len(one) != count for one in given.values()
    ):
        raise InputError(
            f"`edge_texts` must be a mapping {{name: texts}} with a text for each of the {count} edges, got {shown(given)}. "
            f"Use edge_texts={{'reference': [...]}}, for example."
        )
    return {str(name): list(texts) for name, texts in given.items()}


def settings_rows(asked: PageAbout, found: Findings, given: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The rows under "What made this page": (name, value), at the end those that the user gave."""
    target, types = asked.question.target, asked.question.types
    of_type = f" of type {types.explained}" if types is not None and types.explained else ""
    rows = [
        ("model", type(asked.question.subject.user_model).__name__),
        (
            "explained",
            f"{target.of} ({target.mode}), {asked.question.task} task{of_type}, {asked.question.num_layers} layers",
        ),
        ("levels", ", ".join(asked.levels)),
        ("edges kept", f"the {asked.edges} strongest of every method, level and layer"),
        ("seed", str(asked.seed)),
    ]
    if found.walks:
        rows.append(("walks", f"{asked.walks} best, exact search"))
    rows += _method_rows(asked, found)
    import torch_geometric

    versions = f"edgewise {__version__}, torch {torch.__version__}, PyG {torch_geometric.__version__}"
    rows.append(("versions", versions))
    return [
        *rows,
        *((plain_text(name, _LONGEST), plain_text(value, _LONGEST)) for name, value in (given or {}).items()),
    ]


def _method_rows(asked: PageAbout, found: Findings) -> list[tuple[str, str]]:
    """The settings of each method, and how the model was run; once, where the levels do not differ."""
    rows = []
    for one in asked.contenders:
        told: dict[str, str] = {}
        for level in asked.levels:
            if (made := found.sets.get((one.label, level))) is None:
                told[level] = "did not run"
                continue
            own = {name: value for name, value in made.settings.items() if name not in _QUIET and value is not None}
            text = ", ".join(f"{name}={value}" for name, value in own.items())
            told[level] = (
                "; ".join(part for part in (text, _WAYS.get(str(made.settings.get("way")), "")) if part)
                or "drawn at random"
            )
        if len(set(told.values())) == 1:
            told = {"": next(iter(told.values()))}
        rows += [(f"{one.label}{f', {level} level' if level else ''}", text) for level, text in told.items()]
    return rows
