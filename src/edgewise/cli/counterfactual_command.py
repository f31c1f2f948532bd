"""`edgewise counterfactual`: the smallest set of edges without which the model predicts otherwise.

One call of the library and one answer; every status is an answer, so the exit code is 0 for all of them. As in the other
commands, torch is loaded when the command runs, after the output files were checked.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.options import CommonOptions, Force, story_of, with_common_options
from edgewise.cli.output import Destination, Output
from edgewise.cli.table_files import write_columns
from edgewise.cli.terminal import Voice
from edgewise.errors import SettingError

if TYPE_CHECKING:
    import edgewise as ew
    from edgewise.cli.read.cli_question import CliQuestion

EPILOG = """Examples:

edgewise counterfactual --data infection --index 22 --undirected

edgewise counterfactual --model my_model:GCN --weights weights.pt --data graph.npz --index test --to clean --seconds 30
--out flips.csv

Exit codes: 0 done (also where nothing is proven, or nothing flips), 1 bad input, 2 wrong usage."""

WAYS = ("weight", "removal")


@with_common_options
def counterfactual(
    asked: CommonOptions,
    *,
    to: Annotated[
        str | None,
        typer.Option(help="The class to reach: a number, or a class name of the data. Default: any other class."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="For a regression: the number that the value has to cross.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="weight: silence edges (degrees and attention stay); removal: take them out of the graph.",
            autocompletion=options.completing(WAYS),
        ),
    ] = "weight",
    undirected: Annotated[
        bool, typer.Option("--undirected", help="Both directions of an edge go together, and count as one.")
    ] = False,
    size: Annotated[int | None, typer.Option(min=1, help="Look for sets of at most so many edges.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="At most so many sets are tried or bounded for each target.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="At most so many seconds for each target; inf sets no limit.")
    ] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a row for each target to this .parquet or .csv; the settings go into a .json beside it."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Without which edges would it say something else? A set of them, and whether it is proven that none is smaller."""
    voice = Voice(quiet=asked.quiet)
    if out is not None and out.suffix == ".npz":
        raise SettingError(f"--out {out}: rows have texts and lists. Use a name that ends with .csv or .parquet.")
    Output(out, None, force).claim(asked)
    from edgewise.cli.read.cli_question import read_question

    question = read_question(asked, voice)
    how: dict[str, Any] = {"threshold": threshold, "by": by, "undirected": undirected, "size": size}
    how |= {
        "budget": budget,
        "seconds": None if seconds == float("inf") else seconds,
        "to": None if to is None else _class(question, to),
    }
    found = _found(question, how, voice, everything=out is not None or asked.json)
    _give(asked, question, how, found, out, voice)


def _found(question: "CliQuestion", how: dict[str, Any], voice: Voice, *, everything: bool) -> "ew.CounterfactualSet":
    """The answers of all targets, or of those that a short table shows."""
    import edgewise as ew

    shown = slice(len(question.index) if everything else terminal.SHOWN_TARGETS)
    passed = {name: value for name, value in question.options.items() if name not in ("of", "memory")}
    found = ew.counterfactual(
        question.model,
        question.graphs.data,
        question.targets(shown),
        target=question.classes_of(shown),
        progress=voice.is_watched,
        **how,
        **passed,
    )
    assert isinstance(found, ew.CounterfactualSet)  # a list was asked for
    return found


def _give(
    asked: CommonOptions,
    question: "CliQuestion",
    how: dict[str, Any],
    found: "ew.CounterfactualSet",
    out: Path | None,
    voice: Voice,
) -> None:
    """Write the answers to a file, and print them as JSON or as a table."""
    listed = [_record(question, one) for one in found]
    written: dict[str, Any] = {}
    if out is not None:
        destination = Destination(out, "counterfactual", story_of(asked, **how), question.hashes, len(question.index))
        written = destination.write(lambda path: write_columns(path, _columns(listed)))
        voice.note(f"Written: {out}")
    if asked.json:
        about = {"command": "counterfactual", **how, "task": question.graphs.task, "counts": found.counts()}
        terminal.print_json({**about, "targets": listed, **written})
    elif not asked.quiet:
        _show(question, found, listed, voice)


