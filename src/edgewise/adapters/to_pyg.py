"""EdgewiseExplainer: every method of Edgewise as an algorithm of `torch_geometric.explain.Explainer`."""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import ModelMode, ModelReturnType, ModelTaskLevel

from edgewise.algorithms.registry import find_method, read_settings
from edgewise.api.explain import explain
from edgewise.contract import checked
from edgewise.results.explanation import Explanation

_MODES = {
    ModelMode.multiclass_classification: "multiclass",
    ModelMode.binary_classification: "binary",
    ModelMode.regression: "regression",
}
"""PyG's modes → ours."""
_NUMBERS = {ModelReturnType.raw: "logit", ModelReturnType.probs: "prob", ModelReturnType.log_probs: "log_prob"}
"""What PyG says that the model returns → the number that is explained."""


class EdgewiseExplainer(ExplainerAlgorithm):
    """A method of Edgewise for PyG's `Explainer`: `edge_mask` `[E]`, and at layer level `layer_edge_mask` `[E, L]`.

    Masks are signed: a negative entry opposes the explained class. Several indices at once give the sum of their scores,
    as PyG's own gradients do; `ew.explain` keeps them apart.

    Args:
        method: A name of `ew.methods()`.
        level: `"input"` or `"layer"`.
        **settings: Settings of the method, and `seed`.

    >>> from torch_geometric.explain import Explainer
    >>> from torch_geometric.nn import GCN
    >>> explainer = Explainer(
    ...     GCN(4, 8, 2, 3), EdgewiseExplainer("occlusion", level="layer"), explanation_type="model",
    ...     edge_mask_type="object",
    ...     model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"))
    >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> explainer(x, edge_index, index=3).layer_edge_mask.shape
    torch.Size([3, 2])
    """

    @checked
    def __init__(self, method: str = "gradient", level: str = "input", **settings: Any) -> None:
        super().__init__()
        seed = settings.pop("seed", 0)
        read_settings(find_method(method, level), settings)
        self.method, self.level, self.settings = method, level, {**settings, "seed": seed}

    def supports(self) -> bool:
        """PyG asks this before a run: only edge masks, and only node and graph tasks."""
        if self.explainer_config.node_mask_type is not None:
            logging.error("EdgewiseExplainer scores edges: leave node_mask_type out and set edge_mask_type='object'.")
            return False
        if self.model_config.task_level == ModelTaskLevel.edge:
            logging.error("EdgewiseExplainer explains nodes and graphs: set task_level='node' or 'graph'.")
            return False
        return True

    def forward(
        self, model: nn.Module, x: Tensor, edge_index: Tensor, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> PyGExplanation:
        """Called by PyG's `Explainer`: the scores of all asked rows, summed, in the columns of `edge_index`."""
        scores = x.new_zeros(())
        for data, columns, rows, classes in self._questions(x, edge_index, target, index, kwargs):
            found = explain(
                model,
                data,
                rows,
                method=self.method,
                level=self.level,
                target=classes,
                task=self.model_config.task_level.value,
                mode=_MODES[self.model_config.mode],
                of=_NUMBERS[self.model_config.return_type] if classes is not None else "logit",
                forward=self._forward(list(kwargs)),
                **self.settings,
            )
            total = (
                found.scores if isinstance(found, Explanation) else torch.stack([one.scores for one in found]).sum(0)
            )
            full = total.new_zeros(*total.shape[:-1], edge_index.size(1))
            full[..., columns] = total
            scores = scores + full
        if self.level == "input":
            return PyGExplanation(edge_mask=scores)
        return PyGExplanation(edge_mask=scores.sum(dim=0), layer_edge_mask=scores.t().contiguous())

    def _forward(self, extras: list[str]) -> Any:
        """The call that PyG makes, as `forward=` of `explain`; probabilities are turned into logits."""
        kind, mode = self.model_config.return_type, self.model_config.mode

        def forward(model: nn.Module, data: Data) -> Tensor:
            output: Tensor = model(data.x, data.edge_index, **{name: data[name] for name in extras})
            if kind == ModelReturnType.probs:
                return output.logit() if mode == ModelMode.binary_classification else output.log()
            return output

        return forward

    def _questions(self, x: Tensor, edge_index: Tensor, target: Tensor, index: Any, extras: dict[str, Any]) -> Any:
        """(graph, its columns of `edge_index`, asked rows, their classes): one for a node task, one for each asked graph.

        A batch of two graphs with 3 and 2 edges, both asked: the first has the columns 0 to 2, the second 3 and 4.
        """
        data = Data(x=x, edge_index=edge_index, **extras)
        everything = slice(None)
        regression = self.model_config.mode == ModelMode.regression
        rows = None if index is None else torch.as_tensor(index).view(-1).tolist()
        if self.model_config.task_level == ModelTaskLevel.node:
            rows = list(range(x.size(0))) if rows is None else rows
            yield data, everything, rows, None if regression else target[rows]
            return
        batch = extras.get("batch")
        if batch is None or int(batch.max()) == 0:
            yield data, everything, None, None if regression else target.view(-1)[:1]
            return
        for graph in range(int(batch.max()) + 1) if rows is None else rows:
            inside = batch == graph
            columns = inside[edge_index[0]].nonzero().view(-1)
            part = data.subgraph(inside)
            part.batch = torch.zeros_like(batch[inside])
            yield part, columns, None, None if regression else target.view(-1)[graph : graph + 1]
