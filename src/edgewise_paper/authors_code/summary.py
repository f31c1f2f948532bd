"""What `--published` found, as a small JSON file: every number with its seeds, beside the published one; and its verdicts.

`collect` takes the rows of a run, `read` a file. Both give a `Summary`, from which `pages.py` prints docs/published.md and
docs/audit.md.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from edgewise.files import write_whole
from edgewise_paper.comparison import published
from edgewise_paper.task import KEY, Row
from edgewise_paper.verdicts import HeldPoint, ShareOfNetworks

COLUMNS = tuple(name for name in KEY if name != "experiment")
_NETWORK = ("dataset", "architecture", "layers")


@dataclass(frozen=True, eq=False)
class SeededNumber:
    """One number of `--published`: its columns, and its value for every seed."""

    columns: dict[str, Any]
    values: dict[int, float]
    count: int

    def __getattr__(self, name: str) -> Any:
        if name in COLUMNS:
            return self.columns[name]
        raise AttributeError(name)

    @property
    def network(self) -> tuple[Any, ...]:
        """Data set, architecture and depth."""
        return tuple(self.columns[name] for name in _NETWORK)

    @cached_property
    def published(self) -> float | None:
        """The published number with these columns, whatever the experiment and the variant are called there."""
        return _points().get(_point(self.columns))

    @cached_property
    def judged(self) -> HeldPoint | None:
        """The published number beside the seeds; None if there is none, or no value."""
        if self.published is None or not self.values:
            return None
        return HeldPoint.of(self.published, list(self.values.values()), self.quantity, self.count)


def _point(columns: dict[str, Any]) -> tuple[Any, ...]:
    """What decides which published number is meant."""
    example = columns["variant"] if columns["variant"] == "first test node" else ""
    if columns["variant"] not in ("", "code", "first test node"):
        example = "none"
    return (*(columns[name] for name in COLUMNS if name != "variant"), example)


@cache
def _points() -> dict[tuple[Any, ...], float]:
    """Published numbers by `_point`."""
    return {_point(dict(zip(KEY, key, strict=True))): found.value for key, found in published().items()}


@dataclass(frozen=True, eq=False)
class Summary:
    """All numbers of `--published`."""

    numbers: list[SeededNumber]
    versions: dict[str, int]
    """From versions, as text, to how many values were made with them."""
    notes: tuple[str, ...] = ()
    """What a reader of stored numbers has to know: values that were not made by the command as it is now."""

    def find(self, **columns: Any) -> list[SeededNumber]:
        """Numbers with these columns; a tuple stands for any of its values."""
        return [
            one
            for one in self.numbers
            if all(one.columns[n] in v if isinstance(v, tuple) else one.columns[n] == v for n, v in columns.items())
        ]

    def one(self, **columns: Any) -> SeededNumber | None:
        """The first of them, or None."""
        return next(iter(self.find(**columns)), None)

    def share(self, **columns: Any) -> ShareOfNetworks | None:
        """How many published points lie inside, by network."""
        networks: dict[tuple[Any, ...], list[HeldPoint]] = {}
        for one in self.find(**columns):
            if one.judged is not None:
                networks.setdefault(one.network, []).append(one.judged)
        return ShareOfNetworks.of(networks.values())

    def write(self, path: Path) -> None:
        """Write as JSON, a number a line."""
        lines = []
        for one in self.numbers:
            kept = {name: value for name, value in one.columns.items() if value not in ("", 0)}
            values = {str(seed): float(f"{value:.6g}") for seed, value in sorted(one.values.items())}
            lines.append(json.dumps({**kept, "count": one.count, "values": values}, ensure_ascii=False))
        head = '{"versions": ' + json.dumps(self.versions) + ', "notes": ' + json.dumps(self.notes, ensure_ascii=False)
        text = head + ', "numbers": [\n' + ",\n".join(lines) + "\n]}\n"
        write_whole(path, lambda file: file.write(text.encode()))


def collect(rows: Iterable[Row]) -> Summary:
    """The numbers of a run, in the order in which they came."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    versions: dict[str, int] = {}
    for row in rows:
        groups.setdefault(row.key[1:], []).append(row)
        used = ", ".join(f"{name} {number}" for name, number in row.versions.items())
        versions[used] = versions.get(used, 0) + 1
    numbers = [_number(key, some) for key, some in groups.items()]
    return Summary(numbers, versions)


def _number(key: tuple[Any, ...], rows: Sequence[Row]) -> SeededNumber:
    values = {row.seed: row.value for row in rows if row.value == row.value}
    return SeededNumber(dict(zip(COLUMNS, key, strict=True)), values, max(row.count for row in rows))


def read(path: Path) -> Summary:
    """What `Summary.write` wrote."""
    found = json.loads(path.read_text(encoding="utf-8"))
    empty = {name: 0 if name in ("layers", "layer") else "" for name in COLUMNS}
    numbers = []
    for line in found["numbers"]:
        values = {int(seed): value for seed, value in line.pop("values").items()}
        count = line.pop("count")
        numbers.append(SeededNumber({**empty, **line}, values, count))
    return Summary(numbers, found["versions"], tuple(found.get("notes", ())))
