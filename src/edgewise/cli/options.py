"""The options that commands share: defined once in `CommonOptions`, given to each command, and options of `KEY=VALUE` pairs.

Names that help and shell completion offer are plain tuples here, so that neither needs torch; a test compares them with the
library's own tables. The parser of the command line takes one value for each option, so for `--model-args hidden=16 layers=3`
and `--set epochs=50` a `PairsCommand` repeats the option before every further pair; `read_pairs` makes Python values of them.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edgewise.cli.guard import guarded
from edgewise.errors import EdgewiseError, SettingError

METHODS = (
    *("gradient", "positive_gradient", "occlusion", "gnn_explainer", "gnn_explainer_fast", "integrated_gradients"),
    *("deep_lift", "degree", "lrp", "goat_walks", "eig_search", "shapley", "subgraphx", "auto", "random", "full"),
)
FEATURE_METHODS = ("gradient", "gradient_x_input", "occlusion", "integrated_gradients", "cam", "grad_cam")
PAGE_METHODS = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "random")
LEVELS = ("input", "layer")
TASKS = ("node", "graph", "link")
MODES = ("multiclass", "binary", "multilabel", "regression")
NUMBERS = ("logit", "log_prob", "prob")
OUTPUTS = ("logit", "log_prob", "prob", "value")
SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
SIGNS = ("positive", "negative", "magnitude")
PLANTED = (
    *("infection", "negative_evidence", "negative_evidence_multiclass"),
    *("ba_shapes", "tree_cycles", "tree_grid", "ba_2motifs", "toxic_groups"),
    "sentiment_trees",
)
"""Data sets with a known right explanation; all but the last are generated."""
REAL = ("Cora", "CiteSeer", "PubMed", "Cornell", "Texas", "Wisconsin", "MUTAG", "PROTEINS")
"""Data sets that PyG reads."""
DATA_NAMES = (*REAL, *PLANTED)

Force = Annotated[bool, typer.Option("--force", help="Replace files that this command did not write.")]
PageOption = Annotated[Path | None, typer.Option(help="Write an .html page to look at and to share: --page why.html.")]

_MODEL, _DATA, _QUESTION, _REPORTING = "Model", "Data", "Question", "Reporting"  # panels of the help
_NOT_ASKED = ("json", "quiet", "debug")  # how to report, not what was asked


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


def data_key(name: str) -> str:
    """The name of a data set as it is looked up: capitals do not matter, and `-` may stand for `_`.

    >>> data_key("Negative-Evidence")
    'negative_evidence'
    """
    return name.lower().replace("-", "_")


LARGEST_SEED = 2**32 - 1
"""What numpy's generator takes."""


