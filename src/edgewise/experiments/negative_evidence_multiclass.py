"""Negative Evidence with three colours: one logit a colour, so that other colours need not oppose."""

from edgewise.experiments.desk import Desk
from edgewise.experiments.negative_evidence import colour_tasks, explain_colours
from edgewise.experiments.options import Options
from edgewise.experiments.tasks import Outcome, Task

NAME = "negative-evidence-multiclass"


def tasks(options: Options) -> list[Task]:
    """One for each seed."""
    return colour_tasks(NAME, "Negative Evidence (three colours)", 3, options)


def run(task: Task, desk: Desk) -> Outcome:
    """Train, explain every test node."""
    return explain_colours(task, desk)
