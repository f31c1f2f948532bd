"""Questions about nodes of one graph."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.engines import Engine
from edgewise.errors import InputError
from edgewise.graph.copies import Copies
from edgewise.graph.inputs import read_graph, read_index
from edgewise.model.borrow import Loan
from edgewise.model.call import Forward, ModelCall, check_model
from edgewise.question.node_model import NodeModel
from edgewise.question.proof import Fingerprint, keep, recall
from edgewise.question.question import Question, placed
from edgewise.question.target import choose_target


class NodeQuestion(Question):
    """Nodes of one graph."""

    task = "node"

    def __init__(
        self, model: Any, data: Any, index: Any, forward: Any, device: Any, asked: tuple[Any, Any, str]
    ) -> None:
        self.subject = _subject(model, data, forward, device)
        self.graphs, self.trace, self.loan = [self.subject.graph], self.subject.trace, self.subject.loan
        self.call = self.subject.call
        self.num_layers, self.device, self.lowering = (
            self.subject.num_layers,
            self.subject.device,
            self.subject.lowering,
        )
        self._sources = [data.edge_index if type(data.edge_index) is Tensor else self.subject.graph.edge_index]
        self.index, self.single = read_index(index, self.graphs[0].num_nodes, "node")
        self.target = choose_target(self.trace.output[self.index.to(self.device)], *asked)

    def sizes(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of the one graph."""
        graph = self.graphs[0]
        counts = (graph.num_nodes, graph.edge_index.size(1))
        nodes, edges = (torch.tensor([count], device=self.device) for count in counts)
        return nodes, edges

    @property
    def hops(self) -> int | None:
        """The number of layers, if the model is local."""
        return self.num_layers if self.subject.local else None

    def copies(self, positions: Tensor) -> list[Copies]:
        """Neighbourhoods side by side, or the whole graph for each target."""
        with self.loan.taken():
            return self.subject.copies(self.index[positions].to(self.device))

    def engine(self, positions: Tensor) -> Engine:
        """Copies of neighbourhoods, lowered or not, or the whole graph."""
        with self.borrowed():
            return self.subject.engine(self.index[positions].to(self.device))


def _subject(model: Any, data: Any, forward: Forward | None, device: Any) -> NodeModel:
    """The subject, kept from the last question if nothing changed since."""
    if isinstance(data, (list, tuple)) and len(data) and isinstance(data[0], Data):
        raise InputError(
            f"data is a list of {len(data)} graphs; a node task explains nodes of one graph. Pass data[0], or type "
            f"task='graph'."
        )
    watched = (
        isinstance(model, nn.Module) and isinstance(data, Data) and forward is None
    )  # a forward= may read anything
    mark = Fingerprint(model, [data], device) if watched else None
    kept = recall(mark)
    if isinstance(kept, NodeModel):
        kept.warn_again()
        return kept
    layers = check_model(model)
    graph = read_graph(data)
    model, layers, (graph,) = placed(model, layers, [graph], device)
    subject = NodeModel(ModelCall(model, forward), layers, graph, Loan(model))
    keep(mark, subject, graph.x.numel() + graph.num_nodes * subject.trace.node_width)
    return subject
