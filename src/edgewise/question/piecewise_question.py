"""A question about one node of a graph on disk whose neighbourhood is too large for memory: worked off in parts, exactly.

The program was proved on another neighbourhood, and is carried over by formulas of degrees (`program/transfer.py`); the user's
own model cannot be run on so large a part of the graph, so the value is the program's, and the answer says so.
"""

from typing import Any

from torch import Tensor

from edgewise.graph.neighbour_sample import LargeNeighbourhoodError
from edgewise.program.piecewise_gradient import PiecewiseGradient
from edgewise.question.equality import Audit
from edgewise.question.memory import LEAST_CEILING
from edgewise.question.source_question import SourceQuestion
from edgewise.question.target import choose_target

IN_PARTS = "in_parts"
"""The setting that says which targets were worked off in parts, by number, and in how many."""
_EDGE_BYTES = 300  # numbers of an edge's ends, in the block and sorted, its coefficient and its scores
_NODE_BYTES = 256  # a node's number, in two orders, how many edges it has, and copies while they are found; measured
_COPIES = 3  # of a row: as it is read, in order, and its gradient


class PiecewiseQuestion(SourceQuestion):
    """One node, asked about by a question that was proved elsewhere."""

    gradient: PiecewiseGradient

    @classmethod
    def about(cls, asked: SourceQuestion, index: Tensor, target: Any, memory: int) -> "PiecewiseQuestion | None":
        """The question about a node `[1]`, in blocks of a quarter of `memory` at most; None if the program cannot be moved.

        Raises:
            LargeNeighbourhoodError: If even the numbers of its nodes take more.
        """
        transfer = asked._transfer
        if transfer is None or asked.device.type != "cpu":
            return None
        other: PiecewiseQuestion = object.__new__(cls)
        other.__dict__.update(asked._other(index, target).__dict__)
        other.single, other.audit = False, Audit()
        row = _COPIES * max(asked.source.row_bytes, asked.message_bytes)
        most = max(memory // 8 // (row + _EDGE_BYTES), 1)
        other.gradient = PiecewiseGradient(transfer, asked.source, int(index), most)
        taken = len(other.gradient.node) * _NODE_BYTES
        if taken > max(memory, LEAST_CEILING) // 2:
            raise LargeNeighbourhoodError(
                f"The neighbourhood has {len(other.gradient.node)} nodes that receive messages, and their numbers alone take "
                f"{taken // 2**20} MB. Use memory='{2 * taken // 2**20 + 1}MB', or neighbors=[25, 10] for a sample."
            )
        spare = memory if memory < LEAST_CEILING else memory - taken
        other.gradient.most = max(spare // 4 // (row + _EDGE_BYTES), 1)
        with other.loan.taken():
            rows = other.gradient.row()
        said = other.asked
        other.target = choose_target(
            rows, said.target, said.mode, said.of, other.output.lost, several=other.output.several
        )
        return other

    @property
    def notes(self) -> dict[str, Any]:
        """With the number of blocks."""
        told = f"{self.gradient.num_blocks} blocks of edges, exactly; your own model was not run on so many"
        return {**super().notes, IN_PARTS: {str(int(one)): told for one in self.index}}
