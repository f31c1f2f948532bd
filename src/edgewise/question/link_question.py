"""Questions about links: the score of a pair of nodes (u, v), a function of the weights around both its ends."""

import copy
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import index_keys
from edgewise.engines import Engine
from edgewise.errors import EdgewiseError, ModelError, StaleQuestionError
from edgewise.graph.copies import Copies
from edgewise.graph.cut import Cut, columns_into, cut_tiny, first_strangers, whole, worth_cutting
from edgewise.graph.inputs import check_one_graph, check_values, read_structure, with_count
from edgewise.graph.pair_copies import LinkColumns, with_pairs, without_link
from edgewise.graph.pair_patches import PatchedGraph
from edgewise.model.head import ModelOutput
from edgewise.model.link_call import PAIRS, EncoderForward, LinkForward, SharedPass
from edgewise.program.lowering import Lowering
from edgewise.question.equality import close
from edgewise.question.known_model import reads_further
from edgewise.question.labels import labels_of_pairs, read_labels
from edgewise.question.link_model import LinkModel
from edgewise.question.link_patches import patched_encoder
from edgewise.question.locality import LARGEST_UNKNOWN, NotConfirmedError, at_random_weights
from edgewise.question.node_question import NodeQuestion
from edgewise.question.pair_index import read_pairs
from edgewise.question.posed_question import Asked, PosedQuestion
from edgewise.question.row_origins import RowOrigins
from edgewise.question.subject import DataMark, Subject, on_device
from edgewise.question.target import choose_target

_COMPARED = 2
"""Pairs whose score in a patched graph is compared with a run of the whole graph without their link."""


