"""What a walk can still bring: for every node and call, a box around the vectors of all walks that arrive in its state.

One pass of interval arithmetic (`program/intervals.py`) over the graph, the same for all targets. The image of a box under a
matrix M is [M⁺lo + M⁻hi, M⁺hi + M⁻lo], pushed outwards by what rounding may have done; blocks are applied pair by pair, before
the hull over the senders is taken.

Example: `edgewise.examples.triangle_model`, h_v = 2·Σ x_u + x_v with x = (1, 0, 1). Walks of one step bring into the states h

    node 0: 1 (stay)                            box [1, 1]
    node 1: 2 (from 0), 0 (stay)                box [0, 2]
    node 2: 2 (from 0), 0 (from 1), 1 (stay)    box [0, 2]

Node 2 is explained; its steps in call 1 have the onward gradients 3 (from 0), 3 (from 1) and −1 (stay). Gradient against box:
walks through node 0 have at most 3 · 1 = 3, through node 1 at most 3 · 2 = 6, through node 2 at most −1 · 0 = 0. No walk to
node 2 has more than 6 (`ceiling`), and once the walk (0, 1, 2) with 6 is found, the other two steps need not be followed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.intervals import Interval, TwoSided
from edgewise.program.kernels import arrays, kernels_for
from edgewise.walk.blocks import Blocks, RowMap
from edgewise.walk.geometry import Geometry
from edgewise.walk.network import AnyNetwork, Network
from edgewise.walk.prefixes import Front

_PAIRS_A_UNIT = 16  # of work: torch is nearly as quick here, so that loading the loops pays for large graphs alone
_NUMBERS_AT_ONCE = 2**22  # entries of blocks, or of boxes of pairs, that are held together


@dataclass(frozen=True, eq=False)
class Box:
    """For every node: the smallest box around the vectors of all walks that arrive in its state before a call."""

    sides: Interval
    """`[N, width]`; zeros where no walk arrives."""
    reached: Tensor
    """`[N]`: whether any walk arrives."""

    @property
    def low(self) -> Tensor:
        """`[N, width]`: the lower sides."""
        return self.sides.lo

    @property
    def high(self) -> Tensor:
        """`[N, width]`: the upper sides."""
        return self.sides.hi

    def upper(self, gradient: Tensor, node: Tensor) -> Tensor:
        """`[n]`: the largest gradient · vector over each node's box.

        >>> box = Box(Interval(torch.tensor([[0.0, -1.0]]), torch.tensor([[2.0, 5.0]])), torch.tensor([True]))
        >>> box.upper(torch.tensor([[3.0, -1.0]]), torch.tensor([0]))               # 3 · 2 − 1 · −1
        tensor([7.])
        """
        high, low = self.high.index_select(0, node), self.low.index_select(0, node)  # [n, width]
        return torch.linalg.vecdot(gradient.clamp(min=0), high) + torch.linalg.vecdot(gradient.clamp(max=0), low)

    def most(self, gradient: Tensor, node: Tensor) -> Tensor:
        """`[n]`: Σ |gradient| · |vector| at its largest over each node's box: the scale of rounding errors."""
        size = torch.maximum(self.high.index_select(0, node).abs(), self.low.index_select(0, node).abs())
        return torch.linalg.vecdot(gradient.abs(), size)


def boxes(network: AnyNetwork) -> list[Box | None]:
    """The boxes of the states before each call c ≥ 1; entry 0 is None."""
    found: list[Box | None] = [None]
    if network.num_calls == 1:
        return found
    found.append(_first_box(network))
    for call in range(1, network.num_calls - 1):
        before = found[-1]
        assert before is not None
        found.append(_image(network, call, before))
    return found


class _Hull:
    """Collects the largest and smallest of what arrives at each node."""

    def __init__(self, num_nodes: int, width: int, like: Tensor) -> None:
        self.low = like.new_full((num_nodes, width), torch.inf)
        self.high = like.new_full((num_nodes, width), -torch.inf)

    @staticmethod
    def of(low: Tensor, high: Tensor) -> "_Hull":
        """A hull from sides that a compiled loop has collected."""
        hull = _Hull(0, 0, low)
        hull.low, hull.high = low, high
        return hull

    def add(self, node: Tensor, low: Tensor, high: Tensor) -> None:
        """Widen the boxes of some nodes `[n]` by what arrives there, `[n, width]`."""
        place = node.view(-1, 1).expand_as(low)
        self.low.scatter_reduce_(0, place, low, "amin")
        self.high.scatter_reduce_(0, place, high, "amax")

    def box(self) -> Box:
        """The boxes; a node whose sides are still infinite was not reached."""
        reached = torch.isfinite(self.low).all(dim=1)
        low, high = (torch.where(reached.view(-1, 1), side, 0.0) for side in (self.low, self.high))
        return Box(Interval(low, high), reached)


