"""Averages as the authors' notebooks take them: `nbks/real_data_plots.ipynb`, `nbks/sgc_results.ipynb`, `nbks/infection.ipynb`.

Each function yields (columns of a row, value, number of targets) for one network; the seed of a network draws its random masks
and starts too. The cosine of a vector that is zero is 0 in
PyTorch, so targets with such a vector count as 0 unless a notebook leaves them out.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise_paper.authors_code.layer_explainer import coded_masks
from edgewise_paper.authors_code.maskable import explained
from edgewise_paper.code_habits import full_as_coded, magnitudes, neighbourhood

EXPLAINER = {"epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0}
"""explain/explain_node_classification.py, line 119, and explain_graph_classification.py, line 135: PyG's defaults."""
INPUT_METHODS = ("gnn_explainer", "gradient", "occlusion", "random", "full")
Measured = Iterator[tuple[dict[str, Any], float, int]]


def mean_cosine(found: ew.ExplanationSet, reference: ew.ExplanationSet, *, leave_out: bool) -> tuple[float, int]:
    """The mean over targets, and their number; `leave_out` those whose reference is all zero."""
    cosine = ew.similarity(found, reference)
    if leave_out:
        cosine = cosine[~ew.similarity(reference, reference).isnan()]
    return float(cosine.nan_to_num(0.0).double().mean()), len(cosine)


def input_cosines(
    model: nn.Module, data: Any, index: Tensor | None, seed: int, task: str = "node", device: str = "cpu"
) -> Measured:
    """Cosines to Positive Gradients (cell 1 of the plots); targets without a positive gradient are left out.

    Occlusion of a single logit has no sign (explainers/occlusion_explainer.py, line 52). Full masks of nodes are the whole
    neighbourhood of L steps (explain_node_classification.py, line 172; cell 1 takes the last of them), of graphs all edges.
    """
    reference = explained(model, data, index, task=task, method="positive_gradient", device=device)
    for method in INPUT_METHODS:
        settings = EXPLAINER if method == "gnn_explainer" else {}
        found = explained(model, data, index, task=task, method=method, seed=seed, device=device, **settings)
        if method == "occlusion" and task == "graph":
            found = magnitudes(found)
        if method == "full" and task == "node":
            found = neighbourhood(found, [found.num_layers])
        where = {"level": "input", "method": method, "reference": "positive_gradient"}
        yield where, *mean_cosine(found, reference, leave_out=True)


def layer_cosines_of_nodes(model: nn.Module, data: Any, index: Tensor, seed: int, device: str = "cpu") -> Measured:
    """Cosines to layerwise occlusion, all layers as one vector (cell 2); targets whose occlusion is zero are left out.

    Random masks are drawn on all edges; full masks have the smallest neighbourhood in the layer that reads the features
    (explain_node_classification.py, lines 171 to 174).
    """
    reference = explained(model, data, index, method="occlusion", level="layer", device=device)
    full = explained(model, data, index, method="full", level="layer")
    found = {
        "gnn_explainer": coded_masks(reference, model, data, index, seed=seed, device=device),
        "gradient": explained(model, data, index, method="gradient", level="layer", device=device),
        "random": explained(model, data, index, method="random", level="layer", seed=seed),
        "full": full_as_coded(full),
    }
    for method, masks in found.items():
        where = {"level": "layer", "method": method, "reference": "occlusion"}
        yield where, *mean_cosine(masks, reference, leave_out=True)


def layer_cosines_of_graphs(model: nn.Module, graphs: list[Any], seed: int, device: str = "cpu") -> Measured:
    """Cosines to layerwise gradients, which is what the figure of graph data shows; and to layerwise occlusion, as it says.

    explain_graph_classification.py, line 236: the loop headed "occlusion" calls the gradient explainer. No graph is left out
    (cell 2). The rows with the reference `occlusion` are the corrected figure: signed occlusion of the predicted class.
    """
    gradient = explained(model, graphs, None, task="graph", method="gradient", level="layer", device=device)
    occlusion = explained(model, graphs, None, task="graph", method="occlusion", level="layer", device=device)
    found = {
        "gnn_explainer": coded_masks(gradient, model, graphs, None, seed=seed, task="graph", device=device),
        "gradient": gradient,
        "random": explained(model, graphs, None, task="graph", method="random", level="layer", seed=seed),
        "full": explained(model, graphs, None, task="graph", method="full", level="layer"),
    }
    for name, reference in (("gradient", gradient), ("occlusion", occlusion)):
        for method, masks in found.items():
            where = {"level": "layer", "method": method, "reference": name}
            yield where, *mean_cosine(masks, reference, leave_out=False)


def infection_cosines(model: nn.Module, data: Any, nodes: Tensor, seed: int) -> Measured:
    """All pairs of methods at both levels, over all nodes with an edge (nbks/infection.ipynb, cells 2 to 6).

    Full masks are a step too wide (nbks/infection.py, lines 159 and 160): 5, 4, 3, 2 steps; the first serves the input level.
    """
    for level in ("input", "layer"):
        found = {
            method: explained(model, data, nodes, method=method, level=level, seed=seed)
            for method in ("positive_gradient", "gradient", "occlusion", "random", "full")
        }
        if level == "input":
            found["gnn_explainer"] = explained(model, data, nodes, method="gnn_explainer", seed=seed, **EXPLAINER)
        else:
            found["gnn_explainer"] = coded_masks(found["gradient"], model, data, nodes, seed=seed)
        found["full"] = neighbourhood(found["full"], [5] if level == "input" else [5, 4, 3, 2])
        names = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                cosine = ew.similarity(found[other], found[one], per_layer=level == "layer").nan_to_num(0.0).double()
                means = cosine.view(len(nodes), -1).mean(dim=0).tolist()
                for layer, mean in enumerate(means, start=1):
                    where = {
                        "level": level,
                        "layer": layer if level == "layer" else 0,
                        "method": other,
                        "reference": one,
                    }
                    yield where, mean, len(nodes)


def example_cosine(model: nn.Module, data: Any, test: Tensor) -> float:
    """The cosine of the paper's example on Cora: the *first* test node (nbks/real_data_plots.ipynb, cell 5, idx = 0)."""
    first = test[:1]
    masks = explained(model, data, first, method="gnn_explainer", **EXPLAINER)
    positive = explained(model, data, first, method="positive_gradient")
    return float(torch.as_tensor(ew.similarity(masks, positive)).view(-1)[0])
