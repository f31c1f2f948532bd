"""The one table of experiments. A row names its module, which loads when it is needed: a help text needs no torch."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgewise.arguments import one_of

if TYPE_CHECKING:
    from edgewise_paper.context import Context
    from edgewise_paper.task import PaperOptions, Task, TaskOutcome


@dataclass(frozen=True)
class Experiment:
    """One row of the table: what `edgewise reproduce` calls it, its title in the report, and where its functions are.

    A module has `run(task, context)`, which does one task, a function that lists the tasks (two experiments may share a
    module, each with its own list), and, where something may be left out, `notes(options)`, which says what and why.
    """

    name: str
    title: str
    module: str
    """File of this package, without `.py`."""
    list_tasks: str = "tasks"
    """Name of the function of the module that lists the tasks."""
    published: bool = False
    """Whether it belongs to `--published`: numbers made as the authors' code made them, not as the text defines them."""

    def tasks(self, options: "PaperOptions") -> "list[Task]":
        """Everything there is to do."""
        found: list[Task] = getattr(self._load(), self.list_tasks)(options)
        return found

    def run(self, task: "Task", context: "Context") -> "TaskOutcome":
        """Do one of the tasks."""
        found: TaskOutcome = self._load().run(task, context)
        return found

    def notes(self, options: "PaperOptions") -> list[str]:
        """What these options leave out, as sentences for the report."""
        found: list[str] = getattr(self._load(), "notes", lambda _: [])(options)
        return found

    def _load(self) -> Any:
        return import_module(f"edgewise_paper.{self.module}")


_AUTHORS_CODE = "authors_code.experiments"
_ROWS = (
    Experiment("negative-evidence", "Negative Evidence, two colours", "negative_evidence"),
    Experiment(
        "negative-evidence-multiclass", "Negative Evidence, three colours", "negative_evidence", "multiclass_tasks"
    ),
    Experiment("infection", "Infection: similarities and paths", "infection"),
    Experiment("node-classification", "Real data, node classification", "node_classification"),
    Experiment("graph-classification", "Real data, graph classification", "graph_classification"),
    Experiment("sgc", "The linear network on Cora", "node_classification", "linear_tasks"),
    Experiment("regularisation", "What the regularisers of GNNExplainer do", "regularisation"),
    Experiment("theorems", "Propositions and corollaries on random networks", "theorems"),
    Experiment("beyond", "What Edgewise adds", "beyond"),
    Experiment("smallest-flip", "How far are explanations from the smallest flip?", "smallest_flip"),
    Experiment("sentiment-trees", "Sentiment trees, in place of Graph-SST2", "sentiment"),
    Experiment("walk-cost", "What Algorithm 1 costs", "walk_cost"),
    Experiment(
        "published-planted", "Infection and Negative Evidence, rebuilt", _AUTHORS_CODE, "planted_tasks", published=True
    ),
    Experiment("published-linear", "The linear network, as coded", _AUTHORS_CODE, "linear_tasks", published=True),
    Experiment("published-nodes", "Node classification, as coded", _AUTHORS_CODE, "node_tasks", published=True),
    Experiment("published-graphs", "Graph classification, as coded", _AUTHORS_CODE, "graph_tasks", published=True),
)
EXPERIMENTS = {row.name: row for row in _ROWS}


def find(name: str) -> Experiment:
    """The experiment of that name, or an error that lists all names.

    >>> find("sgc").title
    'The linear network on Cora'
    >>> find("theorem")
    Traceback (most recent call last):
    edgewise.errors.SettingError: Unknown experiment 'theorem'. Choose one of: negative-evidence, ... 'theorems'?
    """
    return EXPERIMENTS[one_of("experiment", name, EXPERIMENTS, also="or all of them with all")]


def choose(names: list[str], *, published: bool = False) -> list[Experiment]:
    """The named experiments in the order of the table; every one if the list is empty or contains `all`.

    All are those of the text, or with `published` those of the authors' code.

    >>> [experiment.name for experiment in choose(["beyond", "infection"])]
    ['infection', 'beyond']
    >>> [experiment.name for experiment in choose([], published=True)][:2]
    ['published-planted', 'published-linear']
    """
    chosen = {find(name).name for name in names if name != "all"}
    every = not names or "all" in names
    return [row for row in _ROWS if row.name in chosen or (every and row.published == published)]
