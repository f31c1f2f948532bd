"""One recorded forward pass: the message-passing calls in the order in which they really happen."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import JumpingKnowledge, MessagePassing

from edgewise.arrays import has_few_digits
from edgewise.errors import ModelError
from edgewise.model.borrow import ours
from edgewise.model.call import GraphForward, ModelCall, with_own_x
from edgewise.model.column_reads import ABOUT_SHAPES, PassStep, is_foreign
from edgewise.model.data_flow import (
    Call,
    Key,
    Operation,
    Residual,
    TypedTensors,
    before_change,
    changed_by,
    data_tensors,
    find_skips,
    fixed_tensors,
    keys_of,
    layers_of_calls,
    picks_rows,
    shapes_of,
    weighs_by_nodes,
    without_no_ops,
    written,
)
from edgewise.model.feature_products import FeatureProducts
from edgewise.model.head import logits_given
from edgewise.model.hooks import Layers, OperationMode, edge_update_hooks, message_hooks
from edgewise.model.layer_steps import LayerSteps
from edgewise.model.messages import Owners, followed_owners, own_term, plain_owners
from edgewise.model.module_tree import modules_of
from edgewise.model.own_messages import refuse_own_messages
from edgewise.torch_internals import base_of
from edgewise.trees import tree_leaves


@dataclass(frozen=True)
class Trace:
    """What one forward pass did."""

    calls: tuple[Call, ...]
    output: Tensor
    residuals: tuple[Residual, ...]
    bypass: tuple[str, ...]
    """Skips past later calls (JumpingKnowledge and its like), in words: what they carry belongs to no single call."""
    node_width: int
    """Numbers that one pass makes for each node."""
    operations: tuple[Operation, ...]
    """With all their tensors: dropped as soon as the program is read off."""
    output_key: Key
    input_key: Key
    """Of the features, as they were when the model got them."""
    changes_input: bool
    operation_names: tuple[str, ...] = ()
    """Of all operations outside the layers, and of the layers, in order."""
    is_followed: bool = False
    """Whether owners of messages had to be followed through the pass; otherwise every layer got the graph's own edges."""
    tables: tuple[Any, ...] = ()
    """Of a typed graph, per call: the edge type whose `edge_index` it got, as it was. Then nothing is followed again."""

    typed: TypedTensors | None = None
    """Of a typed graph: the tensors that the model got, and whose they are."""

    reads_values: bool = False
    """Whether the model's own code looked at numbers (`if h.max() > 1`), so that on others it may do something else."""

    reads_sizes: bool = False
    """Whether its own code asked how many rows there are: it may do something else on a graph of another size."""

    picks_rows: str = ""
    """Whether the output depends on which of all nodes has the largest number of something that `"messages"` change, or
    `"features"` alone."""

    weighs_by_nodes: bool = False
    """Whether a layer gets numbers of edges that were made from nodes: sums of them at a sender reach one hop further."""

    rounds_to: torch.dtype | None = None
    """A type of few digits that numbers have somewhere on their way."""

    fixed: frozenset[Key] = frozenset()
    """Keys of parameters and buffers."""

    products: FeatureProducts | None = None
    """What linear maps made of the features, for whoever needs it again on the same graph."""

    starts_plainly: bool | None = None
    """Whether nobody but the first layer reads x, as its features; kept when the operations are dropped."""

    def without_tensors(self) -> "Trace":
        """What is still needed once the program is read off."""
        calls = tuple(replace(call, arguments={}, edge_features=None) for call in self.calls)
        return replace(
            self, operations=(), calls=calls, typed=None, products=None, starts_plainly=self._starts_plainly()
        )

    def _starts_plainly(self) -> bool:
        readers = [operation for operation in self.operations if self.input_key in operation.inputs]
        first = next((operation for operation in self.operations if operation.is_layer), None)
        if len(readers) != 1 or readers[0] is not first:
            return False
        return first.own_input == self.input_key and first.inputs.count(self.input_key) == 1

    @property
    def num_layers(self) -> int:
        """The depth: the most calls on one path from the features to the output."""
        return 1 + max(call.layer for call in self.calls)

    @property
    def is_chain(self) -> bool:
        """Whether each layer is one call."""
        return len(self.calls) == self.num_layers

    def on(self, modules: dict[str, MessagePassing]) -> "Trace":
        """The same pass of a copy of the model, whose layers are given by name."""
        return replace(self, calls=tuple(replace(call, module=modules[call.name]) for call in self.calls))

    def calls_of(self, layer: int) -> list[Call]:
        """The calls of one layer, side by side."""
        return [call for call in self.calls if call.layer == layer]

    @property
    def separable(self) -> list[bool]:
        """Per layer: whether a self edge can be scored."""
        found = [True] * self.num_layers
        for call in self.calls:
            found[call.layer] = found[call.layer] and call.separable
        return found

    @property
    def flow(self) -> str | None:
        """The direction of the messages, `None` if the calls differ."""
        flows = set(self.flows)
        return flows.pop() if len(flows) == 1 else None

    @property
    def flows(self) -> list[str | None]:
        """The same of each layer."""
        found: list[set[str | None]] = [set() for _ in range(self.num_layers)]
        for call in self.calls:
            found[call.layer].add(call.flow)
        return [ways.pop() if len(ways) == 1 else None for ways in found]


