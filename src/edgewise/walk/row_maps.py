"""Jacobians of what happens at each node by itself: activations, norms, small networks, residuals."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.lowering.compiled import arrays, kernels_for


@dataclass(frozen=True, eq=False)
class RowMap:
    """A diagonal `[N, d]`, or a matrix `[N, out, in]` for each node."""

    diagonal: Tensor | None = None
    matrices: Tensor | None = None

    def back(self, gradient: Tensor, node: Tensor) -> Tensor:
        """gradient · J of some nodes, a row each."""
        if self.diagonal is not None:
            return gradient * self.diagonal.index_select(0, node)
        assert self.matrices is not None
        kernels = kernels_for(gradient.numel(), gradient)
        if kernels is not None:
            return torch.from_numpy(kernels.rows_times(*arrays(gradient.contiguous(), self.matrices, node)))
        return torch.einsum("po,poi->pi", gradient, self.matrices.index_select(0, node))

    def forth(self, rows: Tensor, node: Tensor) -> Tensor:
        """J · rows of some nodes."""
        if self.diagonal is not None:
            return rows * self.diagonal.index_select(0, node)
        assert self.matrices is not None
        kernels = kernels_for(rows.numel(), rows)
        if kernels is not None:
            return torch.from_numpy(kernels.times_rows(*arrays(self.matrices, node, rows.contiguous())))
        return torch.einsum("poi,pi->po", self.matrices.index_select(0, node), rows)

    def after(self, blocks: Tensor, node: Tensor) -> Tensor:
        """J · blocks, `[n, out, in]`."""
        if self.diagonal is not None:
            return blocks * self.diagonal.index_select(0, node).unsqueeze(2)
        assert self.matrices is not None
        return self.matrices.index_select(0, node) @ blocks

    def before(self, blocks: Tensor, node: Tensor) -> Tensor:
        """blocks · J."""
        if self.diagonal is not None:
            return blocks * self.diagonal.index_select(0, node).unsqueeze(1)
        assert self.matrices is not None
        return blocks @ self.matrices.index_select(0, node)

    def dense(self, node: Tensor) -> Tensor:
        """The matrices of some nodes."""
        if self.diagonal is not None:
            return torch.diag_embed(self.diagonal.index_select(0, node))
        assert self.matrices is not None
        return self.matrices.index_select(0, node)