def _first_box(network: AnyNetwork) -> Box:
    """The boxes before call 1: the hull of `first_states` over the pairs into each node, by factors where possible."""
    if not isinstance(network, Network):
        return _first_hull(network)
    first, geometry = network.first, network.first.geometry
    everyone = torch.ones(network.num_nodes, dtype=torch.bool, device=geometry.receiver.device)
    summed, _ = network.node_maps[1]
    narrow = first.scale is not None and first.scale.size(1) == 1 and first.post is None and first.sent is not None
    if narrow and first.skip is None and (summed is None or summed.diagonal is not None):
        assert first.scale is not None
        assert first.sent is not None
        points = Box(Interval.point(first.sent), everyone)
        own = None if first.root is None else Interval.point(first.root)
        return _factored(geometry, first.scale, points, own, summed)
    return _first_hull(network)


def _first_hull(network: AnyNetwork) -> Box:
    """The same, with what every pair brings."""
    geometry, width = network.geometry(0), network.width(1)
    pairs = torch.arange(len(geometry), device=geometry.receiver.device)
    hull = _Hull(network.num_nodes, width, torch.zeros(0, dtype=torch.double, device=pairs.device))
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(width, 1), 1)):
        arriving = network.first_states(part)
        hull.add(geometry.receiver[part], arriving, arriving)
    return hull.box()


def _image(network: AnyNetwork, call: int, box: Box) -> Box:
    """The boxes before call + 1 from those before `call`: by the cheapest of three ways that the blocks allow."""
    if not isinstance(network, Network):
        return _dense_image(network, call, box)
    blocks, geometry = network.blocks[call], network.geometry(call)
    assert blocks is not None
    summed, around = network.node_maps[call + 1]
    plain = blocks.dense is None and blocks.post is None and blocks.sending is None and around is None
    if plain and blocks.scale is not None and blocks.scale.size(1) == 1:
        if summed is None or summed.diagonal is not None:
            through = Box(_through(blocks.matrix, box.sides), box.reached)
            own = None if blocks.root is None else _through(blocks.root, box.sides)
            return _factored(geometry, blocks.scale, through, own, summed)
        compiled = _compiled_image(blocks, geometry, summed, box)
        if compiled is not None:
            return compiled
    return _dense_image(network, call, box)


def _dense_image(network: AnyNetwork, call: int, box: Box) -> Box:
    """The image with every block in full, `[n, out, in]`, some pairs at a time."""
    geometry, width = network.geometry(call), network.width(call + 1)
    hull = _Hull(network.num_nodes, width, box.low)
    pairs = box.reached[geometry.sender].nonzero().view(-1)
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(box.low.size(1) * width, 1), 1)):
        matrices, sender = network.block(call, part), geometry.sender[part]  # [p, width, in], [p]
        low, high = box.low.index_select(0, sender), box.high.index_select(0, sender)
        up, down = matrices.clamp(min=0), matrices.clamp(max=0)
        hull.add(
            geometry.receiver[part],
            torch.einsum("poi,pi->po", up, low) + torch.einsum("poi,pi->po", down, high),
            torch.einsum("poi,pi->po", up, high) + torch.einsum("poi,pi->po", down, low),
        )
    return hull.box()