class _CallLog:
    """The propagate calls, and whether their messages were really seen."""

    def __init__(self, layers: Layers) -> None:
        self.names = {module: name for name, module in layers}
        self.calls: list[tuple[MessagePassing, Any, Any]] = []
        self.messages: dict[int, tuple[int, torch.dtype]] = {}
        self.edge_features: dict[int, Tensor | None] = {}

    def on_edge_update(self, module: MessagePassing, inputs: Any) -> None:
        self.edge_features[len(self.calls)] = inputs[-1].get("edge_attr")

    def on_propagate(self, module: MessagePassing, inputs: Any) -> None:
        self.calls.append((module, inputs[0], inputs[2]))

    def on_message(self, module: MessagePassing, inputs: Any, output: Tensor) -> None:
        self.messages[len(self.calls) - 1] = output.numel() // max(output.size(module.node_dim), 1), output.dtype

    def check(self) -> None:
        """Every call must have made messages that can be weighted."""
        if not self.calls:
            raise ModelError("The model ran without a single message-passing call. Are its PyG layers used in forward?")
        for number, (module, _, _) in enumerate(self.calls):
            if number not in self.messages:
                raise ModelError(
                    f"Layer {self.names[module]} ran fused on a sparse adjacency, so it made no messages to weight. Call it "
                    f"with a plain `edge_index` [2, edges], torch.int64."
                )

    def describe(self, data: Data, layers: list[int], owners: list[Owners]) -> tuple[Call, ...]:
        """The calls, each with its layer, the owners of its messages, and whether some run against their column."""
        return tuple(self._describe(number, data, layers[number], owners[number]) for number in range(len(self.calls)))

    def _describe(self, number: int, data: Data, layer: int, owners: Owners) -> Call:
        module, _, arguments = self.calls[number]
        slots, backward = owners.slots, owners.backward
        adds_loops = bool((slots >= data.edge_index.size(1)).any())
        separable = own_term(module, adds_loops=adds_loops) is not None and owners.of_all_nodes
        features = self.edge_features.get(number)
        return Call(
            self.names[module], module, layer, separable, *self.messages[number], slots, arguments, features, backward
        )


_ABOUT_ROWS = frozenset(("size", "__len__", "numel", "nelement"))


_NOT_THE_USERS = ("torch", "torch_geometric", "edgewise", "contextlib")


def _asks_for_rows(func: Any, name: str, args: Any, kwargs: Any) -> bool:
    """Whether the user's code asks a tensor how many rows it has (or perhaps does: `x.shape`)."""
    if name == "__get__":
        asks = getattr(getattr(func, "__self__", None), "__name__", "") == "shape"
    elif name == "size" and (len(args) > 1 or "dim" in kwargs):
        asks = kwargs.get("dim", args[-1]) % args[0].dim() == 0
    else:
        asks = name in _ABOUT_ROWS
    return asks and _asked_by().split(".")[0] not in _NOT_THE_USERS


def _asked_by() -> str:
    """The module whose code asks a tensor: the first outside torch, beyond the recorder itself."""
    frame: Any = sys._getframe(2)
    recorder = {__name__, OperationMode.__module__}
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in recorder and not module.startswith("torch."):
            return module
        frame = frame.f_back
    return ""


