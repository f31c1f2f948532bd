"""Relevance of given walks, and sums over many walks without enumerating them.

A sum over all walks through a step is what arrives there (`arriving`, a vector per node) times what goes on from there (a
gradient per target and node).

Example: `edgewise.examples.triangle_model`, node 2 explained. What arrives in the states before call 1 is h = (1, 2, 3): 1 in
node 0, 2 in node 1, 2 + 0 + 1 in node 2. The steps of node 2 in call 1 have gradients 3 (from 0), 3 (from 1) and −1 (stay), so
the sums over all walks through them are 3, 6 and −3, and together z₂ = 6. The sum of the walks inside the nodes {1, 2} is that
without everything that touches node 0: arriving are 0 in node 1 and 0 + 1 in node 2, so it is 3 · 0 − 1 · 1 = −1.

>>> import edgewise as ew
>>> from edgewise.examples import triangle_model
>>> model, data = triangle_model()
>>> ew.subgraph_relevance(model, data, 2, nodes=[1, 2], mode="regression", target=0)
tensor([-1.], dtype=torch.float64)
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front


def find_pairs(network: AnyNetwork, call: int, sender: Tensor, receiver: Tensor) -> Tensor:
    """`[n]`: the pairs of a call by their nodes; −1 where there is none."""
    geometry = network.geometry(call)
    size = geometry.num_nodes
    known = geometry.receiver * size + geometry.sender  # [pairs], sorted
    key = receiver * size + sender  # [n]
    if len(known) == 0:
        return torch.full_like(key, -1)
    place = torch.searchsorted(known, key).clamp(max=len(known) - 1)
    return torch.where(known[place] == key, place, -1)


def relevance(network: AnyNetwork, front: Front, root: Tensor, nodes: Tensor) -> Tensor:
    """`[n]`: the relevance of given walks; 0 for walks that the model cannot take.

    Args:
        network: The model.
        front: The explained nodes.
        root: `[n]`, the place of each walk's last node in the front.
        nodes: `[n, L + 1]`, source first.
    """
    found = torch.zeros(len(nodes), dtype=torch.double, device=nodes.device)
    places = torch.arange(len(nodes), device=nodes.device)  # the walks that are still possible
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


def arriving(network: AnyNetwork, allowed: Tensor) -> list[Tensor | None]:
    """`[N, state]` per call ≥ 1: the sum of the vectors of all walks inside `allowed` that arrive in each state before it.

    It obeys the same recursion as the vector of a single walk (Xiong et al. 2022). `allowed` is `[N]`, bool.
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


def inside(network: AnyNetwork, front: Front, allowed: Tensor) -> Tensor:
    """`[P]`: for each end of the front, the sum over all walks that stay inside a set of nodes (`[N]`, bool)."""
    call = network.num_calls - 1
    vectors = arriving(network, allowed)[call]
    parent, pair = network.children(call, front.node)
    sender = network.geometry(call).sender[pair]
    kept = (allowed[sender] & allowed[front.node][parent]).nonzero().view(-1)
    parent, pair, sender = parent[kept], pair[kept], sender[kept]  # [n] each: last steps inside the set
    if vectors is None:
        products = network.scores(front, parent, pair)
    else:
        products = torch.linalg.vecdot(network.onward(call, front, parent, pair), vectors.index_select(0, sender))
    return products.new_zeros(len(front)).index_add_(0, parent, products)


@dataclass(frozen=True, eq=False)
class StepSums:
    """For one call, `[n]` each: the target, the pair, and the sum of the relevance of all walks that take the pair there."""

    call: int
    target: Tensor
    pair: Tensor
    score: Tensor


def step_sums(network: AnyNetwork, front: Front, owner: Tensor) -> Iterator[StepSums]:
    """Sums over all walks through every step of every target, call by call, the last one first.

    After each call the gradients of all prefixes that have reached the same node for the same target are added up, so there
    are never more than targets × nodes of them.
    """
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
        key, place = torch.unique(target[parent] * network.num_nodes + sender, return_inverse=True)  # (target, node)
        summed = gradient.new_zeros(len(key), gradient.size(1)).index_add_(0, place, gradient)
        target, node = key // network.num_nodes, key % network.num_nodes
        front = network.arrive(call, node, summed)
