"""The page as one HTML file that needs nothing else: its parts put together, and the two empty figures in it.

`page_html` fills the template `static/page.html`. Numbers travel as base64 (`floats`, `integers`), everything else as JSON
that cannot end its script element (`as_script`). The figures are empty: Bokeh draws what the page's script puts into their
sources. A source has a name, such as `graph-edges`, and a list of fields; `static/drawing.js` and `static/layers.js` fill it.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import missing_extra
from edgewise.text import for_json, html_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from edgewise.report.page.page_run import Findings

SCRIPTS = (
    "reading",
    "looks",
    "curves",
    "scenes",
    "labels",
    "drawing",
    "layers",
    "tables",
    "answer",
    "legend",
    "features",
    "matrix",
    "molecule",
    "controls",
)
"""Files of the page's own script, in the order in which they need each other."""
FIGURES = ("graph", "layers")
_HOST = re.compile(r"(?:https?|wss?)://(?!www\.w3\.org/)[A-Za-z0-9.-]+(?::\d+)?", re.IGNORECASE)
HEIGHT = 430  # in pixels, until the page gives a figure its room
HIT_WIDTH = 9
"""The width, in pixels, of the invisible lines that react to the mouse: thin edges must be caught too."""


# --- The file -----------------------------------------------------------------------------------------------------------


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
        "style": static_file("page.css"),
        "bokeh": _safe(inline_script()),
        "data": as_script(data),
        "figures": as_script(figure_items(len(data["methods"]))),
        "script": "\n".join(static_file(f"{name}.js") for name in SCRIPTS),
        "check": _check(found),
        "settings": _settings(settings),
    }
    page = static_file("page.html")
    for name, text in parts.items():
        before, after = page.split(f"<!-- {name} -->")
        page = before + text + after
    return page


def static_file(name: str) -> str:
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


# --- The empty figures --------------------------------------------------------------------------------------------------


def inline_script() -> str:
    """The text of BokehJS, without its widgets; an error that names the extra if Bokeh is not installed."""
    try:
        from bokeh.resources import Resources
    except ImportError as error:
        raise missing_extra("bokeh", "page", "A page") from error
    return without_hosts("\n".join(Resources(mode="inline", components=["bokeh"]).js_raw))


def without_hosts(script: str) -> str:
    """A script in which no address names a host, apart from the namespaces of w3.org: BokehJS would load MathJax from one.

    >>> without_hosts('load("https://cdn.example.org/a.js"); svg("http://www.w3.org/2000/svg")')
    'load("about:blank#/a.js"); svg("http://www.w3.org/2000/svg")'
    """
    return _HOST.sub("about:blank#", script)


@cache
def figure_items(methods: int) -> dict[str, Any]:
    """Figure → the JSON that `Bokeh.embed.embed_item` takes; the same for all pages with that many methods."""
    from bokeh.embed import json_item

    return {name: json_item(_figure(name, methods)) for name in FIGURES}


def _figure(name: str, methods: int) -> Any:
    """An empty figure with all its sources and tools."""
    from bokeh.models import HoverTool, PanTool, Range1d, ResetTool, SaveTool, WheelZoomTool
    from bokeh.plotting import figure

    plot = figure(
        name=name,
        height=HEIGHT,
        sizing_mode="stretch_both",
        x_range=Range1d(start=-1, end=1),
        y_range=Range1d(start=-1, end=1),
        tools=[PanTool(), WheelZoomTool(), ResetTool(), SaveTool(filename=name)],
        toolbar_location="right",
        output_backend="svg",
        outline_line_color=None,
        background_fill_color=None,
        border_fill_color=None,
        min_border=2,
    )
    plot.axis.visible = False
    plot.grid.visible = False
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = ["@media print { :host { display: none !important; } }"]
    _add_lines(plot, name)
    hit = _add_edges(plot, name, methods)
    nodes = _add_nodes(plot, name, methods)
    tips = _tooltip(methods)  # over a node, both may show
    plot.add_tools(HoverTool(renderers=[hit], tooltips=tips, line_policy="interp", limit=1, attachment="horizontal"))
    plot.add_tools(HoverTool(renderers=nodes, tooltips=tips, limit=1, attachment="vertical"))
    return plot


