"""Questions about nodes of a graph that is not in memory: what they can see is asked of a source, and nothing else is read."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import StaleQuestionError
from edgewise.graph.cut import Cut
from edgewise.graph.inputs import check_values
from edgewise.graph.neighbour_sample import Bounds
from edgewise.graph.source import GraphSource, cut_from, tiny_cut
from edgewise.program.transfer import Degrees, Transfer, with_degrees
from edgewise.question.known_model import rim_of
from edgewise.question.locality import not_confirmed, warn_of_sizes
from edgewise.question.moved_model import MovedModel
from edgewise.question.node_model import NodeModel
from edgewise.question.node_question import NodeQuestion
from edgewise.question.posed_question import Asked
from edgewise.question.stored_results import StoredResults
from edgewise.question.subject import Subject, on_device
from edgewise.question.target import read_index

_STRANGERS, _TINY = 5, 48
SAMPLED = "sampled"
"""The setting that says which targets were explained on a sample of their neighbourhood, by number, and what it left out."""
_SMALL = 2**26
"""Bytes of a graph that is read as a whole where a model is not known to be local."""


class SourceMark:
    """What a source was when it was asked; in the place of a `DataMark`."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source

    def changed(self, _graphs: list[Any]) -> str:
        """What is another one now; empty if nothing is."""
        return self._source.changed()


