"""Graphs that become stores from arrays: PyG's `Data` and `HeteroData`, their `.pt` files, and `.npz` files, all in pieces."""

import copy
import json
import math
import pickle
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, data, feature_store, graph_store, storage

from edgewise.archives import NUMBERS, Claim, NpzArchive, read_head, refuse_bomb, require
from edgewise.errors import FileError, InputError
from edgewise.graph.inputs import in_words, odd_kind, said_nodes
from edgewise.inner_paths import parsed
from edgewise.store.array_files import pieces
from edgewise.store.store_builder import StoreWriter, TableWriter
from edgewise.torch_internals import safe_globals

_PLAIN = (str, int, float, bool, list, tuple, type(None))
_MOST_VALUES = 2**20  # of a note
_NODE = 8  # bytes
_PARTS = ("train", "val", "test")
_FLOATS, _WHOLE = ("x", "edge_attr", "edge_weight"), ("edge_index",)
_KNOWN = (*_FLOATS, *_WHOLE, "y", "pos", "edge_type", *_PARTS, *(f"{part}_mask" for part in _PARTS))
_NAMES = ("node_names", "names", "node_ids")
_KINDS = f"{NUMBERS}U"


# --- PyG's objects ------------------------------------------------------------------------------------------------------


def write_data(writer: StoreWriter, graph: Data | HeteroData) -> None:
    """The tables of a graph in memory."""
    graph = copy.copy(graph)  # PyG remembers in an object what it was asked about it
    writer.typed = isinstance(graph, HeteroData)
    if isinstance(graph, HeteroData):
        for name in graph.node_types:
            _write_table(writer, writer.nodes(name), graph[name])
        for kind in graph.edge_types:
            _write_table(writer, writer.edges(kind), graph[kind])
        for name, value in graph.to_dict().get("_global_store", {}).items():
            _note(writer.notes, name, value)
        return
    if type(graph) is not Data and "ptr" in graph:
        raise InputError(
            "`data` is a batch of several graphs; a store holds one. Use task='graph' with the list of them."
        )
    nodes, edges = writer.nodes(), writer.edges()
    if graph.get("edge_index") is None:
        raise InputError("`data.edge_index` must be a tensor [2, edges], got None.")
    for name in graph.keys():  # noqa: SIM118 (Data is not a dict)
        of_edges = name == "edge_index" or _is_of_edges(graph, name)
        _write_attribute(edges if of_edges else nodes, name, graph[name], notes=writer.notes)
    nodes.num_nodes = said_nodes(graph, "data")


def _is_of_edges(graph: Data, name: str) -> bool:
    """Whether a tensor has a row for each edge; what PyG cannot count is refused."""
    value = graph[name]
    if isinstance(value, Tensor) and not _is_plain(value):
        raise _not_dense(f"data.{name}", value)
    return isinstance(value, Tensor) and bool(graph.is_edge_attr(name))


def _write_table(writer: StoreWriter, table: TableWriter, found: Any) -> None:
    """The attributes of one type."""
    for name, value in found.items():
        _write_attribute(table, name, value, notes=table.notes)
    if not isinstance(table.key, tuple):
        writer.nodes(table.key).num_nodes = said_nodes(found, table.where)


def _write_attribute(table: Any, name: str, value: Any, *, notes: dict[str, Any]) -> None:
    """One attribute of a table: ends of edges, rows of numbers, names, or a note."""
    if name in ("num_nodes", "adj_t"):
        return
    if name == "node_names":
        table.call(value)
        return
    if not isinstance(value, Tensor):
        _note(notes, name, value)
        return
    if not _is_plain(value) or value.dim() == 0:
        raise _not_dense(f"{table.where}.{name}", value)
    _write_tensor(table, name, value.detach().cpu())


def _not_dense(name: str, value: Tensor) -> InputError:
    return InputError(f"`{name}` must be a dense tensor of numbers, got {in_words(value)}.")


def _is_plain(value: Tensor) -> bool:
    return (
        not odd_kind(value)
        and value.layout == torch.strided
        and value.dtype != torch.bfloat16
        and not value.is_complex()
    )