def _option(panel: str, help_text: str, *flags: str, **more: Any) -> Any:
    """A typer option in one of the panels of the help; without `flags` its name is that of the field."""
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
            "A .pt file saved by PyG, an .npz with x and edge_index, a folder with nodes.csv and edges.csv (or .parquet; of a "
            "typed graph nodes_account.csv, edges_account__pays__merchant.csv and so on), "
            f"or a name: {', '.join(DATA_NAMES)}.",
            **_complete(*DATA_NAMES),
        ),
    ]
    model: Annotated[
        str | None,
        _option(
            _MODEL,
            "A class or function that makes the model: package.module:factory (the current folder is searched too) or "
            "file.py:factory. Generated data sets bring their own model.",
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
        Path | None,
        _option(
            _DATA, "Folder of the named data sets. Default: $EDGEWISE_DATA; without it, PyG downloads into a cache."
        ),
    ] = None
    index: Annotated[
        str,
        _option(
            _QUESTION,
            "Which nodes or graphs to explain: 3,17,100-200 (both ends count), all, test (or train, val: the data's "
            "masks), or names of nodes. Where the data has ids, numbers are ids; row:3 is a position. Of a typed graph with "
            "the node type first: account:3,5-9.",
            "--index",
            "-i",
        ),
    ] = "all"
    target: Annotated[
        str,
        _option(
            _QUESTION,
            "Which class to explain: predicted, label (the data's y), all (one after the other), a number, or a class name of "
            "the data.",
        ),
    ] = "predicted"
    task: Annotated[
        str | None,
        _option(_QUESTION, "node, graph or link. Default: what the data is, or link with --link.", **_complete(*TASKS)),
    ] = None
    link: Annotated[
        list[str] | None,
        _option(
            _QUESTION,
            "Which links to explain: 3:17, several with commas or the option repeated, or a .csv or .txt file with a pair in "
            "each line. Ends are named as in --index. Of a typed graph with the relation first: rates:3:17 or "
            "rates:pairs.csv.",
            metavar="U:V",
        ),
    ] = None
    without_itself: Annotated[
        bool, _option(_QUESTION, "Take each link out of the graph before it is explained.", "--without-itself")
    ] = False
    mode: Annotated[
        str | None,
        _option(
            _QUESTION,
            "multiclass, binary (one logit), multilabel (a logit in each column) or regression. Default: multiclass or binary, "
            "by the width of the output.",
            **_complete(*MODES),
        ),
    ] = None
    output: Annotated[
        str | None,
        _option(
            _QUESTION,
            "What the model returns: logit, log_prob, prob or value. Default: read off its last operation.",
            **_complete(*OUTPUTS),
        ),
    ] = None
    of: Annotated[str, _option(_QUESTION, "The number to explain: logit, log_prob or prob.", **_complete(*NUMBERS))] = (
        "logit"
    )
    device: Annotated[str | None, _option(_QUESTION, "Where to compute: cpu, cuda, cuda:1.")] = None
    memory: Annotated[str | None, _option(_QUESTION, "At most so much memory for the work: 2GB.")] = None
    seed: Annotated[
        int,
        _option(
            _QUESTION, "Random seed of methods, generated data sets and untrained models.", min=0, max=LARGEST_SEED
        ),
    ] = 0
    plugin: Annotated[
        list[str] | None, _option(_QUESTION, "A module that registers methods (ew.register_method); may be repeated.")
    ] = None
    json: Annotated[bool, _option(_REPORTING, "Print JSON on stdout, everything else on stderr.", "--json")] = False
    quiet: Annotated[bool, _option(_REPORTING, "Print nothing but errors.", "--quiet", "-q")] = False
    debug: Annotated[bool, _option(_REPORTING, "Show the traceback of an error.", "--debug")] = False


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the shared options before its own.

    Typer reads a command's options from its signature, so the result gets a signature that lists the fields of
    `CommonOptions` and then the parameters of `command`. The command itself is called with the `CommonOptions` first, inside
    `guarded`: its errors are sentences.
    """
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
            import_plugins(asked)
            command(asked, **given)

    parameters = [*shared, *own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def import_plugins(asked: CommonOptions) -> None:
    """Import what `--plugin` names."""
    for module in asked.plugin or ():
        import_module_of_user(module)


def import_module_of_user(name: str) -> None:
    """Import a module of the user's, from this folder or an installed package."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        import_module(name)
    except EdgewiseError:
        raise
    except Exception as error:  # a stranger's module
        raise SettingError(f"--plugin {name} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.remove(str(Path.cwd()))


def story_of(asked: CommonOptions, **more: Any) -> dict[str, Any]:
    """What was asked, ready for JSON: the shared options, and `more` of one command.

    Two runs of the same command have equal stories; so parts of an earlier run are recognised.
    """
    shared = {field.name: getattr(asked, field.name) for field in fields(asked) if field.name not in _NOT_ASKED}
    return {name: str(value) if isinstance(value, Path) else value for name, value in {**shared, **more}.items()}


def split_names(text: str) -> list[str]:
    """The names of an option that takes several, with commas between them.

    >>> split_names("gradient, occlusion")
    ['gradient', 'occlusion']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


# --- Options that take `KEY=VALUE` pairs --------------------------------------------------------------------------------

PAIR_OPTIONS = ("--model-args", "--set")


def one_pair_each(arguments: list[str]) -> list[str]:
    """Repeat the option before every `key=value` that follows it, as the parser wants it.

    >>> one_pair_each(["--model-args", "hidden=16", "layers=3", "--index", "4"])
    ['--model-args', 'hidden=16', '--model-args', 'layers=3', '--index', '4']
    """
    done: list[str] = []
    open_option = ""
    for argument in arguments:
        follows = open_option and done[-1] != open_option and "=" in argument and not argument.startswith("-")
        if follows:
            done.append(open_option)
        elif argument.startswith("-") or (done and done[-1] != open_option):
            open_option = argument if argument in PAIR_OPTIONS else ""
        done.append(argument)
    return done


class PairsCommand(TyperCommand):
    """A command some of whose options take several pairs in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed after the name of the command."""
        return super().parse_args(ctx, one_pair_each(args))
