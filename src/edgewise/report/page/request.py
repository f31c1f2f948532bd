"""What a page is asked to show, checked before any long work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Batch, Data

from edgewise.algorithms.registry import read_settings
from edgewise.arguments import whole_number
from edgewise.errors import InputError, SettingError
from edgewise.metrics.runs import Contender, read_levels, read_methods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgewise.question import PosedQuestion

MOST_TARGETS = 60
"""Pages are read by people; larger sets are better exported as tables."""


@dataclass(frozen=True)
class PageRequest:
    """What a page shows, checked."""

    contenders: Sequence[Contender]
    """The methods with their settings and names."""
    levels: tuple[str, ...]
    walks: int
    """How many walks for each target; 0 for none."""
    edges: int
    """How many edges of every method, level and layer are kept."""
    check: bool
    seed: int

    def about(self, question: PosedQuestion, sizes: Mapping[str, Any]) -> PageAbout:
        """The request together with the question; at most `MOST_TARGETS` targets are shown."""
        _check_number_of(len(question.index))
        return PageAbout(**vars(self), question=question.as_set(), sizes=sizes)


@dataclass(frozen=True)
class PageAbout(PageRequest):
    """A request about some targets."""

    question: PosedQuestion
    """Posed once; every method, the walks and the check ask it."""
    sizes: Mapping[str, Any]
    """`memory` and `batch_size`, as `explain` takes them."""

    @property
    def index(self) -> list[int]:
        """Nodes or graphs."""
        listed: list[int] = self.question.index.tolist()
        return listed


def read_page(
    *, methods: Any, levels: Any, walks: Any, edges: Any, check: bool, seed: Any, own_settings: Mapping[str, Any]
) -> PageRequest:
    """Check the arguments of `write_page` that say what is shown.

    Args:
        methods: Names, pairs of a name and settings, or objects of `from_pyg`.
        levels: `"input"`, `"layer"` or both.
        walks: How many walks; `None` for none.
        edges: How many edges of every method, level and layer are kept.
        check: Whether `ew.check` is asked.
        seed: Random seed.
        own_settings: Settings that go to every method that has one of that name.
    """
    contenders = with_settings(read_methods(methods, yardsticks=False, least=1), own_settings)
    names, kept = read_levels(levels), whole_number("edges", edges, at_least=1, such_as=60)
    asked_walks = 0 if walks is None else whole_number("walks", walks, at_least=0, such_as=5)
    return PageRequest(contenders, names, asked_walks, kept, check, seed)


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


def task_of(data: Any) -> str:
    """`"node"` for one graph, `"graph"` for several."""
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
