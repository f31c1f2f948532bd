"""Every walk, straight from the formula g · J … J · x: the oracle that other searches are compared with.

Example: `edgewise.examples.triangle_model` has six walks to node 2: (0, 0, 2) with 3, (0, 1, 2) with 6, (1, 1, 2) with 0, (0,
2, 2) with −2, (1, 2, 2) with 0 and (2, 2, 2) with −1.
"""

import torch
from torch import Tensor

from edgewise.errors import InputError
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front
from edgewise.walk.search.order import SearchResult, best, keys

LIMIT = 1_000_000  # walks of one target
_NUMBERS_AT_ONCE = 2**22  # entries of blocks in full


def count_walks(network: AnyNetwork, front: Front, owner: Tensor, num_targets: int) -> Tensor:
    """`[T]`: how many walks lead to each target (as floating-point numbers: there may be very many).

    The number of walks into a node is the sum over its pairs of the numbers at the senders, call by call. In the triangle they
    are 1, 1, 1 before call 0, 1, 2, 3 before call 1, and 1, 3, 6 at the end.
    """
    ways = torch.ones(network.num_nodes, dtype=torch.double, device=owner.device)
    for call in range(network.num_calls):
        geometry = network.geometry(call)
        ways = torch.zeros_like(ways).index_add_(0, geometry.receiver, ways[geometry.sender])
    return ways.new_zeros(num_targets).index_add_(0, owner, ways[front.node])


def all_walks(network: AnyNetwork, front: Front, root: int) -> tuple[Tensor, Tensor]:
    """Nodes `[n, L + 1]` and scores `[n]` of every walk that ends at one place of the front."""
    pairs: list[Tensor] = []  # [n] each, the last call first
    node = front.node[root : root + 1]
    for call in reversed(range(network.num_calls)):
        parent, pair = network.children(call, node)
        pairs = [column[parent] for column in pairs] + [pair]
        node = network.geometry(call).sender[pair]
    scores = torch.cat([_relevance(network, front, root, part) for part in _split(network, pairs)])
    columns = [network.geometry(call).sender[pair] for call, pair in enumerate(reversed(pairs))]  # L times [n]
    last = front.node[root].expand(len(scores))
    return torch.stack([*columns, last], dim=1), scores


def _split(network: AnyNetwork, pairs: list[Tensor]) -> list[list[Tensor]]:
    """Walks, given as one column of pairs per call, in parts whose blocks fit into memory."""
    width = network.widest
    size = max(_NUMBERS_AT_ONCE // width**2, 1)
    return [list(part) for part in zip(*(column.split(size) for column in pairs), strict=True)]


def _relevance(network: AnyNetwork, front: Front, root: int, pairs: list[Tensor]) -> Tensor:
    """`[n]`: g · J_L … J_2 · (J_1 x) of walks that are given as pairs `[n]` per call, the last call first."""
    first = pairs[-1]
    if network.num_calls == 1:
        everyone = torch.full_like(first, root)
        return network.scores(front, everyone, first)
    vectors = network.first_states(first)  # [n, state]
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
    network: AnyNetwork,
    front: Front,
    owner: Tensor,
    num_targets: int,
    k: int,
    sign: str,
    slack: Tensor,
    limit: int = LIMIT,
) -> SearchResult:
    """The top k by enumerating, scoring and sorting all walks; refused if a target has more than `limit`.

    Args: as for `dag.dag`; `slack` `[T]` is what counts as zero.
    """
    count = count_walks(network, front, owner, num_targets)
    if len(count) and float(count.max()) > limit:
        raise InputError(
            f"search='exhaustive' goes through every walk: {float(count.max()):.3g} for one of the targets, and `limit` is "
            f"{limit:,}. Use search='exact', which proves the same result, or a larger limit=."
        )
    # lists of parts, one per end of the front; the first is empty, for questions without targets
    targets, scores, nodes = [owner[:0]], [slack[:0]], [front.node.new_zeros(0, network.num_calls + 1)]
    for root in range(len(front)):
        walk, score = all_walks(network, front, root)
        nodes.append(walk)
        scores.append(score)
        targets.append(owner[root].expand(len(score)))
    target, score, walk = torch.cat(targets), torch.cat(scores), torch.cat(nodes)
    key = keys(score, sign)
    good = (key > slack[target]).nonzero().view(-1)  # walks that are not zero, up to rounding
    order = good[best(target[good], key[good], walk[good], k)]
    listed = torch.zeros_like(target, dtype=torch.bool)
    listed[order] = True
    upper = torch.full_like(slack, -torch.inf).scatter_reduce_(0, target[~listed], key[~listed], "amax").clamp(min=0)
    everything = torch.ones(num_targets, dtype=torch.bool, device=target.device)
    return SearchResult(target[order], score[order], walk[order], upper, everything, count.long())
