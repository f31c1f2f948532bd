"""A graph whose columns can be followed both ways: every column, and its mirror image behind them all.

Where messages run against the columns that own them (`DirGNNConv`, a flip or both directions in `forward`), a program on the
graph itself cannot say who receives. On the mirrored graph it can: column e has the message u → v, column E + e the message
v → u, and every call works on some of the 2 E columns. Walks are read off there; both columns are one edge of the user's.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import occurrence
from edgewise.model.data_flow import Call
from edgewise.model.trace import Trace


def mirrored(trace: Trace, data: Data) -> tuple[Trace, Data]:
    """A recorded pass as if it had run on the mirrored graph, whose messages all run along its columns; and that graph.

    A conv on 0 → 1 and one on the flipped edge: the first owns message 0, the second message 1 of the mirrored graph.

    >>> from edgewise.examples import path_model
    >>> from edgewise.model.call import ModelCall
    >>> from edgewise.model.trace import record
    >>> model, data = path_model(gains=[2.0, 3.0])                                  # 0 → 1 → 2, two layers
    >>> call = ModelCall(model, lambda model, data: model(data.x, data.edge_index.flip(0)))
    >>> trace, both = mirrored(record(call, [(str(i), conv) for i, conv in enumerate(model.convs)], data), data)
    >>> both.edge_index.tolist(), [call.slots.tolist() for call in trace.calls]
    ([[0, 1, 1, 2], [1, 2, 0, 1]], [[2, 3], [2, 3]])
    """
    ends = data.edge_index
    graph = Data(x=data.x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), num_nodes=data.num_nodes)
    calls = tuple(replace(call, slots=_slots(call, ends), backward=None, is_mirrored=True) for call in trace.calls)
    return replace(trace, calls=calls), graph


def _slots(call: Call, edge_index: Tensor) -> Tensor:
    """Owners of messages among the columns of the mirrored graph; loops that a layer added stand behind all columns.

    An explicit loop is its own mirror image: the second of two messages on it gets the other column.
    """
    against, num_edges = call.backward, edge_index.size(1)
    if against is None:
        against = torch.full_like(call.slots, call.module.flow == "target_to_source", dtype=torch.bool)
    on_edges = call.slots < num_edges
    own = call.slots[on_edges]
    is_loop = edge_index[0, own] == edge_index[1, own]
    second = torch.where(is_loop, occurrence(own) % 2 == 1, against[on_edges])
    return call.slots + num_edges * torch.ones_like(against).masked_scatter(on_edges, second)
