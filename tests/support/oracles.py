"""Slow twins, written straight from the definitions; they share no code with the library.

A model plus a graph is a function of ω[l, e], the weight of the message of edge e in call l, and of s[l, v], the weight
of node v's own term in call l. `Twin` is that function on the whole graph: a private copy of the model whose `message`
multiplies what it returns. Everything else here is a loop around it.
"""

import copy
import inspect
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)


def call(model, data, forward=None):
    """The model's output, called with those extras that its `forward` names and the data has."""
    if forward is not None:
        return forward(model, data)
    names = inspect.signature(model.forward).parameters
    extras = {name: data[name] for name in ("edge_weight", "edge_attr", "batch") if name in names and name in data}
    return model(data.x, data.edge_index, **extras)


def match(used: Tensor, given: Tensor) -> list[tuple[str, int]]:
    """For every message that a layer sent: ("edge", column) or ("self", node).

    Parallel edges in order of occurrence. One v→v message where the input has several loops belongs to the last of
    them; where it has none, to the node itself.
    """
    columns: dict[tuple[int, int], list[int]] = {}
    for column, pair in enumerate(given.t().tolist()):
        columns.setdefault(tuple(pair), []).append(column)
    sent: dict[tuple[int, int], int] = {}
    for pair in used.t().tolist():
        sent[tuple(pair)] = sent.get(tuple(pair), 0) + 1
    seen: dict[tuple[int, int], int] = {}
    owners = []
    for source, receiver in used.t().tolist():
        pair = (source, receiver)
        occurrence = seen.get(pair, 0)
        seen[pair] = occurrence + 1
        own = columns.get(pair, [])
        if len(own) == sent[pair]:
            owners.append(("edge", own[occurrence]))
        elif source == receiver and sent[pair] == 1:
            owners.append(("edge", own[-1]) if own else ("self", source))
        else:
            raise AssertionError(f"{sent[pair]} messages {source}→{receiver}, {len(own)} edges")
    return owners


class Twin:
    """A private copy of a model on one whole graph, as a function of ω [L, E] and s [L, N]."""

    def __init__(self, model, data, forward=None):
        self.model, self.data, self.forward = copy.deepcopy(model).eval(), data, forward
        self.edges, self.nodes = data.edge_index.shape[1], data.num_nodes
        self.layer_weight = self.self_weight = None
        self.calls, self.owners = 0, {}
        for module in self.model.modules():
            if isinstance(module, MessagePassing):
                self._forget_caches(module)
                self._weigh_messages(module)
                self._weigh_own_term(module)
        if hasattr(self.model, "skip"):
            skip = self.model.skip
            self.model.skip = lambda layer, x: self._own(layer, x) * skip(layer, x)
        with torch.no_grad():
            self()
        self.layers = self.calls

    def __call__(self, layer_weight=None, self_weight=None) -> Tensor:
        """The output of the model, [rows, columns]."""
        self.layer_weight, self.self_weight, self.calls = layer_weight, self_weight, 0
        output = call(self.model, self.data, self.forward)
        return output if output.dim() == 2 else output.unsqueeze(-1)

    def ones(self) -> tuple[Tensor, Tensor]:
        like = {"dtype": self.data.x.dtype}
        return torch.ones(self.layers, self.edges, **like), torch.ones(self.layers, self.nodes, **like)

    @staticmethod
    def _forget_caches(conv):
        if hasattr(conv, "cached"):
            conv.cached = False
        for name in ("_cached_edge_index", "_cached_adj_t", "_cached_x"):
            if hasattr(conv, name):
                setattr(conv, name, None)

    def _own(self, layer, x):
        """s of one call as a column beside x."""
        if self.self_weight is None:
            return torch.ones((), dtype=x.dtype)
        return self.self_weight[layer].view(-1, *[1] * (x.dim() - 1))

    def _weights_of(self, layer, used) -> Tensor | None:
        if self.layer_weight is None and self.self_weight is None:
            return None
        layer_weight, self_weight = self.ones() if None in (self.layer_weight, self.self_weight) else (None, None)
        layer_weight = layer_weight if self.layer_weight is None else self.layer_weight
        self_weight = self_weight if self.self_weight is None else self.self_weight
        if layer not in self.owners:
            owners = match(used, self.data.edge_index)
            positions = [which if kind == "edge" else self.edges + which for kind, which in owners]
            self.owners[layer] = torch.tensor(positions, dtype=torch.long)
        return torch.cat([layer_weight[layer], self_weight[layer]])[self.owners[layer]]

    def _weigh_messages(self, conv):
        propagate, message = conv.propagate, conv.message
        current = {}

        def weighted_propagate(edge_index, *args, **kwargs):
            current["weight"] = self._weights_of(self.calls, edge_index)
            self.calls += 1
            return propagate(edge_index, *args, **kwargs)

        def weighted_message(*args, **kwargs):
            out = message(*args, **kwargs)
            weight = current["weight"]
            return out if weight is None else out * weight.view(-1, *[1] * (out.dim() - 1))

        conv.propagate, conv.message = weighted_propagate, weighted_message

    def _weigh_own_term(self, conv):
        """The own terms that are no messages: root products and (1 + ε)x take the pair (sender, receiver)."""
        if isinstance(conv, (SAGEConv, GINConv, GINEConv, GraphConv)):
            forward = conv.forward
            conv.forward = lambda x, *args, **kwargs: forward((x, self._own(self.calls, x) * x), *args, **kwargs)
        elif isinstance(conv, TransformerConv) and conv.root_weight:  # the root product comes after the messages
            skip = conv.lin_skip
            bias = 0 if skip.bias is None else skip.bias
            plain = skip.forward
            skip.forward = lambda x: self._own(self.calls - 1, x) * (plain(x) - bias) + bias
        elif (
            isinstance(conv, (GATConv, GATv2Conv)) and getattr(conv, "res", None) is not None
        ):  # the residual comes before them
            residual = conv.res.forward
            conv.res.forward = lambda x: self._own(self.calls, x) * residual(x)


