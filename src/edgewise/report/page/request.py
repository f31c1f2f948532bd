"""What a page is asked to show, checked before any long work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Batch, Data

from edgewise.algorithms.registry import read_settings
from edgewise.errors import InputError, SettingError
from edgewise.metrics.runs import Contender, read_levels, read_methods
from edgewise.question import pose
from edgewise.report.scene import read_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from edgewise.question import Question

MOST_TARGETS = 60
"""Somebody looks at each of them; for more there are tables."""


@dataclass(frozen=True)
class PageRequest:
    """The checked question."""

    model: nn.Module
    data: Any
    index: list[int]
    options: Mapping[str, Any]
    """`target`, `task`, `mode`, `of`, `forward` and `device`, as `explain` takes them."""
    sizes: Mapping[str, Any]
    """`memory` and `batch_size`."""
    contenders: Sequence[Contender]
    levels: tuple[str, ...]
    walks: int
    edges: int
    check: bool
    seed: int
    question: Question


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
    """The question of `write_page`, checked; `own_settings` go to every method that has a setting of that name."""
    contenders = with_settings(read_methods(methods, yardsticks=False, least=1), own_settings)
    names, kept = read_levels(levels), read_count("edges", edges)
    if kept < 1:
        raise SettingError("edges is 0; needed is how many edges of a method are kept on the page, such as edges=60.")
    asked_walks = 0 if walks is None else read_count("walks", walks)
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
            f"target is {target!r}; needed is a class number, one for each index, or 'predicted' for the model's own."
        )
    return None if isinstance(target, str) else target


def with_settings(contenders: Sequence[Contender], given: Mapping[str, Any]) -> list[Contender]:
    """Every method with those of the given settings that it has; a setting that none has is refused."""
    known = {name for one in contenders for name in one.method.settings}
    if unknown := sorted(set(given) - known):
        text = ", ".join(sorted(known)) or "none"
        raise SettingError(f"No method on the page has a setting {unknown[0]!r}; their settings are: {text}.")
    found = []
    for one in contenders:
        own = {name: value for name, value in given.items() if name in one.method.settings}
        settings = {**own, **one.settings}
        read_settings(one.method, settings)  # an impossible value is the question's fault, not the method's
        found.append(Contender(one.label, one.method, settings))
    return found


def _task_of(data: Any) -> str:
    return "node" if isinstance(data, Data) and not isinstance(data, Batch) else "graph"


def _check_number_of(targets: int) -> None:
    if targets == 0:
        raise InputError("index is empty; a page needs at least one target, such as index=[0].")
    if targets > MOST_TARGETS:
        raise InputError(
            f"index has {targets} targets; a page shows at most {MOST_TARGETS}. Pick some, such as index=range(30), write "
            f"several pages, or save all of them as a table: ew.explain(...).save('all.parquet')."
        )
