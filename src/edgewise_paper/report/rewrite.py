"""Prints the pages of a report again from its own rows: `python -m edgewise_paper.report.rewrite docs/reproduction`.

For a change of wording or layout that needs no new numbers. Figures that rows alone can draw are drawn again; those that need
more (pictures of single nodes) are kept as they are in the folder.
"""

import sys
from pathlib import Path

from edgewise_paper.registry import EXPERIMENTS
from edgewise_paper.report.write import read_table, write_report
from edgewise_paper.runner import Reproduction
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome


def stored_run(folder: Path) -> Reproduction:
    """The run whose rows are in `results.parquet` of a folder."""
    rows = read_table(folder / "results.parquet")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.experiment, []).append(row)
    outcomes = [(Task(name, "stored", {}), TaskOutcome(some)) for name, some in groups.items()]
    seeds = max((row.seed for row in rows if row.experiment == "node-classification"), default=0) + 1
    experiments = [experiment for name, experiment in EXPERIMENTS.items() if name in groups]
    return Reproduction(PaperOptions(folder, seeds=seeds), experiments, outcomes, [])


if __name__ == "__main__":
    for path in write_report(stored_run(Path(sys.argv[1]))):
        print(path)
