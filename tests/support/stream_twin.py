"""A slow twin of `degree`: both streams of every node, edge by edge, for one marked edge at a time.

Nothing is derived from the sum: γ and β are carried apart, and each test asks whether they add up to the model's output.
"""

import numpy as np
from torch_geometric.utils import degree

from lift_twin import numbers


def biased(target, background, bias):
    """A bias shared in proportion to the absolute values of both streams."""
    size = np.abs(target) + np.abs(background)
    share = np.where(np.abs(target) > 0, np.abs(target) / np.where(size > 0, size, 1.0), 0.0)
    return target + bias * share, background + bias * (1 - share)


def bent(target, background, function):
    """f(γ) − f(0) to the target, the rest of f(γ + β) to the background."""
    mine = function(target) - function(np.zeros_like(target))
    return mine, function(target + background) - mine


class StreamGraph:
    """Messages between nodes that have two streams each; `marks` are the (layer, column) whose messages are the target."""

    def __init__(self, data, marks):
        self.edges, self.nodes, self.marks = data.edge_index.t().tolist(), data.num_nodes, marks
        self.degree = numbers(degree(data.edge_index[1], self.nodes).double())
        self.x = [(np.zeros_like(row), row) for row in numbers(data.x)]

    def received(self, layer, x, width, send):
        """Sums of both streams; `send(u, v, column)` maps the rows of one stream of u to a message."""
        total = [(np.zeros(width), np.zeros(width)) for _ in range(self.nodes)]
        for column, (u, v) in enumerate(self.edges):
            streams = send(u, v, column)
            if (layer, column) in self.marks:
                streams = streams[0] + streams[1], np.zeros(width)
            total[v] = total[v][0] + streams[0], total[v][1] + streams[1]
        return total


def mapped(row, matrix):
    return matrix @ row[0], matrix @ row[1]


def added(*rows):
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def scaled(row, factor):
    return row[0] * factor, row[1] * factor


def gcn(graph, layer, conv, x):
    weight, bias, deg = numbers(conv.lin.weight), numbers(conv.bias), graph.degree + 1
    sent = [mapped(row, weight) for row in x]
    found = graph.received(layer, x, len(bias), lambda u, v, _: scaled(sent[u], (deg[u] * deg[v]) ** -0.5))
    return [biased(*added(row, scaled(sent[v], 1 / deg[v])), bias) for v, row in enumerate(found)]


def gin(graph, layer, conv, x):
    first, _, last = conv.nn
    found = graph.received(layer, x, len(x[0][0]), lambda u, v, _: x[u])
    rows = [added(row, scaled(x[v], 1 + float(conv.eps.detach()))) for v, row in enumerate(found)]
    hidden = [bent(*biased(*mapped(row, numbers(first.weight)), numbers(first.bias)), np.tanh) for row in rows]
    return [biased(*mapped(row, numbers(last.weight)), numbers(last.bias)) for row in hidden]


def gat(graph, layer, conv, x):
    """One head, or two side by side or averaged; attention is that of the sum of the streams."""
    weight, heads, width = numbers(conv.lin.weight), conv.heads, conv.out_channels
    source, receiver = (numbers(part).reshape(heads, width) for part in (conv.att_src, conv.att_dst))
    by_head = []
    for head in range(heads):
        sent = [mapped(row, weight[head * width : (head + 1) * width]) for row in x]
        whole = [row[0] + row[1] for row in sent]

        def raw(u, v, whole=whole, head=head):
            logit = source[head] @ whole[u] + receiver[head] @ whole[v]
            return np.exp(logit if logit > 0 else conv.negative_slope * logit)

        below = [raw(v, v) + sum(raw(u, w) for u, w in graph.edges if w == v) for v in range(graph.nodes)]

        def send(u, v, _, sent=sent, raw=raw, below=below):
            return scaled(sent[u], raw(u, v) / below[v])

        found = graph.received(layer, x, width, send)
        by_head.append([added(row, send(v, v, None)) for v, row in enumerate(found)])
    joined = []
    for rows in zip(*by_head, strict=True):
        if conv.concat:
            row = tuple(np.concatenate([part[stream] for part in rows]) for stream in (0, 1))
        else:
            row = scaled(added(*rows), 1 / heads)
        joined.append(biased(*row, numbers(conv.bias)))
    return joined


def streams(data, model, make, act, marks):
    """`([N, classes], [N, classes])`: both streams of the output of a chain of convs."""
    graph = StreamGraph(data, marks)
    x = graph.x
    for layer, conv in enumerate(model.convs):
        x = make(graph, layer, conv, x)
        if layer + 1 < len(model.convs):
            x = [bent(*row, act) for row in x]
    return np.stack([row[0] for row in x]), np.stack([row[1] for row in x])
