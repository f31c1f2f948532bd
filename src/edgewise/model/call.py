"""How a model is called: `model(x, edge_index, **extras)`, `model(data)`, or the user's own `forward=`."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.errors import EdgewiseError, ModelError
from edgewise.graph.inputs import is_stand_in
from edgewise.model.call_arguments import absent_names, argument_names, arguments_for, given, required_names
from edgewise.model.data_flow import TypedTensors
from edgewise.model.gradient_stops import refuse_writes
from edgewise.model.head import Head, HeadInput, logits_of
from edgewise.model.module_tree import named_modules
from edgewise.model.node_tables import NodeParameter, standing_in
from edgewise.model.norms import norms_of_each_graph
from edgewise.model.shadow import Mark

_COARSE = (torch.bfloat16, torch.float16)
Forward = Callable[[nn.Module, Data], Tensor]


class GraphForward(ABC):
    """A `forward` of ours: it makes what the model takes of the graph that is run, and knows whose rows come out."""

    @abstractmethod
    def __call__(self, model: nn.Module, graph: Data) -> Tensor:
        """What the model returns, a row for each node that it speaks about."""

    @abstractmethod
    def spread(self, rows: Tensor, graph: Data) -> Tensor:
        """The rows, `[nodes, columns]`, each in the place of its node."""

    @abstractmethod
    def marks(self, graph: Data) -> Iterator[tuple[Tensor, Mark]]:
        """The tensors that the model gets, with what is known of them."""

    @abstractmethod
    def table_of(self, graph: Data, used: Tensor) -> Any:
        """The name of the `edge_index` that the model was given and that is this very tensor; None if there is none."""

    @abstractmethod
    def columns_of(self, graph: Data, table: Any) -> Tensor:
        """`[messages]`: the columns of the graph that are those of an `edge_index` that the model was given."""

    @abstractmethod
    def receivers_of(self, graph: Data, table: Any, flow: str) -> Tensor:
        """`[rows]`: the nodes of the graph that may receive its messages."""

    @abstractmethod
    def column_groups(self, graph: Data) -> list[Tensor]:
        """The columns of the graph, those of each `edge_index` that the model is given together."""

    def typed_tensors(self, graph: Data) -> TypedTensors | None:
        """The tensors by node type and edge type, if there are types."""
        return None

    def store_of(self, graph: Data, kind: str) -> Any:
        """The attributes of the nodes of a type in the graph that is run."""
        return graph

    @abstractmethod
    def in_double(self) -> "GraphForward":
        """The same with features in float64."""

    @abstractmethod
    def describe(self, model: nn.Module) -> str:
        """The call in words, for error texts."""

    @abstractmethod
    def hint(self) -> str:
        """What may help if the model raised."""


@dataclass(frozen=True)
class ModelCall:
    """A model together with the way to call it on a graph."""

    model: nn.Module
    forward: Forward | None = None
    each_graph: bool = False
    """Whether the graphs of a batch know nothing of each other, as in graph tasks: a norm over a graph then ends with it."""
    changes_input: bool = False
    """Whether the model writes into its features: it then gets a copy each time."""
    head: Head | None = None
    """The last operation, if it makes probabilities: what goes into it is what the call gives."""
    stated: str = ""
    """`"prob"` or `"log_prob"`: what the model is said to return where its head cannot be seen."""
    is_widened: bool = False
    """Whether the output is in float64, and not all messages are: the call then gives float32."""
    node_tables: tuple[NodeParameter, ...] = ()
    """Parameters with a row for each node, in whose places the rows of the nodes that are run are put."""

    def __call__(self, data: Data) -> Tensor:
        """The logits (or values), `[rows, columns]`."""
        rows = self._logits(data)
        return self.spread(rows.float() if self.is_widened else rows, data)

    def _logits(self, data: Data) -> Tensor:
        """The same as the model gives them."""
        if self.head is None:
            rows = self.own_output(data)
            return logits_of(rows, self.stated) if self.stated else rows
        with HeadInput(self.head) as seen:
            self.own_output(data)
        if seen.rows is None:
            raise ModelError(f"The model ended without {self.head.function}, which it had in its first run.")
        return self.head.logits(_as_rows(seen.rows, self.describe(data)))

    @property
    def has_types(self) -> bool:
        """Whether `forward` makes tables of several types of the graph, and says which columns are those of each."""
        return hasattr(self.forward, "column_groups")

    def column_groups(self, data: Data) -> list[Tensor]:
        """The columns of each type, if there are types."""
        found: Callable[[Data], list[Tensor]] | None = getattr(self.forward, "column_groups", None)
        return [] if found is None else found(data)

    def spread(self, rows: Tensor, data: Data) -> Tensor:
        """A row for each node (or graph) that is run, from what the model gives."""
        return self.forward.spread(rows, data) if isinstance(self.forward, GraphForward) else rows

    def marks(self, data: Data) -> Iterator[tuple[Tensor, Mark]]:
        """What is known of tensors that the model gets and that are not in the graph itself."""
        return self.forward.marks(data) if isinstance(self.forward, GraphForward) else iter(())

    def tables(self, data: Data, used: list[Any]) -> tuple[Any, ...]:
        """Per call of a typed graph's model: the type whose very `edge_index` it used; empty if one used anything else."""
        forward = self.forward
        found = [forward.table_of(data, one) for one in used] if isinstance(forward, GraphForward) else [None]
        return () if None in found else tuple(found)

    def typed_tensors(self, data: Data) -> TypedTensors | None:
        """Of a typed graph: what the model gets, and whose rows and columns it has."""
        return self.forward.typed_tensors(data) if isinstance(self.forward, GraphForward) else None

    def in_double(self, model: nn.Module) -> "ModelCall":
        """The same call of a model in float64."""
        forward = self.forward.in_double() if isinstance(self.forward, GraphForward) else self.forward
        return replace(self, model=model, forward=forward, is_widened=False)

    def own_output(self, data: Data) -> Tensor:
        """What the model itself returns, `[rows, columns]`."""
        if self.changes_input:
            data = with_own_x(data)
        if is_stand_in(data.x):
            data = copy.copy(data)
            del data.x
        try:
            with (
                norms_of_each_graph(self.model, data) if self.each_graph else nullcontext(),
                standing_in(self.model, self._rows_of_tables(data)) if self.node_tables else nullcontext(),
            ):
                output = self.forward(self.model, data) if self.forward else call_model(self.model, data)
        except EdgewiseError:
            raise
        except Exception as error:  # whatever a stranger's code raises
            refuse_writes(error)
            raise ModelError(
                f"The model raised {type(error).__name__} when called as {self.describe(data)}: {error}. {self._hint(data)}"
            ) from error
        return _as_rows(output, self.describe(data))

    def _rows_of_tables(self, data: Data) -> dict[NodeParameter, Tensor]:
        """What the graph that is run carries for the parameters with a row for each node."""
        forward = self.forward
        stores = {
            table: forward.store_of(data, table.kind) if isinstance(forward, GraphForward) else data
            for table in self.node_tables
        }
        rows = {table: store.get(table.attribute) for table, store in stores.items()}
        return {table: found for table, found in rows.items() if found is not None}

    def _hint(self, data: Data) -> str:
        """What is most likely to help."""
        if isinstance(self.forward, GraphForward):
            return self.forward.hint()
        if self.forward is None and not takes_data(self.model):
            absent = absent_names(argument_names(self.model), required_names(self.model), data)
            if "batch" in absent:
                return "It asks for batch: for one prediction per graph, type task='graph'."
            if absent:
                each = ", a row for each edge" if absent[0].startswith("edge") else ""
                return (
                    f"Its forward asks for `{absent[0]}`, and the data has no {absent[0]}: set data.{absent[0]}{each}, or say "
                    f"how the model is called: forward=lambda model, data: model(...)."
                )
        x = given(data, "x")
        if x is None:
            return (
                "The data has no x. If the model must be called in another way: forward=lambda model, data: model(...)."
            )
        return (
            f"data.x is {list(x.shape)}, {x.dtype}; does that fit the first layer (data.x.float() makes it torch.float32)? If "
            f"the model must be called in another way, say how: forward=lambda model, data: model(...)."
        )

    def describe(self, data: Data) -> str:
        """The call in words, for error texts."""
        name = type(self.model).__name__
        if isinstance(self.forward, GraphForward):
            return self.forward.describe(self.model)
        if self.forward is not None:
            return f"forward({name}, data)"
        if takes_data(self.model):
            return f"{name}(data)"
        args, named = arguments_for(argument_names(self.model), required_names(self.model), data)
        told = [*("x", "edge_index")[: len(args)], *(f"{key}={key}" for key in named)]
        return f"{name}({', '.join(told)})"