class SourceQuestion(StoredResults, NodeQuestion):
    """Nodes of a graph that hands out cuts. Numbers of nodes and columns are those of the whole graph."""

    bounds: Bounds | None = None
    """How large a neighbourhood may be, and how it is sampled; None: all of it, whatever its size."""

    def __init__(
        self, model: Any, source: GraphSource, index: Any, asked: Asked, subject: Subject | None = None
    ) -> None:
        self.asked, self.source, self._data = asked, source, source.data
        self.index, self.single = read_index(index, self._num_targets(source.num_nodes), "node")
        self._kept, self._true_output, self.bounds = {}, [], asked.bounds
        tiny = self._moved(tiny_cut(source, self.index, _TINY, self._strangers()))
        check_values(tiny.data)
        self.subject = Subject.asked_about(model, asked, tiny.data, subject, tiny)
        self._cut_and_prove(None)
        self._choose()

    def of(self, index: Any, target: Any = None) -> "SourceQuestion":
        """The same question about other nodes."""
        other = self._other(index, target)
        other.forget_audits()
        if self.cut.is_whole:
            self.node_model.prove_everywhere()
        else:
            other._cut_and_prove(self.node_model.known)
        other._choose()
        return other

    def moved(self, index: Any, target: Any = None, *, compared: bool = True) -> "SourceQuestion":
        """The same by the program that was proved, where it can be carried over: several times as fast as `of`.

        With `compared` the user's own model is run around these nodes, too, and must give the same values; without, it is not
        run. Where the program cannot be carried over this is `of`.
        """
        transfer = self._transfer
        if transfer is None:
            return self.of(index, target)
        other = self._other(index, target)
        if not other._carry_over(transfer, self.node_model, compared=compared):
            return self.of(index, target)
        other._choose()
        return other

    def within(self, bounds: Bounds | None) -> "SourceQuestion":
        """The same question, whose neighbourhoods have bounds from now on."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.bounds = bounds
        return other

    @property
    def message_bytes(self) -> int:
        """Of the widest message."""
        return max(call.message_width for call in self.trace.calls) * self.trace.output.element_size()

    @property
    def recorded_bytes(self) -> int:
        """Of the messages of an edge in all layers, which a pass that is recorded keeps."""
        first = self.subject.first
        return sum(call.message_width for call in first.calls) * first.output.element_size()

    @property
    def notes(self) -> dict[str, Any]:
        """With what a sample left out, by target."""
        if not self.cut.left_out:
            return super().notes
        told = f"{self.cut.left_out} edges were left out; {self.cut.data.edge_index.size(1)} are in the sample"
        return {**super().notes, SAMPLED: {str(int(one)): told for one in self.index}}

    def _other(self, index: Any, target: Any) -> "SourceQuestion":
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._engine = None
        other.asked, other._slope = replace(self.asked, target=target), self.slope_problem()
        other.index, other.single = read_index(index, self._num_targets(self.source.num_nodes), "node")
        return other

    @cached_property
    def _transfer(self) -> Transfer | None:
        """How the program is carried over to other cuts; None if it is not, or does not give again what was recorded here."""
        model, source = self.node_model, self.source
        if model.lowering is None or self.locality != "proved" or self.types is not None or self.cut.is_whole:
            return None
        found = Transfer.of(model.lowering.program, self.subject.first, self.subject.example)
        if found is None:
            return None
        inner = self._moved(cut_from(source, self.index, self.num_layers, flow=self.trace.flow))
        assert inner.node_id is not None
        assert inner.edge_id is not None
        assert self.cut.edge_id is not None
        columns = torch.searchsorted(self.cut.edge_id, inner.edge_id)
        same = found.agrees(found.to(inner.data, self._degrees(inner)), columns, self.cut.places(inner.node_id))
        return found if same else None

    def _degrees(self, cut: Cut) -> Degrees:
        """Of the nodes of a cut, in the whole graph."""
        assert cut.node_id is not None
        nodes, place = cut.node_id.cpu().numpy(), cut.node_id.device
        return Degrees(*(torch.from_numpy(of(nodes)).to(place) for of in (self.source.counts, self.source.loops)))

    def _carry_over(self, transfer: Transfer, base: NodeModel, *, compared: bool) -> bool:
        """Cut without a rim, and take the program there; False if it cannot be, or the model says something else."""
        cut = self._moved(cut_from(self.source, self.index, self.num_layers, flow=self.trace.flow, bounds=self.bounds))
        assert cut.node_id is not None
        check_values(cut.data)
        targets = self.index.to(cut.node_id.device).unique()
        degrees = self._degrees(cut)
        if compared and self.bounds is not None:
            self.bounds.check(int(degrees.edges.sum()) * self.message_bytes)
        program = transfer.to(cut.data, degrees)
        with self.loan.taken():
            model = MovedModel(base, cut.data, cut.places(targets), program)
        if compared:
            true = with_degrees(cut.data, degrees) if rim_of(self.subject.first) else cut.data
            if not model.compare(true):
                return False
        self.cut, self._mark, self.node_model = cut, self._marked(), model
        self._read_off()
        return True

    def check_basis(self) -> None:
        """The model, and the files: features are read anew with the next cut."""
        self.subject.check_fresh()
        if what := self.source.changed():
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Open the store again, and ask again."
            )

    def check_fresh(self) -> None:
        """The same."""
        self.check_basis()

    # --- cuts ---------------------------------------------------------------------------------------------------------

    def _marked(self) -> Any:
        return SourceMark(self.source)

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """The first nodes and columns."""
        sizes = (self.source.num_nodes, self.source.num_edges)
        nodes, columns = (torch.arange(min(_STRANGERS, size)) for size in sizes)
        return nodes, columns

    def _find_cut(self) -> Cut:
        first = self.subject.first
        rim = rim_of(first) if self.types is None or not rim_of(first) else "nodes"  # a far node has one type
        cut = cut_from(self.source, self.index, first.num_layers, flow=self._flow, rim=rim, bounds=self.bounds)
        if self.bounds is not None:  # the model is run on it, and what it computes is recorded
            self.bounds.check(cut.data.edge_index.size(1) * self.recorded_bytes)
        return self._moved(cut)

    def _moved(self, cut: Cut) -> Cut:
        """On the device that was asked for, with the rows of its nodes in the model's own tables."""
        (part,) = on_device([cut.data], self.asked.device)
        if hasattr(self, "subject"):
            part = self.subject.carrying(part, cut)
        if cut.node_id is None or cut.edge_id is None or part is cut.data:
            return cut
        place = part.edge_index.device
        return replace(cut, data=part, node_id=cut.node_id.to(place), edge_id=cut.edge_id.to(place))

    def confirming_graph(self, *, proved: bool) -> Data | None:
        """The same for a graph on disk, which is read as a whole if it is small or a budget of memory allows it."""
        if self.source.num_bytes > (_SMALL if self.asked.memory is None else self.asked.memory):
            if not proved:
                raise not_confirmed(self.node_model, self.source.num_edges)
            warn_of_sizes()
            return None
        self._graph = self._whole()
        return super().confirming_graph(proved=proved)

    def _is_affordable(self) -> bool:
        if self.source.num_bytes > (_SMALL if self.asked.memory is None else self.asked.memory):
            return False
        self._graph = self._whole()
        return super()._is_affordable()

    def _whole(self) -> Data:
        (graph,) = on_device([self.source.whole()], self.asked.device)
        return self.subject.carrying(graph)
