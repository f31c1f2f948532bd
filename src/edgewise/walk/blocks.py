"""The Jacobian blocks of one call: from a sender's state to what the receiver sums up."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.levels import Hop, pair_products
from edgewise.walk.geometry import Geometry

# --- Jacobians of what happens at each node by itself: activations, norms, small networks, residuals -------------------


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


# --- The whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """K = post · diag(scale) · matrix (+ root where a node stays), times the senders' row map; or a matrix for each pair.

    What is None is the identity (`root`: nothing).
    """

    geometry: Geometry
    scale: Tensor | None
    """`[pairs, 1]`, or `[pairs, channels]`."""
    matrix: Tensor | None = None
    root: Tensor | None = None
    post: Tensor | None = None
    dense: Tensor | None = None
    """`[pairs, out, in]`, instead of all the others."""
    sending: RowMap | None = None
    width: int = 0
    """Of the features that the call reads."""

    # --- one gradient against many pairs ------------------------------------------------------------------------------

    def onward(self, gradient: Tensor, parent: Tensor, pair: Tensor) -> Tensor:
        """gradient[parent] · block[pair], with respect to the sender's state."""
        found = self._to_features(gradient, parent, pair)
        return found if self.sending is None else self.sending.back(found, self.geometry.sender[pair])

    def _to_features(self, gradient: Tensor, parent: Tensor, pair: Tensor) -> Tensor:
        if self.dense is not None:
            return torch.einsum("cm,cmd->cd", gradient.index_select(0, parent), self.dense.index_select(0, pair))
        assert self.scale is not None
        inner = gradient if self.post is None else gradient @ self.post
        scale = self.scale.index_select(0, pair)
        if scale.size(1) == 1:
            through = inner if self.matrix is None else inner @ self.matrix
            found = through.index_select(0, parent) * scale
        else:
            found = inner.index_select(0, parent) * scale
            found = found if self.matrix is None else found @ self.matrix
        if self.root is not None:
            stays = self.geometry.is_own[pair].nonzero().view(-1)
            found.index_add_(0, stays, (gradient @ self.root).index_select(0, parent[stays]))
        return found

    def products(self, gradient: Tensor, parent: Tensor, pair: Tensor, rows: Tensor) -> Tensor:
        """gradient[parent] · block[pair] · rows of the sender; `parent` must not fall."""
        if self.dense is not None or self.sending is not None or self.scale is None or self.scale.size(1) > 1:
            senders = rows.index_select(0, self.geometry.sender[pair])
            return torch.linalg.vecdot(self.onward(gradient, parent, pair), senders)
        inner = gradient if self.post is None else gradient @ self.post
        through = inner if self.matrix is None else inner @ self.matrix
        own = None if self.root is None else (gradient @ self.root, rows)
        return _products(self.geometry, self.scale, through, rows, own, parent, pair)

    # --- as matrices --------------------------------------------------------------------------------------------------

    def matrices(self, pair: Tensor) -> Tensor:
        """`[n, out, in]`: some blocks in full."""
        found = self._feature_matrices(pair)
        return found if self.sending is None else self.sending.before(found, self.geometry.sender[pair])

    def _feature_matrices(self, pair: Tensor) -> Tensor:
        if self.dense is not None:
            return self.dense.index_select(0, pair)
        assert self.scale is not None
        scale = self.scale.index_select(0, pair).unsqueeze(2)
        if self.matrix is None:
            found = torch.eye(self.width, dtype=scale.dtype, device=scale.device) * scale
        else:
            found = self.matrix * scale
        if self.post is not None:
            found = self.post @ found
        if self.root is not None:
            found = found + self.root * self.geometry.is_own[pair].to(found.dtype).view(-1, 1, 1)
        return found

    # --- vectors along the way ----------------------------------------------------------------------------------------

    def forth(self, rows: Tensor, pair: Tensor) -> Tensor:
        """block[pair] · rows, `[n, out]`; a row for each pair."""
        if self.sending is not None:
            rows = self.sending.forth(rows, self.geometry.sender[pair])
        if self.dense is not None:
            return torch.einsum("cmd,cd->cm", self.dense.index_select(0, pair), rows)
        assert self.scale is not None
        scale = self.scale.index_select(0, pair)
        found = (rows if self.matrix is None else rows @ self.matrix.t()) * scale
        if self.post is not None:
            found = found @ self.post.t()
        if self.root is not None:
            stays = self.geometry.is_own[pair].nonzero().view(-1)
            found = found.index_add(0, stays, rows.index_select(0, stays) @ self.root.t())
        return found


