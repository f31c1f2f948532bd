"""Progress for people: a bar in a terminal, a line for each finished task in a file."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from edgewise.experiments.clock import spoken

if TYPE_CHECKING:
    from edgewise.experiments.running import Event


class Teller(AbstractContextManager["Teller"]):
    """Called with every event of a run."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.bar: Any = None
        self.running: list[str] = []
        if stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=Console(file=stream))
            self.place = self.bar.add_task("", total=None)

    def __enter__(self) -> "Teller":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, event: "Event") -> None:
        """Show what happened."""
        if event.kind == "started":
            self.running.append(event.title)
        elif event.title in self.running:
            self.running.remove(event.title)
        if self.bar is not None:
            now = f"about {spoken(event.left)} left · {self.running[-1] if self.running else ''}"
            self.bar.update(self.place, completed=event.done, total=event.total, description=now)
        elif event.kind != "started":
            print(self._line(event), file=self.stream, flush=True)

    @staticmethod
    def _line(event: "Event") -> str:
        if event.kind == "planned":
            return f"{event.total - event.done} of {event.total} tasks to do, about {spoken(event.left)}"
        result = spoken(event.seconds) if event.kind == "done" else "FAILED"
        return f"[{event.done}/{event.total}] {event.title}: {result}; about {spoken(event.left)} left"