def _write_tensor(table: Any, name: str, value: Tensor) -> None:
    """Rows of numbers, or both ends of edges, piece by piece; an empty tensor is one piece."""
    if name == "edge_index":
        if value.dim() != 2 or value.size(0) != 2:
            raise InputError(f"`{table.where}.edge_index` must be [2, edges], got {in_words(value)}.")
        for row in (0, 1):
            for part in pieces(value.size(1), 8):
                table.add_ends(row, value[row, part].numpy())
        return
    row_bytes = max(math.prod(value.shape[1:]), 1) * value.element_size()
    for part in pieces(len(value), row_bytes) if len(value) else [slice(0)]:
        table.add(name, value[part].numpy())


def _note(notes: dict[str, Any], name: str, value: Any) -> None:
    """What is no array, as JSON keeps it."""
    if not isinstance(value, _PLAIN):
        raise InputError(
            f"`data.{name}` is a {type(value).__name__}, which cannot be stored. Remove it first: del data.{name}."
        )
    try:
        _refuse_many(value)
        parsed(json.dumps(value).encode(), "it")
    except (FileError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"`data.{name}` cannot be stored as JSON ({error}). Remove it first: del data.{name}."
        ) from error
    notes[name] = value


def _refuse_many(value: Any) -> None:
    """Refuse what JSON would write out as too many values: a list may hold another one many times, and that one another."""
    left, count = [value], 0
    while left:
        one = left.pop()
        count += 1
        require(count + len(left) <= _MOST_VALUES, f"it has more than {_MOST_VALUES} values")
        if isinstance(one, (list, tuple, dict)):
            left += one.values() if isinstance(one, dict) else one


# --- `.pt` --------------------------------------------------------------------------------------------------------------

OF_PYG: list[Any] = [
    *(Data, HeteroData, data.DataEdgeAttr, data.DataTensorAttr),
    *(storage.BaseStorage, storage.NodeStorage, storage.EdgeStorage, storage.GlobalStorage, storage.AttrType),
    *(graph_store.EdgeAttr, graph_store.EdgeLayout, feature_store.TensorAttr, defaultdict, dict, list),
]
"""What a file with a graph may name; newer versions of PyG let every file name the last line."""


def write_torch(writer: StoreWriter, path: Path) -> None:
    """The graph of a file of `torch.save(data, path)`, mapped and not unpickled."""
    registered = list(torch.serialization.get_safe_globals())
    refuse_packed(path)
    try:
        with warnings.catch_warnings(), safe_globals([one for one in OF_PYG if one not in registered]):
            warnings.simplefilter("ignore")
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise FileError(
            f"{path} is a pickle of more than a Data or a HeteroData, and unpickling runs whatever is in the file. Save the "
            f"graph alone: torch.save(data, 'graph.pt')."
        ) from error
    except Exception as error:  # torch raises whatever its readers raise
        raise FileError(f"{path} cannot be read as a graph ({str(error)[:120]}). It may be cut short.") from error
    if isinstance(found, tuple) and len(found) > 1 and isinstance(found[0], dict) and not found[1]:
        found = (HeteroData if HeteroData in found else Data).from_dict(found[0])  # an InMemoryDataset of one graph
    if not isinstance(found, (Data, HeteroData)):
        raise FileError(f"{path} must hold one Data or HeteroData, got {type(found).__name__}.")
    refuse_bomb(sum(bytes_of(found.to_dict())), path.stat().st_size, str(path))
    write_data(writer, found)


