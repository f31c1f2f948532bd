"""What is asked: a model, its graphs, the targets; and the way in which the model can be run for many of them."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from edgewise import randomness
from edgewise.engine import CopiesEngine, Engine, OneByOneEngine
from edgewise.errors import InputError, LocalityWarning, ModelError, SettingError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies, neighbourhoods, side_by_side, whole_graph
from edgewise.graph.inputs import TASKS, check_devices, read_graph, read_graphs, read_index
from edgewise.lowering.lowering import Lowering, lower_graphs, lower_nodes
from edgewise.model.borrow import borrowed
from edgewise.model.call import Forward, ModelCall, check_model
from edgewise.model.trace import record
from edgewise.model.weighted import WeightedGraph, WeightedModel
from edgewise.target import Target, choose_target

# Layers that read only the receiver's own in-edges; any other may read the degree of a sender, one hop further (GCN does).
_READ_RECEIVERS_ONLY = (
    pyg.SAGEConv,
    pyg.GraphConv,
    pyg.GINConv,
    pyg.GINEConv,
    pyg.GATConv,
    pyg.GATv2Conv,
    pyg.TransformerConv,
    pyg.PNAConv,
)
log = logging.getLogger("edgewise")
_PROBE_SEED = 20250803
_FEW = 4


class Problem:
    """The question, checked; `engine(positions)` answers how to run the model for some of the targets at once."""

    def __init__(
        self,
        model: Any,
        data: Any,
        index: Any,
        *,
        target: Any,
        task: str,
        mode: str | None,
        of: str,
        forward: Forward | None,
        device: Any,
    ) -> None:
        if task not in TASKS:
            raise SettingError(f"task is {task!r}; known are {', '.join(TASKS)}.")
        self.layers = check_model(model)
        self.task = task
        self.many_graphs = task == "graph" and not isinstance(data, Data)
        self.graphs = read_graphs(data) if task == "graph" else [read_graph(_one(data))]
        size = len(self.graphs) if task == "graph" else self.graphs[0].num_nodes
        self.index, single = read_index(index, size, task)
        self.single = single or (task == "graph" and not self.many_graphs)
        self._sources = [graph.edge_index for graph in self.graphs]
        if device is not None:
            model, self.graphs = _moved(model, self.graphs, device)
            self.layers = check_model(model)
        check_devices(model, self.graphs[0])
        self.call = ModelCall(model, forward)
        self.device = self.graphs[0].edge_index.device
        self._borrows = 0
        with self.borrowed():
            self._look(target, mode, of)

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """The model, ours for a while; calls may nest."""
        self._borrows += 1
        try:
            if self._borrows > 1:
                yield
            else:
                with borrowed(self.call.model):
                    yield
        finally:
            self._borrows -= 1

    def _look(self, target: Any, mode: str | None, of: str) -> None:
        """Run the model once, and learn its calls, its outputs and whether copies may share a pass."""
        first = self.graphs[0] if self.task == "node" else side_by_side([self.graphs[int(self.index[0])]]).data
        self.trace = record(self.call, self.layers, _with_own_x(first))
        self.weighted = WeightedModel(self.call, self.layers, self.trace)
        self.num_layers = len(self.trace.calls)
        self._together = True
        self.lowering: Lowering | None = None
        truth = self._node_truth() if self.task == "node" else self._graph_truth()
        self.target = choose_target(truth, target, mode, of)

    # --- node tasks ---------------------------------------------------------------------------------------------------

    def _node_truth(self) -> Tensor:
        graph = self.graphs[0]
        if len(self.trace.output) != graph.num_nodes:
            raise ModelError(
                f"The model gave {len(self.trace.output)} rows for {graph.num_nodes} nodes; a node task needs a "
                f"row for each node. For one prediction per graph, type task='graph'."
            )
        flow = self.trace.flow
        self.in_edges = InEdges.of(graph.edge_index, graph.num_nodes, flow or "source_to_target")
        known = all(isinstance(call.module, _READ_RECEIVERS_ONLY) for call in self.trace.calls)
        self.rim = 0 if known else 1
        self._whole = WeightedGraph(_with_own_x(graph))
        if flow is None:
            self._give_up_copies("its layers send messages in both directions")
        self.lowering = lower_nodes(self.trace, graph, self.in_edges)
        if self.lowering is not None and not self._lowering_is_true(self.lowering):
            log.debug("not lowered: the program does not reproduce the model's output")
            self.lowering = None
        return self.trace.output[self.index.to(self.device)]

    def _lowering_is_true(self, lowering: Lowering) -> bool:
        """Whether the program gives the model's output for every node, at ω = 1 and at random ω and s."""
        ones = self.trace.output.new_ones(self.num_layers, self.graphs[0].edge_index.size(1))
        lowering.known = lowering.run_all(ones)
        if not _close(lowering.known[lowering.program.output], self.trace.output):
            return False
        edges, nodes = (
            torch.arange(ones.size(1), device=self.device),
            torch.arange(self.graphs[0].num_nodes, device=self.device),
        )
        random = lowering.run_all(self._random_weight(edges), self._random_weight(nodes))
        return _close(random[lowering.program.output], self._probe())

    def _probe(self) -> Tensor:
        """The model's output at random weights, to compare copies with: a dead ReLU hides nothing there."""
        if not hasattr(self, "_probe_output"):
            graph = self.graphs[0]
            edges, nodes = (torch.arange(n, device=self.device) for n in (graph.edge_index.size(1), graph.num_nodes))
            with torch.no_grad():
                self._probe_output = self.weighted(self._whole, self._random_weight(edges), self._random_weight(nodes))
        return self._probe_output

    def _random_weight(self, ids: Tensor) -> Tensor:
        layer = torch.arange(self.num_layers, device=self.device).view(-1, 1)
        return randomness.uniform(_PROBE_SEED, layer, ids).to(self.trace.output.dtype)

    def _copies_are_true(self, engine: CopiesEngine, positions: Tensor) -> bool:
        """Whether every copy gives its target's true output, at ω = 1 and at random ω."""
        rows = self.index[positions].to(self.device)
        try:
            with torch.no_grad():
                ones = self.trace.output.new_ones(self.num_layers, engine.edge_id.numel())
                plain = engine.output(ones)
                random = engine.output(self._random_weight(engine.edge_id), self._random_weight(engine.self_node))
        except ModelError:
            return False  # the model raises on the copies: whole graph
        return _close(plain, self.trace.output[rows]) and _close(random, self._probe()[rows])

    def _node_engine(self, positions: Tensor) -> Engine:
        targets = self.index[positions].to(self.device)
        if self.lowering is not None:
            return self.lowering.engine(targets)
        if self._together:
            copies = neighbourhoods(self.graphs[0], self.in_edges, targets, self.num_layers, rim=self.rim)
            engine = CopiesEngine(self.weighted, copies)
            if self._copies_are_true(engine, positions):
                return engine
            self._check_repeatable()
            self._give_up_copies("a copy of a target's neighbourhood does not give its true output")
        parts = [
            CopiesEngine(self.weighted, whole_graph(self.graphs[0], self.in_edges, t, self.num_layers), self._whole)
            for t in targets.tolist()
        ]
        return OneByOneEngine(parts, same_graph=True)

    def _check_repeatable(self) -> None:
        with torch.no_grad():
            again = self.call(_with_own_x(self.graphs[0]))
        if not _close(again, self.trace.output):
            raise ModelError(
                "The model gives another output on the same input each time, although it is in eval mode. Does "
                "forward draw random numbers, such as dropout with training=True? It must be repeatable."
            )

    def _give_up_copies(self, why: str) -> None:
        self._together = False
        what = "target is explained on the whole graph" if self.task == "node" else "graph is run on its own"
        warnings.warn(
            f"The model is not local ({why}), so every {what}: slower and right.", LocalityWarning, stacklevel=2
        )

    # --- graph tasks --------------------------------------------------------------------------------------------------

    def _graph_truth(self) -> Tensor:
        chosen = [self.graphs[i] for i in self.index.tolist()]
        with torch.no_grad():
            alone = torch.cat([self._run_alone(graph) for graph in chosen[:_FEW]])
            if len(chosen) == 1:
                return alone
            try:
                few = self.call(side_by_side(chosen[:_FEW]).data)
                if _close(few, alone) and _close(self.call(side_by_side(chosen[:_FEW][::-1]).data), alone.flip(0)):
                    return torch.cat(
                        [self.call(side_by_side(chosen[i : i + 512]).data) for i in range(0, len(chosen), 512)]
                    )
            except ModelError:
                pass  # the model takes one graph at a time
            self._give_up_copies("graphs in a batch change each other's output")
            return torch.cat([alone, *(self._run_alone(graph) for graph in chosen[_FEW:])])

    def _run_alone(self, graph: Data) -> Tensor:
        row = self.call(side_by_side([graph]).data)
        if len(row) != 1:
            raise ModelError(
                f"The model gave {len(row)} rows for one graph; a graph task needs one. For a prediction per "
                f"node, type task='node'; otherwise pool with the batch argument."
            )
        return row

    def _graph_engine(self, positions: Tensor) -> Engine:
        graphs = [self.graphs[i] for i in self.index[positions].tolist()]
        if self._together:
            copies = side_by_side(graphs)
            engine = CopiesEngine(self.weighted, copies)
            with torch.no_grad():
                plain = engine.output(self.trace.output.new_ones(self.num_layers, engine.edge_id.numel()))
            if _close(plain, self.target.truth[positions.to(self.device)]):
                return self._lowered_graphs(copies, engine) or engine
            self._give_up_copies("graphs in a batch change each other's output")
        return OneByOneEngine(
            [CopiesEngine(self.weighted, side_by_side([graph])) for graph in graphs], same_graph=False
        )

    def _lowered_graphs(self, copies: Copies, engine: CopiesEngine) -> Engine | None:
        """The lowered twin of an engine, if it gives the same at random weights."""
        trace = record(self.call, self.layers, copies.data)
        lowered = lower_graphs(trace, copies.data, copies.self_owner, copies.num_targets)
        if lowered is None:
            return None
        with torch.no_grad():
            own = self._random_weight(torch.arange(copies.data.num_nodes, device=self.device))
            by_column = self._random_weight(torch.arange(len(copies.edge_id), device=self.device))
            same = _close(lowered.output(by_column[:, lowered.edge_id], own), engine.output(by_column, own))
        return lowered if same else None

    # ------------------------------------------------------------------------------------------------------------------

    def engine(self, positions: Tensor) -> Engine:
        """How to run the model for the targets at some positions of `index`."""
        with self.borrowed():
            return self._node_engine(positions) if self.task == "node" else self._graph_engine(positions)

    def graph_of(self, position: int) -> Data:
        """The graph in which a target lives."""
        return self.graphs[0] if self.task == "node" else self.graphs[int(self.index[position])]

    def source_edge_index(self, position: int) -> Tensor:
        """The `edge_index` of a target's graph, as the user gave it."""
        return self._sources[0 if self.task == "node" else int(self.index[position])]

    @property
    def separable(self) -> list[bool]:
        """Per call: whether a self edge can be scored."""
        return [call.separable for call in self.trace.calls]


