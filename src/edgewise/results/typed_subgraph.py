"""TypedSubgraph: a part of an explanation of a typed graph, by edge type; and which edge type is the way back of which.

Edges are chosen on the union of all types, as in any graph (`subgraph.py`). The two directions of an edge are columns of two
types, (user, rates, movie) and (movie, rated_by, user): `way_back` finds the type that leads back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from edgewise.arrays import occurrence
from edgewise.errors import InputError
from edgewise.graph.type_table import EdgeType, TypeTable
from edgewise.results.subgraph import Subgraph

if TYPE_CHECKING:
    from edgewise.results.typed_explanation import TypedExplanation


@dataclass(frozen=True, eq=False)
class TypedSubgraph:
    """Some edges (at layer level: layers and edges) of an explanation of a typed graph; frozen.

    `flat` is the same part of the union of all types.
    """

    whole: "TypedExplanation"
    flat: Subgraph

    def __len__(self) -> int:
        return len(self.flat)

    @property
    def mask(self) -> dict[EdgeType, Tensor]:
        """By edge type, bool in the shape of its scores: what is in it."""
        return {kind: self.flat.mask[..., at.start : at.stop] for kind, at in self._ranges().items()}

    @property
    def columns(self) -> dict[EdgeType, Tensor]:
        """By edge type: the columns of its `edge_index` that are in it, in any layer."""
        found = {}
        for kind, mask in self.mask.items():
            found[kind] = (mask if mask.dim() == 1 else mask.any(dim=0)).nonzero().view(-1)
        return found

    @property
    def edge_index(self) -> dict[EdgeType, Tensor]:
        """By edge type `[2, columns]`: source and receiver of each of these columns, numbered within their types."""
        ends: Mapping[EdgeType, Tensor] = self.whole.edge_index  # type: ignore[assignment]
        return {kind: ends[kind][:, columns] for kind, columns in self.columns.items()}

    @property
    def nodes(self) -> dict[str, Tensor]:
        """By node type: the nodes that its edges touch, in ascending order."""
        types, touched = self.whole.types, self.flat.nodes
        ranges = {name: types.node_range(name) for name in types.node_types}
        return {
            name: touched[(touched >= at.start) & (touched < at.stop)] - at.start for name, at in ranges.items()
        }  # fmt: skip

    def complement(self) -> "TypedSubgraph":
        """Every edge that is not in it, whatever its score."""
        return replace(self, flat=self.flat.complement())

    def explanation(self) -> "TypedExplanation":
        """The scores of its edges, 0 elsewhere."""
        return self.whole.with_flat(self.flat.explanation())

    def as_mask(self) -> "TypedExplanation":
        """1 for its edges, 0 elsewhere: what `ew.metrics.fidelity` takes as it is."""
        return self.whole.with_flat(self.flat.as_mask())

    def to_data(self, data: HeteroData) -> HeteroData:
        """The data with these columns alone; nodes keep their numbers."""
        for kind, count in self.whole.types.edges:
            if kind not in data.edge_types or data[kind].edge_index.size(1) != count:
                raise InputError(
                    f"`data` must have the {count} edges of type {kind} of the explanation. Use the data that was explained."
                )
        return data.edge_subgraph(self.columns)

    def _ranges(self) -> Mapping[EdgeType, range]:
        types = self.whole.types
        return {kind: types.edge_range(kind) for kind in types.edge_types}

    def __repr__(self) -> str:
        nodes = sum(len(part) for part in self.nodes.values())
        return f"TypedSubgraph({len(self)} of {self.flat.mask.numel()} entries, {nodes} nodes, of {self.whole!r})"


def way_back(kinds: list[EdgeType]) -> dict[EdgeType, EdgeType]:
    """For edge types that have one: the type that leads back along the same edges.

    That is `rev_rates` (or, from there, `rates`), as PyG's `ToUndirected` names it; otherwise the only other type that leads
    back, where none else leads there. A relation from a type to itself is its own, unless there is a `rev_` of it.

    >>> rates, rated, knows = ("user", "rates", "movie"), ("movie", "rated_by", "user"), ("user", "knows", "user")
    >>> way_back([rates, rated, knows]) == {rates: rated, rated: rates, knows: knows}
    True
    """
    named = {kind: _reverse_name(kind) for kind in kinds}
    found = {kind: other for kind, other in named.items() if other in kinds and other != kind}
    left = [kind for kind in kinds if kind not in found]
    for kind in left:
        source, _, receiver = kind
        there = [one for one in left if (one[0], one[2]) == (source, receiver)]
        back = [one for one in left if (one[0], one[2]) == (receiver, source)]
        if source == receiver:
            found[kind] = kind
        elif len(back) == 1 and len(there) == 1:
            found[kind] = back[0]
        elif back:
            raise InputError(
                f"Several edge types join {source!r} and {receiver!r}, so it cannot be told which one is the way back of "
                f"{kind}. Name it {named[kind]}, as PyG's ToUndirected does, or leave the directions apart."
            )
    return found


def _reverse_name(kind: EdgeType) -> EdgeType:
    """`("movie", "rev_rates", "user")` of `("user", "rates", "movie")`, and the other way round."""
    source, relation, receiver = kind
    return receiver, relation.removeprefix("rev_") if relation.startswith("rev_") else f"rev_{relation}", source


def typed_pairs(edge_index: Tensor, types: TypeTable) -> Tensor:
    """`[E]` of the union: the same number for the two directions of an edge, columns of a type and of its way back.

    Of parallel edges the first is with the first, and so on.
    """
    back, keys = way_back(types.edge_types), []
    for number, kind in enumerate(types.edge_types):
        columns = types.edge_range(kind)
        source, receiver = edge_index[:, columns.start : columns.stop]
        nth = occurrence(source * max(int(edge_index.max()) + 1, 1) + receiver) if len(source) else source
        other = back.get(kind, kind)
        if other == kind and kind[0] == kind[2]:  # both directions are columns of this type
            ends = torch.stack([torch.minimum(source, receiver), torch.maximum(source, receiver)])
        else:
            first = types.edge_types.index(other) >= number
            ends = torch.stack([source, receiver] if first else [receiver, source])
        relation = torch.full_like(source, min(number, types.edge_types.index(other)))
        keys.append(torch.cat([relation.view(1, -1), ends, nth.view(1, -1)]))
    every = torch.cat(keys, dim=1) if keys else edge_index.new_zeros(4, 0)
    return every.unique(dim=1, return_inverse=True)[1] if every.size(1) else every.new_zeros(0)
