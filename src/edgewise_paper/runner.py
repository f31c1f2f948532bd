"""Runs experiments: what is done is skipped, what is not is given to workers, longest first; everything ends in a report."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from edgewise_paper.registry import Experiment, choose
from edgewise_paper.store import Store
from edgewise_paper.task import PaperOptions, Task, TaskOutcome
from edgewise_paper.workers import TaskReport, Worker, end, first_ready

# --- Time left: expected costs of what remains, corrected by how the finished ones went --------------------------------


TRUST = 30.0  # seconds of finished work after which measurements count as much as the estimates


class Clock:
    """Costs are estimates made on one machine; the ratio to measured seconds is learnt while running.

    >>> clock = Clock([10.0, 100.0], workers=1)
    >>> clock.finished(cost=10.0, seconds=20.0)
    >>> round(clock.left)                       # 100 s expected, things seem to take a little longer than expected
    125
    """

    def __init__(self, costs: Sequence[float], workers: int) -> None:
        self.remaining, self.longest = sum(costs), max(costs, default=0.0)
        self.workers = max(workers, 1)
        self.expected, self.measured = 0.0, 0.0

    def finished(self, cost: float, seconds: float) -> None:
        """A task is done."""
        self.remaining -= cost
        self.expected += cost
        self.measured += seconds

    @property
    def left(self) -> float:
        """Seconds."""
        ratio = (TRUST + self.measured) / (TRUST + self.expected)
        return max(self.remaining, 0.0) * ratio / self.workers


# --- The whole ---------------------------------------------------------------------------------------------------------


Teller = Callable[["Event"], None]


@dataclass(frozen=True)
class Event:
    """Something to tell the user: a task was started or has ended."""

    kind: str
    """`"planned"`, `"started"`, `"done"` or `"failed"`."""
    title: str
    done: int
    total: int
    left: float
    """Seconds, estimated."""
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Reproduction:
    """What is there after a run."""

    options: PaperOptions
    experiments: list[Experiment]
    outcomes: list[tuple[Task, TaskOutcome]]
    notes: list[str]
    """What was left out, and why."""
    problems: list[TaskReport] = field(default_factory=list)
    unfinished: int = 0


class ReproductionStopped(Exception):  # noqa: N818 - not an error
    """Ctrl-C, or SIGTERM."""


def plan(names: Sequence[str], options: PaperOptions) -> tuple[list[Experiment], list[Task], list[str]]:
    """The experiments, their tasks (each once), and notes about what is left out."""
    experiments = choose(list(names))
    tasks: dict[str, Task] = {}
    notes: list[str] = []
    for experiment in experiments:
        found = experiment.module.tasks(options)
        notes += getattr(experiment.module, "notes", lambda _: [])(options)
        for task in found:
            tasks.setdefault(task.key, task)
            if task.after is not None:
                tasks.setdefault(task.after.key, task.after)
    return experiments, list(tasks.values()), notes


def reproduce(names: Sequence[str], options: PaperOptions, tell: Teller = lambda _: None) -> Reproduction:
    """Run experiments and collect their results; an interrupted run raises `ReproductionStopped` and can be run again.

    The same call again does only what is missing.
    """
    store = Store(options.out)
    experiments, tasks, notes = plan(names, options)
    _read_data(tasks, options)
    problems = _Shift(options, store, tasks, tell).run()
    outcomes = [(task, found) for task in tasks if (found := store.result(task)) is not None]
    return Reproduction(options, experiments, outcomes, notes, problems, len(tasks) - len(outcomes))


def _read_data(tasks: list[Task], options: PaperOptions) -> None:
    """Read every real data set once before workers do: what is missing is said at once, and nobody writes at the same time."""
    names = {training["dataset"] for task in tasks if (training := task.settings.get("training"))}
    if names:
        from edgewise_paper.context import Context

        context = Context(options)
        for name in sorted(names):
            context.read(name)


class _Shift:
    """The work of one run."""

    def __init__(self, options: PaperOptions, store: Store, tasks: list[Task], tell: Teller) -> None:
        self.options, self.tell, self.total = options, tell, len(tasks)
        self.waiting = _longest_first([task for task in tasks if not store.has(task)])
        self.open = {task.key for task in self.waiting}
        self.clock = Clock([task.cost for task in self.waiting], options.workers)
        self.problems: list[TaskReport] = []

    def run(self) -> list[TaskReport]:
        """Everything that is not done; what could not be done."""
        self._say("planned", "")
        if not self.waiting:
            return []
        number = min(self.options.workers, len(self.waiting))
        workers = [Worker(self.options) for _ in range(number)]
        try:
            with _signals_raise():
                self._work(workers)
        except KeyboardInterrupt:
            raise ReproductionStopped from None
        finally:
            end(workers)
        return self.problems

    def _work(self, workers: list[Worker]) -> None:
        while self.open:
            for worker in workers:
                if worker.task is None and (task := self._next()) is not None:
                    worker.give(task)
                    self._say("started", task.title)
            place = workers.index(first_ready(workers))
            report = workers[place].report()
            if not workers[place].process.is_alive():
                workers[place] = Worker(self.options)
            self._finish(report)

    def _next(self) -> Task | None:
        for place, task in enumerate(self.waiting):
            if task.after is None or task.after.key not in self.open:
                return self.waiting.pop(place)
        return None

    def _finish(self, report: TaskReport) -> None:
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
        self._say("failed" if report.problem else "done", task.title, report.seconds, report.problem)

    def _say(self, kind: str, title: str, seconds: float = 0.0, problem: str = "") -> None:
        done = self.total - len(self.open)
        self.tell(Event(kind, title, done, self.total, self.clock.left, seconds, problem))


def _needs(task: Task, other: Task) -> bool:
    return task.after is not None and (task.after.key == other.key or _needs(task.after, other))


def _longest_first(tasks: list[Task]) -> list[Task]:
    """By a task's own cost and that of the longest that waits for it."""
    behind: dict[str, float] = {}
    for task in tasks:
        if task.after is not None:
            behind[task.after.key] = max(behind.get(task.after.key, 0.0), task.cost)
    return sorted(tasks, key=lambda task: -(task.cost + behind.get(task.key, 0.0)))


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C; only the main thread may say so."""

    def stop(_signal: int, _frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- Seconds that tasks are expected to take on one core: only the order of the work and the time left depend on them ---






