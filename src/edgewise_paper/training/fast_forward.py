"""Faster forward passes of PyG's GCN, GIN and GAT on one fixed graph, for training.

What does not change between epochs is done once: features become a sparse matrix, the first layer's aggregation of them is
computed in advance, the adjacency is normalised and kept in both directions. `fast_forward` is the front door; each pass
returns what the model itself returns, up to rounding (checked before it is used), and draws dropout in the same order.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

Forward = Callable[[], Tensor]
DENSE_ABOVE = 0.3  # a matrix with more non-zeros than that is faster as a dense one
TOLERANCE = 1e-4


class ConstantMatrix:
    """A matrix that is not trained, and its transpose: `matrix @ rows` has a gradient by `rows` alone.

    `forth` multiplies by the matrix, `back` by its transpose, which is what the backward pass needs.

    >>> pick = ConstantMatrix.gather(torch.tensor([2, 0, 2]), size=3)
    >>> rows = torch.tensor([[1.0], [2.0], [3.0]])
    >>> (pick @ rows).view(-1)
    tensor([3., 1., 3.])
    >>> (pick.transposed @ torch.ones(3, 1)).view(-1)          # how often each row was picked
    tensor([1., 0., 2.])
    """

    def __init__(self, forth: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> None:
        self.forth, self.back = forth, back

    @staticmethod
    def of(matrix: Tensor) -> "ConstantMatrix":
        """From a sparse matrix (COO): kept as CSR, or dense if it is not sparse enough to be faster so."""
        matrix = matrix.coalesce()
        if matrix.values().numel() > DENSE_ABOVE * matrix.numel():
            dense = matrix.to_dense()
            return ConstantMatrix(lambda rows: dense @ rows, lambda rows: dense.t() @ rows)
        forth, back = matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr()
        return ConstantMatrix(lambda rows: forth @ rows, lambda rows: back @ rows)

    @staticmethod
    def gather(index: Tensor, size: int) -> "ConstantMatrix":
        """The matrix that puts row `index[i]` of `size` rows at place i."""
        place = torch.stack([index, torch.arange(len(index), device=index.device)])
        ones = torch.ones(len(index), device=index.device)
        collect = torch.sparse_coo_tensor(place, ones, (size, len(index))).coalesce().to_sparse_csr()
        return ConstantMatrix(lambda rows: rows.index_select(0, index), lambda rows: collect @ rows)

    @property
    def transposed(self) -> "ConstantMatrix":
        """The transpose; of a gather, the sum over all places with the same index."""
        return ConstantMatrix(self.back, self.forth)

    def __matmul__(self, rows: Tensor) -> Tensor:
        found: Tensor = _Product.apply(rows, self)  # type: ignore[no-untyped-call]
        return found


class _Product(torch.autograd.Function):
    """`matrix @ rows`, whose gradient by the rows is the transpose times the gradient."""

    @staticmethod
    def forward(context: Any, rows: Tensor, matrix: ConstantMatrix) -> Tensor:
        context.back = matrix.back
        return matrix.forth(rows)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return context.back(gradient.contiguous()), None


def fast_forward(model: nn.Module, data: Data) -> Forward:
    """A function without arguments that returns `model(data.x, data.edge_index)`, `[nodes, outputs]`.

    It is a fast pass if the model is a GCN, GIN or GAT of PyG and the pass agrees with the model to `TOLERANCE`; else it
    calls the model. It reads the parameters anew each time, so they can be trained through it.
    """
    maker = _MAKERS.get(type(model))
    plain: Forward = lambda: model(data.x, data.edge_index)  # noqa: E731
    if maker is None:
        return plain
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "sparse CSR is in beta state", "invariant checks are disabled"
        fast = maker(model, data)
    return fast if _agree(model, plain, fast) else plain


@torch.no_grad()
def _agree(model: nn.Module, plain: Forward, fast: Forward) -> bool:
    """Whether two passes give the same in eval mode."""
    was = model.training
    model.eval()
    expected, found = plain(), fast()
    model.train(was)
    return bool((found - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max())))


def _between(model: Any, rows: Tensor) -> Tensor:
    """What a model of PyG does between two layers: the activation, then dropout."""
    found: Tensor = model.dropout(model.act(rows))
    return found


def _adjacency(edge_index: Tensor, weight: Tensor, size: int) -> Tensor:
    """`[receiver, sender]`, sparse."""
    return torch.sparse_coo_tensor(edge_index.flip(0), weight, (size, size)).coalesce()


def _normalised(data: Data) -> Tensor:
    """GCN's adjacency with self-loops, D^-½ (A + I) D^-½."""
    edge_index, weight = gcn_norm(data.edge_index, None, data.num_nodes, dtype=data.x.dtype)
    return _adjacency(edge_index, weight, data.num_nodes)


