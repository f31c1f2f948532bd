"""What several tests of walks do: ask for walks, and hold them against the oracle's."""

import numpy as np
import torch

import edgewise as ew
import zoo
from walk_oracles import is_clear, key_of, ordered

SIGNS = ("positive", "negative", "magnitude")
SEARCHES = ("exact", "exhaustive", "dag", "amp_ave", "amp_ave_additive", "emp_neu")


def crowded(nodes=8, edges=22, seed=3):
    """A graph on which a few layers make many walks; it has loops and parallel edges."""
    return zoo.graph(zoo.random_edges(nodes, edges, seed=seed), nodes, seed=seed)


def all_of(model, data, **options):
    """[T]: the sum over every walk, and the explained numbers."""
    found = ew.walks(model, data, k=100_000, sign="magnitude", search="exhaustive", **options)
    pairs = [[sum(walk.score for walk in one), one.value] for one in found]
    return torch.tensor(pairs, dtype=torch.float64).unbind(1)


def assert_alive(scores):
    assert max(map(len, scores)) > 1, "a model whose neurons are all dead shows nothing"
    return scores


def assert_walks(model, data, scores, ks=(1, 5, 50), **options):
    """Every target, both ways to the true top k, all signs; the slow way in full only where all k are asked for."""
    asked = [("exact", sign, k) for sign in SIGNS for k in ks]
    asked += [("exhaustive", sign, k) for sign in (SIGNS if len(ks) == 3 else SIGNS[-1:]) for k in ks]
    for search, sign, k in asked:
        found = ew.walks(model, data, k=k, search=search, sign=sign, **options)
        assert len(found) == len(scores)
        for one, expected in zip(found, scores, strict=True):
            assert_top(one, expected, k, sign)


def assert_top(found, scores, k, sign):
    """A proven list of walks is the oracle's, in its order, and its bound holds without saying less than it knows."""
    expected = ordered(scores, sign)[:k]
    scale = max(1.0, max(map(abs, scores.values()), default=0.0))
    assert found.exact
    assert len(found) == len(expected)
    assert np.allclose(
        [w.score for w in found], [scores.get(w.nodes, np.nan) for w in found], rtol=0, atol=1e-9 * scale
    )
    if is_clear(scores, sign):
        assert [walk.nodes for walk in found] == [nodes for nodes, _ in expected]
    keys, best = ([key_of(s, sign) for s in some] for some in ([w.score for w in found], [s for _, s in expected]))
    assert np.allclose(sorted(keys), sorted(best), rtol=0, atol=2e-9 * scale)
    assert_bound(found, scores, sign)
    room = min(keys) if len(found) == k else 0.0
    assert found.upper_bound <= room + 1e-8 * scale, "a proven list leaves nothing better out"


def assert_bound(found, scores, sign):
    """No walk that is not listed comes before the bound."""
    listed = {walk.nodes for walk in found}
    assert len(listed) == len(found), "a walk is listed twice"
    rest = max((key_of(s, sign) for nodes, s in scores.items() if nodes not in listed), default=0.0)
    scale = max(1.0, max(map(abs, scores.values()), default=0.0))
    assert found.upper_bound >= rest - 1e-12 * scale, f"another walk has {rest}"
