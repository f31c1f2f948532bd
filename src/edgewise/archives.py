"""Arrays in files: `.npy` files and `.npz` archives whose claims are compared with their bytes before anything is allocated.

A few bytes can claim gigabytes: a head with a large shape, or zeros that were packed. What a member claims must be what its
bytes unpack to, and a whole archive may unpack to `MOST` bytes, or to `RATIO` times its size. Only the members that somebody
asks for are read. No pickles.
"""

import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise.errors import EdgewiseError, FileError
from edgewise.inner_paths import opened

MOST, RATIO = 2**28, 250
"""Bytes that a small file may unpack to, and how many times its size a large one may."""
_DEFLATE = 1032  # no byte of a packed member unpacks to more
_SLACK = 1024
_BLOCK = 2**20
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
NUMBERS = "biuf"
"""Kinds of types that are numbers."""


class Claim(NamedTuple):
    """What the head of an array says about it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    by_column: bool = False
    """Whether the numbers are stored column by column."""

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def require(holds: Any, sentence: str) -> None:
    """Refuse what does not hold.

    Raises:
        FileError: With the sentence; who reads the file puts its name in front.
    """
    if not holds:
        raise FileError(sentence)


def refuse_bomb(claimed: int, stored: int, what: str = "it") -> None:
    """Refuse what would take far more memory, or room on a disk, than the file that says so has bytes.

    >>> refuse_bomb(2**28, 1000)
    >>> refuse_bomb(2**30, 1000)
    Traceback (most recent call last):
    edgewise.errors.FileError: it claims 1074 MB and has 0 MB: more than 250 times as much. Save it without packing
    """
    require(
        claimed <= max(MOST, RATIO * stored),
        f"{what} claims {claimed / 1e6:.0f} MB and has {stored / 1e6:.0f} MB: more than {RATIO} times as much. Save it without "
        "packing",
    )


def read_head(file: Any, name: str, kinds: str = NUMBERS) -> Claim:
    """The type and shape in the head of a `.npy`; objects, which would be pickles, are refused."""
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        require(version in reader, f"{name} has the unknown version {version} of the .npy format")
        shape, by_column, dtype = reader[version](file)
    except EdgewiseError:
        raise
    except Exception as error:  # numpy's readers raise whatever Python's own parsers do
        raise FileError(
            f"{name} is not an array that numpy saved ({type(error).__name__}: {str(error)[:100]})"
        ) from error
    plain = all(isinstance(size, int) and size >= 0 for size in shape)
    require(plain, f"{name} has a negative size: {shape}")
    require(not dtype.hasobject, f"{name} holds objects, which would have to be unpickled; save numbers and texts")
    require(dtype.kind in kinds and dtype.itemsize, f"{name} holds {dtype}, not numbers")
    return Claim(dtype, shape, bool(by_column))


def read_body(file: Any, name: str, claim: Claim) -> np.ndarray:
    """The numbers after a head, to the end of the file; they are in memory once."""
    flat = np.empty(claim.size, dtype=np.uint8)
    place = 0
    while place < len(flat):
        read = file.read(min(_BLOCK, len(flat) - place))
        require(read, f"{name} must have {len(flat)} bytes, got {place}")
        flat[place : place + len(read)] = np.frombuffer(read, dtype=np.uint8)
        place += len(read)
    require(not file.read(1), f"{name} has more than {len(flat)} bytes")  # an archive compares its checksum at the end
    found = flat.view(claim.dtype)
    return found.reshape(claim.shape[::-1]).transpose() if claim.by_column else found.reshape(claim.shape)


def read_npy(path: Path, kinds: str = NUMBERS) -> np.ndarray:
    """The array of a `.npy` file, if it has as many bytes as its head claims."""
    with os.fdopen(opened(path), "rb") as file:
        claim = read_head(file, path.name, kinds)
        _compare(path.name, file.tell() + claim.size, os.fstat(file.fileno()).st_size, claim)
        return read_body(file, path.name, claim)


def _compare(name: str, expected: int, size: int, claim: Claim) -> None:
    require(expected == size, f"{name} claims the shape {claim.shape}, but has {size} bytes")


class NpzArchive:
    """A `.npz`: its arrays by name. `claim` says what a member is without reading it, `read` gives some of them.

    Raises:
        FileError: If it is not an archive of numpy's.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(opened(path), "rb")
        self.stored = os.fstat(self._file.fileno()).st_size
        try:
            self._zip = zipfile.ZipFile(self._file)
            members = self._zip.infolist()
            self.members = {member.filename.removesuffix(".npy"): member for member in members}
            require(len(self.members) == len(members), "it has two arrays of one name")
        except Exception as error:  # of a damaged archive: each in its own way
            self._file.close()
            raise (
                error if isinstance(error, EdgewiseError) else FileError(f"it is not an .npz archive ({error})")
            ) from error
        self._claims: dict[tuple[str, str], Claim] = {}

    def __enter__(self) -> "NpzArchive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def claim(self, name: str, kinds: str = NUMBERS) -> Claim:
        """What a member says about itself, if its bytes can hold it."""
        if (name, kinds) not in self._claims:
            member = self.members[name]
            require(
                member.compress_type in _PACKED and not member.flag_bits & 1,
                f"{name} is packed in a way that numpy does not",
            )
            fits = member.file_size <= _DEFLATE * member.compress_size + _SLACK and member.compress_size <= self.stored
            require(fits, f"{name} claims {member.file_size} bytes, more than its {member.compress_size} can unpack to")
            with self.open(name) as file:
                claim = read_head(file, name, kinds)
                _compare(name, file.tell() + claim.size, member.file_size, claim)
            self._claims[name, kinds] = claim
        return self._claims[name, kinds]

    def open(self, name: str) -> Any:
        """The stream of a member, its head first."""
        try:
            return _MemberStream(self._zip.open(self.members[name]), name)
        except Exception as error:
            raise FileError(f"{name} cannot be read ({error})") from error

    def read(self, names: Iterable[str], kinds: str = NUMBERS) -> dict[str, np.ndarray]:
        """Some arrays; all of them are compared with the size of the file before the first one is built."""
        claims: Mapping[str, Claim] = {name: self.claim(name, kinds) for name in names}
        refuse_bomb(sum(claim.size for claim in claims.values()), self.stored)
        found = {}
        for name, claim in claims.items():
            with self.open(name) as file:
                require(read_head(file, name, kinds) == claim, f"{name} changed while it was read")
                found[name] = read_body(file, name, claim)
        return found


