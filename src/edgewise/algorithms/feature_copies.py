"""Feature scores through the user's own model: copies of the targets' graphs side by side, with the features as variables.

Every target has its own copy of every node and edge that it can see, so one backward pass of the sum of all explained numbers
holds the separate feature gradients of all of them, whatever stands before the first layer (an encoder, a norm).
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import with_digits
from edgewise.errors import ModelError
from edgewise.graph.copies import Copies
from edgewise.question import KEPT, PosedQuestion, sub_target
from edgewise.question.equality import close
from edgewise.question.known_model import rim_of
from edgewise.question.row_origins import RowOrigins
from edgewise.question.target import Target

FeaturePath = Sequence[tuple[float, float]]
"""Points t of a way from no features (0) to those of the data (1), each with its share of the integral along it."""
_HELD = 4
"""How often features are held while they change: a copy of each graph, what is joined, what is changed, what the model gets."""
_ALONE = 3
"""Changed copies that are run alone, too, to see whether copies change each other's output."""


@dataclass(frozen=True, eq=False)
class FeatureSlopes:
    """Gradients of the explained numbers by features: a row for each pair (target, node), sorted by target."""

    owner: Tensor
    """`[P]`: the position of the target in the block."""
    item: Tensor
    """`[P]`: the node (or column) of the user's graph."""
    left: Tensor
    """`[P, F]`, or with `right` `[P, H]`."""
    right: Tensor | None = None
    """`[H, F]`: the gradient is left times right."""
    width: int = 0
    """F."""
    given: Callable[[], tuple[Tensor, Tensor, Tensor]] | None = None
    """The features of the pairs that are not 0: (pair, feature, value), `[n]` each."""


@dataclass(frozen=True, eq=False)
class FeatureLosses:
    """What the explained numbers lose without one feature of one item, `[n]` each; features that are 0 are not listed."""

    owner: Tensor
    item: Tensor
    feature: Tensor
    score: Tensor
    width: int
    """How many features an item has."""


_OTHERS = ((-7.0, 3.0), (0.5, 1.0), (1.5, -0.5))
"""Other features, as factors of the given ones and what is added: with some of them a unit is on that is off with others."""
_MIXED = (
    "The scores of features cannot be found for these targets together: copies of what they see change one another's output. "
    "Ask about one target at a time."
)


