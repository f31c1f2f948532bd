"""What is known about all walks of a target before any of them is found: how much they can have, and how exactly."""

import torch
from torch import Tensor

from edgewise.walk.bounds import Box
from edgewise.walk.front import Front
from edgewise.walk.network import Network


def reach(box: Box, gradient: Tensor, node: Tensor, sign: str) -> Tensor:
    """What walks that go on from some nodes can have at best, in the searched order."""
    bound = box.upper(gradient, node)
    return torch.maximum(bound, box.upper(-gradient, node)) if sign == "magnitude" else bound


def reach_of_steps(network: Network, boxes: list[Box | None], front: Front, sign: str) -> tuple[Tensor, Tensor]:
    """All steps of the explained nodes: the number of the node, and what walks that begin so can have at best."""
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    box = boxes[call]
    if box is None:
        score = network.scores(front, parent, pair)
        return parent, score.abs() if sign == "magnitude" else score
    gradient = network.onward(call, front, parent, pair)
    return parent, reach(box, gradient, network.geometry(call).sender[pair], sign)


def ceiling(
    network: Network, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int, sign: str
) -> Tensor:
    """`[T]`: no walk of a target has more than this, in the searched order."""
    parent, bound = reach_of_steps(network, boxes, front, sign)
    return bound.new_zeros(num_targets).scatter_reduce_(0, owner[parent], bound, "amax")


def rounding(network: Network, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int) -> Tensor:
    """`[T]`: how large rounding errors of a walk's score can be; a score below it is zero."""
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