def with_own_x(graph: Data) -> Data:
    """The graph with a copy of its features."""
    own = copy.copy(graph)
    own.x = graph.x.detach().clone()
    return own


def call_model(model: nn.Module, data: Data) -> Any:
    """What a model returns of a graph: `model(data)`, or with those of its arguments that the data have."""
    if takes_data(model):
        return model(data)
    names, required = argument_names(model), required_names(model)
    args, named = arguments_for(names, required, data)
    if args and args[0] is None and names[0] in required:
        raise ModelError(
            f"{type(model).__name__}.forward asks for `{names[0]}`, and the data has no {names[0]}: set it, or say "
            f"how the model is called: forward=lambda model, data: model(...)."
        )
    return model(*args, **named)


def takes_data(model: nn.Module) -> bool:
    """Whether `forward` takes the whole graph object."""
    names = argument_names(model)
    return bool(names) and "edge_index" not in names and names[0] in ("data", "batch", "graph")


def _as_rows(output: Any, call: str) -> Tensor:
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        output = output[0]  # (prediction, attention, ...): the prediction comes first
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() not in (1, 2):
        got = f"a tensor of shape {list(output.shape)}, {output.dtype}" if isinstance(output, Tensor) else type(output)
        raise ModelError(
            f"{call} gave {got}; needed is a floating-point tensor [rows] or [rows, classes]. "
            f"Pick it with forward=lambda model, data: model(...)[...]."
        )
    if output.dtype in _COARSE:
        raise ModelError(
            f"{call} gave {output.dtype}, whose few digits hide what a single edge does. Explain the model in float32: "
            f"model.float(), with data.x.float(). If its forward works under torch.autocast, leave that out, or use "
            f"forward=lambda model, data: model(...).float()."
        )
    return output.view(-1, 1) if output.dim() == 1 else output


