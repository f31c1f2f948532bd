"""A small model and graph to hand to PyG's own explainers."""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import zoo

CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def small(kind=GCN, seed=0, **options):
    """A float32 model and graph, as PyG's explainers expect; no loops, so that their masks fall on the right messages."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(4, 8, 2, 3, **options).eval()
        edges = [pair for pair in zoo.random_edges(7, 30) if pair[0] != pair[1]]
        return model, Data(x=torch.randn(7, 4), edge_index=torch.tensor(edges).t().contiguous())
