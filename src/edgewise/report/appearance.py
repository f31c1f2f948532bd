"""How things look in every picture and page: colours, widths of lines, and the nodes with their labels and legend.

First the colours: signed scores around white, groups of nodes, walks side by side. All of them can be told apart by the
colour-blind: purple and orange are the ends of PuOr, the groups are light enough for black text, the walks follow Okabe and
Ito. Then `Nodes`: which colour a node has, and what is written in it and beside it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from operator import index as whole
from typing import TYPE_CHECKING, Any

from edgewise.arguments import shown
from edgewise.errors import InputError
from edgewise.text import plain_text, read_classes, read_labels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch import Tensor

SUPPORTS, OPPOSES, WHITE = "#542788", "#b35806", "#ffffff"
OUTLINE = "#9a9a9a"
"""Around every signed line: a score near zero is nearly white and must still be seen."""
TARGET = "#ffd92f"
GROUPS = ("#44bb99", "#77aadd", "#ffaabb", "#bbcc33", "#99ddff", "#eedd88", "#aaaa00", "#dddddd")
WALKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7a00")
FAINTEST = 0.3
"""Of the full colour: what a score near zero has."""
THINNEST, WIDEST = 1.0, 5.0  # in points
SHORT = 4  # letters that fit into a circle


def signed_colour(score: float, largest: float) -> str:
    """`#rrggbb`: purple at `largest`, orange at `-largest`, faint near zero, white at it; by the square root.

    The faintest colour is far enough from white that the weakest line is seen, with its sign.

    >>> signed_colour(2.0, 2.0), signed_colour(0.0, 2.0), signed_colour(-2.0, 2.0)
    ('#542788', '#ffffff', '#b35806')
    """
    share = min(abs(score) / largest, 1.0) ** 0.5 if largest > 0 else 0.0
    amount = FAINTEST + (1 - FAINTEST) * share if share > 0 else 0.0
    end = SUPPORTS if score > 0 else OPPOSES
    mixed = (round((1 - amount) * 255 + amount * part) for part in rgb(end))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def rgb(colour: str) -> tuple[int, int, int]:
    """The three numbers, 0 to 255, of `#rrggbb`.

    >>> rgb("#542788")
    (84, 39, 136)
    """
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def width_of(score: float, largest: float) -> float:
    """The width of a line, in points, by magnitude.

    >>> width_of(-2.0, 2.0), width_of(0.0, 2.0)
    (5.0, 1.0)
    """
    return THINNEST + (WIDEST - THINNEST) * (min(abs(score) / largest, 1.0) if largest > 0 else 0.0)


@dataclass(frozen=True)
class Nodes:
    """The looks of the nodes of one picture: a colour for each group that is shown.

    Groups are the classes of nodes, and the groups that the user marks; a node that is in both has the colour of its mark.
    """

    labels: Mapping[int, str]
    """Node → its label, for nodes that have one."""
    group: Mapping[int, str]
    """Node → the group whose colour it has."""
    colour_of: Mapping[str, str]
    """Group → colour, in the order of the legend."""
    long: bool
    """Whether a shown label is too long for a circle: then all labels are outside, and numbers inside."""
    radius: float
    """The radius of the circles, in points."""
    numbers: Mapping[int, str] = field(default_factory=dict)
    """Node → what its number is, where that is another one: in a typed graph that within its type."""
    full: Mapping[int, str] = field(default_factory=dict)
    """Node → its name in a sentence, in a typed graph: `paper 3`, `user Ann`."""
    n_id: Tensor | None = None
    """`[N]`: of a sampled batch, the numbers of its nodes in the whole graph; nodes are then shown by these."""

    @classmethod
    def read(
        cls,
        shown: Iterable[int],
        num_nodes: int,
        labels: Any,
        classes: Any,
        marked: Mapping[str, Collection[int]] | None,
        n_id: Tensor | None = None,
    ) -> Nodes:
        """Read what the user gave, for the nodes that are shown; a group without a shown node gets no colour.

        Short labels that several nodes share, such as the symbols of atoms, are followed by the node's number; of long ones
        those that are there twice.

        >>> nodes = Nodes.read([0, 1, 2], 3, ["C", "C", "O"], None, {"acid": [2]})
        >>> [nodes.inside(node) for node in range(3)], list(nodes.colour_of)
        (['C0', 'C1', 'O2'], ['acid'])
        """
        number = {node: node if n_id is None else int(n_id[node]) for node in shown}
        shown = sorted(shown)
        named, group = read_labels(labels, num_nodes), read_classes(classes, num_nodes)
        marks = {plain_text(name): _node_set(nodes, num_nodes) for name, nodes in (marked or {}).items()}
        for name, nodes in reversed(marks.items()):
            group |= dict.fromkeys(nodes, name)
        sizes = Counter(group[node] for node in shown if node in group)
        by_size = sorted(sizes, key=lambda name: (name not in marks, -sizes[name], name))
        chosen = dict(zip(by_size, GROUPS, strict=False))
        long = any(len(named[node]) > SHORT for node in shown if node in named)
        if long:
            named = each_once(named, number)
        elif len(shared := {named[node] for node in shown if node in named}) < len(set(shown) & set(named)):
            named |= {node: f"{named[node]}{number[node]}" for node in shown if named.get(node) in shared}
        inside = (str(number[node]) if long else named.get(node, str(number[node])) for node in shown)
        longest = max(map(len, inside), default=1)
        return cls(named, group, dict(sorted(chosen.items())), long, max(8.5, 2.3 * min(longest, 8)), n_id=n_id)

    def number(self, node: int) -> int:
        """The number by which a node is shown."""
        return node if self.n_id is None else int(self.n_id[node])

    def called(self, node: int) -> str:
        """A node in a sentence: its name, or its number."""
        return self.full.get(node) or self.labels.get(node) or self.numbers.get(node, str(self.number(node)))

    def colour(self, node: int, *, is_root: bool = False) -> str:
        """The colour of a node's group; white without a group, and for the groups that no colour is left for."""
        return self.colour_of.get(self.group.get(node, ""), TARGET if is_root else WHITE)

    def inside(self, node: int) -> str:
        """What is written in the circle: the label, or the number if labels are long."""
        number = self.numbers.get(node, str(self.number(node)))
        return number if self.long else self.labels.get(node, number)

    def outside(self, node: int) -> str | None:
        """What is written beside it: the label, if labels are long."""
        return self.labels.get(node) if self.long else None

    def keys(self, root: int | None, root_name: str) -> list[tuple[str, Any]]:
        """(name, sample) for the legend: the explained node in the colour that it has in the picture, and every group."""
        from matplotlib.lines import Line2D

        keys = []
        if root is not None:
            colour = self.colour(root, is_root=True)
            square = Line2D([], [], linestyle="", marker="s", markersize=10, markeredgewidth=2, markeredgecolor="black")
            square.set_markerfacecolor(colour)
            keys.append((root_name, square))
        for name, colour in self.colour_of.items():
            circle = Line2D(
                [], [], linestyle="", marker="o", markersize=9, markerfacecolor=colour, markeredgecolor="0.4"
            )
            keys.append((name, circle))
        return keys


