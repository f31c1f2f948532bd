"""What `top` gives: named rows, best first, which print as a table and compare as plain tuples."""

from typing import Any, NamedTuple

from edgewise.text import columns, html_table, typed_name


class TopEdge(NamedTuple):
    """An edge and its score.

    >>> row = TopEdge(0.5, 1, 2, 7)
    >>> row, row.source, row == (0.5, 1, 2, 7)
    ((0.5, 1, 2, 7), 1, True)
    """

    score: float
    source: Any
    receiver: Any
    column: int

    def __repr__(self) -> str:
        return tuple.__repr__(self)


class TopStep(NamedTuple):
    """An edge in one layer."""

    score: float
    source: Any
    receiver: Any
    column: int
    layer: int

    def __repr__(self) -> str:
        return tuple.__repr__(self)


class TypedTopEdge(TopEdge):
    """An edge of a typed graph: its ends are `(type, number)`, its column is that of its type, `edge_type`.

    >>> row = TypedTopEdge.of_type(("user", "rates", "movie"), 0.5, ("user", 3), ("movie", 1), 7)
    >>> row, row.edge_type[1]
    ((0.5, ('user', 3), ('movie', 1), 7), 'rates')
    """

    edge_type: tuple[str, str, str]

    @classmethod
    def of_type(cls, edge_type: tuple[str, str, str], *fields: Any) -> "TypedTopEdge":
        """The row of an edge of that type."""
        row = cls(*fields)
        row.edge_type = edge_type
        return row


class TypedTopStep(TopStep):
    """The same in one layer."""

    edge_type: tuple[str, str, str]

    @classmethod
    def of_type(cls, edge_type: tuple[str, str, str], *fields: Any) -> "TypedTopStep":
        """The row of an edge of that type, with the layer last."""
        row = cls(*fields)
        row.edge_type = edge_type
        return row


class TopFeature(NamedTuple):
    """A feature of a node and its score."""

    score: float
    node: Any
    feature: int

    def __repr__(self) -> str:
        return tuple.__repr__(self)


class NamedTopFeature(NamedTuple):
    """The same with the feature's name."""

    score: float
    node: Any
    feature: int
    name: str

    def __repr__(self) -> str:
        return tuple.__repr__(self)


class TopNode(NamedTuple):
    """A node and its score (`cam`, `grad_cam`)."""

    score: float
    node: Any

    def __repr__(self) -> str:
        return tuple.__repr__(self)


class Ranked(list[Any]):
    """Rows of `top`: a list like any other, which `print` and notebooks show as a table.

    >>> print(Ranked([TopEdge(0.5, 1, 2, 7), TopEdge(0.25, 0, 2, 3)]))
    score  source  receiver  column
    +0.5   1       2         7
    +0.25  0       2         3
    """

    def __str__(self) -> str:
        return columns(self._cells()) if self else "no scores of that sign"

    def _repr_html_(self) -> str:
        return html_table(self._cells()[0], self._cells()[1:]) if self else "<p>no scores of that sign</p>"

    def _cells(self) -> list[tuple[str, ...]]:
        """The head and the rows as texts."""
        typed = hasattr(self[0], "edge_type")
        head = (*self[0]._fields, "edge type") if typed else self[0]._fields
        rows = [[_cell(name, part) for name, part in zip(row._fields, row, strict=True)] for row in self]
        if typed:
            rows = [[*cells, row.edge_type[1]] for cells, row in zip(rows, self, strict=True)]
        return [head, *map(tuple, rows)]


class RankedSets(list[Ranked]):
    """The rows of several targets, a list for each; printed, each under the name of its target."""

    def __init__(self, rows: list[Ranked], index: list[Any]) -> None:
        super().__init__(rows)
        self._index = index

    def __str__(self) -> str:
        return "\n\n".join(f"{_cell('index', i)}\n{rows}" for i, rows in zip(self._index, self, strict=True))

    def _repr_html_(self) -> str:
        both = zip(self._index, self, strict=True)
        return "".join(f"<p><b>{_cell('index', index)}</b></p>{rows._repr_html_()}" for index, rows in both)


def _cell(name: str, part: Any) -> str:
    """A part of a row as text: a score with its sign, a typed end as `user 3`."""
    if name == "score":
        return f"{part:+.4g}"
    return typed_name(*part) if isinstance(part, tuple) and isinstance(part[0], str) else str(part)
