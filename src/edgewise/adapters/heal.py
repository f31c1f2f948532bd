"""heal(): repairs a model that PyG's explainers have touched.

GNNExplainer turns the mask of every layer into a parameter; the name stays registered and cuts the gradient of every later
mask. GraphMask replaces the messages and freezes the parameters for good. An interrupted run leaves its masks behind.

The names under which PyG keeps all this are in `pyg_internals.py`. `tests/adapters/test_heal.py` fails once PyG no longer
leaves these traces.
"""

from torch import nn
from torch_geometric.nn import MessagePassing

from edgewise.contract import checked
from edgewise.errors import ModelError
from edgewise.pyg_internals import remove_graph_mask, remove_masks


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
    repairs = remove_masks(module)
    graph_mask = remove_graph_mask(module)
    if getattr(module, "explain", None) is True:
        module.explain = None  # the setter restores the layer's own `propagate`
        repairs.append("its own messages are restored." if graph_mask else "it runs without a mask again.")
    elif graph_mask:
        repairs.append("what GraphMask had stored is removed.")
    return repairs, graph_mask
