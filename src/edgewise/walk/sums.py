"""Sums over all walks through a step, without enumerating: what arrives there times what goes on from there."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.walk.calls import Front
from edgewise.walk.network import Network

# --- The relevance of walks that somebody names, and sums over all walks inside a set of nodes -------------------------


def find_pairs(network: Network, call: int, sender: Tensor, receiver: Tensor) -> Tensor:
    """The pairs of a call by their nodes; −1 where there is none."""
    geometry = network.geometry(call)
    size = geometry.num_nodes
    known = geometry.receiver * size + geometry.sender
    key = receiver * size + sender
    if len(known) == 0:
        return torch.full_like(key, -1)
    place = torch.searchsorted(known, key).clamp(max=len(known) - 1)
    return torch.where(known[place] == key, place, -1)


def relevance(network: Network, front: Front, root: Tensor, nodes: Tensor) -> Tensor:
    """Scores of walks `[n, L + 1]` that end at some roots of the front; 0 for walks that the model cannot take."""
    found = torch.zeros(len(nodes), dtype=torch.double, device=nodes.device)
    places = torch.arange(len(nodes), device=nodes.device)
    current = front.select(root)
    for call in reversed(range(network.num_calls)):
        pair = find_pairs(network, call, nodes[places, call], nodes[places, call + 1])
        real = (pair >= 0).nonzero().view(-1)
        places, pair, current = places[real], pair[real], current.select(real)
        own = torch.arange(len(places), device=nodes.device)
        if call == 0:
            found[places] = network.scores(current, own, pair)
        else:
            current = network.arrive(call, nodes[places, call], network.onward(call, current, own, pair))
    return found


def arriving(network: Network, allowed: Tensor) -> list[Tensor | None]:
    """Per call ≥ 1: the sum of the vectors of all walks that arrive in each state before it, staying inside `allowed`.

    It obeys the same recursion as the vector of a single walk (Xiong et al. 2022).
    """
    found: list[Tensor | None] = [None]
    for call in range(network.num_calls - 1):
        geometry = network.geometry(call)
        pair = (allowed[geometry.sender] & allowed[geometry.receiver]).nonzero().view(-1)
        before = found[-1]
        if before is None:
            rows = network.first_states(pair)
        else:
            rows = network.forth(call, before.index_select(0, geometry.sender[pair]), pair)
        found.append(rows.new_zeros(network.num_nodes, rows.size(1)).index_add_(0, geometry.receiver[pair], rows))
    return found


def inside(network: Network, front: Front, allowed: Tensor) -> Tensor:
    """For each root of the front: the sum over all walks that stay inside a set of nodes (`[N]`, bool)."""
    call = network.num_calls - 1
    vectors = arriving(network, allowed)[call]
    parent, pair = network.children(call, front.node)
    sender = network.geometry(call).sender[pair]
    kept = (allowed[sender] & allowed[front.node][parent]).nonzero().view(-1)
    parent, pair, sender = parent[kept], pair[kept], sender[kept]
    if vectors is None:
        products = network.scores(front, parent, pair)
    else:
        products = torch.linalg.vecdot(network.onward(call, front, parent, pair), vectors.index_select(0, sender))
    return products.new_zeros(len(front)).index_add_(0, parent, products)


# --- The whole ---------------------------------------------------------------------------------------------------------


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
