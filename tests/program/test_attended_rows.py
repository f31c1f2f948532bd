"""What rows of attention calls receive under weights: compiled and steady ways, against a loop over edges and against torch."""

import importlib.util
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

import edgewise as ew
import zoo
from checks import assert_close, scores_of
from edgewise.program import kernels
from edgewise.program.hop import Hop
from edgewise.program.layers import attended_rows
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.base import Tables
from edgewise.program.layers.transformer import TransformerLayer
from pyg_versions import RESIDUAL

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)
ROWS, HEADS, FEATURES = 7, 4, 5


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def hop_of(seed, *, own=False, edges=11):
    """Four heads (the first, or with `own` some, rows of seven), of which the last receives from nobody."""
    draw = torch.Generator().manual_seed(seed)
    head = torch.randint(HEADS - 1, (edges,), generator=draw).sort().values
    start = torch.zeros(HEADS + 1, dtype=torch.long)
    start[1:] = torch.bincount(head, minlength=HEADS).cumsum(0)
    tail = torch.randint(ROWS, (edges,), generator=draw)
    rows = torch.randperm(ROWS, generator=draw)[:HEADS]
    return Hop(start, tail, torch.arange(edges), rows if own else None, rows, ROWS)


def layer_of(kind=GATv2Conv, *, seed=0, **options):
    conv = zoo.randomise(kind(FEATURES, 3, heads=2, **options), seed)
    loops = torch.full((ROWS,), -1) if conv.add_self_loops else None
    return AttentionLayer(conv, None, None, loops, None)


def by_hand(layer, table, hop, weight, own):
    """From the formula, one head of attention, one row and one message after the other; without bias and residual."""
    conv, rows = layer.conv, hop.own_rows(torch.arange(len(table))).tolist()
    sides = layer.prepare(table)
    found = []
    for i, mine in enumerate(rows):
        span = range(int(hop.start[i]), int(hop.start[i + 1]))
        sent = [sides.sent[hop.tail[j]] for j in span] + ([sides.sent[mine]] if layer.loop_edge is not None else [])
        factor = [weight[j] for j in span] + ([own[i]] if layer.loop_edge is not None else [])
        heads = []
        for h in range(conv.heads):
            both = [row[h] + sides.receiving[mine, h] for row in sent]
            bent = [torch.where(b > 0, b, conv.negative_slope * b) for b in both]
            powers = [(conv.att[0, h] * b).sum().exp() for b in bent]
            total = sum(powers) if powers else 1.0
            terms = [f * p / total * row[h] for f, p, row in zip(factor, powers, sent, strict=True)]
            heads.append(sum(terms, torch.zeros(conv.out_channels, dtype=torch.double)))
        found.append(torch.cat(heads) if conv.concat else torch.stack(heads).mean(0))
    return torch.stack(found) + (0 if conv.bias is None else conv.bias)


def inputs(hop, seed):
    """A table, ω and s, all of them leaves."""
    parts = drawn(ROWS, FEATURES, seed=seed), drawn(len(hop.tail), seed=seed + 1), drawn(HEADS, seed=seed + 2)
    return [part.requires_grad_() for part in parts]


