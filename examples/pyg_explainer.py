"""Edgewise inside PyG: any of its methods as the algorithm of `torch_geometric.explain.Explainer`, with its metrics."""

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, fidelity
from torch_geometric.nn import GCN

import edgewise as ew

torch.manual_seed(0)
model = GCN(8, 16, num_layers=2, out_channels=3)
data = Data(x=torch.randn(50, 8), edge_index=torch.randint(50, (2, 200)))


def explainer(algorithm):
    return Explainer(
        model,
        algorithm,  # was: GNNExplainer(epochs=200)
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )


explanation = explainer(ew.EdgewiseExplainer("occlusion", level="layer"))(data.x, data.edge_index, index=7)
strongest = int(explanation.edge_mask.abs().argmax())
print(f"strongest edge: {data.edge_index[:, strongest].tolist()}, {explanation.edge_mask[strongest]:+.3f}")
print(f"by layer: {[round(float(score), 3) for score in explanation.layer_edge_mask[strongest]]}")
node, feature = divmod(int(explanation.node_mask.abs().argmax()), data.num_features)
print(f"strongest feature: {feature} of node {node}, {explanation.node_mask[node, feature]:+.3f}")

unit = explainer(ew.EdgewiseExplainer("occlusion", scale="unit"))  # in [0, 1], as PyG's metrics expect masks
positive, negative = fidelity(unit, unit(data.x, data.edge_index, index=torch.arange(10)))
print(f"PyG's fidelity of ten nodes at once: {positive:.2f} and {negative:.2f}")
