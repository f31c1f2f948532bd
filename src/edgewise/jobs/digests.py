"""Digests of what a job is about: the tensors of graphs, the parameters of a model, the targets."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.archives import read_npy, require
from edgewise.inner_paths import inside
from edgewise.jobs.job_folder import INDEX

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest_of_tensors(graphs: Iterable[Any]) -> str:
    """SHA-256 of every tensor of some graphs, in the order of their names; with names, types and shapes.

    >>> from torch_geometric.data import Data
    >>> digest_of_tensors([Data(x=torch.ones(2, 1))]) == digest_of_tensors([Data(x=torch.ones(1, 2))])
    False
    """
    whole = hashlib.sha256()
    for graph in graphs:
        for name, value in sorted(_tensors(graph.to_dict()), key=lambda one: one[0]):
            _add(whole, name, value)
    return whole.hexdigest()


def _tensors(found: Any, name: str = "") -> Iterable[tuple[str, Tensor]]:
    """(name, tensor) of everything in nested dicts: a typed graph has a dict for each type."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key))
    elif isinstance(found, Tensor):
        yield name, found


def digest_of_index(index: Tensor) -> str:
    """SHA-256 of the targets of a job, in their order."""
    whole = hashlib.sha256()
    _add(whole, "index", index)
    return whole.hexdigest()


def read_index(folder: Path, digest: str) -> Tensor:
    """The targets of a job, if they are those of the digest.

    Raises:
        FileError: If they are not, or cannot be read.
    """
    found = read_npy(inside(folder, INDEX), "i")
    require(found.dtype == np.int64, "its targets are not whole numbers")
    index = torch.from_numpy(found)
    require(digest_of_index(index) == digest, "its targets are not those that were written")
    return index


def digest_of_model(model: nn.Module) -> str:
    """SHA-256 of a model: its class, its structure as it prints itself, and every parameter and buffer.

    >>> one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> digest_of_model(one) == digest_of_model(one), digest_of_model(one) == digest_of_model(other)
    (True, False)
    """
    kind = type(model)
    structure = _ADDRESS.sub("", repr(model))  # a function prints where it is in memory
    whole = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\n{structure}".encode())
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            _add(whole, name, value)
    return whole.hexdigest()


def _add(whole: Any, name: str, tensor: Tensor) -> None:
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    flat = dense.cpu().contiguous()
    whole.update(f"{name} {flat.dtype} {tuple(flat.shape)} ".encode())
    whole.update(flat.reshape(-1).view(torch.uint8).numpy().tobytes())
