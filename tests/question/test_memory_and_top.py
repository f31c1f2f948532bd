"""`memory=` and `batch_size=` say how many targets run at once, `top=` how many entries are kept: no score depends on them."""

import logging

import pytest
import torch

import edgewise as ew
import zoo
from checks import LEVELS, assert_close, own_scores_of, scores_of
from edgewise.algorithms import occlusion_drops
from edgewise.program import perturbation
from edgewise.question.memory import read_memory

METHODS = {"gradient": {}, "occlusion": {}, "integrated_gradients": {"steps": 2}, "gnn_explainer": {"epochs": 3}}
MODELS = ["gcn_relu", "sage_mean", "gin", "gat", "transformer_gated"]  # the last one is not lowered


@pytest.fixture(scope="module")
def ring():
    """120 nodes on a ring with chords, some loops and parallel edges."""
    edges = [(i, (i + 1) % 120) for i in range(120)] + [((i + 1) % 120, i) for i in range(120)]
    edges += [(i, (i * 7 + 3) % 120) for i in range(0, 120, 5)] + [(8, 8), (20, 20), (8, 9), (8, 9)]
    return zoo.graph(edges, 120)


def block_sizes(caplog, model, data, **options):
    """How many targets each block had, from the debug log; and the answer."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="edgewise"):
        found = ew.explain(model, data, **options)
    return [record.args[1] for record in caplog.records if record.msg.startswith("%s of %d targets")], found


# memory and batch_size ################################################################################################


@pytest.mark.parametrize("method", ["gradient", "integrated_gradients", "gnn_explainer"])
@pytest.mark.parametrize("name", ["gcn_relu", "gat", "transformer_gated"])
def test_a_smaller_budget_makes_smaller_blocks_and_the_same_scores(caplog, ring, name, method):
    model, index = zoo.BY_NAME[name].build(), [*range(0, 120, 2), *range(0, 120, 2), *range(0, 120, 2)]
    options = {"index": index, "method": method, "level": "layer", **METHODS[method]}
    large, expected = block_sizes(caplog, model, ring, memory="4GB", **options)
    small, found = block_sizes(caplog, model, ring, memory="30KB", **options)
    assert sum(large) == sum(small) == len(index)
    assert len(small) > len(large)
    assert max(small) < max(large)
    assert_close(scores_of(found), scores_of(expected), 1e-9)


def test_the_first_block_keeps_to_the_budget_too(caplog, ring):
    model = zoo.BY_NAME["gcn_relu"].build()
    sizes, _ = block_sizes(caplog, model, ring, memory="10KB", level="layer")
    assert sizes[0] <= 4 * max(sizes[1:], default=1)


def test_occlusion_keeps_to_the_budget_too(monkeypatch, ring):
    model, blocks = zoo.BY_NAME["gat"].build(), []
    true = occlusion_drops.drops
    monkeypatch.setattr(occlusion_drops, "drops", lambda all_, slots: blocks.append(len(slots)) or true(all_, slots))
    ew.explain(model, ring, method="occlusion", level="layer", memory="4GB")
    large = len(blocks)
    ew.explain(model, ring, method="occlusion", level="layer", memory="10KB")
    assert len(blocks) - large > large


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("name", MODELS)
def test_scores_do_not_depend_on_the_batch_size(caplog, ring, name, batch_size):
    model, index = zoo.BY_NAME[name].build(), [8, 117, 9, 20, 8, 64, 0, 119, 33]
    for method, settings in METHODS.items():
        options = {"index": index, "method": method, "level": "layer", **settings}
        expected = ew.explain(model, ring, **options)
        sizes, found = block_sizes(caplog, model, ring, batch_size=batch_size, **options)
        assert found.settings["way"] == ("copies" if name == "transformer_gated" else "lowered")
        if method != "occlusion":  # which goes through edges in blocks, if it is lowered
            assert sizes == [len(part) for part in torch.arange(9).split(batch_size)]
        assert_close(scores_of(found), scores_of(expected), 1e-9, method)
        if own_scores_of(expected) is not None:
            assert_close(own_scores_of(found), own_scores_of(expected), 1e-9, f"self scores of {method}")


@pytest.mark.parametrize("name", ["gcn_relu", "gat", "gin", "jumping_cat"])
@pytest.mark.parametrize("blocks", ["of one slot", "of 17 slots", "by what they change", "numbered by sorting"])
def test_occlusion_does_not_depend_on_its_blocks_of_edges(monkeypatch, ring, name, blocks):
    model, data = zoo.BY_NAME[name].build(), zoo.GRAPHS["everything"]()
    for level in LEVELS:
        expected = ew.explain(model, data, method="occlusion", level=level)
        with monkeypatch.context() as patch:
            patch.setattr(occlusion_drops, "_SLOT_TABLE", (1 if blocks == "of one slot" else 17) * data.num_nodes)
            patch.setattr(occlusion_drops, "_MANY", 1 if blocks.startswith("of") else 10**9)
            patch.setattr(occlusion_drops, "_FIRST", 5)
            patch.setattr(perturbation, "_LARGEST_TABLE", 0 if "sorting" in blocks else 10**9)
            found = ew.explain(model, data, method="occlusion", level=level)
            strongest = ew.explain(model, data, method="occlusion", level=level, top=3)
        assert expected.settings["way"] == "lowered"
        assert_close(scores_of(found), scores_of(expected), 1e-9)
        assert_close(own_scores_of(found), own_scores_of(expected), 1e-9)
        assert_strongest_kept(strongest, expected, 3)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        *[("2GB", 2**31), ("2gb", 2**31), ("500MB", 500 * 2**20), (" 1.5 GiB ", 3 * 2**29), ("64K", 2**16), ("8B", 8)],
        *[("1TB", 2**40), ("1000", 1000), (4096, 4096), (2.0**20, 2**20)],
    ],
)
def test_a_budget_may_be_written_in_many_ways(memory, expected):
    assert read_memory(memory) == expected


@pytest.mark.parametrize(
    "memory",
    ["", "GB", "two GB", "-1GB", "0", "0GB", 0, -5, "1.5.2GB", "2 GB each", "2GX", True, False, [2], "nan", "∞"],
)
def test_a_budget_that_is_none_raises_and_says_what_one_looks_like(memory):
    data = zoo.GRAPHS["directed"]()
    with pytest.raises(ew.SettingError, match="2GB"):
        ew.explain(zoo.BY_NAME["gcn"].build(), data, memory=memory)


# top ##################################################################################################################


def assert_strongest_kept(found, full, k):
    """Exactly the k largest of every target, whatever their sign, with their scores; which of two equal ones is open."""
    for why, whole in zip(found, full, strict=True):
        kept = why.scores != 0
        size = whole.scores.abs()
        wanted = min(k, int((size > 1e-14).sum()))
        assert int((why.scores.abs() > 1e-14).sum()) == wanted
        assert int(kept.sum()) <= k
        assert_close(why.scores[kept], whole.scores[kept], 1e-9)
        strongest = size.flatten().sort(descending=True).values[:wanted]
        assert_close(why.scores.abs().flatten().sort(descending=True).values[:wanted], strongest, 1e-9)


@pytest.mark.parametrize("k", [1, 4, 10_000])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_top_keeps_the_strongest_entries_of_each_target(ring, name, level, k):
    model, index = zoo.BY_NAME[name].build(), [8, 117, 9, 20, 8, 64]
    for method, settings in METHODS.items():
        options = {"index": index, "method": method, "level": level, **settings}
        full, found = ew.explain(model, ring, **options), ew.explain(model, ring, top=k, **options)
        assert_strongest_kept(found, full, k)
        assert found.settings["top"] == k
        assert len(found.edges) <= k * len(index)
        assert found.value.tolist() == full.value.tolist()


def test_top_keeps_opposition_as_well_as_support(ring):
    model = zoo.BY_NAME["gcn_relu"].build()
    for method in ("gradient", "occlusion"):
        kept = scores_of(ew.explain(model, ring, method=method, level="layer", top=5))
        assert (kept < 0).any()
        assert (kept > 0).any()


@pytest.mark.parametrize("limits", [{"batch_size": 2}, {"memory": "10KB"}])
@pytest.mark.parametrize("method", METHODS)
def test_top_does_not_depend_on_the_blocks(ring, method, limits):
    model, options = zoo.BY_NAME["gcn_relu"].build(), {"method": method, "level": "layer", **METHODS[method]}
    whole = ew.explain(model, ring, index=range(40), top=6, **options)
    blocks = ew.explain(model, ring, index=range(40), top=6, **limits, **options)
    assert_strongest_kept(blocks, ew.explain(model, ring, index=range(40), **options), 6)
    strength = [scores_of(found).abs().flatten(1).sort(descending=True).values for found in (whole, blocks)]
    assert_close(strength[1], strength[0], 1e-9)


@pytest.mark.parametrize("method", ["gradient", "occlusion", "gnn_explainer"])
@pytest.mark.parametrize("level", LEVELS)
def test_top_of_a_list_of_graphs_keeps_the_strongest_of_each_graph(method, level):
    model = zoo.GRAPH_BY_NAME["mean_pool"].build()
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything", "no_edges", "isolated")]
    options = {"task": "graph", "method": method, "level": level, **METHODS[method]}
    full = ew.explain(model, graphs, **options)
    for limits in ({}, {"batch_size": 1}):
        assert_strongest_kept(ew.explain(model, graphs, top=3, **limits, **options), full, 3)


def test_top_of_one_node_is_the_top_of_many(ring):
    model = zoo.BY_NAME["gin"].build()
    for method in ("gradient", "occlusion"):
        many = ew.explain(model, ring, index=[3, 64], method=method, level="layer", top=4)
        one = ew.explain(model, ring, index=64, method=method, level="layer", top=4)
        assert_close(one.scores.abs().flatten().sort().values, many[1].scores.abs().flatten().sort().values, 1e-9)
