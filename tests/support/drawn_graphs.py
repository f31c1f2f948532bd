"""Random graphs for drawn models: from one node to above the size from which neighbourhoods are cut out."""

from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch_geometric.data import Data

EDGE_WIDTH, RELATIONS = 3, 3


@dataclass(frozen=True)
class Size:
    """How large a graph is, and what its columns are like."""

    nodes: int
    edges: int
    features: int
    loops: bool
    parallel: bool
    hub: bool


def draw_size(random: Random, kind: str) -> Size:
    """`kind` is `"tiny"`, `"small"` or `"large"`; a large graph has more than 2^17 numbers."""
    traits = {"loops": random.random() < 0.25, "parallel": random.random() < 0.25, "hub": random.random() < 0.2}
    if kind == "tiny":
        return Size(random.randint(1, 6), random.randint(0, 8), random.randint(1, 6), **traits)
    if kind == "small":
        nodes = random.randint(8, 24)
        return Size(nodes, int(nodes * random.uniform(0.8, 2.2)), random.randint(3, 8), **traits)
    features = random.randint(60, 110)
    nodes = random.randint(2**17 // features + 1, 2**17 // features + 700)
    return Size(nodes, int(nodes * random.uniform(0.4, 1.0)), features, **traits)


def draw_ends(size: Size, generator: torch.Generator) -> Tensor:
    """`[2, E]`: the last of many nodes is isolated, a hub receives and sends many columns."""
    count = max(size.nodes - 1, 1)
    ends = torch.randint(0, count, (2, size.edges), generator=generator)
    if not size.loops:
        ends = ends[:, ends[0] != ends[1]]
    elif ends.size(1) > 2:
        ends[1, :2] = ends[0, :2]
    if size.hub:
        ends[1, : min(ends.size(1) // 6, 15)] = 0
        ends[0, ends.size(1) // 6 : ends.size(1) // 4] = 0
        ends = ends if size.loops else ends[:, ends[0] != ends[1]]
    if size.parallel and ends.size(1) > 3:
        ends = torch.cat([ends, ends[:, :2]], dim=1)
    if not size.parallel:
        ends = ends[:, _firsts(ends, size.nodes)]
    return ends[:, torch.randperm(ends.size(1), generator=generator)]


def _firsts(ends: Tensor, nodes: int) -> Tensor:
    """One column of each set of parallel ones, ascending."""
    number = ends[0] * nodes + ends[1]
    seen = sorted({int(n): i for i, n in reversed(list(enumerate(number.tolist())))}.values())
    return torch.tensor(seen, dtype=torch.long)


def draw_graph(size: Size, seed: int, dtype: torch.dtype) -> Data:
    """Features, edge attributes, weights and relations of a size."""
    generator = torch.Generator().manual_seed(seed)
    ends = draw_ends(size, generator)
    real = {"generator": generator, "dtype": torch.float64}
    columns = ends.size(1)
    return Data(
        x=torch.randn(size.nodes, size.features, **real).to(dtype),
        edge_index=ends,
        edge_attr=torch.rand(columns, EDGE_WIDTH, **real).to(dtype),
        edge_weight=(torch.rand(columns, **real) + 0.3).to(dtype),
        edge_type=torch.randint(0, RELATIONS, (columns,), generator=generator),
        n_id=torch.arange(size.nodes),
    )
