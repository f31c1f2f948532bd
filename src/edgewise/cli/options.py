"""The options that `explain`, `walks`, `compare` and `check` share: defined once, given to each command."""

import ast
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edgewise.cli.exit_codes import guarded
from edgewise.errors import SettingError

# --- Names that help and completion offer. Plain texts, so that neither needs torch; a test compares them with the tables ---


METHODS = (
    *("gradient", "positive_gradient", "occlusion", "gnn_explainer", "gnn_explainer_fast", "integrated_gradients"),
    *("lrp", "goat_walks", "eig_search", "shapley", "random", "full"),
)
PAGE_METHODS = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "random")
LEVELS = ("input", "layer")
TASKS = ("node", "graph")
MODES = ("multiclass", "binary", "regression")
NUMBERS = ("logit", "log_prob", "prob")
SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
SIGNS = ("positive", "negative", "magnitude")
PLANTED = (
    *("infection", "negative_evidence", "negative_evidence_multiclass"),
    *("ba_shapes", "tree_cycles", "tree_grid", "ba_2motifs"),
)
REAL = ("Cora", "CiteSeer", "PubMed", "Cornell", "Texas", "Wisconsin", "MUTAG", "PROTEINS")


def completing(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell offers for one name.

    >>> completing(("node", "graph"))("g")
    ['graph']
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.lower().startswith(incomplete.lower())]

    return complete


def completing_list(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell offers for names with commas between them: the last one is completed.

    >>> completing_list(METHODS)("random,occ")
    ['random,occlusion']
    """

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        return [",".join([*before, name]) for name in names if name.startswith(last) and name not in before]

    return complete


# --- The whole ---------------------------------------------------------------------------------------------------------


_MODEL, _DATA, _QUESTION, _REPORTING = "Model", "Data", "Question", "Reporting"
DATA_NAMES = (*REAL, *PLANTED)


def _option(panel: str, help_text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=help_text, rich_help_panel=panel, **more)


def _complete(*offered: str) -> dict[str, Any]:
    return {"autocompletion": completing(offered)}


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
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
        _option(_QUESTION, "node or graph; the data says, if not given.", **_complete(*TASKS)),
    ] = None
    mode: Annotated[
        str | None,
        _option(_QUESTION, "multiclass, binary or regression; else the output's width says.", **_complete(*MODES)),
    ] = None
    of: Annotated[str, _option(_QUESTION, "The explained number: logit, log_prob or prob.", **_complete(*NUMBERS))] = (
        "logit"
    )
    device: Annotated[str | None, _option(_QUESTION, "Where to compute: cpu, cuda, cuda:1.")] = None
    memory: Annotated[str | None, _option(_QUESTION, "Budget for targets that are computed together: 2GB.")] = None
    seed: Annotated[int, _option(_QUESTION, "Of everything that draws random numbers.")] = 0
    json: Annotated[bool, _option(_REPORTING, "Print JSON on stdout, all else on stderr.", "--json")] = False
    quiet: Annotated[bool, _option(_REPORTING, "Say nothing but errors.", "--quiet", "-q")] = False
    debug: Annotated[bool, _option(_REPORTING, "Show the traceback of an error.", "--debug")] = False


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the shared options before its own; its first argument is the `CommonOptions`, and errors are sentences."""
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(CommonOptions)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        asked = CommonOptions(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        with guarded(debug=asked.debug):
            command(asked, **given)

    parameters = [*shared, *own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


# --- Options that take several values in a row: `--model-args hidden=16 layers=3` --------------------------------------


SPREAD = ("--model-args", "--set")


def spread(arguments: list[str]) -> list[str]:
    """Every `key=value` that follows such an option gets an option of its own, as the parser wants it.

    >>> spread(["--model-args", "hidden=16", "layers=3", "--index", "4"])
    ['--model-args', 'hidden=16', '--model-args', 'layers=3', '--index', '4']
    """
    done: list[str] = []
    open_option = ""
    for argument in arguments:
        follows = open_option and done[-1] != open_option and "=" in argument and not argument.startswith("-")
        if follows:
            done.append(open_option)
        elif argument.startswith("-") or (done and done[-1] != open_option):
            open_option = argument if argument in SPREAD else ""
        done.append(argument)
    return done


class SpreadingCommand(TyperCommand):
    """A command whose arguments are spread before they are read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called with what was typed behind the command."""
        return super().parse_args(ctx, spread(args))


_NOT_ASKED = ("json", "quiet", "debug")


def question(asked: CommonOptions, **more: Any) -> dict[str, Any]:
    """What was asked, ready for JSON: the same question has the same dict."""
    shared = {field.name: getattr(asked, field.name) for field in fields(asked) if field.name not in _NOT_ASKED}
    return {name: str(value) if isinstance(value, Path) else value for name, value in {**shared, **more}.items()}


_WORDS = {"true": True, "false": False, "none": None}


def read_pairs(given: Iterable[str] | None, option: str) -> dict[str, Any]:
    """The values by name; several pairs may stand in one text.

    >>> read_pairs(["hidden=64 dropout=0.5", "act=relu", "bias=false"], "--model-args")
    {'hidden': 64, 'dropout': 0.5, 'act': 'relu', 'bias': False}
    """
    found: dict[str, Any] = {}
    for pair in (part for text in given or () for part in text.split()):
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(f"{option} got {pair!r}; needed is a name and its value, such as {option} hidden=64.")
        if name in found:
            raise SettingError(f"{option} names {name} twice; once is needed.")
        found[name] = read_value(value)
    return found


def read_value(text: str) -> Any:
    """A number, True, False, None, a tuple or list of such; anything else is the text itself.

    >>> [read_value(text) for text in ("3", "1e-3", "True", "none", "[8,8]", "relu")]
    [3, 0.001, True, None, [8, 8], 'relu']
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
