"""Score: edge weights ↦ one number per target. A model plus targets is a function of ω; methods need nothing else.

First the `Score`, which lays the computation graphs of its targets side by side: M edge copies and S self copies are the edges
and nodes of all of them, and each copy belongs to one target (`score.owner`). Then what a method returns: a number for every
copy (`CopyScores`), or entries of a whole question (`SparseScores`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.arrays import LayerWeight, SelfWeight
from edgewise.contract import checked
from edgewise.errors import InputError, ModelError
from edgewise.graph.type_table import TypeTable
from edgewise.program.execution import LoweredEngine
from edgewise.program.graph_drops import ChainDrops, GraphDrops
from edgewise.program.order_values import OrderValues
from edgewise.program.shared_rows import SharedRows
from edgewise.program.weighted_chain import WeightedChain
from edgewise.question import PosedQuestion, pose, sub_target
from edgewise.question.link_engine import LinkEngine

if TYPE_CHECKING:
    from edgewise.engines import Engine
    from edgewise.question.target import Target


class Score:
    """The explained numbers as a function of edge weights: `score(ω) -> [targets]`, with `ω = 1` the model itself.

    Every target has its own copies of the edges that can reach it, so the gradient of the sum holds the separate gradients
    of all of them. `edge_id` `[M]` is the column of the graph that each copy is a copy of, `owner` `[M]` the target that it
    belongs to (a position in `index`); `self_node` and `self_owner` say the same of nodes and their own terms.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> score = Score(conv, data, index=[2], target=1)        # z = 2·ω₀·1 + 2·ω₁·3
    >>> score(score.ones())
    tensor([8.])
    >>> score(torch.tensor([[1.0, 0.5]]))
    tensor([5.])
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        data: Data | Any,
        index: Any = None,
        *,
        target: Any = None,
        task: str = "node",
        mode: str | None = None,
        of: str = "logit",
        output: str | None = None,
        forward: Callable[..., Tensor] | None = None,
        device: Any = None,
        without_itself: bool = False,
    ) -> None:
        question = pose(
            model,
            data,
            index,
            target=target,
            task=task,
            mode=mode,
            of=of,
            output=output,
            forward=forward,
            device=device,
            without_itself=without_itself,
        )
        self._set(question, torch.arange(len(question.index)))

    @classmethod
    def of_block(cls, question: PosedQuestion, positions: Tensor) -> "Score":
        """The score of some of a question's targets; `positions` `[targets]` are places in `question.index`."""
        score = cls.__new__(cls)
        score._set(question, positions)
        return score

    def _set(self, question: PosedQuestion, positions: Tensor) -> None:
        """Take from the question and its engine what methods read; `positions` are the targets of this score."""
        self._question = question
        self._engine: Engine = question.engine(positions)
        self.index = question.index[positions]
        self.key = question.keys(positions)
        """`[T]`: the number of each target from which its random numbers are drawn."""
        self.target: Target = sub_target(question, positions)
        self.num_layers = question.num_layers
        self.num_targets = self._engine.num_targets
        self.way, self.local = self._engine.way, self._engine.local
        self.edge_id, self.owner = self._engine.edge_id, self._engine.owner
        self.self_node, self.self_owner = self._engine.self_node, self._engine.self_owner
        self.edges_of, self.pairs_of = self._engine.edges_of, self._engine.pairs_of
        self.separable = question.separable
        self.positions, self.num_asked = positions, len(question.index)
        self.num_nodes, self.num_edges = question.sizes(positions)

    def types_of(self, owner: int) -> TypeTable | None:
        """The types of the graph of one of these targets, if it is a typed one."""
        return self._question.types_of(int(self.positions[owner]))

    @property
    def edge_hops(self) -> Tensor:
        """`[M]`: fewest edges from the receiver to the target."""
        return self._engine.edge_hops

    @property
    def may_stop(self) -> bool:
        """Whether a gradient may have stopped on its way, in a pass that was recorded for one."""
        return bool(getattr(self._engine, "may_stop", False))

    def ones(self) -> LayerWeight:
        """ω = 1, `[L, M]`: the model itself."""
        return self.target.truth.new_ones(self.num_layers, self.edge_id.numel())

    def self_ones(self) -> SelfWeight:
        """s = 1, `[L, S]`."""
        return self.target.truth.new_ones(self.num_layers, self.self_node.numel())

    @checked
    def output(self, layer_weight: LayerWeight, self_weight: SelfWeight | None = None) -> Tensor:
        """The model's output for every target, `[targets, columns]`."""
        self._check(layer_weight, self.edge_id.numel(), "layer_weight", "score.ones()")
        if self_weight is not None:
            self._check(self_weight, self.self_node.numel(), "self_weight", "score.self_ones()")
        with self._question.borrowed():
            return self._engine.output(layer_weight, self_weight)

    @checked
    def __call__(self, layer_weight: LayerWeight, self_weight: SelfWeight | None = None) -> Tensor:
        """The explained number of every target, `[targets]`."""
        return self.target.value(self.output(layer_weight, self_weight))

    def repeated(self, times: int) -> "Score":
        """The same targets several times: row `turn · targets + position` is one of them, with copies of its own.

        A method that asks about many weights (the steps of a path, sampled permutations) asks about all of them in one pass.
        """
        return Score.of_block(self._question, self.positions.repeat(times))

    def single(self, owner: int) -> "Score":
        """The score of one of these targets alone."""
        return Score.of_block(self._question, self.positions[owner : owner + 1])

    @property
    def task(self) -> str:
        """What targets are: `"node"`, `"graph"` or `"link"`."""
        return self._question.task

    def ends(self) -> Tensor:
        """`[2, M]`: the two nodes of each edge copy, as in `edge_index`."""
        return self._question.ends(self.positions, self.owner, self.edge_id)

    @property
    def pass_bytes(self) -> int:
        """About how many bytes a forward pass needs."""
        return self._question.edge_bytes * self.edge_id.numel()

    def expecting(self, passes: int) -> AbstractContextManager[None]:
        """Inside, a method makes so many forward passes: compiled loops are chosen by the work of all of them."""
        if isinstance(self._engine, LoweredEngine):
            return self._engine.levels.expecting(passes)
        return nullcontext()

    def reverse(self) -> tuple[LayerWeight, SelfWeight] | None:
        """Gradients at ω = s = 1 in one reverse pass, if the model is lowered."""
        if not isinstance(self._engine, (LoweredEngine, LinkEngine)):
            return None
        with self._question.borrowed():
            return self._engine.gradients(self.target)

    def weighted_chain(self, passes: int) -> WeightedChain | None:
        """Gradients by the weights of the edges in compiled loops, so many times, if the model is a chain that they know."""
        return WeightedChain.of(self._engine, passes)

    def graph_drops(self) -> GraphDrops | ChainDrops | None:
        """Occlusion of whole graphs by differences, if nodes can be told apart up to the readout."""
        with self._question.borrowed():
            return GraphDrops.of(self._engine, self.target)

    def growing(self, coalitions: int) -> OrderValues | None:
        """The values of growing coalitions of edges, if they can be found one from another; for so many in all."""
        return OrderValues.of(self._engine, self.target, coalitions)

    def shared_rows(self, edges: int) -> SharedRows | None:
        """The values of many coalitions of one target, if they can share rows; `edges` counts those of all coalitions."""
        with self._question.borrowed():
            return SharedRows.of(self._engine, self.target, edges)

    def stepwise(self, method: str) -> LoweredEngine:
        """The engine of a lowered program, for methods that interpret its steps; refused where the model itself is run."""
        if isinstance(self._engine, LoweredEngine):
            return self._engine
        why = "the decoder of a link" if isinstance(self._engine, LinkEngine) else "this model"
        raise ModelError(
            f"{method} follows a model step by step, and {why} has steps that Edgewise does not know: it is run as it is. Use "
            f"method='integrated_gradients' or method='occlusion', which need no steps."
        )

    def _check(self, weight: Tensor, columns: int, name: str, start: str) -> None:
        """Weights have a row for each layer and a column for each copy; `start` is the call that makes such weights."""
        if weight.shape != (self.num_layers, columns):
            raise InputError(
                f"`{name}` must have shape [{self.num_layers} layers, {columns} copies], got {list(weight.shape)}. "
                f"Use {start} as a start, or tie the layers with weight.expand({self.num_layers}, -1)."
            )
        if weight.is_cuda and torch.cuda.is_current_stream_capturing():
            return  # a step that is being recorded must not wait for the GPU; it has been run once before
        if bool(weight.detach().sum().isnan()) and bool(weight.isnan().any()):
            raise InputError(f"`{name}` must hold numbers, got NaN. Use {start} as a start.")


