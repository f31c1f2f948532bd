"""Errors as sentences: what a person reads on stderr, and the exit codes that a script reads.

Every command runs inside `guarded`. The codes: 0 done, 1 bad input, 2 wrong usage (typer's own), 3 a statement that
`check --require` names does not hold, 130 Ctrl-C.
"""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from edgewise.errors import EdgewiseError

BAD_INPUT, DOUBTFUL, INTERRUPTED = 1, 3, 130
_ARGUMENT = re.compile(r"\b(task|mode|of|device|target|level)=(?:'(\w+)'|(\d+))")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of the work; the text says what was kept."""


@contextmanager
def guarded(*, debug: bool) -> Iterator[None]:
    """Turn whatever goes wrong inside into one sentence and an exit code; with `debug` the traceback comes before it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_once()
            yield
    except KeyboardInterrupt as stop:
        _end(str(stop) or "Stopped.", INTERRUPTED, debug=debug)
    except EdgewiseError as error:
        _end(f"Error: {_as_typed(str(error))}", BAD_INPUT, debug=debug)
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        _end(f"Error: {_sentence(error)}", BAD_INPUT, debug=debug)


def _end(text: str, code: int, *, debug: bool) -> None:
    """Print the sentence on stderr and exit; called while the exception is handled, whose traceback `debug` prints."""
    if debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    typer.echo(text, err=True)
    raise typer.Exit(code)


def _show_once() -> Callable[..., None]:
    """A `warnings.showwarning` that prints lines, each once.

    Warnings of the same class of ours count as the same, since every piece of the work would repeat them; plain
    `UserWarning`s are told apart by their text.
    """
    said: set[Any] = set()

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        what = str(message) if category is UserWarning else category
        if what not in said:
            said.add(what)
            typer.echo(f"Warning: {message}", err=True)

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
