"""What a command says: notes and progress on stderr, results on stdout.

`Voice` writes notes and shows progress; `guard.py` has the errors. `records` makes the dicts for both forms of a result;
`print_table` and `print_json` print them. Every command imports this file before it runs, so torch is needed only inside
`records`.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from edgewise.progress import Pace, Progress, log_lines, terminal_bar
from edgewise.text import for_json, printable, printable_lines

if TYPE_CHECKING:
    from edgewise.cli.read.cli_question import CliQuestion
    from edgewise.results.explanation import Explanation
    from edgewise.results.walk_set import WalkSet

SHOWN_TARGETS, SHOWN_ROWS = 5, 5
"""Targets in the table, and rows for each."""
JSON_ROWS = 10
"""Edges of each target in the JSON document, unless `--top` says otherwise."""
_LEAST, _LEAST_EDGE = 12, 29
"""No text is made shorter than this to fit a terminal: then it is folded. Edges keep two names until targets are short, too."""
_EDGE = re.compile("(.*) –(.*)→ (.*)")
_ENDS = re.compile("(.*?)( (?:–.*)?→ )(.*)")
_TYPED_EDGE = re.compile(r"(\S+ .+) (–.*→) (\S+ .+)")
_FIRST = re.compile(r"(?=\S*\d)(?=\S*[^\d\s])\S+(?=\s)")  # a word with letters and digits, at the beginning
_ID = re.compile(r"(?<=\s)(?=\S*\d)(?=\S*[^\d\s])\S+")  # a word with letters and digits, behind a type
_C1 = re.compile("[\x7f-\x9f]")  # control characters that JSON leaves as they are


# --- Notes and progress -------------------------------------------------------------------------------------------------


class Voice:
    """What a command tells while it works; silent with `--quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    @property
    def is_watched(self) -> bool:
        """Whether a bar makes sense: stderr is a terminal, and `--quiet` was not given."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Write one line."""
        if not self.quiet:
            typer.echo(printable_lines(text), err=True)

    @contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """Show the progress of targets: a bar in a terminal, a line now and then in a log, nothing if quiet.

        Args:
            title: What is done, such as `occlusion (layer)`.
            total: The number of targets.
            done: How many of them an earlier run has finished.

        Yields:
            A function to call with the number of targets that are finished.
        """
        pace = Pace(done)
        if self.quiet:
            yield lambda _: None
        elif self.is_watched:
            with terminal_bar(title) as bar:
                bar(done, total)
                yield _counting(bar, total, pace)
        else:
            yield _counting(log_lines(title, self.note, pace), total, pace)


def _counting(show: Progress, total: int, pace: Pace) -> Callable[[int], None]:
    """Call a back end with the total and the time left, given what is done."""
    return lambda done: show(done, total, pace.left(done, total))


# --- Results ------------------------------------------------------------------------------------------------------------


def records(question: "CliQuestion", found: "Sequence[Explanation | WalkSet]", rows: int) -> list[dict[str, Any]]:
    """A dict for every target: what the model predicts, and the `rows` strongest edges, or the walks.

    For example `{"index": 3, "name": "3", "class": 1, "class_name": "1", "value": 0.4, "probability": 0.6, "predicted": 1,
    "edges": [...]}`; a regression has no probability and no predicted class.
    """
    from edgewise.question.target import predicted

    answers = question.answers(len(found))
    is_class = answers.mode != "regression"
    probabilities = answers.number(answers.truth, "prob").tolist() if is_class else []
    classes = predicted(answers.truth, answers.mode).tolist() if is_class else []
    listed = []
    for place, why in enumerate(found):
        about: dict[str, Any] = {"index": why.index, **target_named(question, why.index), "class": why.target}
        about |= {"class_name": question.class_name(why.target), "value": why.value}
        if is_class:
            about |= {"probability": probabilities[place], "predicted": classes[place]}
        listed.append(about | _content(question, why, rows))
    return listed


def _content(question: "CliQuestion", why: "Explanation | WalkSet", rows: int) -> dict[str, Any]:
    """The part of a record that holds edges or walks, with the data's names of the nodes."""
    from edgewise.results.walk_set import WalkSet

    if isinstance(why, WalkSet):
        walks = [_walk(question, why, walk) for walk in why[:rows]]
        return {"exact": why.exact, "upper_bound": why.upper_bound, "walks": walks}
    return {"edges": [_edge(question, why, entry) for entry in why.top(rows, by="magnitude")]}


def _walk(question: "CliQuestion", why: "WalkSet", walk: Any) -> dict[str, Any]:
    """A walk with the names of its nodes, and their ids where the data has ids."""
    found = {"score": walk.score, "nodes": list(walk.nodes), "names": [name_in(question, why, n) for n in walk.nodes]}
    return found | ({"ids": list(map(question.node_id, walk.nodes))} if question.graphs.node_ids is not None else {})


def _edge(question: "CliQuestion", why: "Explanation", entry: Any) -> dict[str, Any]:
    """An entry of `top` with names; of a typed graph its ends are `[type, number]`, and it has a `type`."""
    score, source, receiver, column, *more = entry
    ends = {"source": source, "receiver": receiver, "column": column}
    names = {**named(question, why, "source", source), **named(question, why, "receiver", receiver)}
    kind = {"type": entry.edge_type} if isinstance(source, tuple) else {}
    return {"score": score, **ends, **({"layer": more[0]} if why.level == "layer" else {}), **kind, **names}


def name_in(question: "CliQuestion", why: Any, node: Any) -> str:
    """The name of a node in the graph of one target."""
    return question.node_name(node, None if question.graphs.is_one else why.index)


def label_in(question: "CliQuestion", why: Any, node: Any) -> str:
    """The id and the name of a node in the graph of one target."""
    return question.node_label(node, None if question.graphs.is_one else why.index)


def named(question: "CliQuestion", why: Any, key: str, node: Any) -> dict[str, Any]:
    """`{key}_name`, and `{key}_id` where the data has ids."""
    ids = {f"{key}_id": question.node_id(node)} if question.graphs.node_ids is not None else {}
    return {**ids, f"{key}_name": name_in(question, why, node)}


def target_named(question: "CliQuestion", index: Any) -> dict[str, Any]:
    """`name`, and `id` where the data has ids."""
    ids = {"id": question.target_id(index)} if question.graphs.node_ids is not None else {}
    return {**ids, "name": question.target_name(index)}


def print_json(content: Any) -> None:
    """Print one document on stdout; NaN and infinities, which JSON does not have, become null."""
    text = json.dumps(for_json(content), indent=2, ensure_ascii=False)
    sys.stdout.write(_C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def print_table(title: str, question: "CliQuestion", found: "Sequence[Explanation | WalkSet]", rows: int) -> None:
    """Print a table on stdout: a target's id and name, its class and probability once, then a row for each edge or walk."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listed, task = _in_words(question, found, rows), question.graphs.task
    layered = any("layer" in edge for one in listed for edge in one.get("edges", ()))
    table = Table(box=box.SIMPLE_HEAD)
    number = "probability" if listed and "probability" in listed[0] else "value"
    heads = [task, "class", number, "walk" if listed and "walks" in listed[0] else "edge", "score"]
    for head in [*heads[:4], *(["layer"] if layered else []), heads[4]]:
        table.add_column(head, justify="right" if head in ("score", "layer", number) else "left", overflow="fold")
    console = Console(file=sys.stdout)
    sections = [_section(one, layered=layered) for one in listed]
    fit([heads[:4] + ["layer"] * layered + heads[4:]], sections, console.width)
    for section in sections:
        for cells in section:
            table.add_row(*map(_cell, cells))
        table.add_section()
    console.print(Text(title))
    console.print(table)


def _in_words(question: "CliQuestion", found: "Sequence[Explanation | WalkSet]", rows: int) -> list[dict[str, Any]]:
    """Records whose names are what a reader sees: ids with them."""
    listed = records(question, found, rows)
    for one, why in zip(listed, found, strict=True):
        one["name"] = question.target_label(why.index)
        for edge in one.get("edges", ()):
            edge |= {f"{end}_name": label_in(question, why, edge[end]) for end in ("source", "receiver")}
        for walk in one.get("walks", ()):
            walk["names"] = [label_in(question, why, node) for node in walk["nodes"]]
    return listed


def _section(one: dict[str, Any], *, layered: bool) -> list[list[str]]:
    """The rows of one target; what is the same for all of them stands in the first."""
    section = []
    for place, row in enumerate(_rows(one)):
        about = (one["name"], one["class_name"], _probability(one)) if place == 0 else ("", "", "")
        layer = [str(row.get("layer", ""))] if layered else []
        section.append([*about, row["text"], *layer, f"{row['score']:+.4g}" if row["score"] is not None else ""])
    return section


def fit(heads: list[list[str]], sections: Sequence[list[list[str]]], width: int) -> None:
    """Shorten edges and names of targets until a table of `sections` fits a terminal of that width.

    An edge `user U0 –rates→ movie M4` loses the types of its ends first, which its relation tells, then the end of its
    relation; after that the names of its ends, and names of targets, lose letters behind their middle. Walks are not
    shortened: every node of them counts. Cells are replaced in place.
    """
    rows = [row for section in sections for row in section]
    steps = (
        (3, without_types, _LEAST),
        (3, with_short_relation, _LEAST),
        (3, with_short_ends, _LEAST_EDGE),
        (0, shortened, _LEAST),
        (3, with_short_ends, _LEAST),
    )
    for column, change, least in steps:
        longest = [max(len(cell) for cell in cells) for cells in zip(*heads, *rows, strict=True)]
        over = sum(longest) + 3 * len(longest) + 1 - width
        room = max(longest[column] - over, least)
        if over <= 0:
            return
        for row in rows:
            if len(row[column]) > room and row[column].count("→") < 2:
                row[column] = change(row[column], room)


def without_types(edge: str, room: int) -> str:
    """An edge in words without the types of those ends that have names.

    >>> without_types("user U0 –rates→ movie M4", 20), without_types("user 3 –rates→ movie M4", 20)
    ('U0 –rates→ M4', 'user 3 –rates→ M4')
    """
    found = _TYPED_EDGE.fullmatch(edge)
    if found is None:
        return edge
    source, relation, receiver = found.groups()
    ends = (end.split(" ", 1)[1] for end in (source, receiver))
    short = [whole if name.isdecimal() else name for whole, name in zip((source, receiver), ends, strict=True)]
    return f"{short[0]} {relation} {short[1]}"


def with_short_relation(edge: str, room: int) -> str:
    """An edge in words with as much of its relation as fits.

    >>> with_short_relation("user 17 –has_rated→ movie 12", 24)
    'user 17 –has_…→ movie 12'
    """
    found = _EDGE.fullmatch(edge)
    if found is None:
        return edge
    kept = max(room - len(found[1]) - len(found[3]) - 5, 0)
    return edge if kept >= len(found[2]) else f"{found[1]} –{found[2][:kept]}…→ {found[3]}"


def with_short_ends(edge: str, room: int) -> str:
    """An edge in words whose two names fit; the arrow between them stays.

    >>> with_short_ends("ACC-1120 Omar Chen → ACC-1052 Paulo Vega", 29)
    'ACC-1120…Chen → ACC-1052…Vega'
    """
    found = _ENDS.fullmatch(edge)
    if found is None:
        return shortened(edge, room)
    source, arrow, receiver = found.groups()
    spare = max(room - len(arrow), 8)
    kept = spare - min(len(receiver), spare // 2)  # a short name leaves its room to the other
    return f"{shortened(source, kept)}{arrow}{shortened(receiver, spare - min(len(source), kept))}"


def shortened(text: str, room: int) -> str:
    """A text that fits; what is left out is behind its middle, so that an id at the beginning, or behind a type, stays whole.

    An id that does not fit stays whole, too: the cell takes more lines.

    >>> shortened("customer 1203 : product 7", 15), shortened("account ACC-12 Dan", 15), shortened("account ACC-12 Dan", 12)
    ('customer 1…ct 7', 'account ACC-12…', '…ACC-12 Dan')
    """
    if len(text) <= room:
        return text
    head = 2 * room // 3
    first = _FIRST.match(text)
    if first is not None and len(first[0]) > head:
        return f"{first[0]}…"
    named = _ID.search(text)
    if named is not None and head < named.end() < room:
        head = named.end()
    elif named is not None and head < named.end() and len(named[0]) + 2 <= room:
        rest = text[named.start() :]
        return f"…{rest}" if len(rest) < room else f"…{rest[: room - 2]}…"
    elif named is not None and head < named.end():
        return named[0] if len(named[0]) == len(text) - named.start() else f"{named[0]}…"
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def print_rows(title: str, heads: Sequence[str], sections: Sequence[Sequence[Sequence[str]]]) -> None:
    """Print a table of texts on stdout, section by section; the last column holds numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="right" if head in ("score", "value") else "left", overflow="fold")
    for section in sections:
        for row in section:
            table.add_row(*map(_cell, row))
        table.add_section()
    console = Console(file=sys.stdout)
    console.print(Text(title))
    console.print(table)


def _cell(text: str) -> Any:
    """A cell of a table: the data's names are never read as markup, and cannot steer the terminal."""
    from rich.text import Text

    return Text(printable(text))


def _probability(one: dict[str, Any]) -> str:
    """The probability of a record's class; of a regression, the explained value."""
    return f"{one['probability']:.1%}" if "probability" in one else f"{one['value']:.4g}"


def _arrow(edge: dict[str, Any]) -> str:
    """An edge in words, such as `a → b`, or `user 3 –rates→ movie 5` of a typed graph."""
    relation = f"–{printable(edge['type'][1])}→" if "type" in edge else "→"
    return f"{edge['source_name']} {relation} {edge['receiver_name']}"


def _rows(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one record, each with a text and a score; a sentence if there are none.

    >>> _rows({"edges": []})
    [{'score': None, 'text': 'no edge matters'}]
    """
    if "walks" in one:
        rows = [{"score": walk["score"], "text": " → ".join(walk["names"])} for walk in one["walks"]]
    else:
        rows = [{**edge, "text": _arrow(edge)} for edge in one["edges"]]
    return rows or [{"score": None, "text": "no edge matters" if "edges" in one else "no walk of that sign"}]
