"""Numbers, tables and labels of nodes as text, as HTML and as JSON: the one place for each of them.

Labels and classes of nodes are what the user gave, made safe to print: for pictures, GraphML files and tables. Nothing here
needs torch or numpy, so the command line's help can import it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, SupportsIndex

from edgewise.errors import InputError

LONGEST = 28
"""Letters of a label; a longer one is cut."""


def duration(seconds: float) -> str:
    """A time span in words.

    >>> duration(4000), duration(75), duration(3.4)
    ('1 h 06 min', '1 min 15 s', '3 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural.

    >>> counted(1, "walk"), counted(2, "walk"), counted(0, "target")
    ('1 walk', '2 walks', '0 targets')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def by_auto(settings: Mapping[str, Any]) -> str:
    """Why `"auto"` chose a method, for the end of a `repr`; empty where the user chose it.

    >>> by_auto({"auto": "gradients can be relied on here."}), by_auto({})
    (' by auto: gradients can be relied on here.', '')
    """
    return f" by auto: {settings['auto']}" if "auto" in settings else ""


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as its widest cell.

    >>> print(columns([("method", "seconds"), ("gradient", "0.1")]))
    method    seconds
    gradient  0.1
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with one head row; every text is escaped, so that a label of the user's cannot act as HTML.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def for_json(value: Any) -> Any:
    """The same value with None for NaN and infinities, which JSON does not know; inside dicts and lists too.

    >>> for_json({"a": [1.0, float("nan")], "b": "text"})
    {'a': [1.0, None], 'b': 'text'}
    """
    if isinstance(value, dict):
        return {name: for_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable_lines(text: str) -> str:
    r"""A text that may come from data, without characters that would steer a terminal; line breaks stay.

    >>> printable_lines("a\x1b[31mb\n\x9bc")
    'a�[31mb\n�c'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def printable(text: str) -> str:
    r"""The same as one line: line breaks go, too.

    >>> printable("a\nb")
    'a�b'
    """
    return printable_lines(text).replace("\n", "�")


def typed_name(kind: str, number: int, names: Sequence[str] | Mapping[int, str] | None = None) -> str:
    """A node of a typed graph in words: its type, and its name or its number.

    >>> typed_name("paper", 3), typed_name("user", 0, ["Ann"]), typed_name("card", 0, ["card 17"])
    ('paper 3', 'user Ann', 'card 17')
    """
    known = names.get(number) if isinstance(names, Mapping) else names[number] if names else None
    name = str(number) if known in (None, "") else str(known)
    return name if name.lower().startswith(kind.lower()) else f"{kind} {name}"


def target_in_words(index: Any) -> str:
    """A target of a typed graph: `("paper", 3)`, or a link `(edge type, (u, v))`.

    >>> target_in_words(("paper", 3)), target_in_words((("user", "rates", "movie"), (3, 7)))
    ('paper 3', 'user 3 – movie 7')
    """
    kind, number = index
    if isinstance(kind, str):
        return typed_name(kind, number)
    return " – ".join(typed_name(end, one) for end, one in zip(kind[::2], number, strict=True))


# --- Labels and classes of nodes, as the user gave them ---------------------------------------------------------------


def read_labels(given: Any, num_nodes: int) -> dict[int, str]:
    """A text per node: from a mapping `{node: label}`, or a sequence with an entry for every node.

    >>> read_labels({3: "a paper"}, 10), read_labels(["C", "O"], 2)
    ({3: 'a paper'}, {0: 'C', 1: 'O'})
    """
    return {node: short_name(label) for node, label in _pairs("labels", given, num_nodes)}


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
    try:
        text = str(value)
    except Exception:  # a stranger's `__str__` may fail
        text = type(value).__name__
    line = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short_name(value: Any, longest: int = LONGEST) -> str:
    """One short line of a name; a long one keeps its end, too, by which names often differ.

    >>> short_name("Northern Wholesale Trading Company No. 17")
    'Northern Wholesale…ny No. 17'
    """
    line = plain_text(value, longest=10**6)
    head = 2 * longest // 3
    return line if len(line) <= longest else f"{line[:head]}…{line[head + 1 - longest :]}"


def _listed(given: Any) -> Any:
    """A tensor or an array as a list, anything else itself; None for one that cannot be read (quantised, on no device)."""
    try:
        return given.tolist() if hasattr(given, "tolist") else given
    except Exception:  # each kind of tensor raises its own
        return None


def _pairs(name: str, given: Any, num_nodes: int) -> list[tuple[int, Any]]:
    """(node, value) of a mapping, or of a sequence with an entry for every node; nothing for None."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        if not all(isinstance(node, SupportsIndex) for node in given):
            raise InputError(
                f"`{name}` must be a mapping {{node: text}} with the numbers of nodes, such as {{0: 'a'}}."
            )
        return [(int(node), value) for node, value in given.items()]
    values = _listed(given)
    if not isinstance(values, Collection) or isinstance(values, (str, bytes)):
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


def text_of(given: Any, key: Any, count: int, name: str, noun: str) -> Any:
    """The text of a node or class, from a mapping or from a list with one for each of `count`; None if it has none.

    >>> text_of(["clean", "fraud"], 1, 2, "classes", "class"), text_of({3: "Ann"}, 4, 10, "labels", "node")
    ('fraud', None)
    """
    if given is None or isinstance(given, Mapping):
        return None if given is None else given.get(key)
    values = _listed(given)
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)) or len(values) != count:
        raise InputError(
            f"`{name}` must be a mapping {{{noun}: text}}, or have one text for each of the {count} "
            f"{noun}{'es' if noun == 'class' else 's'}, got {type(given).__name__}."
        )
    return values[key]
