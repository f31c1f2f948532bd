"""Arguments that can be read only once are read into lists, up to a bound: `map`, `zip`, generators, and what is without end.

The functions then get what has a length and can be read again. An iterator may stand for a list or inside one: in a dict of
lists of pairs, for example. What holds no iterator is returned as it is.
"""

import io
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from edgewise.arguments import shown
from edgewise.errors import InputError

MOST = 2**20
"""Entries that the iterators of one argument may give together; a list, an array or a tensor may have any number."""
MOST_SHARED = 2**26
"""Entries of lists that hold one list in several places, which may be more than any memory has."""
PLAIN = frozenset({int, float, str, bool, bytes, type(None)})
"""Classes of values that hold nothing."""
_HOLDERS = (list, tuple, dict, set, frozenset)
_DEEP = 4
"""How far into lists of lists is looked: a dict of lists of pairs, and one more."""
_THEIRS = ("edgewise", "torch", "torch_geometric")
"""Objects of classes from these packages, and of their subclasses, are not read as lists, even if they can be iterated."""


def read_out(name: str, value: Any) -> Any:
    """An argument with lists in place of iterators.

    Raises:
        InputError: If an iterator does not end, is a file, or fails.

    >>> read_out("index", zip([0, 1], [2, 3]))
    [(0, 2), (1, 3)]
    >>> from itertools import repeat
    >>> read_out("marked", {"acid": repeat(2)})
    Traceback (most recent call last):
    edgewise.errors.InputError: `marked` must have an end, got more than 1,048,576 entries of repeat repeat(2). Use a list.
    """
    return _Reading(name).plain(value, _DEEP) if type(value) not in PLAIN and _has_unread(name, value) else value


def _is_unread(kind: type) -> bool:
    """Whether objects of a class are iterators, or have entries but no length."""
    if hasattr(kind, "__next__"):
        return True
    if not hasattr(kind, "__iter__") or hasattr(kind, "__len__"):
        return False
    return not any(base.__module__.split(".")[0] in _THEIRS for base in kind.__mro__)


def _entries(holders: Iterable[Any]) -> Iterable[Any]:
    return chain.from_iterable(holder.values() if isinstance(holder, dict) else holder for holder in holders)


def _has_unread(name: str, value: Any) -> bool:
    """Whether this is an iterator, or holds one; every list is looked into once, however often it is held."""
    holders: list[Any] = [(value,)]
    is_shared = False
    for _ in range(_DEEP):
        kinds = set(map(type, _entries(holders)))
        if any(map(_is_unread, kinds)):
            return True
        if not (lists := tuple(kind for kind in kinds if issubclass(kind, _HOLDERS))):
            break
        within = [entry for entry in _entries(holders) if type(entry) in lists]
        holders = list(dict(zip(map(id, within), within, strict=True)).values())
        is_shared |= len(holders) < len(within)
    if is_shared and (number := _counted(value, _DEEP, {})) > MOST_SHARED:
        raise InputError(
            f"`{name}` must be a list that fits in memory, got one of {number:.1e} entries: lists that hold one list many "
            f"times. Use a tensor."
        )
    return False


def _counted(value: Any, depth: int, known: dict[int, int]) -> int:
    """How many entries lists have together, each as often as it is held."""
    if not depth or not isinstance(value, _HOLDERS):
        return 1
    if id(value) not in known:
        known[id(value)] = 1  # a list that holds itself
        known[id(value)] = sum(_counted(entry, depth - 1, known) for entry in _entries([value]))
    return known[id(value)]


class _Reading:
    """Reads the iterators of one argument."""

    def __init__(self, name: str) -> None:
        self._name, self._left = name, MOST
        self._done: dict[
            int, tuple[Any, Any]
        ] = {}  # what was looked into, which so keeps its identity, and what came of it

    def plain(self, value: Any, depth: int) -> Any:
        """The same value, looked into so far."""
        if id(value) in self._done:
            return self._done[id(value)][1]
        is_unread = _is_unread(type(value))
        if not depth or not (is_unread or isinstance(value, _HOLDERS)):
            return value
        if isinstance(value, dict):
            return self._mapped(value, depth)
        parts: list[Any] = []
        self._done[id(value)] = value, parts
        parts.extend(self.plain(entry, depth - 1) for entry in (self._read(value) if is_unread else value))
        return tuple(parts) if isinstance(value, tuple) else parts

    def _mapped(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        self._done[id(value)] = value, found
        found.update((key, self.plain(entry, depth - 1)) for key, entry in value.items())
        return found

    def _read(self, value: Any) -> list[Any]:
        if isinstance(value, io.IOBase):
            raise InputError(f"`{self._name}` must be a list, got the open file {shown(value)}. Read it first.")
        try:
            found = list(islice(value, self._left + 1))
        except Exception as error:  # a stranger's iterator may fail
            raise InputError(
                f"`{self._name}` must have entries that can be read, got {shown(value)}, which raised {shown(error)}. "
                f"Use a list."
            ) from error
        self._left -= len(found)
        if self._left < 0:
            raise InputError(
                f"`{self._name}` must have an end, got more than {MOST:,} entries of {shown(value)}. Use a list."
            )
        return found
