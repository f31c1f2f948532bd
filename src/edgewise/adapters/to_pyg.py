"""EdgewiseExplainer: every method of Edgewise as an algorithm of `torch_geometric.explain.Explainer`."""

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import ExplainerAlgorithm, HeteroExplanation
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType

from edgewise.adapters.pyg_graph import edge_scores, node_scores
from edgewise.adapters.pyg_masks import ScoreBlock, largest, summed, unit
from edgewise.adapters.pyg_question import PyGQuestion
from edgewise.adapters.pyg_types import typed_edge_scores, typed_node_scores
from edgewise.algorithms.feature_methods import FEATURE_METHODS
from edgewise.algorithms.method_settings import read_settings
from edgewise.algorithms.registry import find_method
from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.random_numbers import random_scores, uniform

_IN_UNIT = ("gnn_explainer", "gnn_explainer_fast", "positive_gradient", "full", "random")
"""Methods whose scores lie in [0, 1]."""
_FEATURES = {"occlusion": "occlusion", "integrated_gradients": "integrated_gradients"}
"""Methods → what scores the features beside them; for the others, gradient × input: the slope of a mask on the features."""


class EdgewiseExplainer(ExplainerAlgorithm):
    """A method of Edgewise for PyG's `Explainer`, for every setting of it.

    `edge_mask` `[E]` are the method's scores, and at layer level `layer_edge_mask` `[E, L]`; `node_mask` comes from
    `ew.features`: `[N, F]` (`node_mask_type="attributes"`), summed over features `[N, 1]` (`"object"`) or over nodes `[1, F]`
    (`"common_attributes"`). Typed graphs get dictionaries of them. Masks are signed: a negative entry opposes the explained
    class. The scores of several indices (and layers) are added up, as PyG's own gradients are. Methods whose scores lie in
    [0, 1], such as `gnn_explainer`, give masks in [0, 1]: of several indices, and of several layers, the largest; their
    feature scores are magnitudes, as shares of the largest of each index.

    Args:
        method: A name of `ew.methods()`.
        level: `"input"` or `"layer"`.
        features: The method of `ew.features` for node masks; None: the one that fits `method`.
        scale: `"unit"` brings any method's masks into [0, 1] in the same way, as PyG's metrics and pictures expect them.
        node_type: Of a typed graph: whose rows the model returns, if several types have as many nodes.
        **settings: Settings of the method, and `seed`.

    >>> from torch_geometric.explain import Explainer
    >>> from torch_geometric.nn import GCN
    >>> explainer = Explainer(
    ...     GCN(4, 8, 2, 3), EdgewiseExplainer("occlusion", level="layer"), explanation_type="model",
    ...     edge_mask_type="object", node_mask_type="attributes",
    ...     model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"))
    >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> why = explainer(x, edge_index, index=3)
    >>> why.layer_edge_mask.shape, why.node_mask.shape
    (torch.Size([3, 2]), torch.Size([5, 4]))
    """

    node_mask = edge_mask = None
    """PyG's learned masks are here while they are learned. Nothing of an answer stays in this object."""

    @checked
    def __init__(
        self,
        method: str = "gradient",
        level: str = "input",
        *,
        features: str | None = None,
        scale: str | None = None,
        node_type: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        seed = settings.pop("seed", 0)
        chosen = find_method(method, level)
        read_settings(chosen, settings)
        if features is not None:
            one_of("features", features, FEATURE_METHODS, also="or None for the one that fits the method")
        if scale is not None:
            one_of("scale", scale, ("unit",), also="or None for scores as they are")
        self.method, self.level, self.settings = method, level, {**settings, "seed": seed}
        self.features = features or _FEATURES.get(chosen.name, "gradient_x_input")
        self.scale, self.node_type = scale, node_type
        self._is_unit = scale == "unit" or chosen.name in _IN_UNIT

    def supports(self) -> bool:
        """PyG asks this before a run."""
        kind = self.explainer_config.node_mask_type
        if kind not in (None, MaskType.object) and FEATURE_METHODS[self.features].scores_nodes:
            logging.error(f"{self.features} scores nodes, not features: set node_mask_type='object'.")
            return False
        return True

    def forward(
        self, model: nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> PyGExplanation | HeteroExplanation:
        """Called by PyG's `Explainer`: masks of nodes and edges, as its settings ask for."""
        if self.method == "random" and self.level == "input":
            return self._drawn(x, edge_index, index)
        question = PyGQuestion.read(model, x, edge_index, kwargs, self.model_config, (target, index))
        return self._typed(question) if isinstance(x, dict) else self._plain(question)

    # --- answers --------------------------------------------------------------------------------------------------------

    def _plain(self, question: PyGQuestion) -> PyGExplanation:
        found, x = PyGExplanation(), question.x
        if self.explainer_config.edge_mask_type is not None:
            blocks, layers = edge_scores(question, self._edge_options)
            whole = self._together(blocks, layers * question.edge_index.size(1), x, scaled=self.scale == "unit")
            self._fill(found, whole.view(layers, -1))
        if self.explainer_config.node_mask_type is not None:
            found.node_mask = self._node_mask(node_scores(question, self._feature_options), x)
        return found

    def _typed(self, question: PyGQuestion) -> HeteroExplanation:
        found = HeteroExplanation()
        counts = {kind: edges.size(1) for kind, edges in question.edge_index.items()}
        like = next(iter(question.x.values()))
        if self.explainer_config.edge_mask_type is not None:
            blocks, layers = typed_edge_scores(question, self._edge_options, self.node_type)
            whole = self._together(blocks, layers * sum(counts.values()), like, scaled=self.scale == "unit")
            for kind, part in zip(counts, whole.view(layers, -1).split(list(counts.values()), dim=1), strict=True):
                self._fill(found[kind], part)
        if self.explainer_config.node_mask_type is not None:
            for name, of_type in typed_node_scores(question, self._feature_options).items():
                found[name].node_mask = self._node_mask(of_type, question.x[name])
        return found

    def _fill(self, found: Any, scores: Tensor) -> None:
        """The edge masks from scores `[L, E]`."""
        found.edge_mask = scores.amax(dim=0) if self._is_unit else scores.sum(dim=0)
        if self.level == "layer":
            found.layer_edge_mask = scores.t().contiguous()

    def _node_mask(self, blocks: Iterable[ScoreBlock], x: Tensor) -> Tensor:
        """`[N, F]`, `[N, 1]` or `[1, F]` from feature scores; `cam` and `grad_cam` score nodes already."""
        width = 1 if FEATURE_METHODS[self.features].scores_nodes else x[:1].numel()
        shape = self._shape(len(x), width)
        if shape[1] < width:
            blocks = (block.moved(block.place // width) for block in blocks)
        elif shape[0] < len(x):
            blocks = (block.moved(block.place % width) for block in blocks)
        return self._together(blocks, shape[0] * shape[1], x, scaled=True).view(shape)

    def _shape(self, nodes: int, width: int) -> tuple[int, int]:
        """Of a node mask."""
        kind = self.explainer_config.node_mask_type
        return 1 if kind == MaskType.common_attributes else nodes, 1 if kind == MaskType.object else width

    def _together(self, blocks: Iterable[ScoreBlock], size: int, like: Tensor, *, scaled: bool) -> Tensor:
        """`[size]`: what all targets say, on the device of the graph; `scaled`: [0, 1] is made, where it is wanted."""
        if not self._is_unit:
            return summed(iter(blocks), size, like).to(like.device)
        return largest((unit(block) if scaled else block for block in blocks), size, like).to(like.device)

    def _drawn(self, x: Any, edge_index: Any, index: Any) -> PyGExplanation | HeteroExplanation:
        """Random masks, which ask nothing of the model: those of the first index, numbers in [0, 1)."""
        config, seed = self.explainer_config, self.settings["seed"]
        first = 0 if index is None else int(torch.as_tensor(index).reshape(-1)[0])
        found: Any = HeteroExplanation() if isinstance(x, dict) else PyGExplanation()
        nodes, edges = (part if isinstance(part, dict) else {None: part} for part in (x, edge_index))
        if config.edge_mask_type is not None:
            counts = [ends.size(1) for ends in edges.values()]
            drawn = random_scores(seed, first, None, sum(counts))
            for (kind, ends), mask in zip(edges.items(), drawn.split(counts), strict=True):
                (found if kind is None else found[kind]).edge_mask = mask.to(ends.device)
        for number, (name, one) in enumerate(nodes.items()) if config.node_mask_type is not None else ():
            shape = self._shape(len(one), one[:1].numel())
            place = torch.arange(shape[0] * shape[1])
            mask = uniform(seed, torch.tensor(first), torch.tensor(-1 - number), place).view(shape)
            (found if name is None else found[name]).node_mask = mask.to(one)
        return found

    @property
    def _edge_options(self) -> dict[str, Any]:
        return {"method": self.method, "level": self.level, **self.settings}

    @property
    def _feature_options(self) -> dict[str, Any]:
        known = FEATURE_METHODS[self.features].settings
        return {"method": self.features, **{name: value for name, value in self.settings.items() if name in known}}
