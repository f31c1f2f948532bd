"""z_v = B Σ_e ω_e c_e x_u + s_v · (own term) + b: GCN, SAGE, GIN, GraphConv and SGC are of this form."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.lowering.hop import Hop, grouped_sum, pair_products, weighted_sum
from edgewise.lowering.layers.base import Layer


@dataclass(frozen=True)
class _Projected:
    """Features that went through the layer's matrices already, once for all targets."""

    sent: Tensor
    own: Tensor | None


@dataclass(frozen=True, eq=False)
class AffineLayer(Layer):
    """Coefficients per edge, a matrix for senders, and the own term: an added loop, a matrix or a number."""

    coefficient: Tensor | None
    """`[E]`: after normalisation; None: 1."""
    matrix: Tensor | None = None
    """`[out, in]` for what is heard; None: as it is."""
    loop: Tensor | None = None
    """`[N]`: coefficient of the added self-loop, heard through `matrix`."""
    root: Tensor | None = None
    """`[out, in]`, or a single number."""
    bias: Tensor | None = None

    def _edge_weight(self, hop: Hop, weight: Tensor) -> Tensor:
        return weight if self.coefficient is None else weight * self.coefficient.index_select(0, hop.edge_id)

    def prepare(self, table: Tensor) -> Any:
        """Project first where that makes the rows shorter."""
        if self.matrix is None or self.matrix.size(0) >= self.matrix.size(1):
            return table
        own = self._own(table) if self.root is not None else None
        return _Projected(functional.linear(table, self.matrix), own)

    def _own(self, rows: Tensor) -> Tensor:
        assert self.root is not None
        return rows * self.root if self.root.dim() < 2 else functional.linear(rows, self.root)

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """Sum first, then the matrix: heads are fewer than tails."""
        sent = table.sent if isinstance(table, _Projected) else table
        heard = weighted_sum(self._edge_weight(hop, weight), sent, hop)
        if self.loop is not None:
            heard = heard + _scaled(hop.own_rows(sent) * self.loop.index_select(0, hop.node).view(-1, 1), own)
        if self.matrix is not None and not isinstance(table, _Projected):
            heard = functional.linear(heard, self.matrix)
        if self.root is not None:
            rows = hop.own_rows(table.own) if isinstance(table, _Projected) else self._own(hop.own_rows(table))  # type: ignore[arg-type]
            heard = heard + _scaled(rows, own)
        return heard if self.bias is None else heard + self.bias

    def backward(
        self, table: Any, near: Hop, gradient: Tensor, onto: Hop | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """By hand: with activations at hand nothing has to be run forwards."""
        projected = isinstance(table, _Projected)
        sent = table.sent if projected else table
        onward = gradient if projected or self.matrix is None else gradient @ self.matrix
        of_edges = self._edge_weight(near, pair_products(onward, sent, near))
        of_own, own_onward = self._own_backward(table, near, gradient, onward)
        if onto is None:
            return of_edges, of_own, None
        start, heads, order = onto.backwards()
        coefficient = self._edge_weight(near, onward.new_ones(len(order)))
        found = grouped_sum(onward, heads, start, coefficient.index_select(0, order))
        if own_onward is not None:
            found[: near.num_heads] += own_onward
        return of_edges, of_own, found

    def _own_backward(self, table: Any, hop: Hop, gradient: Tensor, onward: Tensor) -> tuple[Tensor, Tensor | None]:
        of_own = gradient.new_zeros(hop.num_heads)
        back: Tensor | None = None
        projected = isinstance(table, _Projected)
        if self.loop is not None:
            back = onward * self.loop.index_select(0, hop.node).view(-1, 1)
            of_own = of_own + _row_dot(back, hop.own_rows(table.sent if projected else table))
        if self.root is not None:
            through = gradient if projected else gradient * self.root if self.root.dim() < 2 else gradient @ self.root
            of_own = of_own + _row_dot(through, hop.own_rows(table.own if projected else table))
            back = through if back is None else back + through
        return of_own, back

    # --- for differences ----------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Columns of the output."""
        assert self.matrix is not None
        return self.matrix.size(0)

    @property
    def narrows(self) -> bool:
        """Whether the matrix makes rows shorter: then it comes first."""
        return self.matrix is not None and self.matrix.size(0) <= self.matrix.size(1)

    def tables(self, table: Any) -> tuple[Tensor, Tensor, bool]:
        """What is sent, what own terms are made of, and whether both went through the matrices already."""
        if isinstance(table, _Projected):
            return table.sent, table.sent if table.own is None else table.own, True
        return table, table, False

    def coefficients(self, edge: Tensor, like: Tensor) -> Tensor:
        """Of some columns, `[edges]`."""
        return like.new_ones(len(edge)) if self.coefficient is None else self.coefficient.index_select(0, edge)

    def weighted(self, edge: Tensor, rows: Tensor) -> Tensor:
        """Rows times the coefficients of their edges."""
        return rows if self.coefficient is None else rows * self.coefficient.index_select(0, edge).view(-1, 1)

    def difference(self, change: Tensor) -> Tensor:
        """What a change of what is heard changes in the output."""
        return change if self.matrix is None else functional.linear(change, self.matrix)

    def own_difference(self, change: Tensor, node: Tensor) -> Tensor | None:
        """What a change of the nodes' own features changes through their own term."""
        if self.root is not None:
            return self._own(change)
        if self.loop is not None:
            return self.difference(change * self.loop.index_select(0, node).view(-1, 1))
        return None

    def own_term(self, table: Any, node: Tensor) -> Tensor | None:
        """The own term of some nodes."""
        sent, own, projected = self.tables(table)
        if not projected:
            return self.own_difference(sent.index_select(0, node), node)
        if self.root is not None:
            return own.index_select(0, node)
        return None if self.loop is None else sent.index_select(0, node) * self.loop.index_select(0, node).view(-1, 1)


def _scaled(rows: Tensor, own: Tensor | None) -> Tensor:
    return rows if own is None else rows * own.view(-1, 1)


def _row_dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b)
