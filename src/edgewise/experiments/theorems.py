"""Each proposition and corollary of the paper on random networks in float64, with the worst deviation seen.

Where a statement does not hold as printed, the corrected one is checked beside it.
"""

import time

from edgewise.experiments.desk import Desk
from edgewise.experiments.options import Options
from edgewise.experiments.tasks import Outcome, Task
from edgewise.experiments.theorem_checks import CHECKS

NAME = "theorems"
TRIALS, QUICK_TRIALS = 50, 5


def tasks(options: Options) -> list[Task]:
    """One for each statement."""
    trials = QUICK_TRIALS if options.quick else TRIALS
    return [Task(NAME, name, {"trials": trials, "seed": 0}, 5.0) for name in CHECKS]


def run(task: Task, _desk: Desk) -> Outcome:
    """The worst of many random networks: zero up to rounding, or the statement does not hold."""
    check, trials = CHECKS[task.part], task.settings["trials"]
    start = time.perf_counter()
    worst = max(check(trial) for trial in range(trials))
    seconds = time.perf_counter() - start
    return Outcome([task.row("worst deviation", worst, method=task.part, count=trials, seconds=seconds)])
