"""Sums over all walks through a step, without enumerating: what arrives there times what goes on from there."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.walk.front import Front
from edgewise.walk.given import arriving
from edgewise.walk.network import Network


@dataclass(frozen=True, eq=False)
class StepSums:
    """For one call: the target, the pair, and the sum of the relevance of all walks that take it there."""

    call: int
    target: Tensor
    pair: Tensor
    score: Tensor


def step_sums(network: Network, front: Front, owner: Tensor) -> Iterator[StepSums]:
    """Call by call, last one first."""
    everyone = torch.ones(network.num_nodes, dtype=torch.bool, device=owner.device)
    vectors = arriving(network, everyone)
    target = owner
    for call in reversed(range(network.num_calls)):
        parent, pair = network.children(call, front.node)
        if call == 0:
            yield StepSums(call, target[parent], pair, network.scores(front, parent, pair))
            return
        gradient, sender = network.onward(call, front, parent, pair), network.geometry(call).sender[pair]
        rows = vectors[call]
        assert rows is not None
        yield StepSums(call, target[parent], pair, torch.linalg.vecdot(gradient, rows.index_select(0, sender)))
        key, place = torch.unique(target[parent] * network.num_nodes + sender, return_inverse=True)
        summed = gradient.new_zeros(len(key), gradient.size(1)).index_add_(0, place, gradient)
        target, node = key // network.num_nodes, key % network.num_nodes
        front = network.arrive(call, node, summed)
