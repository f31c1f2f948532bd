"""The options that `explain`, `walks`, `compare` and `check` share: defined once, given to each command."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli import names
from edgewise.cli.guarding import guarded

_MODEL, _DATA, _QUESTION, _REPORTING = "Model", "Data", "Question", "Reporting"
DATA_NAMES = (*names.REAL, *names.PLANTED)


def _option(panel: str, help_text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=help_text, rich_help_panel=panel, **more)


def _complete(*offered: str) -> dict[str, Any]:
    return {"autocompletion": names.completing(offered)}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every question has: a model, data, targets, and how to report."""

    data: Annotated[
        str,
        _option(
            _DATA,
            "A .pt saved by PyG, an .npz with x and edge_index, a folder with nodes.csv and edges.csv (or .parquet), or a "
            f"name: {', '.join(DATA_NAMES)}.",
            **_complete(*DATA_NAMES),
        ),
    ]
    model: Annotated[
        str | None,
        _option(
            _MODEL,
            "A class or function that makes the model: package.module:factory, also of the current folder, or "
            "file.py:factory. Generated data sets bring a model of their own.",
        ),
    ] = None
    model_args: Annotated[
        list[str] | None,
        _option(_MODEL, "Arguments of the factory: --model-args hidden=64 layers=3.", metavar="KEY=VALUE ..."),
    ] = None
    weights: Annotated[
        Path | None,
        _option(_MODEL, "The trained weights: .safetensors, or a state dict in a .pt. Nothing is unpickled."),
    ] = None
    root: Annotated[
        Path | None, _option(_DATA, "Folder of named data sets; else $EDGEWISE_DATA, else PyG downloads into a cache.")
    ] = None
    index: Annotated[
        str,
        _option(
            _QUESTION,
            "Which nodes or graphs: 3,17,100-200 (both ends), all, test (train, val: the data's masks), or names of "
            "nodes. Where the data has ids, numbers are ids; row:3 is a position.",
            "--index",
            "-i",
        ),
    ] = "all"
    target: Annotated[
        str,
        _option(_QUESTION, "Which class: predicted, label (the data's y), a number, or a class name of the data."),
    ] = "predicted"
    task: Annotated[
        str | None,
        _option(_QUESTION, "node or graph; the data says, if not given.", **_complete(*names.TASKS)),
    ] = None
    mode: Annotated[
        str | None,
        _option(
            _QUESTION, "multiclass, binary or regression; else the output's width says.", **_complete(*names.MODES)
        ),
    ] = None
    of: Annotated[
        str, _option(_QUESTION, "The explained number: logit, log_prob or prob.", **_complete(*names.NUMBERS))
    ] = "logit"
    device: Annotated[str | None, _option(_QUESTION, "Where to compute: cpu, cuda, cuda:1.")] = None
    memory: Annotated[str | None, _option(_QUESTION, "Budget for targets that are computed together: 2GB.")] = None
    seed: Annotated[int, _option(_QUESTION, "Of everything that draws random numbers.")] = 0
    json: Annotated[bool, _option(_REPORTING, "Print JSON on stdout, all else on stderr.", "--json")] = False
    quiet: Annotated[bool, _option(_REPORTING, "Say nothing but errors.", "--quiet", "-q")] = False
    debug: Annotated[bool, _option(_REPORTING, "Show the traceback of an error.", "--debug")] = False


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the shared options before its own; its first argument is the `Asked`, and errors are sentences."""
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(Asked)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        asked = Asked(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        with guarded(debug=asked.debug):
            command(asked, **given)

    parameters = [*shared, *own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run
