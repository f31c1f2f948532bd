"""Files with tensors, read without unpickling: a `.pt` that PyG saved, an `.npz` with arrays, and weights.

`load_safely` is `torch.load` for files of strangers: tensors, plain containers, and the classes that are named, nothing
else. `read_safetensors` reads the other format of weights. `read_torch` and `read_arrays` make graphs of what they find.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.separate import separate

from edgewise.archives import NUMBERS, NpzArchive, refuse_bomb
from edgewise.cli.read.graphs import PARTS, Graphs, as_graphs
from edgewise.errors import FileError, InputError, missing_extra
from edgewise.files import digest_of
from edgewise.store.array_sources import OF_PYG, bytes_of, refuse_packed
from edgewise.torch_internals import safe_globals


def load_safely(path: Path, what: str, instead: str, allowed: Sequence[Any] = ()) -> Any:
    """What a file of `torch.save` holds, without unpickling.

    Args:
        path: The file.
        what: What it should hold, for errors: `weights`.
        instead: What to do if it holds more than that, a sentence.
        allowed: Classes and functions that the file may name.
    """
    refuse_packed(path)
    registered = list(torch.serialization.get_safe_globals())  # the block below would take them off the list at its end
    try:
        with safe_globals([one for one in allowed if one not in registered]), _no_warnings():
            found = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise FileError(
            f"{path} is a pickle of more than {what}, and unpickling runs whatever is in the file. {instead}"
        ) from error
    except Exception as error:  # torch raises whatever its readers raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path} cannot be read as {what} ({first[:120]}). It may be cut short.") from error
    refuse_bomb(sum(bytes_of(found)), path.stat().st_size, str(path))
    return found


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Torch's advice about formats is for those who write them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file by name.

    The library checks the header before it reads any tensor: every tensor has as many bytes as its shape and type need, and
    together they cover the file. A file that is cut short, or whose header lies, is therefore an error and never memory
    that was not written.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise missing_extra("safetensors", "cli", "A .safetensors file") from error
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = str(error).removeprefix("Error while deserializing header: ").split(", expected one of")[0]
        raise FileError(
            f"{path} cannot be read as safetensors ({reason}). It may be cut short, or another kind of file. Save the "
            f"weights again: safetensors.torch.save_file(model.state_dict(), '{path.name}')."
        ) from error


# --- `.pt`: PyG's own classes -------------------------------------------------------------------------------------------


def read_torch(path: Path) -> Graphs:
    """A `Data`, a list of them, a `Batch`, a dict of tensors, or what an `InMemoryDataset` keeps in its processed folder.

    Only PyG's own classes may be in the file (`_ALLOWED`); anything else is refused with what to save instead.
    """
    instead = "Save the graph alone: torch.save(data, 'graph.pt') with data = Data(x=..., edge_index=..., y=...)."
    found = load_safely(path, "PyG's data classes", instead, _ALLOWED)
    return as_graphs(_graphs(found, path), digest_of(path))


def _new_batch(kind: Any, of: Any) -> Any:
    """What PyG's getter does when a batch is unpickled, for PyG's own classes alone."""
    if kind is not Batch or of not in (Data, HeteroData):
        raise UnpicklingError("a batch of something that is not PyG's")
    return Batch(_base_cls=of)


class DynamicInheritanceGetter:
    """Takes the place of PyG's: torch calls only objects that are on its list, and no new ones."""

    __module__ = "torch_geometric.data.batch"  # files name it so; torch before 2.6 takes no (class, name)

    def __new__(cls) -> Any:
        """The function on the list, instead of a new object."""
        return _new_batch


_ALLOWED: list[Any] = [
    *OF_PYG,
    *(Batch, type(Batch()), type(Batch(_base_cls=HeteroData)), _new_batch, DynamicInheritanceGetter),
]


def _graphs(found: Any, path: Path) -> Any:
    """The graph or graphs in what was loaded, by its form."""
    if isinstance(found, (Data, HeteroData)):
        return found
    if isinstance(found, dict) and all(isinstance(value, torch.Tensor) for value in found.values()) and found:
        return _from_dict(found, path)
    if isinstance(found, list) and all(isinstance(graph, (Data, HeteroData)) for graph in found):
        return found
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[0], (Data, dict)):
        return _collated(found[0], found[1], HeteroData if HeteroData in found else Data)
    raise FileError(
        f"{path} must hold a Data, a list of them, or the processed file of an InMemoryDataset; got {type(found).__name__}."
    )


