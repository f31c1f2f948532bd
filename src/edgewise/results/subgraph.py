"""A part of an explanation: its strongest edges, connected to the target if asked; and the two directions of an edge as one."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import InputError, SettingError
from edgewise.results.explanation import ORDERS, Explanation
from edgewise.results.explanation_set import strongest

# --- Edges that hang together: grown from the target, the strongest that can be attached first -------------------------


class Growing:
    """Entries of one explanation that may be taken, in units (an edge, or both of its directions) that come together.

    An edge hangs on the target if its receiver does: so its message can arrive. At layer level it must arrive in time: the
    receiver hangs on the target from a later layer on (a node may keep what it heard). Of a whole graph there is no target
    node: the strongest edge is the start, and an edge hangs on it by either end.
    """

    def __init__(self, why: Explanation, strength: Tensor, able: Tensor, together: Tensor) -> None:
        self._shape, width = able.shape, able.size(-1)
        self._place = able.reshape(-1).nonzero().view(-1)
        column, layer = self._place % max(width, 1), self._place // max(width, 1)
        self._unit = (layer * max(width, 1) + together[column]).unique(return_inverse=True)[1]
        self._strength = strength.reshape(-1)[self._place]
        against = why.settings.get("flow") == "target_to_source"
        self._sender, self._receiver = (why.edge_index.flip(0) if against else why.edge_index)[:, column]
        layered = why.level == "layer"
        self._arrives = layer + 1 if layered else torch.ones_like(layer)
        self._leaves = layer if layered else torch.ones_like(layer)
        self._of_graph = why.settings.get("task") == "graph"
        self._index, self._num_nodes, self._last = why.index, why.num_nodes, self._shape[0] if layered else 1

    def strongest(self, k: int) -> Tensor:
        """The k strongest units, wherever they are."""
        strength = self._unit_strength()
        best = strongest(torch.zeros(len(strength), dtype=torch.long, device=strength.device), strength, k)
        return self._mask(torch.isin(self._unit, best))

    def attached_strongest(self, k: int) -> Tensor:
        """k units, each the strongest that hangs on the target when it is taken; fewer if no more does."""
        taken, hangs = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        for _ in range(k):
            open_ = self._attached(hangs) & ~taken
            if not bool(open_.any()):
                break
            best = torch.where(open_, self._strength, -torch.inf).argmax()
            hangs = self._take(self._unit == self._unit[best], taken, hangs)
        return self._mask(taken)

    def attached(self) -> Tensor:
        """Every unit that hangs on the target through others."""
        taken, hangs = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        if self._of_graph and len(self._place):
            hangs = self._take(self._unit == self._unit[self._strength.argmax()], taken, hangs)
        while True:
            new = self._attached(hangs) & ~taken
            if not bool(new.any()):
                return self._mask(taken)
            hangs = self._take(torch.isin(self._unit, self._unit[new]), taken, hangs)

    def _start(self) -> Tensor:
        """`[N]`: the latest layer in which a node hangs on the target; 0 if it does not."""
        hangs = torch.zeros(self._num_nodes, dtype=torch.long, device=self._place.device)
        if not self._of_graph:
            hangs[self._index] = self._last
        return hangs

    def _attached(self, hangs: Tensor) -> Tensor:
        if not self._of_graph:
            return hangs[self._receiver] >= self._arrives
        if not bool(hangs.any()):
            return torch.ones_like(self._place, dtype=torch.bool)
        return (hangs[self._receiver] > 0) | (hangs[self._sender] > 0)

    def _take(self, unit: Tensor, taken: Tensor, hangs: Tensor) -> Tensor:
        taken |= unit
        ends = self._sender[unit]
        if not self._of_graph:
            return hangs.scatter_reduce(0, ends, self._leaves[unit], "amax")
        return hangs.index_fill(0, torch.cat([ends, self._receiver[unit]]), 1)

    def _unit_strength(self) -> Tensor:
        """`[units]`: equal for all entries of a unit."""
        number = int(self._unit.max()) + 1 if len(self._unit) else 0
        return self._strength.new_zeros(number).index_copy(0, self._unit, self._strength)

    def _mask(self, taken: Tensor) -> Tensor:
        full = torch.zeros(self._shape, dtype=torch.bool, device=self._place.device)
        full.view(-1)[self._place[taken]] = True
        return full


# --- The whole ---------------------------------------------------------------------------------------------------------


MERGES = ("sum", "mean", "max")


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some edges (at layer level: layers and edges) of an explanation, in its columns; frozen.

    >>> edges = torch.tensor([[0, 1], [2, 2]])
    >>> why = Explanation(torch.tensor([0.5, -2.0]), edges, 3, index=2, target=1, value=1.5)
    >>> part = why.subgraph(k=1, by="magnitude")
    >>> part.columns, part.complement().columns
    (tensor([1]), tensor([0]))
    """

    whole: Explanation
    mask: Tensor
    """Bool, in the shape of `whole.scores`: what is in it."""

    def __len__(self) -> int:
        return int(self.mask.sum())

    @property
    def columns(self) -> Tensor:
        """The columns of `data.edge_index` that are in it, in any layer."""
        return (self.mask if self.mask.dim() == 1 else self.mask.any(dim=0)).nonzero().view(-1)

    @property
    def edge_index(self) -> Tensor:
        """`[2, columns]`: their ends."""
        return self.whole.edge_index[:, self.columns]

    @property
    def nodes(self) -> Tensor:
        """The nodes that they touch."""
        return self.edge_index.unique()

    def complement(self) -> "Subgraph":
        """Every edge that is not in it, whatever its score."""
        return replace(self, mask=~self.mask)

    def explanation(self) -> Explanation:
        """The scores of its edges, 0 elsewhere."""
        return replace(self.whole, scores=torch.where(self.mask, self.whole.scores, 0.0))

    def as_mask(self) -> Explanation:
        """1 for its edges, 0 elsewhere: what `ew.metrics.fidelity` takes as it is."""
        return replace(self.whole, scores=self.mask.to(self.whole.scores.dtype), self_scores=None)

    def to_data(self, data: Data) -> Data:
        """The data with these columns alone; nodes keep their numbers."""
        if data.edge_index.shape != self.whole.edge_index.shape:
            raise InputError(
                f"data has {data.edge_index.size(1)} edges, the explanation {self.whole.edge_index.size(1)}. Pass the data "
                f"that was explained."
            )
        return data.edge_subgraph(self.columns)

    def __repr__(self) -> str:
        entries = f"{len(self)} of {self.mask.numel()} {'layers and edges' if self.mask.dim() > 1 else 'edges'}"
        return f"Subgraph({entries}, {len(self.nodes)} nodes, of {self.whole!r})"


