"""A study: many networks measured in processes, what they gave kept in a JSON file, and tables printed from that file.

The pages of docs/findings/ hold the tables that `--table` prints; a test compares.
"""

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgewise.files import versions
from edgewise.student_intervals import interval_of_mean

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """One finding."""

    name: str
    """Of its module and of its JSON file."""
    about: str
    items: Callable[[int], Sequence[Any]]
    """From the number of networks to what is measured, one after another."""
    measure: Callable[[Any], list[Row]]
    networks: int
    tables: Callable[[list[Row]], str]
    """From all rows to markdown."""
    together: Callable[[list[Row]], list[Row]] = lambda rows: rows
    """What needs the rows of all items at once, done before they are kept."""

    @property
    def file(self) -> Path:
        """Where its numbers are kept."""
        return Path(__file__).with_name(f"{self.name}.json")

    def run(self) -> None:
        """Read the command line, measure, keep, print."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.findings.{self.name}", description=self.about)
        parser.add_argument("--networks", type=int, default=self.networks, help=f"of each kind ({self.networks})")
        parser.add_argument("--workers", type=int, default=1, help="processes (1)")
        parser.add_argument("--out", type=Path, default=self.file, help="where the numbers are kept")
        parser.add_argument("--table", action="store_true", help="only print the tables of numbers that are there")
        asked = parser.parse_args()
        if not asked.table:
            start = time.perf_counter()
            rows = self.together(measured(self.measure, self.items(asked.networks), asked.workers))
            kept = {"versions": versions(), "seconds": round(time.perf_counter() - start), "rows": rows}
            asked.out.write_text(json.dumps(kept, ensure_ascii=False).replace("}, {", "},\n{") + "\n", encoding="utf-8")
        print(self.tables(json.loads(asked.out.read_text(encoding="utf-8"))["rows"]))


def measured(measure: Callable[[Any], list[Row]], items: Sequence[Any], workers: int) -> list[Row]:
    """The rows of all items, in their order."""
    if workers == 1:
        return [row for item in items for row in _one((measure, item))]
    with multiprocessing.get_context("spawn").Pool(workers, _begin) as pool:
        return [row for rows in pool.imap(_one, [(measure, item) for item in items]) for row in rows]


def _begin() -> None:
    torch.set_num_threads(1)


def _one(work: tuple[Callable[[Any], list[Row]], Any]) -> list[Row]:
    measure, item = work
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return measure(item)


# --- Tables --------------------------------------------------------------------------------------------------------------


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spanned(values: Sequence[float], digits: int = 3, percent: bool = False) -> str:  # noqa: FBT001, FBT002
    """A mean with its 95% Student interval over networks; only the mean of fewer than three."""
    known = torch.tensor([value for value in values if value is not None and not math.isnan(value)], dtype=torch.double)
    if not len(known):
        return "–"
    scale, end = (100, "%") if percent else (1, "")
    low, high = interval_of_mean(known, 0.95)
    if percent:
        low, high = max(low, 0.0), min(high, 1.0)
    mean = f"{scale * float(known.mean()):.{digits}f}{end}"
    return mean if math.isnan(low) else f"{mean} ({scale * low:.{digits}f} … {scale * high:.{digits}f})"