def refuse_packed(path: Path) -> None:
    """Refuse a `.pt` whose parts would unpack to far more than it has; torch itself does not pack them."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [member.file_size for member in archive.infolist()]
    except Exception:  # an older format, or not a `.pt`: torch's readers say so
        return
    refuse_bomb(sum(sizes), path.stat().st_size, str(path))


def bytes_of(found: Any) -> Iterator[int]:
    """The bytes of all tensors in nested containers, as many as their shapes say: one number may stand for millions.

    So may `num_nodes`, where nodes have no features: each takes eight bytes as soon as anything is computed.
    """
    left, seen = [found], dict[int, Any]()  # a list may hold itself, or another one many times
    while left:
        one = left.pop()
        if isinstance(one, Tensor):
            yield 0 if one.is_nested else one.numel() * one.element_size()
        elif isinstance(one, (Data, HeteroData, Mapping, list, tuple)) and id(one) not in seen:
            seen[id(one)] = one
            inner = one.to_dict() if isinstance(one, (Data, HeteroData)) else one
            left += inner.values() if isinstance(inner, Mapping) else inner
            nodes = inner.get("num_nodes") if isinstance(inner, Mapping) else None
            yield _NODE * max(nodes, 0) if isinstance(nodes, int) else 0


# --- `.npz` -------------------------------------------------------------------------------------------------------------


def write_npz(writer: StoreWriter, path: Path) -> None:
    """The arrays of an `.npz`, each read in pieces; types are those that the command line gives them.

    Features become float32, `edge_index` integers; `train` is the same as `train_mask`; texts name nodes and classes.
    """
    with NpzArchive(path) as archive:
        stored = list(archive.members)
        for name in ("x", "edge_index"):
            if name not in stored:
                raise InputError(f"{path} has no {name}; it has {', '.join(stored) or 'nothing'}.")
        known = {name: archive.claim(name, _KINDS) for name in stored if name in (*_KNOWN, *_NAMES, "class_names")}
        refuse_bomb(sum(claim.size for claim in known.values()), archive.stored, str(path))
        for name, claim in known.items():
            with archive.open(name) as file:
                read_head(file, name, _KINDS)
                _write_member(writer, name, file, claim, path)
    ignored = sorted(set(stored) - set(known))
    writer.said += [f"Not read from {path.name}: {', '.join(ignored)}."] if ignored else []


def _write_member(writer: StoreWriter, name: str, file: Any, claim: Claim, path: Path) -> None:
    """One array of an archive, whose head was read."""
    dtype, shape, in_columns = claim
    if not shape:
        raise InputError(f"{name} of {path} must have a row for each node or edge, got one number.")
    if dtype.kind == "U":
        _write_texts(writer, name, (str(one) for piece in _pieces_of(file, shape, dtype) for one in piece.reshape(-1)))
        return
    if name not in _KNOWN:
        return
    if name == "edge_index":
        _write_ends(writer, file, shape, dtype, in_columns=in_columns)
        return
    if in_columns and len(shape) > 1:
        raise InputError(f"{name} of {path} is stored column by column. Save np.ascontiguousarray({name}).")
    kind: Any = np.float32 if name in _FLOATS else np.int64 if dtype.kind in "iu" else dtype
    key = f"{name}_mask" if name in _PARTS else name
    table: TableWriter = writer.edges() if name.startswith("edge_") else writer.nodes()
    for piece in _pieces_of(file, shape, dtype):
        table.add(key, piece.astype(kind))


def _write_texts(writer: StoreWriter, name: str, texts: Iterator[str]) -> None:
    """Names of nodes or of classes."""
    if name in _NAMES:
        writer.nodes().call(texts)
    elif name == "class_names":
        writer.notes[name] = list(texts)


def _pieces_of(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    """An array from the stream of its numbers, some rows at a time; at least one piece."""
    row = math.prod(shape[1:]) * dtype.itemsize
    for part in pieces(shape[0], row) if shape[0] and row else [slice(0, shape[0])]:
        count = part.stop - part.start
        read = file.read(count * row)
        if len(read) != count * row:
            raise EOFError("an array is cut short")
        yield np.frombuffer(read, dtype=dtype).reshape(count, *shape[1:])


def _write_ends(
    writer: StoreWriter, file: Any, shape: tuple[int, ...], dtype: np.dtype[Any], *, in_columns: bool
) -> None:
    """`edge_index` `[2, E]`, whichever way round it is stored."""
    if len(shape) != 2 or shape[0] != 2 or dtype.kind not in "iuf":
        raise InputError(f"`edge_index` must be [2, edges] of whole numbers, got {list(shape)}, {dtype}.")
    if in_columns:
        for piece in _pieces_of(file, (shape[1], 2), dtype):
            for row in (0, 1):
                writer.edges().add_ends(row, _whole(piece[:, row]))
        return
    for row in (0, 1):
        for piece in _pieces_of(file, (shape[1],), dtype):
            writer.edges().add_ends(row, _whole(piece))


def _whole(numbers: np.ndarray) -> np.ndarray:
    found = numbers.astype(np.int64)
    if numbers.dtype.kind == "f" and (found != numbers).any():
        raise InputError("`edge_index` must hold whole numbers, got fractions.")
    return found
