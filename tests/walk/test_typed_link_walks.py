"""Walks of links of typed graphs: they lead to either end of a pair, and together they are the gradients."""

import pytest
import torch
from torch_geometric.nn import SAGEConv

import edgewise as ew
from typed_links import Dot, Perceptron, SlowTypedPair, pairs_of, typed_linker
from typed_zoo import HIDDEN, KINDS, RATES, Stacked, typed_graph

LINK = {"task": "link", "output": "logit"}


def linker(name):
    """Layers without biases: what a bias brings comes along no walk from the features."""
    torch.manual_seed(3)
    aggr = "sum" if name == "sum, mlp" else "mean"
    inner = Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN, aggr=aggr, bias=False))
    model = (Perceptron if name == "sum, mlp" else Dot)(inner).double().eval()
    with torch.no_grad():
        for name, parameter in inner.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return model, typed_graph(3)


def ends_of(data, kind):
    return [((kind[0], u), (kind[2], v)) for u, v in data[kind].edge_index.t().tolist()]


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", ["mean, dot", "sum, mlp"])
def test_all_walks_over_a_step_add_up_to_the_gradients_of_its_columns(name, without_itself):
    """The gradients are those of the user's own model with hooks, pair by pair."""
    model, data = linker(name)
    for pair in pairs_of(data)[:4]:
        options = {**LINK, "without_itself": without_itself}
        walks = ew.walks(model, data, (RATES, pair), k=10**5, sign="magnitude", search="exhaustive", **options)
        _, gradient = SlowTypedPair(model, data, pair, without_itself=without_itself).gradient()
        assert walks.exact
        assert {walk.nodes[-1] for walk in walks} <= {("user", pair[0]), ("movie", pair[1])}
        for layer in range(2):
            by_step: dict = {}
            for kind in KINDS:
                for ends, score in zip(ends_of(data, kind), gradient[kind][layer].tolist(), strict=True):
                    by_step[ends] = by_step.get(ends, 0.0) + score
            for ends, score in by_step.items():
                if ends[0] != ends[1]:  # a loop is one step with staying
                    along = sum(walk.score for walk in walks if walk.nodes[layer : layer + 2] == ends)
                    assert along == pytest.approx(score, abs=1e-9)


def test_the_best_walks_of_many_typed_links_are_those_of_each_alone():
    model, data = typed_linker("sage, dot")
    pairs = pairs_of(data)
    together = ew.walks(model, data, {RATES: torch.tensor(pairs).t()}, k=3, **LINK)
    for pair, found in zip(pairs, together, strict=True):
        alone = ew.walks(model, data, (RATES, pair), k=3, **LINK)
        everything = ew.walks(model, data, (RATES, pair), k=3, search="exhaustive", **LINK)
        for other in (alone, everything):
            assert [walk.nodes for walk in found] == [walk.nodes for walk in other]
            assert [walk.score for walk in found] == pytest.approx([walk.score for walk in other], abs=1e-9)


@pytest.mark.parametrize("name", ["sage max, mlp", "hgt, mlp"])
def test_walks_through_layers_that_are_not_known_are_refused_with_the_layer(name):
    model, data = typed_linker(name)
    with pytest.raises(ew.ModelError, match=r"walks of this model cannot be followed: .*(SAGEConv|inner)"):
        ew.walks(model, data, (RATES, pairs_of(data)[0]), **LINK)
