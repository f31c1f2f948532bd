"""The short table at the end, and the same as JSON."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from edgewise.cli.read.cli_question import CliQuestion
from edgewise.results.explanation import Explanation
from edgewise.results.walk_set import WalkSet

SHOWN_TARGETS, SHOWN_ROWS = 5, 5
JSON_ROWS = 10


def print_json(content: Any) -> None:
    """One document on stdout; numbers that JSON does not have become null."""
    json.dump(_without_nan(content), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    is_number = not isinstance(value, float) or abs(value) < float("inf")
    return value if is_number else None


def records(subject: CliQuestion, found: Sequence[Explanation | WalkSet], rows: int) -> list[dict[str, Any]]:
    """A dict for every target: what the model says, and the strongest edges, or the walks."""
    answers = subject.answers(len(found))
    probabilities = None if answers.mode == "regression" else answers.number(answers.truth, "prob").tolist()
    predicted = None if answers.mode == "regression" else _predicted(answers)
    listed = []
    for place, why in enumerate(found):
        about: dict[str, Any] = {"index": why.index, "name": subject.target_name(why.index), "class": why.target}
        about |= {"class_name": subject.class_name(why.target), "value": why.value}
        if probabilities is not None and predicted is not None:
            about |= {"probability": probabilities[place], "predicted": predicted[place]}
        listed.append(about | _content(subject, why, rows))
    return listed


def _predicted(answers: Any) -> list[int]:
    from edgewise.question.target import predicted

    found: list[int] = predicted(answers.truth, answers.mode).tolist()
    return found


def _content(subject: CliQuestion, why: Explanation | WalkSet, rows: int) -> dict[str, Any]:
    if isinstance(why, WalkSet):
        walks = [
            {"score": walk.score, "nodes": list(walk.nodes), "names": [_name(subject, node) for node in walk.nodes]}
            for walk in why[:rows]
        ]
        return {"exact": why.exact, "upper_bound": why.upper_bound, "walks": walks}
    edges = []
    for score, source, receiver, column, *layer in why.top(rows, by="magnitude"):
        ends = {"source": source, "receiver": receiver, "column": column}
        named = {"source_name": _name(subject, source), "receiver_name": _name(subject, receiver)}
        edges.append({"score": score, **ends, **({"layer": layer[0]} if layer else {}), **named})
    return {"edges": edges}


def _name(subject: CliQuestion, node: int) -> str:
    return subject.node_name(node) if subject.graphs.task == "node" else str(node)


def print_table(title: str, listed: Sequence[dict[str, Any]], task: str) -> None:
    """The strongest of a few targets, for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    layered = any("layer" in edge for one in listed for edge in one.get("edges", ()))
    table = Table(box=box.SIMPLE_HEAD)
    number = "probability" if listed and "probability" in listed[0] else "value"
    heads = [task, "class", number, "walk" if listed and "walks" in listed[0] else "edge", "score"]
    for head in [*heads[:4], *(["layer"] if layered else []), heads[4]]:
        table.add_column(head, justify="right" if head in ("score", "layer", number) else "left", overflow="fold")
    for one in listed:
        for place, row in enumerate(_rows(one)):
            about = (one["name"], one["class_name"], _probability(one)) if place == 0 else ("", "", "")
            layer = [str(row.get("layer", ""))] if layered else []
            cells = [*about, row["text"], *layer, f"{row['score']:+.4g}" if row["score"] is not None else ""]
            table.add_row(*(Text(cell) for cell in cells))
        table.add_section()
    console = Console(file=sys.stdout)
    console.print(Text(title))
    console.print(table)


def _probability(one: dict[str, Any]) -> str:
    return f"{one['probability']:.1%}" if "probability" in one else f"{one['value']:.4g}"


def _rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    if "walks" in one:
        rows = [{"score": walk["score"], "text": " → ".join(walk["names"])} for walk in one["walks"]]
    else:
        rows = [{**edge, "text": f"{edge['source_name']} → {edge['receiver_name']}"} for edge in one["edges"]]
    return rows or [{"score": None, "text": "nothing reaches it" if "edges" in one else "no walk of that sign"}]
