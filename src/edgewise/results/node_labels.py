"""Labels and classes of nodes, as the user gave them, made safe to print: for pictures, GraphML files and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgewise.errors import InputError

LONGEST = 28
"""Letters of a label; a longer one is cut."""


def read_labels(given: Any, num_nodes: int) -> dict[int, str]:
    """A text per node: from a mapping `{node: label}`, or a sequence with an entry for every node.

    >>> read_labels({3: "a paper"}, 10), read_labels(["C", "O"], 2)
    ({3: 'a paper'}, {0: 'C', 1: 'O'})
    """
    return {node: plain_text(label) for node, label in _pairs("labels", given, num_nodes)}


def read_classes(given: Any, num_nodes: int) -> dict[int, str]:
    """A class name per node, as for `read_labels`; numbers become `class 3`.

    >>> read_classes([0, 1], 2), read_classes({1: "Theory"}, 2)
    ({0: 'class 0', 1: 'class 1'}, {1: 'Theory'})
    """
    return {
        node: f"class {name}" if isinstance(name, int) else plain_text(name)
        for node, name in _pairs("classes", given, num_nodes)
    }


def plain_text(value: Any, longest: int = LONGEST) -> str:
    r"""One short line without control characters.

    >>> plain_text("two\nlines"), plain_text("x" * 40)
    ('two lines', 'xxxxxxxxxxxxxxxxxxxxxxxxxxx…')
    """
    line = "".join(letter if letter.isprintable() else " " for letter in str(value)).strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _pairs(name: str, given: Any, num_nodes: int) -> list[tuple[int, Any]]:
    """(node, value) of a mapping, or of a sequence with an entry for every node; nothing for None."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(int(node), value) for node, value in given.items()]
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise InputError(
            f"`{name}` must be a mapping {{node: text}} or have one entry for each of the {num_nodes} nodes, got "
            f"{type(given).__name__}."
        )
    if len(values) != num_nodes:
        raise InputError(
            f"`{name}` must have one entry for each of the {num_nodes} nodes, got {len(values)}. Use a mapping "
            f"{{node: text}} to name only some nodes."
        )
    return list(enumerate(values))
