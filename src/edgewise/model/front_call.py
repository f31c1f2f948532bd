"""What a model does before its first message layer, by itself: features of some nodes to what that layer reads of them.

An encoder in front of the layers (a linear map, an MLP, an embedding of numbers) works row by row; whether this one does is not
taken for granted (`question/locality.py` looks at its operations, `algorithms/feature_program.py` compares its rows).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.cut import part_of
from edgewise.model.borrow import ours
from edgewise.model.call import ModelCall, check_kind


@dataclass(frozen=True)
class FeatureFront:
    """Runs a model up to its first message layer, on rows of features without edges."""

    call: ModelCall
    graph: Data
    """The graph that the model is run on: attributes of nodes other than `x` are those of its nodes."""

    def __call__(self, x: Tensor, node: Tensor) -> Tensor:
        """`[n, h]`: what the first layer reads, of rows `x` `[n, f]` that are rows of the nodes `[n]`."""
        none = torch.zeros(0, dtype=torch.long, device=node.device)
        rows = _rows_of(self.graph, node, none)
        rows.x = x
        layers = [module for _, module in check_kind(self.call.model)]
        handles = [layer.register_forward_pre_hook(ours(_stop), with_kwargs=True) for layer in layers]
        try:
            self.call.own_output(rows)
        except _FirstLayer as seen:
            read = seen.read
        else:
            raise ModelError("The model ended before its first message layer.")
        finally:
            for handle in handles:
                handle.remove()
        if not isinstance(read, Tensor) or len(read) != len(x):
            raise ModelError("The first message layer does not read one row for each node.")
        return read


def _rows_of(graph: Data, node: Tensor, columns: Tensor) -> Data:
    """Some nodes, which may repeat, without edges."""
    whole = torch.arange(graph.num_nodes, device=node.device)
    rows = part_of(graph, whole, columns)
    for key in graph.keys():  # noqa: SIM118 (Data is not a dict)
        if key not in ("edge_index", "num_nodes", "x") and isinstance(graph[key], Tensor) and graph.is_node_attr(key):
            rows[key] = graph[key].index_select(0, node)
    rows.num_nodes = len(node)
    return rows


class _FirstLayer(BaseException):
    """The first layer is about to run."""

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.read = read


def _stop(module: nn.Module, args: Any, kwargs: Any) -> None:
    raise _FirstLayer(kwargs.get("x", args[0] if args else None))
