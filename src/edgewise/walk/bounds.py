"""What a walk can still bring: for every node and call, a box around the vectors of all walks that arrive in its state.

One pass of interval arithmetic over the graph, the same for all targets. The image of a box under a matrix M is
[M⁺lo + M⁻hi, M⁺hi + M⁻lo]; blocks are applied pair by pair, before the hull over the senders is taken.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.lowering.compiled import arrays, kernels_for
from edgewise.walk.blocks import Blocks
from edgewise.walk.geometry import Geometry
from edgewise.walk.network import Network
from edgewise.walk.row_maps import RowMap

_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Box:
    """`[N, width]`; zeros where no walk arrives, which `reached` `[N]` says."""

    low: Tensor
    high: Tensor
    reached: Tensor

    def upper(self, gradient: Tensor, node: Tensor) -> Tensor:
        """The largest gradient · vector over each node's box."""
        high, low = self.high.index_select(0, node), self.low.index_select(0, node)
        return torch.linalg.vecdot(gradient.clamp(min=0), high) + torch.linalg.vecdot(gradient.clamp(max=0), low)

    def most(self, gradient: Tensor, node: Tensor) -> Tensor:
        """The sum of all products without their signs: the scale of rounding errors."""
        size = torch.maximum(self.high.index_select(0, node).abs(), self.low.index_select(0, node).abs())
        return torch.linalg.vecdot(gradient.abs(), size)


def boxes(network: Network) -> list[Box | None]:
    """Per call c ≥ 1: the boxes of the states before it."""
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

    def add(self, node: Tensor, low: Tensor, high: Tensor) -> None:
        place = node.view(-1, 1).expand_as(low)
        self.low.scatter_reduce_(0, place, low, "amin")
        self.high.scatter_reduce_(0, place, high, "amax")

    def box(self) -> Box:
        reached = torch.isfinite(self.low).all(dim=1)
        zero = self.low.new_zeros(())
        return Box(
            torch.where(reached.view(-1, 1), self.low, zero), torch.where(reached.view(-1, 1), self.high, zero), reached
        )


def _first_box(network: Network) -> Box:
    geometry = network.first.geometry
    pairs = torch.arange(len(geometry), device=geometry.receiver.device)
    width = network.width(1)
    like = torch.zeros(0, dtype=torch.double, device=pairs.device)
    hull = _Hull(network.num_nodes, width, like)
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(width, 1), 1)):
        arriving = network.first_states(part)
        hull.add(geometry.receiver[part], arriving, arriving)
    return hull.box()


def _image(network: Network, call: int, box: Box) -> Box:
    blocks, geometry = network.blocks[call], network.geometry(call)
    assert blocks is not None
    pairs = box.reached[geometry.sender].nonzero().view(-1)
    summed, around = network.node_maps[call + 1]
    hull = _Hull(network.num_nodes, network.width(call + 1), box.low)
    plain = blocks.dense is None and blocks.post is None and blocks.sending is None
    if plain and (summed is None or summed.diagonal is not None):
        mixed = geometry.is_own[pairs] if blocks.root is not None or around is not None else torch.zeros_like(pairs) > 0
        simple, pairs = pairs[~mixed], pairs[mixed]
        _factored(blocks, geometry, summed, box, simple, hull)
        if blocks.root is not None and around is None and blocks.scale is not None:
            alone = blocks.scale.eq(0).all(dim=1)[pairs]
            _rooted(blocks, geometry, summed, box, pairs[alone], hull)
            pairs = pairs[~alone]
    elif (
        plain and blocks.root is None and around is None and (scale := blocks.scale) is not None and scale.size(1) == 1
    ):
        kernels = kernels_for(len(pairs), pairs)
        if kernels is not None and summed is not None and summed.matrices is not None:
            matrices = summed.matrices if blocks.matrix is None else summed.matrices @ blocks.matrix
            inputs = (
                matrices,
                scale.view(-1),
                geometry.in_pairs.start,
                geometry.sender,
                box.reached,
                box.low,
                box.high,
            )
            hull.low, hull.high = (torch.from_numpy(side) for side in kernels.box_image(*arrays(*inputs)))
            return hull.box()
    size = box.low.size(1) * hull.low.size(1)
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(size, 1), 1)):
        matrices, sender = network.block(call, part), geometry.sender[part]
        low, high = box.low.index_select(0, sender), box.high.index_select(0, sender)
        up, down = matrices.clamp(min=0), matrices.clamp(max=0)
        hull.add(
            geometry.receiver[part],
            torch.einsum("poi,pi->po", up, low) + torch.einsum("poi,pi->po", down, high),
            torch.einsum("poi,pi->po", up, high) + torch.einsum("poi,pi->po", down, low),
        )
    return hull.box()


def _through(matrix: Tensor | None, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    if matrix is None:
        return low, high
    up, down = matrix.clamp(min=0).t(), matrix.clamp(max=0).t()
    return low @ up + high @ down, high @ up + low @ down


def _scaled(scale: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    one, other = scale * low, scale * high
    return torch.minimum(one, other), torch.maximum(one, other)


def _add_diagonal(summed: RowMap | None, receiver: Tensor, low: Tensor, high: Tensor, hull: _Hull) -> None:
    if summed is not None and summed.diagonal is not None:
        low, high = _scaled(summed.diagonal.index_select(0, receiver), low, high)
    hull.add(receiver, low, high)


def _factored(blocks: Blocks, geometry: Geometry, summed: RowMap | None, box: Box, pairs: Tensor, hull: _Hull) -> None:
    """Shared matrix, a number (or a channel vector) for each pair: the matrix once for each sender."""
    assert blocks.scale is not None
    low, high = _through(blocks.matrix, box.low, box.high)
    for part in pairs.split(max(_NUMBERS_AT_ONCE // max(low.size(1), 1), 1)):
        sender, receiver = geometry.sender[part], geometry.receiver[part]
        scale = blocks.scale.index_select(0, part)
        found = _scaled(scale, low.index_select(0, sender), high.index_select(0, sender))
        _add_diagonal(summed, receiver, *found, hull)


def _rooted(blocks: Blocks, geometry: Geometry, summed: RowMap | None, box: Box, pairs: Tensor, hull: _Hull) -> None:
    """Nodes that hear themselves through the root matrix alone."""
    node = geometry.sender[pairs]
    low, high = _through(blocks.root, box.low.index_select(0, node), box.high.index_select(0, node))
    _add_diagonal(summed, node, low, high, hull)
