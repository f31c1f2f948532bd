"""Questions about links of a graph on disk: pairs of nodes, on what both of their ends can see."""

from typing import Any

from torch_geometric.data import Data

from edgewise.graph.cut import Cut, first_strangers
from edgewise.graph.inputs import check_values
from edgewise.graph.pair_copies import with_pairs
from edgewise.graph.source import GraphSource, tiny_cut
from edgewise.model.link_call import PAIRS
from edgewise.question.link_question import LinkQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.pair_index import read_pairs
from edgewise.question.posed_question import Asked
from edgewise.question.source_question import SourceQuestion
from edgewise.question.stored_results import StoredResults
from edgewise.question.subject import Subject, on_device

_TINY = 48
"""Columns of the cut on which the layers are found."""


class SourceLinkQuestion(StoredResults, LinkQuestion):
    """Pairs of nodes of a graph that hands out cuts; numbers of nodes and columns are those of the whole graph."""

    def __init__(self, model: Any, source: GraphSource, index: Any, asked: Asked) -> None:
        self.asked, self.source, self._data = asked, source, source.data
        self.index, self.single = read_pairs(index, self._data.get(PAIRS), source.num_nodes)
        self._graph, self._kept = source.data, {}
        example, part = self._example()
        check_values(example)
        self.subject = Subject(model, self._forward(asked), asked.device, example, held=asked.held, part=part)
        self.encoder = self._find_encoder(model)
        self._run((asked.output, asked.mode))

    def _example(self) -> tuple[Data, Cut | None]:
        """A few columns around the first pair."""
        pair = self.index[:1]
        cut = tiny_cut(self.source, pair.view(-1).unique(), _TINY, first_strangers(self._graph))
        (example,) = on_device([with_pairs(cut.data, cut.places(pair))], self.asked.device)
        return example, cut

    def _find_encoder(self, model: Any) -> NodeQuestion:
        """The nodes' rows behind the last layer; if that cannot be asked, the graph would have to be in memory: refused."""
        return SourceQuestion(model, self.source, self.index.unique(), self._asked_of_encoder(None), self.subject)