def _class(question: "CliQuestion", text: str) -> int:
    """The class that `--to` names."""
    known = question.graphs.class_names or []
    if text in known:
        return known.index(text)
    if text.lstrip("-").isdigit() and len(text) < 10:
        return int(text)
    listed = f", or a class of the data: {', '.join(known[:10])}" if known else ""
    raise SettingError(f"--to must be the number of a class{listed}, got {text!r}.")


def _record(question: "CliQuestion", one: "ew.Counterfactual") -> dict[str, Any]:
    """One target: what the library says, with the data's names."""
    named = question.graphs.is_one
    words = one.sentence(labels=_Names(question) if named else None, classes=_classes(question, one))
    said = one.to_dict()
    settings = said.pop("settings")
    about = {**terminal.target_named(question, one.index), "class_name": _said(question, one, one.target)}
    about["edge_names"] = [_edge(question, one, edge) for edge in one.edges]
    about["advice"] = one.advice("--{} {}".format)
    about["flips_to_name"] = None if one.flips_to is None else _said(question, one, one.flips_to)
    return {**about, **said, "sentence": words, "proof": settings["proof"]}


class _Names(dict[Any, str]):
    """The names of nodes, as they are asked for."""

    def __init__(self, question: "CliQuestion") -> None:
        super().__init__()
        self._question = question

    def get(self, node: Any, default: Any = None) -> Any:
        """The data's id and name of a node."""
        return self._question.node_label(node)


def _edge(question: "CliQuestion", one: "ew.Counterfactual", edge: Any) -> str:
    """A column of the set by its ends: ids and names, of several graphs the numbers in theirs."""
    types = one.types
    column = int(edge) if types is None else types.edge_range(edge[0])[edge[1]]
    ends = [int(end) if types is None else types.node(int(end)) for end in one.edge_index[:, column]]
    return " → ".join(terminal.label_in(question, one, end) for end in ends)


def _classes(question: "CliQuestion", one: "ew.Counterfactual") -> dict[int, str] | None:
    """The data's names of the classes in an answer; None where it is not about classes, or they have no names."""
    is_class = one.settings["mode"] in ("multiclass", "binary")
    if not is_class or (question.graphs.task != "link" and not question.graphs.class_names):
        return None
    return {number: question.class_name(number) for number in (one.target, one.flips_to) if number is not None}


def _said(question: "CliQuestion", one: "ew.Counterfactual", number: int) -> str:
    """A class by its name or number; of a regression the side of the threshold."""
    names = _classes(question, one)
    if names is not None:
        return names[number]
    return ("below", "above")[number] if one.settings["mode"] == "regression" else str(number)


def _columns(listed: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A row for each target; lists become texts."""
    names = (
        "index", "id", "name", "class_name", "status", "size", "lower_bound", "flips_to_name", "edges", "edge_names",
        "num_units", "sentence", "certainty", "advice",
    )  # fmt: skip
    plain = [
        {
            **one,
            "index": str(one["index"]),
            "edges": " ".join(map(str, one["edges"])),
            "edge_names": "; ".join(one["edge_names"]),
        }
        for one in listed
    ]
    return {name: [one[name] for one in plain] for name in names if all(name in one for one in plain)}


def _show(question: "CliQuestion", found: "ew.CounterfactualSet", listed: list[dict[str, Any]], voice: Voice) -> None:
    """A short table of the first targets."""
    few = listed[: terminal.SHOWN_TARGETS]
    total = len(question.index)
    more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
    kinds = Counter(flip.known for flip in found)
    counts = ", ".join(f"{number} {known}" for known, number in kinds.items())
    rows = [
        [
            [
                question.target_label(flip.index),
                one["class_name"],
                flip.known,
                one["sentence"],
                "–" if one["size"] is None else str(one["size"]),
            ]
        ]
        for flip, one in zip(found, few, strict=False)
    ]
    terminal.print_rows(
        f"smallest changes ({counts}){more}", [question.graphs.task, "class", "status", "answer", "edges"], rows
    )
    for advice in dict.fromkeys(one["advice"] for one in listed if one["advice"]):
        voice.note(f"Open: {advice}")
