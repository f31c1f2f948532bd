"""The parts of a page, put together into one file that needs nothing else."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from edgewise.report.page.figures import figure_items, inline_script
from edgewise.report.page.packing import as_script

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgewise.report.page.finding import Findings

SCRIPTS = ("reading", "layout", "scenes", "drawing", "layers", "names", "tables", "matrix", "molecule", "controls")
"""Files of the page's own script, in the order in which they need each other."""


def page_html(title: str, data: dict[str, Any], settings: Iterable[tuple[str, str]], found: Findings) -> str:
    """The whole page."""
    parts = {
        "title": escape(title),
        "style": _file("page.css"),
        "bokeh": _safe(inline_script()),
        "data": as_script(data),
        "figures": as_script(figure_items(len(data["methods"]))),
        "script": "\n".join(_file(f"{name}.js") for name in SCRIPTS),
        "check": _check(found),
        "settings": _settings(settings),
    }
    page = _file("page.html")
    for name, text in parts.items():
        before, after = page.split(f"<!-- {name} -->")
        page = before + text + after
    return page


def _file(name: str) -> str:
    return files("edgewise.report.page").joinpath("static", name).read_text(encoding="utf-8")


def _safe(script: str) -> str:
    r"""A script of a library may hold the text that ends a script; inside of a string `<\\/` is the same."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _check(found: Findings) -> str:
    if found.report is None:
        return f"<p>{escape(found.no_report)}</p>"
    from edgewise.trust.layout import as_html

    return as_html(found.report)


def _settings(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table class='facts'><tbody>{body}</tbody></table>"