@dataclass(frozen=True, eq=False)
class FirstCall:
    """The first call ends every walk: only block · features is needed, never the block itself.

    Features are wide (1433 words in Cora), what they become is not.
    """

    geometry: Geometry
    scale: Tensor | None
    sent: Tensor | None = None
    """`[N, channels]`: features through the senders' matrix."""
    root: Tensor | None = None
    """`[N, out]`: features through the root matrix."""
    post: Tensor | None = None
    dense: Tensor | None = None
    """`[pairs, out]`: block · features, instead of all the others."""
    skip: Tensor | None = None
    """`[N, state]`: what a residual carries from the features into the first state."""

    def arrivals(self, pair: Tensor) -> Tensor:
        """block · features of some pairs, `[n, out]`; without the residual."""
        if self.dense is not None:
            return self.dense.index_select(0, pair)
        assert self.scale is not None
        assert self.sent is not None
        scale = self.scale.index_select(0, pair)
        found = self.sent.index_select(0, self.geometry.sender[pair]) * scale
        if self.post is not None:
            found = found @ self.post.t()
        if self.root is not None:
            stays = self.geometry.is_own[pair].nonzero().view(-1)
            found.index_add_(0, stays, self.root.index_select(0, self.geometry.sender[pair[stays]]))
        return found

    def products(self, gradient: Tensor, parent: Tensor, pair: Tensor) -> Tensor:
        """gradient[parent] · block[pair] · features; `parent` must not fall."""
        if self.dense is not None or self.scale is None or self.scale.size(1) > 1 or self.sent is None:
            return torch.linalg.vecdot(gradient.index_select(0, parent), self.arrivals(pair))
        inner = gradient if self.post is None else gradient @ self.post
        own = None if self.root is None else (gradient, self.root)
        return _products(self.geometry, self.scale, inner, self.sent, own, parent, pair)


def _products(
    geometry: Geometry, scale: Tensor, heads: Tensor, table: Tensor, own: tuple[Tensor, Tensor] | None,
    parent: Tensor, pair: Tensor,
) -> Tensor:  # fmt: skip
    """scale · heads[parent] · table[sender], plus the products of `own` where a node stays; without copies of rows."""
    kernels = kernels_for(len(pair), heads)
    if kernels is not None:
        nothing = heads.new_zeros(0, 0)
        rows = [side.contiguous() for side in (heads, table, *(own or (nothing, nothing)))]
        places = (parent, pair, geometry.sender, scale.view(-1), geometry.is_own)
        return torch.from_numpy(kernels.pair_scores(*arrays(*rows, *places)))
    sender = geometry.sender[pair]
    start = torch.zeros(len(heads) + 1, dtype=torch.long, device=heads.device)
    start[1:] = torch.bincount(parent, minlength=len(heads)).cumsum(0)
    found = pair_products(heads, table, Hop(start, sender, sender, None, sender, len(table)))
    found = found * scale.view(-1).index_select(0, pair)
    if own is not None:
        stays = geometry.is_own[pair].nonzero().view(-1)
        mine = torch.linalg.vecdot(own[0].index_select(0, parent[stays]), own[1].index_select(0, sender[stays]))
        found.index_add_(0, stays, mine)
    return found