def _compiled_image(blocks: Blocks, geometry: Geometry, summed: RowMap, box: Box) -> Box | None:
    """The image through a matrix per node (inner networks of GIN), by a compiled loop; None if there is none."""
    kernels = kernels_for(len(geometry) // _PAIRS_A_UNIT, box.low)
    if kernels is None or summed.matrices is None or blocks.root is not None or blocks.scale is None:
        return None
    matrices = summed.matrices if blocks.matrix is None else summed.matrices @ blocks.matrix
    places = (blocks.scale.view(-1), geometry.in_pairs.start, geometry.sender, box.reached, box.low, box.high)
    return _Hull.of(*(torch.from_numpy(side) for side in kernels.box_image(*arrays(matrices, *places)))).box()


def _through(matrix: Tensor | None, sides: Interval) -> Interval:
    """The image of boxes `[N, in]` under a shared matrix `[out, in]`, each row by itself: `[N, out]`."""
    return sides if matrix is None else sides.linear(TwoSided.of(matrix))


def _factored(geometry: Geometry, scale: Tensor, box: Box, own: Interval | None, summed: RowMap | None) -> Box:
    """The hull over the pairs of diagonal · (scale · box of the sender, + the own box where a node stays).

    Args:
        geometry: The pairs.
        scale: `[pairs, 1]`.
        box: Boxes of the senders, through the shared matrix already.
        own: `[N, width]`, boxes of nodes that stay, through the root matrix already.
        summed: What happens at the receivers; its diagonal, if there is one.

    Adding the two where a node has both a loop and a root matrix is wider than need be, and still holds.
    """
    diagonal = None if summed is None else summed.diagonal
    kernels = kernels_for(len(geometry) // _PAIRS_A_UNIT, box.low)
    if kernels is not None:
        nothing = box.low.new_zeros(0, 0)
        places = (geometry.in_pairs.start, geometry.sender, scale.view(-1), geometry.is_own, box.reached)
        rows = (
            box.low,
            box.high,
            *((nothing, nothing) if own is None else (own.lo, own.hi)),
            nothing if diagonal is None else diagonal,
        )
        found = kernels.hull(*arrays(*places, *(side.contiguous() for side in rows)))
        return _Hull.of(*(torch.from_numpy(side) for side in found)).box()
    hull = _Hull(geometry.num_nodes, box.low.size(1), box.low)
    pairs = box.reached[geometry.sender].nonzero().view(-1)
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(box.low.size(1), 1), 1)):
        sender, receiver = geometry.sender[part], geometry.receiver[part]  # [p]
        sides = box.sides.rows(sender).scaled(scale.index_select(0, part))  # [p, width]
        if own is not None:
            stays = geometry.is_own[part].nonzero().view(-1)
            mine = own.rows(sender[stays])
            sides = Interval(sides.lo.index_add(0, stays, mine.lo), sides.hi.index_add(0, stays, mine.hi))
        if diagonal is not None:
            sides = sides.scaled(diagonal.index_select(0, receiver))
        hull.add(receiver, sides.lo, sides.hi)
    return hull.box()


# --- What is known about all walks of a target before any of them is found -----------------------------------------------


def reach(box: Box, gradient: Tensor, node: Tensor, sign: str) -> Tensor:
    """`[n]`: the best that walks can have, in the searched order, if they go on from some nodes with these gradients."""
    bound = box.upper(gradient, node)
    return torch.maximum(bound, box.upper(-gradient, node)) if sign == "magnitude" else bound


def reach_of_steps(network: AnyNetwork, boxes: list[Box | None], front: Front, sign: str) -> tuple[Tensor, Tensor]:
    """All steps of the explained nodes: `[n]` the place in the front, `[n]` the best that walks with this step can have."""
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    box = boxes[call]
    if box is None:
        score = network.scores(front, parent, pair)
        return parent, score.abs() if sign == "magnitude" else score
    gradient = network.onward(call, front, parent, pair)
    return parent, reach(box, gradient, network.geometry(call).sender[pair], sign)


def ceiling(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int, sign: str
) -> Tensor:
    """`[T]`: no walk of a target has more than this, in the searched order; `owner` is the target of each end."""
    parent, bound = reach_of_steps(network, boxes, front, sign)
    return bound.new_zeros(num_targets).scatter_reduce_(0, owner[parent], bound, "amax")


def rounding(network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int) -> Tensor:
    """`[T]`: how large rounding errors of a walk's score can be; a score below it counts as zero.

    A score is a product of L matrices and vectors of at most `width` numbers each. Its error is at most about
    L · (width + 2) · 2⁻⁵³ times the sum of the sizes of all products, which the boxes bound; 4 is a margin.
    """
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    sender = network.geometry(call).sender[pair]
    box = boxes[call]
    if box is None:
        size = network.scores(front, parent, pair).abs()
    else:
        size = box.most(network.onward(call, front, parent, pair), sender)
    largest = size.new_zeros(num_targets).scatter_reduce_(0, owner[parent], size, "amax")
    width = max(network.width(c) for c in range(network.num_calls))
    return 4 * network.num_calls * (width + 2) * 2.0**-53 * largest