def weighted_output(model, data, layer_weight=None, self_weight=None, forward=None) -> Tensor:
    """Run a copy of the model on the whole graph with weighted messages and own terms."""
    return Twin(model, data, forward)(layer_weight, self_weight)


# The explained number #################################################################################################


def predicted(output: Tensor, mode: str) -> Tensor:
    """The class of every row that a user gets without asking for one."""
    if mode == "multiclass":
        return output.argmax(dim=-1)
    return (output[:, 0] > 0).long() if mode == "binary" else torch.zeros(len(output), dtype=torch.long)


def explained_number(output: Tensor, target: Tensor, mode: str = "multiclass", of: str = "logit") -> Tensor:
    """One number per row of the output: positive speaks for the target class."""
    if mode == "binary":
        sign = target.to(output.dtype) * 2 - 1
        logit = output[:, 0] * sign
        return {"logit": logit, "log_prob": F.logsigmoid(logit), "prob": logit.sigmoid()}[of]
    if mode == "multiclass" and of != "logit":
        output = output.log_softmax(dim=-1) if of == "log_prob" else output.softmax(dim=-1)
    return output.gather(1, target.view(-1, 1)).squeeze(1)


class Numbers:
    """The explained numbers of all rows of a model's output, as a function of ω and s; one row per node or graph."""

    def __init__(self, model, data, *, mode="multiclass", target=None, of="logit", forward=None):
        self.twin, self.mode, self.of = Twin(model, data, forward), mode, of
        with torch.no_grad():
            output = self.twin()
        self.target = predicted(output, mode) if target is None else torch.full((len(output),), target)
        self.layers, self.ones = self.twin.layers, self.twin.ones

    def __call__(self, layer_weight=None, self_weight=None) -> Tensor:
        return explained_number(self.twin(layer_weight, self_weight), self.target, self.mode, self.of)


# Scores from the definitions; every result has the rows of the output in front ########################################


@torch.no_grad()
def _one_by_one(number, which: str, shared: bool, change) -> Tensor:
    """Change every entry of ω ("edge") or s ("self") in turn; `change` gets a function of the entry's weight."""
    ones = dict(zip(("edge", "self"), number.ones(), strict=True))
    layers, width = ones[which].shape
    rows = len(number())
    result = torch.zeros(rows, 1 if shared else layers, width, dtype=ones[which].dtype)
    for layer in range(result.shape[1]):
        for column in range(width):

            def at(value, layer=layer, column=column):
                weights = {name: tensor.clone() for name, tensor in ones.items()}
                if shared:
                    weights[which][:, column] = value
                else:
                    weights[which][layer, column] = value
                return number(weights["edge"], weights["self"])

            result[:, layer, column] = change(at)
    return result.squeeze(1) if shared else result


def finite_difference_layer_gradient(number, which="edge", step=2e-6) -> Tensor:
    """∂z/∂ω[l, e] by central differences: [rows, L, E], or [rows, L, N] for `which="self"`.

    Truncation is of order step² = 4e-12 and rounding of order 1e-16 / step = 5e-11, so 1e-6 has room.
    """
    return _one_by_one(number, which, shared=False, change=lambda at: (at(1 + step) - at(1 - step)) / (2 * step))


def layer_occlusion(number, which="edge") -> Tensor:
    """z − z with one message of one call silenced."""
    return _one_by_one(number, which, shared=False, change=lambda at: at(1.0) - at(0.0))


def input_occlusion(number, which="edge") -> Tensor:
    """z − z with one edge's messages silenced in every call: [rows, E]."""
    return _one_by_one(number, which, shared=True, change=lambda at: at(1.0) - at(0.0))


