"""The container of results: named arrays and a text about them, with a version and a digest, that proves itself when read.

A `.npz` is read in three steps, so that no lie of a file costs anything: what its members claim (`NpzFile.shapes`) is compared
with the bytes that are there before any of them is unpacked; whoever knows what the arrays mean checks the shapes against each
other; only then `read` builds them, and `check_digest` compares them with the digest in the text. No pickles.
"""

import base64
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgewise.errors import FileError

Arrays = dict[str, np.ndarray]
About = dict[str, Any]
VERSION = 2
"""Of what is in a file. 0: no number is written (Edgewise 0.1.0), layers are calls. 1: layers are those of the depth. 2: there
is a digest, and entries are in order."""
TEXTS = ("about", "node_names", "node_ids")
"""Members of a `.npz` that are JSON, as bytes: numpy would pickle an object."""
_DEFLATE = 1032  # no byte of a compressed member unpacks to more
_SLACK = 1024


class Claim(NamedTuple):
    """What the head of an array says about it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    by_column: bool = False
    """Whether the numbers are stored column by column."""


def require(holds: Any, sentence: str) -> None:
    """Refuse what does not hold.

    Raises:
        FileError: With the sentence; who reads the file puts its name in front.
    """
    if not holds:
        raise FileError(sentence)


# --- Digests ------------------------------------------------------------------------------------------------------------


def digest_of_contents(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> str:
    """SHA-256 of arrays (names, types, shapes, bytes) and of the text about them, but for the digest in it.

    >>> one = digest_of_contents({"index": np.array([3, 5])}, {"level": "input"})
    >>> one == digest_of_contents({"index": np.array([3, 5])}, {"digest": one, "level": "input"})
    True
    >>> one == digest_of_contents({"index": np.array([5, 3])}, {"level": "input"})
    False
    """
    told = {name: value for name, value in about.items() if name != "digest"}
    whole = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def with_digest(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> About:
    """The text with the digest of everything in it."""
    return {**about, "digest": digest_of_contents(arrays, about)}


def check_digest(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Compare the contents with the digest that was written with them; older versions have none."""
    if version_of(about) >= 2:
        require(
            about.get("digest") == digest_of_contents(arrays, about),
            "its numbers are not those that were saved: the digest differs",
        )


def version_of(about: Mapping[str, Any]) -> int:
    """The version of a text; later versions than ours are refused."""
    version = about.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= VERSION:
        raise FileError(
            f"it must have version {VERSION} of the format or an older one, got {version!r}: a later Edgewise wrote it. "
            f"Run: pip install -U edgewise"
        )
    require(version >= 2 or "digest" not in about, "it has a digest, but says that it is older than digests")
    return version


# --- Values of a text ---------------------------------------------------------------------------------------------------


