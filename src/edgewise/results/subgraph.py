"""Subgraph: a part of an explanation, its strongest edges, connected to the target if asked.

`select` is behind `Explanation.subgraph`, `merge` (the two directions of an edge with one score) behind
`Explanation.merged`. `GrownSubgraph`, at the end, grows connected subgraphs from the target, greedily.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arguments import one_of, real_number, whole_number
from edgewise.arrays import occurrence
from edgewise.errors import InputError
from edgewise.results.entries import strongest
from edgewise.results.explanation import ORDERS, Explanation, strength

MERGES = ("sum", "mean", "max")
"""How the scores of the two directions of an edge become one."""


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
        """`[2, columns]`: source and receiver of each of these columns."""
        return self.whole.edge_index[:, self.columns]

    @property
    def nodes(self) -> Tensor:
        """The nodes that its edges touch, in ascending order."""
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
                f"`data` must have the {self.whole.edge_index.size(1)} edges of the explanation, got "
                f"{data.edge_index.size(1)}. Use the data that was explained."
            )
        return data.edge_subgraph(self.columns)

    def __repr__(self) -> str:
        entries = f"{len(self)} of {self.mask.numel()} {'layers and edges' if self.mask.dim() > 1 else 'edges'}"
        return f"Subgraph({entries}, {len(self.nodes)} nodes, of {self.whole!r})"


def select(
    why: Explanation,
    k: Any,
    by: str,
    threshold: Any,
    *,
    connected: bool,
    undirected: str | None,
    pairs: Tensor | None = None,
) -> Subgraph:
    """The edges that `Explanation.subgraph` asks for: ranked everywhere, or grown from the target if `connected`.

    `pairs` as in `merge`.
    """
    one_of("`by`", by, ORDERS)
    k = whole_number("k", k, at_least=0, or_none="for all above the threshold", such_as=10)
    threshold = real_number("threshold", threshold, at_least=0, hint="For edges that oppose, use by='opposition'.")
    if bool(why.scores.isnan().any()):
        raise InputError(
            "The scores have NaN entries, which cannot be ranked. Remove NaN from the model's weights and the data, and "
            "explain again."
        )
    if undirected is not None and pairs is None:
        pairs = _pairs(why.edge_index, why.num_nodes)
    scored = why if undirected is None else merge(why, undirected, pairs)
    strong = strength(scored.scores, by)
    able = strong > threshold
    together = _alone(why.edge_index) if undirected is None or pairs is None else pairs
    grown = GrownSubgraph(why, strong, able, together)
    if connected:
        able = grown.attached() if k is None else grown.attached_strongest(k)
    elif k is not None:
        able = grown.strongest(k)
    return Subgraph(scored, able)


def merge(why: Explanation, undirected: str, pairs: Tensor | None = None) -> Explanation:
    """The scores of u → v and v → u as one; `Explanation.merged` says how.

    `pairs` `[E]` has the same number for columns that belong together, where ends alone do not tell.
    """
    one_of("`undirected`", undirected, MERGES)
    pair = _pairs(why.edge_index, why.num_nodes) if pairs is None else pairs
    rows = why.scores if why.scores.dim() == 2 else why.scores.unsqueeze(0)
    number = int(pair.max()) + 1 if len(pair) else 0
    how = {"sum": "sum", "mean": "mean", "max": "amax"}[undirected]
    together = rows.new_zeros(len(rows), number).scatter_reduce(1, pair.expand_as(rows), rows, how, include_self=False)
    return replace(why, scores=together[:, pair].reshape(why.scores.shape))


def _alone(edge_index: Tensor) -> Tensor:
    """`[E]`: every edge is a unit of its own."""
    return torch.arange(edge_index.size(1), device=edge_index.device)


def _pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """`[E]`: the same number for the two directions of an edge; of parallel edges the first with the first, and so on.

    >>> _pairs(torch.tensor([[0, 1, 0, 2], [1, 0, 1, 1]]), 3)        # 0→1 and 1→0; 0→1 again; 2→1
    tensor([0, 0, 1, 2])
    """
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    nth = occurrence(edge_index[0] * num_nodes + edge_index[1])
    key = torch.stack([low, high, nth])
    return key.unique(dim=1, return_inverse=True)[1] if key.size(1) else key.new_zeros(0)


# --- Connected edges: grown from the target, the strongest that can be attached first ----------------------------------


class GrownSubgraph:
    """Entries of one explanation that may be taken, in units (an edge, or both of its directions) that come together.

    An edge is attached to the target if its receiver is, so that its message can arrive. At layer level it must arrive in
    time: the receiver is attached from a later layer on (a node may keep what it received). A whole graph has no target
    node: there the strongest edge is the start, and an edge is attached to it by either end.

    Example, at input level: edges 0→1 (score 5), 1→2 (score 1), 3→2 (score 2), target 2, k = 2. Node 2 alone is attached at
    first, so the choice is between 1→2 and 3→2: 3→2 is taken, and then 1→2. Only now is node 1 attached, so that 0→1, the
    strongest edge of all, would be the third.

    Attributes are `[n]`, one for each entry (layer, edge) that may be taken; `_place` is layer · E + column.
    """

    def __init__(self, why: Explanation, strength: Tensor, able: Tensor, together: Tensor) -> None:
        """`strength` and `able` have the shape of the scores; `together` `[E]` gives edges of one unit the same number."""
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
        """k units, each the strongest that is attached to the target when it is taken; fewer if no more is."""
        taken, attached_from = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        for _ in range(k):
            open_ = self._attached(attached_from) & ~taken
            if not bool(open_.any()):
                break
            best = torch.where(open_, self._strength, -torch.inf).argmax()
            attached_from = self._take(self._unit == self._unit[best], taken, attached_from)
        return self._mask(taken)

    def attached(self) -> Tensor:
        """Every unit that is attached to the target, directly or through others."""
        taken, attached_from = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        if self._of_graph and len(self._place):
            attached_from = self._take(self._unit == self._unit[self._strength.argmax()], taken, attached_from)
        while True:
            new = self._attached(attached_from) & ~taken
            if not bool(new.any()):
                return self._mask(taken)
            attached_from = self._take(torch.isin(self._unit, self._unit[new]), taken, attached_from)

    def _start(self) -> Tensor:
        """`[N]`: the latest layer in which a node is attached to the target; 0 if it is not."""
        attached_from = torch.zeros(self._num_nodes, dtype=torch.long, device=self._place.device)
        if not self._of_graph:
            attached_from[list(self._index) if isinstance(self._index, tuple) else self._index] = self._last
        return attached_from

    def _attached(self, attached_from: Tensor) -> Tensor:
        """`[n]`: whether an entry could be taken next."""
        if not self._of_graph:
            return attached_from[self._receiver] >= self._arrives
        if not bool(attached_from.any()):
            return torch.ones_like(self._place, dtype=torch.bool)
        return (attached_from[self._receiver] > 0) | (attached_from[self._sender] > 0)

    def _take(self, unit: Tensor, taken: Tensor, attached_from: Tensor) -> Tensor:
        """Mark the entries of a unit as taken (in place), and return which nodes are attached then."""
        taken |= unit
        ends = self._sender[unit]
        if not self._of_graph:
            return attached_from.scatter_reduce(0, ends, self._leaves[unit], "amax")
        return attached_from.index_fill(0, torch.cat([ends, self._receiver[unit]]), 1)

    def _unit_strength(self) -> Tensor:
        """`[units]`: equal for all entries of a unit."""
        number = int(self._unit.max()) + 1 if len(self._unit) else 0
        return self._strength.new_zeros(number).index_copy(0, self._unit, self._strength)

    def _mask(self, taken: Tensor) -> Tensor:
        """The taken entries in the shape of the scores."""
        full = torch.zeros(self._shape, dtype=torch.bool, device=self._place.device)
        full.view(-1)[self._place[taken]] = True
        return full
