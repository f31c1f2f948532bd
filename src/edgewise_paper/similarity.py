"""Input-level similarity to Positive Gradients and layerwise similarity to occlusion, for any trained network."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise.datasets.infection import infection_model
from edgewise_paper.code_habits import full_as_coded, magnitudes, neighbourhood, wide_start, with_stray_edge
from edgewise_paper.context import Context
from edgewise_paper.task import Row, Task
from edgewise_paper.training.recipe import Recipe

# --- Agreement of explanations, as the paper averages it ---------------------------------------------------------------


@dataclass(frozen=True)
class Average:
    """Of the targets for which a number is defined."""

    mean: float
    deviation: float
    count: int

    @staticmethod
    def of(values: Tensor) -> "Average":
        """NaN is left out.

        >>> Average.of(torch.tensor([1.0, torch.nan, 3.0]))
        Average(mean=2.0, deviation=1.0, count=2)
        """
        known = values[~values.isnan()].double()
        if not len(known):
            return Average(math.nan, math.nan, 0)
        return Average(float(known.mean()), float(known.std(unbiased=False)), len(known))


def cosines(found: ew.ExplanationSet, reference: ew.ExplanationSet, *, per_layer: bool = False) -> Tensor:
    """`[targets]` or `[targets, layers]`: cosine to a reference.

    NaN where the reference is zero: such targets are left out, as in the paper. Where the reference says something and the
    explanation is zero, they agree in nothing: 0.
    """
    cosine = ew.similarity(found, reference, per_layer)
    nothing = ew.similarity(reference, reference, per_layer).isnan()
    return torch.where(nothing, torch.nan, cosine.nan_to_num(0.0))


# --- The whole ---------------------------------------------------------------------------------------------------------


EXPLAINER = {"epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0}
"""Of GNNExplainer: PyG's defaults. The text says lr 0.003, the authors' code does not set it."""
CODE, ONE_VECTOR, COMPUTATION_GRAPH = "code", "one vector", "computation graph"
"""Variants: as the authors' code has it; all layers as one vector; full masks of computation graphs."""
WIDE, SPREAD = "code, wide start", 0.65
"""The code's layerwise GNNExplainer, started with logits of this standard deviation instead of PyG's √(2/N). The one number
that is fitted here: to the table of the linear network on Cora. See docs/reproduce.md."""
CODED_ENTRIES = 400_000
"""Masks that GNNExplainer trains as the code does, at most: beyond it, a part of the targets."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained network and what is explained of it."""

    model: nn.Module
    data: Any
    about: Mapping[str, Any]
    """The settings that made the network: part of the name under which explanations are kept."""
    index: Tensor | None = None
    task: str = "node"
    as_coded: Tensor | None = None
    """Which targets the authors' code averages over; None: all."""
    explainer: Mapping[str, Any] = field(default_factory=lambda: dict(EXPLAINER))

    def explain(self, context: Context, method: str, level: str, times: int = 1) -> ew.ExplanationSet:
        """All targets at once; GNNExplainer, which takes long, is kept. `times`: so many times its number of epochs."""
        if method != "gnn_explainer":
            return self._explain(context, method, level, {})
        settings = {**self.explainer, "epochs": self.explainer["epochs"] * times}
        of = {**self.about, "method": method, "level": level, **settings}
        return context.explained(of, partial(self._explain, context, method, level, settings))

    def _explain(self, context: Context, method: str, level: str, settings: Mapping[str, Any]) -> ew.ExplanationSet:
        return context.explain(self.model, self.data, self.index, method=method, level=level, task=self.task, **settings)


def input_rows(task: Task, context: Context, subject: TrainedModel) -> Iterator[Row]:
    """Cosines to Positive Gradients."""
    reference = subject.explain(context, "positive_gradient", "input")
    for method in ("gnn_explainer", "gradient", "occlusion", "random", "full"):
        start = time.perf_counter()
        found = subject.explain(context, method, "input")
        where = {"level": "input", "method": method, "reference": "positive_gradient"}
        seconds = time.perf_counter() - start
        if method == "full" and subject.task == "node":
            yield _row(task, cosines(found, reference), seconds, variant=COMPUTATION_GRAPH, **where)
            found = neighbourhood(found, [found.num_layers])
        cosine = cosines(found, reference)
        yield _row(task, cosine, seconds, **where)
        if subject.as_coded is not None:
            unsigned = method in task.settings.get("unsigned", ())
            coded = cosines(magnitudes(found), reference) if unsigned else cosine
            yield _row(task, coded[subject.as_coded], seconds, variant=CODE, **where)