def _one(data: Any) -> Any:
    if isinstance(data, (list, tuple)) and len(data) and isinstance(data[0], Data):
        raise InputError(
            f"data is a list of {len(data)} graphs; a node task explains nodes of one graph. Pass data[0], or "
            f"type task='graph'."
        )
    return data


def _with_own_x(graph: Data) -> Data:
    """The graph with a copy of its features, for models that change their input in place."""
    own = copy.copy(graph)
    own.x = graph.x.detach().clone()
    return own


def _moved(model: Any, graphs: list[Data], device: Any) -> tuple[Any, list[Data]]:
    try:
        device = torch.device(device)
        if all(t.device == device for t in [*model.parameters(), *model.buffers()]):
            return model, [copy.copy(graph).to(device) for graph in graphs]
        return copy.deepcopy(model).to(device), [copy.copy(graph).to(device) for graph in graphs]
    except (RuntimeError, AssertionError) as error:
        raise SettingError(
            f"device is {device!r}, which is not available: {error}. Leave it out, or type device='cpu'."
        ) from error


def _close(found: Tensor, true: Tensor) -> bool:
    if found.shape != true.shape:
        return False
    tolerance = 1e-9 if true.dtype == torch.float64 else 1e-4
    scale = true.abs().max().clamp(min=1e-30) if true.numel() else 1.0
    return bool(((found - true).abs() <= tolerance * scale).all())


def sub_target(problem: Problem, positions: Tensor) -> Target:
    """The questions at some positions."""
    return problem.target.select(positions.to(problem.device))
