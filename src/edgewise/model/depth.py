"""Layers and owners where they can be read off the recorded operations, without following every number.

Most models hand the graph's own `edge_index` to each layer, and pass features from layer to layer by operations that were
all recorded. Then the layer of a call is the number of calls on the longest way to it, and a message belongs to the column
at its place; only loops that a known layer drops and adds are looked up by their node. Whatever is less plain is followed
instead (`identity.py`).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.arrays import Slots
from edgewise.model.messages import match_messages
from edgewise.model.residuals import Key, Operation, keys_of

_IN_A_ROW = (pyg.SGConv, pyg.SSGConv, pyg.TAGConv, pyg.APPNP, pyg.ChebConv)
"""Layers that call `propagate` several times, each time on what the last one gave."""
_LOOPS_ONLY = (
    *(pyg.GCNConv, pyg.GATConv, pyg.GATv2Conv, pyg.SGConv, pyg.SSGConv, pyg.TAGConv, pyg.APPNP, pyg.ChebConv),
    *(pyg.ClusterGCNConv, pyg.GCN2Conv, pyg.FAConv, pyg.SuperGATConv, pyg.ARMAConv, pyg.LEConv, pyg.EGConv),
)
"""Layers that leave the order of the edges alone, and at most drop self-loops and add others at the end."""


@dataclass(frozen=True)
class Owners:
    """Who owns the messages of a call."""

    slots: Slots
    """`[messages]`: the column, or edges + node for an added self-loop."""
    backward: bool = False
    """Whether some messages run against the columns that own them."""
    of_all_nodes: bool = True
    """Whether the rows that receive are all nodes, in order; behind a pooling they are not."""


def origins(model: nn.Module, data: Data) -> set[Key]:
    """Keys of the tensors that exist before the pass: parameters, buffers and the data."""
    tensors = [*model.parameters(), *model.buffers(), *(v for v in data.to_dict().values() if isinstance(v, Tensor))]
    return set(keys_of(tensors))


def layers_of_calls(operations: list[Operation], known: set[Key], output: list[Key]) -> list[int] | None:
    """The layer of each call; None if a layer reads something whose making was not seen.

    Two branches on one input share layer 0, a call on their sum has layer 1:

    >>> a, b, x, h, y = ((number, 0) for number in range(5))
    >>> branch = [Operation("conv", [x], [a], calls=range(0, 1)), Operation("conv", [x], [b], calls=range(1, 2))]
    >>> rest = [Operation("add", [a, b], [h]), Operation("conv", [h], [y], calls=range(2, 3))]
    >>> layers_of_calls([*branch, *rest], {x}, [y])
    [0, 0, 1]
    """
    depth: dict[Key, int] = dict.fromkeys(known, 0)
    layers: dict[int, int] = {}
    for operation in operations:
        reads = [key for key in operation.inputs if key is not None]
        if operation.is_layer:
            if any(key not in depth for key in reads) or not _in_a_row(operation):
                return None
            before = max((depth[key] for key in reads), default=0)
            layers.update({call: before + i for i, call in enumerate(operation.calls)})
        before = max((depth.get(key, 0) for key in reads), default=0) + len(operation.calls)
        for key in operation.outputs:
            depth[key] = max(before, depth.get(key, 0))
    if any(key not in depth for key in output if key is not None):
        return None
    return [layers[call] for call in sorted(layers)]


def _in_a_row(operation: Operation) -> bool:
    return len(operation.calls) == 1 or isinstance(operation.function, _IN_A_ROW)


def plain_owners(
    calls: list[tuple[MessagePassing, Any, Any]], operations: list[Operation], data: Data, names: dict[Any, str]
) -> list[Owners] | None:
    """The owner of each message of each call, if every layer was handed the graph's own `edge_index`; otherwise None."""
    given = keys_of(data.edge_index)[0]
    layers = [operation for operation in operations if operation.is_layer]
    if sum(len(layer.calls) for layer in layers) != len(calls):
        return None  # a call outside the layers that the model names
    found: list[Owners] = []
    for layer in layers:
        for number in layer.calls:
            module, used, _ = calls[number]
            own = _own_columns(used, data)
            if own is None and (given not in layer.inputs or type(module) not in _LOOPS_ONLY):
                return None
            slots = match_messages(used, data.edge_index, data.num_nodes, names[module]) if own is None else own
            found.append(Owners(slots))
    return found


def _own_columns(used: Any, data: Data) -> Slots | None:
    """All columns in order, if the call used the very tensor of the graph."""
    given = data.edge_index
    if not isinstance(used, Tensor) or used.layout != torch.strided or used.shape != given.shape:
        return None
    if used.data_ptr() != given.data_ptr() or used.stride() != given.stride():
        return None
    return torch.arange(given.size(1), device=given.device)
