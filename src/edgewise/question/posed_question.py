"""What every question has, whatever the task: a subject, targets, the explained number, and ways to run the model."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import plain_index
from edgewise.engines import Engine
from edgewise.graph.copies import Copies
from edgewise.graph.neighbour_sample import Bounds
from edgewise.graph.sample import sampled_numbers
from edgewise.graph.type_table import TypeTable
from edgewise.model.call import ModelCall
from edgewise.model.head import ModelOutput
from edgewise.model.hooks import Layers
from edgewise.model.trace import Trace
from edgewise.program.lowering import Lowering
from edgewise.question.equality import Audit
from edgewise.question.labels import check_mode, classes_in, unread
from edgewise.question.slope_checks import SlopeChecks
from edgewise.question.subject import Loan, Subject
from edgewise.question.target import Target

_COPIED = 2**21
"""Numbers of an `edge_index` up to which results have a copy of their own."""
KEPT = 4  # a number in the forward pass is kept about this often: activation, its gradient, a product, a copy


@dataclass(frozen=True)
class Asked:
    """What the user said about the question, besides model, data and index."""

    target: Any = None
    mode: str | None = None
    of: str = "logit"
    output: str | None = None
    forward: Any = None
    device: Any = None
    without_itself: bool = False
    """Links: whether each pair's own link is taken out of the graph first."""
    bounds: Bounds | None = None  # of neighbourhoods in a graph on disk
    roomy: bool = False
    """Whether passes over many graphs may be large, and a recorded one is kept: no budget of memory is given."""
    memory: int | None = None
    """The budget of memory in bytes, if one is given."""
    held: bool = True
    """Whether it may be asked again later, so that model and data must be remembered to see what has changed."""

    @property
    def one_class(self) -> Any:
        """The class that was given for all targets, if one was."""
        return self.target if np.ndim(self.target) == 0 else None


