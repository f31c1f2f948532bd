"""Edges on which PyG's masks act: GCN and GAT put the graph's own self-loops aside, so a mask never reaches those.

In `MessagePassing.explain_message` a mask of another length than the messages loses the entries of self-loops and gets ones for
the loops that the layer added. Such edges have no gradient, no occlusion and no mask in published numbers. GCN and GAT say the
same without them, so here they are taken out of the graph, and scores are put back into its columns.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv

import edgewise as ew
from edgewise.results.entries import Entries, Part

PUT_ASIDE = (GCNConv, GATConv, GATv2Conv)
"""Layers that replace the graph's self-loops by loops of their own."""


@dataclass(frozen=True, eq=False)
class Maskable:
    """The part of a graph that masks reach."""

    whole: Any
    """The graph, or a list of graphs."""
    data: Any
    """The same without self-loops where the model puts them aside."""
    columns: Tensor | None = None
    """`[edges of data]`: the column of each in the whole graph; None if nothing was taken out."""

    @staticmethod
    def of(model: nn.Module, data: Any) -> "Maskable":
        """What masks reach; of lists of graphs (none of which has self-loops) everything."""
        if not isinstance(data, Data) or not any(isinstance(module, PUT_ASIDE) for module in model.modules()):
            return Maskable(data, data)
        sender, receiver = data.edge_index
        columns = (sender != receiver).nonzero().view(-1)
        if len(columns) == data.num_edges:
            return Maskable(data, data)
        return Maskable(data, Data(x=data.x, edge_index=data.edge_index[:, columns], y=data.y), columns)

    def column(self, edge: Tensor) -> Tensor:
        """Columns of the whole graph of columns of `data`."""
        return edge if self.columns is None else self.columns[edge]

    def kept(self, column: Tensor) -> Tensor:
        """Columns of `data` of columns of the whole graph; those that were taken out are dropped."""
        if self.columns is None:
            return column
        place = torch.full((self.whole.num_edges,), -1)
        place[self.columns] = torch.arange(len(self.columns))
        found = place[column]
        return found[found >= 0]

    def restored(self, found: ew.ExplanationSet, like: ew.ExplanationSet) -> ew.ExplanationSet:
        """Explanations of `data` as explanations of the whole graph; `like` are explanations of the same targets there."""
        edges = found.edges
        if self.columns is None or edges is None:
            return found
        layer, edge = edges.place.div(len(self.columns), rounding_mode="floor"), edges.place % len(self.columns)
        part = Part(edges.rows(), layer * self.whole.num_edges + self.columns[edge], edges.score)
        return replace(like, method=found.method, edges=Entries([part], len(like)), own=None)


def explained(model: nn.Module, data: Any, index: Tensor | None, **settings: Any) -> ew.ExplanationSet:
    """`ew.explain` of many targets, as far as masks reach; random and full masks are on all edges, as in the code."""
    drawn = settings["method"] in ("random", "full")
    part = Maskable(data, data) if drawn else Maskable.of(model, data)
    found = ew.explain(model, part.data, index, **settings)
    assert isinstance(found, ew.ExplanationSet)
    if part.columns is None:
        return found
    like = ew.explain(model, data, index, method="full", level=settings.get("level", "input"))
    assert isinstance(like, ew.ExplanationSet)
    return part.restored(found, like)
