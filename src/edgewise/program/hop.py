"""A hop: the edges of one call between copies, and the sums over them.

The path 0 → 1 → 2 of `levels.py` is the example throughout: pair 0 is the target 2, pair 1 is node 1, and e1 leads from the
second to the first.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.arrays import group_order

with warnings.catch_warnings():  # torch warns once per process that sparse tensors are in beta; users need not read it
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


@dataclass(frozen=True, eq=False)
class CallPart:
    """The part of a graph that one of several calls side by side works on: some columns, between nodes of two kinds."""

    columns: Tensor
    """`[E]`, bool: the columns on which it sends."""
    senders: int = 0
    """The kind of the nodes that send."""
    receivers: int = 0
    """The kind of the nodes that receive; each of them has a row in what the call makes."""


@dataclass(eq=False)
class Hop:
    """The edges of one call between copies: heads receive, tails send.

    The edges of head i are `start[i]:start[i + 1]`. Tails and own rows are rows of a table of senders, which is either the
    features of the graph (a row per node) or what an earlier call made (a row per pair).

    Call 1 of that path: one head (pair 0, node 2), whose edge e1 comes from row 1 of a table with the pairs 0 and 1.

    >>> hop = Hop(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([1]), None, torch.tensor([2]), 2)
    >>> made_by_call_0 = torch.tensor([[110.0], [11.0]])                 # rows of pair 0 (node 2) and pair 1 (node 1)
    >>> weighted_sum(torch.tensor([0.5]), made_by_call_0, hop)           # ω = 0.5 on e1
    tensor([[5.5000]])
    >>> hop.own_rows(made_by_call_0)
    tensor([[110.]])
    """

    start: Tensor
    """`[heads + 1]`: where the edges of each head begin."""
    tail: Tensor
    """`[edges]`: the row of the table that each edge reads."""
    edge_id: Tensor
    """`[edges]`: the column of each edge in the graph."""
    own: Tensor | None
    """`[heads]`: the row of each head itself; None: the first rows of the table, in order."""
    node: Tensor
    """`[heads]`: the node of each head; of nodes of several kinds, its row among those of its kind."""
    table_size: int
    """How many rows the table of senders has."""
    table_node: Tensor | None = None
    """The same for each row of the table, from the first on, where that is not its number."""
    _cache: dict[str, Any] = field(default_factory=dict)
    place: Tensor | None = None
    """`[edges]`: the place of each edge among the copies of the call; None: the first ones, in order."""
    expected: int = 0
    """Edges of all calls in all passes that a method will make, if it said so: compiled loops are loaded for much work."""
    head_place: Tensor | None = None
    """`[heads]`: the place of each head among all pairs; None: the first ones, in order."""

    def of_edges(self, weight: Tensor) -> Tensor:
        """`[edges]`: the weights of the edges, from those of all copies."""
        return first_rows(weight, len(self.tail)) if self.place is None else weight.index_select(0, self.place)

    def of_heads(self, weight: Tensor) -> Tensor:
        """`[heads]`: the self weights of the heads, from those of all pairs."""
        return (
            first_rows(weight, self.num_heads) if self.head_place is None else weight.index_select(0, self.head_place)
        )

    def nodes_of_table(self) -> Tensor:
        """`[table]`: the node of each row of the table."""
        assert self.table_node is not None
        return self.table_node[: self.table_size]

    @property
    def num_heads(self) -> int:
        """How many copies receive."""
        return self.start.numel() - 1

    @property
    def head(self) -> Tensor:
        """`[edges]`: the head of each edge."""
        if "head" not in self._cache:
            heads = torch.arange(self.num_heads, device=self.start.device)
            self._cache["head"] = torch.repeat_interleave(heads, self.start.diff(), output_size=len(self.tail))
        return self._cache["head"]

    def remembered(self, what: str, compute: Callable[[], Any]) -> Any:
        """Compute something once: it stays the same from one pass to the next."""
        if what not in self._cache:
            self._cache[what] = compute()
        return self._cache[what]

    def backwards(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges grouped by tail: starts of the groups `[table + 1]`, heads `[edges]`, places among the edges `[edges]`."""
        if "backwards" not in self._cache:
            order = group_order(self.tail, self.table_size)
            start = torch.zeros(self.table_size + 1, dtype=torch.long, device=self.tail.device)
            start[1:] = torch.bincount(self.tail, minlength=self.table_size).cumsum(0)
            self._cache["backwards"] = start, self.head[order], order
        return self._cache["backwards"]

    def own_rows(self, table: Tensor) -> Tensor:
        """The rows of the heads themselves, `[heads, …]`."""
        return table[: self.num_heads] if self.own is None else table.index_select(0, self.own)


def first_rows(rows: Tensor, count: int) -> Tensor:
    """The first rows. All of them are the tensor itself: backwards, a slice costs a tensor of zeros and a copy.

    >>> rows = torch.zeros(3, 1)
    >>> first_rows(rows, 3) is rows, len(first_rows(rows, 2))
    (True, 2)
    """
    return rows if len(rows) == count else rows[:count]


def grouped_sum(table: Tensor, place: Tensor, start: Tensor, weight: Tensor) -> Tensor:
    """Σ weight · table[place] over each group, `[groups, width]`; group i has the places `start[i]:start[i + 1]`.

    >>> table, weight = torch.tensor([[1.0], [10.0]]), torch.tensor([1.0, 1.0, 3.0])
    >>> grouped_sum(table, torch.tensor([0, 1, 1]), torch.tensor([0, 2, 3]), weight)
    tensor([[11.],
            [30.]])
    """
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
    """What every head receives: Σ weight · table[tail], `[heads, width]`."""
    if not torch.is_grad_enabled():
        return grouped_sum(table.contiguous(), hop.tail, hop.start, weight)
    result: Tensor = _WeightedSum.apply(weight, table.contiguous(), hop)  # type: ignore[no-untyped-call]
    return result
