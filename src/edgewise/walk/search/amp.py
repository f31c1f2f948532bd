"""AMP-ave (Xiong et al., ICML 2023): approximate max-product by averaging over neurons, at node level, top k.

Walks grow from the features towards the explained node. At every node the k prefixes whose vectors have the largest mean over
the node's neurons are kept; only at the end the explained number's own gradient weighs them. The additive variant (the one in
the KDD 2025 paper's comparison) adds the mean of each step's own contribution, block · activation, and carries no vector.

Example: `edgewise.examples.triangle_model`, node 2 explained, k = 1. Call 0 brings 1 into node 0, 2 or 0 into node 1, 2, 0 or
1 into node 2; kept are (0, 0) with 1, (0, 1) with 2 and (0, 2) with 2. The last call weighs them with 3, 3 and −1: 3, 6 and
−2. The walk found is (0, 1, 2) with 6.
"""

import torch
from torch import Tensor

from edgewise.arrays import rank_in_group
from edgewise.walk.bounds import Box, ceiling
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front, signed
from edgewise.walk.search.order import SearchResult, by_size, keys, largest_of_each
from edgewise.walk.sums import relevance


class _Kept:
    """Beginnings of walks kept at nodes, grouped by node: walks from the features into the states before a call.

    Those of node v stand at `start[v]:start[v + 1]`; `nodes` is `[n, steps + 1]`, `key` `[n]`, `vectors` `[n, state]` or None.
    """

    def __init__(self, node: Tensor, nodes: Tensor, key: Tensor, vectors: Tensor | None, num_nodes: int) -> None:
        self.nodes, self.key, self.vectors = nodes, key, vectors
        self.start = torch.zeros(num_nodes + 1, dtype=torch.long, device=node.device)
        self.start[1:] = torch.bincount(node, minlength=num_nodes).cumsum(0)

    def of(self, sender: Tensor) -> tuple[Tensor, Tensor]:
        """For each sender in a list, everything kept there: `[m]` the position in the list, `[m]` the place among the kept."""
        count = self.start[sender + 1] - self.start[sender]
        position = torch.repeat_interleave(torch.arange(len(sender), device=sender.device), count)
        offset = self.start[sender] - (count.cumsum(0) - count)
        return position, torch.arange(len(position), device=sender.device) + offset[position]


def _keep(receiver: Tensor, nodes: Tensor, key: Tensor, vectors: Tensor | None, k: int, num_nodes: int) -> _Kept:
    """The k beginnings with the largest keys at every receiver."""
    order = largest_of_each(receiver, key, k)
    rows = None if vectors is None else vectors.index_select(0, order)
    return _Kept(receiver[order], nodes[order], key[order], rows, num_nodes)


def amp_ave(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int, k: int, sign: str
) -> SearchResult:
    """AMP-ave: beginnings carry their vectors and are ranked by the mean over the neurons, in the order that `sign` asks for.

    Args: as for `dag.dag`.
    """
    if network.num_calls == 1:
        return _finish(network, boxes, front, owner, num_targets, k, sign, None)
    geometry = network.geometry(0)
    everything = torch.arange(len(geometry), device=owner.device)
    vectors = network.first_states(everything)
    nodes = torch.stack([geometry.sender, geometry.receiver], dim=1)
    kept = _keep(geometry.receiver, nodes, keys(vectors.mean(dim=1), sign), vectors, k, network.num_nodes)
    for call in range(1, network.num_calls - 1):
        geometry = network.geometry(call)
        pair, place = kept.of(geometry.sender)  # [m] each: every pair with everything kept at its sender
        assert kept.vectors is not None
        vectors = network.forth(call, kept.vectors.index_select(0, place), pair)
        receiver = geometry.receiver[pair]
        nodes = torch.cat([kept.nodes[place], receiver.view(-1, 1)], dim=1)
        kept = _keep(receiver, nodes, keys(vectors.mean(dim=1), sign), vectors, k, network.num_nodes)
    return _finish(network, boxes, front, owner, num_targets, k, sign, kept)


def amp_ave_additive(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int, k: int, sign: str
) -> SearchResult:
    """The additive variant, a longest path: the mean contributions of the steps add up.

    Walks come in the order of that sum, with their true relevance. Args: as for `dag.dag`.
    """
    if network.num_calls == 1:
        return _finish(network, boxes, front, owner, num_targets, k, sign, None)
    geometry = network.geometry(0)
    everything = torch.arange(len(geometry), device=owner.device)
    key = keys(network.first_states(everything).mean(dim=1), sign)
    nodes = torch.stack([geometry.sender, geometry.receiver], dim=1)
    kept = _keep(geometry.receiver, nodes, key, None, k, network.num_nodes)
    for call in range(1, network.num_calls - 1):
        geometry = network.geometry(call)
        everything = torch.arange(len(geometry), device=owner.device)
        steps = network.forth(call, network.state(call).index_select(0, geometry.sender), everything).mean(dim=1)
        pair, place = kept.of(geometry.sender)
        receiver = geometry.receiver[pair]
        nodes = torch.cat([kept.nodes[place], receiver.view(-1, 1)], dim=1)
        kept = _keep(receiver, nodes, keys(steps, sign)[pair] + kept.key[place], None, k, network.num_nodes)
    return _finish(network, boxes, front, owner, num_targets, k, sign, kept)


def _finish(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int,
    k: int, sign: str, kept: _Kept | None,
) -> SearchResult:  # fmt: skip
    """The last call, for each target: what is kept at the senders, weighed by the gradient of the explained number.

    `kept` is None for a model of one call (then the result is exact).
    """
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    sender = network.geometry(call).sender[pair]
    expansions = torch.zeros(num_targets, dtype=torch.long, device=owner.device)
    if kept is None:
        score, nodes = network.scores(front, parent, pair), torch.stack([sender, front.node[parent]], dim=1)
        key = keys(score, sign)
    else:
        gradient = network.onward(call, front, parent, pair)
        position, place = kept.of(sender)  # [m] each: every last step with everything kept at its sender
        nodes = torch.cat([kept.nodes[place], front.node[parent[position]].view(-1, 1)], dim=1)
        if kept.vectors is not None:
            score = torch.linalg.vecdot(gradient.index_select(0, position), kept.vectors.index_select(0, place))
            key = keys(score, sign)
        else:
            steps = torch.linalg.vecdot(gradient, network.state(call).index_select(0, sender))
            key = keys(steps, sign)[position] + kept.key[place]
            score = key
        parent = parent[position]
    target = owner[parent]
    order = by_size(target, key)
    if kept is None or kept.vectors is not None:
        order = order[key[order] > 0]
    order = order[rank_in_group(target[order]) < k]
    score, nodes = score[order], nodes[order]
    if kept is not None and kept.vectors is None:
        score = relevance(network, front, parent[order], nodes)
    bound = ceiling(network, boxes, signed(front, sign), owner, num_targets, sign)
    exact = torch.full((num_targets,), kept is None, device=owner.device)
    return SearchResult(target[order], score, nodes, bound, exact, expansions)