def _gcn(model: Any, data: Data) -> Forward:
    """Layer l: Â h W + b; Â x is a constant, so the first layer is one product with a constant matrix."""
    adjacency = _normalised(data)
    first, onward = ConstantMatrix.of(torch.sparse.mm(adjacency, data.x.to_sparse())), ConstantMatrix.of(adjacency)

    def forward() -> Tensor:
        rows = first @ model.convs[0].lin.weight.t() + model.convs[0].bias
        for conv in model.convs[1:]:
            rows = onward @ conv.lin(_between(model, rows)) + conv.bias
        return rows

    return forward


def _gin(model: Any, data: Data) -> Forward:
    """Layer l: an MLP of (A + I) h; (A + I) x is a constant. A GIN of PyG has ε = 0, and does not train it."""
    weight = data.x.new_ones(data.edge_index.size(1))
    adjacency = _adjacency(data.edge_index, weight, data.num_nodes)
    own = torch.sparse_coo_tensor(
        torch.arange(data.num_nodes, device=data.x.device).expand(2, -1),
        data.x.new_ones(data.num_nodes),
        adjacency.shape,
    )
    total = (adjacency + own).coalesce()  # A + I
    first, onward = ConstantMatrix.of(torch.sparse.mm(total, data.x.to_sparse())), ConstantMatrix.of(total)

    def block(conv: Any, rows: Tensor) -> Tensor:
        one, two = conv.nn.lins
        return two(conv.nn.act(rows + one.bias))

    def forward() -> Tensor:
        rows = block(model.convs[0], first @ model.convs[0].nn.lins[0].weight.t())
        for conv in model.convs[1:]:
            rows = block(conv, (onward @ _between(model, rows)) @ conv.nn.lins[0].weight.t())
        return rows

    return forward


def _gat(model: Any, data: Data) -> Forward:
    """GATv2 with self-loops. `M` edges are sorted by their receivers, so that the softmax is one pass over segments.

    Dropout of attention weights therefore falls on other edges than in PyG's order, equally often.
    """
    loops = add_self_loops(remove_self_loops(data.edge_index)[0], num_nodes=data.num_nodes)[0]
    sender, receiver = loops[:, loops[1].argsort(stable=True)]
    send, receive = (ConstantMatrix.gather(ends.contiguous(), data.num_nodes) for ends in (sender, receiver))
    collect = receive.transposed
    degree = torch.bincount(receiver, minlength=data.num_nodes)  # [N], at least 1: the self-loop
    first = ConstantMatrix.of(data.x.to_sparse())

    def attend(conv: Any, left: Tensor, right: Tensor) -> Tensor:
        heads, width = conv.heads, conv.out_channels
        sent = send @ left  # [M, heads · width]
        paired = functional.leaky_relu(sent + receive @ right, conv.negative_slope).view(-1, heads, width)
        score = (paired * conv.att).sum(-1)  # [M, heads]
        top = torch.segment_reduce(score.detach(), "max", lengths=degree, axis=0)  # [N, heads]
        weight = (score - receive @ top).exp()
        weight = weight / (receive @ (collect @ weight))
        weight = functional.dropout(weight, conv.dropout, model.training)
        rows = collect @ (sent.view(-1, heads, width) * weight.unsqueeze(-1)).view(-1, heads * width)
        return (rows if conv.concat else rows.view(-1, heads, width).mean(dim=1)) + conv.bias

    def forward() -> Tensor:
        conv = model.convs[0]
        rows = attend(conv, *(first @ lin.weight.t() + lin.bias for lin in (conv.lin_l, conv.lin_r)))
        for conv in model.convs[1:]:
            rows = _between(model, rows)
            rows = attend(conv, conv.lin_l(rows), conv.lin_r(rows))
        return rows

    return forward


_MAKERS: dict[type, Callable[[Any, Data], Forward]] = {GCN: _gcn, GIN: _gin, GAT: _gat}
