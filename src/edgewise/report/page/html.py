"""The parts of a page, put together into one file that needs nothing else."""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch

from edgewise.report.page.page_figures import figure_items, inline_script

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from edgewise.report.page.page_run import Findings


# --- Numbers and texts as compact JSON that is safe inside a page ------------------------------------------------------


def floats(values: Tensor) -> str:
    """Base64 of float32, little endian, in the order of memory: what a `Float32Array` reads.

    >>> floats(torch.tensor([1.0]))
    'AACAPw=='
    """
    return base64.b64encode(values.detach().cpu().contiguous().numpy().astype("<f4").tobytes()).decode()


def integers(values: Any) -> str:
    """Base64 of int32, little endian: what an `Int32Array` reads.

    >>> integers([1])
    'AQAAAA=='
    """
    whole = torch.as_tensor(values, dtype=torch.long)
    return base64.b64encode(whole.cpu().numpy().astype("<i4").tobytes()).decode()


def number(value: float) -> float | None:
    """With the digits of a float32; `None` for NaN and infinities, which JSON does not know.

    >>> number(1 / 3), number(float("nan"))
    (0.3333333, None)
    """
    short = float(f"{value:.7g}")
    return short if short - short == 0 else None


def as_script(data: Any) -> str:
    r"""JSON without the characters that end a script, open a comment or are markup: nothing from data is read as HTML.

    >>> as_script({"label": "</script><b>"})
    '{"label":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- The whole ---------------------------------------------------------------------------------------------------------


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
    from edgewise.trust.report_text import as_html

    return as_html(found.report)


def _settings(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table class='facts'><tbody>{body}</tbody></table>"
