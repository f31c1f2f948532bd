"""Prints docs/published.md from the numbers of `--published`: what is the same, what lies inside its interval, what does not.

`python -m edgewise_paper.authors_code.pages docs` reads docs/reproduction/published.json and writes docs/published.md and
docs/audit.md; `edgewise reproduce --published` writes both, and the JSON file, into its output folder.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgewise.files import write_whole
from edgewise_paper.authors_code import audit
from edgewise_paper.authors_code.summary import SeededNumber, Summary, read
from edgewise_paper.data import NODE_SETS
from edgewise_paper.report.document import Block, Document, Heading, Items, Paragraph, TableBlock, as_markdown, number
from edgewise_paper.training.networks import LINEAR
from edgewise_paper.verdicts import LEAST_SEEDS, TOO_WIDE, ShareOfNetworks

DATA_FILE = "published.json"
GROUPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("layerwise GNNExplainer", {"level": "layer", "method": "gnn_explainer"}),
    ("layerwise gradient", {"level": "layer", "method": "gradient"}),
    ("layerwise random and full", {"level": "layer", "method": ("random", "full")}),
    ("input GNNExplainer", {"level": "input", "method": "gnn_explainer", "variant": ""}),
    ("input gradient and occlusion", {"level": "input", "method": ("gradient", "occlusion")}),
    ("input random and full", {"level": "input", "method": ("random", "full")}),
    ("sign flips", {"quantity": "sign flips", "variant": ""}),
    ("accuracy", {"quantity": ("accuracy", "AUROC")}),
)
FAR = 0.015
"""Of a share of paths: what counts as another share."""
MARKS = {"inside": "✓", "outside": "✗", TOO_WIDE: "(wide)", "too few seeds": ""}


def write_pages(summary: Summary, out: Path) -> list[Path]:
    """Write both pages; their paths."""
    pages = {"published.md": published_page(summary), "audit.md": audit.audit_page(summary)}
    for name, text in pages.items():
        write_whole(out / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    return [out / name for name in pages]


def published_page(summary: Summary) -> str:
    """The page of verdicts."""
    parts = [*_head(summary), *_shares(summary), *_missing(summary)]
    parts += [*_rebuilt(summary), *_linear(summary), *_curves(summary)]
    return as_markdown(Document(parts))


def _head(summary: Summary) -> Iterator[Block]:
    yield Heading("The published numbers, made as they were made", 1)
    yield Paragraph(
        "`edgewise reproduce --published --seeds 10 --full --out DIR` runs the authors' recipe as coded "
        "(`edgewise_paper/authors_code/`, with their file and line at each step) and prints this page. What the text defines "
        "is another set of experiments, [the report](reproduction/report.md); what is wrong in the code is in "
        "[the audit](audit.md). Nothing here is fitted."
    )
    yield Paragraph(
        "Networks on real data had their dropout drawn on a GPU and cannot be rebuilt. For those, the published "
        "point is held "
        "against the 95% Student prediction interval of our seeds (Fisher z for cosines, logits for shares): ✓ inside, ✗ "
        "outside, (wide) where the interval is wider than 0.3 and says nothing, no mark for fewer than ten seeds."
    )
    used = "; ".join(f"{count:,} values with {text}" for text, count in summary.versions.items())
    yield Paragraph(f"Made with: {used}. Values with a device were made with `--device`.")
    if summary.notes:
        yield Items(list(summary.notes))


def _shares(summary: Summary) -> Iterator[Block]:
    """Expected and found shares, counted by network."""
    yield Heading("How many published points lie inside")
    yield Paragraph(
        "Points of one network are dependent, so shares are means over networks. If the recipe is right, 95% of the points "
        "lie inside the interval and, with ten seeds, 82% between the lowest and the highest (an eleventh seed leaves that "
        "range with 18%)."
    )
    rows = []
    for title, where in _sets(summary):
        for name, columns in GROUPS:
            found = summary.share(**where, **columns)
            if found is not None:
                rows.append((title, name, *_share_cells(found)))
    yield TableBlock(
        ("networks", "quantity", "networks", "points", "inside the interval (95% expected)",
         "between lowest and highest (expected)", "no verdict", "mean distance"), rows,
    )  # fmt: skip


def _missing(summary: Summary) -> Iterator[Block]:
    """Which published networks have no ten seeds here, so that nobody takes what is shown for all there is."""
    seeds = {one.network: len(one.values) for one in summary.numbers if one.quantity in ("accuracy", "AUROC")}
    lacking: dict[str, list[str]] = {}
    for dataset in (*NODE_SETS, "MUTAG", "PROTEINS", "Graph-SST2"):
        for architecture in ("GCN", "GAT", "GIN"):
            few = [str(depth) for depth in range(1, 6) if seeds.get((dataset, architecture, depth), 0) < LEAST_SEEDS]
            if few:
                lacking.setdefault(architecture, []).append(
                    dataset + ("" if len(few) == 5 else f" ({', '.join(few)} layers)")
                )
    if lacking:
        texts = [f"{architecture}: {', '.join(names)}" for architecture, names in lacking.items()]
        yield Paragraph("Published networks without ten seeds here, and so without a verdict:")
        yield Items(texts)


def _sets(summary: Summary) -> Iterator[tuple[str, dict[str, object]]]:
    for architecture in ("GCN", "GAT", "GIN"):
        if summary.find(dataset=NODE_SETS, architecture=architecture):
            yield f"{architecture}, five graphs", {"dataset": NODE_SETS, "architecture": architecture}
    yield "linear network, Cora", {"architecture": LINEAR}
    for dataset in ("MUTAG", "PROTEINS"):
        for architecture in ("GCN", "GAT", "GIN"):
            yield f"{architecture}, {dataset}", {"dataset": dataset, "architecture": architecture}


def _share_cells(found: ShareOfNetworks) -> tuple[str, ...]:
    inside = "–" if found.inside != found.inside else f"{found.inside:.0%}"
    return (
        str(found.networks), str(found.points), inside, f"{found.in_range:.0%} ({found.expected_in_range:.0%})",
        str(found.no_verdict), number(found.distance),
    )  # fmt: skip


# --- The same network -------------------------------------------------------------------------------------------------


def _rebuilt(summary: Summary) -> Iterator[Block]:
    """Networks that came out again: differences, no verdicts."""
    yield Heading("Networks that were rebuilt from seed 0")
    yield Paragraph(
        "The same data, start and order of batches; only rounding differs. Infection is trained in float64, which any "
        "machine repeats; the last column is float32, as published, with the sums over neighbours in five orders: what "
        f"rounding alone does. float64 was made the main column after both had been seen.{_rounded_paths(summary)} Cosines of "
        "Infection were read off images (± 0.005)."
    )
    rows = []
    for dataset in ("Infection", "Negative Evidence", "Negative Evidence (three colours)"):
        for one in summary.find(dataset=dataset, variant=""):
            if one.published is None or 0 not in one.values or (one.quantity == "cosine" and not _is_told(one)):
                continue
            ours = one.values[0]
            again = [
                other.values[0]
                for other in summary.find(dataset=dataset, quantity=one.quantity, method=one.method)
                if other.variant.startswith("float32")
            ]
            span = f"{number(min(again), 4)} … {number(max(again), 4)}" if again else ""
            cells = (number(one.published, 4), number(ours, 4), f"{ours - one.published:+.4f}", span)
            rows.append((dataset, _label(one), *cells))
    yield TableBlock(("network", "number", "published", "ours, seed 0", "difference", "float32, five orders"), rows)
    yield from _facts(summary)


def _rounded_paths(summary: Summary) -> str:
    """How far the float32 runs of additive AMP-ave are from the published share."""
    runs = summary.find(dataset="Infection", quantity="path recovery", method="amp_ave_additive")
    known = next((one.published for one in runs if one.published is not None), None)
    values = [one.values[0] for one in runs if one.variant.startswith("float32") and 0 in one.values]
    if known is None or not values:
        return ""
    far = sum(abs(value - known) > FAR for value in values)
    return (
        f" The published AMP-ave lies below {sum(value > known for value in values)} of the {len(values)} float32 runs, and "
        f"{far} of them are more than {100 * FAR:g} points away."
    )


def _is_told(one: SeededNumber) -> bool:
    """Of the matrices of Infection, GNNExplainer to Positive Gradients; all of Negative Evidence."""
    return one.dataset != "Infection" or (one.method == "gnn_explainer" and one.reference == "positive_gradient")


def _facts(summary: Summary) -> Iterator[Block]:
    walks = [one for one in summary.find(quantity="walk of the notebook", variant="") if 0 in one.values]
    if walks:
        same = sum(one.values[0] == 1 for one in walks)
        yield Paragraph(f"Example walks of the notebook (node 50) that come out equal: {same} of {len(walks)}.")
    others = summary.find(dataset="Infection", quantity="cosine", variant="")
    known = [abs(one.values[0] - one.published) for one in others if one.published is not None and 0 in one.values]
    if known:
        yield Paragraph(
            f"All {len(known)} cosines of the Infection matrices, both levels: mean distance "
            f"{number(sum(known) / len(known))}, "
            f"largest {number(max(known))}."
        )
    exact = summary.one(dataset="Infection", quantity="path recovery", method="exact", variant="")
    if exact and 0 in exact.values:
        yield Paragraph(
            f"The walk with the highest score, found exactly, is the true path for {exact.values[0]:.2%} of the nodes."
        )
    for colours, name in ((2, "Negative Evidence"), (3, "Negative Evidence (three colours)")):
        one = summary.one(dataset=name, quantity="distance to the notebook's weights")
        if one:
            yield Paragraph(
                f"Trained weights of {name} against those that the notebook prints: largest distance {one.values[0]:.1e}"
                + (
                    ". Weights near zero step around it; in which phase they end is decided by rounding."
                    if colours == 3
                    else "."
                )
            )


def _label(one: SeededNumber) -> str:
    where = f"layer {one.layer}" if one.layer else one.level
    to = f"to {one.reference}" if one.reference else ""
    return " ".join(part for part in (one.quantity, where, one.method, to) if part)


def _linear(summary: Summary) -> Iterator[Block]:
    """The linear network, depth by depth."""
    found = [one for one in summary.find(architecture=LINEAR, variant="") if one.published is not None]
    if found:
        yield Heading("The linear network on Cora")
        yield Paragraph(
            "One `SGConv` a layer, 2000 epochs, all 497 test nodes. Flips are divided by their own depth's "
            "gradients; published ones by those of five layers."
        )
        yield depth_table(found)


def _curves(summary: Summary) -> Iterator[Block]:
    """Every other published point, by data set and architecture."""
    for dataset in (*NODE_SETS, "MUTAG", "PROTEINS"):
        for architecture in ("GCN", "GAT", "GIN"):
            found = summary.find(dataset=dataset, architecture=architecture, variant="")
            known = [one for one in found if one.published is not None]
            if known:
                yield Heading(f"{dataset}, {architecture}")
                yield depth_table(known)


def depth_table(found: Sequence[SeededNumber]) -> TableBlock:
    """A line for each quantity, a column for each depth: published, mean of the seeds, interval, mark."""
    depths = sorted({one.layers for one in found})
    lines: dict[str, dict[int, str]] = {}
    for one in found:
        judged = one.judged
        if judged is None:
            continue
        digits = 3 if (one.published is not None and one.published >= 0.001) or one.published == 0 else 6
        span = "" if len(judged.values) < 2 else f" [{number(judged.low, digits)}, {number(judged.high, digits)}]"
        few = len(judged.values)
        seeds = "" if few >= LEAST_SEEDS else f" ({few} seed{'s' if few > 1 else ''})"
        cell = f"{number(judged.published, digits)}: {number(judged.mean, digits)}{span}{seeds} {MARKS[judged.verdict]}"
        lines.setdefault(_label(one), {})[one.layers] = cell.strip()
    rows = [(name, *(cells.get(depth, "") for depth in depths)) for name, cells in lines.items()]
    heads = [f"{depth} layer{'s' if depth > 1 else ''}" for depth in depths]
    return TableBlock(("published: our mean [interval]", *heads), rows)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for path in write_pages(read(folder / "reproduction" / DATA_FILE), folder):
        print(path)
