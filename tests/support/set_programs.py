"""Programs around one node of a small random graph, for the bounds and trees of counterfactuals."""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, GraphSAGE

from edgewise.counterfactuals.edge_units import EdgeUnits
from edgewise.counterfactuals.set_program import SharedProgram
from edgewise.question import pose

NETWORKS = {
    "GCN": lambda: GCN(4, 6, 2, 3),
    "SAGE, 3 layers": lambda: GraphSAGE(4, 6, 3, 3),
    "GIN with norms": lambda: GIN(4, 6, 2, 3, norm="BatchNorm"),
    "GCN, all layers joined": lambda: GCN(4, 6, 2, 3, jk="cat"),
    "LeakyReLU": lambda: GCN(4, 6, 2, 3, act=nn.LeakyReLU(0.3)),
    "relu6": lambda: GraphSAGE(4, 6, 2, 3, act="relu6"),
}
UNDIRECTED = {"GCN", "GIN with norms"}


def around(name, seed, nodes=12, edges=30):
    """A program around one node with its units, and the same through the engine of explanations."""
    torch.manual_seed(seed)
    model = NETWORKS[name]().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    data = Data(x=torch.randn(nodes, 4).double(), edge_index=torch.randint(nodes, (2, edges)))
    question = pose(model, data, [3])
    levels = question.lowering.engine(question.places(torch.tensor([0]))).levels
    columns = question.columns(levels.edge_id)
    each = columns.unique()
    units = EdgeUnits.of(each, data.edge_index[:, each], undirected=name in UNDIRECTED)
    return (
        SharedProgram(question.lowering.program, question.lowering.in_edges.num_nodes).around(levels, columns, units),
        units,
        question,
    )
