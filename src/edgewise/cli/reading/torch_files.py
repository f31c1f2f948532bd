"""A `.pt` that PyG saved: loaded as weights are, with the data classes of PyG allowed and nothing else."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch_geometric.data import Batch, Data, HeteroData, data, storage
from torch_geometric.data.separate import separate

from edgewise.cli.reading.graphs import Graphs, as_graphs
from edgewise.cli.reading.loading import load_safely
from edgewise.cli.writing.manifest import digest_of
from edgewise.errors import FileError, InputError


def _new_batch(kind: Any, of: Any) -> Any:
    """What PyG's getter does when a batch is unpickled, for its own classes alone."""
    if kind is not Batch or of not in (Data, HeteroData):
        raise UnpicklingError("a batch of something that is not PyG's")
    return Batch(_base_cls=of)


class _Getter:
    """In the place of `DynamicInheritanceGetter`: torch calls only objects that are on its list, and no new ones."""

    def __new__(cls) -> Any:
        """The function on the list, instead of a new object."""
        return _new_batch


_ALLOWED: list[Any] = [
    *(Data, HeteroData, Batch, type(Batch()), type(Batch(_base_cls=HeteroData)), _new_batch),
    *(data.DataEdgeAttr, data.DataTensorAttr),
    *(storage.BaseStorage, storage.NodeStorage, storage.EdgeStorage, storage.GlobalStorage),
    (_Getter, "torch_geometric.data.batch.DynamicInheritanceGetter"),
]


def read_torch(path: Path) -> Graphs:
    """`Data`, a list of them, a `Batch`, a dict of tensors, or what an `InMemoryDataset` keeps in its processed folder."""
    instead = "Save the graph alone: torch.save(data, 'graph.pt') with data = Data(x=..., edge_index=..., y=...)."
    found = load_safely(path, "PyG's data classes", instead, _ALLOWED)
    return as_graphs(_graphs(found, path), digest_of(path))


def _graphs(found: Any, path: Path) -> Any:
    if isinstance(found, (Data, HeteroData)):
        return found
    if isinstance(found, dict) and all(isinstance(value, torch.Tensor) for value in found.values()) and found:
        return _from_dict(found, path)
    if isinstance(found, list) and all(isinstance(graph, (Data, HeteroData)) for graph in found):
        return found
    if isinstance(found, tuple) and len(found) in (2, 3) and isinstance(found[0], (Data, dict)):
        return HeteroData() if HeteroData in found else _collated(found[0], found[1])
    raise FileError(
        f"{path} holds {type(found).__name__}; needed is a Data, a list of them, or the processed file of an InMemoryDataset."
    )


def _from_dict(found: dict[str, Any], path: Path) -> Data:
    if "x" not in found and "edge_index" not in found:
        raise InputError(
            f"{path} holds tensors named {', '.join(list(found)[:5])}; data needs x and edge_index. Are these the weights? "
            f"They belong to --weights."
        )
    return Data(**found)


def _collated(together: Any, slices: Any) -> Any:
    """The graphs of an `InMemoryDataset`: one long `Data`, and where each graph begins."""
    whole = Data.from_dict(together) if isinstance(together, dict) else together
    if not slices:
        return whole
    count = max(len(cuts) for cuts in slices.values()) - 1
    if count == 1:
        return separate(Data, whole, 0, slices, decrement=False)
    return [separate(Data, whole, number, slices, decrement=False) for number in range(count)]
