"""What the rows of an attention call receive under weights: by compiled loops, or from messages that no weight changes.

`attended_rows` is GATv2 as one function with its derivative written out (`kernels/attention_rows.py`); `AttentionLayer` does
the same in torch, and a test compares the two. `SteadyMessages` are those of a call that reads constants: there attention does
not depend on ω, so α · sent is found once for each column of the graph, and what a row receives is a sum of ω times that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.program.hop import Hop, weighted_sum
from edgewise.program.kernels import arrays, kernels_for

_WORK = 20_000_000
"""Numbers on edges, in all calls and passes that are expected, from which on it is worth loading the loops."""


def _kernels_for(hop: Hop, sent: Tensor) -> Any:
    """The compiled loops, if they are there and the work is worth it; `sent` is `[rows, H, channels]`."""
    work = max(len(hop.tail), hop.expected) * sent[:1].numel()
    return None if work < _WORK or sent.dtype == torch.int64 else kernels_for(work, sent)


class _BothSides(torch.autograd.Function):
    """Rows through the map of senders, and the first of them through that of receivers; the maps are constants."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, count: int, by_sender: Any, by_receiver: Any) -> tuple[Tensor, Tensor]:
        ctx.count, ctx.matrices = count, (by_sender.weight.detach(), by_receiver.weight.detach())
        return by_sender(rows), by_receiver(rows[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found = gradients[0] @ ctx.matrices[0]
        found[: ctx.count].addmm_(gradients[1], ctx.matrices[1])
        return found, None, None, None


def both_sides(rows: Tensor, count: int, by_sender: Any, by_receiver: Any) -> tuple[Tensor, Tensor]:
    """`[rows, …]` and `[count, …]`: rows `[rows, in]` as senders, and the first of them, which are often few, as receivers."""
    found: tuple[Tensor, Tensor] = _BothSides.apply(rows, count, by_sender, by_receiver)  # type: ignore[no-untyped-call]
    return found


@dataclass(frozen=True)
class RowSides:
    """What a compiled loop reads of a GATv2 call."""

    start: Tensor
    tail: Tensor
    own: Tensor
    """`[rows]`: the row of the senders' table that is a row's own."""
    vector: Tensor
    """`[H · channels]`: by which bent sums are multiplied."""
    below: float
    """The slope below zero of attention's own bend."""
    heads: int
    loops: bool

    @staticmethod
    def of(conv: Any, hop: Hop, like: Tensor, *, loops: bool) -> "RowSides":
        """Of a conv on the edges of a hop; `like` has the type of the numbers."""
        own = torch.arange(hop.num_heads) if hop.own is None else hop.own
        vector = conv.att.detach().flatten().to(like.dtype)
        return RowSides(hop.start, hop.tail, own, vector, float(conv.negative_slope), conv.heads, loops)

    def attention(self, kernels: Any, sent: Tensor, received: Tensor) -> tuple[Tensor, Tensor]:
        """α of the edges `[edges, H]` and of the loops `[rows, H]` (empty: there are none)."""
        below = arrays(sent)[0].dtype.type(self.below)
        places = arrays(self.start, self.tail, self.own, sent, received, self.vector)
        of_edges, of_loops = kernels.row_attention(*places, below, self.heads, self.loops)
        return torch.from_numpy(of_edges), torch.from_numpy(of_loops)


class _AttendedRows(torch.autograd.Function):
    """Σ ω α sent over the edges of a row, and s α sent of its own; α is the softmax of GATv2's logits."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, mine: Tensor, sent: Tensor, received: Tensor, sides: RowSides, kernels: Any
    ) -> Tensor:
        of_edges, of_loops = sides.attention(kernels, sent, received)
        ctx.save_for_backward(weight, mine, sent, received, of_edges, of_loops)
        ctx.sides, ctx.kernels = sides, kernels
        rows = arrays(sides.start, sides.tail, sides.own, sent, of_edges, of_loops, weight, mine)
        return torch.from_numpy(kernels.row_sums(*rows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, mine, sent, received, of_edges, of_loops = ctx.saved_tensors
        sides, gradient = ctx.sides, gradients[0].contiguous()
        places = arrays(sides.start, sides.tail, sides.own, sent, received, sides.vector)
        below = places[3].dtype.type(sides.below)
        rest = arrays(of_edges, of_loops, weight, mine, gradient)
        found = ctx.kernels.row_sums_back(*places, below, *rest)
        return *map(torch.from_numpy, found), None, None


def row_attention(
    conv: Any, sent: Tensor, received: Tensor, hop: Hop, *, loops: bool
) -> tuple[Tensor, Tensor | None] | None:
    """α of the edges `[edges, H]` and of added loops `[heads of the hop, H]`; None where compiled loops are not worth it."""
    kernels = _kernels_for(hop, sent)
    if kernels is None:
        return None
    sides = RowSides.of(conv, hop, sent, loops=loops)
    of_edges, of_loops = sides.attention(kernels, sent.flatten(1).contiguous(), received.flatten(1).contiguous())
    return of_edges, of_loops if loops else None


def attended_rows(
    conv: Any, sent: Tensor, received: Tensor, hop: Hop, weight: Tensor, mine: Tensor | None, *, loops: bool
) -> Tensor | None:
    """`[heads of the hop, H, channels]` of a GATv2 call; None where the loops are not there or not worth it.

    Args:
        conv: The GATv2, without edge features.
        sent: `[table, H, channels]`.
        received: `[heads of the hop, H, channels]`, what attention reads of them.
        hop: The edges.
        weight: `[edges]`, ω.
        mine: `[heads of the hop]`, s; None: 1.
        loops: Whether the layer adds loops.
    """
    kernels = _kernels_for(hop, sent)
    if kernels is None:
        return None
    own = weight.new_ones(hop.num_heads) if mine is None else mine
    parts = (weight.contiguous(), own.contiguous(), sent.flatten(1).contiguous(), received.flatten(1).contiguous())
    result: Tensor = _AttendedRows.apply(*parts, RowSides.of(conv, hop, sent, loops=loops), kernels)  # type: ignore[no-untyped-call]
    return result.view(-1, conv.heads, conv.out_channels)


@dataclass(frozen=True, eq=False)
class SteadyMessages:
    """α · sent of a call that reads constants: the same under any ω."""

    of: tuple[Any, ...]
    """From what they were made; kept, so that nothing else can be taken for it."""
    message: Tensor
    """`[messages, H · channels]`; of averaged heads `[messages, channels]`."""
    hop: Hop
    """The same heads; tails are rows of `message`."""
    loop: Tensor | None
    """`[heads of the hop, H · channels]`, of added loops."""

    @staticmethod
    def made(
        of: tuple[Any, ...], attention: tuple[Tensor, Tensor | None], sent: Tensor, hop: Hop, edge: Tensor | None = None,
        *, concat: bool,
    ) -> "SteadyMessages":  # fmt: skip
        """From α of the edges `[edges, H]` and of the loops, and from what rows send `[table, H, channels]`.

        `edge` `[edges, H, channels]` is what an edge adds to its message, the same for all copies of a column.
        """
        of_edges, of_loop = attention
        kept, place = _distinct(of_edges, hop)
        message = sent.index_select(0, hop.tail.index_select(0, kept))
        message = message if edge is None else message + edge.index_select(0, kept)
        message = of_edges.index_select(0, kept).unsqueeze(-1) * message
        loop = None if of_loop is None else _joined(of_loop.unsqueeze(-1) * hop.own_rows(sent), concat=concat)
        around = Hop(hop.start, place, hop.edge_id, None, hop.node, len(kept), None, {"head": hop.head})
        return SteadyMessages(of, _joined(message, concat=concat).contiguous(), around, loop)

    @staticmethod
    def on(hop: Hop, of: tuple[Any, ...], made: Callable[[], "SteadyMessages"]) -> "SteadyMessages":
        """Those of a layer and its rows (`of`), found once for a hop."""
        with torch.no_grad():
            found: SteadyMessages = hop.remembered("steady messages", made)
            return found if all(one is other for one, other in zip(found.of, of, strict=True)) else made()

    def received(self, weight: Tensor, mine: Tensor | None) -> Tensor:
        """`[heads of the hop, out]`: the sum under ω `[edges]`; `mine` `[heads of the hop, 1]` scales added loops."""
        found = weighted_sum(weight, self.message, self.hop)
        if self.loop is None:
            return found
        return found + (self.loop if mine is None else self.loop * mine)


def _joined(rows: Tensor, *, concat: bool) -> Tensor:
    """Heads `[n, H, channels]` side by side, or their mean."""
    return rows.flatten(1) if concat else rows.mean(dim=1)


def _distinct(of_edges: Tensor, hop: Hop) -> tuple[Tensor, Tensor]:
    """Edges that stand for all, `[n]`, and which of them each edge is, `[edges]`: copies of a column that are alike are one.

    Copies of a column are alike as long as the table has a row for each node; that is not assumed but seen.
    """
    edges = torch.arange(len(hop.tail), device=hop.tail.device)
    if len(edges) == 0:
        return edges, edges
    known = torch.full((int(hop.edge_id.max()) + 1,), -1, device=edges.device)
    known[hop.edge_id] = edges  # one of the copies of each column
    kept = (known >= 0).nonzero().view(-1)
    first = known[kept]
    known[kept] = torch.arange(len(kept), device=edges.device)
    place = known[hop.edge_id]
    alike = first[place]
    if torch.equal(hop.tail[alike], hop.tail) and torch.equal(of_edges[alike], of_edges):
        return first, place
    return edges, edges
