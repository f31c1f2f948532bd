"""How similar explanations are, as the paper measures it: cosines, averaged over targets.

`input_rows` (to Positive Gradients) and `layer_rows` (to layerwise occlusion) are the tasks of every `TrainedModel`.
"""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise_paper.code_habits import full_as_coded, magnitudes, neighbourhood
from edgewise_paper.context import Context
from edgewise_paper.task import Row, Task
from edgewise_paper.training.networks import Recipe

# --- Cosines and their mean --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Average:
    """Mean, standard deviation and number of the targets for which a number is defined."""

    mean: float
    deviation: float
    count: int

    @staticmethod
    def of(values: Tensor) -> "Average":
        """Average a tensor of any shape; NaN is left out.

        >>> Average.of(torch.tensor([1.0, torch.nan, 3.0]))
        Average(mean=2.0, deviation=1.0, count=2)
        """
        known = values[~values.isnan()].double()
        if not len(known):
            return Average(math.nan, math.nan, 0)
        return Average(float(known.mean()), float(known.std(unbiased=False)), len(known))


def cosines(found: ew.ExplanationSet, reference: ew.ExplanationSet, *, per_layer: bool = False) -> Tensor:
    """Cosine of each explanation to its reference, `[T]` or `[T, L]`.

    NaN where the reference is zero: such targets are left out, as in the paper. 0 where only the explanation is zero.
    """
    cosine = ew.similarity(found, reference, per_layer)
    nothing = ew.similarity(reference, reference, per_layer).isnan()
    return torch.where(nothing, torch.nan, cosine.nan_to_num(0.0))


# --- A trained network -------------------------------------------------------------------------------------------------

EXPLAINER = {"epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0}
"""Settings of GNNExplainer: PyG's defaults. The text says lr 0.003, the authors' code does not set it."""
CODE, ONE_VECTOR, COMPUTATION_GRAPH = "code", "one vector", "computation graph"
"""Variants: as the authors' code has it; all layers as one vector; full masks of computation graphs."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network and what is explained of it."""

    model: nn.Module
    data: Any
    """A graph, or a list of graphs."""
    about: Mapping[str, Any]
    """The settings that made the network: part of the name under which explanations are kept."""
    index: Tensor | None = None
    """Targets; None: all."""
    task: str = "node"
    as_coded: Tensor | None = None
    """`[T]` of bool: which targets the authors' code averages over; None: all."""
    explainer: Mapping[str, Any] = field(default_factory=lambda: dict(EXPLAINER))

    def explain(self, context: Context, method: str, level: str) -> ew.ExplanationSet:
        """Explain all targets; GNNExplainer, which takes long, is kept in the store."""
        if method != "gnn_explainer":
            return self._explain(context, method, level, {})
        key = {**self.about, "method": method, "level": level, **self.explainer}
        return context.explained(key, partial(self._explain, context, method, level, self.explainer))

    def _explain(self, context: Context, method: str, level: str, settings: Mapping[str, Any]) -> ew.ExplanationSet:
        return context.explain(
            self.model, self.data, self.index, method=method, level=level, task=self.task, **settings
        )


def input_rows(task: Task, context: Context, network: TrainedModel) -> Iterator[Row]:
    """Cosines to Positive Gradients, a row for each method.

    Variants: full masks of computation graphs (nodes), and as the authors' code has it (graphs).
    """
    reference = network.explain(context, "positive_gradient", "input")
    for method in ("gnn_explainer", "gradient", "occlusion", "random", "full"):
        start = time.perf_counter()
        found = network.explain(context, method, "input")
        where = {"level": "input", "method": method, "reference": "positive_gradient"}
        seconds = time.perf_counter() - start
        if method == "full" and network.task == "node":
            yield _row(task, cosines(found, reference), seconds, variant=COMPUTATION_GRAPH, **where)
            found = neighbourhood(found, [found.num_layers])
        cosine = cosines(found, reference)
        yield _row(task, cosine, seconds, **where)
        if network.as_coded is not None:
            unsigned = method in task.settings.get("unsigned", ())
            coded = cosines(magnitudes(found), reference) if unsigned else cosine
            yield _row(task, coded[network.as_coded], seconds, variant=CODE, **where)


def layer_rows(task: Task, context: Context, network: TrainedModel) -> Iterator[Row]:
    """Cosines to layerwise occlusion: the mean over targets and layers, and as the authors' code has it.

    The task may name further `references`: published curves of graph data fit cosines to layerwise gradients.
    """
    reference = network.explain(context, "occlusion", "layer")
    for method in ("gnn_explainer", "gradient", "random", "full"):
        start = time.perf_counter()
        found = network.explain(context, method, "layer")
        seconds = time.perf_counter() - start
        where = {"level": "layer", "method": method, "reference": "occlusion"}
        yield _row(task, cosines(found, reference, per_layer=True), seconds, **where)
        if method == "gnn_explainer":
            yield _row(task, cosines(found, reference), seconds, variant=ONE_VECTOR, **where)
            continue  # as coded it is another algorithm: `authors_code/layer_explainer.py`
        chosen = slice(None) if network.as_coded is None else network.as_coded.nonzero().view(-1)
        coded = (full_as_coded(found) if method == "full" and network.task == "node" else found)[chosen]
        yield _row(task, cosines(coded, reference[chosen]), seconds, variant=CODE, **where)
        for other in task.settings.get("references", ()):
            if other != method:
                cosine = cosines(coded, network.explain(context, other, "layer")[chosen])
                yield _row(task, cosine, seconds, variant=CODE, **where | {"reference": other})


def _row(task: Task, cosine: Tensor, seconds: float, **where: Any) -> Row:
    """The row of a mean cosine."""
    average = Average.of(torch.as_tensor(cosine))
    return task.row("cosine", average.mean, deviation=average.deviation, count=average.count, seconds=seconds, **where)


# --- What `regularisation` and `beyond` explain ------------------------------------------------------------------------


def model_graph_and_nodes(task: Task, context: Context) -> tuple[nn.Module, Any, Tensor]:
    """What a task explains: the model, the graph, and the nodes.

    Infection's network of the task's seed with all nodes that have an edge (with the setting `every`, each n-th of them), or
    a trained network on a real graph with its test nodes.
    """
    if task.settings["dataset"] == "Infection":
        trained = context.infection(task.settings["seed"])
        nodes = trained.graphs.test.edge_index.unique()
        return trained.model, trained.graphs.test, nodes[:: task.settings.get("every", 1)]
    recipe = Recipe.read(task.settings)
    found = context.node_set(recipe.dataset)
    return context.trained(recipe)[0], found.data, found.test
