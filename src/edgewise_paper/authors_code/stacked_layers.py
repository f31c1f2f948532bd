"""GCN, GATv2, GIN and GINE for graphs, with the parameters of several seeds side by side: the layers of `side_by_side.py`.

Each returns for every seed what the network of that seed returns for its own batch (the tests compare them), with the norms of
the code (`trainings.coded_logits`): those of GCN, and those inside the blocks of GIN, look at all nodes of a mini-batch, the
others at each graph.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise_paper.authors_code.epoch_batches import SeedBatch
from edgewise_paper.training.networks import HEADS, Recipe

Weights = Mapping[str, Tensor]
EPSILON = 1e-5
"""Of PyG's LayerNorm."""
SLOPE = 0.2
"""Of the leaky ReLU of GATv2."""


def stacked_logits(recipe: Recipe, network: nn.Module, weights: Weights, batch: SeedBatch) -> Tensor:
    """`[S, size]`: the logits of the batch of every seed; `network` is one of them, for its settings."""
    gnn: Any = network.gnn
    layer = {"GCN": _gcn, "GAT": _gat, "GIN": _gin}[recipe.architecture]
    rows, dropout = batch.x, gnn.dropout.p
    for number in range(recipe.layers):
        rows = layer(weights, f"gnn.convs.{number}.", batch, rows, dropout)
        if number < recipe.layers - 1:
            norm = _whole_norm if recipe.architecture == "GCN" else _graph_norm
            rows = norm(weights, f"gnn.norms.{number}.", batch, rows)
            rows = functional.dropout(rows.relu(), dropout)
    seeds = len(rows)
    total = _per_graph(rows * batch.real, batch).view(seeds, -1)  # [S, size]
    return total / _per_graph(batch.real, batch).view(seeds, -1).clamp(min=1)


def _per_graph(rows: Tensor, batch: SeedBatch) -> Tensor:
    """`[S, size, width]`: sums over the nodes of each graph of `[S, P, width]`."""
    seeds, _, width = rows.shape
    total = rows.new_zeros(seeds * (batch.size + 1), width).index_add(0, batch.graph, rows.reshape(-1, width))
    return total.view(seeds, batch.size + 1, width)[:, : batch.size]


def _linear(weights: Weights, name: str, rows: Tensor) -> Tensor:
    """`[S, P, out]`: every seed's own matrix, and its bias if it has one."""
    found = torch.bmm(rows, weights[name + "weight"].transpose(1, 2))
    bias = weights.get(name + "bias")
    return found if bias is None else found + bias.unsqueeze(1)


def _collect(messages: Tensor, batch: SeedBatch) -> Tensor:
    """`[S, P, width]`: sums of messages `[S · Q, width]` at their receivers."""
    seeds, places = batch.real.shape[:2]
    total = messages.new_zeros(seeds * places, messages.size(1)).index_add(0, batch.receiver, messages)
    return total.view(seeds, places, -1)


def _sent(rows: Tensor, batch: SeedBatch) -> Tensor:
    """`[S · Q, width]`: what each edge carries."""
    return rows.reshape(-1, rows.size(-1)).index_select(0, batch.sender)


def _gcn(weights: Weights, name: str, batch: SeedBatch, rows: Tensor, _dropout: float) -> Tensor:
    rows = _linear(weights, name + "lin.", rows)
    return _collect(_sent(rows, batch) * batch.weight, batch) + weights[name + "bias"].unsqueeze(1)


def _gin(weights: Weights, name: str, batch: SeedBatch, rows: Tensor, _dropout: float) -> Tensor:
    """An MLP of two layers of the sum over neighbours and itself; with edge features, of ReLU (neighbour + features)."""
    sent = _sent(rows, batch)
    if name + "lin.weight" in weights:
        features = _linear(weights, name + "lin.", batch.attr)
        sent = (sent + features.reshape(-1, features.size(-1))).relu()
    rows = _linear(weights, name + "nn.lins.0.", _collect(sent * batch.weight, batch) + rows)
    rows = _whole_norm(weights, name + "nn.norms.0.", batch, rows).relu()
    return _linear(weights, name + "nn.lins.1.", rows)


def _gat(weights: Weights, name: str, batch: SeedBatch, rows: Tensor, dropout: float) -> Tensor:
    """GATv2: heads side by side, but in the last layer their mean. Nodes that stand for none get no message."""
    seeds, places = batch.real.shape[:2]
    left, right = (_linear(weights, name + f"{side}.", rows) for side in ("lin_l", "lin_r"))
    sent = _sent(left, batch)
    paired = sent + right.reshape(-1, right.size(-1)).index_select(0, batch.receiver)
    if name + "lin_edge.weight" in weights:
        features = _linear(weights, name + "lin_edge.", batch.attr)
        paired = paired + features.reshape(-1, features.size(-1))
    paired = functional.leaky_relu(paired, SLOPE).view(seeds, -1, HEADS, sent.size(1) // HEADS)
    score = (paired * weights[name + "att"]).sum(-1).view(-1, HEADS)  # [S · Q, heads]
    where = batch.receiver.unsqueeze(1).expand_as(score)
    top = score.detach().new_full((seeds * places, HEADS), -torch.inf).scatter_reduce(0, where, score.detach(), "amax")
    weight = (score - top.index_select(0, batch.receiver)).exp() * batch.weight
    weight = weight / (_collect(weight, batch).view(-1, HEADS).index_select(0, batch.receiver) + 1e-16)
    weight = functional.dropout(weight, dropout)
    messages = (sent.view(len(weight), HEADS, -1) * weight.unsqueeze(-1)).view(len(weight), -1)
    found, bias = _collect(messages, batch), weights[name + "bias"]
    if found.size(-1) != bias.size(-1):
        found = found.view(seeds, places, HEADS, -1).mean(dim=2)
    return found + bias.unsqueeze(1)


def _whole_norm(weights: Weights, name: str, batch: SeedBatch, rows: Tensor) -> Tensor:
    """PyG's LayerNorm without a batch: x − mean, over (deviation + ε), of all nodes and channels of a seed's mini-batch."""
    count = batch.real.sum(dim=(1, 2), keepdim=True) * rows.size(-1)
    centred = (rows - (rows * batch.real).sum(dim=(1, 2), keepdim=True) / count) * batch.real
    deviation = (centred.square().sum(dim=(1, 2), keepdim=True) / count).sqrt()
    return _affine(weights, name, centred / (deviation + EPSILON))


def _graph_norm(weights: Weights, name: str, batch: SeedBatch, rows: Tensor) -> Tensor:
    """PyG's LayerNorm with a batch: the same over the nodes of each graph, over √(variance + ε)."""
    seeds, places, width = rows.shape
    count = (_per_graph(batch.real, batch) * width).clamp(min=1)  # [S, size, 1]

    def spread(per_graph: Tensor) -> Tensor:
        """`[S, P, 1]`: of each node's graph; 1 for nodes that stand for none."""
        padded = functional.pad(per_graph, (0, 0, 0, 1), value=1.0).reshape(-1, 1)
        return padded.index_select(0, batch.graph).view(seeds, places, 1)

    mean = _per_graph((rows * batch.real).sum(-1, keepdim=True), batch) / count
    centred = (rows - spread(mean)) * batch.real
    variance = _per_graph(centred.square().sum(-1, keepdim=True), batch) / count
    return _affine(weights, name, centred / (spread(variance) + EPSILON).sqrt())


def _affine(weights: Weights, name: str, rows: Tensor) -> Tensor:
    return rows * weights[name + "weight"].unsqueeze(1) + weights[name + "bias"].unsqueeze(1)
