"""z_v = B Σ_e ω_e c_e x_u + s_v · (own term) + b: GCN, SAGE, GIN, GraphConv and SGC are of this form.

`c_e` is the coefficient of edge e = u → v (a normalised degree, a share of a mean), `B` the matrix. The own term is `B l_v x_v`
for an added self-loop with coefficient `l_v`, `R x_v` for a second matrix R, or `B r x_v` for a number r (GIN's 1 + ε).
Everything is linear in x, ω and s, so derivatives and differences are written by hand: three sections, forwards, backwards and
differences.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.hop import Hop, grouped_sum, pair_products, weighted_sum
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.layers.base import Layer, Linear

_FEW = 2**16
"""Numbers on edges below which plain gathers are cheaper than sparse products."""
_ROW = 16
"""Numbers of a row that count as one piece of work: loading compiled loops takes as long as a hundred passes over a few."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Features that no weight changes: what is sent (through the matrix already, if that makes rows shorter), and own terms."""

    sent: Tensor
    """`[N, in]`, or `[N, out]` if projected."""
    projected: bool
    own: Tensor | None
    """`[N, out]`: the own term of every node; None: there is none."""


@dataclass(frozen=True, eq=False)
class AffineLayer(Layer):
    """Coefficients per edge, a matrix for senders, and the own term: an added loop, a matrix or a number.

    A mean with a root matrix, on 0 → 2 ← 1: node 2 receives B (½ · 1 + ½ · 10) = 2 · 5.5 and adds R · 100 = 300.

    >>> layer = AffineLayer(torch.tensor([0.5, 0.5]), matrix=torch.tensor([[2.0]]), root=torch.tensor([[3.0]]))
    >>> hop = Hop(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([2]), 3)
    >>> x = torch.tensor([[1.0], [10.0], [100.0]])
    >>> layer.forward(x, hop, torch.ones(2), None)
    tensor([[311.]])
    >>> of_edges, of_own, _ = layer.backward(x, hop, torch.ones(1, 1), None)     # z = ω₀ · 1 + ω₁ · 10 + s · 300
    >>> of_edges, of_own
    (tensor([ 1., 10.]), tensor([300.]))
    """

    coefficient: Tensor | None
    """`[E]`: after normalisation; None: 1."""
    matrix: Tensor | None = None
    """`[out, in]` for what is received; None: as it is."""
    loop: Tensor | None = None
    """`[N]`: coefficient of the added self-loop, received through `matrix`."""
    root: Tensor | float | None = None
    """`[out, in]`, or a number that multiplies x before `matrix`."""
    bias: Tensor | None = None
    """`[out]`."""

    @cached_property
    def as_arrays(self) -> "AffineLayer":
        """The same with numpy arrays, as small passes read them."""
        parts: dict[str, Any] = {
            name: getattr(self, name) for name in ("coefficient", "matrix", "loop", "root", "bias")
        }
        parts = {name: part.numpy() if isinstance(part, Tensor) else part for name, part in parts.items()}
        return replace(self, **parts)

    def prepare(self, table: Tensor, linear: Linear = functional.linear) -> Any:
        """Own terms, and the matrix where it makes rows shorter: once for all targets."""
        narrow = self.matrix is not None and self.matrix.size(0) < self.matrix.size(1)
        sent = linear(table, self.matrix, None) if self.matrix is not None and narrow else table
        if narrow and self.loop is not None and self.root is None:  # the loop sends what is sent to others
            return Prepared(sent, narrow, sent * self.loop.view(-1, 1))
        if self.loop is None and isinstance(self.root, Tensor):
            return Prepared(sent, narrow, linear(table, self.root, None))
        everyone = torch.arange(len(table), device=table.device)
        return Prepared(sent, narrow, self.own_difference(table, everyone))

    def of_kind(self, nodes: Tensor) -> "AffineLayer":
        """Added loops of some nodes."""
        return self if self.loop is None else replace(self, loop=self.loop.index_select(0, nodes))

    def extended(self, prepared: Any, rows: Tensor, node: Tensor) -> Any:
        """Further rows, through the matrix where the others are."""
        sent = torch.cat([prepared.sent, self.difference(rows) if prepared.projected else rows])
        own = self.own_difference(rows, node)
        return Prepared(sent, prepared.projected, None if own is None else torch.cat([prepared.own, own]))

    def pull_back(self, gradient: Tensor, near: Hop, onto: Hop) -> list[tuple[Tensor, Tensor | None]]:
        """The gradient of the table, in factors: `(left, right)` with left `[rows, out]` and right `[out, in]` (None: 1).

        With g the gradient of z `[heads, out]`: what a sender sent has Σ c_e g_v in front of B, the own term has its own
        matrix or that of the senders. Rows are those of `onto`, from the first on.
        """
        start, heads, order = onto.backwards()
        coefficient = self._of_edges(near, gradient.new_ones(len(order))).index_select(0, order)
        left = grouped_sum(gradient, heads, start, coefficient)
        if self.loop is not None:
            left[: near.num_heads] += gradient * self.loop.index_select(0, near.node).view(-1, 1)
        if isinstance(self.root, float):
            left[: near.num_heads] += gradient * self.root
        found = [(left, self.matrix)]
        return [*found, (gradient, self.root)] if isinstance(self.root, Tensor) else found

    # --- forwards -----------------------------------------------------------------------------------------------------

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """`[heads, out]`. Sum first, then the matrix: heads are fewer than tails."""
        sent = table.sent if isinstance(table, Prepared) else table
        received = weighted_sum(self._of_edges(hop, weight), sent, hop)  # [heads, in]
        if isinstance(table, Prepared):
            return self._finish(received, self._constant_rest(table, hop, own), projected=table.projected)
        if self.loop is not None:
            mine = self.loop.index_select(0, hop.node)  # [heads]
            received = torch.addcmul(received, hop.own_rows(table), (mine if own is None else mine * own).view(-1, 1))
        if isinstance(self.root, float):
            received = received + _scaled(hop.own_rows(table), own) * self.root
        rest = self.bias
        if isinstance(self.root, Tensor):
            rest = functional.linear(_scaled(hop.own_rows(table), own), self.root, self.bias)
        return self._finish(received, rest, projected=False)

    def _finish(self, received: Tensor, rest: Tensor | None, *, projected: bool) -> Tensor:
        """B · received + rest."""
        if self.matrix is None or projected:
            return received if rest is None else received + rest
        return received @ self.matrix.t() if rest is None else torch.addmm(rest, received, self.matrix.t())

    def _constant_rest(self, table: Prepared, hop: Hop, own: Tensor | None) -> Tensor | None:
        """Own terms and bias for a prepared table: `[heads, out]`, `[out]` or None; kept by the hop for the next pass."""
        terms, bias = table.own, self.bias
        if terms is None:
            return bias
        rows = hop.remembered("own", lambda: hop.own_rows(terms))
        if bias is None:
            return rows if own is None else rows * own.view(-1, 1)
        if own is not None:
            return rows * own.view(-1, 1) + bias
        return hop.remembered("rest", lambda: rows + bias)

    def _of_edges(self, hop: Hop, weight: Tensor) -> Tensor:
        """ω · c, `[edges]`."""
        if self.coefficient is None:
            return weight
        coefficient = self.coefficient
        return weight * hop.remembered("coefficient", lambda: coefficient.index_select(0, hop.edge_id))

    # --- backwards, at ω = s = 1 --------------------------------------------------------------------------------------

    def backward(
        self, table: Any, near: Hop, gradient: Tensor, onto: Hop | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """By hand: with activations at hand nothing has to be run forwards.

        With g the gradient of z `[heads, out]`: ∂/∂ω_e = c_e (Bᵀ g_v) · x_u, ∂/∂s_v = g_v · (own term of v), and the gradient
        of a sender is the sum of c_e Bᵀ g_v over its edges (`onward` is Bᵀ g, `[heads, in]`).
        """
        constant = table if isinstance(table, Prepared) else None
        projected = constant is not None and constant.projected
        onward = gradient if projected or self.matrix is None else gradient @ self.matrix
        own_onward: Tensor | None = None
        if self.loop is None and self.root is None:  # receivers may then have another table than senders
            of_own = gradient.new_zeros(near.num_heads)
        elif constant is None:
            of_own, own_onward = self._own_backward(near.own_rows(table), near, gradient, onward)
        elif constant.own is None:
            of_own = gradient.new_zeros(near.num_heads)
        else:
            of_own = _row_dot(gradient, near.own_rows(constant.own))
        of_edges, found = self._pull(onward, table.sent if constant else table, near, onto, own_onward)
        return of_edges, of_own, found

    def _pull(
        self, onward: Tensor, sent: Tensor, near: Hop, onto: Hop | None, own: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Products of the onward gradient with what each edge brought `[edges]`, and the gradient of the senders (`onto`).

        `own` `[heads, in]` is added to the senders that are the heads themselves. Compiled loops do both in one pass.
        """
        kernels = kernels_for(onward.numel() // _ROW, onward)
        if kernels is not None:
            nothing = onward.new_zeros(0, 0)
            coefficient = nothing.view(-1) if self.coefficient is None else self.coefficient.to(onward.dtype)
            tail, size = (near.tail[:0], 0) if onto is None else (onto.tail, onto.table_size)
            rows = (onward.contiguous(), sent.contiguous(), nothing if own is None else own.contiguous(), coefficient)
            of_edges, found = kernels.pull(*arrays(*rows, near.start, near.tail, near.edge_id, tail), size)
            return torch.from_numpy(of_edges), None if onto is None else torch.from_numpy(found)
        if near.tail.numel() * onward.size(1) < _FEW:
            return self._pull_few(onward, sent, near, onto, own)
        products = self._of_edges(near, pair_products(onward, sent, near))
        if onto is None:
            return products, None
        start, heads, order = onto.backwards()
        back = grouped_sum(
            onward, heads, start, self._of_edges(near, onward.new_ones(len(order))).index_select(0, order)
        )
        if own is not None:
            back[: near.num_heads] += own
        return products, back

    def _pull_few(
        self, onward: Tensor, sent: Tensor, near: Hop, onto: Hop | None, own: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same for few edges, where setting up sparse products would cost more than the work."""
        rows = onward.index_select(0, near.head)  # [edges, in]
        products = self._of_edges(near, torch.linalg.vecdot(rows, sent.index_select(0, near.tail)))
        if onto is None:
            return products, None
        if self.coefficient is not None:
            rows = rows * self._of_edges(near, rows.new_ones(())).view(-1, 1)
        back = rows.new_zeros(onto.table_size, rows.size(1)).index_add_(0, onto.tail, rows)
        if own is not None:
            back[: near.num_heads] += own
        return products, back

    def _own_backward(self, rows: Tensor, hop: Hop, gradient: Tensor, onward: Tensor) -> tuple[Tensor, Tensor | None]:
        """Through the own term: ∂/∂s `[heads]`, and the gradient of the heads' own rows `[heads, in]` (None: no own term)."""
        back: Tensor | None = None
        if self.loop is not None:
            back = onward * self.loop.index_select(0, hop.node).view(-1, 1)
        if self.root is not None:
            through = gradient @ self.root if isinstance(self.root, Tensor) else onward * self.root
            back = through if back is None else back + through
        return (gradient.new_zeros(hop.num_heads) if back is None else _row_dot(back, rows)), back

    # --- differences --------------------------------------------------------------------------------------------------

    def difference(self, change: Tensor) -> Tensor:
        """What a change of what is received changes in the output: `[n, in]` to `[n, out]`, without coefficients."""
        return change if self.matrix is None else functional.linear(change, self.matrix)

    def own_difference(self, change: Tensor, node: Tensor) -> Tensor | None:
        """What a change of the nodes' own features `[n, in]` changes through their own term; None: the layer has none."""
        total: Tensor | None = None
        if self.loop is not None:
            total = self.difference(change) * self.loop.index_select(0, node).view(-1, 1)  # scaled when it is narrow
        if self.root is not None:
            through = functional.linear(change, self.root) if isinstance(self.root, Tensor) else change * self.root
            through = self.difference(through) if isinstance(self.root, float) else through
            total = through if total is None else total + through
        return total

    def message(self, table: Any, edge: Tensor, sender: Tensor) -> Tensor:
        """What some edges add to the outputs of their receivers, `[n, out]`."""
        rows = (table.sent if isinstance(table, Prepared) else table).index_select(0, sender)
        rows = rows if isinstance(table, Prepared) and table.projected else self.difference(rows)
        return self.weighted(edge, rows)

    def own_term(self, table: Any, node: Tensor) -> Tensor | None:
        """What some nodes' own terms add to their outputs, `[n, out]`; None: the layer has none."""
        if self.loop is None and self.root is None:  # the table may then be that of other nodes
            return None
        if isinstance(table, Prepared):
            return None if table.own is None else table.own.index_select(0, node)
        return self.own_difference(table.index_select(0, node), node)

    def weighted(self, edge: Tensor, rows: Tensor) -> Tensor:
        """Rows times the coefficients of their edges."""
        return rows if self.coefficient is None else rows * self.coefficient.index_select(0, edge).view(-1, 1)

    def coefficients(self, edge: Tensor, like: Tensor) -> Tensor:
        """The coefficients of some columns, `[edges]`; `like` gives the dtype where all are 1."""
        return like.new_ones(len(edge)) if self.coefficient is None else self.coefficient.index_select(0, edge)


def _scaled(rows: Tensor, own: Tensor | None) -> Tensor:
    return rows if own is None else rows * own.view(-1, 1)


def _row_dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b)
