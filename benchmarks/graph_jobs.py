"""Rows about occlusion of whole graphs: PROTEINS, beside a loop that takes one edge of every graph away at a time."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import MessagePassing

import edgewise as ew
from benchmarks import data, models
from benchmarks.deviation import Deviation, of_target
from benchmarks.timing import Case, Side


class GraphLoop:
    """One forward pass of all graphs side by side for each edge position: every graph misses its k-th edge.

    Unit k leaves the edges out in every layer; with `layerwise`, unit `layer · positions + k` in that layer alone. There are as
    many positions as the largest graph has edges; smaller graphs are unchanged once they have no k-th edge.
    """

    def __init__(self, model: nn.Module, *, layerwise: bool) -> None:
        self.model, self.layerwise, graphs = copy.deepcopy(model), layerwise, data.proteins()
        self.batch = Batch.from_data_list(graphs)
        self.counts = torch.tensor([graph.num_edges for graph in graphs])
        self.first = self.counts.cumsum(0) - self.counts
        self.positions = int(self.counts.max())
        layers = [module for module in self.model.modules() if isinstance(module, MessagePassing)]
        self.num_layers, self.missing, self.layer = len(layers), self.first[:0], -1
        for number, layer in enumerate(layers):
            layer.register_message_forward_hook(self._hook(number))
        self.full = self._logits()

    def _hook(self, number: int) -> Callable[..., Tensor]:
        def without_edges(module: nn.Module, inputs: Any, message: Tensor) -> Tensor:
            if not self.layerwise or self.layer == number:
                message[self.missing] = 0
            return message

        return without_edges

    @torch.no_grad()
    def _logits(self) -> Tensor:
        found: Tensor = self.model(self.batch.x, self.batch.edge_index, self.batch.batch).view(-1)
        return found

    def __call__(self, units: Tensor) -> Tensor:
        """`[units, graphs]`: how far the logit of each graph falls."""
        drops = torch.empty(len(units), len(self.full))
        for row, unit in enumerate(units.tolist()):
            self.layer, position = divmod(unit, self.positions)
            self.missing = (self.first + position)[self.counts > position]
            drops[row] = self.full - self._logits()
        self.missing = self.first[:0]
        return drops


def graph_occlusion(level: str) -> Case:
    """All graphs; a plain call on a model that was not seen before, everything counted."""
    graphs, model = data.proteins(), models.proteins_model(None)
    loop = GraphLoop(model, layerwise=level == "layer")
    everyone = torch.arange(len(graphs))
    units = loop.positions * (loop.num_layers if level == "layer" else 1)

    def run(places: Tensor) -> ew.ExplanationSet:
        return ew.explain(model, graphs, index=places, task="graph", method="occlusion", level=level)

    def compare(ours: ew.ExplanationSet, asked: Tensor, theirs: Tensor, drawn: Tensor) -> Deviation:
        """The peer explains the logit, we the predicted class: turn its sign where that is class 0."""
        found = Deviation()
        for place, graph in enumerate(asked.tolist()):
            mine = ours[place].scores.view(-1, int(loop.counts[graph]))
            layer, position = drawn // loop.positions, drawn % loop.positions
            kept = position < mine.size(1)
            sign = 1 if int(ours.target[place]) == 1 else -1
            other = sign * theirs[kept, graph]
            found = found.joined(of_target(mine[layer[kept], position[kept]], other, float(mine.abs().max())))
        return found

    unit = "edge positions" if level == "input" else "(layer, edge position) pairs"
    peer = Side("one forward of all graphs each", unit, torch.arange(units), units, loop)
    return Case(Side("edgewise", "graphs", everyone, len(graphs), run), peer, compare, peer_follows=False)


ROWS: list[tuple[str, str, Callable[[], Case], float | None, float | None]] = [
    (
        "proteins/occlusion",
        "occlusion, 1113 PROTEINS graphs, GIN 3×32",
        partial(graph_occlusion, "input"),
        50,
        500,
    ),
    ("proteins/layer_occlusion", "layerwise occlusion, the same", partial(graph_occlusion, "layer"), 50, 500),
]
"""Name, title, how the case is made, and the ratios that we want at least and dream of."""
