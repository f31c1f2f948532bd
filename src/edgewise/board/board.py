"""Board: what a leaderboard found, as a table for people, rows for programs, and a page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from edgewise.archives import open_parquet
from edgewise.arguments import one_of
from edgewise.board.board_folder import is_line
from edgewise.board.measures import METRICS, ORDERS
from edgewise.board.summary import Standing, refusals, seconds_per_target, standings
from edgewise.contract import checked
from edgewise.errors import FileError, missing_extra
from edgewise.files import is_file, write_whole
from edgewise.inner_paths import reading
from edgewise.text import columns, counted

NAMES = tuple(metric.name for metric in METRICS)


@dataclass(frozen=True, eq=False)
class Board:
    """What `ew.leaderboard` returns; it prints as a table for each data set."""

    lines: Sequence[dict[str, Any]]
    """A line for each data set, network and entrant: its numbers for every target, or why it refused."""
    notes: tuple[str, ...] = ()
    """What was left out, in words."""
    made_with: Mapping[str, str] = field(default_factory=dict)
    """The versions that measured it; none are known of a board that was read from a file."""

    @cached_property
    def standings(self) -> list[Standing]:
        """Means, intervals and sets of ranks."""
        return standings(self.lines)

    @cached_property
    def seconds(self) -> dict[tuple[str, str], float]:
        """(data set, entrant) ↦ seconds for a target."""
        return seconds_per_target(self.lines)

    @cached_property
    def refusals(self) -> dict[tuple[str, str], str]:
        """(data set, entrant) ↦ why it has no numbers."""
        return refusals(self.lines)

    @property
    def data(self) -> list[str]:
        """The data sets."""
        return list(dict.fromkeys(line["data"] for line in self.lines))

    @checked
    def of(self, data: str, metric: str = "auroc", order: str = "support") -> list[Standing]:
        """The entrants of one data set by one metric, the best first."""
        one_of("data set", data, self.data)
        one_of("metric", metric, NAMES)
        one_of("order", order, ORDERS)
        found = [s for s in self.standings if (s.data, s.metric, s.order) == (data, metric, order)]
        return sorted(found, key=lambda standing: -standing.mean)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each data set, network, target, entrant and order: what `results.parquet` holds."""
        for line in self.lines:
            for order, values in line.get("values", {}).items():
                for place, target in enumerate(line["index"]):
                    yield {
                        **{key: line[key] for key in ("data", "seed", "accuracy", "method", "kind")},
                        "order": order,
                        "target": target,
                        **{name: values[name][place] for name in NAMES},
                    }

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows; needs `edgewise[table]`."""
        need_parquet()
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = [(name, pa.float64()) for name in NAMES]
        texts = [(name, pa.string()) for name in ("method", "kind", "order")]
        kinds = [
            ("data", pa.string()),
            ("seed", pa.int64()),
            ("accuracy", pa.float64()),
            *texts,
            ("target", pa.int64()),
        ]
        table = pa.Table.from_pylist(list(self.rows()), schema=pa.schema([*kinds, *numbers]))
        write_whole(Path(path), lambda file: pq.write_table(table, file, compression="zstd"))

    def times_to_parquet(self, path: str | Path) -> None:
        """Write how long each entrant took for a target of each network: what differs from run to run."""
        need_parquet()
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = [("data", pa.string()), ("seed", pa.int64()), ("method", pa.string()), ("seconds", pa.float64())]
        rows = [{name: line[name] for name, _ in kinds} for line in self.lines if line.get("seconds") is not None]
        table = pa.Table.from_pylist(rows, schema=pa.schema(kinds))
        write_whole(Path(path), lambda file: pq.write_table(table, file, compression="zstd"))

    @classmethod
    def read(cls, path: str | Path) -> "Board":
        """A board from its `results.parquet`: the same standings; what refused is not in that file.

        Times are those of the file `times.parquet` beside it, if there is one.
        """
        need_parquet()
        path = Path(path)
        beside, lines = path.with_name("times.parquet"), _lines_of(_rows_of(path), path)
        taken = _rows_of(beside) if is_file(beside) else []
        seconds = {tuple(row.get(key) for key in ("data", "seed", "method")): row.get("seconds") for row in taken}
        return cls([{**line, "seconds": seconds.get(_entry(line), line["seconds"])} for line in lines])

    def page(self, path: str | Path, *, times: bool = True) -> None:
        """Write the page: one HTML file that needs nothing else; without `times` two runs write the same bytes."""
        from edgewise.board.board_page import board_html

        write_whole(Path(path), lambda file: file.write(board_html(self, times=times).encode()))

    def table(self, data: str, order: str = "support") -> str:
        """One data set as text: entrants in the order of their AUROC, with intervals over networks and sets of ranks."""
        best = self.of(data, "auroc", order)
        others = [s for s in self.of(data, "path", order) if s.method not in {one.method for one in best}]
        rows = [
            (
                "method",
                "AUROC",
                "95% over networks",
                "over targets",
                "rank",
                *(m.title for m in METRICS[1:]),
                "ms/target",
            )
        ]
        for one in [*best, *others]:
            cells = {s.metric: s for s in self.standings if (s.data, s.method, s.order) == (data, one.method, order)}
            auroc = cells.get("auroc")
            first = ("-", "-", "-", "-") if auroc is None else (
                f"{auroc.mean:.3f}", _span(auroc.low, auroc.high), _span(auroc.target_low, auroc.target_high),
                str(auroc.rank or "-"),
            )  # fmt: skip
            rest = [f"{cells[name].mean:.3f}" if name in cells else "-" for name in NAMES[1:]]
            rows.append((one.method, *first, *rest, self._milliseconds(data, one.method)))
        return columns(rows)

    def _milliseconds(self, data: str, method: str) -> str:
        seconds = self.seconds.get((data, method))
        return "-" if seconds is None else f"{1000 * seconds:.2f}"

    def __repr__(self) -> str:
        parts = [f"{data}, {self._sizes(data)}, edges ranked by support\n{self.table(data)}" for data in self.data]
        refused = [f"{method} on {data}: {why}" for (data, method), why in self.refusals.items()]
        return "\n\n".join([*parts, *(["Refused:\n" + "\n".join(refused)] if refused else []), *self.notes])

    def _sizes(self, data: str) -> str:
        seeds = {line["seed"]: line for line in self.lines if line["data"] == data}
        accuracy = sum(line["accuracy"] for line in seeds.values()) / len(seeds)
        targets = max(len(line["index"]) for line in seeds.values())
        return f"{counted(len(seeds), 'network')}, {counted(targets, 'target')} each, mean accuracy {accuracy:.1%}"


def need_parquet() -> None:
    """Refuse, before any work, where parquet files cannot be written."""
    try:
        import pyarrow  # noqa: F401 - whether it is there
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A parquet file") from error


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file."""
    with reading(path, "the results of a leaderboard"):
        rows: list[dict[str, Any]] = open_parquet(path).read().to_pylist()
    return rows


def _entry(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["data"], line["seed"], line["method"]


def _lines_of(rows: Sequence[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The lines that rows were made from."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    with reading(path, "the results of a leaderboard"):
        for row in rows:
            same = {key: row[key] for key in ("data", "seed", "accuracy", "method", "kind")}
            same["seconds"] = row.get("seconds")
            line = found.setdefault((row["data"], row["seed"], row["method"]), {**same, "values": {}, "index": {}})
            values = line["values"].setdefault(row["order"], {name: [] for name in NAMES})
            for name in NAMES:
                values[name].append(row[name])
            line["index"][row["target"]] = None  # once, though there is a row for each order
    lines = [{**line, "index": list(line["index"])} for line in found.values()]
    if not all(is_line({**line, "data_key": "", "key": ""}) for line in lines):
        raise FileError(f"{path} is not the results.parquet of a leaderboard.")
    return lines


def _span(low: float, high: float) -> str:
    return "-" if math.isnan(low) else f"{low:.3f} … {high:.3f}"