class FeatureCopies:
    """Runs the model itself for blocks of targets; `reads_attributes` says whether edge attributes have scores, too."""

    way = "copies"

    def __init__(self, question: PosedQuestion, memory: int) -> None:
        self.question, self.memory = question, memory
        self._call = replace(question.call, changes_input=False)
        self._shared: bool | None = None
        """Whether changed copies may share a pass: a few of the first pass, and one of every other, are run alone."""
        self._is_apart = _are_apart(question)
        """Whether no row is known by its number, so that a copy gives the same in every place."""
        self._holds: dict[bool, bool] = {}
        """Whether copies give what the whole graph gives, also with other features: of one target, and of several in a pass."""
        self.reads_attributes = self._reads_attributes()

    # --- gradients ----------------------------------------------------------------------------------------------------

    def slopes(self, positions: Tensor, path: FeaturePath) -> tuple[FeatureSlopes, FeatureSlopes | None]:
        """Σ share · gradient at t · features: of node features, and of edge attributes while the others stay as they are."""
        found: list[tuple[FeatureSlopes, FeatureSlopes | None]] = []
        for start, copies in self._graphs(positions):
            part = positions[start : start + copies.num_targets]
            found.append(self._slopes_of(copies, sub_target(self.question, part), start, path))
        nodes, edges = zip(*found, strict=True)
        return _joined(nodes), None if edges[0] is None else _joined(edges)

    def _graphs(self, positions: Tensor) -> Iterator[tuple[int, Copies]]:
        """The graphs to run, each with the place of its first target."""
        graphs = self.question.copies(positions)
        several = graphs[0].num_targets > 1
        if several not in self._holds:
            self._holds[several] = self._hold(graphs[0], positions[: graphs[0].num_targets])
        if not self._holds[several]:
            graphs = self.question.whole_copies(positions)
            if graphs[0].num_targets > 1:
                raise ModelError(_MIXED)
        self.way = "whole graph" if self._is_whole(graphs[0]) else "copies"
        start = 0
        for copies in graphs:
            yield start, copies
            start += copies.num_targets

    @torch.no_grad()
    def _hold(self, copies: Copies, positions: Tensor) -> bool:
        """Whether copies give what the whole graph gives, with other features too, whatever the other copies hold.

        What is outside a copy may count for nothing as it is, behind a unit that is off; and equal copies do not show that one
        changes another's output.
        """
        x, (node, owner) = copies.data.x, copies.nodes
        if self._is_whole(copies) or not x.is_floating_point():
            return True
        if self.question.in_one_graph and not self._is_apart:
            return False
        ends = sorted({0, copies.num_targets - 1})
        wholes = self.question.whole_copies(positions[ends])
        if len(wholes) != len(ends):  # graphs of a batch: nothing is outside
            wholes = []
        before = self._rows(copies, x)
        for factor, shift in _OTHERS:
            mixed = self._rows(copies, torch.where(_like(owner == 0, x), factor * x + shift, x))
            if not close(mixed[1:], before[1:]):
                return False
            found = self._rows(copies, _other(x, node, factor, shift))[ends] if wholes else before
            for place, whole in enumerate(wholes):
                expected = self._rows(whole, _other(whole.data.x, whole.nodes[0], factor, shift))
                if not close(found[place : place + 1], expected):
                    return False
        return True

    def _is_whole(self, copies: Copies) -> bool:
        """Whether this is the whole graph of a node or link task, which has one target at a time."""
        return self.question.in_one_graph and copies.near_hops is None

    def _slopes_of(
        self, copies: Copies, target: Target, start: int, path: FeaturePath
    ) -> tuple[FeatureSlopes, FeatureSlopes | None]:
        x, attributes = with_digits(copies.data.x), None
        if self.reads_attributes:
            attributes = with_digits(copies.data.edge_attr)
        of_x = torch.zeros_like(plain_features(x))
        of_attributes = None if attributes is None else torch.zeros_like(plain_features(attributes))
        for place, share in path:
            both = place == 1.0 or of_attributes is None  # one pass gives both where nothing is moved
            gradients = self._gradients(copies, target, x * place, attributes)
            of_x += share * gradients[0]
            if of_attributes is not None and attributes is not None:
                moved = gradients if both else self._gradients(copies, target, x, attributes * place)
                of_attributes += share * moved[1]
        (node, node_owner), (column, column_owner) = copies.nodes, copies.columns
        nodes = _slopes(node_owner + start, self.question.nodes(node), of_x, x)
        if of_attributes is None or attributes is None:
            return nodes, None
        return nodes, _slopes(column_owner + start, self.question.columns(column), of_attributes, attributes)

    def _gradients(self, copies: Copies, target: Target, x: Tensor, attributes: Tensor | None) -> tuple[Tensor, Tensor]:
        """∂/∂x `[rows, F]` and ∂/∂attributes `[columns, D]` of the sum of the targets' numbers."""
        leaves = [part.detach().clone().requires_grad_() for part in (x, attributes) if part is not None]
        with torch.enable_grad():
            value = target.value(self._rows(copies, *leaves)).sum()
        found: Sequence[Tensor | None] = [None] * len(leaves)
        if value.requires_grad:
            found = torch.autograd.grad(value, leaves, allow_unused=True)
        full = [plain_features(torch.zeros_like(i) if g is None else g) for i, g in zip(leaves, found, strict=True)]
        return full[0], full[-1]

    def _rows(self, copies: Copies, x: Tensor, attributes: Tensor | None = None) -> Tensor:
        """The rows of the targets with other features; a model that writes into them gets a copy."""
        return self._call(with_features(copies.data, x, attributes))[copies.rows]

    def _reads_attributes(self) -> bool:
        """Whether the model reads floating-point `edge_attr`: its output moves with them, or autograd says so."""
        attributes = self.question.graphs[0].get("edge_attr")
        if not isinstance(attributes, Tensor) or not attributes.is_floating_point() or not len(attributes):
            return False
        copies = next(iter(self._graphs(torch.tensor([0]))))[1]
        given = copies.data.edge_attr
        with torch.enable_grad():
            leaf = given.detach().clone().requires_grad_()
            rows = self._call(with_features(copies.data, copies.data.x, leaf))
            (slope,) = torch.autograd.grad(rows.sum(), leaf, allow_unused=True) if rows.requires_grad else (None,)
        with torch.no_grad():
            moved = self._call(with_features(copies.data, copies.data.x, given * 2 + 1))
        return slope is not None or not torch.equal(moved, rows.detach())

    # --- occlusion ----------------------------------------------------------------------------------------------------

    def losses(self, positions: Tensor) -> tuple[FeatureLosses, FeatureLosses | None]:
        """What every target's number loses when one feature of one node, or one attribute of one edge, is set to 0."""
        found: dict[str, list[FeatureLosses]] = {"x": [], "edge_attr": []}
        for start, copies in self._graphs(positions):
            part = positions[start : start + copies.num_targets]
            for name in ("x", "edge_attr") if self.reads_attributes else ("x",):
                losses = self._losses_of(copies, part, name)
                found[name].append(replace(losses, owner=losses.owner + start))
        return _joined_losses(found["x"]), _joined_losses(found["edge_attr"]) if found["edge_attr"] else None

    @torch.no_grad()
    def _losses_of(self, copies: Copies, positions: Tensor, name: str) -> FeatureLosses:
        values = plain_features(copies.data[name])
        item, owner = copies.nodes if name == "x" else copies.columns
        place, feature = ((values != 0) & self._can_matter(copies, name).view(-1, 1)).nonzero(as_tuple=True)
        target = sub_target(self.question, positions)
        before = target.value(self._rows(copies, copies.data.x))
        scores = before.new_zeros(len(place))
        for chunk in self._chunks(copies, owner[place]):
            part = (place[chunk], feature[chunk], owner[place[chunk]])
            after = target.select(part[2]).value(self._changed(copies, positions, name, part))
            scores[chunk] = before[part[2]] - after
        user = self.question.nodes(item) if name == "x" else self.question.columns(item)
        return FeatureLosses(owner[place], user[place], feature, scores, values.size(1))

    def _can_matter(self, copies: Copies, name: str) -> Tensor:
        """Which nodes (or columns) of the copies can change their target: those of the rim only if its features are read.

        Layers that read the degrees of senders have a rim; a pass with other features there says whether more is read.
        """
        everything = torch.ones(len(copies.data[name]), dtype=torch.bool, device=copies.rows.device)
        if name != "x" or copies.near_hops is None:
            return everything
        near, x = copies.near_hops <= self.question.num_layers, copies.data.x
        if bool(near.all()):
            return everything
        other = torch.where(near.view(-1, *[1] * (x.dim() - 1)), x, 3.0 - 7.0 * x)
        same = torch.equal(self._rows(copies, x), self._rows(copies, other))
        return near if same and rim_of(self.question.trace) == "degrees" else everything

    def _chunks(self, copies: Copies, owner: Tensor) -> Iterator[Tensor]:
        """Changes `[n]` that fit the memory together: each of them needs a copy of its target's graph."""
        nodes, edges = (
            torch.bincount(part[1], minlength=copies.num_targets) for part in (copies.nodes, copies.columns)
        )
        question = self.question
        numbers = _HELD * copies.data.x[:1].numel() + KEPT * question.trace.node_width
        size = nodes * numbers * question.trace.output.element_size() + edges * question.edge_bytes
        group = size[owner].cumsum(0) // max(self.memory, 1)
        counts = torch.unique_consecutive(group, return_counts=True)[1].tolist()
        yield from torch.arange(len(owner), device=owner.device).split(counts) if counts else ()

    def _changed(self, copies: Copies, positions: Tensor, name: str, change: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The targets' rows, each with one number set to 0: (place in `data`, feature, target), `[n]` each."""
        place, feature, owner = change
        if self._shared is not False and len(place) > 1 and not self._is_whole(copies):
            together = self._together(copies, positions, name, change)
            if together is not None:
                many = min(_ALONE if self._shared is None else 1, len(place))
                some = torch.linspace(len(place) - 1, 0, many, device=place.device).long()
                alone = self._one_by_one(copies, name, (place[some], feature[some], owner[some]))
                self._shared = close(together[some], alone)
                if self._shared:
                    return together
            else:
                self._shared = False
        return self._one_by_one(copies, name, change)

    def _together(
        self, copies: Copies, positions: Tensor, name: str, change: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor | None:
        """All changes in one pass; None if the model takes one graph at a time, or not so many nodes."""
        place, feature, owner = change
        graphs = self.question.plain_copies(positions.to(owner.device)[owner].cpu())
        if len(graphs) != 1 or graphs[0].num_targets != len(owner):
            return None
        of_items = (copies.nodes if name == "x" else copies.columns)[1]
        count = torch.bincount(of_items, minlength=copies.num_targets)
        first = count.cumsum(0) - count  # [targets]: where the copy of each begins
        begin = count[owner].cumsum(0) - count[owner]  # [n]: the same in the new graph
        values = graphs[0].data[name].clone()
        plain_features(values)[begin + place - first[owner], feature] = 0.0
        x, attributes = (values, None) if name == "x" else (graphs[0].data.x, values)
        try:
            if self._is_apart or self._is_same_elsewhere(copies, graphs[0], owner):
                return self._rows(graphs[0], x, attributes)
        except ModelError:  # a table that has rows for so many nodes and no more
            pass
        return None

    def _is_same_elsewhere(self, copies: Copies, others: Copies, owner: Tensor) -> bool:
        """Whether copies of targets `owner` in other places give the same rows, with other features too."""
        given, there = (part.data.x for part in (copies, others))
        pairs = [(given, there)]
        for number in _OTHERS:
            pairs.append((_other(given, copies.nodes[0], *number), _other(there, others.nodes[0], *number)))
        return all(close(self._rows(others, moved), self._rows(copies, x)[owner]) for x, moved in pairs)

    def _one_by_one(self, copies: Copies, name: str, change: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """A pass over all copies for each change."""
        found = []
        for place, feature, owner in zip(*(part.tolist() for part in change), strict=True):
            values = copies.data[name].clone()
            plain_features(values)[place, feature] = 0.0
            x, attributes = (values, None) if name == "x" else (copies.data.x, values)
            found.append(self._rows(copies, x, attributes)[owner])
        return torch.stack(found)


def _are_apart(question: PosedQuestion) -> bool:
    """Whether it is known that the model knows no row by its number."""
    first, graph = question.subject.first, question.subject.example
    return (RowOrigins.of_pairs if question.task == "link" else RowOrigins.of)(first, graph).is_apart


def _other(x: Tensor, node: Tensor, factor: float, shift: float) -> Tensor:
    """Other features, the same for a copy of a node as for the node."""
    of_node = _like((node.to(x.dtype) * 0.618).frac() - 0.5, x)  # between −½ and ½, another one for each
    return factor * (1 + of_node) * x + shift * of_node


def _like(rows: Tensor, x: Tensor) -> Tensor:
    """A number for each row, to be combined with `x`."""
    return rows.view(-1, *[1] * (x.dim() - 1))


def with_features(graph: Data, x: Tensor, attributes: Tensor | None = None) -> Data:
    """The graph with other features, and other edge attributes if they are given; a model may write into them."""
    changed = copy.copy(graph)
    changed.x = x.clone()
    if attributes is not None:
        changed.edge_attr = attributes.clone()
    return changed


def plain_features(values: Tensor) -> Tensor:
    """Features as `[rows, numbers]`."""
    return values.view(len(values), prod(values.shape[1:]))


def _slopes(owner: Tensor, item: Tensor, gradient: Tensor, features: Tensor) -> FeatureSlopes:
    """Gradients `[P, F]` with the features `[P, F]` that they belong to."""
    flat = plain_features(features)

    def given() -> tuple[Tensor, Tensor, Tensor]:
        pair, feature = flat.nonzero(as_tuple=True)
        return pair, feature, flat[pair, feature]

    return FeatureSlopes(owner, item, gradient, width=flat.size(1), given=given)


def _joined(parts: Sequence[FeatureSlopes | None]) -> FeatureSlopes:
    """The gradients of several graphs as those of one block."""
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    owner, item, left = (torch.cat([getattr(part, name) for part in known]) for name in ("owner", "item", "left"))

    def given() -> tuple[Tensor, Tensor, Tensor]:
        found, begin = [], 0
        for part in known:
            assert part.given is not None
            pair, feature, value = part.given()
            found.append((pair + begin, feature, value))
            begin += len(part.owner)
        pairs, features, values = (torch.cat(column) for column in zip(*found, strict=True))
        return pairs, features, values

    return FeatureSlopes(owner, item, left, width=known[0].width, given=given)


def _joined_losses(parts: list[FeatureLosses]) -> FeatureLosses:
    owner, item, feature, score = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("owner", "item", "feature", "score")
    )
    return FeatureLosses(owner, item, feature, score, parts[0].width)
