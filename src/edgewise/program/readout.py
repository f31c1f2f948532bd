"""Readouts that begin with a sum or mean over the nodes of each graph: what they read, and what stands behind them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.ir import Ref, RowStep
from edgewise.program.operations import plain_name, row_arguments


@dataclass(frozen=True, eq=False)
class Pooling:
    """A readout that begins with a sum or mean over the nodes of each graph, and goes on row by row."""

    read: int
    """The value that is added up."""
    made: int
    """The value with a row for each graph."""
    share: Tensor
    """`[graphs]`: by what the sum is multiplied, 1 or one over the number of nodes."""
    head: list[RowStep]
    """What stands behind it."""


def read_pooling(steps: list[RowStep], owner: Tensor, like: Tensor) -> Pooling | None:
    """The pooling that a readout begins with, as PyG makes it; None if it is anything else.

    `owner` `[N]` is the graph of each node, `like` any tensor `[graphs]` of the numbers' type.

    A sum is `scatter_add(zeros, 0, index.expand_as(rows), rows)`, a mean divides that by `counts.expand_as(sums)`.
    """
    graphs, names = len(like), [plain_name(step.function) for step in steps]
    if names[:2] != ["expand_as", "scatter_add"] or len(steps[1].leaves) != 4:
        return None
    index, rows = steps[0].leaves[0], steps[0].leaves[1]
    zeros, axis, places, added = steps[1].leaves
    if not isinstance(index, Tensor) or not isinstance(zeros, Tensor) or rows != added or axis not in (0, -2):
        return None
    if not isinstance(added, Ref) or places != Ref(steps[0].output) or bool(zeros.any()) or len(zeros) != graphs:
        return None
    if index.shape != (len(owner), 1) or not torch.equal(index.view(-1), owner):
        return None
    made, share, behind = steps[1].output, torch.ones_like(like), 2
    if names[2:4] == ["expand_as", "div"]:
        counts, sums = steps[2].leaves[0], steps[2].leaves[1]
        divided = list(steps[3].leaves) == [Ref(made), Ref(steps[2].output)]
        if not isinstance(counts, Tensor) or counts.shape != (graphs, 1) or sums != Ref(made) or not divided:
            return None
        made, share, behind = steps[3].output, 1 / counts.view(-1).to(share.dtype), 4
    return Pooling(added.value, made, share, steps[behind:]) if _is_head(steps[behind:], made, graphs) else None


def _is_head(steps: list[RowStep], made: int, graphs: int) -> bool:
    """Whether steps go on row by row from the rows of graphs, and read nothing else that has such rows."""
    known = {made}
    for step in steps:
        args, kwargs = step.arguments
        aligned = graphs > 1 and any(
            isinstance(leaf, Tensor) and leaf.dim() and leaf.size(0) == graphs for leaf in step.leaves
        )
        reads = all(isinstance(source, Ref) and source.value in known for source in step.sources)
        if aligned or not reads or row_arguments(step.function, args, kwargs) is None:
            return False
        known.add(step.output)
    return True
