"""Links without themselves, many at once: every pair against the slow twin on the graph without its own link, in float64."""

from dataclasses import replace

import pytest
import torch

import edgewise as ew
from checks import assert_close
from edgewise.graph.computation_graph import InEdges
from edgewise.graph.pair_copies import LinkColumns
from edgewise.graph.pair_patches import patched_graph
from link_models import CONVS, MODELS, PAIRS, WIDTH, DistMult, Dot, Jumping, SlowPair, link_graph, make_model
from zoo import randomise

TOLERANCE = 1e-9


class Deep(Dot):
    """Three layers, and features that are changed row by row first."""

    def __init__(self, conv):
        super().__init__(conv)
        self.third = CONVS[conv](WIDTH, WIDTH)

    def encode(self, x, edge_index):
        return self.third(super().encode(x.tanh(), edge_index).relu(), edge_index)


class Shifted(Dot):
    """Local layers behind features that are not: a patched graph has another mean."""

    def encode(self, x, edge_index):
        return super().encode(x - x.mean(dim=0, keepdim=True), edge_index)


def assert_right_without_links(model, data, pairs, found):
    """Scores and values of pairs against the slow twin on the graph without each link."""
    for why, pair in zip(found, pairs, strict=True):
        slow = SlowPair(model, data, pair, without_itself=True)
        weight, own = (part.requires_grad_() for part in slow.ones())
        value = slow(weight, own)
        expected = torch.autograd.grad(value, [weight, own], allow_unused=True)
        assert why.value == pytest.approx(float(value.detach()), abs=TOLERANCE)
        for scores_, gradient in zip((why.scores, why.self_scores), expected, strict=True):
            if scores_ is not None:
                assert_close(scores_, torch.zeros_like(scores_) if gradient is None else gradient, TOLERANCE)


@pytest.mark.parametrize(
    ("model", "way"),
    [
        *((Dot(conv), "lowered") for conv in CONVS),
        (Deep("gcn"), "lowered"),
        (Deep("sage"), "lowered"),
        (MODELS["gin, mlp"](), "lowered"),
        (MODELS["gcn, distmult"](), "lowered"),
        (Jumping("gcn"), "copies"),
        (Shifted("gcn"), "whole graph"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
@pytest.mark.filterwarnings("ignore::edgewise.LocalityWarning")
def test_many_links_without_themselves_are_right_one_by_one(model, way):
    model, data = randomise(model), link_graph()
    pairs = [*data.edge_index.t().tolist(), *data.edge_index.flip(0).t().tolist(), (2, 6), (8, 9)]
    assert len(pairs) > 32
    output = None if isinstance(model, DistMult) else "logit"
    found = ew.explain(model, data, pairs, task="link", without_itself=True, level="layer", output=output)
    assert found.settings["way"] == way
    if type(model) is Jumping:
        found = [replace(why, self_scores=None) for why in found]  # its skip belongs to no layer
    assert_right_without_links(model, data, pairs, found)


def test_links_without_themselves_are_lowered_on_a_patched_graph():
    model, data = make_model("gcn, dot"), link_graph()
    ask = ew.Question(model, data, PAIRS, task="link", without_itself=True)
    assert ask._posed.patches is not None
    other = ask.of([(1, 5), (5, 1)])
    assert_right_without_links(model, data, other._posed.index.tolist(), other.explain(level="layer"))
    assert ask.of([(8, 9)])._posed.patches is None  # nothing is taken out


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_a_patched_graph_gives_every_pair_the_graph_without_its_link(hops):
    model, data = randomise(Deep("gcn")), link_graph(5)
    pairs = data.edge_index.t().contiguous()
    links = LinkColumns.of(pairs, data.edge_index, data.num_nodes)
    patched = patched_graph(data, InEdges.of(data.edge_index, data.num_nodes), pairs, links, hops)
    layers = [model.first, model.second, model.third][: hops + 1]

    def encoded(x, edge_index):
        for layer in layers:
            x = layer(x, edge_index).tanh()
        return x

    with torch.no_grad():
        found = encoded(patched.data.x, patched.data.edge_index)[patched.pairs]  # [T, 2, WIDTH]
        for pair, rows, columns in zip(pairs, found, links.column.split(links.counts.tolist()), strict=True):
            kept = torch.ones(data.edge_index.size(1), dtype=torch.bool)
            kept[columns] = False
            assert_close(rows, encoded(data.x, data.edge_index[:, kept])[pair], TOLERANCE)
