"""FeatureScores: a signed score for every feature of every node that can reach the target; `FeatureSet`: those of many targets.

Only what is not zero is stored. The dense `[N, F]` is made when it is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from edgewise.arguments import one_of, shown, whole_number
from edgewise.arrays import chosen_positions, is_position, plain_index, read_tensor
from edgewise.contract import checked
from edgewise.errors import InputError, PositionError
from edgewise.results.explanation import ORDERS, strength
from edgewise.results.feature_factors import FeatureRows, stored_row
from edgewise.results.ranked_rows import NamedTopFeature, Ranked, TopFeature, TopNode
from edgewise.text import counted

if TYPE_CHECKING:
    from edgewise.results.typed_features import FeatureTable

_Row = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class FeatureScores:
    """Which features of which nodes made the number of one target what it is.

    Positive supports the explained class, negative opposes it; a node that cannot reach the target has zeros. `stored` are the
    places (node · F + feature) and the scores that are not zero.

    >>> stored = (torch.tensor([1, 4]), torch.tensor([0.5, -2.0]))
    >>> why = FeatureScores(2, 1, 1.5, "occlusion", 3, 2, stored, feature_names=("age", "debt"))
    >>> why.scores
    tensor([[ 0.0000,  0.5000],
            [ 0.0000,  0.0000],
            [-2.0000,  0.0000]])
    >>> why.top(1, by="magnitude")
    [(-2.0, 2, 0, 'age')]
    """

    index: Any
    """The explained node or graph, or the pair `(u, v)` of a link."""
    target: int
    value: float
    """The explained number."""
    method: str
    num_nodes: int
    num_features: int
    stored: _Row | None
    """`[n]` each: places and scores; None for `cam` and `grad_cam`, which score nodes."""
    num_edges: int = 0
    num_attributes: int = 0
    stored_edges: _Row | None = None
    """The same for edge attributes (column · D + attribute); None if the model reads none."""
    stored_nodes: _Row | None = None
    """Nodes and scores, of `cam` and `grad_cam`."""
    feature_names: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    given: Tensor | None = None
    """`[N, F]`: the features themselves; None where they are not known any more, as after `ew.load`."""
    n_id: Tensor | None = None
    """`[N]`: of a batch of a `NeighborLoader`, the number of each node in the whole graph, as `top` lists it; else None."""

    @cached_property
    def scores(self) -> Tensor | None:
        """`[N, F]`, with zeros; None for methods that score nodes."""
        return None if self.stored is None else self._dense(self.stored, self.num_nodes, self.num_features)

    @cached_property
    def edge_scores(self) -> Tensor | None:
        """`[E, D]`: scores of edge attributes, in the column order of `data.edge_index`; None if the model reads none."""
        if self.stored_edges is None:
            return None
        return self._dense(self.stored_edges, self.num_edges, self.num_attributes)

    def _dense(self, stored: _Row, rows: int, width: int) -> Tensor:
        place, score = stored
        return score.new_zeros(rows * width).index_copy_(0, place, score).view(rows, width).to(self.device)

    def per_node(self) -> Tensor:
        """`[N]`: the scores of each node's features, added up."""
        place, score = self._nodes_of_scores()
        return score.new_zeros(self.num_nodes).index_add_(0, place, score).to(self.device)

    def _nodes_of_scores(self) -> _Row:
        if self.stored is None:
            assert self.stored_nodes is not None
            return self.stored_nodes
        return self.stored[0] // max(self.num_features, 1), self.stored[1]

    def per_feature(self) -> Tensor:
        """`[F]`: the scores of each feature, added up over the nodes."""
        if self.stored is None:
            raise InputError(f"{self.method} scores nodes, not features. Use per_node(), or method='gradient_x_input'.")
        place, score = self.stored
        features = place % max(self.num_features, 1)
        return score.new_zeros(self.num_features).index_add_(0, features, score).to(self.device)

    @checked
    def top(self, k: int = 10, by: str = "support") -> Ranked:
        """The k strongest, best first: `(score, node, feature)`, with the feature's name behind where the data has names.

        `by="support"` takes only positive scores, `"opposition"` only negative ones, `"magnitude"` all but zeros. For `cam` and
        `grad_cam`: `(score, node)`.
        """
        one_of("`by`", by, ORDERS)
        k = whole_number("k", k, at_least=0, such_as=10)
        place, score = self._nodes_of_scores() if self.stored is None else self.stored
        strong = strength(score, by)
        order = strong.argsort(descending=True, stable=True)[:k]
        return Ranked(self._entry(int(place[i]), float(score[i])) for i in order[strong[order] > 0])

    @checked
    def of_node(self, node: int, k: int = 5) -> list[tuple[float, str, float | None]]:
        """The k strongest features of one node, by magnitude: `(score, name, value)`; a value is None if it is not known.

        >>> stored = (torch.tensor([1, 4]), torch.tensor([0.5, -2.0]))
        >>> why = FeatureScores(2, 1, 1.5, "occlusion", 3, 2, stored, given=torch.tensor([[0.0, 7.0], [0.0, 0.0], [1.0, 0.0]]))
        >>> why.of_node(0)
        [(0.5, 'feature 1', 7.0)]
        """
        if self.stored is None:
            raise InputError(f"{self.method} scores nodes, not features. Use method='gradient_x_input'.")
        place, score = self.stored
        mine = (place // max(self.num_features, 1) == node).nonzero().view(-1)
        order = mine[score[mine].abs().argsort(descending=True, stable=True)][:k].tolist()
        features = [int(place[i]) % self.num_features for i in order]
        names = [f"feature {f}" if self.feature_names is None else self.feature_names[f] for f in features]
        row = None if self.given is None else self.given[node].reshape(-1)
        values = [None if row is None else float(row[f]) for f in features]
        return [(float(score[i]), name, value) for i, name, value in zip(order, names, values, strict=True)]

    def _entry(self, place: int, score: float) -> TopFeature | NamedTopFeature | TopNode:
        node, feature = (place, 0) if self.stored is None else divmod(place, self.num_features)
        node = node if self.n_id is None else int(self.n_id[node])
        if self.stored is None:
            return TopNode(score, node)
        plain, names = TopFeature(score, node, feature), self.feature_names
        return plain if names is None else NamedTopFeature(*plain, names[feature])

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for every score other than zero: `index`, `target`, `node`, `feature` (and its `name`), `score`.

        Of a link the two ends are `index` and `index_to`.
        """
        keys = ("score", "node", "feature", "name")
        entries = [dict(zip(keys, entry, strict=False)) for entry in self.top(10**18, by="magnitude")]
        pair = isinstance(self.index, tuple)
        index = {"index": self.index[0], "index_to": self.index[1]} if pair else {"index": self.index}
        return [{**index, "target": self.target, **entry} for entry in entries]

    def __repr__(self) -> str:
        stored = self.stored_nodes if self.stored is None else self.stored
        size = f"{self.num_nodes}" if self.stored is None else f"{self.num_nodes}×{self.num_features}"
        return (
            f"FeatureScores({self.method}, index={self.index}, target={self.target}, value={self.value:.4g}, "
            f"scores {size}, {0 if stored is None else len(stored[0])} stored)"
        )


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """The feature scores of many targets in the order of `index`: a sequence of `FeatureScores`, stored without zeros.

    `len(all_)`, `all_[3]`, `for why in all_`, `all_[:10]`, `all_.of(42)` (the one of node 42), `all_.save("all.npz")`.
    """

    index: Tensor
    """`[T]`: the explained nodes or graphs; `[T, 2]`: the two ends of the explained links."""
    target: Tensor
    """`[T]`: the explained classes."""
    value: Tensor
    """`[T]`: the explained numbers."""
    method: str
    sizes: Tensor
    """`[T, 2]`, or `[1, 2]` if all have the same graph: numbers of nodes and edges."""
    num_features: int
    num_attributes: int
    features: FeatureRows | None
    """Scores of node features; None for `cam` and `grad_cam`."""
    attributes: FeatureRows | None = None
    """Scores of edge attributes; None if the model reads none."""
    nodes: FeatureRows | None = None
    """Scores of nodes, for `cam` and `grad_cam`."""
    feature_names: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    types: tuple["FeatureTable", ...] = ()
    """Of typed graphs: where the features of each type stand; one for all targets, or one for each."""
    n_id: Tensor | None = None
    """`[N]`: of a sampled batch, the numbers of its nodes in the whole graph."""
    given: tuple[Tensor, ...] | None = None
    """The features themselves: one table if all targets have the same graph, otherwise one for each; not saved to files."""

    def __len__(self) -> int:
        return len(self.index)

    @overload
    def __getitem__(self, item: int) -> FeatureScores: ...
    @overload
    def __getitem__(self, item: Any) -> "FeatureSet": ...
    def __getitem__(self, item: Any) -> "FeatureScores | FeatureSet":
        """One by position, or a smaller set by slice, list or mask of positions."""
        if is_position(item):
            position = int(item)
            if not -len(self) <= position < len(self):
                raise PositionError(
                    f"Position {position} is outside the {len(self)} targets. Use .of({position}) for a node's number."
                )
            return self._one(position % len(self))
        return self._some(chosen_positions(item, len(self)))

    def __iter__(self) -> Iterator[FeatureScores]:
        return (self._one(position) for position in range(len(self)))

    @checked
    def of(self, index: Any) -> FeatureScores:
        """The scores of the node or graph with that number, or of a link, a pair; of a typed graph as it was asked for."""
        number = self.types[0].types.number(index) if isinstance(index, tuple) and self.types else index
        try:
            same = self.index == read_tensor(number)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"`index` must be a node or graph, or a pair for a link, got {shown(index)}.") from error
        found = (same.all(dim=1) if same.dim() == 2 else same).nonzero()
        if len(found) == 0:
            raise InputError(f"{index} is not among the {len(self)} explained targets. Ask about it first.")
        return self._one(int(found[0]))

    def _one(self, position: int) -> FeatureScores:
        nodes, edges = self.sizes[position if len(self.sizes) > 1 else 0].tolist()
        stored, of_edges, of_nodes = (
            None if rows is None else stored_row(rows, position)
            for rows in (self.features, self.attributes, self.nodes)
        )
        flat = FeatureScores(
            index=plain_index(self.index[position : position + 1])[0],
            target=int(self.target[position]),
            value=float(self.value[position]),
            method=self.method,
            num_nodes=nodes,
            num_features=self.num_features,
            stored=stored,
            num_edges=edges,
            num_attributes=self.num_attributes,
            stored_edges=of_edges,
            stored_nodes=of_nodes,
            feature_names=self.feature_names,
            settings=self.settings,
            device=self.device,
            n_id=self.n_id,
            given=None if self.given is None else self.given[position if len(self.given) > 1 else 0],
        )
        return self._typed(flat, position) if self.types else flat

    def _typed(self, flat: FeatureScores, position: int) -> Any:
        """The same by node type and edge type."""
        from edgewise.results.typed_features import TypedFeatureScores

        return TypedFeatureScores(flat, self.types[position if len(self.types) > 1 else 0])

    def _some(self, positions: Tensor) -> "FeatureSet":
        return replace(
            self,
            index=self.index[positions],
            target=self.target[positions],
            value=self.value[positions],
            sizes=self.sizes if len(self.sizes) == 1 else self.sizes[positions],
            types=self.types if len(self.types) < 2 else tuple(self.types[i] for i in positions.tolist()),
            given=self.given
            if self.given is None or len(self.given) == 1
            else tuple(self.given[i] for i in positions.tolist()),
            features=None if self.features is None else self.features.select(positions),
            attributes=None if self.attributes is None else self.attributes.select(positions),
            nodes=None if self.nodes is None else self.nodes.select(positions),
        )

    @checked
    def save(self, path: str | Path) -> None:
        """Write to `.npz` or `.parquet`; `ew.load(path)` reads it back, lossless."""
        from edgewise.results.feature_storage import save_features

        save_features(self, path)

    def to_rows(self) -> list[dict[str, Any]]:
        """The rows of every target, as in `FeatureScores.to_rows`, with their `position` in the set."""
        return [{"position": i, **row} for i, one in enumerate(self) for row in one.to_rows()]

    def __repr__(self) -> str:
        rows = self.nodes if self.features is None else self.features
        return f"FeatureSet({self.method}, {counted(len(self), 'target')}, {0 if rows is None else len(rows)} scores)"


Sequence.register(FeatureSet)  # not a base class: its method `index` would stand in the way of the field
