"""The one table of experiments; their modules load when they are needed, so that a help text needs no torch."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from edgewise.errors import SettingError


@dataclass(frozen=True)
class Experiment:
    """One row: `module` has `tasks(options)`, what there is to do, and `run(task, desk)`, which does one of them."""

    name: str
    title: str

    @property
    def module(self) -> Any:
        """The file of the experiment."""
        return import_module(f"edgewise.experiments.{self.name.replace('-', '_')}")


_ROWS = (
    Experiment("negative-evidence", "Negative Evidence, two colours"),
    Experiment("negative-evidence-multiclass", "Negative Evidence, three colours"),
    Experiment("infection", "Infection: similarities and paths"),
    Experiment("node-classification", "Real data, node classification"),
    Experiment("graph-classification", "Real data, graph classification"),
    Experiment("sgc", "The linear network on Cora"),
    Experiment("regularisation", "What the regularisers of GNNExplainer do"),
    Experiment("theorems", "Propositions and corollaries on random networks"),
    Experiment("beyond", "What Edgewise adds"),
)
EXPERIMENTS = {row.name: row for row in _ROWS}


def find(name: str) -> Experiment:
    """The experiment of that name, or an error that lists the known ones.

    >>> find("sgc").title
    'The linear network on Cora'
    """
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SettingError(f"There is no experiment {name!r}; known are all, {', '.join(EXPERIMENTS)}.{hint}")
    return EXPERIMENTS[name]


def choose(names: list[str]) -> list[Experiment]:
    """Those named, in the order of the table; none named, or `all`, is every one."""
    chosen = {find(name).name for name in names if name != "all"}
    return [row for row in _ROWS if not names or "all" in names or row.name in chosen]
