"""The manifest of a graph on disk: which tables there are, which arrays belong to each, and a digest of them all.

`manifest.json` is written last, so a folder with one is complete; it proves itself by its own digest, and every array by its
length and header when it is opened, by its SHA-256 when the store is verified.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.errors import FileError
from edgewise.files import is_file, write_whole
from edgewise.inner_paths import inside, read_json
from edgewise.store.array_files import digest_of_array, mapped

FILE = "manifest.json"
_FORMAT, _VERSION = "edgewise-store", 1


@dataclass(frozen=True)
class ArrayRecord:
    """An array: its file, type, shape, and the SHA-256 of its numbers."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    digest: str

    @classmethod
    def of(cls, folder: Path, file: str) -> "ArrayRecord":
        """The record of a file that was just written."""
        found = np.load(folder / file, mmap_mode="r", allow_pickle=False)
        return cls(file, found.dtype.newbyteorder("<").str, tuple(found.shape), digest_of_array(folder / file))

    def open(self, folder: Path) -> np.ndarray:
        """The array, mapped; refused if it is not of this type, shape and length."""
        return mapped(self.path(folder), np.dtype(self.dtype), self.shape)

    def path(self, folder: Path) -> Path:
        """Where it is in the folder of its store; refused if that is elsewhere."""
        return inside(folder, self.file)


@dataclass(frozen=True)
class TableRecord:
    """The nodes, or the edges, of one type."""

    key: Any
    """A node type, or `(source, relation, receiver)`; empty where there are no types."""
    count: int
    structure: Mapping[str, ArrayRecord] = field(default_factory=dict)
    """Ends and their order, or names."""
    attributes: Mapping[str, ArrayRecord] = field(default_factory=dict)
    """`x`, `y`, `edge_attr` and the like: `[count, …]` each."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that are no arrays, such as `feature_names`."""


@dataclass(frozen=True)
class Manifest:
    """What is in the folder of a store."""

    typed: bool
    nodes: tuple[TableRecord, ...]
    edges: tuple[TableRecord, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the graph as a whole that are no arrays."""

    @property
    def arrays(self) -> Iterator[ArrayRecord]:
        """All arrays."""
        for table in (*self.nodes, *self.edges):
            yield from (*table.structure.values(), *table.attributes.values())

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says, digests of arrays among it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write it; the store is complete then."""
        said = {"format": _FORMAT, "version": _VERSION, "digest": self.digest, **asdict(self)}
        write_whole(folder / FILE, lambda file: file.write(json.dumps(said, indent=1).encode()))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read and check the manifest of a folder.

        Raises:
            FileError: If there is none, or it is not what was written.
        """
        if not is_file(inside(folder, FILE)):
            raise FileError(
                f"{folder} is not the folder of a graph store: it has no {FILE}. Make one: edgewise store build DATA "
                f"{folder}, or ew.GraphStore.build({str(folder)!r}, data)."
            )
        try:
            said = read_json(folder / FILE)
            kind, version, digest = said.pop("format"), said.pop("version"), said.pop("digest")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise FileError(f"{folder / FILE} cannot be read ({error}). Build the store again.") from error
        if kind != _FORMAT or version != _VERSION:
            raise FileError(
                f"{folder} must be a graph store of version {_VERSION}, got {kind!r}, version {version!r}. Build it again with "
                f"this version of Edgewise."
            )
        try:
            found = cls(bool(said["typed"]), _tables(said["nodes"]), _tables(said["edges"]), _notes(said["notes"]))
            sound = found.digest == digest
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise FileError(
                f"{folder / FILE} cannot be read as a manifest ({error}). Build the store again."
            ) from error
        if not sound:
            raise FileError(f"{folder / FILE} is not what was written: it was altered. Build the store again.")
        for one in found.arrays:
            one.path(folder)
        return found


def _tables(said: Any) -> tuple[TableRecord, ...]:
    return tuple(
        TableRecord(
            tuple(one["key"]) if isinstance(one["key"], list) else one["key"],
            int(one["count"]),
            _arrays(one["structure"]),
            _arrays(one["attributes"]),
            _notes(one["notes"]),
        )
        for one in said
    )


def _notes(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise TypeError(f"notes must be a table, got {type(said).__name__}")
    return said


def _arrays(said: Mapping[str, Any]) -> dict[str, ArrayRecord]:
    return {
        name: ArrayRecord(str(one["file"]), str(one["dtype"]), tuple(map(int, one["shape"])), str(one["digest"]))
        for name, one in said.items()
    }


# --- Whether tables are those of a graph --------------------------------------------------------------------------------

_ENDS, _NAMES = ("start", "column", "other"), ("letters", "start", "hashes", "order")


def check_tables(found: Manifest) -> None:
    """Refuse tables whose arrays do not fit each other, by what the manifest says about them.

    Raises:
        FileError: With what does not fit.
    """
    keys = [
        (table.key, str if nodes else tuple)
        for nodes in (True, False)
        for table in (found.nodes, found.edges)[not nodes]
    ]
    _require(
        all(isinstance(key, kind) for key, kind in keys) and len({key for key, _ in keys}) == len(keys), "its types"
    )
    counts = {table.key: table.count for table in found.nodes}
    plain = list(counts) == [""] and [table.key for table in found.edges] == [("", "", "")]
    _require(bool(counts) and (all(counts) if found.typed else plain), "its types")
    for table in (*found.nodes, *found.edges):
        rows = all(one.shape[:1] == (table.count,) for one in table.attributes.values())
        _require(rows and table.count >= 0, "the lengths of its attributes")
    for table in found.nodes:
        for what in ("ids", "names"):
            if any(name.startswith(f"{what}_") for name in table.structure):
                _check_shapes(
                    table, what, dict(zip(_NAMES, ((None,), (table.count + 1,), *[(table.count,)] * 2), strict=True))
                )
    for table in found.edges:
        ends = len(table.key) == 3 and {table.key[0], table.key[2]} <= counts.keys()
        _require(ends, "the ends of its edges")
        _check_shapes(table, "", {"edge_index": (2, table.count), "loops": (2, None)})
        for what, end in (("in", 2), ("out", 0)):
            if what == "in" or any(name.startswith("out_") for name in table.structure):
                sizes = ((counts[table.key[end]] + 1,), (table.count,), (table.count,))
                _check_shapes(table, what, dict(zip(_ENDS, sizes, strict=True)))


def _check_shapes(table: TableRecord, what: str, wanted: Mapping[str, tuple[int | None, ...]]) -> None:
    """Refuse arrays of whole numbers that are missing, or of another shape; None stands for any size."""
    for part, shape in wanted.items():
        name = f"{what}_{part}" if what else part
        found = table.structure.get(name)
        fits = found is not None and np.dtype(found.dtype).kind in "iu" and len(found.shape) == len(shape)
        same = found is not None and all(want in (None, have) for want, have in zip(shape, found.shape, strict=False))
        _require(fits and same, name)


def _require(holds: Any, what: str) -> None:
    if not holds:
        raise FileError(f"The store's manifest is not that of a graph ({what}). Build the store again.")
