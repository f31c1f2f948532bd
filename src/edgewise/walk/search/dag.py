"""Algorithm 1 of the paper ("DAG-longest path"), for all targets at once, with its misprints corrected.

At every node and layer only the prefix with the best score so far is kept, the score being its gradient times the node's own
activation. That is exact for two layers (one on graph tasks) and not for more: docs/why-algorithm-1-is-not-exact.md. `width`
keeps several prefixes instead of one.

Example: `edgewise.examples.triangle_model`, node 2 explained. Call 1: the steps from 0, 1 and 2 have gradients 3, 3, −1, times
the activations h = (1, 2, 3) that is 3, 6, −3; each node is reached by one prefix only, so all three are kept. Call 0: their
steps have the relevances 3; 6, 0; −2, 0, −1. The largest is 6: the walk (0, 1, 2).
"""

import torch
from torch import Tensor

from edgewise.question.block_growth import growing_blocks
from edgewise.walk.bounds import Box, ceiling
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front, Prefixes, signed, starting
from edgewise.walk.search.order import SearchResult, largest_of_each

_TABLE = 2**26  # entries of a table of all (target, node) pairs; above that, groups are sorted
_FIRST_PIECE = 8  # targets
_BYTES_A_NUMBER = 32  # of a step's gradient: with the one before the node's map, and copies


def dag(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int,
    k: int, sign: str, width: int, *, graphs: bool,
) -> SearchResult:  # fmt: skip
    """The best k walks among the prefixes that were kept.

    Args:
        network: The model.
        boxes: What walks can still bring; for the bound.
        front: The explained nodes.
        owner: `[P]`, the target of each explained node.
        num_targets: T.
        k: How many walks are wanted.
        sign: `"positive"`, `"negative"` or `"magnitude"`.
        width: How many prefixes are kept at a node of a target.
        graphs: Whether this is a graph task; it decides up to which depth the result is exact.
    """
    front = signed(front, sign)
    prefixes = starting(front, owner, network.num_calls)
    expansions = torch.zeros(num_targets, dtype=torch.long, device=owner.device)
    for call in reversed(range(1, network.num_calls)):
        expansions += torch.bincount(prefixes.target, minlength=num_targets)
        parent, pair = network.children(call, prefixes.front.node)  # [n] each: the steps
        sender = network.geometry(call).sender[pair]
        score = network.products(call, prefixes.front, parent, pair)
        key = score.abs() if sign == "magnitude" else score
        group = prefixes.target[parent] * network.num_nodes + sender  # (target, node) as one number
        kept = _best_of_each(group, key, width, num_targets * network.num_nodes)  # at most T · N · width
        parent, pair, sender = parent[kept], pair[kept], sender[kept]
        nodes = prefixes.nodes[parent]
        nodes[:, call] = sender
        arrived = network.arrive(call, sender, network.onward(call, prefixes.front, parent, pair))
        prefixes = Prefixes(call - 1, arrived, prefixes.target[parent], key[kept], nodes)
    expansions += torch.bincount(prefixes.target, minlength=num_targets)
    parent, pair = network.children(0, prefixes.front.node)
    sender, score = network.geometry(0).sender[pair], network.scores(prefixes.front, parent, pair)
    key, target = score.abs() if sign == "magnitude" else score, prefixes.target[parent]
    if k > 1:  # `width` walks per source, then k of them
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
    return SearchResult(target[place], found, walks, bound, exact, expansions)


def dag_in_pieces(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int,
    k: int, sign: str, width: int, *, graphs: bool, memory: int,
) -> SearchResult:  # fmt: skip
    """`dag` for as many targets at once as fit into memory; how much a target needs is seen on the first few.

    A prefix that is expanded makes about `degree` steps, each with a gradient as wide as the widest state.
    """
    if num_targets == 0:
        return dag(network, boxes, front, owner, 0, k, sign, width, graphs=graphs)
    start = torch.searchsorted(owner, torch.arange(num_targets + 1, device=owner.device)).tolist()
    degree = max(len(network.geometry(0)) / max(network.num_nodes, 1), 1.0)
    found: list[tuple[int, SearchResult]] = []

    def bytes_of_last() -> float:
        expansions = found[-1][1].expansions  # [targets of the piece]
        return _BYTES_A_NUMBER * network.widest * degree * max(float(expansions.max()), 1.0) * len(expansions)

    for begin, end in growing_blocks(num_targets, memory, bytes_of_last, first=_FIRST_PIECE):
        roots = torch.arange(start[begin], start[end], device=owner.device)
        part = dag(
            network, boxes, front.select(roots), owner[roots] - begin, end - begin, k, sign, width, graphs=graphs
        )
        found.append((begin, part))
    columns = [torch.cat([getattr(part, name) for _, part in found]) for name in ("score", "nodes")]
    target = torch.cat([part.target + first for first, part in found])
    rest = [torch.cat([getattr(part, name) for _, part in found]) for name in ("upper_bound", "exact", "expansions")]
    return SearchResult(target, *columns, *rest)


def _best_of_each(group: Tensor, key: Tensor, width: int, num_groups: int) -> Tensor:
    """The places of the `width` largest keys of each group, groups in order; of equal ones the first.

    With `width` 1 and few groups this takes two passes over a table instead of a sort.
    """
    if width > 1 or num_groups > _TABLE:
        return largest_of_each(group, key, width)
    largest = torch.full((num_groups,), -torch.inf, dtype=key.dtype, device=key.device)
    largest.scatter_reduce_(0, group, key, "amax")
    hit = (key == largest.index_select(0, group)).nonzero().view(-1)
    first = torch.full((num_groups,), len(group), device=group.device)
    first.scatter_reduce_(0, group[hit], hit, "amin")
    return first[first < len(group)]