def as_jsonable(value: Any) -> Any:
    """The value in JSON's types; a tuple keeps its type as `{"tuple": [...]}`, other objects become their text."""
    if isinstance(value, Mapping):
        return {str(key): as_jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [as_jsonable(item) for item in value]}
    if isinstance(value, list):
        return [as_jsonable(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def from_jsonable(value: Any) -> Any:
    """The inverse of `as_jsonable`.

    >>> from_jsonable(as_jsonable({"bypass": ("a", 1), "sizes": [1, 2]}))
    {'bypass': ('a', 1), 'sizes': [1, 2]}
    """
    if isinstance(value, dict) and set(value) == {"tuple"}:
        return tuple(from_jsonable(item) for item in value["tuple"])
    if isinstance(value, list):
        return [from_jsonable(item) for item in value]
    return {key: from_jsonable(item) for key, item in value.items()} if isinstance(value, dict) else value


# --- `.npz` -------------------------------------------------------------------------------------------------------------


def _listed(texts: Any) -> Any:
    """Names of all nodes as a list; of a typed graph a list for each type."""
    return {kind: list(some) for kind, some in texts.items()} if isinstance(texts, Mapping) else list(texts)


def write_npz(file: Any, arrays: Arrays, about: About, node_names: Any = None, node_ids: Any = None) -> None:
    """Arrays as they are, the text about them, and perhaps names and ids of nodes; the digest covers all of it."""
    texts = {"node_names": node_names, "node_ids": node_ids}
    named = {name: _as_bytes(_listed(given)) for name, given in texts.items() if given is not None}
    everything = {**arrays, **named}
    np.savez_compressed(file, about=_as_bytes(with_digest(everything, about)), **everything)  # type: ignore[arg-type]


def _as_bytes(text: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)


class NpzFile:
    """A `.npz` whose claims have been compared with its bytes; `about` is its text, `read` its arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            require(len(set(names)) == len(names), "it has two arrays of one name")
            self.claims = {name: _claim(archive, member) for name, member in zip(names, members, strict=True)}
            require("about" in self.claims, "it has no text `about`, which results have")
            told = json.loads(_array(archive, "about", self.claims["about"]).tobytes().decode())
        require(isinstance(told, dict), "its text `about` is not a table")
        self.about: About = told

    @property
    def shapes(self) -> dict[str, Claim]:
        """What its arrays claim to be, without the texts."""
        return {name: claim for name, claim in self.claims.items() if name not in TEXTS}

    def read(self) -> Arrays:
        """The arrays, compared with the digest."""
        with zipfile.ZipFile(self.path) as archive:
            arrays = {name: _array(archive, name, claim) for name, claim in self.claims.items() if name != "about"}
        check_digest(arrays, self.about)
        for name in ("node_names", "node_ids"):
            arrays.pop(name, None)
        return arrays


def _claim(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Claim:
    """What a member says about itself, if its bytes can hold it."""
    name = member.filename
    fits = member.file_size <= _DEFLATE * member.compress_size + _SLACK
    require(fits, f"{name} claims {member.file_size} bytes, more than its {member.compress_size} can unpack to")
    with archive.open(member) as file:
        claim = _head(file, name)
        expected = file.tell() + math.prod(claim.shape) * claim.dtype.itemsize
    require(expected == member.file_size, f"{name} claims the shape {claim.shape}, but has {member.file_size} bytes")
    return claim


def _head(file: Any, name: str) -> Claim:
    """The type and shape in the head of a `.npy`; objects, which would be pickles, are refused."""
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    require(version in reader, f"{name} has the unknown version {version} of the .npy format")
    shape, fortran, dtype = reader[version](file)
    require(not dtype.hasobject and dtype.kind in "iufb", f"{name} holds {dtype}, not numbers")
    require(all(size >= 0 for size in shape), f"{name} has a negative size")
    return Claim(dtype, shape, fortran)


def _array(archive: zipfile.ZipFile, name: str, claim: Claim) -> np.ndarray:
    """The array of a member, `claim` being what its head says."""
    with archive.open(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name) as file:
        return _body(file, name, claim)


def _body(file: Any, name: str, claim: Claim) -> np.ndarray:
    require(_head(file, name) == claim, f"{name} changed while it was read")
    size = math.prod(claim.shape) * claim.dtype.itemsize
    data = bytearray(file.read())  # to the end: the archive's own checksum is compared there
    require(len(data) == size, f"{name} must have {size} bytes, got {len(data)}")
    flat = np.frombuffer(data, dtype=claim.dtype)
    return flat.reshape(claim.shape[::-1]).transpose() if claim.by_column else flat.reshape(claim.shape)


# --- Arrays in a text ---------------------------------------------------------------------------------------------------


def packed(array: np.ndarray) -> str:
    """An array as text: the bytes of a `.npy` file in base64."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def unpacked(name: str, text: str) -> np.ndarray:
    """The inverse of `packed`; the claim in the head is compared with the bytes first.

    >>> unpacked("index", packed(np.array([4, 7])))
    array([4, 7])
    """
    data = base64.b64decode(text, validate=True)
    file = io.BytesIO(data)
    claim = _head(file, name)
    expected = file.tell() + math.prod(claim.shape) * claim.dtype.itemsize
    require(expected == len(data), f"{name} claims the shape {claim.shape}, but has {len(data)} bytes")
    file.seek(0)
    return _body(file, name, claim)
