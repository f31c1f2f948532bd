"""Is it the same again: with another seed, or with features that moved a little?"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise import random_numbers
from edgewise.api.explain import explain
from edgewise.errors import InputError, SettingError
from edgewise.graph.inputs import read_graph, read_graphs
from edgewise.metrics.agreement import similarity
from edgewise.results.explanation import Explanation
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.metric_result import Measured, MeasuredTable, with_reasons
from edgewise.results.score_rows import as_set

Agreement = Callable[[Any, Any], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Stability(MeasuredTable):
    """How alike explanations of the same targets are; prints as a table."""

    mean: Measured
    """The mean over pairs of runs."""
    worst: Measured
    """The least alike pair."""
    runs: tuple[ExplanationSet, ...]
    title: str = ""


def stability(
    runs: Sequence[Explained], *, agreement: Agreement = similarity, reference: Explained | None = None
) -> Stability:
    """Agreement between several explanations of the same targets: mean and worst over pairs, cosine unless told otherwise.

    Args:
        runs: Results of `explain` with the same index, class, level and graph.
        agreement: A function of two sets that gives a number for each target, such as `ew.similarity`.
        reference: Compare the runs with this one, instead of with each other.

    NaN where a run's scores are all zero: there is no angle then.

    >>> from edgewise import Explanation
    >>> edges = torch.tensor([[0, 1], [2, 2]])
    >>> runs = [Explanation(torch.tensor(s), edges, 3, index=2, target=0, value=1.0) for s in ([1.0, 0.0], [1.0, 1.0])]
    >>> stability(runs).mean.value
    tensor([0.7071])
    """
    sets = [as_set(run, "stability") for run in ([] if reference is None else [reference]) + list(runs)]
    if len(sets) < 2:
        raise InputError(f"stability got {len(sets)} runs; needed are at least two explanations of the same targets.")
    for other in sets[1:]:
        if not torch.equal(other.index, sets[0].index) or not torch.equal(other.target, sets[0].target):
            raise InputError(
                "The runs explain different targets, or different classes of them. Explain the same index=, with the same "
                "target=: a class that changes with the run is another question."
            )
    pairs = [(sets[0], other) for other in sets[1:]] if reference is not None else list(combinations(sets, 2))
    found = torch.stack([agreement(a, b) for a, b in pairs])
    zero = torch.stack([_is_zero(one) for one in sets]).any(dim=0)
    undefined = [(zero, "the scores of a run are all zero"), (found.isnan().any(dim=0), "two runs cannot be compared")]
    mean = with_reasons("mean agreement", found.mean(dim=0), sets[0].index, undefined)
    worst = with_reasons("worst agreement", found.amin(dim=0), sets[0].index, undefined)
    return Stability(mean, worst, tuple(sets), f"stability over {len(sets)} runs, {len(pairs)} pairs")


def _is_zero(found: ExplanationSet) -> Tensor:
    if found.edges is None:  # random
        return torch.zeros(len(found), dtype=torch.bool)
    size = torch.zeros(len(found), dtype=torch.double)
    return size.index_add_(0, found.edges.rows(), found.edges.score.double().abs()) == 0


def stability_under_seeds(
    model: nn.Module, data: Any, index: Any = None, *, seeds: Iterable[int] = range(5), **options: Any
) -> Stability:
    """Explain with several seeds and compare the results with each other; `options` are those of `explain`.

    1 for methods that draw no random numbers.

    >>> from torch_geometric.nn import GCN
    >>> data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> found = stability_under_seeds(GCN(2, 4, 1, 2), data, [2], seeds=[0, 1], method="random")
    >>> len(found.runs), bool(found.mean.value < 1)
    (2, True)
    """
    if "seed" in options:
        raise SettingError("seed was given; stability_under_seeds tries several: seeds=[0, 1, 2].")
    return stability([_several(explain(model, data, index, seed=seed, **options)) for seed in seeds])


def _several(found: Explanation | ExplanationSet) -> ExplanationSet:
    return as_set(found, "stability")


def stability_under_noise(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    noise: float = 0.01,
    draws: int = 5,
    seed: int = 0,
    **options: Any,
) -> Stability:
    """Explain again with features that moved a little, the class held fixed, and compare with the explanation at rest.

    Args:
        model: As in `explain`.
        data: As in `explain`; yours is not changed.
        index: As in `explain`.
        noise: The size of the noise, as a share of the features' root mean square. Normal, on every entry of `x`.
        draws: How many noisy copies.
        seed: Of the noise and of the method.
        **options: Those of `explain`.

    The class explained at rest is explained in every draw, also where a noisy copy is predicted otherwise.

    >>> from torch_geometric.nn import GCN
    >>> data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> found = stability_under_noise(GCN(2, 4, 1, 2), data, [2], noise=1e-6, draws=2)
    >>> bool(found.worst.value > 0.999)
    True
    """
    if not isinstance(noise, (int, float)) or isinstance(noise, bool) or noise <= 0:
        raise SettingError(f"noise is {noise!r}; needed is a share above 0, such as 0.01.")
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 1:
        raise SettingError(f"draws is {draws!r}; needed is a whole number of at least 1, such as 5.")
    rest = _several(explain(model, data, index, seed=seed, **options))
    again = {**options, "seed": seed, "target": rest.target}
    moved = [_noisy(data, noise, seed, draw, graphs=options.get("task") == "graph") for draw in range(draws)]
    found = [_several(explain(model, part, rest.index, **again)) for part in moved]
    return stability(found, reference=rest)


def _noisy(data: Any, noise: float, seed: int, draw: int, *, graphs: bool) -> Any:
    if graphs:
        return [_moved(graph, noise, seed, torch.tensor([draw, i])) for i, graph in enumerate(read_graphs(data))]
    return _moved(read_graph(data), noise, seed, torch.tensor([draw, 0]))


def _moved(graph: Data, noise: float, seed: int, which: Tensor) -> Data:
    x = graph.x if graph.x.is_floating_point() else graph.x.to(torch.get_default_dtype())
    place = torch.arange(x.numel(), device=x.device).view(x.shape)
    drawn = random_numbers.normal(seed, *which.to(x.device), place).to(x.dtype)
    graph = copy.copy(graph)
    graph.x = x + noise * x.square().mean().sqrt() * drawn
    return graph
