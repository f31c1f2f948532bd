"""The Jacobian blocks of one call: from a sender's state to what the receiver sums up.

Between the pair p = (u, v) of a call stands the block K[p] = ∂(what v sums up) / ∂(state of u), `[out, in]`. Blocks are not
stored as matrices: GCN, SAGE or GIN have one matrix for the whole layer and one number per pair, so a block is kept by its
factors and applied from the right (gradients, `onward`) or from the left (vectors, `forth`).

Example: call 1 of `edgewise.examples.triangle_model`, z_v = 3·Σ h_u − h_v. The pairs are those of `geometry.py`; an edge has
scale 1, staying has scale 0 and the root −1. Node 2 is explained with gradient 1; it receives in the pairs 3, 4 and 5.

>>> from edgewise.graph.computation_graph import InEdges
>>> geometry = Geometry.of(InEdges.of(torch.tensor([[0, 1, 0], [1, 2, 2]]), 3), stays=True)
>>> scale = torch.tensor([[0.0], [1.0], [0.0], [1.0], [1.0], [0.0]])
>>> blocks = Blocks(geometry, scale, matrix=torch.tensor([[3.0]]), root=torch.tensor([[-1.0]]), width=1)
>>> parent, pair = geometry.into(torch.tensor([2]))
>>> blocks.matrices(pair).view(-1)
tensor([ 3.,  3., -1.])
>>> blocks.onward(torch.tensor([[1.0]]), parent, pair).view(-1)                     # the gradient at the senders' states
tensor([ 3.,  3., -1.])
>>> blocks.products(torch.tensor([[1.0]]), parent, pair, torch.tensor([[1.0], [2.0], [3.0]]))   # times their states h
tensor([ 3.,  6., -3.])
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.hop import Hop, pair_products
from edgewise.program.kernels import arrays, kernels_for
from edgewise.walk.geometry import Geometry


@dataclass(frozen=True, eq=False)
class RowMap:
    """J of what happens at each node by itself (activation, norm, small network, residual): one of the two is given.

    A ReLU between two calls is the diagonal 1 or 0 per neuron; the inner network of a GIN needs a matrix for each node.
    """

    diagonal: Tensor | None = None
    """`[N, d]`."""
    matrices: Tensor | None = None
    """`[N, out, in]`."""

    def back(self, gradient: Tensor, node: Tensor) -> Tensor:
        """gradient · J: `[n, out]` and the nodes `[n]` to `[n, in]`."""
        if self.diagonal is not None:
            return gradient * self.diagonal.index_select(0, node)
        assert self.matrices is not None
        kernels = kernels_for(gradient.numel(), gradient)
        if kernels is not None:
            return torch.from_numpy(kernels.rows_times(*arrays(gradient.contiguous(), self.matrices, node)))
        return torch.einsum("po,poi->pi", gradient, self.matrices.index_select(0, node))

    def forth(self, rows: Tensor, node: Tensor) -> Tensor:
        """J · rows: `[n, in]` and the nodes `[n]` to `[n, out]`."""
        if self.diagonal is not None:
            return rows * self.diagonal.index_select(0, node)
        assert self.matrices is not None
        kernels = kernels_for(rows.numel(), rows)
        if kernels is not None:
            return torch.from_numpy(kernels.times_rows(*arrays(self.matrices, node, rows.contiguous())))
        return torch.einsum("poi,pi->po", self.matrices.index_select(0, node), rows)

    def after(self, blocks: Tensor, node: Tensor) -> Tensor:
        """J · blocks, where a call's blocks `[n, mid, in]` come first and the map acts on their results."""
        if self.diagonal is not None:
            return blocks * self.diagonal.index_select(0, node).unsqueeze(2)
        assert self.matrices is not None
        return self.matrices.index_select(0, node) @ blocks

    def before(self, blocks: Tensor, node: Tensor) -> Tensor:
        """blocks · J, where the map acts first and a call's blocks `[n, out, mid]` on its results."""
        if self.diagonal is not None:
            return blocks * self.diagonal.index_select(0, node).unsqueeze(1)
        assert self.matrices is not None
        return blocks @ self.matrices.index_select(0, node)

    def dense(self, node: Tensor) -> Tensor:
        """`[n, out, in]`: the matrices of some nodes in full."""
        if self.diagonal is not None:
            return torch.diag_embed(self.diagonal.index_select(0, node))
        assert self.matrices is not None
        return self.matrices.index_select(0, node)


