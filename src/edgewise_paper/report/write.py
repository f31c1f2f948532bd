"""Writes the report of a run: two pages, their figures, and every row as a table for data frames.

The report begins with how the numbers were made, has a section for each experiment (`sections.py`), and
ends with every number beside the published one.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgewise.errors import missing_extra
from edgewise.files import versions, write_whole
from edgewise.text import counted, duration
from edgewise_paper.authors_code.pages import DATA_FILE, write_pages
from edgewise_paper.authors_code.summary import collect
from edgewise_paper.comparison import ResultView
from edgewise_paper.report.document import (
    Block,
    Document,
    FigureBlock,
    Heading,
    Items,
    Paragraph,
    as_markdown,
    as_page,
    full_table,
)
from edgewise_paper.report.figures import draw_all
from edgewise_paper.report.sections import SECTIONS, label
from edgewise_paper.runner import Reproduction
from edgewise_paper.task import Row

TITLE = "Explaining GNN Explanations with Edge Gradients: the paper's experiments, run again"


def write_report(run: Reproduction) -> list[Path]:
    """Write `report.md`, `report.html`, `results.parquet` and `figures/` into the output folder of the run.

    A run of the authors' code (`--published`) has pages of its own: `published.md`, `audit.md`, `published.json`.

    Returns:
        The paths of the three files.
    """
    view, out = ResultView(run), run.options.out
    if any(experiment.published for experiment in run.experiments):
        return _write_published(view.rows, out)
    drawn = draw_all(view, out / "figures") | {path.stem for path in (out / "figures").glob("*.png")}
    report = Document()
    report.add(*(block for block in _blocks(view) if _is_there(block, drawn)))
    pages = {"report.md": as_markdown(report), "report.html": as_page(report, TITLE)}
    for name, text in pages.items():
        write_whole(out / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    write_table(view.rows, out / "results.parquet")
    return [*(out / name for name in pages), out / "results.parquet"]


def _write_published(rows: list[Row], out: Path) -> list[Path]:
    """Write what `--published` found: its numbers as JSON, and the two pages that are printed from them."""
    summary = collect(rows)
    summary.write(out / DATA_FILE)
    return [out / DATA_FILE, *write_pages(summary, out)]


def _is_there(block: Block, drawn: set[str]) -> bool:
    """Figures without results and lists without sentences are left out."""
    return block.name in drawn if isinstance(block, FigureBlock) else not isinstance(block, Items) or bool(block.texts)


def write_table(rows: list[Row], path: Path) -> None:
    """Write rows as a Parquet file, with the columns of `Row`."""
    pyarrow = _pyarrow()
    columns = [row.columns() for row in rows]
    names = list(columns[0]) if columns else []
    table = pyarrow.table({name: [line[name] for line in columns] for name in names})
    write_whole(path, lambda file: pyarrow.parquet.write_table(table, file))


def read_table(path: Path) -> list[Row]:
    """The rows that `write_table` wrote."""
    lines = _pyarrow().parquet.read_table(path).to_pylist()
    return [Row(**{**line, **{name: json.loads(line[name]) for name in ("settings", "versions")}}) for line in lines]


def _pyarrow() -> Any:
    """The library, or an error that names the extra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "results.parquet") from error
    return pyarrow


def _blocks(view: ResultView) -> Iterator[Block]:
    """The whole report: summary, a section for each experiment that has results, all numbers at the end."""
    run = view.run
    yield Heading(TITLE, 1)
    yield Paragraph(
        "He, Rafiey, Mishne and Wang, KDD 2025: the experiments as the text defines them, as far as their data were "
        "there. Published numbers stand beside ours and are not judged here, because the authors' code makes them "
        "otherwise: what it does, and whether ours are the same then, is printed by `edgewise reproduce --published`."
    )
    yield Items(list(_about(view)))
    for experiment in run.experiments:
        if view.find(experiment=experiment.name):
            yield Heading(experiment.title)
            yield from SECTIONS[experiment.name](view)
    yield Heading("Every number beside the published one")
    for experiment in run.experiments:
        known = [one for one in view.find(experiment=experiment.name) if one.published]
        if known:
            yield full_table(known, experiment.title, label, folded=True)


def _about(view: ResultView) -> Iterator[str]:
    """How the numbers were made: versions, seeds, time, what is missing."""
    run = view.run
    seconds = {
        (row.experiment, row.dataset, row.architecture, row.layers, row.seed): row.seconds  # once for each network
        for row in view.rows
        if row.quantity == "accuracy" and row.seconds == row.seconds
    }
    used = Counter(tuple(row.versions.items()) for row in view.rows) or Counter([tuple(versions().items())])
    for some, count in used.most_common():
        text = ", ".join(f"{name} {number}" for name, number in some)
        yield text if len(used) == 1 else f"{count:,} numbers: {text}"
    yield f"Seeds: {run.options.seeds} for real data, more where an experiment is cheap (each table says how many)."
    yield f"Training took {duration(sum(seconds.values()))}, summed over all networks (one thread each)."
    if run.options.quick:
        yield "A quick run: small grids and short training. These numbers are not comparable with the paper's."
    if run.unfinished:
        yield f"Without a result: {counted(run.unfinished, 'task')}. Run the same command again."
    yield from run.notes
