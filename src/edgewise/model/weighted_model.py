"""The model as a function of its edge weights: ω on every message, s on every node's own term."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, MessagePassing, SGConv

from edgewise.arrays import LayerWeight, SelfWeight, Slots
from edgewise.errors import ModelError
from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.data_flow import Residual
from edgewise.model.hooks import Layers, OperationMode, message_hooks
from edgewise.model.identity import Follower
from edgewise.model.messages import match_messages, scaled_own_terms
from edgewise.model.trace import Trace
from edgewise.trees import tree_flatten, tree_unflatten

_NEW_MESSAGES = (GCNConv, SGConv)  # edge_weight · x_j is nobody else's tensor


class WeightedGraph:
    """A graph to run the model on again and again; remembers which message belongs to which edge."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.num_edges = data.edge_index.size(1)
        self._known: dict[int, tuple[Tensor, Slots, bool]] = {}

    def slots(self, call: int, used: Tensor, layer: str) -> tuple[Slots | None, bool]:
        """The owner of each message of a plain model (None: edge by edge), and whether self edges are among them."""
        if used.shape == self.data.edge_index.shape and used.data_ptr() == self.data.edge_index.data_ptr():
            return None, False
        known = self._known.get(call)
        if known is None or (known[0] is not used and not torch.equal(known[0], used)):
            slots = match_messages(used, self.data.edge_index, self.data.num_nodes, layer)
            known = self._known[call] = (used, slots, bool((slots >= self.num_edges).any()))
        return known[1], known[2]


class _Run:
    """One forward pass under weights: counts the calls, weights the messages, scales the own terms."""

    def __init__(
        self,
        graph: WeightedGraph,
        trace: Trace,
        weight: LayerWeight,
        own: SelfWeight | None,
        watch: Follower | None,
        forward: GraphForward | None,
    ) -> None:
        self.graph, self.trace, self.weight, self.own, self.watch = graph, trace, weight, own, watch
        self.forward = forward
        self.count = 0
        self.messages: Tensor | None = None

    def on_propagate(self, module: MessagePassing, inputs: Any) -> None:
        call = self.trace.calls[self.count] if self.count < len(self.trace.calls) else None
        if call is None or call.module is not module:
            raise ModelError(
                "The model made other message-passing calls than in its first run, so its layers cannot be "
                "numbered. A forward pass must be deterministic, and must not branch on numbers in the data."
            )
        row = self.weight[call.layer]
        slots, has_loops = self._slots(inputs[0], call.name)
        if has_loops:
            mine = row.new_ones(self.graph.data.num_nodes) if self.own is None else self.own[call.layer]
            row = torch.cat([row, mine])
        self.messages = row if slots is None else row[slots]
        self.count += 1

    def _slots(self, used: Tensor, layer: str) -> tuple[Slots | None, bool]:
        """Owners of the messages of this call; followed in this very pass where weights may change which edges are used."""
        if self.watch is None and self.forward is not None:
            table = self.trace.tables[self.count]
            if self.forward.table_of(self.graph.data, used) != table:
                raise ModelError(f"Layer {layer} was given another edge_index than in its first run.")
            return self.forward.columns_of(self.graph.data, table), False
        if self.watch is None:
            return self.graph.slots(self.count, used, layer)
        slots = self.watch.calls[-1].slots
        return slots, bool((slots >= self.graph.num_edges).any())

    def on_message(self, module: MessagePassing, inputs: Any, output: Tensor) -> Tensor:
        assert self.messages is not None
        shape = [1] * output.dim()
        shape[module.node_dim] = -1
        weight = self.messages.to(output.dtype).view(shape)
        if not torch.is_grad_enabled() and type(module) in _NEW_MESSAGES and inputs[0].get("edge_weight") is not None:
            return output.mul_(weight)  # on a large graph the messages are the largest tensor of all
        return output * weight

    def scale(self, call: int, rows: Tensor) -> Tensor:
        """Rows of the receivers of a call, times its self weights."""
        nodes = None
        if self.forward is not None and self.watch is None:
            flow = self.trace.calls[call].module.flow
            nodes = self.forward.receivers_of(self.graph.data, self.trace.tables[call], flow)
        return self.scale_layer(self.trace.calls[call].layer, rows, nodes)

    def scale_layer(self, layer: int, rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Rows times self weights; of a typed graph they are `nodes` of one type, looked up if they are not given."""
        assert self.own is not None
        own = self.own[layer]
        if self.forward is not None:
            nodes = self.watch.nodes_of(rows) if self.watch is not None else nodes
            own = own[:0] if nodes is None else own[nodes]
        if len(rows) != len(own):
            return rows  # behind a pooling rows are some of the nodes: such a layer has no self scores
        return rows * own.to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))


OTHER_OPERATIONS = (
    "The model made other operations than in its first run, so its residual connections cannot be weighted. A forward pass "
    "must be deterministic, and must not branch on numbers in the data."
)


class _ScaledResiduals(OperationMode):
    """Scales a call's own input where a residual carries it around the call."""

    def __init__(self, residuals: tuple[Residual, ...], run: _Run) -> None:
        super().__init__()
        self.residuals = {residual.position: residual for residual in residuals}
        self.run = run

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        residual = self.residuals.get(position)
        if residual is not None:
            if getattr(func, "__name__", str(func)) != residual.name:
                raise ModelError(OTHER_OPERATIONS)
            leaves, form = tree_flatten((args, kwargs))
            for i in residual.arguments:
                leaves[i] = self.run.scale_layer(residual.layer, leaves[i])
            args, kwargs = tree_unflatten(leaves, form)
        return func(*args, **kwargs)


class WeightedModel:
    """A (borrowed) model whose messages and own terms can be weighted."""

    def __init__(self, call: ModelCall, layers: Layers, trace: Trace) -> None:
        self.call, self.layers, self.trace = call, layers, trace

    def __call__(self, graph: WeightedGraph, weight: LayerWeight, own: SelfWeight | None = None) -> Tensor:
        """The model's output under ω `[L, edges]` and s `[L, nodes]`."""
        with ExitStack() as stack:
            watch = None
            known = bool(self.trace.tables) and (own is None or not self.trace.residuals)
            if self.trace.is_followed and not known:
                watch = Follower(self.call.model, graph.data, self.call.marks(graph.data))
            if watch is not None:  # its hooks come first: who owns a message is known before it is weighted
                stack.enter_context(watch.watching(self.layers))
            forward = self.call.forward if isinstance(self.call.forward, GraphForward) else None
            run = _Run(graph, self.trace, weight, own, watch, forward)
            stack.enter_context(message_hooks(self.layers, run.on_propagate, run.on_message))
            if own is not None:
                stack.enter_context(scaled_own_terms(self.layers, run))
                if self.trace.residuals:
                    stack.enter_context(_ScaledResiduals(self.trace.residuals, run).watching(self.layers))
            output = self.call(graph.data)
        if run.count != len(self.trace.calls):
            raise ModelError(
                f"The model made {run.count} message-passing calls, {len(self.trace.calls)} in its first run. "
                f"A forward pass must be deterministic, and must not branch on numbers in the data."
            )
        return output
