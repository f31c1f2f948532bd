"""`edgewise reproduce`: the command, and what it prints while the experiments run.

`edgewise.cli.app` loads this file when it lists its commands, so only the command's own function imports torch.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.guard import BAD_INPUT, INTERRUPTED, guarded
from edgewise.cli.options import completing
from edgewise.cli.terminal import Voice
from edgewise.progress import Progress, terminal_bar
from edgewise.text import duration
from edgewise_paper.registry import EXPERIMENTS
from edgewise_paper.task import FLIP_EDGES, PaperOptions

if TYPE_CHECKING:
    from edgewise_paper.runner import Event

_NAMES = "Experiments: all, " + ", ".join(EXPERIMENTS) + "."
EPILOG = """Examples:

edgewise reproduce --quick

edgewise reproduce infection theorems --out reproduction

edgewise reproduce --published --seeds 10 --out published

Exit codes: 0 done, 1 bad input or a failed task, 2 wrong usage, 130 Ctrl-C (run the same command again to go on)."""


app = typer.Typer(name="edgewise reproduce", pretty_exceptions_enable=False)


@app.command(epilog=EPILOG)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=_NAMES, show_default="all", autocompletion=completing(("all", *EXPERIMENTS))),
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for real data; cheap experiments take ten or more.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the report, the figures and the cache.")] = Path("reproduction"),
    data: Annotated[
        Path | None, typer.Option(help="Folder of raw data sets; else $EDGEWISE_DATA, else downloads.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device to compute on: cpu, cuda, cuda:1.")] = "cpu",
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one thread each.")] = 2,
    flip_edges: Annotated[int, typer.Option(min=1, help="Edges to vary for sign flips.")] = FLIP_EDGES,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small grid of everything, in minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run all depths and seeds of PROTEINS too.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Run what was published as the authors' code made it.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run the paper's experiments; after an interruption, the same command goes on where it stopped."""
    options = PaperOptions(out, data, seeds, device, quick, full, flip_edges, workers, published)
    with guarded(debug=debug):
        code = _run(names or ["all"], options)
    raise typer.Exit(code)


def _run(names: list[str], options: PaperOptions) -> int:
    """Run experiments, write the report, print the paths of its files on stdout.

    Returns:
        The exit code: 0, or 1 if a task failed, or 130 after Ctrl-C.
    """
    from edgewise_paper.registry import choose

    choose(names, published=options.published)  # a misspelt name is an error before anything heavy is loaded
    from edgewise_paper.report.write import write_report
    from edgewise_paper.runner import ReproductionStopped, reproduce

    voice = Voice(quiet=False)
    try:
        with ExitStack() as stack:
            bar = stack.enter_context(terminal_bar()) if voice.is_watched else None
            run = reproduce(names, options, TaskProgress(voice, bar))
    except ReproductionStopped:
        voice.note("Stopped. Nothing is lost: run the same command again to go on.")
        return INTERRUPTED
    for path in write_report(run):
        typer.echo(str(path))
    for problem in run.problems:
        voice.note(f"\nFailed: {problem.task.title}\n{problem.problem}")
    return BAD_INPUT if run.problems else 0


class TaskProgress:
    """Shows the events of a run: on a bar, or as a line for each finished task if there is no bar.

    Unlike the pace of other commands, the time left comes from the expected costs of the tasks (`runner.Clock`).
    """

    def __init__(self, voice: Voice, bar: Progress | None = None) -> None:
        self.voice, self.bar = voice, bar
        self.running: list[str] = []

    def __call__(self, event: "Event") -> None:
        """Show what happened."""
        if event.kind == "started":
            self.running.append(event.title)
        elif event.title in self.running:
            self.running.remove(event.title)
        if self.bar is not None:
            now = f"about {duration(event.left)} left · {self.running[-1] if self.running else ''}"
            self.bar(event.done, event.total, now)
        elif event.kind != "started":
            self.voice.note(event_line(event))


def event_line(event: "Event") -> str:
    """An event as one line of a log.

    >>> from edgewise_paper.runner import Event
    >>> event_line(Event("done", "sgc: accuracy, Cora", done=3, total=9, left=75.0, seconds=12.0))
    '[3/9] sgc: accuracy, Cora: 12 s; about 1 min 15 s left'
    """
    if event.kind == "planned":
        return f"{event.total - event.done} of {event.total} tasks to do, about {duration(event.left)}"
    result = duration(event.seconds) if event.kind == "done" else "FAILED"
    return f"[{event.done}/{event.total}] {event.title}: {result}; about {duration(event.left)} left"
