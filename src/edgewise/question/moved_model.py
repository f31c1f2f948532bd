"""A model on another cut, by the program that was proved on the first one; the model itself is run there only to compare."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.copies import Copies
from edgewise.program.ir import Program
from edgewise.program.lowering import Lowering
from edgewise.question.equality import Audit, close
from edgewise.question.node_model import NodeModel


class ModelNeeded(ModelError):  # noqa: N818 (not an error: the model is then run)
    """A method wants to run the user's own model where only its program was taken."""

    def __init__(self) -> None:
        super().__init__("This method runs the model itself, so it needs a question that does: question.of(index).")


class MovedModel(NodeModel):
    """A node model whose program came by a transfer. Its graph has no rim: the model itself must not be run on it."""

    def __init__(self, base: NodeModel, graph: Data, targets: Tensor, program: Program) -> None:
        self.__dict__.update(copy.copy(base.__dict__))
        self.graph, self.targets, self._known = graph, targets, base.known
        self.kept, self.audit = {}, Audit()
        self.in_edges = InEdges.of(graph.edge_index, graph.num_nodes, base.trace.flow)
        self.lowering = Lowering(program, graph, self.in_edges, base.trace.output.dtype)
        self.program, self._places = program, targets
        rows = self.lowering.settle(targets)
        self.rows = rows
        """`[targets, columns]`: the output of the targets."""
        output = rows.new_zeros(graph.num_nodes, rows.size(1)).index_copy_(0, targets, rows)
        self.trace = replace(base.trace, output=output)

    def compare(self, graph: Data) -> bool:
        """Whether the user's own model gives the same rows for the targets on the cut with its true degrees."""
        try:
            with self.loan.taken(), torch.no_grad():
                true = self.call(graph).index_select(0, self._places)
        except ModelError:
            return False
        self.audit.value_error = float((true - self.rows).abs().max())
        return close(self.rows, true, self.scale)

    def copies(self, targets: Tensor) -> list[Copies]:
        """Refused."""
        raise ModelNeeded

    plain_copies = wholes = copies

    def _probe(self) -> Any:
        raise ModelNeeded
