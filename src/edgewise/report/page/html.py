"""The parts of a page, put together into one file that needs nothing else.

`page_html` fills the template `static/page.html`. Numbers travel as base64 (`floats`, `integers`), everything else as JSON that
cannot end its script element (`as_script`).
"""

from __future__ import annotations

import base64
import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch

from edgewise.report.page.page_figures import figure_items, inline_script
from edgewise.text import for_json, html_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from edgewise.report.page.page_run import Findings


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
    rounded: float | None = for_json(float(f"{value:.7g}"))
    return rounded


def as_script(data: Any) -> str:
    r"""JSON without the characters that end a script, open a comment or are markup: nothing from data is read as HTML.

    >>> as_script({"label": "</script><b>"})
    '{"label":"\\u003c/script\\u003e\\u003cb\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


SCRIPTS = ("reading", "curves", "scenes", "drawing", "layers", "names", "tables", "matrix", "molecule", "controls")
"""Files of the page's own script, in the order in which they need each other."""


def page_html(title: str, data: dict[str, Any], settings: Iterable[tuple[str, str]], found: Findings) -> str:
    """The text of the page.

    Args:
        title: The heading.
        data: What the page's script reads.
        settings: (name, value) rows under "What made this page".
        found: For the report of `check`.
    """
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
    """The text of a file in `static/`."""
    return files("edgewise.report.page").joinpath("static", name).read_text(encoding="utf-8")


def _safe(script: str) -> str:
    r"""A script of a library may hold the text that ends a script; inside of a string `<\\/` is the same."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _check(found: Findings) -> str:
    """What `check` says, as HTML; or the sentence why it says nothing."""
    if found.report is None:
        return f"<p>{escape(found.no_report)}</p>"
    from edgewise.trust.report_text import as_html

    return as_html(found.report)


def _settings(rows: Iterable[tuple[str, str]]) -> str:
    """The table under "What made this page"."""
    return f"<div class='facts'>{html_table(('Setting', 'Value'), rows)}</div>"
