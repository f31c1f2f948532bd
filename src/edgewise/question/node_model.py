"""A model on one graph (or a cut of one), recorded and proved: the ways in which it can be run for many of its nodes."""

import copy
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import CopiesEngine, Engine, WholeGraphEngine
from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies, disturbed, neighbourhoods, whole_graph
from edgewise.model.call import GraphForward
from edgewise.model.head import read_output
from edgewise.model.weighted_model import WeightedGraph, WeightedModel
from edgewise.program.ir import Program
from edgewise.program.lowering import Lowering, lower_nodes
from edgewise.program.mirror import mirrored
from edgewise.program.transfer import Transfer, degrees_in
from edgewise.question.equality import (
    NOT_REPEATABLE,
    Audit,
    close,
    first_random_weights,
    moves,
    random_weight,
    scale_of_change,
    warn_not_local,
)
from edgewise.question.known_model import Carried, Known, reads_further, rim_of
from edgewise.question.row_origins import RowOrigins
from edgewise.question.subject import Subject

if TYPE_CHECKING:
    from edgewise.model.feature_products import FeatureProducts

log = logging.getLogger("edgewise")
OTHER_NODES = (
    "The model runs differently around these nodes than around those that were asked about first. Ask a new question about "
    "them: ew.Question(model, data, index)."
)