def select(why: Explanation, k: Any, by: str, threshold: Any, *, connected: bool, undirected: str | None) -> Subgraph:
    """The edges that `Explanation.subgraph` asks for."""
    if by not in ORDERS:
        raise SettingError(f"by is {by!r}; known are {', '.join(ORDERS)}.")
    if k is not None and (not isinstance(k, SupportsIndex) or isinstance(k, bool) or int(k) < 0):
        raise SettingError(
            f"k is {k!r}; needed is a number of edges, such as k=10, or None for all above the threshold."
        )
    if (
        not isinstance(threshold, (int, float))
        or isinstance(threshold, bool)
        or not isfinite(threshold)
        or threshold < 0
    ):
        raise SettingError(
            f"threshold is {threshold!r}; needed is a number of at least 0. What opposes has by='opposition'."
        )
    if bool(why.scores.isnan().any()):
        raise InputError(
            "The scores have NaN entries, which have no rank. Explain again after cleaning the model and the data."
        )
    scored = why if undirected is None else merge(why, undirected)
    strength = {"support": scored.scores, "opposition": -scored.scores, "magnitude": scored.scores.abs()}[by]
    able = strength > threshold
    together = _pairs(why.edge_index, why.num_nodes) if undirected is not None else _alone(why.edge_index)
    growing = Growing(why, strength, able, together)
    if connected:
        able = growing.attached() if k is None else growing.attached_strongest(int(k))
    elif k is not None:
        able = growing.strongest(int(k))
    return Subgraph(scored, able)


def merge(why: Explanation, undirected: str) -> Explanation:
    """The scores of u → v and v → u as one; `Explanation.merged` says how."""
    if undirected not in MERGES:
        raise SettingError(f"undirected is {undirected!r}; known are {', '.join(MERGES)}.")
    pair = _pairs(why.edge_index, why.num_nodes)
    rows = why.scores if why.scores.dim() == 2 else why.scores.unsqueeze(0)
    number = int(pair.max()) + 1 if len(pair) else 0
    how = {"sum": "sum", "mean": "mean", "max": "amax"}[undirected]
    together = rows.new_zeros(len(rows), number).scatter_reduce(1, pair.expand_as(rows), rows, how, include_self=False)
    return replace(why, scores=together[:, pair].reshape(why.scores.shape))


def _alone(edge_index: Tensor) -> Tensor:
    return torch.arange(edge_index.size(1), device=edge_index.device)


def _pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """`[E]`: the same number for the two directions of an edge; of parallel edges the first with the first, and so on."""
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    arrow = edge_index[0] * num_nodes + edge_index[1]
    order = arrow.argsort(stable=True)
    nth = torch.empty_like(order)
    nth[order] = torch.arange(len(order), device=order.device) - torch.searchsorted(arrow[order], arrow[order])
    key = torch.stack([low, high, nth])
    return key.unique(dim=1, return_inverse=True)[1] if key.size(1) else key.new_zeros(0)
