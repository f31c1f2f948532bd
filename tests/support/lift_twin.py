"""A slow twin of `deep_lift`: numbers that carry, beside both runs, the share of every (layer, edge) in their change.

Forward mode, and no autograd: a `Shared` number knows its value with all edges, its value without any, and `share`, what each ω
contributes to the difference. Models are written out as loops over nodes and edges.
"""

import numpy as np
from torch import Tensor
from torch_geometric.utils import degree


class Shared:
    """An array in both runs, with `share` [..., entries]; entry l · E + e is ω of edge e in layer l."""

    def __init__(self, now, before, share):
        self.now, self.before, self.share = np.asarray(now), np.asarray(before), share

    @staticmethod
    def constant(value, entries):
        value = np.asarray(value, dtype=float)
        return Shared(value, value, np.zeros((*value.shape, entries)))

    def __add__(self, other):
        if not isinstance(other, Shared):
            return Shared(self.now + other, self.before + other, self.share)
        return Shared(self.now + other.now, self.before + other.before, self.share + other.share)

    def __mul__(self, other):
        """A number times this, or the product rule: each factor is multiplied by the mean of the other one."""
        if not isinstance(other, Shared):
            return Shared(self.now * other, self.before * other, self.share * other)
        mean, others = (self.now + self.before) / 2, (other.now + other.before) / 2
        share = self.share * np.asarray(others)[..., None] + other.share * np.asarray(mean)[..., None]
        return Shared(self.now * other.now, self.before * other.before, share)

    def mapped(self, matrix, bias=None):
        matrix = np.asarray(matrix)
        bias = 0.0 if bias is None else np.asarray(bias)
        return Shared(matrix @ self.now + bias, matrix @ self.before + bias, matrix @ self.share)

    def bent(self, function):
        """The rescale rule, number by number."""
        now, before = function(self.now), function(self.before)
        change = self.now - self.before
        slope = np.where(change != 0, (now - before) / np.where(change != 0, change, 1.0), 0.0)
        return Shared(now, before, self.share * slope[..., None])

    def check(self):
        """What the rules promise: shares sum to the change."""
        assert np.allclose(self.share.sum(axis=-1), self.now - self.before, atol=1e-12)


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def relu(x):
    return np.maximum(x, 0.0)


class SharedGraph:
    """The features of a graph as shared numbers, one for each node, and sums of messages over its edges."""

    def __init__(self, data, layers):
        self.edges = data.edge_index.t().tolist()
        self.nodes, self.entries = data.num_nodes, layers * len(self.edges)
        self.x = [Shared.constant(row, self.entries) for row in numbers(data.x)]
        self.degree = numbers(degree(data.edge_index[1], self.nodes).double())

    def omega(self, layer, column):
        share = np.zeros(self.entries)
        share[layer * len(self.edges) + column] = 1.0
        return Shared(np.array(1.0), np.array(0.0), share)

    def received(self, layer, message, width):
        """Σ ω m over the edges of each node; `message(column, u, v)` is a shared row."""
        total = [Shared.constant(np.zeros(width), self.entries) for _ in range(self.nodes)]
        for column, (u, v) in enumerate(self.edges):
            sent = message(column, u, v)
            one = self.omega(layer, column)
            row = Shared(np.full(width, one.now), np.full(width, one.before), np.repeat(one.share[None], width, axis=0))
            total[v] = total[v] + row * sent
        return total


def gcn(graph, layer, conv, x):
    """Symmetric normalisation with added loops, on a graph without loops of its own."""
    weight, bias, deg = numbers(conv.lin.weight), numbers(conv.bias), graph.degree + 1
    sent = [row.mapped(weight) for row in x]
    found = graph.received(layer, lambda _, u, v: sent[u] * (deg[u] * deg[v]) ** -0.5, len(bias))
    return [row + sent[v] * (1 / deg[v]) + bias for v, row in enumerate(found)]


def sage_mean(graph, layer, conv, x):
    weight, root, bias = numbers(conv.lin_l.weight), numbers(conv.lin_r.weight), numbers(conv.lin_l.bias)
    sent = [row.mapped(weight) for row in x]
    found = graph.received(layer, lambda _, u, v: sent[u] * (1 / graph.degree[v]), len(bias))
    return [row + x[v].mapped(root) + bias for v, row in enumerate(found)]


def gin(graph, layer, conv, x):
    first, _, last = conv.nn
    found = graph.received(layer, lambda _, u, v: x[u], len(x[0].now))
    total = [row + x[v] * (1 + float(conv.eps.detach())) for v, row in enumerate(found)]
    return [_network(row, first, last) for row in total]


def gine(edge_attr):
    """GINE on these edge features."""

    def layer_of(graph, layer, conv, x):
        first, _, last = conv.nn
        edge = numbers(conv.lin(edge_attr))
        found = graph.received(layer, lambda e, u, v: (x[u] + edge[e]).bent(relu), len(x[0].now))
        return [_network(row + x[v] * (1 + float(conv.eps.detach())), first, last) for v, row in enumerate(found)]

    return layer_of


def _network(row, first, last):
    hidden = row.mapped(numbers(first.weight), numbers(first.bias)).bent(np.tanh)
    return hidden.mapped(numbers(last.weight), numbers(last.bias))


def gat(graph, layer, conv, x):
    """Added loops; heads side by side, or averaged."""
    weight, heads, width = numbers(conv.lin.weight), conv.heads, conv.out_channels
    source, receiver = (numbers(part).reshape(heads, width) for part in (conv.att_src, conv.att_dst))
    found = []
    for head in range(heads):
        sent = [row.mapped(weight[head * width : (head + 1) * width]) for row in x]
        found.append(_one_head(graph, layer, sent, source[head], receiver[head], conv.negative_slope))
    bias = numbers(conv.bias)
    joined = []
    for rows in zip(*found, strict=True):
        if conv.concat:
            parts = [np.concatenate([getattr(row, name) for row in rows]) for name in ("now", "before", "share")]
            joined.append(Shared(*parts) + bias)
        else:
            total = rows[0]
            for row in rows[1:]:
                total = total + row
            joined.append(total * (1 / len(rows)) + bias)
    return joined


def _one_head(graph, layer, sent, source, receiver, slope):
    def leaky(t):
        return np.where(t > 0, t, slope * t)

    def logit(u, v):
        return (sent[u].mapped(source[None]) + sent[v].mapped(receiver[None])).bent(leaky)

    total = [logit(v, v).bent(np.exp) for v in range(graph.nodes)]
    for u, v in graph.edges:
        total[v] = total[v] + logit(u, v).bent(np.exp)
    below = [row.bent(np.log) for row in total]

    def alpha(u, v):
        return (logit(u, v) + below[v] * -1.0).bent(np.exp)

    width = len(sent[0].now)

    def wide(row):
        return row.mapped(np.ones((width, 1)))

    found = graph.received(layer, lambda _, u, v: wide(alpha(u, v)) * sent[u], width)
    return [row + wide(alpha(v, v)) * sent[v] for v, row in enumerate(found)]


def shares(data, model, make, act):
    """`[N, classes, L, E]`: the share of every ω in the change of every output, for a chain of convs."""
    graph = SharedGraph(data, len(model.convs))
    x = graph.x
    for layer, conv in enumerate(model.convs):
        x = make(graph, layer, conv, x)
        if layer + 1 < len(model.convs):
            x = [row.bent(act) for row in x]
    for row in x:
        row.check()
    return np.stack([row.share.reshape(len(row.now), len(model.convs), len(graph.edges)) for row in x])
