"""Algorithm 1 of the paper as a plain loop over nodes and edges, for a sum-GraphSAGE; its misprints corrected."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE


@torch.no_grad()
def plain_algorithm_1(model: GraphSAGE, graph: Data, node: int) -> tuple[int, ...]:
    """The most relevant walk to a node (its predicted class), source first; gradients in float64."""
    states, alive = _states(model, graph)
    senders: dict[int, list[int]] = {}
    for source, receiver in graph.edge_index.t().tolist():
        senders.setdefault(receiver, []).append(source)
    gradient = torch.zeros_like(states[-1][0])
    gradient[int(states[-1][node].argmax())] = 1
    carried, parents, score = {node: gradient}, [], {}
    for layer in reversed(range(len(model.convs))):
        matrix, root = (getattr(model.convs[layer], name).weight.double() for name in ("lin_l", "lin_r"))
        score, following, parent = {}, {}, {}
        for head in sorted(carried):
            onward = carried[head] * alive[layer][head]
            heard, own = onward @ matrix, onward @ root
            for tail in [*senders.get(head, []), head]:
                step = own if tail == head else heard
                value = float(step @ states[layer][tail])
                if value > score.get(tail, -torch.inf):
                    score[tail], following[tail], parent[tail] = value, step, head
        parents.append(parent)
        carried = following
    walk = [max(sorted(score), key=score.__getitem__)]
    for parent in reversed(parents):
        walk.append(parent[walk[-1]])
    return tuple(walk)


def _states(model: GraphSAGE, graph: Data) -> tuple[list[Tensor], list[Tensor]]:
    """What every layer reads (and the output), and which of its sums are alive."""
    x, states, alive = graph.x, [graph.x.double()], []
    for number, conv in enumerate(model.convs):
        summed, last = conv(x, graph.edge_index), number == len(model.convs) - 1
        x = summed if last else summed.relu()
        states.append(x.double())
        alive.append(torch.ones_like(states[-1]) if last else (summed > 0).double())
    return states, alive
