"""Shards: the targets of a job in parts of bounded cost. The same question has the same shards: no clock has a say."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import FileError
from edgewise.graph.edge_blocks import edge_blocks
from edgewise.graph.source import GraphSource
from edgewise.store.graph_store import GraphStore
from edgewise.store.store_source import source_of

MOST_EDGES = 2**15
"""The cost of a shard: about so many edges in the neighbourhoods of its targets."""
MOST_TARGETS = 1024
_NAME = re.compile(r"[\w-]+-\d{5,}")
_AT_ONCE = 2**18  # edges that are read together
_STORED = 4  # a graph on disk is large, and its targets share little: so shards are smaller


@dataclass(frozen=True)
class Shard:
    """Some targets of a job, one after the other."""

    name: str
    """Of its file, without the ending: `gradient-00003`."""
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def positions(self) -> slice:
        """Its targets, as positions in the index of the job."""
        return slice(self.begin, self.end)

    def plain(self) -> list[Any]:
        """For a manifest; `Shard(*shard.plain())` is the same shard."""
        return [self.name, self.begin, self.end]


def plan(name: str, costs: Tensor, most: int | None = None, most_targets: int | None = None) -> list[Shard]:
    """Shards of targets in order: a shard ends where its costs `[targets]` or its targets would be more than allowed.

    >>> plan("gradient", torch.tensor([3, 3, 3, 9, 1]), most=6)
    [Shard(name='gradient-00000', begin=0, end=2), Shard(name='gradient-00001', begin=2, end=3), \
Shard(name='gradient-00002', begin=3, end=4), Shard(name='gradient-00003', begin=4, end=5)]
    """
    most, most_targets = most or MOST_EDGES, most_targets or MOST_TARGETS
    ends = torch.cat([costs.new_zeros(1), costs.cumsum(0)])
    found: list[Shard] = []
    begin, total = 0, len(costs)
    while begin < total:
        fits = int(torch.searchsorted(ends, ends[begin] + most, right=True)) - 1
        end = max(begin + 1, min(fits, begin + most_targets, total))
        found.append(Shard(f"{name}-{len(found):05d}", begin, end))
        begin = end
    return found


def read_shards(found: Any, targets: int) -> list[Shard]:
    """The shards that a manifest names: one after the other they cover as many targets as there are.

    Raises:
        FileError: If they do not, or if a name is not that of a shard.

    >>> read_shards([["shard-00000", 0, 2]], 2)
    [Shard(name='shard-00000', begin=0, end=2)]
    >>> read_shards([["shard-00000", 0, 10**12]], 2)
    Traceback (most recent call last):
    edgewise.errors.FileError: its shards are not those of 2 targets
    """
    shards: list[Shard] = []
    for one in found if isinstance(found, list) else []:
        plain = isinstance(one, list) and list(map(type, one)) == [str, int, int] and _NAME.fullmatch(one[0])
        begin = shards[-1].end if shards else 0
        if not plain or not begin == one[1] < one[2] <= targets:
            break
        shards.append(Shard(*one))
    whole = isinstance(found, list) and len(shards) == len(found) and sum(map(len, shards)) == targets
    if not whole or len({shard.name for shard in shards}) < len(shards):
        raise FileError(f"its shards are not those of {targets} targets")
    return shards


def spread(count: int, most: int = 20) -> list[int]:
    """Some positions all over a job: where one target that the model does not fail on is looked for.

    >>> spread(3), spread(100, most=4)
    ([0, 1, 2], [0, 33, 66, 99])
    """
    return sorted({(count - 1) * place // (most - 1) for place in range(most)})


def costs_of(data: Any, index: Tensor, task: str) -> Tensor:
    """`[targets]`: what each target costs, about: edges within two hops of a node or of both ends of a link, or of a graph.

    >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    >>> costs_of(path, torch.tensor([0, 1, 2]), "node")
    tensor([1, 2, 3])
    """
    if task == "graph":
        graphs = [data] if isinstance(data, Data) else data
        return torch.tensor([1 + _edges(graphs[place]) for place in index.tolist()], dtype=torch.long)
    if isinstance(data, GraphStore) and not data.is_typed:
        data = source_of(data)
    if isinstance(data, GraphSource):
        return _stored_costs(data, index)
    if not isinstance(data, Data):
        return torch.ones(len(index), dtype=torch.long)
    nodes, (source, receiver) = int(data.num_nodes or 0), data.edge_index.cpu()
    near = torch.bincount(receiver, minlength=nodes)
    far = torch.zeros(nodes, dtype=torch.long).index_add_(0, receiver, near[source])
    each = (near + far)[index.cpu()]
    return 1 + (each.sum(dim=1) if each.dim() == 2 else each)


def _stored_costs(source: GraphSource, index: Tensor) -> Tensor:
    """The same of nodes of a graph on disk, of which only what is within two hops is read; each edge counts `_STORED` times."""
    nodes = index.cpu().numpy()
    near, far = source.counts(nodes), np.zeros(len(nodes))
    for block in edge_blocks(source, nodes, _AT_ONCE):
        heads = block.end - block.begin
        behind = source.counts(block.node)[block.sender]
        far[block.begin : block.end] += np.bincount(block.receiver, weights=behind, minlength=heads)
    return _STORED * (1 + torch.from_numpy(near + far.astype(np.int64)))


def _edges(graph: Any) -> int:
    return int(graph.edge_index.size(1))
