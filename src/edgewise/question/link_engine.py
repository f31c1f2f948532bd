"""The lowered way to run a model of links: a program for the nodes, and the user's own decoder for pairs of them.

The program gives the rows of both ends of every pair; an edge that both ends see has one weight, so the copies of the two
ends are joined. What the model does behind its last layer is run as it is (`DecoderForward`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import LayerWeight, SelfWeight
from edgewise.graph.cut import part_of
from edgewise.graph.pair_copies import with_pairs
from edgewise.model.call import ModelCall
from edgewise.model.link_call import DecoderForward, EncoderForward
from edgewise.program.execution import LoweredEngine
from edgewise.question.equality import random_weight
from edgewise.question.node_model import NodeModel
from edgewise.question.target import Target

Decoder = Callable[[Tensor], Tensor]
"""Rows of the first ends and then of the second ends, `[2 T, d]`, to the scores of the pairs, `[T, 1]`."""

_TABLE = 2**24
"""Pairs × items that are numbered in a table."""

_JOINED_BYTES = 48
"""Of a copy: its key, what stands for it, its place, the item and the owner."""


@dataclass(frozen=True)
class _Joined:
    """Copies of the two ends of T pairs, joined: what both ends see is one."""

    item: Tensor
    """`[M]`: the column, or the node."""
    owner: Tensor
    """`[M]`: the position of the pair."""
    place: Tensor
    """`[copies of the ends]`: which of the M each one is."""

    @staticmethod
    def of(item: Tensor, owner: Tensor, num_pairs: int) -> "_Joined":
        """From copies whose owners are ends: 0 to T − 1 the first ones, T to 2 T − 1 the second ones.

        >>> joined = _Joined.of(torch.tensor([7, 5, 7, 7]), torch.tensor([0, 0, 2, 1]), 2)       # owners 0 and 2 are one pair
        >>> joined.item.tolist(), joined.owner.tolist(), joined.place.tolist()
        ([5, 7, 7], [0, 0, 1], [1, 0, 1, 2])
        """
        width = int(item.max()) + 1 if len(item) else 1
        pair = owner % num_pairs
        key = pair * width + item
        if num_pairs * width > _TABLE:
            found, place = key.unique(return_inverse=True)
            return _Joined(found % width, found // width, place)
        copy = torch.arange(len(key), device=key.device, dtype=torch.int32)
        standing = torch.empty(num_pairs * width, dtype=torch.int32, device=key.device)
        standing[key] = copy  # of copies of one item, some copy stands for all: no sorting
        stands_for = standing[key]
        stands = (stands_for == copy).nonzero().view(-1)
        number = torch.empty_like(copy)
        number[stands] = copy[: len(stands)]
        return _Joined(item[stands], pair[stands], number[stands_for].long())

    def summed(self, values: Tensor) -> Tensor:
        """`[L, M]` of values `[L, copies]`: what both ends say, added."""
        return values.new_zeros(len(values), len(self.item)).index_add_(1, self.place, values)


def encoded(encoder: NodeModel, num_layers: int, like: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """`[N, d]` each: what the last layer makes of the nodes, as it is and by the program at random weights; and those."""
    assert encoder.lowering is not None
    graph, asked, rows = encoder.graph, encoder.targets, encoder.trace.output
    sizes = (graph.edge_index.size(1), graph.num_nodes)
    weights = [random_weight(torch.arange(n, device=rows.device), num_layers, like) for n in sizes]
    found = encoder.lowering.output_at(asked, *weights)
    if asked is not None:
        found = torch.zeros_like(rows).index_copy(0, asked, found)
    return rows, found, weights


def shared_scores(encoder: NodeModel, weights: list[Tensor], pairs: Tensor) -> Tensor | None:
    """`[T, 1]`: the model's scores at these weights, from the very pass that proved the encoder; None if it was another one."""
    forward = encoder.call.forward
    seen = forward.shared if isinstance(forward, EncoderForward) else None
    if seen is None or not isinstance(seen.scores, Tensor) or seen.scores.numel() != len(pairs):
        return None
    same = torch.equal(seen.pairs, pairs) and encoder.is_probe(seen.rows, weights)
    return seen.scores.view(-1, 1) if same else None


def decoder_of(call: ModelCall, behind: DecoderForward, graph: Data, ends: Tensor) -> Decoder:
    """The model `behind` its last layer, for pairs with these ends `[2 n]`: the only nodes that it gets, without edges."""
    none = torch.zeros(0, dtype=torch.long, device=ends.device)
    couples = torch.arange(len(ends), device=ends.device).view(2, -1).t()
    part = with_pairs(part_of(graph, none if behind.is_direct else ends, none), couples)
    return lambda rows: replace(call, forward=replace(behind, rows=rows))(part)


def slope_of(decode: Decoder, target: Target) -> Callable[[Tensor], Tensor]:
    """From rows of both ends `[2 T, d]` to the gradient of the explained numbers by them."""

    def slope(rows: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            value = target.value(decode(leaf)).sum()
            if not value.requires_grad:
                return torch.zeros_like(rows)
            (found,) = torch.autograd.grad(value, leaf, allow_unused=True)
        return torch.zeros_like(rows) if found is None else found

    return slope


class LinkEngine:
    """All pairs of a block in one pass of the program and one of the decoder."""

    way = "lowered"
    local = True
    edges_of: list[int] | None = None
    pairs_of: list[int] | None = None

    def __init__(self, ends: LoweredEngine, decode: Decoder) -> None:
        """`ends` is an engine for 2 T nodes: the first ends of all pairs, then the second ones."""
        self._ends, self._decode = ends, decode
        self.num_targets = ends.num_targets // 2
        self._edges = _Joined.of(ends.edge_id, ends.owner, self.num_targets)
        self._own = _Joined.of(ends.self_node, ends.self_owner, self.num_targets)
        self.edge_id, self.owner = self._edges.item, self._edges.owner
        self.self_node, self.self_owner = self._own.item, self._own.owner

    def joined_bytes(self, itemsize: int) -> int:
        """About what joining the copies of the two ends takes: numbers, and for each layer weights, gradients, their sums."""
        each = _JOINED_BYTES + 8 * self._ends.program.num_calls * itemsize
        return (len(self._edges.place) + len(self._own.place)) * each

    @property
    def edge_hops(self) -> Tensor:
        """`[M]`: fewest edges from each copy's receiver to an end of its pair."""
        hops = self._ends.edge_hops
        most = torch.full_like(self.edge_id, int(hops.max()) if len(hops) else 0)
        return most.scatter_reduce(0, self._edges.place, hops, "amin")

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """The scores of the pairs, `[T, 1]`, under weights ω `[L, M]` and s `[L, S]`."""
        of_ends = None if own is None else own[:, self._own.place]
        return self._decode(self._ends.output(weight[:, self._edges.place], of_ends))

    def gradients(self, target: Target) -> tuple[LayerWeight, SelfWeight] | None:
        """∂/∂ω `[L, M]` and ∂/∂s `[L, S]` at 1: the decoder's gradients at both ends, each carried back by the program."""
        found = self._ends.gradients_along(slope_of(self._decode, target))
        return None if found is None else (self._edges.summed(found[0]), self._own.summed(found[1]))
