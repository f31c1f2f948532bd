"""Draws counterexamples.png from the code of why-algorithm-1-is-not-exact.md: python docs/draw_counterexamples.py [file]."""

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import edgewise as ew

HERE = Path(__file__).resolve().parent
BEST, FOUND, GREY, RING = "#542788", "#b35806", "#d9d9d9", "#1b7837"


def page_names() -> dict[str, Any]:
    """Everything that the Python blocks of the page define."""
    text = (HERE / "why-algorithm-1-is-not-exact.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block[1], "why-algorithm-1-is-not-exact.md", "exec"), names)
    return names


def draw_case(axes: Any, title: str, case: dict[str, Any]) -> None:
    """One unrolled graph: every step of every walk, the best walk and the one that Algorithm 1 finds."""
    model, data, options = case["model"], case["data"], case["options"]
    best = ew.walks(model, data, **options)[0]
    found = ew.walks(model, data, search="dag", **options)[0]
    every = ew.walks(model, data, search="exhaustive", k=1000, sign="magnitude", **options)
    for walk in every:
        _draw_walk(axes, walk.nodes, color=GREY, linewidth=1.2, zorder=1)
    _draw_walk(axes, best.nodes, color=BEST, linewidth=3.2, zorder=3, label=f"best walk: {best.score:+g}")
    _draw_walk(
        axes,
        found.nodes,
        color=FOUND,
        linewidth=2.4,
        zorder=4,
        linestyle=(0, (4, 2)),
        label=f"Algorithm 1: {found.score:+g}",
    )
    steps, names = len(best.nodes) - 1, case["names"]
    used = {place for walk in every for place in enumerate(walk.nodes)}
    for layer in range(steps + 1):
        for node, name in enumerate(names):
            colour = "#222222" if (layer, node) in used else GREY
            axes.scatter(layer, -node, s=330, color="white", edgecolor=colour, zorder=5)
            axes.text(layer, -node, name, ha="center", va="center", fontsize=9, color=colour, zorder=6)
    axes.scatter(1, -case["crossing"], s=620, facecolor="none", edgecolor=RING, linewidth=2.2, zorder=5)
    for node, text in enumerate(case["features"]):
        axes.text(-0.28, -node, text, ha="right", va="center", fontsize=9)
    axes.text(0.98, -case["crossing"] - 0.44, case["note"], ha="right", va="center", fontsize=8.5, color=RING)
    axes.set_xlim(-1.0, steps + 0.35)
    axes.set_ylim(-len(names) + 0.4 - 0.9, 0.9)
    axes.set_title(title, fontsize=10)
    axes.set_xticks(range(steps + 1), ["features", *(f"layer {layer + 1}" for layer in range(steps))], fontsize=8)
    axes.set_yticks([])
    for side in ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.legend(loc="lower center", fontsize=8, frameon=False, ncols=2)


def _draw_walk(axes: Any, nodes: tuple[int, ...], **style: Any) -> None:
    label = style.pop("label", None)
    for layer, (source, receiver) in enumerate(pairwise(nodes)):
        axes.plot([layer, layer + 1], [-source, -receiver], label=label if layer == 0 else None, **style)


def draw(file: Path) -> None:
    """The three counterexamples side by side."""
    names = page_names()
    number, whole = names["number"], names["whole"]
    letters, features = list("abduv"), ["(2, 0)", "(2, 0)", "(0, 3)", "(0, 0)", "(0, 0)"]
    star = {"data": names["star"], "names": letters, "features": features, "crossing": 3}
    cases = {
        "One number a node, negative weights\nexplained: node 0": {
            "model": names["signs"], "data": names["pair"], "options": {"index": 0, **number},
            "names": ["0", "1"], "features": ["1", "2"], "crossing": 1, "note": "kept −1, forgotten −2",
        },
        "Two numbers a node, nothing negative\nexplained: node v": {
            "model": names["crossing"], "options": {"index": names["v"], **number}, "note": "kept 4, forgotten 3", **star,
        },
        "Two layers, a sum over the graph\nexplained: the graph": {
            "model": names["spread"], "options": whole, "note": "kept 4, forgotten 3", **star,
        },
    }  # fmt: skip
    figure = Figure(figsize=(12.5, 4.4), dpi=110, layout="constrained")
    for place, (title, case) in enumerate(cases.items()):
        draw_case(figure.add_subplot(1, 3, place + 1), title, case)
    figure.savefig(file)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "counterexamples.png")
