"""`edgewise features`: a signed score for every feature of every node.

One call of the library and one answer. As in the other commands, torch is loaded when the command runs, after the output files
were checked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.named_values import named_values
from edgewise.cli.options import CommonOptions, Force, story_of, with_common_options
from edgewise.cli.output import Destination, Output
from edgewise.cli.table_files import write_columns
from edgewise.cli.terminal import Voice

if TYPE_CHECKING:
    from collections.abc import Sequence

    import edgewise as ew
    from edgewise.cli.read.cli_question import CliQuestion

EPILOG = """Examples:

edgewise features --data infection --index 22

edgewise features --model my_model:GCN --weights weights.pt --data graph.npz --index test --method integrated_gradients
--set steps=100 --top 20 --out features.csv

Exit codes: 0 done, 1 bad input, 2 wrong usage."""


@with_common_options
def features(
    asked: CommonOptions,
    *,
    method: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(options.FEATURE_METHODS)}.",
            autocompletion=options.completing(options.FEATURE_METHODS),
        ),
    ] = "gradient_x_input",
    attribute: Annotated[
        str, typer.Option(help="What is scored: x, or other floating-point numbers of each node, such as pos.")
    ] = "x",
    top: Annotated[
        int | None, typer.Option(min=1, help="Keep only this many of the strongest scores of each target.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE ...", help="Settings of the method: --set steps=100."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all scores to this .parquet, .csv or .npz; the settings go into a .json beside it."),
    ] = None,
    force: Force = False,
) -> None:
    """Which features of which nodes? A signed score for every feature: positive supports the class, negative opposes it."""
    voice, settings = Voice(quiet=asked.quiet), named_values(set_, "--set")
    Output(out, None, force).claim(asked)
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_question

    question = read_question(asked, voice)
    shown = len(question.index) if out is not None or asked.json else terminal.SHOWN_TARGETS
    found = ew.features(
        question.model,
        question.graphs.data,
        question.targets(slice(shown)),
        method=method,
        attribute=attribute,
        top=top,
        target=question.classes_of(slice(shown)),
        seed=asked.seed,
        progress=voice.is_watched,
        **question.options,
        **settings,
    )
    assert isinstance(found, ew.FeatureSet)  # a list was asked for
    written: dict[str, Any] = {}
    if out is not None:
        story = story_of(asked, method=method, attribute=attribute, top=top, settings=settings)
        destination = Destination(out, "features", story, question.hashes, len(question.index))
        written = destination.write(lambda path: _save(question, found, path))
        voice.note(f"Written: {out}")
    _show(question, found, top, written)


def _save(question: "CliQuestion", found: "ew.FeatureSet", path: Path) -> None:
    """All scores: a `.npz` or `.parquet` that `ew.load` reads, or a row for every score that is not zero."""
    import numpy as np

    from edgewise.results.feature_storage import save_features
    from edgewise.results.typed_tables import named_columns

    graphs = question.graphs
    called = (graphs.node_names, graphs.node_ids) if graphs.is_one else (None, None)
    if path.suffix in (".npz", ".parquet"):
        save_features(found, path, *called)
        return
    rows = found.to_rows()
    names = list(rows[0]) if rows else ["position", "index", "target", "score", "node", "feature"]
    write_columns(path, named_columns({name: np.array([row[name] for row in rows]) for name in names}, *called))


def _show(question: "CliQuestion", found: "ew.FeatureSet", top: int | None, written: dict[str, Any]) -> None:
    """Print the JSON document, or a short table of the first targets."""
    asked = question.asked
    if asked.json:
        listed = [_record(question, why, top or terminal.JSON_ROWS) for why in found]
        about = {"command": "features", "method": found.method, "task": question.graphs.task}
        terminal.print_json({**about, "adds_up_to": found.settings["adds_up_to"], "targets": listed, **written})
    elif not asked.quiet:
        few = list(found[: terminal.SHOWN_TARGETS])
        more = f", the first {len(few)} of {len(question.index)} targets" if len(question.index) > len(few) else ""
        rows = min(top or terminal.SHOWN_ROWS, terminal.SHOWN_ROWS)
        terminal.print_rows(f"features by {found.method}{more}", _heads(question), _table(question, few, rows))


def _record(question: "CliQuestion", why: "ew.FeatureScores", rows: int) -> dict[str, Any]:
    """One target: what is explained, and its strongest features."""
    keys = ("score", "node", "feature", "name")
    strongest = [dict(zip(keys, entry, strict=False)) for entry in why.top(rows, by="magnitude")]
    for one in strongest:
        one |= terminal.named(question, why, "node", one["node"])
        if "feature" in one:
            one["feature_value"] = _given(question, why, one["node"], one["feature"])
    about = {"index": why.index, **terminal.target_named(question, why.index), "class": why.target}
    return {**about, "class_name": question.class_name(why.target), "value": why.value, "features": strongest}


def _heads(question: "CliQuestion") -> list[str]:
    return [question.graphs.task, "class", "explained", "node", "feature", "value", "score"]


def _table(question: "CliQuestion", found: "Sequence[ew.FeatureScores]", rows: int) -> list[list[list[str]]]:
    """For each target the rows of the table; what is the same for all of its rows stands in the first."""
    sections = []
    for why in found:
        section = []
        for place, (score, node, *feature) in enumerate(why.top(rows, by="magnitude")):
            about = [question.target_label(why.index), question.class_name(why.target), f"{why.value:.4g}"]
            value = _given(question, why, node, feature[0]) if feature else None
            named = [str(feature[-1]) if feature else "all", "" if value is None else f"{value:.4g}"]
            section.append(
                [
                    *(about if place == 0 else ["", "", ""]),
                    terminal.label_in(question, why, node),
                    *named,
                    f"{score:+.4g}",
                ]
            )
        about = [question.target_label(why.index), question.class_name(why.target), f"{why.value:.4g}"]
        sections.append(section or [[*about, "", "no feature matters", "", ""]])
    return sections


def _given(question: "CliQuestion", why: "ew.FeatureScores", node: Any, feature: int) -> float | None:
    """The feature itself, as the data have it; None where they are not at hand."""
    if not isinstance(node, tuple):
        return None if why.given is None else float(why.given[node].reshape(-1)[feature])
    data = question.graphs.data if question.graphs.is_one else question.graphs.data[why.index]
    attribute, kind = why.settings.get("attribute", "x"), node[0]
    given = data[kind].get(attribute) if kind in data.node_types else None
    return None if given is None else float(given[node[1]].reshape(-1)[feature])
