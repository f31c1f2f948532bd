"""What is explained, without the question: a model on one graph, run once and looked through."""

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine, WholeGraphEngine
from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies, neighbourhoods, whole_graph
from edgewise.model.borrow import Loan
from edgewise.model.call import ModelCall
from edgewise.model.hooks import Layers
from edgewise.model.trace import record
from edgewise.model.weighted_model import WeightedGraph, WeightedModel
from edgewise.program.lowering import Lowering, lower_nodes
from edgewise.question.proof import NOT_REPEATABLE, close, random_weight, warn_not_local

log = logging.getLogger("edgewise")

# Layers that read only the receiver's own in-edges; any other may read the degree of a sender, one hop further (GCN does).
_READ_RECEIVERS_ONLY = (
    *(pyg.SAGEConv, pyg.GraphConv, pyg.GINConv, pyg.GINEConv),
    *(pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv, pyg.PNAConv),
)


class NodeModel:
    """A model on one graph whose nodes are explained; knows the ways in which it can be run for many of them."""

    def __init__(self, call: ModelCall, layers: Layers, graph: Data, loan: Loan) -> None:
        self.call, self.layers, self.graph, self.loan = call, layers, graph, loan
        self.device = graph.edge_index.device
        self.kept: dict[Any, Any] = {}
        """What else was learned about the same model and graph."""
        with loan.taken():
            self.trace = record(call, layers, graph)
            self.call = replace(call, changes_input=self.trace.changes_input)
            self.num_layers = len(self.trace.calls)
            self._check_rows()
            self.weighted = WeightedModel(self.call, layers, self.trace)
            self.in_edges = InEdges.of(graph.edge_index, graph.num_nodes, self.trace.flow or "source_to_target")
            known = all(isinstance(c.module, _READ_RECEIVERS_ONLY) for c in self.trace.calls)
            self.rim = 0 if known else 1
            self._whole = WeightedGraph(graph)
            self.local = self.trace.flow is not None
            if not self.local:
                self._give_up_copies("its layers send messages in both directions")
            self.lowering = self._proved_lowering()

    def _check_rows(self) -> None:
        if len(self.trace.output) != self.graph.num_nodes:
            raise ModelError(
                f"The model gave {len(self.trace.output)} rows for {self.graph.num_nodes} nodes; a node task needs a row for "
                f"each node. For one prediction per graph, type task='graph'."
            )

    # --- the lowered way ----------------------------------------------------------------------------------------------

    def _proved_lowering(self) -> Lowering | None:
        """The lowered model, if it gives the model's output for every node, at ω = 1 and at random ω and s."""
        lowering = lower_nodes(self.trace, self.graph, self.in_edges)
        self.trace = self.weighted.trace = self.trace.without_tensors()
        if lowering is None:
            return None
        plain = lowering.settle()
        random = lowering.run_all(*self._random_weights())[lowering.program.output]
        if close(plain, self.trace.output) and close(random, self._probe()):
            return lowering
        log.debug("not lowered: the program does not reproduce the model's output")
        return None

    def _random_weights(self) -> tuple[Tensor, Tensor]:
        sizes = (self.graph.edge_index.size(1), self.graph.num_nodes)
        ids = [torch.arange(size, device=self.device) for size in sizes]
        edge, own = (random_weight(i, self.num_layers, self.trace.output) for i in ids)
        return edge, own

    def _probe(self) -> Tensor:
        """The model's output at random weights, to compare with: a dead ReLU hides nothing there."""
        if not hasattr(self, "_probe_output"):
            with torch.no_grad():
                self._probe_output = self.weighted(self._whole, *self._random_weights())
        return self._probe_output

    # --- through the model --------------------------------------------------------------------------------------------

    def engine(self, targets: Tensor) -> Engine:
        """How to run the model for these nodes at once."""
        if self.lowering is not None:
            return self.lowering.engine(targets)
        together = self._through_copies(targets)
        if together is not None:
            return together[1]
        wholes = self.wholes(targets)
        return WholeGraphEngine([CopiesEngine(self.weighted, w, self._whole) for w in wholes], same_graph=True)

    def copies(self, targets: Tensor) -> list[Copies]:
        """The graphs to run the model itself on: one that holds a copy for every target, or the whole graph for each."""
        together = self._through_copies(targets)
        return self.wholes(targets) if together is None else [together[0]]

    def _through_copies(self, targets: Tensor) -> tuple[Copies, CopiesEngine] | None:
        if not self.local:
            return None
        copies = neighbourhoods(self.graph, self.in_edges, targets, self.num_layers, rim=self.rim)
        engine = CopiesEngine(self.weighted, copies)
        if self._copies_are_true(engine, targets):
            return copies, engine
        self._check_repeatable()
        self._give_up_copies("a copy of a target's neighbourhood does not give its true output")
        return None

    def wholes(self, targets: Tensor) -> list[Copies]:
        """The whole graph for each target."""
        return [whole_graph(self.graph, self.in_edges, t, self.num_layers) for t in targets.tolist()]

    def _copies_are_true(self, engine: CopiesEngine, targets: Tensor) -> bool:
        """Whether every copy gives its target's true output, at ω = 1 and at random ω."""
        output = self.trace.output
        try:
            with torch.no_grad():
                plain = engine.output(output.new_ones(self.num_layers, engine.edge_id.numel()))
                ids = (engine.edge_id, engine.self_node)
                random = engine.output(*(random_weight(i, self.num_layers, output) for i in ids))
        except ModelError:
            return False  # the model raises on the copies: whole graph
        return close(plain, output[targets]) and close(random, self._probe()[targets])

    def _check_repeatable(self) -> None:
        with torch.no_grad():
            again = self.call(self.graph)
        if not close(again, self.trace.output):
            raise ModelError(NOT_REPEATABLE)

    def _give_up_copies(self, why: str) -> None:
        self.local = False
        warn_not_local(why, "target is explained on the whole graph")

    def warn_again(self) -> None:
        """A kept subject says again what it said the first time."""
        if not self.local and self.lowering is None:
            warn_not_local("as before", "target is explained on the whole graph")