class _Recorder(OperationMode):
    """Keeps every operation with its tensors, so that their ids stay unique."""

    def __init__(self, log: _CallLog) -> None:
        super().__init__()
        self.log = log
        self.operations: list[Operation] = []
        self.keep: list[Any] = []
        self.steps: list[PassStep] = []
        self.jumping = 0
        self.first_call = 0
        self.reads_values = self.reads_sizes = False

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        changed, given = changed_by(func, args, kwargs), {key: kwargs[key] for key in kwargs if key != "out"}
        inputs = keys_of((args, given))
        before, logits = before_change(args, changed), logits_given(func, args, kwargs)
        result = func(*args, **kwargs)
        self.steps.append(PassStep(func, args, kwargs, result))
        name = getattr(func, "__name__", str(func))
        if name == "__setitem__":
            func, result = written, args[0]
        outputs = keys_of(result)
        if changed is not None and base_of(changed) is not None:
            outputs += keys_of(base_of(changed))  # written through a view of it: a second result
        if not any(key is not None for key in outputs):
            self.reads_values |= name not in ABOUT_SHAPES
            self.reads_sizes |= _asks_for_rows(func, name, args, kwargs or {})
        else:
            self.keep.append((args, kwargs, result))
            self.operations.append(
                Operation(
                    name,
                    inputs,
                    outputs,
                    position,
                    self.jumping > 0,
                    function=func,
                    args=before,
                    kwargs=given,
                    shapes=shapes_of(result),
                    result=result,
                    logits=logits,
                )
            )
        return result

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.depth == 0:
            self.first_call = len(self.log.calls)
        super().enter(module, args, kwargs)

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.depth == 1:  # still inside, so that looking at the tensors is not counted
            self.keep.append((args, kwargs, output))
            if not is_foreign(module):
                self.steps.append(PassStep(module, args, kwargs, output))
            x = kwargs.get("x", args[0] if args else None)
            own = keys_of(x[-1] if isinstance(x, (tuple, list)) else x)
            self.operations.append(
                Operation(
                    self.log.names[module],
                    keys_of((args, kwargs)),
                    keys_of(output),
                    own_input=own[0] if own else None,
                    calls=range(self.first_call, len(self.log.calls)),
                    function=module,
                    args=args,
                    kwargs=kwargs,
                )
            )
        super().leave(module, args, kwargs, output)

    @contextmanager
    def noting_jumps(self, model: nn.Module) -> Iterator[None]:
        def step(by: int) -> Any:
            def hook(*_: Any) -> None:
                self.jumping += by

            return hook

        jumps = [m for m in modules_of(model) if isinstance(m, JumpingKnowledge)]
        handles = [m.register_forward_pre_hook(ours(step(1))) for m in jumps] + [
            m.register_forward_hook(ours(step(-1))) for m in jumps
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def width(self, num_nodes: int) -> int:
        tensors = [leaf for _, _, result in self.keep for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return sum(t.numel() // num_nodes for t in tensors if t.dim() > 1 and t.size(0) == num_nodes)


@torch.no_grad()
def record(call: ModelCall, layers: Layers, data: Data) -> Trace:
    """Run the (borrowed) model once and write down what it did."""
    data, call = with_own_x(data), replace(call, changes_input=False)  # its own copy is enough, and known by its key
    before, input_key = data.x._version, keys_of(data.x)[0]
    log = _CallLog(layers)
    recorder = _Recorder(log)
    products = FeatureProducts(data.x)
    seen = message_hooks(layers, log.on_propagate, log.on_message)
    with (
        seen,
        products.kept(call.model),
        edge_update_hooks(layers, log.on_edge_update),
        recorder.noting_jumps(call.model),
        recorder.watching(layers),
        LayerSteps(layers, recorder.steps).watching() if any(map(is_foreign, log.names)) else nullcontext(),
    ):
        output = call.own_output(data)
    log.check()
    tables = call.tables(data, [used for _, used, _ in log.calls])
    operations, same = without_no_ops(recorder.operations)
    output_keys = [same.get(key, key) for key in keys_of(output)]
    typed = call.typed_tensors(data)
    fixed = fixed_tensors(call.model)
    known = fixed | data_tensors(data) | {key for key, _ in (typed.tensors if typed else ())}
    refuse_own_messages(call, layers, data, recorder.steps, known, output)
    numbers = layers_of_calls(operations, known, output_keys)
    ours = isinstance(call.forward, GraphForward)  # the model gets other tensors than those of the graph
    owners = None if numbers is None or ours else plain_owners(log.calls, operations, data, log.names)
    if numbers is not None and tables and typed is not None and isinstance(call.forward, GraphForward):
        owners = [Owners(call.forward.columns_of(data, table)) for table in tables]
    followed = owners is None or numbers is None
    if owners is None or numbers is None:
        numbers, owners = followed_owners(call, layers, data)
    calls = log.describe(data, numbers, owners)
    residuals, bypass = find_skips(operations, output_keys, numbers)
    return Trace(
        calls,
        output,
        residuals,
        bypass,
        recorder.width(data.num_nodes),
        tuple(operations),
        output_keys[0],
        input_key,
        changes_input=data.x._version != before,
        operation_names=tuple(operation.name for operation in recorder.operations),
        is_followed=followed or ours,
        tables=tables,
        typed=typed,
        reads_values=recorder.reads_values,
        reads_sizes=recorder.reads_sizes,
        picks_rows=picks_rows(operations, output_keys, int(data.num_nodes or 0), orders=not call.each_graph),
        weighs_by_nodes=weighs_by_nodes(operations, input_key),
        rounds_to=next((one.result.dtype for one in recorder.operations if has_few_digits(one.result)), None),
        fixed=frozenset(fixed),
        products=products,
    )
