"""The lowered program on levels: outputs under any weights, and at ω = 1 the gradients of all targets in one reverse pass.

`run` is the interpreter, step by step. `LoweredEngine` wraps it for a block of targets of a node task, `LoweredGraphs` for a
batch of graphs. What a step needs is always the beginning of an array of pairs (see `levels.py`).
"""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.arrays import LayerWeight, SelfWeight
from edgewise.program.domains import Domain, interpret
from edgewise.program.graph_chain import GraphChain
from edgewise.program.hop import Hop, first_rows
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep, in_double
from edgewise.program.layers.base import Linear, joined
from edgewise.program.levels import Levels
from edgewise.program.reverse import ReversePass, Slope
from edgewise.program.small_forward import small_outputs
from edgewise.program.small_reverse import is_small, small_gradients

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from edgewise.graph.computation_graph import InEdges
    from edgewise.question.target import Target

log = logging.getLogger("edgewise")


class LoweredEngine:
    """All targets in one pass of the program; the model itself is not called.

    M edge copies and S pairs, as `levels` lists them. `prepared` has what is the same for all targets (`prepare`), `known` the
    activations of the whole graph at ω = 1, `slopes` the derivatives of activation functions there.
    """

    way = "lowered"
    local = True

    def __init__(
        self,
        program: Program,
        levels: Levels,
        prepared: dict[int, Any],
        known: dict[int, Tensor] | None = None,
        slopes: dict[tuple[int, int], Slope] | None = None,
    ) -> None:
        self.program, self.levels = program, levels
        self.prepared, self.known, self.slopes = prepared, known, slopes or {}
        self.num_targets = levels.num_targets
        self._last: tuple[Any, tuple[LayerWeight, SelfWeight]] | None = None
        self.edge_id, self.owner = levels.edge_id, levels.owner.index_select(0, levels.head)
        self.self_node, self.self_owner = levels.node, levels.owner
        self.edges_of: list[int] | None = [levels.edges_of(call) for call in range(levels.num_calls)]
        self.pairs_of: list[int] | None = [levels.pairs_after(call + 1) for call in range(levels.num_calls)]

    @property
    def edge_hops(self) -> Tensor:
        """`[M]`: fewest edges from each copy's receiver to its target."""
        hops = torch.zeros(len(self.levels.node), dtype=torch.long, device=self.levels.node.device)
        for end in [] if self.levels.whole else self.levels.pair_end:
            hops[end:] += 1
        return hops[self.levels.head]

    def output(self, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """The rows of the targets, `[targets, columns]`, under weights ω `[L, M]` and s `[L, S]`."""
        values = run(self.program, self.levels, self.prepared, weight, own)
        return first_rows(values[self.program.output], self.num_targets)

    def gradients(self, target: "Target") -> tuple[LayerWeight, SelfWeight] | None:
        """∂/∂ω `[L, M]` and ∂/∂s `[L, S]` at 1 of the explained numbers; None if there are no activations to start from.

        Those of a single target are kept: the audit of a question asks for what its explanation asks for again.
        """
        if self.known is None:
            return None
        key = (target.of, target.mode, target.column.tolist()) if self.num_targets == 1 else None
        if key is None or self._last is None or self._last[0] != key:
            found = self.gradients_along(target.slope)
            if key is None or found is None:
                return found
            self._last = key, found
        return self._last[1]

    def gradients_along(self, slope: Callable[[Tensor], Tensor]) -> tuple[LayerWeight, SelfWeight] | None:
        """The same of any numbers of the rows; `slope` gives their gradients by the rows, `[targets, columns]`."""
        if self.known is None:
            return None
        known = (self.program, self.levels, self.prepared, self.known, self.slopes)
        with torch.no_grad():
            if self._is_small:
                return small_gradients(*known, slope)
            return ReversePass(*known).run(slope)

    @cached_property
    def _is_small(self) -> bool:
        return self.known is not None and is_small(self.program, self.levels, self.known, self.slopes)

    def double_outputs(self, weight: Tensor, own: Tensor) -> Tensor | None:
        """The target's row in float64, `[points, columns]`, under ω `[points, L, M]` and s `[points, L, S]`.

        For one target with few neighbours and a program that numpy can run; None for everything else.
        """
        if self.num_targets != 1 or not self._is_small:
            return None
        found = small_outputs(self.program, self.levels, self.prepared, self.slopes, weight.numpy(), own.numpy())
        return torch.from_numpy(found)[:, 0]


class LoweredGraphs(LoweredEngine):
    """A batch of graphs: numbers of edges and nodes are those of each graph.

    `column` `[edges of the batch]` and `node` `[nodes of the batch]` say which edge and node of its own graph each one is.
    """

    def __init__(self, program: Program, levels: Levels, column: Tensor, node: Tensor) -> None:
        super().__init__(program, levels, prepare(program))
        self.by_node: tuple[Data, InEdges] | None = None
        """The batch and its in-edges, if steps up to the readout work row by row: then changes can be followed."""
        self.union_column = levels.edge_id
        self.edge_id, self.self_node = column[levels.edge_id], node

    @cached_property
    def chain(self) -> GraphChain | None:
        """The same as a chain for compiled loops, if it is one."""
        source = self.program.messages[0].source
        if self.by_node is None or not isinstance(source, Rows):
            return None
        like = source.tensor.new_ones(self.num_targets)
        return GraphChain.of(self.program, self.by_node[1], self.levels.owner, like)

    def output_at_one(self, like: Tensor) -> Tensor:
        """`[graphs, columns]` at ω = 1; `like` has the type of the numbers."""
        if self.chain is not None:
            return self.chain.output
        return self.output(like.new_ones(self.program.num_calls, len(self.edge_id)))

    def gradients(self, target: "Target") -> tuple[LayerWeight, SelfWeight] | None:
        """∂/∂ω `[L, M]` and ∂/∂s `[L, S]` at 1; None if only autograd can find them."""
        return None if self.chain is None else self.chain.gradients(target)

    def double_outputs(self, weight: Tensor, own: Tensor) -> Tensor | None:
        """The rows of the graphs in float64, `[points, graphs, columns]`; None if a number is float32 for good."""
        try:
            program = in_double(self.program)
            prepared = {value: in_double(table) for value, table in self.prepared.items()}
            rows = [
                run(program, self.levels, prepared, *point)[program.output] for point in zip(weight, own, strict=True)
            ]
        except (RuntimeError, TypeError, ValueError) as reason:
            log.debug("the program does not run in float64: %s", reason)
            return None
        return torch.stack(rows)


def prepare(program: Program, linear: Linear = functional.linear) -> dict[int, Any]:
    """What each call can compute once, because it reads constants only, by the number of the value that it makes."""
    steps: list[Any] = [step for step in program.messages if step.is_prepared]
    return {step.output: step.layer.prepare(joined(*(one.tensor for one in step.sources)), linear) for step in steps}


def _unbind(weight: Tensor) -> list[Tensor]:
    """The rows of `[L, n]`; a single row that stands for all of them (`expand`) is not copied for each."""
    return [weight[0]] * len(weight) if weight.stride(0) == 0 and len(weight) > 1 else list(weight.unbind(0))


def run(
    program: Program, levels: Levels, prepared: dict[int, Any], weight: LayerWeight, own: SelfWeight | None
) -> dict[int, Tensor]:
    """Every value of the program, by its number: `[pairs that are needed there, width]`.

    The path 0 → 1 → 2 with features (1, 10, 100) and two calls that add to each node what it receives. All nodes have
    (1, 11, 110) after the first call; the target 2 has 110 + 11 = 121 after the second.

    >>> from edgewise.graph.computation_graph import InEdges
    >>> from edgewise.program.layers.affine import AffineLayer
    >>> from edgewise.program.expansion import expand
    >>> plus, x = AffineLayer(coefficient=None, root=1.0), torch.tensor([[1.0], [10.0], [100.0]])
    >>> program = Program((MessageStep(plus, Rows(x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> levels = expand(path, torch.tensor([2]), 2, torch.full((3,), -1, dtype=torch.int32))
    >>> values = run(program, levels, prepare(program), torch.ones(2, 2), None)
    >>> [value.view(-1).tolist() for value in values.values()]                  # nodes 2 and 1, then node 2
    [[110.0, 11.0], [121.0]]
    >>> weight = torch.tensor([[1.0, 0.0], [1.0, 1.0]])                         # copies are e1, e0: e0 is off in call 0
    >>> run(program, levels, prepare(program), weight, None)[1]
    tensor([[120.]])
    """
    owns = None if own is None else _unbind(own)  # per call: [S]
    return interpret(program.steps, WeightedNumbers(levels, prepared, _unbind(weight), owns), {})


class WeightedNumbers(Domain[Any]):
    """Numbers of pairs (target, node) under ω and s; `weights` and `owns` have `[M]` and `[S]` for each call."""

    def __init__(
        self, levels: Levels, prepared: dict[int, Any], weights: list[Tensor], owns: list[Tensor] | None
    ) -> None:
        self.levels, self.prepared, self.weights, self.owns = levels, prepared, weights, owns

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Any:
        """What a call prepared of its features, or the rows of the pairs that a step reads."""
        if isinstance(step, MessageStep):
            return self.prepared[step.output] if step.is_prepared else source.tensor
        return self.levels.gather(source.tensor, step.calls_done, step.kind)

    def read(self, value: Tensor, source: Ref, step: RowStep | MessageStep) -> Tensor:
        """The rows that a step reads: made several calls earlier, a value has rows that are no longer needed."""
        if self.levels.whole or isinstance(step, MessageStep):
            return value
        return first_rows(value, self.levels.pairs_after(step.calls_done, step.kind))

    def residual(self, value: Tensor, call: int, kind: int) -> Tensor:
        """A residual is scaled by its self weights."""
        if self.owns is None:
            return value
        mine = self.levels.of_pairs(self.owns[call], kind)[: len(value)]
        return value * mine.view(-1, *[1] * (value.dim() - 1))

    def operation(self, step: RowStep, sources: list[Tensor]) -> Tensor:
        """The operation on rows of pairs."""
        return step.run(sources)

    def messages(self, step: MessageStep, source: Any, receiver: Any = None) -> Tensor:
        """A call on the table that it reads, or on those of its senders and receivers."""
        hop = self.hop_of(step)
        mine = None if self.owns is None else hop.of_heads(self.owns[step.call])
        table = self.table(step, hop, source, receiver)
        return step.layer.forward(table, hop, hop.of_edges(self.weights[step.call]), mine)

    def hop_of(self, step: MessageStep) -> Hop:
        """The edges of a call, with tails among the rows of what it reads."""
        by_node = [isinstance(one, Rows) for one in step.sources]
        return self.levels.hop(step.call, from_nodes=by_node[0], part=step.part, own_from_nodes=by_node[-1])

    def table(self, step: MessageStep, hop: Hop, source: Any, receiver: Any) -> Any:
        """What the layer of a call reads: its source, or what senders and receivers have."""
        table = source if isinstance(step.source, Rows) else source[: hop.table_size]
        return joined(table, receiver) if receiver is not None and not step.is_prepared else table