class LinkQuestion(PosedQuestion):
    """Pairs of nodes of one graph, `index` `[T, 2]`. The number is the score for "there is a link": +z, −z with `target=0`.

    What the last layer makes of the nodes is a node question of its own (`encoder`): it cuts a large graph down to what the
    pairs can see, proves that, and is lowered. `link_model` runs the pairs on that cut.
    """

    task = "link"
    in_one_graph = True
    patches: PatchedGraph | None = None
    """What is run in place of the cut, if pairs without their own links are lowered."""

    def __init__(self, model: Any, data: Any, index: Any, asked: Asked) -> None:
        check_one_graph(data, "link")
        self.asked, self._data = asked, data
        structure = read_structure(data)
        self.index, self.single = read_pairs(index, data.get(PAIRS), structure.num_nodes)
        (self._graph,) = on_device([_without_labels(structure)], asked.device)
        self._kept = {}
        self._sources = [data.edge_index if type(data.edge_index) is Tensor else structure.edge_index]
        self.subject = self._recorded(model)
        self._graph = self.subject.carrying(self._graph)
        self.encoder = self._find_encoder(model)
        self._run((asked.output, asked.mode))

    def of(self, index: Any, target: Any = None) -> "LinkQuestion":
        """The same question about other pairs."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.asked = replace(self.asked, target=target)
        other.forget_audits()
        other.index, other.single = read_pairs(index, self._data.get(PAIRS), self._graph.num_nodes)
        other.encoder = None if self.encoder is None else self.encoder.of(other.index.unique(), 0)
        other._run(self.output)
        return other

    def on_whole_graphs(self) -> "LinkQuestion":
        """The same question without an encoder, and without neighbourhoods."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.encoder = None
        other.forget_audits()
        other._run((self.asked.output, self.asked.mode))
        other.link_model.local = False
        return other

    def check_fresh(self) -> None:
        """Refuse if the model, or the data that are run, have changed since."""
        self.subject.check_fresh()
        what = self._mark.changed([self._marked_data()])
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def check_basis(self) -> None:
        """The same, and all edges of a graph that is cut: other pairs see other columns."""
        self.check_fresh()
        if self.encoder is not None and not self.cut.is_whole:
            self.encoder.check_edges(self._data.get("edge_index"))

    # --- what is run ----------------------------------------------------------------------------------------------------

    def _recorded(self, model: Any) -> Subject:
        """The subject, recorded on the graph or on a few columns of a large one, unless it does not run there."""
        example, part = self._example()
        asked, forward = self.asked, self._forward(self.asked)
        check_values(example)
        try:
            return Subject(model, forward, asked.device, example, held=asked.held, part=part)
        except ModelError:
            if part is None or self._graph.edge_index.size(1) > LARGEST_UNKNOWN:
                raise
        check_values(self._graph)
        pair = self.index[:1].to(self._graph.edge_index.device)
        return Subject(model, forward, asked.device, with_pairs(self._graph, pair), held=asked.held)

    def _example(self) -> tuple[Data, Cut | None]:
        """The graph, or of a large one a few columns, on which the layers are found."""
        graph, pair = self._graph, self.index[:1].to(self._graph.edge_index.device)
        if not worth_cutting(graph):
            return with_pairs(graph, pair), None
        marked = torch.zeros(graph.num_nodes, dtype=torch.bool, device=pair.device)
        marked[pair.view(-1)] = True
        cut = cut_tiny(graph, pair.view(-1), columns_into(marked, graph.edge_index[1]), self._strangers())
        return with_pairs(cut.data, cut.places(pair)), cut

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """A few nodes and columns that are shown to the model, whoever is asked about."""
        return first_strangers(self._graph)

    def _forward(self, asked: Asked) -> Any:
        """How the model is called."""
        return LinkForward(asked.forward)

    def _links(self, pairs: Tensor) -> LinkColumns:
        """The columns of the cut that are the links of pairs themselves."""
        return LinkColumns.of(pairs, self.cut.data.edge_index, self.cut.data.num_nodes)

    def _find_encoder(self, model: Any) -> NodeQuestion | None:
        """The nodes' rows behind the last layer as a question of their own; None if it cannot be asked."""
        shared = SharedPass(self._graph.x, self.index.to(self._graph.x.device))
        asked = self._asked_of_encoder(shared)
        try:
            return NodeQuestion(model, _without_labels(self._data), self.index.unique(), asked, self.subject)
        except (StaleQuestionError, NotConfirmedError):
            raise
        except EdgewiseError:
            return None  # if it is the user's mistake, the model itself says so

    def _asked_of_encoder(self, shared: SharedPass | None) -> Asked:
        """How that question is asked; `shared` is a pass over all nodes that gives the scores of the pairs, too."""
        assert isinstance(self.subject.call.forward, LinkForward)
        calls = sum(operation.is_layer for operation in self.subject.first.operations)
        forward = EncoderForward(self.subject.call.forward, calls, shared)
        return Asked(target=0, mode="regression", output="value", forward=forward, device=self.asked.device)

    def _run(self, asked: tuple[str | None, str | None] | ModelOutput) -> None:
        """Run the model for all pairs on the graph, or on the part of it that the encoder was proved on."""
        if self.encoder is None:
            check_values(self._graph)
            self.cut, self._mark = whole(self._graph), DataMark([self._marked_data()], held=self.asked.held)
            self.locality = "whole graph"
        else:
            self.cut, self._mark, self.locality = self.encoder.cut, self.encoder._mark, self.encoder.locality
        graph = self.cut.data
        pairs = self.cut.places(self.index.to(graph.edge_index.device))
        links = self._links(pairs) if self.asked.without_itself else None
        links = links if links is not None and len(links.column) else None
        self.patches = None
        if links is not None and self.encoder is not None:
            self.patches = self._patched(pairs, links, asked)
        if self.patches is None:
            encoder = None if self.encoder is None else self.encoder.node_model
            self.link_model = LinkModel(self.subject, encoder, graph, pairs, asked, links)
        if not self._is_confirmed(pairs):
            self.encoder = None
            self._run(asked)
            return
        self._read_off()

    def _is_confirmed(self, pairs: Tensor) -> bool:
        """Whether the scores of pairs on a cut are those on the whole graph: by proof, or by one pass over it."""
        if self.encoder is None or self.cut.is_whole:
            return True
        first, found = RowOrigins.of_pairs(self.subject.first, self.subject.example), self.link_model.origins
        proved = found is not None and found.is_apart and first.is_apart and first.agree(found)
        if proved and not self.subject.first.reads_sizes:
            return True
        if reads_further(self.subject.first):
            return False
        graph = self._whole_graph(proved=proved)
        if graph is None:
            return True
        parts = (
            (with_pairs(self.cut.data, pairs), self.cut),
            (with_pairs(graph, self.index.to(pairs.device)), whole(graph)),
        )
        call, weighted = self.link_model.call, self.link_model.weighted
        with self.subject.loan.taken(), torch.no_grad():
            try:
                here, there = ((call(part), at_random_weights(weighted, part, cut)) for part, cut in parts)
            except ModelError:
                return False
        self.locality = "confirmed"
        return all(map(close, here, there))

    def _whole_graph(self, *, proved: bool) -> Data | None:
        """The graph for a pass that confirms; None if it is too large and nothing but a look at sizes is in the way."""
        assert self.encoder is not None
        return self.encoder.confirming_graph(proved=proved)

    def _patched(
        self, pairs: Tensor, links: LinkColumns, asked: tuple[str | None, str | None] | ModelOutput
    ) -> PatchedGraph | None:
        """Pairs without their links as pairs of a patched graph, if the model is lowered there; None if they cannot be.

        Some pairs are compared with the whole graph without their link, too.
        """
        assert self.encoder is not None
        found = patched_encoder(self.encoder, pairs, links)
        if found is None:
            return None
        patched, encoder = found
        model = LinkModel(self.subject, encoder, patched.data, patched.pairs, asked)
        if not model.is_lowered:
            return None
        losing = links.counts.nonzero().view(-1)
        few = losing[torch.linspace(0, len(losing) - 1, min(len(losing), _COMPARED)).long()]
        with model.borrowed(), torch.no_grad():
            graphs = [without_link(self.cut.data, pairs[i], links.select(i.view(1))[1]) for i in few]
            if not close(torch.cat([model.call(graph) for graph in graphs]), model.truth[few]):
                return None
        self.link_model = model
        return patched

    def _marked_data(self) -> Any:
        """The user's graph, as far as it is run."""
        return with_count(_without_labels(self._data), self._graph.num_nodes)

    def _read_off(self) -> None:
        model, asked = self.link_model, self.asked
        self.graphs, self.trace, self.output = [model.graph], model.trace, model.output
        self.call, self.layers, self.num_layers = model.call, self.subject.layers, model.num_layers
        self.device, self.audit = model.device, model.audit
        is_value = asked.mode == "regression" or (asked.mode is None and self.output.lost == "value")
        target = (0 if is_value else 1) if asked.target is None else asked.target
        self.target = choose_target(model.truth, target, asked.mode, asked.of, self.output.lost)
        self._check_mode()

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of pairs: `edge_label`, which belongs to `edge_label_index`."""
        labels, known = self._data.get("edge_label"), self._data.get(PAIRS)
        if not isinstance(known, Tensor) or index is None:
            return read_labels(labels, known.size(1)) if isinstance(known, Tensor) and known.dim() == 2 else None
        return labels_of_pairs(labels, known, index, self._graph.num_nodes)

    # --- what is asked of a question ------------------------------------------------------------------------------------

    def borrowed(self) -> AbstractContextManager[None]:
        """The model, and the encoder's twin of it."""
        return self.link_model.borrowed()

    @property
    def hops(self) -> int | None:
        """The number of layers, if the model is local."""
        with self.borrowed():
            return self.num_layers if self.link_model.is_known_local else None

    @property
    def together(self) -> bool:
        """Whether pairs may share a pass."""
        model = self.link_model
        return model.together and (model.local or model.is_lowered)

    @property
    def engine_lowering(self) -> Lowering | None:
        """The encoder's, unless some pairs are explained without their own link."""
        model = self.link_model
        if not model.is_lowered or model.itself is not None or model.encoder is None:
            return None
        return model.encoder.lowering

    def double_engine(self, positions: Tensor) -> Any:
        """Program and decoder in float64, to take differences; None if the model itself must be run."""
        return self.link_model.double_engine(positions)

    @property
    def notes(self) -> dict[str, Any]:
        """With whether the links themselves were taken out."""
        return {**super().notes, "without_itself": self.asked.without_itself}

    def keys(self, positions: Tensor) -> Tensor:
        """A number of its own for every pair."""
        return index_keys(self.index[positions], self._graph.num_nodes)

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the one graph."""
        counts = torch.tensor([self.cut.num_nodes, self.cut.num_edges], device=self.device)
        return counts[:1], counts[1:]

    def run_sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the neighbourhood of each pair."""
        return self.link_model.sizes(positions)

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the user's graph."""
        return self.cut.columns(local if self.patches is None else self.patches.columns(local))

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the user's graph."""
        return self.cut.nodes(local if self.patches is None else self.patches.nodes(local))

    def places(self, positions: Tensor) -> Tensor:
        """The pairs as nodes of the graph that is run, `[n, 2]`."""
        return self.link_model.pairs[positions.to(self.device)]

    def copies(self, positions: Tensor) -> list[Copies]:
        """Neighbourhoods of the pairs side by side, or the whole graph for each pair; columns are those of the cut."""
        with self.borrowed():
            return self.link_model.copies(positions)

    def plain_copies(self, positions: Tensor) -> list[Copies]:
        """The same without a look whether every copy gives its pair's score."""
        return self.link_model.plain_copies(positions)

    def whole_copies(self, positions: Tensor) -> list[Copies]:
        """The whole graph for each pair."""
        return self.link_model.wholes(positions)

    def engine(self, positions: Tensor) -> Engine:
        """The program with the decoder, copies, or the whole graph; columns and nodes are the user's."""
        with self.borrowed():
            engine = self.link_model.engine(positions)
        engine.edge_id, engine.self_node = self.columns(engine.edge_id), self.nodes(engine.self_node)
        return engine


def _without_labels(data: Data) -> Data:
    """The graph without the pairs and labels that a split left in it: those that are asked about come with each pass."""
    graph = copy.copy(data)
    for key in (PAIRS, "edge_label"):
        if key in graph:
            del graph[key]
    return graph