def each_once(named: Mapping[int, str], number: Mapping[int, int]) -> dict[int, str]:
    """Names of shown nodes with the numbers of those that share one.

    >>> each_once({0: "Ann Lee", 1: "Bob Ray", 2: "Ann Lee"}, {0: 0, 1: 1, 2: 2})
    {0: 'Ann Lee (0)', 1: 'Bob Ray', 2: 'Ann Lee (2)'}
    """
    count = Counter(named[node] for node in number if node in named)
    return {
        node: f"{name} ({number[node]})" if count[name] > 1 and node in number else name for node, name in named.items()
    }


def _node_set(nodes: Any, num_nodes: int) -> set[int]:
    """The numbers of marked nodes; more than there are nodes are refused as soon as they are counted."""
    found: set[int] = set()
    try:
        for node in nodes:
            found.add(whole(node))
            if len(found) > num_nodes:
                raise ValueError(node)
        return found
    except Exception as error:  # what a stranger's object raises when it is looped over
        raise InputError(
            f"`marked` must map names to lists of nodes, at most the {num_nodes} that there are, such as {{'acid': [2]}}, got "
            f"{shown(nodes)}."
        ) from error


def page_colours() -> dict[str, Any]:
    """The colours and widths of the pictures, so that the page has the same."""
    return {
        "supports": SUPPORTS,
        "opposes": OPPOSES,
        "target": TARGET,
        "walks": list(WALKS),
        "faintest": FAINTEST,
        "thinnest": THINNEST,
        "widest": WIDEST,
    }
