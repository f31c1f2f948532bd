"""How a model is called: `model(x, edge_index, **extras)`, `model(data)`, or the user's own `forward=`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.errors import EdgewiseError, ModelError

EXTRAS = ("edge_weight", "edge_attr", "batch")
Forward = Callable[[nn.Module, Data], Tensor]


@dataclass(frozen=True)
class ModelCall:
    """A model together with the way to call it on a graph."""

    model: nn.Module
    forward: Forward | None = None

    def __call__(self, data: Data) -> Tensor:
        """The output, `[rows, columns]`."""
        try:
            output = self.forward(self.model, data) if self.forward else _call(self.model, data)
        except EdgewiseError:
            raise
        except (TypeError, RuntimeError, ValueError, AttributeError, AssertionError, IndexError, KeyError) as error:
            raise ModelError(
                f"The model raised {type(error).__name__} when called as {self.describe(data)}: {error}. If it must be "
                f"called in another way, say how: forward=lambda model, data: model(...)."
            ) from error
        return _as_rows(output, self.describe(data))

    def describe(self, data: Data) -> str:
        """The call in words, for error texts."""
        name = type(self.model).__name__
        if self.forward is not None:
            return f"forward({name}, data)"
        if _takes_data(self.model):
            return f"{name}(data)"
        return f"{name}(x, edge_index{''.join(f', {key}={key}' for key in _extras(self.model, data))})"


def _call(model: nn.Module, data: Data) -> Any:
    if _takes_data(model):
        return model(data)
    return model(data.x, data.edge_index, **_extras(model, data))


def _parameters(model: nn.Module) -> list[str]:
    declared = getattr(
        model, "signature", None
    )  # torch_geometric.nn.Sequential: forward is (*args), the names are here
    names = getattr(declared, "param_dict", None) or inspect.signature(model.forward).parameters
    return list(names)


def _takes_data(model: nn.Module) -> bool:
    names = _parameters(model)
    return bool(names) and "edge_index" not in names and names[0] in ("data", "batch", "graph")


def _extras(model: nn.Module, data: Data) -> dict[str, Tensor]:
    names = _parameters(model)
    return {key: data[key] for key in EXTRAS if key in names and data.get(key) is not None}


def _as_rows(output: Any, call: str) -> Tensor:
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        output = output[0]  # (prediction, attention, ...): the prediction comes first
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() not in (1, 2):
        got = f"a tensor of shape {list(output.shape)}, {output.dtype}" if isinstance(output, Tensor) else type(output)
        raise ModelError(
            f"{call} gave {got}; needed is a floating-point tensor [rows] or [rows, classes]. "
            f"Pick it with forward=lambda model, data: model(...)[...]."
        )
    return output.view(-1, 1) if output.dim() == 1 else output


def check_model(model: Any) -> list[tuple[str, MessagePassing]]:
    """The message-passing layers by name, or an error that says why the model cannot be explained."""
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"model is {type(model).__name__}; needed is a torch.nn.Module with PyG message-passing layers."
        )
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{name or 'the model'} is compiled by TorchScript, so its messages cannot be weighted. "
                f"Pass the Python module it was made from."
            )
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            raise ModelError(
                f"{name or 'the model'} is compiled by torch.compile, which skips message hooks. "
                f"Pass the original module: model._orig_mod, or the model before .compile()."
            )
    layers = [(name or "model", m) for name, m in model.named_modules() if isinstance(m, MessagePassing)]
    if not layers:
        raise ModelError(
            f"{type(model).__name__} has no message-passing layer (torch_geometric.nn.MessagePassing), so "
            f"it has no messages to weight. Build it from PyG convs such as GCNConv or SAGEConv."
        )
    return layers
