"""Questions about nodes of one graph: cut first, then recorded, lowered and proved on the cut."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.engines import Engine
from edgewise.errors import InputError, ModelError, StaleQuestionError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies
from edgewise.graph.cut import Cut, columns_into, cut_out, cut_tiny, first_strangers, whole, worth_cutting
from edgewise.graph.inputs import check_one_graph, check_values, read_structure, with_count
from edgewise.graph.sample import seeds
from edgewise.model.contents import same_tensor
from edgewise.pyg_internals import plain
from edgewise.question.equality import warn_not_local
from edgewise.question.known_model import Carried, Known, reads_further, rim_of
from edgewise.question.labels import read_labels, sample
from edgewise.question.locality import (
    LARGEST_PASS,
    LARGEST_UNKNOWN,
    confirmed,
    is_proved,
    not_confirmed,
    pass_bytes,
    warn_of_sizes,
)
from edgewise.question.node_model import OTHER_NODES, NodeModel
from edgewise.question.posed_question import Asked, PosedQuestion
from edgewise.question.subject import DataMark, EdgeCount, Subject, on_device
from edgewise.question.target import choose_target, read_index

_NOT_ON_A_PART = "it does not run on a part of the graph"
_FEW = 16
"""Targets of a whole graph for which only what they depend on is run."""


class NodeQuestion(PosedQuestion):
    """Nodes of one graph."""

    task = "node"
    in_one_graph = True
    _engine: tuple[int, Engine] | None = None
    _counts: tuple[Tensor, Tensor] | None = None
    _edges: EdgeCount | None = None
    """The user's edges, if they are in memory."""
    _cuts = True
    """Whether the model runs on a part of the graph."""
    _both_ways = False
    """Whether messages turned out to run both ways where the first look saw one."""

    def __init__(self, model: Any, data: Any, index: Any, asked: Asked, subject: Subject | None = None) -> None:
        """`subject` is what another question has of the same model; it is called as this one asks."""
        check_one_graph(data, "node")
        self.asked, self._data = asked, data
        structure = read_structure(data)
        index = seeds(data) if index is None else index
        self.index, self.single = read_index(index, self._num_targets(structure.num_nodes), "node")
        (self._graph,) = on_device([structure], asked.device)
        self._kept = {}
        self._edges = EdgeCount(data.edge_index)
        self._sources = [data.edge_index if type(data.edge_index) is Tensor else structure.edge_index]
        if asked.held and worth_cutting(self._graph):
            self._copied(0)
        graph = self._graph
        self._grouped: list[InEdges] = []  # shared by all questions that `of` makes of this one, as is the output
        self._true_output: list[Tensor] = []
        self._received: Tensor | None = None
        self.subject = self._recorded(model, self._tiny() if worth_cutting(graph) else None, subject)
        self._graph = self.subject.carrying(graph)
        self._cut_and_prove(None)
        self._choose()

    def _recorded(self, model: Any, tiny: Cut | None, known: Subject | None) -> Subject:
        """The subject, recorded on a tiny cut; a model that does not run there wants all nodes at once."""
        if tiny is not None:
            check_values(tiny.data)
            try:
                return Subject.asked_about(model, self.asked, tiny.data, known, tiny, may_be_proved=True)
            except ModelError:
                if self._graph.edge_index.size(1) > LARGEST_UNKNOWN:
                    raise
        self._cuts = tiny is None
        check_values(self._graph)
        found = Subject.asked_about(model, self.asked, self._graph, known, may_be_proved=True)
        if tiny is not None:
            warn_not_local(_NOT_ON_A_PART, "target is explained on the whole graph")
        return found

    def of(self, index: Any, target: Any = None) -> "NodeQuestion":
        """The same question about other nodes; on the whole graph nothing has to be run again."""
        self._sampled = self.sampled() if self.cut.is_whole else None  # of a cut graph all of it is not compared
        if not self.cut.is_whole:
            _ = self._carried  # found once, for all questions that are made of this one
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._engine = None
        other.asked = replace(self.asked, target=target)
        other.forget_audits()
        index = seeds(self._data) if index is None else index
        other.index, other.single = read_index(index, self._num_targets(self.cut.num_nodes), "node")
        if self.cut.is_whole:
            self.node_model.prove_everywhere()
        else:
            other._cut_and_prove(replace(self.node_model.known, carried=self._carried))
        other._choose()
        return other

    @cached_property
    def _carried(self) -> Carried | None:
        """What cuts around other nodes may take over, where the program was proved to be the model's everywhere."""
        return self.node_model.carried() if self.locality == "proved" and self.types is None else None

    def uncut(self) -> "NodeQuestion":
        """The same question, run on the whole graph."""
        if self.cut.is_whole:
            return self
        check_values(self._graph)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._engine, other.cut, other.locality = None, whole(self._graph), "whole graph"
        asked = (self.asked.output, self.asked.mode)
        other.node_model = NodeModel(self.subject, self._graph, asked, self.node_model.known)
        other._read_off()
        other._choose()
        return other

    def on_whole_graphs(self) -> "NodeQuestion":
        """The same question without programs and neighbourhoods."""
        other = object.__new__(type(self))
        other.__dict__.update(self.uncut().__dict__)
        other.node_model = other.node_model.without_program()
        other.node_model.local, other._engine = False, None
        other.forget_audits()
        other._read_off()
        return other

    def through_model(self) -> "NodeQuestion | None":
        """The same question without its program."""
        if self.lowering is None:
            return None
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.node_model = self.node_model.without_program()
        other._engine = None
        other.forget_audits()
        other._read_off()
        return other

    def check_fresh(self) -> None:
        """Refuse if the model, or the data of the cut, have changed since."""
        self.subject.check_fresh()
        what = self._mark.changed([with_count(self._data, self.cut.num_nodes)])
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def check_basis(self) -> None:
        """The model, and of a graph that is cut its edges: features are read anew with the next cut."""
        if self.cut.is_whole or self.types is not None:
            self.check_fresh()
            return
        self.subject.check_fresh()
        self.check_edges(self._data.edge_index)

    def check_edges(self, edge_index: Any) -> None:
        """Refuse if the edges have changed, by torch's own count, and where results have a copy of them by what they are."""
        copied = self._kept.get(0)
        is_same = self._edges is None or self._edges.is_same(edge_index)
        if not is_same or (copied is not None and not same_tensor(copied, plain(edge_index))):
            raise StaleQuestionError(
                "The data have changed since the question was asked: data.edge_index. Ask again: ew.Question(model, data, …)."
            )

    def _num_targets(self, num_nodes: int) -> int:
        """How many nodes may be asked about: of a typed graph those of the explained type, which come first."""
        return num_nodes if self.types is None else len(self.types.node_range(self.types.explained))

    # --- the cut ------------------------------------------------------------------------------------------------------

    def _cut_and_prove(self, known: Known | None) -> None:
        self.cut = self._find_cut()
        if known is None or not self.cut.is_whole:
            check_values(self.cut.data)
        self._mark = self._marked()
        asked = (self.asked.output, self.asked.mode)
        few = not self.cut.is_whole or self.index.numel() <= _FEW
        targets = self.cut.places(self.index.to(self.cut.data.edge_index.device)).unique() if few else None
        try:
            self.node_model = NodeModel(
                self.subject, self.cut.data, asked, known, targets, is_part=not self.cut.is_whole
            )
        except ModelError:  # perhaps only because a row is not there
            if self.cut.is_whole or not self._is_affordable():
                raise
            self._run_whole(_NOT_ON_A_PART)
        if self.cut.is_whole:
            self.locality = "whole graph"
        elif known is None:
            self._check_locality()
        elif self.node_model.lowering is None and known.is_lowered:
            raise ModelError(OTHER_NODES)
        elif self.locality == "confirmed" or (self.locality == "proved" and self.node_model.program is None):
            self._confirm()  # these targets may see further than those before
        self._read_off()

    def _marked(self) -> Any:
        """What the data of the cut is, to see later whether it has changed."""
        return DataMark([with_count(self._data, self.cut.num_nodes)], self.cut, held=self.asked.held)

    def _tiny(self) -> Cut:
        """A few columns, to find depth and rim on."""
        receiver = self._graph.edge_index[1]
        marked = torch.zeros(self._graph.num_nodes, dtype=torch.bool, device=receiver.device)
        marked[self.index.to(receiver.device)] = True
        self._received = columns_into(marked, receiver)
        return cut_tiny(self._graph, self.index[:1].to(receiver.device), self._received, self._strangers())

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """A few nodes and columns that are shown to the model, whoever is asked about."""
        return first_strangers(self._graph)

    def _find_cut(self) -> Cut:
        graph = self._graph
        if not self._cuts or not worth_cutting(graph):
            return whole(graph)
        targets = self.index.to(graph.edge_index.device)
        first = self.subject.first
        rim = rim_of(first) if self.types is None or not rim_of(first) else "nodes"  # a far node has one type
        if hasattr(self, "locality") and not self._grouped:
            self._grouped.append(InEdges.of(graph.edge_index.cpu(), graph.num_nodes, self._flow))  # pays from now on
        in_edges = self._grouped[0] if self._grouped else None
        received, self._received = self._received, None
        return cut_out(graph, targets, first.num_layers, flow=self._flow, rim=rim, in_edges=in_edges, received=received)

    @property
    def _flow(self) -> str | None:
        """The direction in which hops follow edges; None: both."""
        return None if self._both_ways else self.subject.first.flow

    def _check_locality(self) -> None:
        """Local by proof, or by one pass over the whole graph; a model that is not local is run on the whole graph."""
        if (
            self._flow is not None and self.node_model.trace.flow != self._flow
        ):  # the first look had no edges to show it
            self._both_ways = True
            self._cut_and_prove(None)
        else:
            proved = is_proved(self.node_model, self.subject.first, self.subject.example)
            if proved and not self.subject.first.reads_sizes:
                self.locality = "proved"
            else:
                self._confirm(proved=proved)

    def _confirm(self, *, proved: bool = False) -> None:
        """Local for these targets by one pass over the whole graph, or else run on the whole graph.

        What is proved but for a look at the number of rows is confirmed where that can be done.
        """
        graph = self.confirming_graph(proved=proved)
        if graph is None:
            self.locality = "proved"
            return
        if reads_further(self.node_model.trace) and self.node_model.lowering is None:
            self.locality = ""
        else:
            self.locality = confirmed(self.node_model, graph, self.cut, self.index, self._true_output)
        if not self.locality:
            self._run_whole("what lies outside a neighbourhood changes the output")

    def _is_affordable(self) -> bool:
        """Whether a model may be run on the whole graph although nothing is known of it."""
        return self._graph.edge_index.size(1) <= LARGEST_UNKNOWN

    def _run_whole(self, why: str) -> None:
        """On the whole graph instead of the cut."""
        check_values(self._graph)
        found = whole(self._graph)
        model = NodeModel(self.subject, self._graph, (self.asked.output, self.asked.mode))
        warn_not_local(why, "target is explained on the whole graph")
        self.cut, self.node_model, self.locality = found, model, "whole graph"
        self._mark = self._marked()

    def confirming_graph(self, *, proved: bool) -> Data | None:
        """The whole graph for a pass that confirms; too large a one is None where all else is proved, and refused otherwise."""
        limit = LARGEST_PASS if self.asked.memory is None else self.asked.memory
        if pass_bytes(self.node_model, self._graph.edge_index.size(1)) <= limit:
            return self._graph
        if not proved:
            raise not_confirmed(self.node_model, self._graph.edge_index.size(1))
        warn_of_sizes()
        return None

    def _read_off(self) -> None:
        model = self.node_model
        self.graphs, self.trace, self.output = [self.cut.data], model.trace, model.output
        self.call, self.layers, self.num_layers = model.call, model.layers, model.num_layers
        self.device, self.lowering, self.audit = model.device, model.lowering, model.audit
        self.not_lowered = "; ".join(model.not_lowered)

    def _choose(self) -> None:
        rows = self.trace.output[self.places(torch.arange(len(self.index)))]
        asked = self.asked
        self.target = choose_target(
            rows, asked.target, asked.mode, asked.of, self.output.lost, several=self.output.several
        )
        self._check_mode()

    # --- what is asked of a question ----------------------------------------------------------------------------------

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of nodes: `data.y`."""
        return labels_of_nodes(self._data, self._num_targets(self.cut.num_nodes), index, self.target.truth.size(1))

    def _given_labels(self) -> Any:
        return self._data.get("y")

    def _forget_runs(self) -> None:
        self._engine = None

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the one graph."""
        if self._counts is None:
            counts = torch.tensor([self.cut.num_nodes, self.cut.num_edges], device=self.device)
            self._counts = counts[:1], counts[1:]
        return self._counts

    def result_graphs(self) -> Sequence[tuple[Tensor, int]]:
        """The one graph."""
        return ((self.kept_edge_index(0), self.cut.num_nodes),)

    @property
    def hops(self) -> int | None:
        """The number of layers, if the model is local; found out for one target, if no method has run yet."""
        model = self.node_model
        if model.lowering is None and model.local and not model.is_tried:
            model.copies(self.places(torch.zeros(1, dtype=torch.long)))
        return self.num_layers if self.node_model.local else None

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the user's graph."""
        return self.cut.columns(local)

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the user's graph."""
        return self.cut.nodes(local)

    def local_nodes(self, nodes: Tensor) -> Tensor:
        """Nodes of the cut; a node that cannot reach the target is refused."""
        everyone = self.cut.nodes(torch.arange(self.cut.data.num_nodes, device=nodes.device))
        outside = ~torch.isin(nodes, everyone)
        if bool(outside.any()):
            raise InputError(
                f"Node {int(nodes[outside][0])} is more than {self.num_layers} hops from the explained nodes, so no walk leads "
                f"from it to them."
            )
        return self.cut.places(nodes)

    def places(self, positions: Tensor) -> Tensor:
        """Targets as nodes of the cut."""
        return self.cut.places(self.index[positions].to(self.device))

    def copies(self, positions: Tensor) -> list[Copies]:
        """Neighbourhoods side by side, or the whole graph for each target; columns are those of the cut."""
        with self.loan.taken():
            return self.node_model.copies(self.places(positions))

    def whole_copies(self, positions: Tensor) -> list[Copies]:
        """The whole cut for each target."""
        return self.node_model.wholes(self.places(positions))

    def audited_copies(self, positions: Tensor) -> list[Copies]:
        """The cut itself, once for all targets; of a few targets their neighbourhoods."""
        if len(positions) <= _FEW:
            return self.plain_copies(positions)
        return [replace(self.whole_copies(positions[:1])[0], rows=self.places(positions))]

    def plain_copies(self, positions: Tensor) -> list[Copies]:
        """The same without a look whether every copy gives its target's output."""
        return self.node_model.plain_copies(self.places(positions))

    def engine(self, positions: Tensor) -> Engine:
        """Copies of neighbourhoods, lowered or not, or the whole graph; columns and nodes are the user's.

        The engine of a single target is kept: first the audit asks for it, then the method.
        """
        single = int(positions[0]) if positions.numel() == 1 else None
        if single is not None and self._engine is not None and self._engine[0] == single:
            return self._engine[1]
        with self.borrowed():
            engine = self.node_model.engine(self.places(positions))
        engine.edge_id, engine.self_node = self.columns(engine.edge_id), self.nodes(engine.self_node)
        if single is not None:
            self._engine = (single, engine)
        return engine


def labels_of_nodes(store: Any, count: int, index: Tensor | None, width: int) -> Tensor | None:
    """The labels of some of so many nodes, for so many columns; None: of all, or from everywhere."""
    y = read_labels(store.get("y"), count, width)
    return None if y is None else y[(sample(count) if index is None else index).to(y.device)].cpu()