class PosedQuestion(SlopeChecks, ABC):
    """The question, checked and proved. Node tasks run cuts of one graph; graph tasks run batches of graphs."""

    task: str
    in_one_graph = False
    """Whether all targets live in one graph, the only one that the user gave."""
    asked: Asked
    subject: Subject
    graphs: list[Data]
    index: Tensor
    """`[T]`: nodes of the user's graph, or numbers of graphs; `[T, 2]`: pairs of nodes."""
    single: bool
    target: Target
    trace: Trace
    output: ModelOutput
    num_layers: int
    device: torch.device
    call: ModelCall
    layers: Layers
    audit: Audit
    locality: str
    """How it is known that nothing outside the neighbourhoods matters."""
    lowering: Lowering | None = None
    not_lowered: str = ""
    """Why there is no lowered program, where that is known."""
    types: TypeTable | None = None
    """Of a typed graph: which of its nodes and columns are of which type."""

    def types_of(self, position: int) -> TypeTable | None:
        """The types of the graph of a target, if it is a typed one."""
        return self.types

    @property
    def loan(self) -> Loan:
        """The model, to be run."""
        return self.subject.loan

    @property
    def data(self) -> Any:
        """The graph, or the graphs, as the user gave them."""
        return self._data

    @property
    def typed_data(self) -> Any:
        """The typed graph, as the user gave it."""
        return self.__dict__["_hetero"]

    @property
    def hops(self) -> int | None:
        """How far from its target an edge's receiver may be, counted in layers, to matter; None: any edge may matter."""
        return None

    @abstractmethod
    def of(self, index: Any, target: Any) -> "PosedQuestion":
        """The same question about other targets, with what was proved."""

    def at(self, positions: Tensor) -> "PosedQuestion":
        """The same question about some of its own targets, about the columns that were asked for."""
        listed: Any = plain_index(self.index[positions])
        types = self.types
        index = types.asked(listed) if types is not None and types.explained else listed
        return self.of(index, self.target.column[positions.to(self.target.column.device)].cpu())

    def as_set(self) -> "PosedQuestion":
        """The same question, answered as a set even if it is about one target."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.single = False
        return other

    @abstractmethod
    def check_fresh(self) -> None:
        """Refuse if the model or the data have changed since."""

    def check_basis(self) -> None:
        """Refuse if that has changed on which a question about other targets would stand."""
        self.check_fresh()

    @abstractmethod
    def copies(self, positions: Tensor) -> list[Copies]:
        """The graphs to run the model itself on: one with a copy for every target, or one for each."""

    def plain_copies(self, positions: Tensor) -> list[Copies]:
        """The same without a look whether every copy gives its target's output."""
        return self.copies(positions)

    def audited_copies(self, positions: Tensor) -> list[Copies]:
        """Where the model is run to compare all these targets at once, under weights that a column has in every copy."""
        return self.plain_copies(positions)

    def whole_copies(self, positions: Tensor) -> list[Copies]:
        """The whole graph that is run, for each target."""
        return self.plain_copies(positions)

    @abstractmethod
    def engine(self, positions: Tensor) -> Engine:
        """How to run the model for the targets at some positions of `index`."""

    def through_model(self) -> "PosedQuestion | None":
        """The same question where the model itself is run, and no program; None if it is already, or cannot be."""
        return None

    @abstractmethod
    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of nodes and edges of the targets' graphs: one number if all live in one graph."""

    def double_engine(self, positions: Tensor) -> Any:
        """A lowered model in float64, to take differences; None if the model itself must be run. Numbers are those of a cut."""
        return None if self.lowering is None else self.lowering.double_engine(self.places(positions))

    @property
    def engine_lowering(self) -> Lowering | None:
        """The lowered program that all engines run, perhaps with something behind it; None if some are run in another way."""
        return self.lowering

    def run_sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same of the graphs on which the model is run, one number for each target."""
        return self.sizes(positions)

    def keys(self, positions: Tensor) -> Tensor:
        """`[n]`: the number of each target from which its random numbers are drawn, whatever the order of targets."""
        return self.index[positions]

    def sampled(self) -> tuple[Tensor | None, Tensor | None]:
        """Numbers of nodes `[N]` and columns `[E]` in the graph that a batch was sampled from; None each if it was not."""
        if self._sampled is None:
            self._sampled = sampled_numbers(self.data)
        return self._sampled

    def labels(self) -> Tensor | None:
        """`[T]`: the labels of the targets, −1 where there is none; None if the data have no whole numbers for them."""
        return classes_in(self._labels_at(self.index), self.target)

    def agreement(self) -> tuple[int, int] | None:
        """On how many of how many targets with a label the model says it; None without labels."""
        labels = self.labels()
        if labels is None or not bool((labels >= 0).any()):
            return None
        known = labels >= 0
        return int((self.target.says().cpu() == labels)[known].sum()), int(known.sum())

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """`[n]` or `[n, tasks]`: what the data say of some nodes, graphs or pairs; None: of all (or many) that there are."""
        return None

    def _given_labels(self) -> Any:
        """What the data have as labels, as it is."""
        return None

    def _check_mode(self) -> None:
        """Refuse a mode that was not given and that the labels contradict; looked at once for all questions that `of` makes."""
        if self.asked.mode is None and self.output.name != "value" and not self._is_mode_checked:
            is_told = self.asked.output is not None or self.output.is_doubted or self.task == "link"
            labels = self._labels_at(None)
            check_mode(labels, self.target, "" if is_told else self.task, is_prob=self.output.name != "logit")
            self.unread_labels = unread(self._given_labels(), labels, self.target.truth.size(1))
        self._is_mode_checked = True

    def every_class(self) -> "PosedQuestion":
        """The same question about every class, or column, of each target: target by target, as a set."""
        count = 2 if self.target.mode == "binary" else self.target.truth.size(1)
        positions = torch.arange(len(self.index)).repeat_interleave(count)
        other = self.as_set()
        other.index = self.index[positions]
        chosen = self.target.select(positions.to(self.device))
        column = torch.arange(count, device=chosen.column.device).repeat(len(self.index))
        other.target = Target(column, chosen.mode, chosen.of, chosen.truth)
        other.asked = replace(self.asked, target=column.cpu())
        other._forget_runs()
        return other

    def _forget_runs(self) -> None:
        """Drop what is kept of runs for some positions, which are others now."""

    def borrowed(self) -> AbstractContextManager[None]:
        """The model, ours for a while; calls may nest."""
        return self.loan.taken()

    def uncut(self) -> "PosedQuestion":
        """The same question, run on the whole graph: for explainers to which its size matters."""
        return self

    def on_whole_graphs(self) -> "PosedQuestion":
        """The same question, for which the model itself is run on the whole graph, target by target."""
        return self

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the user's graph, from columns of the graph that is run."""
        return local

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the user's graph, from nodes of the graph that is run."""
        return local

    def local_nodes(self, nodes: Tensor) -> Tensor:
        """Nodes of the graph that is run, from nodes of the user's graph; refused if they are outside it."""
        return nodes

    def places(self, positions: Tensor) -> Tensor:
        """Targets as nodes (or numbers) of the graph that is run."""
        return self.index[positions].to(self.device)

    def ends(self, positions: Tensor, owner: Tensor, column: Tensor) -> Tensor:
        """`[2, copies]`: the nodes of some columns of the user's graphs at `positions[owner]`."""
        if self.in_one_graph:
            return self.source_edge_index(0).to(column.device)[:, column]
        parts = [self.graphs[int(self.index[i])].edge_index for i in positions.tolist()]
        sizes = torch.tensor([part.size(1) for part in parts], device=column.device)
        return torch.cat(parts, dim=1)[:, (sizes.cumsum(0) - sizes)[owner] + column]

    def source_edge_index(self, position: int) -> Tensor:
        """The `edge_index` of a target's graph, as the user gave it."""
        return self._sources[self._source(position)]

    def kept_edge_index(self, position: int) -> Tensor:
        """A copy of it for results, which must not change with the user's data; one for all questions that `of` makes.

        Of a graph with millions of columns no copy is made: results would take more memory than the graph.
        """
        return self._copied(self._source(position))

    def _copied(self, place: int) -> Tensor:
        """The copy of the graph with this number."""
        source = self._sources[place]
        if source.numel() > _COPIED:
            return source
        if place not in self._kept:
            self._kept[place] = source.clone()
        return self._kept[place]

    def result_graphs(self) -> Sequence[tuple[Tensor, int]]:
        """`(edge_index, number of nodes)` of the one graph, or of the graph of each target, as results keep them."""
        nodes, _ = self.sizes(torch.arange(len(self.index)))
        if self.in_one_graph:
            return tuple((self.kept_edge_index(position), count) for position, count in enumerate(nodes.tolist()))
        return tuple((self._copied(i), count) for i, count in zip(self.index.tolist(), nodes.tolist(), strict=True))

    def _source(self, position: int) -> int:
        return 0 if self.in_one_graph else int(self.index[position])

    @property
    def edge_bytes(self) -> int:
        """About what a pass needs for one edge copy."""
        return KEPT * sum(call.message_width + 4 for call in self.trace.calls) * self.trace.output.element_size()

    @property
    def separable(self) -> list[bool]:
        """Per layer: whether a self edge can be scored."""
        return self.trace.separable

    @property
    def notes(self) -> dict[str, Any]:
        """What every answer's settings say about the question."""
        return {
            "of": self.target.of,
            "mode": self.target.mode,
            "task": self.task,
            "output": self.output.name,
            "bypass": self.trace.bypass,
            "hops": self.hops,
            "flow": self.trace.flow,
            "layers": "depth",
            "locality": self.locality,
            "model": self.subject.twin.borrowed or "a twin",
            "audit": self.audit.plain(),
            **({"labels": f"not compared: {self.unread_labels}"} if self.unread_labels else {}),
        }

    _is_mode_checked = False
    unread_labels = ""
    """Why labels that the data have are not compared with what the model gives."""
    _data: Any
    _sources: list[Tensor]
    _kept: dict[int, Tensor]
    _sampled: tuple[Tensor | None, Tensor | None] | None = None


def sub_target(question: PosedQuestion, positions: Tensor) -> Target:
    """The questions at some positions."""
    return question.target.select(positions.to(question.device))
