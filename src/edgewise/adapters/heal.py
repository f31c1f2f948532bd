"""Repairs a model that explainers of PyG 2.8 have touched.

GNNExplainer turns the mask of every layer into a parameter; the name stays, and cuts the graph of every mask that comes later.
GraphMask replaces the messages and freezes the parameters for good. An interrupted run leaves its masks behind.
"""

from typing import Any

from torch import nn
from torch_geometric.explain.algorithm import graphmask_explainer
from torch_geometric.nn import MessagePassing

from edgewise.errors import ModelError

_GRAPH_MASK = (
    "message_scale",
    "message_replacement",
    "latest_messages",
    "latest_source_embeddings",
    "latest_target_embeddings",
)
_MASKS = ("_edge_mask", "_loop_mask")


def heal(model: nn.Module) -> tuple[str, ...]:
    """Repair a model that PyG's GNNExplainer, PGExplainer or GraphMaskExplainer has touched, in place.

    Masks are removed, messages are those of the layer again. Parameters are unfrozen only if GraphMask was here and every one
    of them is frozen, as it leaves them. Layers with `explain=False` and messages of your own stay as they are.

    Returns:
        What was repaired, a sentence each; empty for a healthy model.

    >>> import torch; from torch_geometric.nn import GCN
    >>> model = GCN(4, 8, 2, 3)
    >>> heal(model)
    ()
    >>> model.convs[0]._edge_mask = torch.nn.Parameter(torch.ones(5))       # what GNNExplainer does
    >>> heal(model)
    ('convs.0: the edge mask is no parameter any more.',)
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"model is {type(model).__name__}; needed is a torch.nn.Module: ew.heal(model).")
    repairs: list[str] = []
    graph_mask = False
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing):
            found, was_graph_mask = _heal_layer(module)
            repairs += [f"{name or 'model'}: {text}" for text in found]
            graph_mask |= was_graph_mask
    parameters = list(model.parameters())
    if graph_mask and parameters and not any(parameter.requires_grad for parameter in parameters):
        for parameter in parameters:
            parameter.requires_grad_(True)
        repairs.append(f"all {len(parameters)} parameters are trainable again.")
    return tuple(repairs)


def _heal_layer(module: MessagePassing) -> tuple[list[str], bool]:
    """What was repaired in a layer, and whether GraphMask was there."""
    repairs = []
    if "_edge_mask" in module._parameters:
        del module._parameters["_edge_mask"]
        module._edge_mask = None
        repairs.append("the edge mask is no parameter any more.")
    if any(getattr(module, name) is not None for name in _MASKS) or module._apply_sigmoid is not True:
        module._edge_mask, module._loop_mask, module._apply_sigmoid = None, None, True
        repairs.append("a mask that was left behind is gone.")
    graph_mask = _remove_graph_mask(module)
    if module.explain is True:
        module.explain = None  # the setter puts the layer's own way to propagate back
        graph_mask_text = "its messages are its own again." if graph_mask else "it runs without a mask again."
        repairs.append(graph_mask_text)
    elif graph_mask:
        repairs.append("what GraphMask had stored is gone.")
    return repairs, graph_mask


def _remove_graph_mask(module: MessagePassing) -> bool:
    state: dict[str, Any] = module.__dict__
    present = [name for name in _GRAPH_MASK if name in state or name in module._parameters]
    replaced = getattr(state.get("explain_message"), "__func__", None) is graphmask_explainer.explain_message
    if replaced:
        del state["explain_message"]
    for name in present:
        state.pop(name, None)
        module._parameters.pop(name, None)
    return replaced or bool(present)