class _MemberStream:
    """A member of an archive whose damage is an error of ours, whatever the library raises."""

    def __init__(self, file: Any, name: str) -> None:
        self.file, self.name = file, name

    def __enter__(self) -> "_MemberStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        try:
            found: bytes = self.file.read(size)
        except Exception as error:  # a checksum, a broken stream
            raise FileError(f"{self.name} cannot be read ({error})") from error
        return found

    def tell(self) -> int:
        """How many have been read."""
        place: int = self.file.tell()
        return place


# --- Parquet ------------------------------------------------------------------------------------------------------------

_CELL = 8  # bytes of a cell in memory, about


def open_parquet(path: Path, *, texts: bool = False, **options: Any) -> Any:
    """A parquet file, as pyarrow opens it, if it does not claim far more cells than its bytes could hold.

    With `texts` columns of texts stay numbers of a dictionary until somebody asks for them.
    """
    from pyarrow import ArrowException, parquet

    stored = _size_of(path)
    try:
        found = parquet.ParquetFile(path, **options)
        if texts:
            names = [field.name for field in found.schema_arrow if _is_text(field.type)]
            found = parquet.ParquetFile(path, read_dictionary=names, **options)
        rows, columns = found.metadata.num_rows, found.metadata.num_columns
    except (ArrowException, OSError, ValueError, TypeError) as error:
        raise FileError(f"{path} cannot be read as parquet ({str(error)[:200]}).") from error
    refuse_bomb(rows * max(columns, 1) * _CELL, stored, f"{path}, with {rows} rows of {columns} columns,")
    return found


def refuse_long_texts(batch: Any, path: Path) -> None:
    """Refuse a batch of a table whose texts, which it has once, would take far more memory when every row has its own."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if hasattr(column, "dictionary") and len(column.dictionary):
            longest = max(len(text.as_buffer() or b"") if text.is_valid else 0 for text in column.dictionary)
            refuse_bomb(longest * len(column), _size_of(path), f"column {name} of {path}")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _size_of(path: Path) -> int:
    handle = opened(path)
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)
