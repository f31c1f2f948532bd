"""What a user may choose about a run."""

from dataclasses import dataclass
from pathlib import Path

FLIP_EDGES = 1000


@dataclass(frozen=True)
class Options:
    """Of `edgewise reproduce`; the same for every task of a run."""

    out: Path
    data: Path | None = None
    """The user's folder of raw files; None: see `sources.py`."""
    seeds: int = 1
    device: str = "cpu"
    quick: bool = False
    full: bool = False
    flip_edges: int = FLIP_EDGES
    workers: int = 2

    @property
    def varied_edges(self) -> int:
        """For sign flips."""
        return min(self.flip_edges, 100) if self.quick else self.flip_edges

    def seeds_of(self, at_least: int = 1, at_most: int | None = None) -> range:
        """The seeds of one experiment: a cheap one always takes several, a slow one not more than it must."""
        wanted = self.seeds if self.quick else max(self.seeds, at_least)
        return range(wanted if at_most is None or self.full else min(wanted, at_most))
