"""LRP rules for walks, written from the formula: no autograd, every matrix by hand.

A linear map q^γ = Σ λ W^γ x + R^γ x + b^γ with x_out behind it has the block
diag(x_out / (q^γ + ε·sign q^γ)) · (λ W^γ [+ R^γ]), where M^γ = M + γM⁺, sign(0) = 1 and 0/0 = 0.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv

from walk_models import edge_counts, gcn_coefficients
from walk_oracles import Twin, attention_coefficients


@dataclass(frozen=True)
class Rule:
    """γ for each call, and ε."""

    gammas: tuple[float, ...]
    epsilon: float = 0.0

    def up(self, matrix, call):
        return None if matrix is None else matrix + self.gammas[call] * matrix.clamp(min=0)

    def share(self, x_out, q):
        """x_out / (q + ε·sign q), 0/0 = 0."""
        below = q + self.epsilon * torch.where(q >= 0, 1.0, -1.0).double()
        return torch.where(below == 0, torch.zeros_like(q), x_out / below)


def _mixing(conv, x, data):
    """(λ [N, N, channels], W, R, b): the linear map of a conv; its channels are `averaged` over heads afterwards."""
    if isinstance(conv, GCNConv):
        return gcn_coefficients(data).unsqueeze(-1), conv.lin.weight, None, conv.bias
    counts = edge_counts(data)
    if isinstance(conv, SAGEConv):
        if str(conv.aggr) == "mean":
            counts = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
        root = conv.lin_r.weight if conv.root_weight else None
        return counts.unsqueeze(-1), conv.lin_l.weight, root, conv.lin_l.bias
    if isinstance(conv, GraphConv):
        return counts.unsqueeze(-1), conv.lin_rel.weight, conv.lin_root.weight, conv.lin_rel.bias
    assert isinstance(conv, GATConv)
    alpha = attention_coefficients(conv, x, data, None)
    return alpha.repeat_interleave(conv.out_channels, dim=2), conv.lin.weight, None, conv.bias


def _merge(lam, weight, root, averaged):
    """[N, out, N, in] from λ, W and R."""
    blocks = torch.einsum("vuc,ci->vcui", lam.expand(*lam.shape[:2], len(weight)), weight)
    if averaged > 1:
        blocks = blocks.unflatten(1, (averaged, -1)).mean(dim=1)
    if root is not None:
        blocks = blocks + torch.einsum("vu,oi->voui", torch.eye(len(lam), dtype=torch.double), root)
    return blocks


def _linear_map(blocks, raised, bias, raised_bias, x, act, rule):
    """(the rule's blocks, the true x_out) of one map on all nodes."""

    def through(some, b):
        received = torch.einsum("voui,ui->vo", some, x)
        return received if b is None else received + b

    x_out = act(through(blocks, bias))
    return rule.share(x_out, through(raised, raised_bias))[:, :, None, None] * raised, x_out


def _call(conv, x, data, act, rule, call):
    if isinstance(conv, GINConv):
        return _gin(conv, x, data, act, rule, call)
    lam, weight, root, bias = _mixing(conv, x, data)
    averaged = conv.heads if isinstance(conv, GATConv) and not conv.concat else 1
    plain = _merge(lam, weight, root, averaged)
    raised = _merge(lam, rule.up(weight, call), rule.up(root, call), averaged)
    return _linear_map(plain, raised, bias, rule.up(bias, call), x, act, rule)


def _gin(conv, x, data, act, rule, call):
    """D₂ W₂^γ D₁ W₁^γ (1, or 1 + ε on a node itself)."""
    first, _, second = conv.nn
    own = torch.eye(data.num_nodes, dtype=torch.double) * (1 + conv.eps)
    lam = (edge_counts(data) + own).unsqueeze(-1)
    plain, raised = (_merge(lam, w, None, 1) for w in (first.weight, rule.up(first.weight, call)))
    lower, hidden = _linear_map(plain, raised, first.bias, rule.up(first.bias, call), x, torch.relu, rule)
    upper, x_out = _of_nodes(second, hidden, act, rule, call)
    return torch.einsum("voh,vhui->voui", upper, lower), x_out


def _of_nodes(linear, x, act, rule, call):
    """([N, out, in], x_out) of a linear map of every row by itself."""
    raised, bias = rule.up(linear.weight, call), rule.up(linear.bias, call)
    x_out = act(linear(x))
    q = x @ raised.t() + (0.0 if bias is None else bias)
    return rule.share(x_out, q).unsqueeze(-1) * raised, x_out


def _head(model, x, rule):
    """[rows, classes, N, in]: the rule's derivative of the output with respect to the last states; and the output."""
    size, pool, last = len(x), model.pool, len(rule.gammas) - 1
    weights = torch.eye(size, dtype=torch.double) if pool is None else torch.ones(1, size, dtype=torch.double)
    weights = weights / size if pool == "mean" else weights
    rows = weights @ x
    total = torch.eye(x.size(1), dtype=torch.double).expand(len(rows), -1, -1)
    linears = [layer for layer in model.head.modules() if isinstance(layer, nn.Linear)]
    for number, linear in enumerate(linears):
        act = torch.relu if number + 1 < len(linears) else nn.Identity()
        found, rows = _of_nodes(linear, rows, act, rule, last)
        total = found @ total
    return torch.einsum("roi,ru->roui", total, weights), rows


@torch.no_grad()
def rule_twin(model, data, rule):
    """The blocks of a Stack under a rule, for the predicted class of every node, or of the one graph."""
    blocks, states, x = [], [], data.x
    for call, conv in enumerate(model.convs):
        acts = call + 1 < len(model.convs) or model.acts_at_the_end
        states.append(x.numpy())
        found, x = _call(conv, x, data, model.act if acts else nn.Identity(), rule, call)
        blocks.append(found.numpy())
    derivative, output = _head(model, x, rule)
    rows, target = torch.arange(len(output)), output.argmax(dim=1)
    return Twin(blocks, states, derivative[rows, target].numpy(), output[rows, target].numpy())