def run(layer, hop, seed, *, prepared=False, forward=None):
    """The output under some ω and s, and the gradients of a number of it by ω, s and the table."""
    table, weight, own = inputs(hop, seed)
    read = layer.prepare(table.detach()) if prepared else table
    if prepared:
        read = type(read)(*(None if part is None else part.detach() for part in vars(read).values()))
    output = (forward or layer.forward)(read, hop, weight, own)
    leaves = [weight, own] if prepared else [weight, own, table]
    along = drawn(*output.shape, seed=seed + 3)
    found = torch.autograd.grad((output * along).sum(), leaves, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
    return [output.detach(), *gradients]


OPTIONS = [{}, {"share_weights": True}, {"add_self_loops": False}, {"concat": False}, {"bias": False}]


@needs_numba
@given(st.sampled_from(OPTIONS), st.booleans(), st.integers(0, 10**6))
def test_compiled_rows_are_the_formula_and_so_are_their_gradients(options, own, seed):
    layer, hop = layer_of(seed=seed, **options), hop_of(seed, own=own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_WORTH_IT", 0)
        patch.setattr(attended_rows, "_WORK", 0)
        found = run(layer, hop, seed)
    expected = run(layer, hop, seed, forward=lambda *a: by_hand(layer, *a))
    for fast, slow in zip(found, expected, strict=True):
        assert_close(fast, slow, 1e-9)


@given(
    st.sampled_from(OPTIONS),
    st.sampled_from([GATConv, GATv2Conv]),
    st.sampled_from([0, math.inf]),
    st.integers(0, 10**6),
)
def test_messages_of_constants_are_those_that_are_found_in_every_pass(options, kind, least, seed):
    if kind is GATConv:
        options = {name: value for name, value in options.items() if name != "share_weights"}
    layer, hop = layer_of(kind, seed=seed, **options), hop_of(seed, own=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_WORTH_IT", least)
        patch.setattr(attended_rows, "_WORK", least)
        found = run(layer, hop, seed, prepared=True)
        again = run(layer, hop, seed + 10, prepared=True)  # other features on the same hop: nothing old may be used
    for fast, slow in zip(found, run(layer, hop, seed)[:3], strict=True):
        assert_close(fast, slow, 1e-9)
    for fast, slow in zip(again, run(layer, hop, seed + 10)[:3], strict=True):
        assert_close(fast, slow, 1e-9)


@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10**6))
def test_so_are_those_of_attention_by_products(concat, root_weight, edges, seed):
    hop = hop_of(seed, own=True)
    conv = zoo.randomise(TransformerConv(FEATURES, 3, heads=2, concat=concat, root_weight=root_weight), seed)
    layer = TransformerLayer(conv, drawn(len(hop.tail), 2, 3, seed=seed) if edges else None)
    for other in (seed, seed + 10):  # other features on the same hop: nothing old may be used
        for fast, slow in zip(run(layer, hop, other, prepared=True), run(layer, hop, other)[:3], strict=True):
            assert_close(fast, slow, 1e-9)


def test_copies_of_a_column_share_a_message_only_while_they_are_alike():
    layer, hop = layer_of(), hop_of(3, own=True)
    hop.edge_id = torch.zeros_like(hop.edge_id)  # as if all edges were copies of one column, which they are not
    for fast, slow in zip(run(layer, hop, 3, prepared=True), run(layer, hop, 3)[:3], strict=True):
        assert_close(fast, slow, 1e-9)


def test_two_copies_of_a_column_share_a_message():
    layer, table = layer_of(), drawn(ROWS, FEATURES)
    hop = Hop(torch.tensor([0, 2, 4]), torch.tensor([1, 2, 1, 2]), torch.tensor([5, 6, 5, 6]), torch.tensor([3, 3]),
              torch.tensor([3, 3]), ROWS)  # fmt: skip
    with torch.no_grad():
        layer.forward(layer.prepare(table), hop, torch.ones(4, dtype=torch.double), None)
    assert len(hop.remembered("steady messages", dict).message) == 2


def test_receivers_with_a_table_of_their_own_are_read_from_it():
    layer, hop = layer_of(add_self_loops=False), hop_of(2)
    senders, receivers, weight = drawn(ROWS, FEATURES), drawn(HEADS, FEATURES, seed=1), drawn(len(hop.tail), seed=2)
    other = torch.cat([receivers, senders])  # one table with both: tails are moved behind the receivers
    moved = Hop(hop.start, hop.tail + HEADS, hop.edge_id, None, hop.node, HEADS + ROWS)
    with torch.no_grad():
        found = layer.forward(Tables(senders, receivers), hop, weight, None)
        assert_close(found, layer.forward(other, moved, weight, None), 1e-12)


def test_work_counts_all_passes_that_a_method_will_make():
    """So that training loads compiled loops where a single pass does not; afterwards a pass is one pass again."""
    data = zoo.graph(zoo.random_edges(9, 30), 9)
    score = ew.Score(zoo.randomise(zoo.Chain(GATv2Conv(zoo.FEATURES, 3), GATv2Conv(3, 3))), data, [0, 1])
    levels = score._engine.levels
    score(score.ones())
    seen = []
    with score.expecting(100):
        seen += [levels.hop(call, from_nodes=call == 0).expected for call in (0, 1)]
    assert seen == [100 * (levels.edges_of(0) + levels.edges_of(1))] * 2
    assert [levels.hop(call, from_nodes=call == 0).expected for call in (0, 1)] == [0, 0]


@needs_numba
@pytest.mark.parametrize("method", [("gnn_explainer", {"epochs": 5}), ("integrated_gradients", {"steps": 3})])
@pytest.mark.parametrize("level", ["input", "layer"])
def test_methods_that_leave_one_find_the_same_with_and_without_compiled_rows(method, level, monkeypatch):
    name, options = method
    convs = [
        GATv2Conv(zoo.FEATURES, 2, heads=2),
        GATv2Conv(4, 2, heads=2, **RESIDUAL),
        GATv2Conv(4, 3, heads=2, concat=False),
    ]
    model = zoo.randomise(zoo.Chain(*convs, act=torch.relu))
    edges = [(a, b) for a, b in zoo.random_edges(30, 120) if a != b]  # explicit loops take the other way
    data, used = zoo.graph(edges, 30), []
    loops = importlib.import_module("edgewise.program.kernels.loops")
    for kernel in ("row_sums", "row_sums_back"):
        compiled = getattr(loops, kernel)
        monkeypatch.setattr(loops, kernel, lambda *a, run=compiled: used.append(1) or run(*a))
    monkeypatch.setattr(kernels, "_WORTH_IT", 0)
    monkeypatch.setattr(attended_rows, "_WORK", 0)
    fast = ew.explain(model, data, [3, 0, 7], method=name, level=level, **options)
    assert used
    monkeypatch.setattr(kernels, "_kernels", lambda: None)
    slow = ew.explain(model, data, [3, 0, 7], method=name, level=level, **options)
    assert_close(scores_of(fast), scores_of(slow), 1e-9)
