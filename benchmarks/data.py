"""The graphs: Infection (generated), Cora and PROTEINS (copied before PyG writes beside them), and random ones of any size."""

import os
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.cache import cache_folder

COLUMN = 0  # of the geom-gcn splits
LARGE_NODES, LARGE_EDGES = 169_343, 1_166_243


class NoDataError(Exception):
    """The raw files of a data set are not here."""


def raw_folder(name: str) -> Path:
    """The folder that holds a copy of a data set's raw files."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    source = Path(os.environ.get("EDGEWISE_DATA", beside)) / name
    if not source.is_dir():
        raise NoDataError(f"no {name}: set EDGEWISE_DATA to the folder that holds {name}/raw")
    root = cache_folder() / "data"
    if not (root / name).exists():
        shutil.copytree(source, root / name)
    return root


@cache
def cora() -> Data:
    from torch_geometric.datasets import Planetoid

    return Planetoid(str(raw_folder("Cora")), "Cora", split="geom-gcn")[0]


def cora_test_nodes() -> Tensor:
    return cora().test_mask[:, COLUMN].nonzero().view(-1)


@cache
def proteins() -> list[Data]:
    from torch_geometric.datasets import TUDataset

    return list(TUDataset(str(raw_folder("PROTEINS")), "PROTEINS"))


@cache
def mutag() -> list[Data]:
    from torch_geometric.datasets import TUDataset

    return list(TUDataset(str(raw_folder("MUTAG")), "MUTAG"))


def even_graph(num_edges: int, degree: int = 4, features: int = 32, seed: int = 0) -> Data:
    """Every edge as likely as any other, `degree` of them a node."""
    num_nodes = max(num_edges // degree, 2)
    return _graph(num_nodes, num_edges, np.ones(num_nodes), features, seed)


def power_law_graph(
    num_nodes: int = LARGE_NODES, num_edges: int = LARGE_EDGES, features: int = 128, seed: int = 0
) -> Data:
    """Both ends of an edge are drawn with weight 1/√rank, a power law of degrees with exponent 3; hubs send and receive."""
    return _graph(num_nodes, num_edges, np.arange(1, num_nodes + 1) ** -0.5, features, seed)


def _graph(num_nodes: int, num_edges: int, weight: np.ndarray, features: int, seed: int) -> Data:
    """Distinct directed edges without self-loops; features normal."""
    generator = np.random.default_rng(seed)
    below = np.cumsum(weight / weight.sum())
    name = generator.permutation(num_nodes)
    pairs = np.zeros(0, dtype=np.int64)
    while len(pairs) < num_edges:
        ends = np.searchsorted(below, generator.random((2, 2 * (num_edges - len(pairs)) + 16)))
        source, receiver = name[np.minimum(ends, num_nodes - 1)]
        pairs = np.unique(np.concatenate([pairs, (source * num_nodes + receiver)[source != receiver]]))
    pairs = generator.permutation(pairs)[:num_edges]
    x = torch.randn(num_nodes, features, generator=torch.Generator().manual_seed(seed))
    return Data(x=x, edge_index=torch.from_numpy(np.stack([pairs // num_nodes, pairs % num_nodes])))


def sender_hubs(seed: int = 0) -> Data:
    """As many nodes and edges as ogbn-arxiv: a few nodes send most messages, all receive about as many."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.arange(1, LARGE_NODES + 1, dtype=torch.double).pow(-0.8)
    source = torch.multinomial(weight, LARGE_EDGES, replacement=True, generator=generator)
    receiver = torch.randint(0, LARGE_NODES, (LARGE_EDGES,), generator=generator)
    source = torch.randperm(LARGE_NODES, generator=generator)[source]
    receiver = torch.where(
        source == receiver, (receiver + 1) % LARGE_NODES, receiver
    )  # loops: others score them otherwise
    return Data(x=torch.randn(LARGE_NODES, 128, generator=generator), edge_index=torch.stack([source, receiver]))
