"""What the installed PyG can do, where its versions differ."""

from inspect import signature

import torch
from torch_geometric import EdgeIndex
from torch_geometric.explain import GNNExplainer
from torch_geometric.nn import GATConv, GeneralConv


def _general_runs() -> bool:
    try:
        with torch.random.fork_rng(devices=[]):
            GeneralConv(1, 1)(torch.ones(1, 1), torch.zeros(2, 1, dtype=torch.long))
    except AssertionError:
        return False
    return True


HAS_RESIDUAL = "residual" in signature(GATConv.__init__).parameters
"""Whether attention may have a residual; from PyG 2.6 on."""
RESIDUAL = {"residual": True} if HAS_RESIDUAL else {}
"""The option of an attention layer with a residual, where there is one."""
WRAPS_EDGE_INDEX = "__torch_dispatch__" in vars(EdgeIndex)
"""Whether an `EdgeIndex` can be cut while operations are recorded; from PyG 2.6 on."""
TAKES_TYPES = hasattr(GNNExplainer(), "is_hetero")
"""Whether GNNExplainer takes a typed graph; that of PyG 2.5 does not."""
GENERAL_RUNS = _general_runs()
"""Whether a GeneralConv runs without edge features; that of PyG 2.5 does not."""