@dataclass(frozen=True, eq=False)
class Blocks:
    """K = (post · diag(scale) · matrix, + root where a node stays) · sending; or `dense`, a matrix for each pair.

    A factor that is None is the identity, a `root` that is None adds nothing. All numbers are float64.
    """

    geometry: Geometry
    scale: Tensor | None
    """`[pairs, 1]`, or `[pairs, channels]` where channels differ (attention heads, GINE's ReLU on messages)."""
    matrix: Tensor | None = None
    """`[channels, in]`: the senders' weight, shared by all pairs."""
    root: Tensor | None = None
    """`[out, in]`: the weight by which a node adds its own features."""
    post: Tensor | None = None
    """`[out, channels]`: the mean over attention heads."""
    dense: Tensor | None = None
    """`[pairs, out, in]`, instead of scale, matrix, root and post."""
    sending: RowMap | None = None
    """From a sender's state to what the call reads (an activation in front of the conv, for example)."""
    width: int = 0
    """How many features the call reads."""

    def onward(self, gradient: Tensor, parent: Tensor, pair: Tensor) -> Tensor:
        """gradient[parent] · K[pair], `[n, state]`: prefixes one step further, at the senders' states.

        Args:
            gradient: `[P, out]`, one row per prefix.
            parent: `[n]`, the prefix of each step.
            pair: `[n]`, the pair that the step takes.
        """
        found = self._to_features(gradient, parent, pair)
        return found if self.sending is None else self.sending.back(found, self.geometry.sender[pair])

    def _to_features(self, gradient: Tensor, parent: Tensor, pair: Tensor) -> Tensor:
        """The same with respect to what the call reads, `[n, width]`.

        With one number per pair the matrix is applied once per prefix, `[P, …]`, before rows are copied to the n steps.
        """
        if self.dense is not None:
            return torch.einsum("cm,cmd->cd", gradient.index_select(0, parent), self.dense.index_select(0, pair))
        assert self.scale is not None
        inner = gradient if self.post is None else gradient @ self.post  # [P, channels]
        scale = self.scale.index_select(0, pair)  # [n, 1 or channels]
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
        """`[n]`: gradient[parent] · K[pair] · rows[sender]; `parent` must be sorted.

        Where a pair has a single number, this needs no gradient row per step: both sides of the product are shared.
        """
        if self.dense is not None or self.sending is not None or self.scale is None or self.scale.size(1) > 1:
            senders = rows.index_select(0, self.geometry.sender[pair])
            return torch.linalg.vecdot(self.onward(gradient, parent, pair), senders)
        inner = gradient if self.post is None else gradient @ self.post
        through = inner if self.matrix is None else inner @ self.matrix
        own = None if self.root is None else (gradient @ self.root, rows)
        return _products(self.geometry, self.scale, through, rows, own, parent, pair)

    def matrices(self, pair: Tensor) -> Tensor:
        """`[n, out, state]`: some blocks in full."""
        found = self._feature_matrices(pair)
        return found if self.sending is None else self.sending.before(found, self.geometry.sender[pair])

    def _feature_matrices(self, pair: Tensor) -> Tensor:
        """`[n, out, width]`: the same with respect to what the call reads."""
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

    def forth(self, rows: Tensor, pair: Tensor) -> Tensor:
        """K[pair] · rows, `[n, out]`, from a vector `[n, state]` for each pair: walks that grow from the source."""
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
    """The first call, where every walk has its source: only K · x is needed, never the block itself.

    Features are wide (1433 words in Cora), what they become is not. In the triangle, call 0 is h_v = 2·Σ x_u + x_v with
    x = (1, 0, 1): `sent` = (2, 0, 2), `root` = (1, 0, 1), and the arrivals of the pairs 3, 4, 5 into node 2 are 2, 0 and 1.
    """

    geometry: Geometry
    scale: Tensor | None
    """As in `Blocks`."""
    sent: Tensor | None = None
    """`[N, channels]`: features through the senders' matrix."""
    root: Tensor | None = None
    """`[N, out]`: features through the root matrix."""
    post: Tensor | None = None
    """As in `Blocks`."""
    dense: Tensor | None = None
    """`[pairs, out]`: K · x, instead of the four above."""
    skip: Tensor | None = None
    """`[N, state]`: what a residual carries from the features into the first state."""

    def arrivals(self, pair: Tensor) -> Tensor:
        """K[pair] · x, `[n, out]`, without what a residual carries."""
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
        """`[n]`: gradient[parent] · K[pair] · x, which is the relevance of a complete walk; `parent` must be sorted."""
        if self.dense is not None or self.scale is None or self.scale.size(1) > 1 or self.sent is None:
            return torch.linalg.vecdot(gradient.index_select(0, parent), self.arrivals(pair))
        inner = gradient if self.post is None else gradient @ self.post
        own = None if self.root is None else (gradient, self.root)
        return _products(self.geometry, self.scale, inner, self.sent, own, parent, pair)


def _products(
    geometry: Geometry, scale: Tensor, heads: Tensor, table: Tensor, own: tuple[Tensor, Tensor] | None,
    parent: Tensor, pair: Tensor,
) -> Tensor:  # fmt: skip
    """`[n]`: scale[pair] · heads[parent] · table[sender], without a copied row per step.

    Args:
        geometry: The pairs.
        scale: `[pairs, 1]`.
        heads: `[P, d]`, gradients through the shared matrix.
        table: `[N, d]`, what senders have.
        own: Where a node stays, own[0][parent] · own[1][sender] is added; `[P, e]` and `[N, e]`.
        parent: `[n]`, sorted.
        pair: `[n]`.
    """
    kernels = kernels_for(len(pair), heads)
    if kernels is not None:
        nothing = heads.new_zeros(0, 0)
        rows = [side.contiguous() for side in (heads, table, *(own or (nothing, nothing)))]
        places = (parent, pair, geometry.sender, scale.view(-1), geometry.is_own)
        return torch.from_numpy(kernels.pair_scores(*arrays(*rows, *places)))
    sender = geometry.sender[pair]
    start = torch.zeros(
        len(heads) + 1, dtype=torch.long, device=heads.device
    )  # steps of prefix i: start[i]:start[i + 1]
    start[1:] = torch.bincount(parent, minlength=len(heads)).cumsum(0)
    found = pair_products(heads, table, Hop(start, sender, sender, None, sender, len(table)))
    found = found * scale.view(-1).index_select(0, pair)
    if own is not None:
        stays = geometry.is_own[pair].nonzero().view(-1)
        mine = torch.linalg.vecdot(own[0].index_select(0, parent[stays]), own[1].index_select(0, sender[stays]))
        found.index_add_(0, stays, mine)
    return found
