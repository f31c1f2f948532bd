"""The container of results: named arrays and a text about them, with a version and a digest, that proves itself when read.

A `.npz` is read in three steps, so that no lie of a file costs anything: what its members claim (`NpzFile.shapes`) is compared
with the bytes that are there before any of them is unpacked (`archives.py`); whoever knows what the arrays mean checks the
shapes against each other; only then `read` builds them, and `check_digest` compares them with the digest in the text. No
pickles.
"""

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import __version__
from edgewise.archives import Claim, NpzArchive, read_body, read_head, require
from edgewise.errors import FileError
from edgewise.inner_paths import parsed

Arrays = dict[str, np.ndarray]
About = dict[str, Any]
VERSION = 2
"""Of what is in a file. 0: no number is written (Edgewise 0.1.0), layers are calls. 1: layers are those of the depth. 2: there
is a digest, and entries are in order."""
TEXTS = ("about", "node_names", "node_ids")
"""Members of a `.npz` that are JSON, as bytes: numpy would pickle an object."""


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
        whole.update(array.reshape(-1).view(np.uint8).data)
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


def note_on_writer(about: Mapping[str, Any], name: str) -> str | None:
    """A sentence if another Edgewise than this one wrote a file; None if it was this one.

    >>> note_on_writer({"edgewise": __version__}, "why.npz")
    >>> note_on_writer({"edgewise": "0.1.7"}, "why.npz").partition(";")[0]
    'why.npz was written by Edgewise 0.1.7'
    """
    writer = about.get("edgewise")
    if writer == __version__:
        return None
    known = isinstance(writer, str) and re.fullmatch(r"[0-9A-Za-z.+!-]{1,40}", writer)
    said = f"Edgewise {writer}" if known else "Edgewise 0.2.0 or older, which did not note its version"
    return f"{name} was written by {said}; this is {__version__}. Its numbers are of that version: explain again to compare."


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
        with NpzArchive(path) as archive:
            self.claims = {name: archive.claim(name) for name in archive.members}
            require("about" in self.claims, "it has no text `about`, which results have")
            told = parsed(archive.read(["about"])["about"].tobytes(), "its text `about`", archive.stored)
        require(isinstance(told, dict), "its text `about` is not a table")
        self.about: About = told

    @property
    def shapes(self) -> dict[str, Claim]:
        """What its arrays claim to be, without the texts."""
        return {name: claim for name, claim in self.claims.items() if name not in TEXTS}

    def read(self) -> Arrays:
        """The arrays, compared with the digest."""
        with NpzArchive(self.path) as archive:
            require(list(archive.members) == list(self.claims), "it changed while it was read")
            arrays = archive.read(name for name in self.claims if name != "about")
        check_digest(arrays, self.about)
        for name in ("node_names", "node_ids"):
            arrays.pop(name, None)
        return arrays


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
    claim = read_head(file, name)
    expected = file.tell() + claim.size
    require(expected == len(data), f"{name} claims the shape {claim.shape}, but has {len(data)} bytes")
    return read_body(file, name, claim)
