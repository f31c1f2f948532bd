"""Arrays on disk: `.npy` files that are written in pieces and mapped when they are read.

A file says what `numpy.load` needs to know; how many rows it has is filled in at the end, so that a stream can be written whose
length nobody knows. Nothing here holds more than a piece of an array.
"""

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from edgewise.archives import NUMBERS
from edgewise.disk import allocate
from edgewise.errors import FileError

PIECE = 2**24
"""Bytes of an array that are read, written or hashed at a time."""
LARGEST_ROW = 2**26
"""Bytes of a row, which is in memory as a whole."""
_HEAD = 192  # bytes of the header: room for any shape


class ArrayWriter:
    """A `.npy` file that grows by pieces of rows; `close` fills in how many there are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ArrayWriter(Path(folder) / "x.npy", np.dtype("float32"), (2,)) as x:
    ...         x.add(np.ones((3, 2)))
    ...     np.load(Path(folder) / "x.npy").shape
    (3, 2)
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], row: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.row, self.rows = path, dtype.newbyteorder("<"), row, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self._file.write(b" " * _HEAD)

    def add(self, piece: Any) -> None:
        """Further rows, `[n, *row]`, of whatever type can be written without loss of meaning."""
        piece = np.ascontiguousarray(piece, dtype=self.dtype)
        if piece.shape[1:] != self.row:
            raise FileError(f"{self.path.name} has rows of shape {list(self.row)}, got {list(piece.shape[1:])}.")
        self._file.write(piece.data if piece.size else b"")
        self.rows += len(piece)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the header, wait until all of it is on the disk, and close the file."""
        if self._file.closed:
            return
        shape = (self.rows, *self.row)
        self._file.seek(0)
        self._file.write(header(self.dtype, shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        size, wanted = os.fstat(self._file.fileno()).st_size, _HEAD + math.prod(shape) * self.dtype.itemsize
        self._file.close()
        if size != wanted:
            raise OSError(None, f"{self.path.name} has {size} of {wanted} bytes on the disk")

    def abandon(self) -> None:
        """Close the file as it is, half written: nobody will read it."""
        with suppress(OSError):  # what is still in the buffer does not fit on the disk
            self._file.close()


def header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The first bytes of a `.npy` file of version 1.0, always as many."""
    said = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    text = said.encode().ljust(_HEAD - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@contextmanager
def filled_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """An array of zeros on disk, to be filled in any order; what is written goes to the file, not to memory of ours.

    All of its bytes are allocated before it is mapped, and on the disk when the block ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb+") as file:
        allocate(file.fileno(), _HEAD + math.prod(shape) * np.dtype(dtype).itemsize)
        file.seek(0)
        file.write(header(np.dtype(dtype), shape))
        file.flush()
        if math.prod(shape) == 0:
            yield np.zeros(shape, dtype)
        else:
            array = np.memmap(file, dtype=dtype, mode="r+", offset=_HEAD, shape=shape)
            yield array
            array.flush()
        os.fsync(file.fileno())


def mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The array of a file, mapped: rows are read when they are looked at, and writing into it never reaches the file.

    Raises:
        FileError: If the file is not there, or is not of this type, shape and length.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_HEAD)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror or error}). Build the store again.") from error
    if dtype.kind not in NUMBERS or min(shape, default=0) < 0:
        raise FileError(f"{path} cannot hold {dtype} of shape {list(shape)}: it was altered. Build the store again.")
    wanted = _HEAD + math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise FileError(f"{path} must have {wanted} bytes, got {size}: it was cut short. Build the store again.")
    if start != header(dtype, shape):
        raise FileError(f"{path} is not the array that the store's manifest describes. Build the store again.")
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="c", offset=_HEAD, shape=shape)


def digest_of_array(path: Path) -> str:
    """SHA-256 of the numbers of an array file, read in pieces."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(_HEAD)
        for piece in iter(lambda: file.read(PIECE), b""):
            whole.update(piece)
    return whole.hexdigest()


def pieces(rows: int, row_bytes: int, least: int = 1) -> Iterator[slice]:
    """Slices of rows of about `PIECE` bytes each.

    >>> list(pieces(5, PIECE // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if row_bytes > LARGEST_ROW:
        raise FileError(
            f"A row of {row_bytes / 1e6:.0f} MB is too large: at most {LARGEST_ROW / 1e6:.0f} MB can be stored."
        )
    step = max(PIECE // max(row_bytes, 1), least)
    return (slice(begin, min(begin + step, rows)) for begin in range(0, rows, step))