def layer_rows(task: Task, context: Context, subject: TrainedModel) -> Iterator[Row]:
    """Cosines to layerwise occlusion: the mean over targets and layers, and as the authors' code has it.

    Of graphs also to layerwise gradients: published curves of graph data say that the two are the same.
    """
    reference = subject.explain(context, "occlusion", "layer")
    for method in ("gnn_explainer", "gradient", "random", "full"):
        start = time.perf_counter()
        found = subject.explain(context, method, "layer")
        seconds = time.perf_counter() - start
        where = {"level": "layer", "method": method, "reference": "occlusion"}
        yield _row(task, cosines(found, reference, per_layer=True), seconds, **where)
        if method == "gnn_explainer":
            yield _row(task, cosines(found, reference), seconds, variant=ONE_VECTOR, **where)
            if not task.settings.get("longer", True):
                continue
        chosen = slice(None) if subject.as_coded is None else subject.as_coded.nonzero().view(-1)
        coded = _as_coded(found, context, subject)[chosen]
        yield _row(task, cosines(coded, reference[chosen]), seconds, variant=CODE, **where)
        for other in task.settings.get("references", ()):
            if other != method:
                cosine = cosines(coded, subject.explain(context, other, "layer")[chosen])
                yield _row(task, cosine, seconds, variant=CODE, **where | {"reference": other})


def _as_coded(found: ew.ExplanationSet, context: Context, subject: TrainedModel) -> ew.ExplanationSet:
    """GNNExplainer trained so many times longer as there are layers; full masks of neighbourhoods in reverse order."""
    if found.method == "gnn_explainer":
        return subject.explain(context, "gnn_explainer", "layer", times=found.num_layers)
    return full_as_coded(found) if found.method == "full" and subject.task == "node" else found


def coded_rows(task: Task, context: Context, subject: TrainedModel) -> Iterator[Row]:
    """Layerwise GNNExplainer of nodes as the code trains it, for a random part of the targets where they are large.

    All masks jointly, so many times longer as there are layers. Of one layer the code also trains edge 0, wherever it is: the
    published numbers of one layer show it, those of more do not. Started as PyG does, and with a wide start.
    """
    subject = _some_targets(context, subject)
    reference = subject.explain(context, "occlusion", "layer")
    layers, edges = reference.num_layers, subject.data.num_edges
    longer = {**subject.explainer, "epochs": subject.explainer["epochs"] * layers}
    starts = {CODE: None} | ({WIDE: wide_start(layers, edges, task.settings["spread"])} if layers > 1 else {})
    for variant, init in starts.items():
        start = time.perf_counter()
        found = context.explain(
            subject.model, subject.data, subject.index, method="gnn_explainer", level="layer", init=init, **longer
        )
        found = with_stray_edge(found, subject.explainer) if layers == 1 else found
        where = {"level": "layer", "method": "gnn_explainer", "reference": "occlusion", "variant": variant}
        yield _row(task, cosines(found, reference), time.perf_counter() - start, **where)


def _some_targets(context: Context, subject: TrainedModel) -> TrainedModel:
    """As many as `CODED_ENTRIES` allow, ten at least."""
    assert subject.index is not None
    full = subject.explain(context, "full", "layer")
    entries = 0 if full.edges is None else len(full.edges)
    if entries <= CODED_ENTRIES:
        return subject
    number = max(len(full) * CODED_ENTRIES // entries, 10)
    chosen = torch.randperm(len(full), generator=torch.Generator().manual_seed(0))[:number].sort().values
    return replace(subject, index=subject.index[chosen])


def _row(task: Task, cosine: Tensor, seconds: float, **where: Any) -> Row:
    average = Average.of(torch.as_tensor(cosine))
    return task.row("cosine", average.mean, deviation=average.deviation, count=average.count, seconds=seconds, **where)


# --- What some experiments explain: the Infection network of a seed, or a trained network on a real graph --------------


def subject_of(task: Task, context: Context) -> tuple[nn.Module, Any, Tensor]:
    """The model, the graph, and the nodes to explain: those with an edge (each, or every n-th), or the test nodes."""
    if task.settings["dataset"] == "Infection":
        trained = infection_model(task.settings["seed"])
        nodes = trained.graphs.test.edge_index.unique()
        return trained.model, trained.graphs.test, nodes[:: task.settings.get("every", 1)]
    recipe = Recipe.read(task.settings)
    found = context.node_set(recipe.dataset)
    return context.trained(recipe)[0], found.data, found.test
