"""Model and graphs on one device."""

import copy
from typing import Any

import torch
from torch_geometric.data import Data

from edgewise.errors import SettingError
from edgewise.graph.inputs import check_devices
from edgewise.model.call import check_model
from edgewise.model.hooks import Layers


def placed(model: Any, layers: Layers, graphs: list[Data], device: Any) -> tuple[Any, Layers, list[Data]]:
    """The model, its layers and the graphs on the device that was asked for, or where they are if they are together."""
    if device is not None:
        model, graphs = _moved(model, graphs, device)
        layers = check_model(model)
    check_devices(model, graphs[0])
    return model, layers, graphs


def _moved(model: Any, graphs: list[Data], device: Any) -> tuple[Any, list[Data]]:
    """Copies on a device; the user's stay where they are."""
    try:
        place = torch.device(device)
        if any(t.device != place for t in [*model.parameters(), *model.buffers()]):
            model = copy.deepcopy(model).to(place)
        return model, [copy.copy(graph).to(place) for graph in graphs]
    except (RuntimeError, AssertionError, TypeError) as error:
        text = f"device is {device!r}, which is not available: {error}. Leave it out, or type device='cpu'."
        raise SettingError(text) from error
