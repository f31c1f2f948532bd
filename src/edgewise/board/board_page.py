"""The page of a leaderboard: one HTML file that loads nothing. Filters, a table, and a picture of quality against cost.

`static/board.html` is the frame, `static/board.js` draws; numbers travel as JSON that cannot end its script element.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from edgewise.board.measures import METRICS, ORDERS
from edgewise.report.page.html import as_script, number
from edgewise.text import html_table

if TYPE_CHECKING:
    from edgewise.board.board import Board

TITLE = "Which explanation method finds the truth, and at what cost?"


def board_html(board: Board, *, times: bool = True) -> str:
    """The text of the page; without `times` it has no picture of quality against cost."""
    parts = {
        "title": escape(TITLE),
        "style": _file("board.css"),
        "data": as_script(page_data(board, times=times)),
        "script": _file("board.js"),
        "refused": _refused(board),
        "versions": escape(", ".join(f"{name} {version}" for name, version in board.made_with.items()) or "not known"),
    }
    page = _file("board.html")
    for name, text in parts.items():
        page = page.replace(f"<!-- {name} -->", text)
    return page


def page_data(board: Board, *, times: bool = True) -> dict[str, Any]:
    """What the page's script reads: data sets, metrics, and a row of numbers for each standing."""
    methods = list(dict.fromkeys(line["method"] for line in board.lines))
    seconds = board.seconds if times else {}
    kinds = {line["method"]: line["kind"] for line in board.lines}
    return {
        "title": TITLE,
        "data": [_about(board, name) for name in board.data],
        "metrics": [metric._asdict() for metric in METRICS],
        "orders": list(ORDERS),
        "methods": [{"name": name, "kind": kinds[name]} for name in methods],
        "standings": [
            [
                *(board.data.index(s.data), methods.index(s.method), ORDERS.index(s.order)),
                next(place for place, metric in enumerate(METRICS) if metric.name == s.metric),
                *(number(v) for v in (s.mean, s.low, s.high, s.target_low, s.target_high)),
                *(s.networks, s.targets),
                *((None, None) if s.rank is None else s.rank),
            ]
            for s in board.standings
        ],
        "seconds": [[board.data.index(d), methods.index(m), number(value)] for (d, m), value in seconds.items()],
        "notes": list(board.notes),
    }


def _about(board: Board, name: str) -> dict[str, Any]:
    """One data set: how many networks and targets, and how good the networks are."""
    seeds = {line["seed"]: line for line in board.lines if line["data"] == name}
    accuracies = [line["accuracy"] for line in seeds.values()]
    targets = sum(len(line["index"]) for line in seeds.values())
    return {
        "name": name,
        "networks": len(seeds),
        "targets": targets,
        "accuracy": number(sum(accuracies) / len(accuracies)),
    }


def _refused(board: Board) -> str:
    """A table of what did not run, and why; a sentence if everything did."""
    rows = [(data, method, why) for (data, method), why in board.refusals.items()]
    return html_table(("Data set", "Method", "Why"), rows) if rows else "<p>Every method ran on every data set.</p>"


def _file(name: str) -> str:
    """The text of a file in `static/`."""
    return files("edgewise.board").joinpath("static", name).read_text(encoding="utf-8")
