"""Is the explanation the same again: with another seed, or with features that moved a little?

The file is not called `stability.py`, which would shadow the function `ew.metrics.stability`.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise import random_numbers
from edgewise.arguments import real_number, shown, whole_number
from edgewise.arrays import asked_index
from edgewise.contract import checked
from edgewise.errors import EdgewiseError, InputError, SettingError
from edgewise.graph.inputs import read_graph, read_graphs
from edgewise.metrics.cosine import similarity
from edgewise.results.explanation_set import Explained, ExplanationSet
from edgewise.results.metric_result import Measured, MeasuredTable, with_reasons
from edgewise.results.score_rows import as_set

AgreementMeasure: TypeAlias = Callable[[Any, Any], Tensor]
"""Two sets of explanations ↦ `[targets]`: how alike they are."""


@dataclass(frozen=True, eq=False, repr=False)
class Stability(MeasuredTable):
    """How alike explanations of the same targets are; prints as a table."""

    mean: Measured
    """The mean over pairs of runs."""
    worst: Measured
    """The least alike pair."""
    runs: tuple[ExplanationSet, ...]
    """The explanations that were compared."""
    title: str = ""


@checked
def stability(
    runs: Sequence[Explained], *, agreement: AgreementMeasure = similarity, reference: Explained | None = None
) -> Stability:
    """Agreement between several explanations of the same targets, by default their cosine: mean and worst over pairs.

    Args:
        runs: Results of `explain` with the same index, class, level and graph.
        agreement: A function of two sets that gives a number for each target, such as `ew.similarity`.
        reference: Compare the runs with this one, instead of with each other.

    The number of a target is NaN where a run's scores are all zero: there is no angle then.

    >>> from edgewise import Explanation
    >>> edges = torch.tensor([[0, 1], [2, 2]])
    >>> runs = [Explanation(torch.tensor(s), edges, 3, index=2, target=0, value=1.0) for s in ([1.0, 0.0], [1.0, 1.0])]
    >>> stability(runs).mean.value
    tensor([0.7071])
    """
    sets = [as_set(run, "stability") for run in ([] if reference is None else [reference]) + list(runs)]
    if len(sets) < 2:
        raise InputError(f"`runs` must be at least two explanations of the same targets, got {len(sets)}.")
    for other in sets[1:]:
        if not torch.equal(other.index, sets[0].index) or not torch.equal(other.target, sets[0].target):
            raise InputError(
                "The runs explain different targets or different classes. Explain the same index= with the same target=: a "
                "class that changes with the run is another question."
            )
    pairs = [(sets[0], other) for other in sets[1:]] if reference is not None else list(combinations(sets, 2))
    found = torch.stack([_agreed(agreement, a, b) for a, b in pairs])
    zero = torch.stack([_is_zero(one) for one in sets]).any(dim=0)
    undefined = [(zero, "the scores of a run are all zero"), (found.isnan().any(dim=0), "two runs cannot be compared")]
    mean = with_reasons("mean agreement", found.mean(dim=0), sets[0].index, undefined)
    worst = with_reasons("worst agreement", found.amin(dim=0), sets[0].index, undefined)
    return Stability(mean, worst, tuple(sets), f"stability over {len(sets)} runs, {len(pairs)} pairs")


def _is_zero(found: ExplanationSet) -> Tensor:
    """`[targets]`: whether all scores of a target are zero."""
    if found.edges is None:  # random
        return torch.zeros(len(found), dtype=torch.bool)
    size = torch.zeros(len(found), dtype=torch.double)
    return size.index_add_(0, found.edges.rows(), found.edges.score.double().abs()) == 0


@checked
def stability_under_seeds(
    model: nn.Module, data: Any, index: Any = None, *, seeds: Iterable[int] = range(5), **options: Any
) -> Stability:
    """Explain with several seeds and compare the results with each other; `options` are those of `explain`.

    Methods that draw no random numbers have stability 1.

    >>> from torch_geometric.nn import GCN
    >>> data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> found = stability_under_seeds(GCN(2, 4, 1, 2), data, [2], seeds=[0, 1], method="random")
    >>> len(found.runs), bool(found.mean.value < 1)
    (2, True)
    """
    if "seed" in options:
        raise SettingError("stability_under_seeds tries several seeds. Use seeds=[0, 1, 2] instead of seed=.")
    return stability([_explained(model, data, index, seed=seed, **options) for seed in seeds])


def _explained(*question: Any, **options: Any) -> ExplanationSet:
    """`explain`, also for a single target as a set. Imported here because the front doors of `api/` stand above metrics."""
    from edgewise.api.explain import explain

    return as_set(explain(*question, **options), "stability")


@checked
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
    """Explain again with features that moved a little, and compare with the explanation of the unchanged features.

    Args:
        model: As in `explain`.
        data: As in `explain`; yours is not changed.
        index: As in `explain`.
        noise: Standard deviation of the normal noise on every entry of `x`, as a share of the features' root mean square.
        draws: How many noisy copies.
        seed: Random seed of the noise and of the method.
        **options: Keyword arguments of `explain`.

    The class explained without noise is explained in every draw, even if the model predicts another class for the noisy copy.

    >>> from torch_geometric.nn import GCN
    >>> data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> found = stability_under_noise(GCN(2, 4, 1, 2), data, [2], noise=1e-6, draws=2)
    >>> bool(found.worst.value > 0.999)
    True
    """
    noise = real_number("noise", noise, above=0, such_as=0.01)
    draws = whole_number("draws", draws, at_least=1, such_as=5)
    rest = _explained(model, data, index, seed=seed, **options)
    again = {**options, "seed": seed, "target": rest.target}
    moved = [_noisy(data, noise, seed, draw, graphs=options.get("task") == "graph") for draw in range(draws)]
    found = [_explained(model, part, asked_index(rest.index), **again) for part in moved]
    return stability(found, reference=rest)


def _noisy(data: Any, noise: float, seed: int, draw: int, *, graphs: bool) -> Any:
    """A noisy copy of a graph, or of each of several."""
    if graphs:
        return [_moved(graph, noise, seed, torch.tensor([draw, i])) for i, graph in enumerate(read_graphs(data))]
    return _moved(read_graph(data), noise, seed, torch.tensor([draw, 0]))


def _moved(graph: Data, noise: float, seed: int, which: Tensor) -> Data:
    """A shallow copy with noisy features; the noise is a function of seed, `which` (draw and graph) and the entry."""
    x = graph.x if graph.x.is_floating_point() else graph.x.to(torch.get_default_dtype())
    place = torch.arange(x.numel(), device=x.device).view(x.shape)
    drawn = random_numbers.normal(seed, *which.to(x.device), place).to(x.dtype)
    graph = copy.copy(graph)
    graph.x = x + noise * x.square().mean().sqrt() * drawn
    return graph


def _agreed(agreement: Callable[[Any, Any], Tensor], one: ExplanationSet, other: ExplanationSet) -> Tensor:
    """What the user's measure says of two runs, `[targets]`."""
    try:
        found = agreement(one, other)
    except EdgewiseError:
        raise
    except Exception as error:  # a stranger's code
        raise SettingError(f"`agreement` raised {type(error).__name__}: {error}.") from error
    if not isinstance(found, Tensor) or found.shape != (len(one),):
        raise SettingError(f"`agreement` must give a number for each of the {len(one)} targets, got {shown(found)}.")
    return found
