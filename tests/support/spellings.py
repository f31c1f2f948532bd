"""The same function in many spellings: operations that change nothing, and piecewise linear ones beside their plain forms."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

import zoo
from zoo import CLASSES, FEATURES, WIDTH

Function = Callable[[Tensor], Tensor]

NO_OPS: dict[str, Function] = {
    "float64": lambda x: x.double(),
    "to device": lambda x: x.to("cpu"),
    "to dtype": lambda x: x.to(x.dtype),
    "type": lambda x: x.type(x.dtype),
    "type_as": lambda x: x.type_as(x),
    "one times": lambda x: 1 * x,
    "times one": lambda x: x * 1.0,
    "torch.mul": lambda x: torch.mul(x, 1),
    "over one": lambda x: x / 1,
    "torch.div": lambda x: torch.div(x, 1.0),
    "plus zero": lambda x: x + 0,
    "zero plus": lambda x: 0.0 + x,
    "minus zero": lambda x: x - 0,
    "to the one": lambda x: x**1,
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "dropout": lambda x: functional.dropout(x, 0.5, training=False),
    "dropout module": nn.Dropout(0.5).eval(),
    "alpha dropout": nn.AlphaDropout(0.5).eval(),
    "identity": nn.Identity(),
    "view_as": lambda x: x.view_as(x),
    "view": lambda x: x.view(x.shape),
    "reshape": lambda x: x.reshape(x.shape),
    "flatten": lambda x: x.flatten(1),
    "added in place": lambda x: x.clone().add_(0),
    "scaled in place": lambda x: x.clone().mul_(1),
    "several": lambda x: (1 * x.clone().to("cpu") + 0).contiguous(),
}
"""Each hands its input on."""


def _prelu(x: Tensor) -> Tensor:
    return functional.prelu(x, torch.full((x.size(1),), 0.2, dtype=x.dtype))


RECTIFIERS: dict[str, Function] = {
    "clamp": lambda x: x.clamp(min=0),
    "torch.clamp": lambda x: torch.clamp(x, 0),
    "clip": lambda x: torch.clip(x, min=0),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp in place": lambda x: x.clone().clamp_(min=0),
    "threshold": lambda x: functional.threshold(x, 0, 0),
    "maximum": lambda x: torch.maximum(x, torch.zeros((), dtype=x.dtype)),
    "maximum of zeros": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "maximum, turned": lambda x: torch.maximum(torch.zeros_like(x), x),
    "torch.max": lambda x: torch.max(x, x.new_zeros(())),
    "minimum": lambda x: -torch.minimum(-x, torch.zeros((), dtype=x.dtype)),
    "turned twice": lambda x: -(-x).clamp(max=0),
    "leaky with slope 0": lambda x: functional.leaky_relu(x, 0.0),
    "prelu with weight 0": lambda x: functional.prelu(x, torch.zeros(1, dtype=x.dtype)),
    "hardtanh": lambda x: functional.hardtanh(x, 0.0, 1e6),
    "half, doubled": lambda x: 2 * (0.5 * functional.relu(x)),
    "doubled, halved": lambda x: (functional.relu(x) * 2) / 2,
    "half before": lambda x: functional.relu(x / 2) * 2,
    "shifted there and back": lambda x: functional.relu((x + 1) - 1),
    "one minus": lambda x: 1 - (1 - functional.relu(x)),
    "scaled by a tensor": lambda x: functional.relu(x * torch.full((x.size(1),), 2.0, dtype=x.dtype)) / 2,
    "scaled by a row for each node": lambda x: functional.relu(x * torch.full((len(x), 1), 2.0, dtype=x.dtype)) / 2,
    "float after": lambda x: functional.relu(x).to(x.dtype),
}
"""Each is a ReLU."""

PAIRS: dict[str, tuple[Function, Function]] = {
    "leaky and prelu": (lambda x: functional.leaky_relu(x, 0.2), _prelu),
    "leaky and rrelu": (
        lambda x: functional.leaky_relu(x, 0.2),
        lambda x: functional.rrelu(x, 0.1, 0.3, training=False),
    ),
    "leaky and maximum": (lambda x: functional.leaky_relu(x, 0.2), lambda x: torch.maximum(x, 0.2 * x)),
    "relu6 and hardtanh": (lambda x: functional.relu6(4 * x), lambda x: functional.hardtanh(4 * x, 0.0, 6.0)),
    "relu6 and clamp": (lambda x: functional.relu6(4 * x), lambda x: (4 * x).clamp(0, 6)),
    "hardtanh and clamps": (lambda x: functional.hardtanh(3 * x), lambda x: (3 * x).clamp(min=-1).clamp(max=1)),
    "hardtanh and both": (
        lambda x: functional.hardtanh(3 * x),
        lambda x: torch.minimum(torch.maximum(3 * x, x.new_full((), -1)), x.new_full((), 1)),
    ),
    "abs and a leaky relu": (torch.abs, lambda x: functional.leaky_relu(x, -1.0)),
    "a threshold that is no zero": (lambda x: functional.threshold(x, 0.1, 0.1), lambda x: x.clamp(min=0.1)),
}
"""Two spellings of one function that is no ReLU."""


class Spelled(nn.Module):
    """Two convs and a head; `act` stands between them, and `before` in front of the first."""

    def __init__(self, act: Function, before: Function | None = None, kind: str = "gcn") -> None:
        super().__init__()
        self.first, self.second = _conv(kind, FEATURES, WIDTH, act), _conv(kind, WIDTH, WIDTH, act)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.act, self.before = act, before or (lambda x: x)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.act(self.first(self.before(x), edge_index))
        return self.head(self.act(self.second(hidden, edge_index)))


class Residual(Spelled):
    """The same with a residual around the second conv, which reads the state through `before`."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.act(self.first(x, edge_index))
        return self.head(self.act(self.second(self.before(hidden), edge_index) + hidden))


def _conv(kind: str, inputs: int, outputs: int, act: Function) -> nn.Module:
    if kind == "gin":
        return GINConv(nn.Sequential(nn.Linear(inputs, WIDTH), _Act(act), nn.Linear(WIDTH, outputs)))
    return GCNConv(inputs, outputs) if kind == "gcn" else SAGEConv(inputs, outputs)


class _Act(nn.Module):
    def __init__(self, act: Function) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


def build(
    act: Function, before: Function | None = None, kind: str = "gcn", seed: int = 0, residual: bool = False
) -> nn.Module:
    """Float64, eval mode, generic weights: the same for every spelling."""
    with torch.random.fork_rng():
        return zoo.randomise((Residual if residual else Spelled)(act, before, kind), seed)
