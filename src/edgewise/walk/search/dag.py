"""Algorithm 1 of the paper ("DAG-longest path"), for all targets at once, with its misprints corrected.

At every node and layer only the prefix with the best score so far is kept, the score being its gradient times the node's own
activation. That is exact for two layers (one on graph tasks) and not for more: docs/why-algorithm-1-is-not-exact.md. `width`
keeps several prefixes instead of one.
"""

import torch
from torch import Tensor

from edgewise.walk.bounds import Box, ceiling
from edgewise.walk.calls import Front, signed
from edgewise.walk.network import Network
from edgewise.walk.search.frontier import Prefixes, starting
from edgewise.walk.search.order import Found, largest_of_each

_TABLE = 2**26
_FIRST_PIECE = 8
_BYTES_A_NUMBER = 32


def dag(
    network: Network, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int,
    k: int, sign: str, width: int, *, graphs: bool,
) -> Found:  # fmt: skip
    """The best k of the prefixes that were kept."""
    front = signed(front, sign)
    prefixes = starting(network, front, owner)
    expansions = torch.zeros(num_targets, dtype=torch.long, device=owner.device)
    for call in reversed(range(1, network.num_calls)):
        expansions += torch.bincount(prefixes.target, minlength=num_targets)
        parent, pair = network.children(call, prefixes.front.node)
        sender = network.geometry(call).sender[pair]
        score = network.products(call, prefixes.front, parent, pair)
        key = score.abs() if sign == "magnitude" else score
        group = prefixes.target[parent] * network.num_nodes + sender
        kept = _best_of_each(group, key, width, num_targets * network.num_nodes)
        parent, pair, sender = parent[kept], pair[kept], sender[kept]
        nodes = prefixes.nodes[parent]
        nodes[:, call] = sender
        arrived = network.arrive(call, sender, network.onward(call, prefixes.front, parent, pair))
        prefixes = Prefixes(call - 1, arrived, prefixes.target[parent], key[kept], nodes)
    expansions += torch.bincount(prefixes.target, minlength=num_targets)
    parent, pair = network.children(0, prefixes.front.node)
    sender, score = network.geometry(0).sender[pair], network.scores(prefixes.front, parent, pair)
    key, target = score.abs() if sign == "magnitude" else score, prefixes.target[parent]
    if k > 1:
        group = target * network.num_nodes + sender
        kept = _best_of_each(group, key, width, num_targets * network.num_nodes)
        parent, sender, score, key, target = parent[kept], sender[kept], score[kept], key[kept], target[kept]
    order = (key > 0).nonzero().view(-1)
    if k == 1:  # of equal ones the first source
        largest = key.new_zeros(num_targets).scatter_reduce_(0, target, key, "amax")
        order = order[key[order] == largest[target[order]]]
        order = order[sender[order].argsort(stable=True)]
    place = order[_best_of_each(target[order], key[order], k, num_targets)]
    walks = prefixes.nodes[parent[place]]
    walks[:, 0] = sender[place]
    found = -score[place] if sign == "negative" else score[place]
    proven = network.num_calls <= (1 if graphs else 2) and (k == 1 or width >= k)
    bound = ceiling(network, boxes, front, owner, num_targets, sign)
    if proven:
        listed = torch.bincount(target[place], minlength=num_targets)
        last = bound.new_zeros(num_targets).scatter_reduce_(0, target[place], key[place], "amin", include_self=False)
        bound = torch.where(listed >= k, last, 0)
    exact = torch.full((num_targets,), proven, device=owner.device)
    return Found(target[place], found, walks, bound, exact, expansions)


def dag_in_pieces(
    network: Network, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int,
    k: int, sign: str, width: int, *, graphs: bool, memory: int,
) -> Found:  # fmt: skip
    """The same, as many targets at once as fit: how much one needs is seen on the first few."""
    start = torch.searchsorted(owner, torch.arange(num_targets + 1, device=owner.device)).tolist()
    degree = max(len(network.geometry(0)) / max(network.num_nodes, 1), 1.0)
    found: list[tuple[int, Found]] = []
    done, size = 0, _FIRST_PIECE
    while done < num_targets or not found:
        upto = min(done + size, num_targets)
        roots = torch.arange(start[done], start[upto], device=owner.device)
        part = dag(network, boxes, front.select(roots), owner[roots] - done, upto - done, k, sign, width, graphs=graphs)
        found.append((done, part))
        largest = float(part.expansions.max()) if upto > done else 1.0
        size = max(int(memory / (_BYTES_A_NUMBER * network.widest * degree * max(largest, 1.0))), 1)
        done = upto
    columns = [torch.cat([getattr(part, name) for _, part in found]) for name in ("score", "nodes")]
    target = torch.cat([part.target + first for first, part in found])
    rest = [torch.cat([getattr(part, name) for _, part in found]) for name in ("upper_bound", "exact", "expansions")]
    return Found(target, *columns, *rest)


def _best_of_each(group: Tensor, key: Tensor, width: int, num_groups: int) -> Tensor:
    """The places of the `width` largest keys of each group, groups in order; of equal ones the first."""
    if width > 1 or num_groups > _TABLE:
        return largest_of_each(group, key, width)
    largest = torch.full((num_groups,), -torch.inf, dtype=key.dtype, device=key.device)
    largest.scatter_reduce_(0, group, key, "amax")
    hit = (key == largest.index_select(0, group)).nonzero().view(-1)
    first = torch.full((num_groups,), len(group), device=group.device)
    first.scatter_reduce_(0, group[hit], hit, "amin")
    return first[first < len(group)]
