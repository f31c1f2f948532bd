"""`edgewise explain`: a signed score for every edge.

First the command with its options and help, then its work: read, explain shard by shard, write, show. The library is imported
inside the functions that work, so `edgewise explain --help` needs no torch. The order matters for users too: files that could
not be written are refused (`Output.claim`) before anything slow is loaded.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.named_values import named_values
from edgewise.cli.options import CommonOptions, Force, PageOption, split_names, with_common_options
from edgewise.cli.output import Output
from edgewise.cli.table_files import write_columns
from edgewise.cli.terminal import Voice
from edgewise.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import edgewise as ew
    from edgewise.cli.read.cli_question import CliQuestion
    from edgewise.cli.session import Session

EPILOG = """Examples:

edgewise explain --data infection --index 22 --page why.html

edgewise explain --model my_model:GCN --model-args hidden=16 --weights weights.pt --data graph.npz --index test
--method occlusion --level layer --out result.parquet

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C or SIGTERM (the same command goes on from what is finished)."""


@with_common_options
def explain(
    asked: CommonOptions,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(options.METHODS)}, or several, separated by commas: each gets a file "
            f"(result.gradient.parquet). Default: gradient; on a page {', '.join(options.PAGE_METHODS)}.",
            autocompletion=options.completing_list(options.METHODS),
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="input: one score per edge; layer: one per layer and edge. Default: input; on a page both.",
            autocompletion=options.completing(options.LEVELS),
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Keep only this many of the strongest edges of each target.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE ...", help="Settings of the method: --set epochs=50 lr=0.1."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all scores to this .parquet, .csv or .npz; the settings go into a .json beside it."),
    ] = None,
    page: PageOption = None,
    force: Force = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Cores to use, at most. Default: all, for large work. The scores are the same for any number."
        ),
    ] = None,
) -> None:
    """Why does the model predict this? A signed score for every edge: positive supports the class, negative opposes it."""
    chosen = split_names(method or "gradient")
    voice, output = Voice(quiet=asked.quiet), Output(out, page, force, chosen if out is not None else chosen[:1])
    output.claim(asked)
    paged = {} if method is None else {"methods": chosen}
    paged |= {} if level is None else {"levels": [level]}
    how = ExplainOptions(chosen[0], level or "input", top, named_values(set_, "--set"))
    _run(asked, voice, output, how, paged, threads)


@dataclass(frozen=True)
class ExplainOptions:
    """What `explain` asks besides the shared options; part of the manifest."""

    method: str
    """A name of `options.METHODS`; of several, the first."""
    level: str
    """`"input"` or `"layer"`."""
    top: int | None
    """How many edges of each target are kept; `None` for all."""
    settings: dict[str, Any]
    """The method's own, from `--set`."""


def _run(
    asked: CommonOptions,
    voice: Voice,
    output: Output,
    how: ExplainOptions,
    paged: dict[str, Any],
    threads: int | None,
) -> None:
    """Read, explain, write, show.

    Args:
        asked: The shared options.
        voice: Tells what is going on.
        output: The files to write; they have been claimed.
        how: The command's own options.
        paged: Arguments of `ew.write_page` that only concern a page: methods and levels, if they were named.
        threads: How many cores; no part of the manifest, because the scores are the same.
    """
    from edgewise.cli.session import started
    from edgewise.results.concatenation import joined

    methods = _own_settings(output.methods, how, paged=output.page is not None)
    told = {**asdict(how), **({"methods": list(methods)} if len(methods) > 1 else {})}
    with started("explain", asked, voice, output, told, paged) as session:
        found = {method: joined(_explain(session, one, threads)) for method, one in methods.items()}
        saves = {method: partial(_save, explained, session.question) for method, explained in found.items()}
        written = session.finish(saves, how.settings)
    _show(session.question, found[how.method], how, written)


def _own_settings(methods: "Sequence[str]", how: ExplainOptions, *, paged: bool) -> dict[str, ExplainOptions]:
    """The options of each method; of several, or beside those of a page, each takes those of `--set` that it knows.

    A setting that none of them knows is refused.
    """
    from edgewise.algorithms.registry import find_method
    from edgewise.api.write_page import METHODS

    if len(methods) < 2 and not paged:
        find_method(how.method, how.level)  # refused before anything is read or estimated
        return {how.method: how}
    known = {method: find_method(method, how.level).settings for method in methods}
    of_page = {name for method in METHODS for name in find_method(method, "input").settings} if paged else set()
    if unknown := sorted(set(how.settings) - of_page - {name for names in known.values() for name in names}):
        raise SettingError(
            f"None of {', '.join(methods)} has a setting {unknown[0]!r}. Use edgewise methods to see them."
        )
    return {
        method: replace(how, method=method, settings={n: v for n, v in how.settings.items() if n in known[method]})
        for method in methods
    }


def _explain(session: "Session", how: ExplainOptions, threads: int | None) -> "list[ew.ExplanationSet]":
    """Explain the targets, shard by shard, after those that an earlier run has finished.

    Each shard is one call of `ew.explain`, which decides itself how many targets fit the memory.
    """
    import edgewise as ew
    from edgewise.cli.method_option import method_for
    from edgewise.jobs.explanation_work import ExplanationWork

    question = session.question
    method = method_for(question, how.method, how.level, session.voice)

    def explain_some(positions: slice) -> ew.ExplanationSet:
        found = ew.explain(
            question.model,
            question.graphs.data,
            question.targets(positions),
            method=method,
            level=how.level,
            top=how.top,
            target=question.classes_of(positions),
            seed=question.asked.seed,
            threads=threads,
            **question.options,
            **how.settings,
        )
        assert isinstance(found, ew.ExplanationSet)  # a list was asked for
        return found

    work = ExplanationWork(explain_some, question.stored_index, method.name, how.level)
    return session.work(how.method, f"{how.method} ({how.level})", work)


def _save(explained: "ew.ExplanationSet", question: "CliQuestion", path: Path) -> None:
    """Write the scores in the format of the file's ending, with the names and ids of the nodes if the data has them.

    A `.npz` or `.parquet` can be read back by `ew.load`; a `.csv` has a row for every score that is not zero.
    """
    from edgewise.results.export import columns
    from edgewise.results.storage import save
    from edgewise.results.typed_tables import named_columns

    graphs = question.graphs
    called = (graphs.node_names, graphs.node_ids) if graphs.is_one else (None, None)
    if path.suffix == ".csv":
        write_columns(path, named_columns(columns(explained), *called))
    else:
        save(explained, path, called[0], node_ids=called[1])


def _show(
    question: "CliQuestion", explained: "ew.ExplanationSet", how: ExplainOptions, written: dict[str, Any]
) -> None:
    """Print the JSON document, or a short table of the first targets; `written` is what the manifest says.

    The JSON has `command`, `method`, `level`, `task`, a record for each of `targets` (`terminal.records`), and `written`.
    """
    asked, total = question.asked, len(question.index)
    if asked.json:
        listed = terminal.records(question, list(explained), how.top or terminal.JSON_ROWS)
        about = {"command": "explain", "method": how.method, "level": how.level, "task": question.graphs.task}
        terminal.print_json({**about, "targets": listed, **written})
    elif not asked.quiet:
        few = list(explained[: terminal.SHOWN_TARGETS])
        rows = min(how.top or terminal.SHOWN_ROWS, terminal.SHOWN_ROWS)
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        terminal.print_table(f"{how.method}, {how.level} level{more}", question, few, rows)
