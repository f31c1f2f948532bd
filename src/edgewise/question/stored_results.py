"""What results hold of a graph on disk: its edges by the path of its store, read when somebody looks at them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.graph.source import GraphSource
from edgewise.question.posed_question import PosedQuestion
from edgewise.store.stored_graph import StoredGraph


class StoredResults(PosedQuestion):
    """For questions about a graph that is not in memory."""

    source: GraphSource

    def source_edge_index(self, position: int) -> Tensor:
        """All edges, mapped."""
        return self.source.edge_index

    def kept_edge_index(self, position: int) -> Tensor:
        """The same: files do not change under a result's hands."""
        return self.source.edge_index

    def result_graphs(self) -> Sequence[tuple[Tensor, int]]:
        """The graph by the path of its store; of another source the edges themselves."""
        return StoredGraph.of(self.source) if hasattr(self.source, "about") else super().result_graphs()

    def ends(self, positions: Tensor, owner: Tensor, column: Tensor) -> Tensor:
        """Both ends of some columns, and of no others."""
        return torch.from_numpy(self.source.ends(column.cpu().numpy())).to(column.device)
