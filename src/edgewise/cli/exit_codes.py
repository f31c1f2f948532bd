"""Errors as sentences: what a person reads on stderr, and the exit codes that a script reads."""

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
    """Whatever goes wrong inside ends in one sentence and an exit code; with `debug` the traceback comes before it."""
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
    if debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    typer.echo(text, err=True)
    raise typer.Exit(code)


def _show_once() -> Callable[..., None]:
    """Warnings as lines; of our own kinds one each, since every piece of the work would repeat it."""
    said: set[Any] = set()

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        what = str(message) if category is UserWarning else category
        if what not in said:
            said.add(what)
            typer.echo(f"Warning: {message}", err=True)

    return show


def _as_typed(text: str) -> str:
    """The library says `task='graph'`; in a terminal that is `--task graph`.

    >>> _as_typed("For one prediction per graph, type task='graph'; or target=0.")
    'For one prediction per graph, type --task graph; or --target 0.'
    """
    return _ARGUMENT.sub(lambda found: f"--{found[1]} {found[2] or found[3]}", text)


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "The memory is full. Fewer targets at a time: --memory 500MB; or fewer targets: --index."
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else "no text"
    return f"{type(error).__name__}: {said}. This was not foreseen; --debug shows where it happened."
