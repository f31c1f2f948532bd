"""Gradients by features: the reverse pass, continued through the calls that read the features to the features themselves.

Levels are deepened first, so that the senders of the first call are pairs, too. What comes back is kept in factors where the
layer is a matrix: a short vector for each pair, and one matrix for all targets.

The path 0 → 1 → 2 of `reverse.py` with the target 2: the gradient of node 2 is 1 after both calls, so those of the features of
nodes 2, 1, 0 are 1, 2 and 1 (node 1 reaches the target through either call).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.ir import MessageStep, Ref, Rows, Source
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.reverse import ReversePass


@dataclass(frozen=True, eq=False)
class PulledBack:
    """Gradients of the features of all pairs: left times right."""

    left: Tensor
    """`[pairs, H]`, or `[pairs, F]` without `right`."""
    right: Tensor | None
    """`[H, F]`."""

    def dense(self) -> Tensor:
        """`[pairs, F]`."""
        return self.left if self.right is None else self.left @ self.right


class FeaturePass(ReversePass):
    """Reverse message passing down to the features `x`, which all constants of the program are.

    >>> from edgewise.graph.computation_graph import InEdges
    >>> from edgewise.program.ir import Program
    >>> from edgewise.program.expansion import expand
    >>> from edgewise.program.levels import deepened
    >>> plus, x = AffineLayer(coefficient=None, root=1.0), torch.tensor([[1.0], [10.0], [100.0]])
    >>> program = Program((MessageStep(plus, Rows(x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> known = {0: torch.tensor([[1.0], [11.0], [110.0]]), 1: torch.tensor([[1.0], [12.0], [121.0]])}
    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> levels = deepened(expand(path, torch.tensor([2]), 2, torch.full((3,), -1, dtype=torch.int32)))
    >>> back = FeaturePass(program, levels, {0: plus.prepare(x)}, known, {}).pull(torch.ones_like)
    >>> levels.node.tolist(), back.dense().view(-1).tolist()
    ([2, 1, 0], [1.0, 2.0, 1.0])
    """

    follows_constants = True

    def pull(self, of_rows: Callable[[Tensor], Tensor]) -> PulledBack:
        """The gradients of the features; `of_rows` is the gradient of the explained numbers by the output's rows."""
        self._factors: list[tuple[Tensor, Tensor | None]] = []
        self.run(of_rows)
        size = len(self.levels.node)
        parts = [(_padded(left, size), right) for left, right in self._factors]
        rights = [right for _, right in parts if right is not None]
        if len(rights) == len(parts) and parts:
            return PulledBack(torch.cat([left for left, _ in parts], dim=1), torch.cat(rights))
        dense = [left if right is None else left @ right for left, right in parts]
        return PulledBack(dense[0] if len(dense) == 1 else torch.stack(dense).sum(dim=0), None)

    def _of_source(self, source: Source, gradient: Tensor) -> None:
        """What a row-wise step read: a value, or the features themselves."""
        if isinstance(source, Ref):
            super()._of_source(source, gradient)
        else:
            self._factors.append((gradient.reshape(len(gradient), -1), None))

    def _through_messages(self, step: MessageStep) -> None:
        """Back through a call; one that reads the features hands its gradient on to them."""
        if not isinstance(step.source, Rows):
            super()._through_messages(step)
            return
        gradient = self.gradient.pop(step.output, None)
        if gradient is None:
            return
        near, onto = (self.levels.hop(step.call, from_nodes=by_node) for by_node in (True, False))
        if len(gradient) < near.num_heads:
            gradient = functional.pad(gradient, (0, 0, 0, near.num_heads - len(gradient)))
        if isinstance(step.layer, AffineLayer):
            self._factors += step.layer.pull_back(gradient, near, onto)
        else:
            of_table = step.layer.backward(step.source.tensor, near, gradient, onto)[2]
            assert of_table is not None
            self._factors.append((of_table, None))


def _padded(rows: Tensor, size: int) -> Tensor:
    """Rows of the first pairs as rows of all of them."""
    return rows if len(rows) == size else functional.pad(rows, (0, 0, 0, size - len(rows)))
