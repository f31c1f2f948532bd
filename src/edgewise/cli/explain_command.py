"""`edgewise explain`: a signed score for every edge.

First the command with its options and help, then its work: read, explain piece by piece, write, show. The library is imported
inside the functions that work, so `edgewise explain --help` needs no torch. The order matters for users too: files that could
not be written are refused (`Output.claim`) before anything slow is loaded.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.options import CommonOptions, Force, PageOption, read_pairs, split_names, with_common_options
from edgewise.cli.output import Output, write_columns
from edgewise.cli.terminal import Voice
from edgewise.errors import SettingError

if TYPE_CHECKING:
    import edgewise as ew
    from edgewise.cli.read.cli_question import CliQuestion
    from edgewise.cli.session import Session, Work

EPILOG = """Examples:

edgewise explain --data infection --index 22 --page why.html

edgewise explain --model my_model:GCN --model-args hidden=16 --weights weights.pt --data graph.npz --index test
--method occlusion --level layer --out result.parquet

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C (what is finished is kept in result.partial.parquet)."""


@with_common_options
def explain(
    asked: CommonOptions,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(options.METHODS)}; for a page also several, separated by commas. Default: gradient; on a "
            f"page {', '.join(options.PAGE_METHODS)}.",
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
) -> None:
    """Why does the model predict this? A signed score for every edge: positive supports the class, negative opposes it."""
    chosen = split_names(method or "gradient")
    if out is not None and len(chosen) > 1:
        raise SettingError(
            f"--out holds the scores of one method, got {', '.join(chosen)}. Run the command once for each."
        )
    voice, output = Voice(quiet=asked.quiet), Output(out, page, force)
    output.claim(asked)
    paged = {} if method is None else {"methods": chosen}
    paged |= {} if level is None else {"levels": [level]}
    _run(asked, voice, output, ExplainOptions(chosen[0], level or "input", top, read_pairs(set_, "--set")), paged)


@dataclass(frozen=True)
class ExplainOptions:
    """What `explain` asks besides the shared options; part of the manifest."""

    method: str
    """A name of `options.METHODS`."""
    level: str
    """`"input"` or `"layer"`."""
    top: int | None
    """How many edges of each target are kept; `None` for all."""
    settings: dict[str, Any]
    """The method's own, from `--set`."""


def _run(asked: CommonOptions, voice: Voice, output: Output, how: ExplainOptions, paged: dict[str, Any]) -> None:
    """Read, explain, write, show.

    Args:
        asked: The shared options.
        voice: Tells what is going on.
        output: The files to write; they have been claimed.
        how: The command's own options.
        paged: Arguments of `ew.write_page` that only concern a page: methods and levels, if they were named.
    """
    from edgewise.cli.session import Session, joined

    session = Session.start("explain", asked, voice, output, asdict(how))
    work = _explain(session, how)
    written = session.finish(work, partial(_save_parts, work, session.question), paged | how.settings)
    _show(session.question, joined(work.parts), how, written)


def _explain(session: "Session", how: ExplainOptions) -> "Work[ew.ExplanationSet]":
    """Explain the targets, piece by piece, after those that an earlier run has finished.

    Parts of an earlier run count only if the question, the files and the versions are the same (`Destination.kept`). Each
    piece is one call of `ew.explain`, which decides itself how many targets fit the memory.
    """
    import edgewise as ew
    from edgewise.cli.session import work_through

    question, destination = session.question, session.destination

    def explain_some(positions: slice) -> ew.ExplanationSet:
        found = ew.explain(
            question.model,
            question.graphs.data,
            question.index[positions].tolist(),
            method=how.method,
            level=how.level,
            top=how.top,
            target=question.classes_of(positions),
            seed=question.asked.seed,
            **question.options,
            **how.settings,
        )
        assert isinstance(found, ew.ExplanationSet)  # a list was asked for
        return found

    kept = destination.kept() if destination is not None else None
    earlier = [ew.load(kept)] if kept is not None else []
    done = sum(map(len, earlier))
    if kept is not None:
        session.voice.note(f"Resuming from {kept}: {done} of {len(question.index)} targets are finished.")
    return work_through(session.voice, f"{how.method} ({how.level})", session.targets, explain_some, earlier, done)


def _save_parts(work: "Work[ew.ExplanationSet]", question: "CliQuestion", path: Path) -> None:
    """Write the scores in the format of the file's ending, with the names of the nodes if the data has them.

    A `.npz` or `.parquet` can be read back by `ew.load`; a `.csv` has a row for every score that is not zero.
    """
    from edgewise.cli.session import joined
    from edgewise.results.export import columns
    from edgewise.results.score_table import named_columns
    from edgewise.results.storage import save

    explained = joined(work.parts)
    node_names = question.graphs.names if question.graphs.is_one else None
    if path.suffix == ".csv":
        write_columns(path, named_columns(columns(explained), node_names))
    else:
        save(explained, path, node_names)


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
        listed = terminal.records(question, few, min(how.top or terminal.SHOWN_ROWS, terminal.SHOWN_ROWS))
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        terminal.print_table(f"{how.method}, {how.level} level{more}", listed, question.graphs.task)
