"""heal(): repairs a model that PyG's explainers have touched.

GNNExplainer turns the mask of every layer into a parameter; the name stays registered and cuts the gradient of every later
mask. GraphMask replaces the messages and freezes the parameters for good. An interrupted run leaves its masks behind.

All private names of PyG that this needs are here, and each is read with a default: with a PyG that has renamed one, there
is nothing to repair under the old name. `tests/adapters/test_heal.py` fails once PyG no longer leaves these traces.
"""

from typing import Any

from torch import nn
from torch_geometric.explain.algorithm import graphmask_explainer
from torch_geometric.nn import MessagePassing

from edgewise.contract import checked
from edgewise.errors import ModelError

_GRAPH_MASK = (
    "message_scale",
    "message_replacement",
    "latest_messages",
    "latest_source_embeddings",
    "latest_target_embeddings",
)
"""What GraphMaskExplainer stores in a layer."""
_MASKS = ("_edge_mask", "_loop_mask")
"""Where a layer keeps its masks while it is explained; None otherwise."""
_graph_mask_message = getattr(graphmask_explainer, "explain_message", None)


@checked
def heal(model: nn.Module) -> tuple[str, ...]:
    """Repair a model that PyG's GNNExplainer, PGExplainer or GraphMaskExplainer has touched, in place.

    Masks are removed, and the layer's own messages restored. Parameters are unfrozen only if GraphMask left traces and every
    one of them is frozen, as it leaves them. Layers with `explain=False`, and messages of your own, stay as they are.

    Returns:
        What was repaired, a sentence each; empty for a healthy model.

    >>> import torch; from torch_geometric.nn import GCN
    >>> model = GCN(4, 8, 2, 3)
    >>> heal(model)
    ()
    >>> model.convs[0]._edge_mask = torch.nn.Parameter(torch.ones(5))       # what GNNExplainer does
    >>> heal(model)
    ('convs.0: the edge mask is no longer a parameter.',)
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"`model` must be a torch.nn.Module, got {type(model).__name__}. Use ew.heal(model).")
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
        repairs.append("the edge mask is no longer a parameter.")
    if _has_masks(module):
        module._edge_mask, module._loop_mask, module._apply_sigmoid = None, None, True
        repairs.append("a mask that was left behind is removed.")
    graph_mask = _remove_graph_mask(module)
    if getattr(module, "explain", None) is True:
        module.explain = None  # the setter restores the layer's own `propagate`
        repairs.append("its own messages are restored." if graph_mask else "it runs without a mask again.")
    elif graph_mask:
        repairs.append("what GraphMask had stored is removed.")
    return repairs, graph_mask


def _has_masks(module: MessagePassing) -> bool:
    """Whether a mask, or another way to apply it, was left in a layer."""
    left = any(getattr(module, name, None) is not None for name in _MASKS)
    return left or getattr(module, "_apply_sigmoid", True) is not True


def _remove_graph_mask(module: MessagePassing) -> bool:
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