def check_model(model: Any) -> list[tuple[str, MessagePassing]]:
    """The message-passing layers by name, or an error that says why the model cannot be explained."""
    layers = check_kind(model)
    for name, module in named_modules(model).items():
        if "_orig_mod" in module._modules or module.__dict__.get("_compiled_call_impl") is not None:
            raise ModelError(
                f"{name or 'the model'} is compiled by torch.compile, which skips message hooks, and cannot be copied "
                f"without that. Use the original module: model._orig_mod, or the model before .compile()."
            )
    return layers


def check_kind(model: Any) -> list[tuple[str, MessagePassing]]:
    """The same for a model of the user's, whose wrappers and compiled calls a twin does without."""
    if not isinstance(model, nn.Module):
        got, hint = type(model).__name__, ""
        if isinstance(model, type):
            got, hint = f"the class {model.__name__}", f" Use an object of it: model = {model.__name__}(...)."
        elif isinstance(model, dict):
            hint = " Use it in a model: model.load_state_dict(...)."
        raise ModelError(f"`model` must be a torch.nn.Module with PyG message-passing layers, got {got}.{hint}")
    modules = named_modules(model)
    for name, module in modules.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{name or 'the model'} is compiled by TorchScript, so its messages cannot be weighted. "
                f"Pass the Python module it was made from."
            )
    parameters = chain.from_iterable(module._parameters.values() for module in modules.values())
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in parameters):
        raise ModelError(
            f"{type(model).__name__} has lazy layers that have never run, so their weights do not exist yet. Call the model "
            f"once, or load its trained weights."
        )
    _refuse_coarse(modules)
    layers = [(name or "model", m) for name, m in modules.items() if isinstance(m, MessagePassing)]
    if not layers:
        raise ModelError(
            f"{type(model).__name__} has no message-passing layer (torch_geometric.nn.MessagePassing), so "
            f"it has no messages to weight. Build it from PyG convs such as GCNConv or SAGEConv."
        )
    return layers


def _refuse_coarse(modules: dict[str, nn.Module]) -> None:
    """Refuse parameters of a few digits."""
    for name, module in modules.items():
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.dtype in _COARSE:
                raise ModelError(
                    f"{f'{name}.{key}' if name else key} is {parameter.dtype}, whose few digits hide what a single edge does. "
                    f"Explain the model in float32: model.float(), or copy.deepcopy(model).float() to keep this one, with "
                    f"data.x.float()."
                )
