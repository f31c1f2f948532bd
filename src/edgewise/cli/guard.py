"""What a command says when something goes wrong: one sentence, or with `--json` a document, and an exit code.

Every command runs inside `guarded`; `told_usage` speaks of options that are wrong. The codes are 0 done, 1 bad input, 2 wrong
usage, 3 a statement that `check --require` names does not hold, 130 Ctrl-C or SIGTERM.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

from edgewise.cli.terminal import print_json
from edgewise.errors import EdgewiseError
from edgewise.jobs.signals import terminable
from edgewise.text import printable_lines

BAD_INPUT, WRONG_USAGE, DOUBTFUL, INTERRUPTED = 1, 2, 3, 130
_LONGEST = 400
"""Letters of a sentence about a wrong option."""
for_a_program: ContextVar[bool] = ContextVar("for_a_program", default=False)
"""Whether the command line has `--json`: then an error is a document, too."""
_ARGUMENT = re.compile(r"\b(task|mode|of|output|device|target|level)=(?:'(\w+)'|(\d+))")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM in the middle of the work; the text says what was kept."""


@contextmanager
def guarded(*, debug: bool) -> Iterator[None]:
    """Turn whatever goes wrong inside into one sentence and an exit code; with `debug` the traceback comes before it."""
    try:
        with terminable(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_once()
            yield
    except KeyboardInterrupt as stop:
        _end(str(stop) or "Stopped.", "Interrupted", INTERRUPTED, debug=debug)
    except EdgewiseError as error:
        _end(_as_typed(str(error)), type(error).__name__, BAD_INPUT, debug=debug)
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        _end(_sentence(error), type(error).__name__, BAD_INPUT, debug=debug)


def _end(text: str, kind: str, code: int, *, debug: bool) -> None:
    """Say what went wrong and exit; called while the exception is handled, whose traceback `debug` prints."""
    if debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    _tell(text, kind, as_json=for_a_program.get())
    raise typer.Exit(code)


def _tell(text: str, kind: str, *, as_json: bool) -> None:
    """One sentence on stderr; with `--json` an error is a document `{"error": …, "kind": …}` on stdout instead."""
    if as_json and kind != "Interrupted":
        print_json({"error": printable_lines(text), "kind": kind})
    else:
        typer.echo(printable_lines(text if kind == "Interrupted" else f"Error: {text}"), err=True)


def told_usage(error: Exception) -> int:
    """Say what is wrong with a command line, in one sentence, and give the exit code; an error of ours goes on."""
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]  # the help
        return int(getattr(error, "exit_code", WRONG_USAGE))
    text = " ".join(str(message()).split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    command = getattr(getattr(error, "ctx", None), "command_path", "edgewise")
    _tell(f"{text.rstrip('.')}. Run: {command} --help.", "UsageError", as_json=for_a_program.get())
    return int(getattr(error, "exit_code", WRONG_USAGE))


def _show_once() -> Callable[..., None]:
    """A `warnings.showwarning` that prints lines, each once.

    Warnings of the same class of ours count as the same, since every piece of the work would repeat them; plain
    `UserWarning`s are told apart by their text. What a library says to programmers (pyparsing to matplotlib) is left out.
    """
    said: set[Any] = set()

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        what = str(message) if category is UserWarning else category
        if what not in said and not issubclass(category, DeprecationWarning):
            said.add(what)
            typer.echo(printable_lines(f"Warning: {message}"), err=True)

    return show


def _as_typed(text: str) -> str:
    """An error of the library in the language of the terminal: `task='graph'` becomes `--task graph`.

    >>> _as_typed("For one prediction per graph, use task='graph'; or target=0.")
    'For one prediction per graph, use --task graph; or --target 0.'
    """
    return _ARGUMENT.sub(lambda found: f"--{found[1]} {found[2] or found[3]}", text)


def _sentence(error: Exception) -> str:
    """One line for an exception that is not ours: its class and the first line of its text.

    >>> _sentence(ZeroDivisionError("division by zero"))
    'ZeroDivisionError: division by zero. Unexpected error; run again with --debug for the traceback.'
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "Out of memory. Use --memory 500MB to compute fewer targets at a time, or --index to explain fewer."
    lines = str(error).strip().splitlines()
    said = lines[0].rstrip(".") if lines else "no message"
    return f"{type(error).__name__}: {said}. Unexpected error; run again with --debug for the traceback."