# --- What a method returns ----------------------------------------------------------------------------------------------

LEVELS = ("input", "layer")


@dataclass(frozen=True)
class CopyScores:
    """Scores of the copies of one block of targets."""

    edge: Tensor
    """`[M]` at input level, `[L, M]` at layer level."""
    own: Tensor | None = None
    """`[S]` or `[L, S]`: scores of the nodes' own terms (self-loop, root weight); None if they cannot be scored."""
    error: Tensor | None = None
    """Like `edge`: standard errors, for methods that sample."""


@dataclass(frozen=True)
class SparseScores:
    """Scores of a whole question, entry by entry, `[n]` each; what is not listed is zero."""

    position: Tensor
    """The position of the target in the question."""
    layer: Tensor
    """The layer; 0 at input level."""
    item: Tensor
    """The column of `edge_index`, or with `of_self` the node."""
    score: Tensor
    of_self: bool
    """Whether these are scores of own terms."""


@dataclass(frozen=True)
class RowScores:
    """Scores of consecutive targets, those of each one behind those before; what is not listed is zero."""

    begin: Tensor
    """`[T + 1]`: where the entries of each target begin, and the end of the last."""
    place: Tensor
    """`[n]`: layer · width + item, with the width of the target's graph (`results/entries.py`); in 32 or 64 bits."""
    score: Tensor
    """`[n]`."""
    of_self: bool
    """Whether these are scores of own terms."""


def at_level(edge: Tensor, own: Tensor | None, level: str) -> CopyScores:
    """Layerwise scores `[L, M]` as they are, or summed over the layers.

    The sum is right for gradients: an input weight is a layer weight with its rows tied.
    """
    if level == "layer":
        return CopyScores(edge, own)
    return CopyScores(edge.sum(dim=0), None if own is None else own.sum(dim=0))


def has_own_terms(score: Score) -> bool:
    """Whether the own terms of any call can be scored by themselves."""
    return any(score.separable)


def in_computation_graph(score: Score) -> Tensor:
    """`[L, M]`: whether a message sent on an edge in a layer can still arrive at the target (paper, Definition 1)."""
    remaining = torch.arange(score.num_layers - 1, -1, -1, device=score.edge_hops.device)
    return score.edge_hops <= remaining.view(-1, 1)
