"""Trimmed computation graphs of many targets side by side, ordered by distance.

Pairs (target, node) are numbered by their distance from the target: first the targets themselves, then the pairs one hop away,
and so on; edges follow their receivers. What a layer needs is then always the beginning of the same arrays: after c of L calls
only the pairs within L − c hops count, and call c needs the edges that end there.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.program.kernels import arrays, kernels_for

# --- One message-passing call on copies: who hears whom, and sums over what a node hears -------------------------------


with (
    warnings.catch_warnings()
):  # torch says once per process that sparse tensors are in beta; users need not hear it from us
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


@dataclass(eq=False)
class Hop:
    """Heads hear tails: the edges of head i are `start[i]:start[i + 1]`. Tails and own rows are rows of a table of senders."""

    start: Tensor
    tail: Tensor
    edge_id: Tensor
    """The column of each edge in the graph."""
    own: Tensor | None
    """The row of each head itself; None: the first rows of the table, in order."""
    node: Tensor
    """The node of each head."""
    table_size: int
    table_node: Tensor | None = None
    """The node of each row of the table, where that is not its number."""
    _cache: dict[str, Any] = field(default_factory=dict)

    @property
    def num_heads(self) -> int:
        """How many nodes hear something."""
        return len(self.start) - 1

    @property
    def head(self) -> Tensor:
        """The head of each edge."""
        if "head" not in self._cache:
            heads = torch.arange(self.num_heads, device=self.start.device)
            self._cache["head"] = torch.repeat_interleave(heads, self.start.diff(), output_size=len(self.tail))
        return self._cache["head"]

    def remembered(self, what: str, compute: Callable[[], Tensor]) -> Tensor:
        """Something that stays the same from one pass to the next."""
        if what not in self._cache:
            self._cache[what] = compute()
        found: Tensor = self._cache[what]
        return found

    def backwards(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges grouped by tail: where each group starts, the heads, and the places among the edges."""
        if "backwards" not in self._cache:
            order = self.tail.argsort(stable=True)
            start = torch.zeros(self.table_size + 1, dtype=torch.long, device=self.tail.device)
            start[1:] = torch.bincount(self.tail, minlength=self.table_size).cumsum(0)
            self._cache["backwards"] = start, self.head[order], order
        return self._cache["backwards"]

    def own_rows(self, table: Tensor) -> Tensor:
        """The rows of the heads themselves."""
        return table[: self.num_heads] if self.own is None else table.index_select(0, self.own)


def grouped_sum(table: Tensor, place: Tensor, start: Tensor, weight: Tensor) -> Tensor:
    """Σ weight · table[place] over each group, `[groups, width]`."""
    if len(place) == 0:
        return table.new_zeros(len(start) - 1, table.size(1))
    return functional.embedding_bag(
        place, table, start, mode="sum", per_sample_weights=weight.contiguous(), include_last_offset=True
    )


def pair_products(heads: Tensor, table: Tensor, hop: Hop) -> Tensor:
    """heads[i] · table[tail] for every edge i ← tail, `[edges]`."""
    crowded = len(hop.tail) > len(heads) * len(table)  # many parallel edges: torch refuses more entries than places
    if heads.is_cuda or crowded or len(hop.tail) == 0:
        return (heads.index_select(0, hop.head) * table.index_select(0, hop.tail)).sum(dim=1)
    pattern = torch.sparse_csr_tensor(
        hop.start, hop.tail, heads.new_zeros(len(hop.tail)), size=(len(heads), len(table)), check_invariants=False
    )
    return torch.sparse.sampled_addmm(pattern, heads, table.t(), beta=0.0).values()


