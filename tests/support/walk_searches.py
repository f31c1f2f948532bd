"""The searches of the literature as plain loops over a `Twin`: one target, one node, one prefix at a time."""

from collections import defaultdict
from itertools import product

import numpy as np

from walk_oracles import key_of


def algorithm_1(twin, end, sign="positive", width=1):
    """[(nodes, score)], best first: at every node and layer the `width` best prefixes, by gradient times activation.

    `end` [N, out] is ∂z/∂x after the last call. Misprints corrected: a larger score replaces a smaller one, and the
    activation is the sender's.
    """
    kept = {v: [(0.0, end[v], (v,))] for v in range(twin.num_nodes) if end[v].any()}
    for call in reversed(range(twin.num_calls)):
        found = defaultdict(list)
        for v in sorted(kept):
            for _, gradient, walk in kept[v]:
                for u in twin.senders(call, v):
                    onward = gradient @ twin.blocks[call][v, :, u]
                    score = float(onward @ twin.states[call][u])
                    found[u].append((score, onward, (u, *walk)))
        kept = {u: sorted(some, key=lambda entry: -key_of(entry[0], sign))[:width] for u, some in found.items()}
    everything = [(walk, score) for u in sorted(kept) for score, _, walk in kept[u] if key_of(score, sign) > 1e-14]
    return sorted(everything, key=lambda entry: -key_of(entry[1], sign))


def amp_ave(twin, end, k, sign="positive"):
    """[(nodes, score)]: from the features on, at every node the k prefixes whose vectors have the largest mean."""
    kept = {u: [((u,), twin.states[0][u])] for u in range(twin.num_nodes)}
    for call in range(twin.num_calls - 1):
        kept = {
            v: sorted(
                (
                    ((*walk, v), twin.blocks[call][v, :, u] @ vector)
                    for u in twin.senders(call, v)
                    for walk, vector in kept.get(u, [])
                ),
                key=lambda entry: -key_of(float(entry[1].mean()), sign),
            )[:k]
            for v in range(twin.num_nodes)
        }
    last = twin.blocks[-1]
    found = [
        ((*walk, v), float(end[v] @ last[v, :, u] @ vector))
        for v in range(twin.num_nodes)
        if end[v].any()
        for u in twin.senders(twin.num_calls - 1, v)
        for walk, vector in kept.get(u, [])
    ]
    found = [entry for entry in found if key_of(entry[1], sign) > 1e-14]
    return sorted(found, key=lambda entry: -key_of(entry[1], sign))[:k]


def amp_ave_additive(twin, end, k, sign="positive"):
    """[(nodes, score)]: a longest path. A step is worth the mean of block · activation, the last one the gradient's share."""
    kept = {u: [((u,), 0.0)] for u in range(twin.num_nodes)}
    for call in range(twin.num_calls):
        block, state, following = twin.blocks[call], twin.states[call], {}
        for v in range(twin.num_nodes):
            if call + 1 == twin.num_calls and not end[v].any():
                continue
            weigh = (lambda r, v=v: float(end[v] @ r)) if call + 1 == twin.num_calls else (lambda r: float(r.mean()))
            grown = [
                ((*walk, v), worth + key_of(weigh(block[v, :, u] @ state[u]), sign))
                for u in twin.senders(call, v)
                for walk, worth in kept.get(u, [])
            ]
            following[v] = sorted(grown, key=lambda entry: -entry[1])[:k]
        kept = following
    listed = sorted((entry for some in kept.values() for entry in some), key=lambda entry: -entry[1])[:k]
    return [(walk, relevance(twin, end, walk)) for walk, _ in listed]


def relevance(twin, end, walk):
    vector = twin.states[0][walk[0]]
    for call, v in enumerate(walk[1:]):
        vector = twin.blocks[call][v, :, walk[call]] @ vector
    return float(end[walk[-1]] @ vector)


def neuron_walks(twin, end):
    """{(nodes, neurons): relevance} of every walk through one neuron of each state."""
    found = {}
    for walk in product(range(twin.num_nodes), repeat=twin.num_calls + 1):
        if not end[walk[-1]].any():
            continue
        steps = [twin.blocks[call][walk[call + 1], :, walk[call]] for call in range(twin.num_calls)]
        tensor = twin.states[0][walk[0]]
        for block in steps:  # [..., in] → [..., in, out]
            tensor = tensor[..., None] * block.T
        tensor = tensor * end[walk[-1]]
        for neurons in zip(*np.nonzero(tensor), strict=True):
            found[walk, tuple(map(int, neurons))] = float(tensor[neurons])
    return found
