"""Questions about whole graphs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from edgewise.engines import CopiesEngine, Engine, WholeGraphEngine
from edgewise.errors import ModelError, StaleQuestionError
from edgewise.graph.copies import Copies, side_by_side
from edgewise.graph.inputs import read_graphs
from edgewise.graph.joined_graphs import MOST_KEPT, JoinedGraphs
from edgewise.model.call import Forward, takes_data
from edgewise.model.head import read_output
from edgewise.model.trace import Trace, record
from edgewise.model.weighted_model import WeightedModel
from edgewise.program.execution import LoweredGraphs
from edgewise.program.lowering import lower_graphs
from edgewise.pyg_internals import attributes
from edgewise.question.audit_sample import audited_positions
from edgewise.question.equality import NOT_REPEATABLE, Audit, close, random_weight, warn_not_local
from edgewise.question.freed_memory import FreedMemory
from edgewise.question.labels import SOME, joined_labels, sample
from edgewise.question.posed_question import Asked, PosedQuestion
from edgewise.question.subject import DataMark, Subject, on_device
from edgewise.question.target import choose_target, read_index

_FEW = 4
BYTES_AT_ONCE = 2**28
"""Of a pass over graphs side by side, at most."""
_PROVED = 16  # graphs on which a program is run at random weights
_GRAPHS_AT_ONCE = 512
_PORTION = 2**24  # bytes of a pass, about, where a budget of memory may be given
_KEPT_FREE = 2**27  # bytes: an eighth of it may be kept by the allocator before it is asked for
_FEW_ENOUGH = 2**20  # nodes and edges of which engines are kept


class GraphQuestion(PosedQuestion):
    """Whole graphs, a target each."""

    task = "graph"
    _runs_itself = False
    """Whether no program may stand in for the model."""

    def __init__(self, model: Any, data: Any, index: Any, asked: Asked) -> None:
        self.asked, self._data = asked, data
        graphs = self._read(data)
        self.index, single = read_index(index, len(graphs), "graph")
        self.single = single or (isinstance(data, (Data, HeteroData)) and not isinstance(data, Batch))
        self._kept = {}
        self._sources = [attributes(graph)["edge_index"] for graph in graphs]
        self._given = graphs
        self._mark = DataMark(graphs, held=asked.held)
        self.graphs = on_device(graphs, asked.device)
        first = side_by_side([self.graphs[self._example()]]).data
        self.subject = Subject(model, self._forward(), asked.device, first, each_graph=True, held=asked.held)
        self.layers, self.device = self.subject.layers, self.graphs[0].edge_index.device
        self._together, self._proved, self.locality, self.audit = True, False, "whole graphs", Audit()
        self._engines: dict[tuple[int, ...], Engine] = {}
        self._recorded: dict[tuple[int, ...], tuple[Trace, Copies]] = {}
        self._joined_graphs = JoinedGraphs(
            self.graphs, simple=self.subject.call.forward is None and not takes_data(self.subject.call.model)
        )
        self._read_model()
        self._choose(self._run_all())

    def _read(self, data: Any) -> list[Data]:
        """The graphs that are run, checked."""
        return read_graphs(data)

    def _example(self) -> int:
        """A graph with edges, if there is one: without any, a copy of `edge_index` cannot be told from it."""
        places = chain(self.index.tolist(), range(len(self.graphs)))
        return next(
            (place for place in places if attributes(self.graphs[place])["edge_index"].size(1)), int(self.index[0])
        )

    def _forward(self) -> Forward | None:
        """How the model is called, if not as usual."""
        forward: Forward | None = self.asked.forward
        return forward

    def of(self, index: Any, target: Any = None) -> "GraphQuestion":
        """The same question about other graphs."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.asked = replace(self.asked, target=target)
        other.forget_audits()
        other.index, other.single = read_index(index, len(self.graphs), "graph")
        other._engines, other._recorded, other._proved = {}, {}, False
        other._choose(other._run_all())
        return other

    def through_model(self) -> "GraphQuestion | None":
        """The same question without programs."""
        if self._runs_itself or not self._together or not self.is_lowered:
            return None
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("is_lowered", None)
        other._runs_itself, other._engines, other._recorded = True, {}, {}
        other.forget_audits()
        return other

    def check_fresh(self) -> None:
        """Refuse if the model or the graphs have changed since."""
        self.subject.check_fresh()
        what = self._mark.changed(read_graphs(self._data))
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def _read_model(self) -> None:
        """What the recorded pass says about the model."""
        self.output, trace = read_output(self.subject.first, self.asked.output, self.asked.mode)
        self.trace = trace.without_tensors()
        call = self.output.apply(self.subject.call)
        self.call = replace(call, changes_input=self.trace.changes_input)
        self.weighted = WeightedModel(self.call, self.layers, self.trace)
        self.num_layers = self.trace.num_layers

    def _run_all(self) -> Tensor:
        """The model's output for every graph."""
        with self.borrowed():
            return self._truth()

    def _choose(self, rows: Tensor) -> None:
        asked = self.asked
        self.target = choose_target(
            rows, asked.target, asked.mode, asked.of, self.output.lost, several=self.output.several
        )
        self._check_mode()

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of graphs: their `y`."""
        numbers = sample(len(self.graphs), SOME) if index is None else index
        return joined_labels([self._label_of(i) for i in numbers.tolist()])

    def _given_labels(self) -> Any:
        return self._label_of(0) if len(self.graphs) else None

    def _label_of(self, number: int) -> Any:
        return attributes(self._given[number]).get("y")

    def _forget_runs(self) -> None:
        self._engines, self._recorded = {}, {}

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the graph of each target."""
        nodes, edges = self._joined_graphs.counts[self.index[positions]].to(self.device).unbind(1)
        return nodes, edges

    def _truth(self) -> Tensor:
        """The model's output for every graph, and whether graphs may share a pass."""
        few = [self.graphs[i] for i in self.index[:_FEW].tolist()]
        with torch.no_grad():
            alone = torch.cat([self._run_alone(graph) for graph in few])
            if len(self.index) == 1:
                return alone
            if not self.trace.picks_rows and self._few_agree(few, alone):
                if self.asked.roomy:
                    return torch.cat([self._rows(part) for part in self.parts])
                return torch.cat(list(self._rows_of_portions()))
            if not close(self._run_alone(few[0]), alone[:1]):
                raise ModelError(NOT_REPEATABLE)
            self._give_up_batches()
            return torch.cat([alone, *(self._run_alone(self.graphs[i]) for i in self.index[_FEW:].tolist())])

    @property
    def parts(self) -> list[Tensor]:
        """Positions of consecutive targets, as many as one pass may have."""
        edges = self._joined_graphs.counts[self.index].sum(dim=1)  # nodes count, too: a graph may have no edges
        block = edges.cumsum(0) * self.edge_bytes // BYTES_AT_ONCE
        sizes: list[int] = torch.unique_consecutive(block, return_counts=True)[1].tolist()
        return list(torch.arange(len(self.index)).split(sizes))

    def _rows(self, positions: Tensor) -> Tensor:
        """The model's output for some graphs; of few enough the pass is written down, for the first method that is asked."""
        if not self._keeps_engines:
            return self.call(self._joined_graphs.take(self.index[positions]).data)
        known = self._recorded[tuple(positions.tolist())] = self._record(self.index[positions])
        return known[0].output.detach()

    def _record(self, chosen: Tensor) -> tuple[Trace, Copies]:
        """A pass over some graphs side by side, written down."""
        copies = self._joined_graphs.take(chosen)
        return self.output.shorten(record(self.subject.call, self.layers, copies.data)), copies

    @property
    def _keeps_engines(self) -> bool:
        return int(self._joined_graphs.counts.sum()) < _FEW_ENOUGH

    @cached_property
    def is_lowered(self) -> bool:
        """Whether graphs go through a program; looked at for the smallest of them."""
        smallest = self._joined_graphs.counts[self.index].sum(dim=1).argmin()
        return isinstance(self.engine(smallest.view(1)), LoweredGraphs)

    @property
    def is_chain(self) -> bool:
        """Whether compiled loops do all graphs of a part at once (`program/graph_chain.py`)."""
        if not self._together or not self._recorded.keys() | self._engines.keys():
            return False
        engine = self.engine(self.parts[0])
        return isinstance(engine, LoweredGraphs) and engine.chain is not None

    def _rows_of_portions(self) -> Iterator[Tensor]:
        """The model's output, portion by portion; what was freed goes back to the system."""
        freed = FreedMemory(_KEPT_FREE)
        for part in self._portions():
            yield self.call(self._joined_graphs.take(part).data)
            freed.give_back()

    def _portions(self) -> Iterator[Tensor]:
        """The graphs that are asked about, in portions whose passes are small beside any budget of memory."""
        nodes, edges = self.sizes(torch.arange(len(self.index)))
        size = self.trace.output.element_size()
        needed = (nodes * self.trace.node_width * size + edges * self.edge_bytes).cpu().cumsum(0)
        begin, before = 0, 0
        while begin < len(self.index):
            fits = int(torch.searchsorted(needed, before + _PORTION, right=True))
            end = min(max(fits, begin + 1), begin + _GRAPHS_AT_ONCE)
            yield self.index[begin:end]
            begin, before = end, int(needed[end - 1])

    @property
    def joined_bytes(self) -> int:
        """What is held of the graphs besides the user's own."""
        held = self._joined_graphs.nbytes
        return 2 * held if held <= MOST_KEPT else 0

    def _few_agree(self, few: list[Data], alone: Tensor) -> bool:
        """Whether a few graphs get the same output together, in any order, as alone."""
        try:
            forwards, backwards = (self.call(side_by_side(part).data) for part in (few, few[::-1]))
        except ModelError:
            return False  # the model takes one graph at a time
        return close(forwards, alone) and close(backwards, alone.flip(0))

    def _run_alone(self, graph: Data) -> Tensor:
        row = self.call(side_by_side([graph]).data)
        if len(row) != 1:
            raise ModelError(
                f"The model gave {len(row)} rows for one graph; a graph task needs one. For a prediction per node, type "
                f"task='node'; otherwise pool with the batch argument."
            )
        return row

    def _give_up_batches(self) -> None:
        self._together = False
        warn_not_local("graphs in a batch change each other's output", "graph is run on its own")

    @property
    def together(self) -> bool:
        """Whether graphs may share a pass."""
        return self._together

    def copies(self, positions: Tensor) -> list[Copies]:
        """The graphs as one batch, or one after another."""
        chosen = self.index[positions]
        with self.loan.taken(), torch.no_grad():
            if self._together:
                copies = self._joined_graphs.take(chosen)
                if close(self.call(copies.data), self.target.truth[positions.to(self.device)]):
                    return [copies]
                self._give_up_batches()
            return [side_by_side([self.graphs[i]]) for i in chosen.tolist()]

    def plain_copies(self, positions: Tensor) -> list[Copies]:
        """The graphs as one batch where that is known to be right, otherwise one after another."""
        chosen = self.index[positions]
        if self._together and len(self.index) > 1:
            return [self._joined_graphs.take(chosen)]
        return [side_by_side([self.graphs[i]]) for i in chosen.tolist()]

    def engine(self, positions: Tensor) -> Engine:
        """A batch of graphs, lowered or not, or one graph after another."""
        chosen, key = self.index[positions], tuple(positions.tolist())
        if key in self._engines:
            return self._engines[key]
        if (
            not self._proved and self._together and len(key) > _PROVED
        ):  # a proof on many would take longer than the method
            self.engine(audited_positions(self))
        with self.borrowed():
            if self._together:
                trace, copies = self._recorded.pop(key) if key in self._recorded else self._record(chosen)
                if close(trace.output, self.target.truth[positions.to(self.device)]):
                    engine = CopiesEngine(self.weighted, copies)
                    lowered = self._lowered(trace, copies, engine)
                    if lowered is not None and self._keeps_engines:
                        self._engines[key] = lowered  # for the next method that is asked about the same graphs
                    return lowered or engine
                self._give_up_batches()
            parts = [CopiesEngine(self.weighted, side_by_side([self.graphs[i]])) for i in chosen.tolist()]
            return WholeGraphEngine(parts, same_graph=False)

    def _lowered(self, trace: Trace, copies: Copies, engine: CopiesEngine) -> Engine | None:
        """The lowered twin of an engine, if it gives the model's output; the first one also at random weights."""
        reasons: list[str] = []
        if self._runs_itself:
            return None
        lowered = lower_graphs(trace, copies, reasons)
        if lowered is None:
            self.not_lowered = "; ".join(reasons)
            return None
        with torch.no_grad():
            if not close(lowered.output_at_one(trace.output), trace.output):
                return None
            if self._proved:
                return lowered
            columns, nodes = (torch.arange(n, device=self.device) for n in (len(copies.edge_id), copies.data.num_nodes))
            weight, own = (random_weight(ids, self.num_layers, trace.output) for ids in (columns, nodes))
            same = close(lowered.output(weight[:, lowered.union_column], own), engine.output(weight, own))
        self._proved = same and len(columns) > 0  # without edges nothing is proved for those that have some
        return lowered if same else None
