"""Names of nodes on disk: read by number, and found by name through sorted hashes, without a look at all of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, overload

import numpy as np

from edgewise.arguments import are_texts, shown
from edgewise.errors import FileError, InputError
from edgewise.store.array_files import ArrayWriter

_AT_ONCE = 2**16


def hash_of(name: str) -> int:
    """A number of 63 bits for a name, the same on every machine.

    >>> hash_of("Ann") == hash_of("Ann"), hash_of("Ann") == hash_of("Bob")
    (True, False)
    """
    return int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, eq=False)
class NameTable(Sequence[str]):
    """A name for each node: `names[3]`, `len(names)`, `names.find("Ann")`."""

    letters: np.ndarray
    """All names one after the other, in UTF-8."""
    start: np.ndarray
    """`[nodes + 1]`: where each begins."""
    hashes: np.ndarray
    """`[nodes]`: the hashes of all names, ascending."""
    order: np.ndarray
    """`[nodes]`: the node that each hash belongs to; of equal names the first node first."""

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, item: int) -> str: ...
    @overload
    def __getitem__(self, item: slice) -> list[str]: ...
    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[place] for place in range(*item.indices(len(self)))]
        place = range(len(self))[item]
        begin, end = self.start[place : place + 2]
        if not 0 <= begin <= end <= len(self.letters):
            raise _altered()
        return self.letters[begin:end].tobytes().decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.find(name))

    def find(self, name: str) -> list[int]:
        """The nodes of that name, ascending; names may repeat."""
        wanted = hash_of(name)
        begin, end = (int(np.searchsorted(self.hashes, wanted, side=side)) for side in ("left", "right"))
        return [node for node in self._nodes(slice(begin, end)) if self[node] == name]

    def index(self, name: Any, start: int = 0, stop: int | None = None) -> int:
        """The first node of that name."""
        found = [node for node in self.find(name) if start <= node < (len(self) if stop is None else stop)]
        if not found:
            raise ValueError(f"no node is called {name!r}")
        return found[0]

    def count(self, name: Any) -> int:
        """How many nodes have that name."""
        return len(self.find(name))

    def repeated(self) -> str | None:
        """A name that two nodes have; None if all are different."""
        same = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        for place in same:
            first, second = map(self.__getitem__, self._nodes(slice(place, place + 2)))
            if first == second:
                return first
        return None

    def _nodes(self, places: slice) -> list[int]:
        """The nodes at some places of the order, checked."""
        found: list[int] = self.order[places].tolist()
        if any(not 0 <= node < len(self) for node in found):
            raise _altered()
        return found


def _altered() -> FileError:
    return FileError("The names of the store are not what was written: a file was altered. Build the store again.")


FIELDS = ("letters", "start", "hashes", "order")


def write_names(folder: Path, what: str, names: Iterable[str]) -> dict[str, str]:
    """Write the names of all nodes, in order; `what` they are begins the names of the files, which are returned."""
    files = {field: f"{what}_{field}.npy" for field in FIELDS}
    hashes: list[np.ndarray] = []
    place = 0
    with (
        ArrayWriter(folder / files["letters"], np.dtype(np.uint8)) as letters,
        ArrayWriter(folder / files["start"], np.dtype(np.int64)) as start,
    ):
        start.add(np.zeros(1))
        for some in _parts(names):
            written = [name.encode() for name in some]
            letters.add(np.frombuffer(b"".join(written), dtype=np.uint8))
            ends = place + np.cumsum([len(one) for one in written])
            start.add(ends)
            place = int(ends[-1])
            hashes.append(np.array([hash_of(name) for name in some], dtype=np.int64))
    together = np.concatenate([np.zeros(0, dtype=np.int64), *hashes])
    order = together.argsort(kind="stable")
    for field, array in (("hashes", together[order]), ("order", order)):
        with ArrayWriter(folder / files[field], np.dtype(np.int64)) as file:
            file.add(array)
    return files


def _parts(names: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    for name in names:
        if not are_texts([name]):
            raise InputError(f"Names of nodes must be texts, got {shown(name)}.")
        some.append(str(name))
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some
