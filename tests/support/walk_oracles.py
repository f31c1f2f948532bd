"""Walks, slowly: full Jacobians of every call by autograd, walks enumerated one by one, products of blocks.

Shares no code with `edgewise.walk`. Everything is a numpy array in float64, so that nothing can be differentiated by accident.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch.autograd.functional import jacobian
from torch_geometric.nn import GATConv, GATv2Conv

TIE, ZERO = 1e-9, 1e-12  # relative to the largest |score| of the target


@dataclass(frozen=True)
class Twin:
    """Blocks `[N, out, N, in]` of every call, the nodes' states before each call, and ∂z/∂x of each target after the last."""

    blocks: list[np.ndarray]
    states: list[np.ndarray]
    ends: np.ndarray
    """[T, N, out]."""
    values: np.ndarray
    """[T]: the explained numbers."""

    @property
    def num_calls(self):
        return len(self.blocks)

    @property
    def num_nodes(self):
        return len(self.states[0])

    def senders(self, call, node):
        """The nodes from which a node receives something in a call."""
        return [u for u in range(self.num_nodes) if self.blocks[call][node, :, u].any()]

    def arriving(self):
        """{nodes of a walk: J … J x} of every walk."""
        front = {(node,): row for node, row in enumerate(self.states[0])}
        for block in self.blocks:
            receivers = [[v for v in range(self.num_nodes) if block[v, :, u].any()] for u in range(self.num_nodes)]
            front = {
                (*walk, v): block[v, :, walk[-1]] @ vector
                for walk, vector in front.items()
                for v in receivers[walk[-1]]
            }
        return front

    def walks(self):
        """For every target {nodes: relevance}, without those that end where ∂z/∂x = 0."""
        arriving = self.arriving()
        return [{w: float(end[w[-1]] @ r) for w, r in arriving.items() if end[w[-1]].any()} for end in self.ends]


def twin(calls, numbers, x):
    """`calls`: functions from states to states; `numbers`: from the last states to one number for each target."""
    states = [x.detach()]
    for call in calls:
        states.append(call(states[-1]).detach())
    blocks = [jacobian(call, state).numpy() for call, state in zip(calls, states, strict=False)]
    return Twin(
        blocks,
        [state.numpy() for state in states[:-1]],
        jacobian(numbers, states[-1]).numpy(),
        numbers(states[-1]).detach().numpy(),
    )


def node_numbers(model, target):
    """The logit of a class at every node."""
    return lambda x: model.read(x, None).gather(1, target.view(-1, 1)).view(-1)


def graph_number(model, target):
    """The logit of a class of one graph."""
    return lambda x: model.read(x, torch.zeros(len(x), dtype=torch.long))[:, target].view(1)


def predicted(model, data, **extras):
    with torch.no_grad():
        return model(data.x, data.edge_index, data.get("edge_attr"), data.get("edge_weight"), **extras).argmax(dim=1)


def node_twin(model, data, *, attention="full", target=None):
    """Of every node's predicted class."""
    target = predicted(model, data) if target is None else target
    calls = model.calls(data) if attention == "full" else held_calls(model, data)
    return twin(calls, node_numbers(model, target), data.x)


def graph_twin(model, data):
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    target = int(predicted(model, data, batch=batch))
    return twin(model.calls(data), graph_number(model, target), data.x)


# Attention held fixed #################################################################################################


def attention_coefficients(conv, x, data, extra):
    """[receiver, sender, head]: the softmax that the conv computes at x, parallel edges added up."""
    with torch.no_grad():
        _, (edge_index, alpha) = conv(x, data.edge_index, extra, return_attention_weights=True)
    size = len(x)
    found = torch.zeros(size, size, conv.heads, dtype=x.dtype)
    return found.index_put_((edge_index[1], edge_index[0]), alpha, accumulate=True)


def _held(conv, coefficients):
    """The conv as a function of what is sent alone."""
    sent = conv.lin_l if isinstance(conv, GATv2Conv) else conv.lin

    def run(x):
        received = torch.einsum("vuh,uhc->vhc", coefficients, sent(x).view(len(x), conv.heads, conv.out_channels))
        received = received.flatten(1) if conv.concat else received.mean(dim=1)
        if getattr(conv, "res", None) is not None:
            received = received + conv.res(x)
        return received if conv.bias is None else received + conv.bias

    return run


def held_calls(model, data):
    """The calls of a Stack of attention layers, the softmax standing still."""
    assert all(isinstance(conv, (GATConv, GATv2Conv)) for conv in model.convs)
    extra = None if model.extra is None else data[model.extra]
    found, x = [], model.encoder(data.x).detach()
    for call, (conv, full) in enumerate(zip(model.convs, model.calls(data), strict=True)):
        still = _held(conv, attention_coefficients(conv, x, data, extra))

        def run(state, call=call, still=still):
            state = model.encoder(state) if call == 0 else state
            return model.after(call, still(state), state)

        found.append(run)
        x = full(data.x if call == 0 else x).detach()
    return found


# Order ################################################################################################################


def key_of(score, sign):
    return {"positive": score, "negative": -score, "magnitude": abs(score)}[sign]


def _by_size(scores, sign):
    """[(key, nodes, score)] of the asked sign, largest first."""
    largest = max(map(abs, scores.values()), default=0.0)
    real = [(key_of(s, sign), nodes, s) for nodes, s in scores.items() if key_of(s, sign) > ZERO * largest]
    return sorted(real, key=lambda entry: -entry[0])


def ordered(scores, sign):
    """[(nodes, score)]: best first; what differs by less than a tie is ordered by nodes, read from the explained node back."""
    real, groups = _by_size(scores, sign), []
    for entry in real:
        if not groups or groups[-1][-1][0] - entry[0] > TIE * real[0][0]:
            groups.append([])
        groups[-1].append(entry)
    return [(nodes, s) for group in groups for _, nodes, s in sorted(group, key=lambda entry: entry[1][::-1])]


def is_clear(scores, sign):
    """Whether it cannot be disputed what is a tie: no two scores, and no score and 0, are *about* a tie apart."""
    keys = [key for key, _, _ in _by_size(scores, sign)]
    return all(a - b < ZERO * keys[0] or a - b > 10 * TIE * keys[0] for a, b in pairwise([*keys, 0.0]))
