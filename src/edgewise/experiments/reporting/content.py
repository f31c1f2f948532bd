"""What a report is made of, whatever it is written as."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the report's own."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True)
class Items:
    """Sentences one below the other."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells as text; `folded` ones are opened by the reader where the format can."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure, by the name of its files (`figures/name.png`, `.svg`)."""

    name: str
    caption: str


Block: TypeAlias = Heading | Paragraph | Items | Table | Picture


@dataclass
class Report:
    """Blocks in order."""

    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        """At the end."""
        self.blocks += blocks
