"""Every walk, straight from the formula g · J … J · x: the oracle that other searches are compared with."""

import torch
from torch import Tensor

from edgewise.errors import InputError
from edgewise.walk.calls import Front
from edgewise.walk.network import Network
from edgewise.walk.search.order import Found, best

LIMIT = 1_000_000
_NUMBERS_AT_ONCE = 2**22


def count_walks(network: Network, front: Front, owner: Tensor, num_targets: int) -> Tensor:
    """`[T]`: how many walks lead to each target (as floating-point numbers: there may be very many)."""
    ways = torch.ones(network.num_nodes, dtype=torch.double, device=owner.device)
    for call in range(network.num_calls):
        geometry = network.geometry(call)
        ways = torch.zeros_like(ways).index_add_(0, geometry.receiver, ways[geometry.sender])
    return ways.new_zeros(num_targets).index_add_(0, owner, ways[front.node])


def all_walks(network: Network, front: Front, owner: Tensor, root: int) -> tuple[Tensor, Tensor]:
    """Nodes `[n, L + 1]` and scores of every walk that ends at one root of the front."""
    pairs: list[Tensor] = []
    node = front.node[root : root + 1]
    before = torch.zeros(1, dtype=torch.long, device=node.device)
    for call in reversed(range(network.num_calls)):
        parent, pair = network.children(call, node)
        pairs = [column[parent] for column in pairs] + [pair]
        node, before = network.geometry(call).sender[pair], before[parent]
    scores = torch.cat([_relevance(network, front, root, part) for part in _split(network, pairs)])
    columns = [network.geometry(call).sender[pair] for call, pair in enumerate(reversed(pairs))]
    last = front.node[root].expand(len(scores))
    return torch.stack([*columns, last], dim=1), scores


def _split(network: Network, pairs: list[Tensor]) -> list[list[Tensor]]:
    width = network.widest
    size = max(_NUMBERS_AT_ONCE // width**2, 1)
    return [list(part) for part in zip(*(column.split(size) for column in pairs), strict=True)]


def _relevance(network: Network, front: Front, root: int, pairs: list[Tensor]) -> Tensor:
    """g · J_L … J_2 · (J_1 x) of walks that are given as pairs, last call first."""
    first = pairs[-1]
    if network.num_calls == 1:
        everyone = torch.full_like(first, root)
        return network.scores(front, everyone, first)
    vectors = network.first_states(first)
    for call in range(1, network.num_calls - 1):
        vectors = torch.einsum("poi,pi->po", network.block(call, pairs[network.num_calls - 1 - call]), vectors)
    last = pairs[0]
    summed = torch.einsum("poi,pi->po", network.block(network.num_calls - 1, last), vectors)
    score = summed @ front.summed[root]
    if front.around is not None:
        stays = network.geometry(network.num_calls - 1).is_own[last]
        score = score + torch.where(stays, vectors @ front.around[root], 0)
    return score


def exhaustive(
    network: Network,
    front: Front,
    owner: Tensor,
    num_targets: int,
    k: int,
    sign: str,
    slack: Tensor,
    limit: int = LIMIT,
) -> Found:
    """Enumerate, score, sort."""
    count = count_walks(network, front, owner, num_targets)
    if len(count) and float(count.max()) > limit:
        raise InputError(
            f"search='exhaustive' goes through every walk: {float(count.max()):.3g} for one of the targets, and {limit:,} is "
            f"the limit. Use search='exact', which proves the same result, or raise limit=."
        )
    targets, scores, nodes = [owner[:0]], [slack[:0]], [front.node.new_zeros(0, network.num_calls + 1)]
    for root in range(len(front)):
        walk, score = all_walks(network, front, owner, root)
        nodes.append(walk)
        scores.append(score)
        targets.append(owner[root].expand(len(score)))
    target, score, walk = torch.cat(targets), torch.cat(scores), torch.cat(nodes)
    key = {"positive": score, "negative": -score, "magnitude": score.abs()}[sign]
    good = (key > slack[target]).nonzero().view(-1)
    order = good[best(target[good], key[good], walk[good], k)]
    listed = torch.zeros_like(target, dtype=torch.bool)
    listed[order] = True
    upper = torch.full_like(slack, -torch.inf).scatter_reduce_(0, target[~listed], key[~listed], "amax").clamp(min=0)
    everything = torch.ones(num_targets, dtype=torch.bool, device=target.device)
    return Found(target[order], score[order], walk[order], upper, everything, count.long())
