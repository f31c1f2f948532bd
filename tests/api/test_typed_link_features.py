"""Features of links of typed graphs against autograd and re-runs of the user's own model on the user's own graph."""

import copy
import warnings

import pytest
import torch

import edgewise as ew
from checks import one_in
from typed_links import MODELS, SlowTypedPair, pairs_of, typed_linker
from typed_zoo import RATES, WIDTHS, ones

NAMES = one_in(2, MODELS)


def ask(model, data, index, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        return ew.features(model, data, index, task="link", **options)


def slow(model, data, pair, tables, *, without_itself):
    """The score of one pair with other features."""
    other = copy.copy(data)
    for name, x in tables.items():
        other[name].x = x
    return SlowTypedPair(model, other, pair, without_itself=without_itself)(ones())


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_features_of_typed_links_are_those_of_autograd_and_of_runs(name, without_itself):
    model, data = typed_linker(name, 1)
    pairs, own = pairs_of(data)[:4], {"without_itself": without_itself}
    index = {RATES: torch.tensor(pairs).t()}
    slopes, losses = (ask(model, data, index, method=method, **own) for method in ("gradient", "occlusion"))
    for pair, slope, loss in zip(pairs, slopes, losses, strict=True):
        assert slope.index == loss.index == (RATES, pair)
        leaves = {kind: data[kind].x.clone().requires_grad_() for kind in WIDTHS}
        value = slow(model, data, pair, leaves, **own)
        assert slope.value == pytest.approx(float(value.detach()), abs=1e-9)
        true = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        for (kind, leaf), gradient in zip(leaves.items(), true, strict=True):
            expected = torch.zeros_like(leaf) if gradient is None else gradient
            torch.testing.assert_close(slope.scores[kind], expected, rtol=0, atol=1e-9)
        for kind in WIDTHS:
            for node in (0, 1, pair[0] if kind == "user" else 2):
                tables = {other: data[other].x.clone() for other in WIDTHS}
                tables[kind][node, 1] = 0.0
                with torch.no_grad():
                    lost = float(value.detach()) - float(slow(model, data, pair, tables, **own))
                assert float(loss.scores[kind][node, 1]) == pytest.approx(lost, abs=1e-9)
    assert max(float(part.abs().max()) for part in slopes[0].scores.values()) > 1e-4


def test_results_name_both_ends_and_come_back_from_a_file(tmp_path):
    model, data = typed_linker("sage, dot", 2)
    data["user"].feature_names = ["age", "debt", "rank", "score"]
    found = ask(model, data, (RATES, [(3, 2), (0, 1)]))
    why = found.of((RATES, (0, 1)))
    assert why.index == (RATES, (0, 1))
    with pytest.raises(ew.InputError, match="not among"):
        found.of((RATES, (1, 0)))
    row = why.to_rows()[0]
    ends = {"index_type": "user", "index": 0, "index_to_type": "movie", "index_to": 1}
    assert {key: row[key] for key in ends} == ends
    for ending in ("npz", "parquet"):
        found.save(tmp_path / f"why.{ending}")
        again = ew.load(tmp_path / f"why.{ending}")
        assert again.to_rows() == found.to_rows()
        assert again[1].index == why.index
