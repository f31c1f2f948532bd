"""Questions about whole graphs."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from edgewise.engines import CopiesEngine, Engine, WholeGraphEngine
from edgewise.errors import ModelError
from edgewise.graph.copies import Copies, JoinedGraphs, side_by_side
from edgewise.graph.inputs import read_graphs, read_index
from edgewise.graph.stores import attributes
from edgewise.model.borrow import Loan
from edgewise.model.call import ModelCall, check_model, takes_data
from edgewise.model.trace import Trace, record
from edgewise.model.weighted_model import WeightedModel
from edgewise.program.lowering import lower_graphs
from edgewise.question.proof import NOT_REPEATABLE, Fingerprint, close, keep, random_weight, recall, warn_not_local
from edgewise.question.question import Question, placed
from edgewise.question.target import choose_target

_FEW = 4
_GRAPHS_AT_ONCE = 512
_FEW_ENOUGH = 2**20  # nodes and edges of which engines are kept


class GraphQuestion(Question):
    """Whole graphs, a target each."""

    task = "graph"

    def __init__(
        self, model: Any, data: Any, index: Any, forward: Any, device: Any, asked: tuple[Any, Any, str]
    ) -> None:
        watched = isinstance(model, nn.Module) and forward is None and isinstance(data, (list, tuple))
        watched = watched and all(type(graph) is Data for graph in data)
        mark = Fingerprint(model, list(data), device) if watched else None
        kept = recall(mark)
        if isinstance(kept, GraphQuestion) and self._resume(kept, index, asked):
            return
        self._start(model, data, index, forward, device)
        self.target = choose_target(self._run_all(), *asked)
        keep(mark, self, int(self._shelf.counts.sum()) * self.trace.node_width)

    def _resume(self, kept: "GraphQuestion", index: Any, asked: tuple[Any, Any, str]) -> bool:
        """Take over what the last question about the same graphs found out, if it was about all that is asked now."""
        chosen, single = read_index(index, len(kept.graphs), "graph")
        if not torch.equal(chosen, kept.index):
            return False
        self.__dict__.update(kept.__dict__)
        self.single = single
        if not self._together:
            self._give_up_batches()
        self.target = choose_target(kept.target.truth, *asked)
        return True

    def _start(self, model: Any, data: Any, index: Any, forward: Any, device: Any) -> None:
        layers = check_model(model)
        self.graphs = read_graphs(data)
        self.index, single = read_index(index, len(self.graphs), "graph")
        self.single = single or (isinstance(data, Data) and not isinstance(data, Batch))
        self._sources = [attributes(graph)["edge_index"] for graph in self.graphs]
        model, layers, self.graphs = placed(model, layers, self.graphs, device)
        self.call, self.layers, self.loan = ModelCall(model, forward), layers, Loan(model)
        self.device = self.graphs[0].edge_index.device
        self._together, self._proved = True, False
        self._engines: dict[tuple[int, ...], Engine] = {}
        self._shelf = JoinedGraphs(self.graphs, simple=forward is None and not takes_data(model))

    def _run_all(self) -> Tensor:
        """Learn the model's calls, and its output for every graph."""
        with self.borrowed():
            first = side_by_side([self.graphs[int(self.index[0])]]).data
            self.trace = record(self.call, self.layers, first).without_tensors()
            self.call = replace(self.call, changes_input=self.trace.changes_input)
            self.weighted = WeightedModel(self.call, self.layers, self.trace)
            self.num_layers = len(self.trace.calls)
            return self._truth()

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the graph of each target."""
        nodes, edges = self._shelf.counts[self.index[positions]].to(self.device).unbind(1)
        return nodes, edges

    def _truth(self) -> Tensor:
        """The model's output for every graph, and whether graphs may share a pass."""
        few = [self.graphs[i] for i in self.index[:_FEW].tolist()]
        with torch.no_grad():
            alone = torch.cat([self._run_alone(graph) for graph in few])
            if len(self.index) == 1:
                return alone
            if self._few_agree(few, alone):
                return torch.cat([self.call(self._shelf.take(part).data) for part in self.index.split(_GRAPHS_AT_ONCE)])
            if not close(self._run_alone(few[0]), alone[:1]):
                raise ModelError(NOT_REPEATABLE)
            self._give_up_batches()
            return torch.cat([alone, *(self._run_alone(self.graphs[i]) for i in self.index[_FEW:].tolist())])

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
                copies = self._shelf.take(chosen)
                if close(self.call(copies.data), self.target.truth[positions.to(self.device)]):
                    return [copies]
                self._give_up_batches()
            return [side_by_side([self.graphs[i]]) for i in chosen.tolist()]

    def engine(self, positions: Tensor) -> Engine:
        """A batch of graphs, lowered or not, or one graph after another."""
        chosen, key = self.index[positions], tuple(positions.tolist())
        if key in self._engines:
            return self._engines[key]
        with self.borrowed():
            if self._together:
                copies = self._shelf.take(chosen)
                trace = record(self.call, self.layers, copies.data)
                if close(trace.output, self.target.truth[positions.to(self.device)]):
                    engine = CopiesEngine(self.weighted, copies)
                    lowered = self._lowered(trace, copies, engine)
                    if lowered is not None and int(self._shelf.counts.sum()) < _FEW_ENOUGH:
                        self._engines[key] = lowered  # for the next method that is asked about the same graphs
                    return lowered or engine
                self._give_up_batches()
            parts = [CopiesEngine(self.weighted, side_by_side([self.graphs[i]])) for i in chosen.tolist()]
            return WholeGraphEngine(parts, same_graph=False)

    def _lowered(self, trace: Trace, copies: Copies, engine: CopiesEngine) -> Engine | None:
        """The lowered twin of an engine, if it gives the model's output; the first one also at random weights."""
        lowered = lower_graphs(trace, copies)
        if lowered is None:
            return None
        with torch.no_grad():
            if not close(lowered.output(trace.output.new_ones(self.num_layers, len(copies.edge_id))), trace.output):
                return None
            if self._proved:
                return lowered
            columns, nodes = (torch.arange(n, device=self.device) for n in (len(copies.edge_id), copies.data.num_nodes))
            weight, own = (random_weight(ids, self.num_layers, trace.output) for ids in (columns, nodes))
            same = close(lowered.output(weight[:, lowered.union_column], own), engine.output(weight, own))
        self._proved = same and len(columns) > 0  # without edges nothing is proved for those that have some
        return lowered if same else None
