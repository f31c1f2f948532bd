"""Edgewise inside PyG: any of its methods as the algorithm of `torch_geometric.explain.Explainer`."""

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCN

import edgewise as ew

torch.manual_seed(0)
model = GCN(8, 16, num_layers=2, out_channels=3)
data = Data(x=torch.randn(50, 8), edge_index=torch.randint(50, (2, 200)))

explainer = Explainer(
    model,
    ew.EdgewiseExplainer("occlusion", level="layer"),  # was: GNNExplainer(epochs=200)
    explanation_type="model",
    edge_mask_type="object",
    model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
)
explanation = explainer(data.x, data.edge_index, index=7)
strongest = int(explanation.edge_mask.abs().argmax())
print(f"strongest edge: {data.edge_index[:, strongest].tolist()}, {explanation.edge_mask[strongest]:+.3f}")
print(f"by layer: {[round(float(score), 3) for score in explanation.layer_edge_mask[strongest]]}")
