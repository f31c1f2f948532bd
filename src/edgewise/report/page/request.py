"""What a page is asked to show, checked before any long work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Batch, Data

from edgewise.algorithms.registry import read_settings
from edgewise.arguments import whole_number
from edgewise.errors import InputError, SettingError
from edgewise.metrics.runs import Contender, read_levels, read_methods
from edgewise.question import pose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from edgewise.question import Question

MOST_TARGETS = 60
"""Pages are read by people; larger sets are better exported as tables."""


@dataclass(frozen=True)
class PageRequest:
    """What a page shows, checked."""

    model: nn.Module
    data: Any
    """A `Data`, or for a graph task a list of them."""
    index: list[int]
    """Nodes or graphs, at most `MOST_TARGETS`."""
    options: Mapping[str, Any]
    """`target`, `task`, `mode`, `of`, `forward` and `device`, as `explain` takes them."""
    sizes: Mapping[str, Any]
    """`memory` and `batch_size`, as `explain` takes them."""
    contenders: Sequence[Contender]
    """The methods with their settings and names."""
    levels: tuple[str, ...]
    walks: int
    """How many walks for each target; 0 for none."""
    edges: int
    """How many edges of every method, level and layer are kept."""
    check: bool
    seed: int
    question: Question
    """The same question, posed to the model once: its output, classes and layers."""


def ask(
    model: nn.Module,
    data: Any,
    index: Any,
    *,
    methods: Any,
    levels: Any,
    walks: Any,
    edges: Any,
    check: bool,
    seed: Any,
    options: dict[str, Any],
    sizes: dict[str, Any],
    own_settings: Mapping[str, Any],
) -> PageRequest:
    """Check the arguments of `write_page`.

    Args:
        model: The model.
        data: One graph or several.
        index: Nodes or graphs.
        methods: Names, pairs of a name and settings, or objects of `from_pyg`.
        levels: `"input"`, `"layer"` or both.
        walks: How many walks; `None` for none.
        edges: How many edges of every method, level and layer are kept.
        check: Whether `ew.check` is asked.
        seed: Random seed.
        options: `target`, `task`, `mode`, `of`, `forward` and `device`.
        sizes: `memory` and `batch_size`.
        own_settings: Settings that go to every method that has one of that name.
    """
    contenders = with_settings(read_methods(methods, yardsticks=False, least=1), own_settings)
    names, kept = read_levels(levels), whole_number("edges", edges, at_least=1, such_as=60)
    asked_walks = 0 if walks is None else whole_number("walks", walks, at_least=0, such_as=5)
    options = {**options, "target": read_target(options["target"]), "task": options["task"] or _task_of(data)}
    if options["task"] == "graph" and isinstance(data, Data) and not isinstance(data, Batch):
        data = [data]  # a set of one, like everything else on the page
    question = pose(model, data, index, **options)
    _check_number_of(len(question.index))
    chosen = question.index.tolist()
    return PageRequest(model, data, chosen, options, sizes, contenders, names, asked_walks, kept, check, seed, question)


def read_target(target: Any) -> Any:
    """`"predicted"` and `None` are the predicted class, as in `explain`; any other word is refused."""
    if isinstance(target, str) and target != "predicted":
        raise InputError(
            f"`target` must be a class number, one for each index, or 'predicted', got {target!r}. Use target='predicted' "
            f"for the model's own class."
        )
    return None if isinstance(target, str) else target


def with_settings(contenders: Sequence[Contender], given: Mapping[str, Any]) -> list[Contender]:
    """Every method with those of the given settings that it has; a setting that none has is refused."""
    known = {name for one in contenders for name in one.method.settings}
    if unknown := sorted(set(given) - known):
        text = ", ".join(sorted(known)) or "none"
        raise SettingError(f"No method on the page has a setting {unknown[0]!r}. Their settings are: {text}.")
    found = []
    for one in contenders:
        own = {name: value for name, value in given.items() if name in one.method.settings}
        settings = {**own, **one.settings}
        read_settings(one.method, settings)  # an impossible value is the question's fault, not the method's
        found.append(Contender(one.label, one.method, settings))
    return found


def _task_of(data: Any) -> str:
    """One graph is a node task, several are a graph task."""
    return "node" if isinstance(data, Data) and not isinstance(data, Batch) else "graph"


def _check_number_of(targets: int) -> None:
    """Refuse a page about nothing, and one that is too long to read."""
    if targets == 0:
        raise InputError("`index` must name at least one target, got none. Use index=[0], for example.")
    if targets > MOST_TARGETS:
        raise InputError(
            f"`index` must name at most {MOST_TARGETS} targets of a page, got {targets}. Use index=range(30), for example, or "
            f"save all of them as a table: ew.explain(...).save('all.parquet')."
        )
