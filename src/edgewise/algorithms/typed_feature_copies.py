"""Feature scores of typed graphs: copies of the targets' graphs through the user's own model, each type's features a variable.

The features of all types are laid one after the other (`results/typed_features.py`), so that a target has one long row of
numbers whatever the widths of its types.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.feature_copies import (
    FeatureCopies,
    FeatureLosses,
    FeaturePath,
    FeatureSlopes,
    plain_features,
)
from edgewise.arrays import with_digits
from edgewise.graph.copies import Copies
from edgewise.model.typed_call import TypedForward
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.equality import close
from edgewise.question.target import Target
from edgewise.results.typed_features import FeatureTable, feature_tables

_ALONE = 3
Variable = tuple[Any, str]
"""A type of nodes or edges, and the attribute that is moved: `("user", "x")`."""


class TypedFeatureCopies(FeatureCopies):
    """Runs the model itself for blocks of targets of a typed graph, or of whole typed graphs."""

    def __init__(self, question: PosedQuestion, memory: int) -> None:
        forward = question.call.forward
        assert isinstance(forward, TypedForward)
        self._typed = forward
        super().__init__(question, memory)
        positions = range(1 if question.in_one_graph else len(question.index))
        known = [question.types_of(position) for position in positions]
        graphs = [
            forward.data_of(0 if question.in_one_graph else int(question.index[position])) for position in positions
        ]
        self.tables = feature_tables(
            graphs, [one for one in known if one is not None], attributes=self.reads_attributes
        )
        """The layout of the features: one for all targets of one graph, else one for each target."""

    # --- what is moved ------------------------------------------------------------------------------------------------

    def _variables(self, copies: Copies, *, of_edges: bool) -> dict[Variable, Tensor]:
        """The floating-point features of every node type, or the attributes of every edge type, of a graph that is run."""
        data = self._typed.part(copies.data).data
        kinds, name = (data.edge_types, "edge_attr") if of_edges else (data.node_types, "x")
        found = {(kind, name): data[kind].get(name) for kind in kinds}
        return {key: value for key, value in found.items() if isinstance(value, Tensor) and value.is_floating_point()}

    def _run(self, copies: Copies, values: dict[Variable, Tensor]) -> Tensor:
        """The rows of the targets with other features."""
        call = replace(self._call, forward=self._typed.with_values(values))
        return call(copies.data)[copies.rows]

    def _reads_attributes(self) -> bool:
        copies = next(iter(self._graphs(torch.tensor([0]))))[1]
        given = self._variables(copies, of_edges=True)
        if not given:
            return False
        leaves = {key: value.detach().clone().requires_grad_() for key, value in given.items()}
        with torch.enable_grad():
            rows = self._run(copies, leaves)
            found = (
                torch.autograd.grad(rows.sum(), list(leaves.values()), allow_unused=True) if rows.requires_grad else ()
            )
        with torch.no_grad():
            moved = self._run(copies, {key: 2 * value + 1 for key, value in given.items()})
        return any(slope is not None for slope in found) or not torch.equal(moved, rows.detach())

    def _items(self, copies: Copies, variable: Variable, start: int) -> tuple[Tensor, Tensor]:
        """`[rows]` each: the target of each row of a variable, and the place where its features begin."""
        kind, name = variable
        part = self._typed.part(copies.data)
        if name == "x":
            rows, (item, owner), to_user = part.nodes[kind], copies.nodes, self.question.nodes
        else:
            rows, (item, owner), to_user = part.columns[kind], copies.columns, self.question.columns
        number, owner = to_user(item)[rows], owner[rows]
        shift = [self._shift(table, variable) for table in self.tables]
        table = self._positions.to(owner.device)[start + owner] if len(shift) > 1 else torch.zeros_like(owner)
        first, begin, width = torch.tensor(shift, device=number.device)[table].unbind(1)
        return owner, begin + (number - first) * width

    @staticmethod
    def _shift(table: FeatureTable, variable: Variable) -> tuple[int, int, int]:
        """(first number of the type in the union, first place of its features, features of one of them)."""
        kind, name = variable
        numbers = table.types.node_range(kind) if name == "x" else table.types.edge_range(kind)
        places, width = table.nodes[kind] if name == "x" else table.edges[kind]
        return numbers.start, places.start, width

    # --- gradients ----------------------------------------------------------------------------------------------------

    def slopes(self, positions: Tensor, path: FeaturePath) -> tuple[FeatureSlopes, FeatureSlopes | None]:
        """Σ share · gradient at t · features: of node features, and of edge attributes while the others stay as they are."""
        self._positions = positions
        nodes, edges = [], []
        for start, copies in self._graphs(positions):
            target = sub_target(self.question, positions[start : start + copies.num_targets])
            nodes.append(self._sums(copies, target, start, path, of_edges=False))
            if self.reads_attributes:
                edges.append(self._sums(copies, target, start, path, of_edges=True))
        return _in_one(nodes), _in_one(edges) if edges else None

    def _sums(
        self, copies: Copies, target: Target, start: int, path: FeaturePath, *, of_edges: bool
    ) -> list[FeatureSlopes]:
        values = {key: with_digits(value) for key, value in self._variables(copies, of_edges=of_edges).items()}
        total = {key: torch.zeros_like(value) for key, value in values.items()}
        for place, share in path:
            leaves = {key: (value * place).detach().clone().requires_grad_() for key, value in values.items()}
            with torch.enable_grad():
                number = target.value(self._run(copies, leaves)).sum()
            if not number.requires_grad:
                continue
            found = torch.autograd.grad(number, list(leaves.values()), allow_unused=True)
            for key, slope in zip(leaves, found, strict=True):
                total[key] += 0.0 if slope is None else share * slope
        return [self._row(copies, key, start, total[key], value) for key, value in values.items()]

    def _row(self, copies: Copies, variable: Variable, start: int, slope: Tensor, value: Tensor) -> FeatureSlopes:
        """The gradients of one type as a row for each single feature, `[rows · F, 1]`."""
        owner, begin = self._items(copies, variable, start)
        flat = plain_features(value)
        item = (begin.view(-1, 1) + torch.arange(flat.size(1), device=begin.device)).view(-1)
        owner = (owner + start).repeat_interleave(flat.size(1))
        given = flat.reshape(-1, 1)
        return FeatureSlopes(
            owner, item, plain_features(slope).reshape(-1, 1), width=1, given=lambda: (owner, item, given.view(-1))
        )

    # --- occlusion ----------------------------------------------------------------------------------------------------

    def losses(self, positions: Tensor) -> tuple[FeatureLosses, FeatureLosses | None]:
        """What every target's number loses when one feature of one node, or one attribute of one edge, is set to 0."""
        self._positions = positions
        kinds = (False, True) if self.reads_attributes else (False,)
        found = [self._all_losses(positions, of_edges=of_edges) for of_edges in kinds]
        return found[0], found[1] if len(found) > 1 else None

    @torch.no_grad()
    def _all_losses(self, positions: Tensor, *, of_edges: bool) -> FeatureLosses:
        parts = []
        for start, copies in self._graphs(positions):
            part = positions[start : start + copies.num_targets]
            target = sub_target(self.question, part)
            before = target.value(self._run(copies, {}))
            for variable, value in self._variables(copies, of_edges=of_edges).items():
                owner, begin = self._items(copies, variable, start)
                row, feature = plain_features(value).nonzero(as_tuple=True)
                score = before.new_zeros(len(row))
                for chunk in self._chunks(copies, owner[row]):
                    change = (row[chunk], feature[chunk], owner[row[chunk]])
                    after = target.select(change[2]).value(self._without(copies, part, variable, change))
                    score[chunk] = before[change[2]] - after
                parts.append((owner[row] + start, begin[row] + feature, score))
        owner, item, score = (torch.cat(column) for column in zip(*parts, strict=True))
        order = owner.argsort(stable=True)
        return FeatureLosses(owner[order], item[order], torch.zeros_like(item), score[order], 1)

    def _without(self, copies: Copies, positions: Tensor, variable: Variable, change: tuple[Tensor, ...]) -> Tensor:
        """The targets' rows, each with one number set to 0: (row of the type, feature, target), `[n]` each."""
        row = change[0]
        if self._shared is not False and len(row) > 1 and not self._is_whole(copies):
            together = self._side_by_side(copies, positions, variable, change)
            if self._shared is None:
                some = torch.linspace(0, len(row) - 1, min(_ALONE, len(row)), device=row.device).long()
                alone = torch.stack(list(self._each_alone(copies, variable, [part[some] for part in change])))
                self._shared = together is not None and close(together[some], alone)
            if self._shared and together is not None:
                return together
        return torch.stack(list(self._each_alone(copies, variable, change)))

    def _side_by_side(
        self, copies: Copies, positions: Tensor, variable: Variable, change: tuple[Tensor, ...]
    ) -> Tensor | None:
        """All changes in one pass, each in a copy of its target's graph; None if the model takes one graph at a time."""
        row, feature, owner = change
        graphs = self.question.plain_copies(positions.to(owner.device)[owner].cpu())
        if len(graphs) != 1 or graphs[0].num_targets != len(owner):
            return None
        count = torch.bincount(self._items(copies, variable, 0)[0], minlength=copies.num_targets)
        first = count.cumsum(0) - count  # [targets]: where the rows of each begin
        begin = count[owner].cumsum(0) - count[owner]  # [n]: the same in the new graph
        values = self._variables(graphs[0], of_edges=variable[1] != "x")[variable].clone()
        plain_features(values)[begin + row - first[owner], feature] = 0.0
        return self._run(graphs[0], {variable: values})

    def _each_alone(self, copies: Copies, variable: Variable, change: Any) -> Iterator[Tensor]:
        """A pass over all copies for each change."""
        given = self._variables(copies, of_edges=variable[1] != "x")[variable]
        for row, feature, owner in zip(*(part.tolist() for part in change), strict=True):
            values = given.clone()
            plain_features(values)[row, feature] = 0.0
            yield self._run(copies, {variable: values})[owner]


def _in_one(graphs: list[list[FeatureSlopes]]) -> FeatureSlopes:
    """The gradients of all types and all graphs of a block, sorted by target."""
    parts = [part for graph in graphs for part in graph]
    owner, item, left = (torch.cat([getattr(part, name) for part in parts]) for name in ("owner", "item", "left"))
    value = torch.cat([part.given()[2] for part in parts if part.given is not None])
    order = owner.argsort(stable=True)
    owner, item, left, value = owner[order], item[order], left[order], value[order]

    def given() -> tuple[Tensor, Tensor, Tensor]:
        pair = value.nonzero().view(-1)
        return pair, torch.zeros_like(pair), value[pair]

    return FeatureSlopes(owner, item, left, width=1, given=given)
