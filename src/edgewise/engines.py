"""Engines that run the user's model for many targets: through copies in one graph, or one target after another.

An engine is a function from weights to output rows. There are three: `LoweredEngine` (`program/execution.py`) runs a program
in place of the model, `CopiesEngine` runs the model once on all copies, `WholeGraphEngine` runs it once for each target. They
differ in speed, not in their answers; `question/` chooses.
"""

from typing import Protocol

import torch
from torch import Tensor

from edgewise.arrays import LayerWeight, SelfWeight
from edgewise.graph.copies import Copies
from edgewise.model.gradient_stops import GradientStops
from edgewise.model.weighted_model import WeightedGraph, WeightedModel


class Engine(Protocol):
    """ω `[L, M]` and s `[L, S]` to the model's output, a row for every target; and what each copy is a copy of."""

    way: str
    """How the model runs: "lowered", "copies" or "whole graph"; it is kept in the settings of every result."""
    local: bool
    """Whether only edges of the computation graph can change the output."""
    num_targets: int
    edge_id: Tensor
    """`[M]`: the column of the graph that each edge copy is a copy of."""
    owner: Tensor
    """`[M]`: the position of the target that each edge copy belongs to."""
    self_node: Tensor
    """`[S]`: the node that each node copy is a copy of."""
    self_owner: Tensor
    """`[S]`: the position of the target that each node copy belongs to."""
    edges_of: list[int] | None
    """Per call: how many of the edge copies, from the first on, can matter; None: all of them."""
    pairs_of: list[int] | None
    """Per call: how many of the node copies, from the first on, can matter; None: all of them."""

    @property
    def edge_hops(self) -> Tensor:
        """`[M]`: fewest edges from each copy's receiver to its target."""

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """The rows of the targets, `[targets, columns]`, under weights."""


class CopiesEngine:
    """All targets in one forward pass of the user's model, on a graph that holds a copy of each neighbourhood."""

    way = "copies"
    local = True
    edges_of: list[int] | None = None
    pairs_of: list[int] | None = None

    def __init__(self, model: WeightedModel, copies: Copies, graph: WeightedGraph | None = None) -> None:
        self._model, self._copies = model, copies
        self._graph = graph or WeightedGraph(copies.data)
        self.num_targets = copies.num_targets
        self.edge_id, self.owner = copies.edge_id, copies.owner
        self.self_node, self.self_owner = copies.self_node, copies.self_owner
        self.may_stop = False
        """Whether a gradient may have stopped on its way, in a pass that was recorded for one."""

    @property
    def edge_hops(self) -> Tensor:
        """Fewest edges from each copy's receiver to its target."""
        return self._copies.edge_hops

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """One pass over all copies."""
        weight = _spread(weight, self._copies.edge_place, self._graph.num_edges)
        if own is not None:
            own = _spread(own, self._copies.self_place, self._copies.data.num_nodes)
        if not weight.requires_grad or self.may_stop:
            return self._model(self._graph, weight, own)[self._copies.rows]
        with GradientStops() as stops:
            rows = self._model(self._graph, weight, own)[self._copies.rows]
        self.may_stop = stops.seen
        return rows


def _spread(part: Tensor, place: Tensor, size: int) -> Tensor:
    """Weights of some columns among all of them; the others keep 1.

    >>> _spread(torch.tensor([[0.5, 0.2]]), torch.tensor([0, 2]), 3)
    tensor([[0.5000, 1.0000, 0.2000]])
    """
    if place.numel() == size:
        return part
    whole = part.new_ones(len(part), size)
    whole[:, place] = part
    return whole


class WholeGraphEngine:
    """A forward pass for each target: for models that mix the rows of a batch, or reach beyond their layers.

    The weights of all targets stand one after the other in `[L, M]`; `same_graph` says that every part is the same graph.
    """

    way = "whole graph"
    local = False
    edges_of: list[int] | None = None
    pairs_of: list[int] | None = None

    def __init__(self, parts: list[CopiesEngine], *, same_graph: bool) -> None:
        self._parts, self._same_graph = parts, same_graph
        self.num_targets = len(parts)
        self._edges = [part.edge_id.numel() for part in parts]
        self._nodes = [part.self_node.numel() for part in parts]
        self.edge_id = torch.cat([part.edge_id for part in parts])
        self.self_node = torch.cat([part.self_node for part in parts])
        self.owner = torch.cat([part.owner + i for i, part in enumerate(parts)])
        self.self_owner = torch.cat([part.self_owner + i for i, part in enumerate(parts)])

    @property
    def edge_hops(self) -> Tensor:
        """Fewest edges from each copy's receiver to its target."""
        return torch.cat([part.edge_hops for part in self._parts])

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """A pass for each target, or one for all of them where their weights are equal; `[targets, columns]`."""
        if self._same_graph and (shared := self._shared_output(weight, own)) is not None:
            return shared
        weights = weight.split(self._edges, dim=1)
        owns = own.split(self._nodes, dim=1) if own is not None else [None] * len(weights)
        return torch.cat([p.output(w, s) for p, w, s in zip(self._parts, weights, owns, strict=True)])

    def _shared_output(self, weight: LayerWeight, own: SelfWeight | None) -> Tensor | None:
        """One pass for all, if every target has the same weights (occlusion: the same edge is missing for all)."""
        if weight.requires_grad or (own is not None and own.requires_grad):
            return None
        both = [part.view(len(weight), self.num_targets, -1) for part in (weight, own) if part is not None]
        if not all(bool((part == part[:, :1]).all()) for part in both):
            return None
        first = self._parts[0]
        model_output = first._model(first._graph, *(part[:, 0] for part in both))
        return model_output[torch.cat([part._copies.rows for part in self._parts])]