def layer_gradient(number, layer_weight: Tensor, self_weight: Tensor) -> tuple[Tensor, Tensor]:
    """Exact derivatives at any (ω, s) by one backward pass per row; for paths, where differences would be too slow."""
    layer_weight, self_weight = layer_weight.clone().requires_grad_(), self_weight.clone().requires_grad_()
    pairs = [
        torch.autograd.grad(z, (layer_weight, self_weight), retain_graph=True, allow_unused=True)
        for z in number(layer_weight, self_weight)
    ]
    zeros = (torch.zeros_like(layer_weight), torch.zeros_like(self_weight))
    filled = [[zero if part is None else part for part, zero in zip(pair, zeros, strict=True)] for pair in pairs]
    return torch.stack([pair[0] for pair in filled]), torch.stack([pair[1] for pair in filled])


def integrated_gradients(number, steps: int = 400) -> tuple[Tensor, Tensor]:
    """∫₀¹ ∂z/∂ω at ω = t·1, self terms on, by a fine midpoint sum; and the same mean of ∂z/∂s along that path."""
    edge, own = number.ones()
    parts = [layer_gradient(number, edge * ((step + 0.5) / steps), own) for step in range(steps)]
    return sum(part[0] for part in parts) / steps, sum(part[1] for part in parts) / steps


def own_gradients(number, values, level) -> Tensor:
    """[values, rows, E] or [values, rows, L, E]: the gradient of every edge by its own weight."""
    edge, own = number.ones()
    layers, width = edge.shape
    groups = [range(layers)] if level == "input" else [[layer] for layer in range(layers)]
    found = []
    for value in values:
        parts = []
        for group in groups:
            columns = []
            for column in range(width):
                weight = edge.clone()
                weight[list(group), column] = value
                gradient, _ = layer_gradient(number, weight, own)
                columns.append(gradient[:, list(group), column].sum(dim=1))
            parts.append(torch.stack(columns, dim=1) if columns else torch.zeros(len(number()), 0))
        found.append(torch.stack(parts, dim=1))
    found = torch.stack(found)
    return found[:, :, 0] if level == "input" else found


# GNNExplainer #########################################################################################################


def pyg_start(edges: int, nodes: int, seed: int, dtype=torch.float32) -> Tensor:
    """The start of PyG's GNNExplainer after `torch.manual_seed(seed)`, without touching the global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.randn(edges, dtype=dtype) * (torch.nn.init.calculate_gain("relu") * math.sqrt(2.0 / (2 * nodes)))


def pyg_loss(row: Tensor, target: Tensor, mode: str) -> Tensor:
    """PyG's objective for one row of raw output; for a regression the target is the number predicted before."""
    if mode == "multiclass":
        return F.cross_entropy(row.unsqueeze(0), target.view(1))
    if mode == "binary":
        return F.binary_cross_entropy_with_logits(row.view(1), target.view(1).to(row.dtype))
    return F.mse_loss(row, target)


def _price(mask: Tensor, alive: Tensor, edge_size: float, edge_ent: float) -> Tensor:
    """Size and entropy of one mask over the entries that had a gradient in the first epoch."""
    m = mask[alive].sigmoid()
    entropy = -m * torch.log(m + 1e-15) - (1 - m) * torch.log(1 - m + 1e-15)
    return edge_size * m.sum() + edge_ent * entropy.mean()


def gnn_explainer(
    twin, row, target, init, *, mode="multiclass", epochs=100, lr=0.01, edge_size=0.005, edge_ent=1.0
) -> Tensor:
    """PyG's loop for one target; `init` [E] trains one mask for all calls, [L, E] one mask per call, jointly."""
    mask = init.clone().requires_grad_()
    optimizer = torch.optim.Adam([mask], lr=lr)
    alive = None
    for _ in range(epochs):
        optimizer.zero_grad()
        weight = mask.sigmoid()
        loss = pyg_loss(twin(weight if mask.dim() == 2 else weight.expand(twin.layers, -1))[row], target, mode)
        if alive is not None:
            rows = zip(mask, alive, strict=True) if mask.dim() == 2 else [(mask, alive)]
            loss = loss + sum(_price(m, a, edge_size, edge_ent) for m, a in rows if a.any())
        (mask.grad,) = torch.autograd.grad(loss, mask)
        optimizer.step()
        if alive is None:
            alive = mask.grad != 0
    return mask.detach().sigmoid() * alive


# Reach ################################################################################################################


def reach(edge_index: Tensor, index: int, layers: int) -> Tensor:
    """[L, E]: whether the message of an edge in a call can still reach the node, if nodes may also wait."""
    result = torch.zeros(layers, edge_index.shape[1], dtype=torch.bool)
    heads = {index}
    for layer in reversed(range(layers)):
        for column, (_, receiver) in enumerate(edge_index.t().tolist()):
            result[layer, column] = receiver in heads
        heads |= {source for column, (source, _) in enumerate(edge_index.t().tolist()) if result[layer, column]}
    return result
