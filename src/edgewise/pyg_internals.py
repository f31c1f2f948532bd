"""Private names of PyG: the one file that reads them, each with what takes its place where a PyG lacks it."""

from collections.abc import Mapping
from functools import wraps
from typing import Any

import torch_geometric
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.explain.algorithm import graphmask_explainer
from torch_geometric.nn import MessagePassing

from edgewise.torch_internals import dispatch_mode, no_dispatch

__all__ = ["attributes", "plain", "remove_graph_mask", "remove_masks", "residual_of"]

_WRAPPERS = (EdgeIndex, getattr(torch_geometric, "Index", EdgeIndex))
"""PyG's subclasses of `Tensor`; PyG 2.5 has no `Index`."""
_MASKS = ("_edge_mask", "_loop_mask")
"""Where a layer keeps its masks while PyG explains it; None otherwise."""
_GRAPH_MASK = (
    "message_scale",
    "message_replacement",
    "latest_messages",
    "latest_source_embeddings",
    "latest_target_embeddings",
)
"""What GraphMaskExplainer stores in a layer."""
_graph_mask_message = getattr(graphmask_explainer, "explain_message", None)


def _let_modes_make_edge_index() -> None:
    """Let PyG 2.5 make an `EdgeIndex` while one of our modes watches: its convs make one for the loops that they add.

    Up to PyG 2.5 it is a plain subclass of `Tensor`, which torch cannot make of a tensor that a dispatch mode has returned. The
    mode looks away for that one step; it knows the tensor by its memory. Where no mode of ours is on, nothing changes.
    """
    make = EdgeIndex.__new__

    @wraps(make)
    def made(cls: type, *args: Any, **options: Any) -> Any:
        if not type(dispatch_mode()).__module__.startswith("edgewise."):
            return make(cls, *args, **options)
        with no_dispatch():
            return make(cls, *args, **options)

    EdgeIndex.__new__ = made


if "__torch_dispatch__" not in vars(EdgeIndex):
    _let_modes_make_edge_index()


def attributes(graph: Data) -> Mapping[str, Any]:
    """The attributes that are set on a graph, by name; a view, not a copy. Derived ones (`num_edges`) are not in it.

    `data.x` and `data.to_dict()` go through several layers of Python for every attribute, which for thousands of small graphs
    takes longer than the model.

    >>> import torch
    >>> graph = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> sorted(attributes(graph))
    ['edge_index', 'x']
    """
    store = getattr(graph, "_store", None)
    found: Mapping[str, Any] | None = getattr(store, "_mapping", None)
    return graph.to_dict() if found is None else found


def plain(tensor: Tensor) -> Tensor:
    """The tensor inside PyG's wrappers.

    >>> import torch
    >>> wrapped = EdgeIndex([[0, 1], [1, 0]])
    >>> type(wrapped).__name__, type(plain(wrapped)).__name__
    ('EdgeIndex', 'Tensor')
    """
    if not isinstance(tensor, _WRAPPERS):
        return tensor
    inner = getattr(tensor, "_data", None)  # PyG 2.5 wraps nothing: its EdgeIndex is the tensor, under another class
    return inner if isinstance(inner, Tensor) else tensor.as_subclass(Tensor)


def residual_of(conv: MessagePassing) -> Any:
    """The residual map of an attention layer; None without one, and in PyG 2.5, which has none."""
    return getattr(conv, "res", None)


def remove_masks(module: MessagePassing) -> list[str]:
    """Remove the masks that an explainer of PyG has left in a layer; a sentence for each.

    Every name is read with a default: with a PyG that has renamed one, there is nothing to repair under the old name.
    """
    repairs = []
    if "_edge_mask" in module._parameters:
        del module._parameters["_edge_mask"]
        module._edge_mask = None
        repairs.append("the edge mask is no longer a parameter.")
    left = any(getattr(module, name, None) is not None for name in _MASKS)
    if left or getattr(module, "_apply_sigmoid", True) is not True:
        module._edge_mask, module._loop_mask, module._apply_sigmoid = None, None, True
        repairs.append("a mask that was left behind is removed.")
    return repairs


def remove_graph_mask(module: MessagePassing) -> bool:
    """Remove what GraphMask stored in a layer, and its replacement of the messages; whether there was anything."""
    state: dict[str, Any] = module.__dict__
    present = [name for name in _GRAPH_MASK if name in state or name in module._parameters]
    message = getattr(state.get("explain_message"), "__func__", None)
    replaced = message is not None and message is _graph_mask_message
    if replaced:
        del state["explain_message"]
    for name in present:
        state.pop(name, None)
        module._parameters.pop(name, None)
    return replaced or bool(present)