class _WeightedSum(torch.autograd.Function):
    """Σ over the edges of a head of weight · table[tail]; linear in both, so the backward pass is two sums again."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: Tensor, hop: Hop) -> Tensor:
        ctx.save_for_backward(weight, table)
        ctx.hop = hop
        return grouped_sum(table, hop.tail, hop.start, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, table = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_weight = pair_products(gradient, table, ctx.hop) if ctx.needs_input_grad[0] else None
        of_table = None
        if ctx.needs_input_grad[1]:
            start, heads, order = ctx.hop.backwards()
            of_table = grouped_sum(gradient, heads, start, weight.index_select(0, order))
        return of_weight, of_table, None


def weighted_sum(weight: Tensor, table: Tensor, hop: Hop) -> Tensor:
    """What every head hears: Σ weight · table[tail], `[heads, width]`."""
    result: Tensor = _WeightedSum.apply(weight, table.contiguous(), hop)  # type: ignore[no-untyped-call]
    return result


# --- The whole ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Levels:
    """Pairs and edges with the sizes of their beginnings, and the calls on them."""

    num_calls: int
    num_targets: int
    node: Tensor
    """`[pairs]`: within L − 1 hops of the target."""
    owner: Tensor
    start: Tensor
    edge_id: Tensor
    """`[M]`: the column of each edge."""
    sender: Tensor
    """`[M]`: the node that sends."""
    tail: Tensor
    """The pair that sends, for the edges that need one."""
    pair_end: list[int]
    """`pair_end[h]`: how many pairs are within h hops."""
    num_nodes: int
    whole: bool = False
    """Whether every call runs on the whole graph: graph tasks."""
    _hops: dict[tuple[int, bool], Hop] = field(default_factory=dict)

    def pairs_after(self, calls: int) -> int:
        """How many pairs are needed after some calls."""
        return self.num_nodes if self.whole else self.pair_end[min(self.num_calls - calls, self.num_calls - 1)]

    def edges_of(self, call: int) -> int:
        """How many edges a call needs."""
        return len(self.edge_id) if self.whole else self._edge_end[self.pairs_after(call + 1)]

    @property
    def _edge_end(self) -> dict[int, int]:
        if not hasattr(self, "_ends"):
            ends = self.start[torch.tensor(self.pair_end, device=self.start.device)].tolist()
            self._ends = dict(zip(self.pair_end, ends, strict=True))
        return self._ends

    def hop(self, call: int, *, from_nodes: bool) -> Hop:
        """The geometry of a call whose senders are nodes of the graph (features), or pairs (what earlier calls made)."""
        key = (call, from_nodes)
        if key not in self._hops:
            heads, edges = self.pairs_after(call + 1), self.edges_of(call)
            nodes = self.node[:heads]
            tail = self.sender[:edges] if from_nodes or self.whole else self.tail[:edges]
            size = self.num_nodes if from_nodes or self.whole else self.pairs_after(call)
            own = nodes if from_nodes and not self.whole else None
            self._hops[key] = Hop(
                self.start[: heads + 1], tail, self.edge_id[:edges], own, nodes, size, self.node[:size]
            )
        return self._hops[key]

    def gather(self, rows: Tensor, calls: int) -> Tensor:
        """Rows of nodes as rows of pairs."""
        return rows if self.whole else rows.index_select(0, self.node[: self.pairs_after(calls)])

    @property
    def head(self) -> Tensor:
        """The pair that receives, for every edge."""
        return self.hop(0, from_nodes=True).head


def expand(in_edges: InEdges, targets: Tensor, num_calls: int, table: Tensor) -> Levels:
    """The levels of some targets. `table` (targets × nodes, all −1) says which number a pair has; it is left as it was."""
    size, device = in_edges.num_nodes, targets.device
    frontier = torch.arange(len(targets), device=device) * size + targets
    table[frontier] = torch.arange(len(targets), device=device, dtype=table.dtype)
    keys, ends, hops = [frontier], [len(frontier)], []
    grow = _grow_compiled if kernels_for(len(targets) * size, targets) else _grow
    for hop in range(num_calls):
        last = hop == num_calls - 1  # whoever sends there is read from the features: it needs no number
        hops.append(grow(in_edges, frontier, table, ends[-1], number_senders=not last))
        frontier = hops[-1][-1]
        if not last:
            keys.append(frontier)
            ends.append(ends[-1] + len(frontier))
    key = torch.cat(keys)
    table[key] = -1
    count, edges, senders, tails = (torch.cat(parts) for parts in list(zip(*hops, strict=True))[:4])
    start = torch.zeros(len(key) + 1, dtype=torch.long, device=device)
    start[1:] = count.cumsum(0)
    return Levels(num_calls, len(targets), key % size, key // size, start, edges, senders, tails, ends, size)


_Grown: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _grow(in_edges: InEdges, frontier: Tensor, table: Tensor, first: int, *, number_senders: bool) -> _Grown:
    """One hop: in-edges of each node of the frontier (how many, columns, senders, their numbers), and the new frontier.

    A table instead of sorting: a pair is new if its entry is −1, and of several equal candidates the one that was written
    last is kept.
    """
    node = frontier % in_edges.num_nodes
    position, place = in_edges.of_nodes(node)
    sender = in_edges.sender[place]
    count = in_edges.start[node + 1] - in_edges.start[node]
    if not number_senders:
        return count, in_edges.edge[place], sender, sender[:0], sender[:0]
    key = (frontier - node)[position] + sender
    new = _number_new(table, key, first)
    return count, in_edges.edge[place], sender, table[key].long(), new


def _grow_compiled(in_edges: InEdges, frontier: Tensor, table: Tensor, first: int, *, number_senders: bool) -> _Grown:
    kernels = kernels_for(1 << 30, frontier)
    geometry = arrays(frontier, in_edges.start, in_edges.edge, in_edges.sender)
    grown = kernels.grow(*geometry, in_edges.num_nodes, table.numpy(), first, number_senders)
    count, edges, senders, tails, new = (torch.from_numpy(array) for array in grown)
    return count, edges, senders, tails, new


def _number_new(table: Tensor, key: Tensor, first: int) -> Tensor:
    """The keys that have no number yet, each once; they get the next numbers."""
    candidate = key[table[key] < 0]
    ticket = torch.arange(len(candidate), device=key.device, dtype=table.dtype)
    table[candidate] = ticket
    new = candidate[table[candidate] == ticket]
    table[new] = torch.arange(first, first + len(new), device=key.device, dtype=table.dtype)
    return new


def whole_levels(data: Data, in_edges: InEdges, num_calls: int, owner: Tensor, num_targets: int) -> Levels:
    """Every node and edge at every call."""
    node = torch.arange(data.num_nodes, device=data.edge_index.device)
    return Levels(
        num_calls, num_targets, node, owner, in_edges.start, in_edges.edge, in_edges.sender, in_edges.sender,
        [data.num_nodes], data.num_nodes, whole=True,
    )  # fmt: skip
