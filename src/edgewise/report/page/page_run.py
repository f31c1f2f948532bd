"""What a page is asked to show, checked before any long work, and all of it computed.

`read_page` checks the arguments and gives a `PageRequest`; with a question it is a `PageAbout`. `find` then computes
everything that the page tells: scores of every method and level, walks, agreement, and what `check` says. What a method, the
walks or `check` refuse is kept as a sentence, which the page shows in the place of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Batch, Data, HeteroData

from edgewise.algorithms.method_settings import read_settings
from edgewise.api.check import check_question
from edgewise.api.explain import explain_question
from edgewise.api.features import features_of_question
from edgewise.api.walks import walks_of_question
from edgewise.arguments import shown, whole_number
from edgewise.arrays import plain_index
from edgewise.errors import EdgewiseError, InputError, SettingError
from edgewise.metrics.pairwise import PairwiseAgreement
from edgewise.metrics.runs import Contender, Runs, check_some_ran, read_levels, read_methods, run_all
from edgewise.progress import progress_bar
from edgewise.results.score_rows import as_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgewise.metrics.runs import RunOne
    from edgewise.question import PosedQuestion
    from edgewise.results.comparison import Agreement, Key
    from edgewise.results.explanation_set import ExplanationSet
    from edgewise.results.feature_scores import FeatureSet
    from edgewise.results.walk_set import WalkSet
    from edgewise.trust.report import Report

MOST_TARGETS = 60
"""Pages are read by people; larger sets are better exported as tables."""
STRONGEST = 10
"""How many of the strongest edges the overlap of two methods compares."""


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
    def index(self) -> list[Any]:
        """Nodes or graphs, or the pairs of links."""
        return plain_index(self.question.index)


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
            f"`target` must be a class number, one for each index, or 'predicted', got {shown(target)}. Use target='predicted' "
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
    """The task of a page's data: `"node"` for one graph, `"graph"` for several."""
    return "node" if isinstance(data, (Data, HeteroData)) and not isinstance(data, Batch) else "graph"


def _check_number_of(targets: int) -> None:
    """Refuse a page about nothing, and one that is too long to read."""
    if targets == 0:
        raise InputError("`index` must name at least one target, got none. Use index=[0], for example.")
    if targets > MOST_TARGETS:
        raise InputError(
            f"`index` must name at most {MOST_TARGETS} targets of a page, got {targets}. Use index=range(30), for example, or "
            f"save all of them as a table: ew.explain(...).save('all.parquet')."
        )


# --- The run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """Results, or the sentence that says why there is none."""

    sets: Mapping[tuple[str, str], ExplanationSet]
    """(method, level) → the explanations of all targets."""
    absent: Mapping[tuple[str, str], str]
    """(method, level) → why it has none."""
    walks: tuple[WalkSet, ...] | None
    """A set for every target."""
    no_walks: str
    """Why there are none; empty if there are."""
    agreements: Mapping[Key, Agreement]
    """(first, second, level, layer, measure) → how alike two methods are."""
    report: Report | None
    no_report: str
    """Why there is none; empty if there is one."""
    features: FeatureSet | None
    """Scores of node features, by gradient × input."""
    no_features: str
    """Why there are none; empty if there are."""


def find(asked: PageAbout, *, progress: bool) -> Findings:
    """Run everything, all targets at once; what a method itself refuses is noted, unless every method refuses."""
    steps = len(asked.contenders) * len(asked.levels) + bool(asked.walks) + asked.check
    with progress_bar(progress, steps, "page", "step") as advance:
        runs = {
            level: run_all(asked.contenders, level, (asked.seed,), _runner(asked), advance) for level in asked.levels
        }
        check_some_ran([one for part in runs.values() for one in part])
        found_walks, no_walks = _walks(asked)
        advance(bool(asked.walks))
        report, no_report = _report(asked)
        advance(asked.check)
        features, no_features = _features(asked)
    every = [(one.label, level, one) for level, part in runs.items() for one in part]
    return Findings(
        {(label, level): one.sets[0] for label, level, one in every if one.sets},
        {(label, level): one.absent for label, level, one in every if one.absent},
        found_walks,
        no_walks,
        _agreements(asked, runs),
        report,
        no_report,
        features,
        no_features,
    )


def _runner(asked: PageAbout) -> RunOne:
    """How one method explains all targets of the page at one level."""

    def run(one: Contender, level: str, seed: int) -> ExplanationSet:
        own = {"method": one.method, "level": level, "seed": seed, **one.settings}
        found: Any = explain_question(asked.question, **own, **asked.sizes)
        return as_set(found, "a page")

    return run


def _walks(asked: PageAbout) -> tuple[tuple[WalkSet, ...] | None, str]:
    """The best walks of every target, or why there are none."""
    if not asked.walks:
        return None, "No walks were requested."
    memory = {"memory": asked.sizes["memory"]}
    try:
        found: Any = walks_of_question(asked.question, k=asked.walks, **memory)
        return tuple(found), ""
    except EdgewiseError as error:
        return None, str(error)


def _features(asked: PageAbout) -> tuple[FeatureSet | None, str]:
    """Which features of which nodes, or why that cannot be said."""
    try:
        found: Any = features_of_question(asked.question, **asked.sizes)
        return found, ""
    except EdgewiseError as error:
        return None, str(error)


def _report(asked: PageAbout) -> tuple[Report | None, str]:
    """What `check` says about these targets, or why it says nothing."""
    if not asked.check:
        return None, "Not requested."
    try:
        found = check_question(asked.question, seed=asked.seed, **asked.sizes)
    except EdgewiseError as error:
        return None, str(error)
    return found, ""


def _agreements(asked: PageAbout, runs: Mapping[str, list[Runs]]) -> dict[Key, Agreement]:
    """How alike every two methods are, at each level; nothing if there is only one method."""
    found: dict[Key, Agreement] = {}
    for level, part in runs.items():
        if len(part) > 1 and any(one.sets for one in part):
            table = PairwiseAgreement(part, level, asked.question.num_layers, STRONGEST, "magnitude")
            found |= table.agreements(confidence=0.95)
    return found
