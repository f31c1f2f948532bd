"""Runs experiments: tasks that are done are skipped, the others go to worker processes of jobs, longest first.

`reproduce` is the front door; it returns a `Reproduction`, which `report.write` turns into pages. The same call again does
only what is missing.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from edgewise.jobs.passage import Passage
from edgewise.jobs.signals import terminable
from edgewise.jobs.worker_pool import WorkerPool
from edgewise_paper.registry import Experiment, choose
from edgewise_paper.store import Store
from edgewise_paper.task import PaperOptions, Task, TaskOutcome
from edgewise_paper.workers import PATIENCE, TaskReport, paper_work, report_of


@dataclass(frozen=True)
class Event:
    """Progress of a run: a task was started or has ended."""

    kind: str
    """`"planned"` (once, before the first task), `"started"`, `"done"` or `"failed"`."""
    title: str
    done: int
    total: int
    left: float
    """Seconds left, estimated."""
    seconds: float = 0.0
    """Seconds that the task took."""
    problem: str = ""


EventHandler = Callable[[Event], None]


@dataclass(frozen=True)
class Reproduction:
    """The results of a run: whatever is in the store, of this run and of earlier ones with the same settings."""

    options: PaperOptions
    experiments: list[Experiment]
    outcomes: list[tuple[Task, TaskOutcome]]
    notes: list[str]
    """What was left out, and why."""
    problems: list[TaskReport] = field(default_factory=list)
    """Tasks that failed in this run."""
    unfinished: int = 0
    """Tasks without a result."""


class ReproductionStopped(Exception):  # noqa: N818 - not an error
    """The run was stopped by Ctrl-C or SIGTERM; the same call goes on from there."""


def reproduce(names: Sequence[str], options: PaperOptions, tell: EventHandler = lambda _: None) -> Reproduction:
    """Run experiments and collect their results.

    Args:
        names: Names of experiments (`registry.EXPERIMENTS`); empty, or `["all"]`: every one.
        options: The same for all tasks.
        tell: Called with an `Event` when a task starts or ends.

    Raises:
        ReproductionStopped: After Ctrl-C or SIGTERM; what was done is kept.
    """
    store = Store(options.out)
    experiments, tasks, notes = plan(names, options)
    _read_data(tasks, options)
    problems = _Schedule(options, store, tasks, tell).run()
    outcomes = [(task, found) for task in tasks if (found := store.result(task)) is not None]
    return Reproduction(options, experiments, outcomes, notes, problems, len(tasks) - len(outcomes))


def plan(names: Sequence[str], options: PaperOptions) -> tuple[list[Experiment], list[Task], list[str]]:
    """The experiments, their tasks (each once, with the tasks that they wait for), and notes about what is left out."""
    experiments = choose(list(names), published=options.published)
    tasks: dict[str, Task] = {}
    notes: list[str] = []
    for experiment in experiments:
        notes += experiment.notes(options)
        for task in experiment.tasks(options):
            tasks.setdefault(task.key, task)
            if task.after is not None:
                tasks.setdefault(task.after.key, task.after)
    return experiments, list(tasks.values()), notes


def _read_data(tasks: list[Task], options: PaperOptions) -> None:
    """Read every real data set once, before the workers do.

    Missing files are reported at once, and no two processes write the same processed file.
    """
    names = {training["dataset"] for task in tasks if (training := task.settings.get("training"))}
    if names:
        from edgewise_paper.context import Context

        context = Context(options)
        for name in sorted(names):
            context.read(name)


class _Schedule:
    """The open tasks of one run: which waits, which runs, which failed."""

    def __init__(self, options: PaperOptions, store: Store, tasks: list[Task], tell: EventHandler) -> None:
        self.options, self.tell, self.total = options, tell, len(tasks)
        self.waiting = _longest_first([task for task in tasks if not store.has(task)])
        self.open = {task.key for task in self.waiting}  # waiting or running
        self.clock = Clock([task.cost for task in self.waiting], options.workers)
        self.problems: list[TaskReport] = []

    def run(self) -> list[TaskReport]:
        """Do everything that is not done; the reports of tasks that failed."""
        self._tell("planned", "")
        if not self.waiting:
            return []
        pool = WorkerPool[Task](
            Passage("spawn", partial(paper_work, self.options)), self.options.workers, patience=PATIENCE
        )
        try:
            with terminable(), closing(pool.answers(self._begun)) as answers:
                for task, answer in answers:
                    self._finish(report_of(task, answer))
        except KeyboardInterrupt:
            raise ReproductionStopped from None
        return self.problems

    def _begun(self) -> Task | None:
        """The next task, told as started; None if there is none now."""
        task = self._next()
        if task is not None:
            self._tell("started", task.title)
        return task

    def _next(self) -> Task | None:
        """The longest task that waits for no other; None if all of them do."""
        for place, task in enumerate(self.waiting):
            if task.after is None or task.after.key not in self.open:
                return self.waiting.pop(place)
        return None

    def _finish(self, report: TaskReport) -> None:
        """Note the end of a task; after a failure the tasks that need it are dropped."""
        task = report.task
        self.open.discard(task.key)
        self.clock.finished(task.cost, report.seconds)
        if report.problem:
            self.problems.append(report)
            for dropped in [one for one in self.waiting if _needs(one, task)]:
                self.waiting.remove(dropped)
                self.open.discard(dropped.key)
                self.clock.finished(dropped.cost, 0.0)
                self.problems.append(TaskReport(dropped, 0.0, f"Not tried, because this failed: {task.title}"))
        self._tell("failed" if report.problem else "done", task.title, report.seconds, report.problem)

    def _tell(self, kind: str, title: str, seconds: float = 0.0, problem: str = "") -> None:
        done = self.total - len(self.open)
        self.tell(Event(kind, title, done, self.total, self.clock.left, seconds, problem))


def _needs(task: Task, other: Task) -> bool:
    """Whether a task waits for another, directly or through a third."""
    return task.after is not None and (task.after.key == other.key or _needs(task.after, other))


def _longest_first(tasks: list[Task]) -> list[Task]:
    """Sorted by a task's own cost and that of the longest that waits for it."""
    behind: dict[str, float] = {}
    for task in tasks:
        if task.after is not None:
            behind[task.after.key] = max(behind.get(task.after.key, 0.0), task.cost)
    return sorted(tasks, key=lambda task: -(task.cost + behind.get(task.key, 0.0)))


# --- The time left -----------------------------------------------------------------------------------------------------

TRUST = 30.0  # seconds of finished work after which measurements count as much as the estimates


class Clock:
    """Estimates the time left from the costs of open tasks, corrected by how long the finished ones took.

    Costs are seconds on one machine; the ratio to measured seconds is learnt while running.

    >>> clock = Clock([10.0, 100.0], workers=1)
    >>> clock.finished(cost=10.0, seconds=20.0)
    >>> round(clock.left)                       # 100 s expected, things seem to take a little longer than expected
    125
    """

    def __init__(self, costs: Sequence[float], workers: int) -> None:
        self.remaining = sum(costs)
        self.workers = max(workers, 1)
        self.expected, self.measured = 0.0, 0.0

    def finished(self, cost: float, seconds: float) -> None:
        """Count a task as done: what it was expected to take, and what it took."""
        self.remaining -= cost
        self.expected += cost
        self.measured += seconds

    @property
    def left(self) -> float:
        """Seconds until everything is done."""
        ratio = (TRUST + self.measured) / (TRUST + self.expected)
        return max(self.remaining, 0.0) * ratio / self.workers