def _from_dict(found: dict[str, Any], path: Path) -> Data:
    """A graph from a dict of tensors; weights, which are one too, are told apart by their names."""
    if "x" not in found and "edge_index" not in found:
        raise InputError(
            f"{path} must have x and edge_index, got tensors named {', '.join(list(found)[:5])}. If these are the weights, "
            f"use --weights {path}."
        )
    return Data(**found)


def _collated(together: Any, slices: Any, kind: Any) -> Any:
    """The graphs of an `InMemoryDataset`, which stores one long `Data` (or `HeteroData`), and where each graph begins."""
    whole = kind.from_dict(together) if isinstance(together, dict) else together
    if not slices:
        return whole
    count = _number_of_graphs(slices)
    if count == 1:
        return separate(kind, whole, 0, slices, decrement=False)
    return [separate(kind, whole, number, slices, decrement=False) for number in range(count)]


def _number_of_graphs(slices: Any) -> int:
    """One less than the longest list of cuts; of typed graphs they are nested by type."""
    if isinstance(slices, dict):
        return max((_number_of_graphs(part) for part in slices.values() if part is not None), default=0)
    return len(slices) - 1


# --- `.npz`: `x`, `edge_index`, and whatever else is an array of numbers; texts name nodes and classes ------------------


_FLOATS = ("x", "edge_attr", "edge_weight")
_WHOLE = ("edge_index", "batch", "edge_label_index")
_KNOWN = (*_FLOATS, *_WHOLE, "y", "pos", "edge_type", *PARTS, *(f"{part}_mask" for part in PARTS))
_NAMES = ("node_names", "names", "node_ids")


def read_arrays(path: Path) -> Graphs:
    """The graph, or with `batch` the graphs, of an `.npz`.

    Features become float32, `edge_index` and `batch` integers, whatever they were saved as; `train` is the same as
    `train_mask`. Arrays of other names are ignored with a note.
    """
    arrays, stored = _load(path)
    texts = {
        name: [str(text) for text in array.reshape(-1)] for name, array in arrays.items() if array.dtype.kind == "U"
    }
    names = next((texts[name] for name in _NAMES if name in texts), None)
    ignored = sorted(set(stored) - set(arrays))
    notes = (f"Not read from {path.name}: {', '.join(ignored)}.",) if ignored else ()
    data = Data(**{_key(name): _tensor(name, array) for name, array in arrays.items() if name in _KNOWN and array.ndim})
    for name in ("x", "edge_index"):
        if name not in data:
            raise InputError(
                f"{path} has no {name}; it has {', '.join(stored) or 'nothing'}. Save it with np.savez(path, x=..., "
                f"edge_index=...)."
            )
    if names is not None and len(names) != data.x.size(0):
        raise InputError(f"{path} must have a name for each of the {data.x.size(0)} rows of x, got {len(names)}.")
    return as_graphs(data, digest_of(path), names=names, class_names=texts.get("class_names"), notes=notes)


def _key(name: str) -> str:
    """The attribute of a `Data` for an array's name."""
    return f"{name}_mask" if name in PARTS else name


def _load(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays that mean something by name, and the names of all; others are not read."""
    try:
        with NpzArchive(path) as archive:
            known = [name for name in archive.members if name in (*_KNOWN, *_NAMES, "class_names")]
            return archive.read(known, f"{NUMBERS}U"), list(archive.members)
    except FileError as error:
        raise FileError(f"{path} cannot be read as an .npz: {error}.") from error


def _tensor(name: str, array: np.ndarray) -> Any:
    """An array as a tensor of the type that PyG's layers take."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} of the .npz must hold numbers, got {array.dtype}.")
    if name in _WHOLE and array.dtype.kind == "f" and (array != array.astype(np.int64)).any():
        raise InputError(f"{name} of the .npz must hold integers, got fractions.")
    kind = np.float32 if name in _FLOATS else np.int64 if name in _WHOLE else None
    if kind is None and array.dtype.kind in "ui":
        kind = np.int64
    return torch.from_numpy(np.ascontiguousarray(array if kind is None else array.astype(kind)))
