"""Feature scores of lowered models: one reverse pass of the program down to the features, and changes of single rows.

A lowered program is a function of ω that was proved. As a function of the features it is proved here, once for each question:
its constants must be the features themselves, or what an encoder in front of the first layer makes of them row by row (edge
weights made from features take the other way), its output at other features must be the model's, and its gradients by the
features those of autograd through the model.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.feature_copies import FeatureLosses, FeaturePath, FeatureSlopes, with_features
from edgewise.arrays import enumerated, with_digits
from edgewise.errors import ModelError
from edgewise.model.front_call import FeatureFront
from edgewise.program.execution import prepare, run
from edgewise.program.feature_changes import run_changed, with_rows
from edgewise.program.feature_reverse import FeaturePass, PulledBack
from edgewise.program.ir import MessageStep, Program, Rows
from edgewise.program.levels import Levels, deepened, whole_levels
from edgewise.program.reverse import find_slopes
from edgewise.question import NodeQuestion, PosedQuestion, sub_target
from edgewise.question.block_growth import fitting_blocks
from edgewise.question.equality import close, random_weight, tolerance
from edgewise.question.row_origins import RowOrigins

_TABLE = 2**25
"""Entries of the table that numbers (change, node) pairs, of `_TABLE_ENTRY` bytes."""
_TABLE_ENTRY = 4
_HELD_ROWS = 4
"""How often the gradients of a block are held by all features at once, at most: made, in order, added, and of a call."""
_CHANGE_BYTES = 48
"""Of a change: its numbers, and what is made of them."""
_ABSENT = 0.3
"""The share of features that are 0 where the program is compared with the model."""


class FeatureProgram:
    """Runs the lowered program of a question about nodes, with features as variables."""

    way = "lowered"

    def __init__(self, question: NodeQuestion, memory: int) -> None:
        assert question.lowering is not None
        self.question, self.memory, self.lowering = question, memory, question.lowering
        self.x = with_digits(self.lowering.data.x)
        self.front: FeatureFront | None = None
        """What stands before the first layer; None if that reads the features themselves."""
        known = self.lowering.known_everywhere()
        self._at_one = (self.lowering.program, self.lowering.prepared, known, self.lowering.slopes)

    @cached_property
    def _features(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features that are not 0, node by node: how many of each node and where they begin `[N]`, their columns and values."""
        node, feature = self.x.nonzero(as_tuple=True)
        count = torch.bincount(node, minlength=len(self.x))
        return count, count.cumsum(0) - count, feature, self.x[node, feature]

    @staticmethod
    def proved(question: PosedQuestion, memory: int) -> "FeatureProgram | None":
        """The engine, if the model is lowered and the program is right as a function of the features; otherwise None."""
        if (
            not isinstance(question, NodeQuestion)
            or question.lowering is None
            or not question.lowering.program.is_chain
        ):
            return None
        kept, x = question.node_model.kept, question.lowering.data.x
        if "features" not in kept:
            engine = FeatureProgram(question, memory) if x.dim() == 2 else None
            reads = engine is not None and engine._reads_features()
            kept["features"] = engine if engine is not None and reads and engine._is_true() else None
        if kept["features"] is None:
            return None
        found: FeatureProgram = copy.copy(kept["features"])
        found.question, found.memory = question, memory  # the same model and graph, perhaps other targets
        return found

    # --- proof --------------------------------------------------------------------------------------------------------

    def _reads_features(self) -> bool:
        """Whether the constants are the features, or all of them what one encoder makes of each row of the features."""
        constants, x = _constants(self.lowering.program), self.x
        if all(c.shape == x.shape and c.dtype == x.dtype and torch.equal(c, x) for c in constants):
            return True
        question = self.question
        if any(c.shape != constants[0].shape or not torch.equal(c, constants[0]) for c in constants):
            return False
        if not RowOrigins.of(question.subject.first, question.subject.example).is_apart:
            return False
        self.front = FeatureFront(replace(question.call, changes_input=False, head=None), question.node_model.graph)
        some = torch.arange(len(x), device=x.device).flip(0)[::2]  # other rows, in another order: each by itself
        some = torch.cat([some, some])[: len(x)]
        try:
            with torch.no_grad():
                made, apart = self._made(x), self._made(x[some], some)
        except ModelError:
            return False
        return made.shape == constants[0].shape and close(made, constants[0]) and close(apart, made[some])

    def _made(self, x: Tensor, node: Tensor | None = None) -> Tensor:
        """What the first layer reads of rows of features, of all nodes or of some `node` `[n]`.

        The encoder always gets as many rows as there are nodes: it may do something else with few of them (`if len(x) > 20`).
        """
        if self.front is None:
            return x
        everyone, size = torch.arange(len(self.x), device=x.device), len(self.x)
        if node is None:
            return self.front(x, everyone)
        made = []
        for rows, of in zip(x.split(size), node.split(size), strict=True):
            lacking = size - len(of)
            rows, of = torch.cat([rows, self.x[:lacking]]), torch.cat([of, everyone[:lacking]])
            made.append(self.front(rows, of)[: size - lacking])
        return torch.cat(made)

    def _is_true(self) -> bool:
        """Whether the program has the model's output at other features, and its gradients at these."""
        question, x = self.question, self.x
        call = replace(question.call, changes_input=False)
        rows = question.places(torch.arange(len(question.index))).unique()
        graph = question.node_model.graph
        by_node, by_feature = (random_weight(torch.arange(n, device=x.device), 1, x).view(-1) for n in x.shape)
        other = (x * (0.5 + by_node).view(-1, 1)).mul_(
            by_feature.masked_fill(by_feature < _ABSENT, 0.0)
        )  # features 0, too
        with torch.no_grad():
            there = call(with_features(graph, other)).index_select(0, rows)
        found = self._at(other)[2][self.lowering.program.output].index_select(0, rows)
        del other  # as large as the features, like what follows
        if not close(found, there):
            return False
        weight = torch.zeros_like(question.trace.output)
        drawn = torch.arange(len(rows) * weight.size(1), device=x.device)
        weight[rows] = 2 * random_weight(drawn, 1, weight).view(len(rows), -1) - 1
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            total = (call(with_features(graph, leaf)) * weight).sum()
            (true,) = torch.autograd.grad(total, leaf, allow_unused=True) if total.requires_grad else (None,)
        del leaf, total
        found_slopes = self._pass(self.lowering.everything, self._at_one).pull(lambda _: weight)
        pulled = self._to_features(found_slopes, torch.arange(len(x), device=x.device), 1.0).dense()
        if true is None:
            return not bool(pulled.any())
        size = max(float(true.abs().max()), 1e-30) if true.numel() else 1.0
        allowed = max(tolerance(true.dtype), tolerance(self.lowering.dtype))
        return bool((pulled.sub_(true).abs_() <= allowed * size).all())

    # --- gradients ----------------------------------------------------------------------------------------------------

    def slopes(self, positions: Tensor, path: FeaturePath) -> tuple[FeatureSlopes, None]:
        """Σ share · gradient at t · features, in factors; no layer that reads edge attributes comes this way."""
        target = sub_target(self.question, positions)
        owner, node, total = self.pulled(self.question.places(positions), target.slope, path)
        slopes = FeatureSlopes(
            owner, self.question.nodes(node), total.left, total.right, self.x.size(1), lambda: self.nonzero(node)
        )
        return slopes, None

    def pulled(
        self, places: Tensor, of_rows: Callable[[Tensor], Tensor], path: FeaturePath
    ) -> tuple[Tensor, Tensor, PulledBack]:
        """The same for nodes of the graph that is run: the place of each pair's target, its node `[P]`, and the gradients.

        `of_rows` is the gradient of the explained numbers by the rows of these nodes.
        """
        levels = deepened(self.lowering.engine(places).levels)
        total: PulledBack | None = None
        for place, share in path:
            state = self._at_one if place == 1.0 else self._at(self.x * place)
            with torch.no_grad():
                found = self._pass(levels, state).pull(of_rows)
            found = self._to_features(found, levels.node, place)
            left = found.left * share if total is None else total.left.add_(found.left, alpha=share)
            total = PulledBack(left, found.right)
        assert total is not None
        self.lowering.last_block_bytes += _HELD_ROWS * total.left.numel() * total.left.element_size()
        order = levels.owner.argsort(stable=True)
        return levels.owner[order], levels.node[order], PulledBack(total.left.index_select(0, order), total.right)

    def _to_features(self, found: PulledBack, node: Tensor, place: float) -> PulledBack:
        """Gradients by what the first layer reads, carried through the encoder to the features of the pairs' nodes `[P]`."""
        if self.front is None:
            return found
        with torch.enable_grad():
            leaf = (self.x.index_select(0, node) * place).detach().requires_grad_()
            made = self._made(leaf, node)
            if not made.requires_grad:
                return PulledBack(torch.zeros_like(leaf), None)
            (slope,) = torch.autograd.grad(made, leaf, found.dense().view(made.shape), allow_unused=True)
        return PulledBack(torch.zeros_like(leaf) if slope is None else slope, None)

    def _at(self, x: Tensor) -> tuple[Program, dict[int, Any], dict[int, Tensor], Any]:
        """The program on other features, what its calls prepare, every value of every node, and derivatives there."""
        with torch.no_grad():
            program = with_rows(self.lowering.program, self._made(x))
            prepared = prepare(program)
            ones = torch.ones(1, dtype=self.lowering.dtype, device=x.device)
            weight = ones.expand(program.num_calls, len(self.lowering.in_edges.edge))
            known = run(program, self._everything(), prepared, weight, None)
        return program, prepared, known, find_slopes(program, known)

    def _everything(self) -> Levels:
        """All nodes at every call; made anew, because geometries remember what they read of the features."""
        everything = self.lowering.everything
        owner, targets = everything.owner, everything.num_targets
        return whole_levels(self.lowering.data, self.lowering.in_edges, everything.num_calls, owner, targets)

    def _pass(self, levels: Levels, state: tuple[Program, dict[int, Any], dict[int, Tensor], Any]) -> FeaturePass:
        program, prepared, known, slopes = state
        return FeaturePass(program, levels, prepared, known, slopes)

    def nonzero(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For pairs `[P]` of some nodes: every feature that is not 0, as (pair, feature, value)."""
        count, start, feature, value = self._features
        pair, rank = enumerated(count[node])
        place = start[node][pair] + rank
        return pair, feature[place], value[place]

    # --- occlusion ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def losses(self, positions: Tensor) -> tuple[FeatureLosses, None]:
        """What every number loses without one feature of one node; changes of many targets share a pass."""
        question, lowering, x = self.question, self.lowering, self.x
        places = question.places(positions)
        levels = lowering.engine(places).levels
        copy_bytes = lowering.bytes_of_targets(levels)  # of a change: it has a copy of all that its target sees
        owner, node, feature = self._changes(levels)
        target = sub_target(question, positions)
        output = lowering.known_everywhere()[lowering.program.output]
        before = target.value(output.index_select(0, places))
        scores, made = before.new_zeros(len(owner)), self._made(x)
        cost = copy_bytes.index_select(0, owner) + 2 * x.size(1) * x.element_size() + _TABLE_ENTRY * len(x)
        room = max(self.memory - 2 * lowering.node_bytes - _CHANGE_BYTES * len(owner), self.memory / 4)
        for begin, end in fitting_blocks(cost, room, max(_TABLE // len(x), 1)):
            mine, at = owner[begin:end].long(), node[begin:end].long()
            after = target.select(mine).value(self._without(places[mine], at, feature[begin:end].long(), made))
            scores[begin:end] = before[mine] - after
        lowering.last_block_bytes = _CHANGE_BYTES * len(owner)  # from which the next targets are counted
        return FeatureLosses(owner.long(), question.nodes(node.long()), feature.long(), scores, x.size(1)), None

    def _without(self, places: Tensor, node: Tensor, feature: Tensor, made: Tensor) -> Tensor:
        """The rows of copies, `[n, columns]`, of which each lacks one feature of one node; nothing else of them is left."""
        rows = self.x.index_select(0, node)
        rows[torch.arange(len(rows), device=rows.device), feature] = 0.0
        rows = self._made(rows, node)
        lowering = self.lowering
        return run_changed(lowering.program, lowering.engine(places).levels, lowering.prepared, made, node, rows)

    def _changes(self, levels: Levels) -> tuple[Tensor, Tensor, Tensor]:
        """Target, node and feature of each change `[n]`, by target; in 32 bits, because there are many."""
        levels = deepened(levels)
        order = levels.owner.argsort(stable=True)
        pair, feature, _ = self.nonzero(levels.node[order])
        return levels.owner[order].int()[pair], levels.node[order].int()[pair], feature.int()


def _constants(program: Program) -> list[Tensor]:
    """Everything that the program reads and does not make."""
    found = []
    for step in program.steps:
        sources = [step.source] if isinstance(step, MessageStep) else step.sources
        found += [source.tensor for source in sources if isinstance(source, Rows)]
    return found