def _source(name: str, part: str, fields: Sequence[str]) -> Any:
    """An empty source that the page's script finds by the name `{name}-{part}`."""
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({field: [] for field in fields}, name=f"{name}-{part}")


def _add_lines(plot: Any, name: str) -> None:
    """Add bands behind columns, lines without a score, and what is highlighted."""
    band = _source(name, "bands", ("x", "y", "width", "height"))
    plot.rect("x", "y", "width", "height", source=band, fill_color="#888888", fill_alpha=0.1, line_color=None)
    context = _source(name, "context", ("xs", "ys"))
    plot.multi_line("xs", "ys", source=context, line_color="#b5b5b5", line_dash="dotted", line_width=1.2)
    for part in ("halo", "routes", "leaders"):
        lines = _source(name, part, ("xs", "ys", "color", "width", "alpha", "dash"))
        plot.multi_line(
            "xs", "ys", source=lines, line_color="color", line_width="width", line_alpha="alpha", line_dash="dash",
            line_cap="round", line_join="round",
        )  # fmt: skip


def _add_edges(plot: Any, name: str, methods: int) -> Any:
    """Add coloured lines with an outline and a head, and invisible ones on top, which are returned: they react to the mouse."""
    lines = _source(name, "edges", ("xs", "ys", "color", "width", "outline", "alpha", "dash", *_texts(methods)))
    look = {"source": lines, "line_alpha": "alpha", "line_cap": "butt"}
    plot.multi_line("xs", "ys", line_color="#9a9a9a", line_width="outline", line_dash="dash", **look)
    plot.multi_line("xs", "ys", line_color="color", line_width="width", line_dash="dash", **look)
    heads = _source(name, "heads", ("xs", "ys", "color", "alpha"))
    plot.patches(
        "xs", "ys", source=heads, fill_color="color", line_color="#9a9a9a", line_width=0.6, fill_alpha="alpha",
        line_alpha="alpha",
    )  # fmt: skip
    return plot.multi_line("xs", "ys", source=lines, line_alpha=0.0, line_width=HIT_WIDTH)


def _add_nodes(plot: Any, name: str, methods: int) -> list[Any]:
    """Add circles, the explained node as a square, and texts; the circles and the square react to the mouse."""
    from bokeh.core.properties import value

    look = {"fill_color": "fill", "line_color": "line", "line_width": "stroke"}
    fields = ("x", "y", "size", "height", "fill", "line", "stroke", "node", "marked", *_texts(methods))
    circles = plot.circle("x", "y", radius="size", source=_source(name, "nodes", fields), **look)
    square = plot.rect("x", "y", "size", "height", source=_source(name, "root", fields), **look)
    text = _source(name, "texts", ("x", "y", "text", "size", "color", "back", "align", "baseline"))
    plot.text(
        "x", "y", "text", source=text, text_font_size="size", text_color="color", text_align="align",
        text_baseline="baseline", text_font=value("Arial, Helvetica, sans-serif"), background_fill_color="back",
        background_fill_alpha=0.75, padding=1,
    )  # fmt: skip
    return [circles, square]


def _texts(methods: int) -> list[str]:
    """The fields that a tooltip shows: a title, for each method its name (`n0`) and its number (`m0`), and lines (`more`)."""
    return ["edge", "more", *(f"{kind}{number}" for number in range(methods) for kind in "nm")]


def _tooltip(methods: int) -> str:
    """The HTML of a tooltip: a row for every method.

    The names of methods are fields too, because Bokeh escapes what it puts in place of a field.
    """
    cells = "<td style='padding-right:1em'>@n{0}</td><td style='text-align:right'>@m{0}</td>"
    rows = "".join(f"<tr>{cells.format(number)}</tr>" for number in range(methods))
    more = "<div style='white-space:pre-line;color:#5a5a5a'>@more</div>"
    return f"<div style='font:13px Arial,sans-serif'><b>@edge</b><table>{rows}</table>{more}</div>"
