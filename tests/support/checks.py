"""What several test files do: explain a case of the zoo, and compare scores with a slow twin."""

import warnings
from contextlib import contextmanager, nullcontext
from functools import cache

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgewise as ew
import oracles
import zoo

METHODS = [
    *("gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients", "random", "full"),
    "eig_search",
]
LEVELS = ["input", "layer"]


def alternating(names, two=LEVELS):
    """(name, one of the two) as parameters of a test, in turn; the same names with the other one are marked slow."""
    turns = [(name, two[place % 2], two[1 - place % 2]) for place, name in enumerate(names)]
    return [
        *((name, quick) for name, quick, _ in turns),
        *(pytest.param(name, slow, marks=pytest.mark.slow) for name, _, slow in turns),
    ]


def one_in(step, values):
    """The values as parameters of a test; all but the first of every `step` are marked slow."""
    slow = pytest.mark.slow
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[slow] * bool(place % step)) for place, row in enumerate(rows)]


def on_pairs(pairs):
    """A test of these (case, graph) pairs; what is redundant among them is marked slow."""
    slow = pytest.mark.slow
    params = [pytest.param(*pair, marks=slow) if pair in zoo.LEFT_TO_SLOW_RUNS else pair for pair in pairs]
    return pytest.mark.parametrize(("case_name", "graph_name"), params)


@contextmanager
def _ignore_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def quietly(case):
    """A model that is not local is explained with a warning (test_many_targets.py asks for it); no other may warn."""
    return nullcontext() if case.local else _ignore_warnings()


@cache
def node_problem(case_name: str, graph_name: str, seed: int = 0):
    """(case, model, data, the explained numbers as a slow function of ω and s)."""
    case, data = zoo.BY_NAME[case_name], zoo.GRAPHS[graph_name]()
    model = case.build(seed)
    numbers = oracles.Numbers(model, data, mode=case.mode, target=case.target, forward=case.forward)
    return case, model, data, numbers


@cache
def graph_problem(case_name: str, graph_name: str):
    case, data = zoo.GRAPH_BY_NAME[case_name], zoo.GRAPHS[graph_name]()
    model = case.build()
    return case, model, data, oracles.Numbers(model, with_batch(data), mode=case.mode)


def with_batch(data: Data) -> Data:
    """The same graph with the batch vector that a model for graphs is given."""
    data = data.clone()
    data.batch = torch.zeros(data.num_nodes, dtype=torch.long)
    return data


def explain_nodes(case, model, data, **options):
    """Every node of the graph, in one call."""
    with quietly(case):
        return ew.explain(model, data, **case.arguments, **options)


def explain_graph(case, model, data, **options):
    with quietly(case):
        return ew.explain(model, data, task="graph", **case.arguments, **options)


def scores_of(explanations) -> Tensor:
    """[T, E] or [T, L, E]."""
    return torch.stack([why.scores for why in explanations])


def own_scores_of(explanations) -> Tensor | None:
    """[T, N] or [T, L, N]; None where no explanation has them."""
    parts = [why.self_scores for why in explanations]
    if all(part is None for part in parts):
        return None
    assert all(part is not None for part in parts), "some explanations of one set have self_scores and others do not"
    return torch.stack(parts)


def assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str = "scores") -> None:
    """Equal up to the tolerance times the size of the numbers (but at least 1)."""
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    worst = float((found - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= tolerance * scale, f"{what}: off by {worst:.3g} where {tolerance * scale:.1g} is allowed"


def assert_own_scores(found: Tensor | None, expected: Tensor, own: tuple[str, ...], tolerance: float) -> None:
    """Self scores [T, L, N]: the twin's where there is an own term, NaN (or None) where none can be separated."""
    if found is None:
        assert zoo.YES not in own, (
            f"self_scores is None; calls {[l for l, o in enumerate(own) if o == zoo.YES]} have own terms"
        )
        return
    assert found.shape == expected.shape, f"self_scores: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    for layer, kind in enumerate(own):
        if kind == zoo.NO:
            assert found[:, layer].isnan().all(), (
                f"call {layer} has no own term to separate, its self scores must be NaN"
            )
        elif kind == zoo.YES or not found[:, layer].isnan().any():
            assert_close(found[:, layer], expected[:, layer], tolerance, f"self_scores of call {layer}")


def assert_shared_own_scores(found: Tensor | None, expected: Tensor, own: tuple[str, ...], tolerance: float) -> None:
    """Self scores [T, N] of the input level: one weight per node in all calls."""
    if zoo.NO in own:
        assert found is None or found.isnan().all(), "a call without own term leaves no number for the whole model"
    elif found is None or found.isnan().any():
        assert zoo.YES not in own, "self_scores are missing"
    else:
        assert_close(found, expected, tolerance, "self_scores")


def assert_same_scores(fast, slow):
    """Two sets of explanations are the same, self scores too."""
    for one, other in zip(fast, slow, strict=True):
        assert_close(one.scores, other.scores, 1e-9)
        assert (one.self_scores is None) == (other.self_scores is None)
        if one.self_scores is not None:
            known = ~other.self_scores.isnan()
            assert torch.equal(known, ~one.self_scores.isnan())
            assert_close(one.self_scores[known], other.self_scores[known], 1e-9)


def always_spread(monkeypatch, file):
    """However little the work is, a file spreads it over cores; the list gets the number of parts of each time."""
    parts, spread = [], file.spread

    def counted(function, some):
        some = list(some)
        parts.append(len(some))
        return spread(function, some)

    monkeypatch.setattr(file, "MUCH_WORK", 0)
    monkeypatch.setattr(file, "spread", counted)
    return parts