class NodeModel:
    """A model on one graph whose nodes are explained; knows the ways in which it can be run for many of them."""

    def __init__(
        self,
        subject: Subject,
        graph: Data,
        asked: tuple[str | None, str | None],
        known: Known | None = None,
        targets: Tensor | None = None,
        *,
        is_part: bool = False,
    ) -> None:
        self.origins: RowOrigins | None = None
        """Of a part of a larger graph (`is_part`): where its rows come from."""
        self._is_part = is_part
        self.targets = targets
        """The only nodes that will be asked about, each once; None: any."""
        self.subject, self.graph, self.layers, self.loan = subject, graph, subject.layers, subject.loan
        self.device = graph.edge_index.device
        self._products: FeatureProducts | None = None
        self.kept: dict[Any, Any] = {}
        """What else was learned about the same model and graph."""
        self.audit, self.is_tried = Audit(), False
        self.not_lowered: list[str] = []
        self._known = known
        with self.loan.taken():
            if known is None or known.carried is None or not self._carry_over(known, known.carried):
                self._record(asked)

    def _record(self, asked: tuple[str | None, str | None]) -> None:
        """Record the model on the graph, and lower what was recorded."""
        known, trace = self._known, self.subject.recorded(self.graph)
        if known is None:
            self.output, self.trace = read_output(trace, *asked)
        else:
            self.output, self.trace = known.output, known.output.shorten(trace)
        if self._is_part and known is None:
            self.origins = RowOrigins.of(self.trace, self.graph)
        self.call = replace(self.output.apply(self.subject.call), changes_input=trace.changes_input)
        self.trace = replace(self.trace, output=self.call.spread(self.trace.output, self.graph))
        if self.trace.products is not None:
            self.trace.products.also(self.graph.x)
        self._products = self.trace.products
        self._set_out()
        program = self._proved_mirror() if self.trace.flow is None else None
        self.lowering = self._proved_lowering()
        self.subject.check_repeated(is_proved=self.lowering is not None)
        if self.lowering is None and (why := reads_further(self.trace)):
            self._give_up_copies(why)
        self._products = None
        self.program = program if self.lowering is None else self.lowering.program
        """What the model is proved to do; where messages run both ways, on the mirrored graph and not run for targets."""

    def _carry_over(self, known: Known, carried: Carried) -> bool:
        """Take the program of another cut, and run the model here only to compare; False if that cannot be, or differs."""
        edge_index = self.graph.edge_index
        if bool((edge_index[0] == edge_index[1]).any()):  # which loops a layer adds depends on those that are there
            return False
        self.output, self.call = known.output, carried.call
        try:
            with torch.no_grad():
                rows = self.call(self.graph)
        except ModelError:
            return False
        self.trace = replace(carried.trace, output=rows)
        self._set_out()
        self.program = program = carried.transfer.to(self.graph, degrees_in(self.graph))
        self.lowering = Lowering(program, self.graph, self.in_edges, rows.dtype)
        true = rows if self.targets is None else rows.index_select(0, self.targets)
        return close(self.lowering.settle(self.targets), true, self.scale)

    def _set_out(self) -> None:
        """Everything that follows from the recorded pass and the graph."""
        graph, trace = self.graph, self.trace
        self.num_layers = trace.num_layers
        self._check_rows()
        self.weighted = WeightedModel(self.call, self.layers, trace)
        self.in_edges = InEdges.of(graph.edge_index, graph.num_nodes, trace.flow)
        self.rim = 1 if rim_of(trace) else 0
        self._whole = WeightedGraph(graph)
        self.local = self._known is None or self._known.local

    def _check_rows(self) -> None:
        if len(self.trace.output) != self.graph.num_nodes:
            raise ModelError(
                f"A node task needs a row for each of the {self.graph.num_nodes} nodes, the model gave "
                f"{len(self.trace.output)} rows. For one prediction per graph, use task='graph'."
            )

    @property
    def known(self) -> Known:
        """What a question about other targets may take over."""
        scale = self.scale if moves(self.scale, self.trace.output) else None  # around other nodes it may be a change
        return Known(scale, self.lowering is not None, self.local, self.output)

    @property
    def scale(self) -> Tensor:
        """`[columns]`: how much weights change each column of the output."""
        if self._known is not None and self._known.scale is not None:
            return self._known.scale
        if not hasattr(self, "_scale"):
            self._scale = scale_of_change(self._probe(), self.trace.output)
        return self._scale

    # --- the lowered way ----------------------------------------------------------------------------------------------

    def _proved_lowering(self) -> Lowering | None:
        """The lowered model, if it gives the model's output for every node, at ω = 1 and at random ω and s."""
        trace = self.trace
        lowering = None
        own = isinstance(
            self.call.forward, GraphForward
        )  # without types a program would not know what it makes of the graph
        if (not own or trace.typed is not None) and (self._known is None or self._known.is_lowered):
            lowering = lower_nodes(trace, self.graph, self.in_edges, self.not_lowered)
        self.trace = self.weighted.trace = trace.without_tensors()
        if lowering is None:
            return None
        true, targets = self.trace.output, self.targets
        true = true if targets is None else true.index_select(0, targets)
        plain = lowering.settle(targets)
        random = lowering.output_at(targets, *self._random_weights)
        probe = self._probe() if targets is None else self._probe().index_select(0, targets)
        if close(plain, true, self.scale) and close(random, probe, self.scale):
            self._note(plain - true, random - probe)
            return lowering
        log.debug("not lowered: the program does not reproduce the model's output")
        return None

    def carried(self) -> Carried | None:
        """What other cuts may take over; None if each must be recorded, or the program does not come out again here."""
        if self.lowering is None or self.graph is self.subject.example:
            return None
        first, graph = self.subject.first, self.graph
        transfer = None if first.reads_values else Transfer.of(self.lowering.program, first, self.subject.example)
        if transfer is None:
            return None
        everything = [torch.arange(size, device=self.device) for size in (graph.edge_index.size(1), graph.num_nodes)]
        same = transfer.agrees(transfer.to(graph, degrees_in(graph)), *everything)
        return Carried(transfer, self.trace, self.call) if same else None

    def _proved_mirror(self) -> Program | None:
        """What a model does whose messages run both ways, read off the mirrored graph; it must be the model, as above."""
        trace, graph = mirrored(self.trace, self.graph)
        in_edges = InEdges.of(graph.edge_index, graph.num_nodes)
        lowering = lower_nodes(trace, graph, in_edges, [])
        if lowering is None:
            return None
        plain = lowering.settle()
        weight, own = self._random_weights
        random = lowering.output_at(None, weight.repeat(1, 2), own)
        both = ((plain, self.trace.output), (random, self._probe()))
        return lowering.program if all(close(*pair, self.scale) for pair in both) else None

    def prove_everywhere(self) -> None:
        """Run the lowered program for all nodes, and compare it with the model there, before other targets are asked about."""
        if self.targets is None or self.lowering is None:
            return
        self.lowering.known_everywhere()
        plain, random = self.lowering.output, self.lowering.output_at(None, *self._random_weights)
        if not (close(plain, self.trace.output, self.scale) and close(random, self._probe(), self.scale)):
            raise ModelError(OTHER_NODES)
        self.targets = None

    def _note(self, plain: Tensor, random: Tensor) -> None:
        """How far the lowered program is from the model, at ω = 1 and at random weights."""
        if len(plain):
            self.audit.value_error = float(plain.abs().max())
            self.audit.weighted_error = float((random.abs() / self.scale.clamp(min=1e-30)).max())

    @cached_property
    def _random_weights(self) -> tuple[Tensor, Tensor]:
        """ω `[L, E]` and s `[L, N]`, the same for every question about this graph."""
        sizes = (self.graph.edge_index.size(1), self.graph.num_nodes)
        edge, own = (first_random_weights(size, self.num_layers, self.trace.output) for size in sizes)
        return edge, own

    def _probe(self) -> Tensor:
        """The model's output at random weights, to compare with: a dead ReLU hides nothing there."""
        if not hasattr(self, "_probe_output"):
            # what is kept stands for a whole operation: there is no input of it that a residual could be weighted at
            ours = self._products if self.loan.is_shared and not self.trace.residuals else None
            with torch.no_grad(), nullcontext() if ours is None else ours.used():
                self._probe_output = self.weighted(self._whole, *self._random_weights)
        return self._probe_output

    def is_probe(self, rows: Any, weights: Sequence[Tensor]) -> bool:
        """Whether rows are those that the model gave at random weights, and these are the weights."""
        found = getattr(self, "_probe_output", None)
        same = isinstance(rows, Tensor) and found is not None and found.data_ptr() == rows.data_ptr()
        return same and all(torch.equal(*both) for both in zip(weights, self._random_weights, strict=True))

    def without_program(self) -> "NodeModel":
        """The same model, run as it is."""
        other = copy.copy(self)
        other.lowering, other.program, other.kept = None, None, {}
        return other

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

    def plain_copies(self, targets: Tensor) -> list[Copies]:
        """Neighbourhoods side by side, or the whole graph for each target, not compared with anything."""
        if not self.local:
            return self.wholes(targets)
        return [neighbourhoods(self.graph, self.in_edges, targets, self.num_layers, rim=self.rim)]

    def _through_copies(self, targets: Tensor) -> tuple[Copies, CopiesEngine] | None:
        if not self.local:
            return None
        self.is_tried = True
        copies = neighbourhoods(self.graph, self.in_edges, targets, self.num_layers, rim=self.rim)
        engine = CopiesEngine(self.weighted, copies)
        if self._copies_are_true(copies, engine, targets):
            return copies, engine
        self._check_repeatable()
        self._give_up_copies("a copy of a target's neighbourhood does not give its true output")
        return None

    def wholes(self, targets: Tensor) -> list[Copies]:
        """The whole graph for each target."""
        return [whole_graph(self.graph, self.in_edges, t, self.num_layers) for t in targets.tolist()]

    def _copies_are_true(self, copies: Copies, engine: CopiesEngine, targets: Tensor) -> bool:
        """Whether every copy gives its target's true output, at ω = 1 and at random ω, whatever the other copies hold."""
        output = self.trace.output
        try:
            with torch.no_grad():
                plain = engine.output(output.new_ones(self.num_layers, engine.edge_id.numel()))
                random = self._probes(copies, engine)
        except ModelError:
            return False  # the model raises on the copies: whole graph
        if not close(plain, output[targets], self.scale):
            return False
        return close(random, self._probe()[targets], self.scale)

    def _probes(self, copies: Copies, engine: CopiesEngine) -> Tensor:
        """The output of every copy at random ω. Of several, half of them are something else meanwhile, then the others.

        A maximum over all rows, say, is right in copies side by side, but its gradient belongs to the copy that has the row.
        """
        like, depth = self.trace.output, self.num_layers
        edge, own = (random_weight(part, depth, like) for part in (engine.edge_id, engine.self_node))
        found = engine.output(edge, own)
        if engine.num_targets == 1:
            return found
        is_odd = torch.arange(engine.num_targets, device=self.device) % 2 == 1
        for which in (is_odd, ~is_odd):
            changed = CopiesEngine(self.weighted, disturbed(copies, which))
            weights = (
                torch.where(which[engine.owner], 1.5 - edge, edge),
                torch.where(which[engine.self_owner], 1.5 - own, own),
            )
            found = torch.where(which.view(-1, 1), found, changed.output(*weights))
        return found

    def _check_repeatable(self) -> None:
        with torch.no_grad():
            again = self.call(self.graph)
        if not close(again, self.trace.output, self.scale):
            raise ModelError(NOT_REPEATABLE)

    def _give_up_copies(self, why: str) -> None:
        self.local = False
        warn_not_local(why, "target is explained on the whole graph")
