"""An `.npz`: `x`, `edge_index`, and whatever else is an array of numbers; texts name nodes and classes."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from edgewise.cli.reading.graphs import PARTS, Graphs, as_graphs
from edgewise.cli.writing.manifest import digest_of
from edgewise.errors import FileError, InputError

_FLOATS = ("x", "edge_attr", "edge_weight")
_WHOLE = ("edge_index", "batch")
_KNOWN = (*_FLOATS, *_WHOLE, "y", "pos", "edge_type", *PARTS, *(f"{part}_mask" for part in PARTS))


def read_arrays(path: Path) -> Graphs:
    """Features become float32, `edge_index` and `batch` whole numbers, whatever they were saved as."""
    arrays = _load(path)
    texts = {name: [str(text) for text in array] for name, array in arrays.items() if array.dtype.kind == "U"}
    names = next((texts[name] for name in ("node_names", "names", "node_ids") if name in texts), None)
    ignored = sorted(set(arrays) - set(_KNOWN) - {"node_names", "names", "node_ids", "class_names"})
    notes = (f"Not read from {path.name}: {', '.join(ignored)}.",) if ignored else ()
    data = Data(**{_key(name): _tensor(name, array) for name, array in arrays.items() if name in _KNOWN and array.ndim})
    for name in ("x", "edge_index"):
        if name not in data:
            raise InputError(f"{path} has no {name}; it has {', '.join(arrays) or 'nothing'}. Type: np.savez(path, x=..., "
                             f"edge_index=...).")  # fmt: skip
    if names is not None and len(names) != data.x.size(0):
        raise InputError(f"{path} names {len(names)} nodes; x has {data.x.size(0)} rows.")
    return as_graphs(data, digest_of(path), names=names, class_names=texts.get("class_names"), notes=notes)


def _key(name: str) -> str:
    return f"{name}_mask" if name in PARTS else name


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, AttributeError, TypeError) as error:
        pickled = (
            " It holds objects, which would have to be unpickled; save numbers and texts."
            if "pickle" in str(error)
            else ""
        )
        raise FileError(f"{path} cannot be read as an .npz ({error}).{pickled}") from error


def _tensor(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} of the .npz holds {array.dtype}; needed are numbers.")
    if name in _WHOLE and array.dtype.kind == "f" and (array != array.astype(np.int64)).any():
        raise InputError(f"{name} of the .npz has fractions; needed are whole numbers.")
    kind = np.float32 if name in _FLOATS else np.int64 if name in _WHOLE else None
    if kind is None and array.dtype.kind in "ui":
        kind = np.int64
    return torch.from_numpy(np.ascontiguousarray(array if kind is None else array.astype(kind)))
