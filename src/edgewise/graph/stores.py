"""The attributes of a graph, read straight from PyG's storage: the one file that touches the private `Data._store`.

`data.x` and `data.to_dict()` go through several layers of Python for every attribute. For one graph that does not matter;
for the thousands of small graphs of a graph task it takes longer than the model.
"""

from collections.abc import Mapping
from typing import Any

from torch_geometric.data import Data


def attributes(graph: Data) -> Mapping[str, Any]:
    """The attributes that are set on a graph, by name; a view, not a copy. Derived ones (`num_edges`) are not in it.

    >>> import torch
    >>> graph = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> sorted(attributes(graph))
    ['edge_index', 'x']
    """
    found: Mapping[str, Any] = graph._store._mapping
    return found
