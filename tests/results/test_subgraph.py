"""Subgraphs of explanations: top-k, threshold, connected; both directions as one; complements."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import edgewise as ew
import zoo
from checks import assert_close, explain_nodes
from edgewise.results.explanation import Explanation

# 0 → 1 → 2 → 3 ← 4 ← 5, and 1 → 0; node 3 is explained
EDGES = torch.tensor([[0, 1, 2, 4, 5, 1], [1, 2, 3, 3, 4, 0]])


def why(*scores, **settings):
    return Explanation(torch.tensor(scores), EDGES, 6, index=3, target=0, value=1.0, settings=settings)


SIGNED = why(5.0, 0.5, 1.0, 2.0, -3.0, 0.0)


@pytest.mark.parametrize(
    ("choice", "columns"),
    [
        ({"k": 2}, [0, 3]),
        ({"k": 9}, [0, 1, 2, 3]),  # only what supports
        ({"k": 2, "by": "magnitude"}, [0, 4]),
        ({"by": "opposition"}, [4]),
        ({"threshold": 0.9}, [0, 2, 3]),
        ({"k": 1, "threshold": 0.9}, [0]),
        ({"k": 0}, []),
        ({"k": 1, "connected": True}, [3]),
        ({"k": 2, "connected": True}, [2, 3]),
        ({"k": 4, "connected": True}, [0, 1, 2, 3]),
        ({"k": 2, "connected": True, "by": "magnitude"}, [3, 4]),
        ({"threshold": 0.9, "connected": True}, [2, 3]),  # the way to edge 0 is too weak
        ({"by": "opposition", "connected": True}, []),
        ({"k": 1, "undirected": "sum"}, [0, 5]),
        ({"k": 3, "undirected": "mean", "connected": True}, [1, 2, 3]),
    ],
)
def test_subgraphs_drawn_by_hand(choice, columns):
    assert SIGNED.subgraph(**choice).columns.tolist() == columns


def test_without_connection_a_subgraph_is_the_top():
    case, data = zoo.BY_NAME["gcn"], zoo.GRAPHS["everything"]()
    for level in ("input", "layer"):
        for one in explain_nodes(case, case.build(), data, level=level):
            for by in ("support", "opposition", "magnitude"):
                part = one.subgraph(k=4, by=by)
                top = {(entry[3], *entry[4:]) for entry in one.top(4, by=by)}
                places = part.mask.nonzero().tolist()
                assert {(place[-1], *place[:-1]) for place in places} == top


def hangs_together(part, index):
    """Every chosen edge's receiver is the target, or the sender of a chosen edge that hangs together itself."""
    edges = [tuple(pair) for pair in part.edge_index.t().tolist()]
    reached, left = {index}, list(edges)
    while grown := [edge for edge in left if edge[1] in reached]:
        reached |= {edge[0] for edge in grown}
        left = [edge for edge in left if edge not in grown]
    return not left


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_connected_subgraphs_are_grown_greedily_from_the_target(seed, k, bounded):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, 8, (2, 20), generator=generator)
    one = Explanation(torch.randn(20, generator=generator), edges, 8, index=0, target=0, value=1.0)
    threshold = 0.3 if bounded else 0.0
    part = one.subgraph(k=k, connected=True, threshold=threshold)
    assert hangs_together(part, 0)
    chosen, reached = [], {0}
    for _ in range(k):  # the slow twin: look at every edge, take the best that fits
        fits = [e for e in range(20) if e not in chosen and one.scores[e] > threshold and int(edges[1, e]) in reached]
        if not fits:
            break
        best = max(fits, key=lambda e: float(one.scores[e]))
        chosen.append(best)
        reached.add(int(edges[0, best]))
    assert part.columns.tolist() == sorted(chosen)
    everything = one.subgraph(connected=True, threshold=threshold)
    assert hangs_together(everything, 0)
    assert everything.columns.tolist() == one.subgraph(k=20, connected=True, threshold=threshold).columns.tolist()


def test_at_layer_level_an_edge_must_still_arrive():
    chain = torch.tensor([[0, 1], [1, 2]])
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # [layer, edge]
    one = Explanation(scores, chain, 3, index=2, target=0, value=1.0, level="layer")
    part = one.subgraph(connected=True)
    # Edge 1 → 2 may be used in both layers; 0 → 1 only in the first, or its message arrives after the last layer.
    assert part.mask.tolist() == [[True, True], [False, True]]
    assert one.subgraph(k=2, connected=True).mask.tolist() == [[False, True], [False, True]]


def test_against_the_arrows_the_sender_is_the_second_row():
    one = why(5.0, 0.5, 1.0, 2.0, -3.0, 0.0, flow="target_to_source")
    assert one.subgraph(connected=True).columns.tolist() == []
    other = Explanation(one.scores, EDGES.flip(0), 6, 3, 0, 1.0, settings=one.settings)
    assert other.subgraph(k=2, connected=True).columns.tolist() == [2, 3]


def test_of_a_whole_graph_the_strongest_edge_is_the_start():
    one = why(5.0, 0.5, 1.0, 2.0, -3.0, 0.0, task="graph")
    assert one.subgraph(k=2, connected=True).columns.tolist() == [0, 1]
    assert one.subgraph(k=3, connected=True).columns.tolist() == [0, 1, 2]
    assert one.subgraph(threshold=0.9, connected=True).columns.tolist() == [0]


# --- merging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("undirected", "expected"), [("sum", [4.0, 4.0, 1.0]), ("mean", [2.0, 2.0, 1.0]), ("max", [5.0, 5.0, 1.0])]
)
def test_both_directions_carry_the_merged_score(undirected, expected):
    edges = torch.tensor([[0, 1, 2], [1, 0, 0]])
    one = Explanation(torch.tensor([5.0, -1.0, 1.0]), edges, 3, index=0, target=0, value=1.0)
    assert one.merged(undirected).scores.tolist() == expected
    layered = Explanation(torch.tensor([[5.0, -1.0, 1.0], [0.0, 0.0, 2.0]]), edges, 3, 0, 0, 1.0, level="layer")
    assert layered.merged(undirected).scores.tolist() == [expected, [0.0, 0.0, 2.0]]


@given(st.integers(0, 10**6), st.sampled_from(["sum", "mean", "max"]))
def test_parallel_edges_and_loops_are_merged_in_order_of_occurrence(seed, undirected):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, 4, (2, 14), generator=generator)
    scores = torch.randn(14, generator=generator, dtype=torch.double)
    found = Explanation(scores, edges, 4, index=0, target=0, value=1.0).merged(undirected).scores
    pairs = [tuple(pair) for pair in edges.t().tolist()]
    for column, (source, receiver) in enumerate(pairs):
        nth = pairs[:column].count((source, receiver))
        twins = [e for e, pair in enumerate(pairs) if pair == (receiver, source)]
        group = {column, *([twins[nth]] if nth < len(twins) else [])}
        values = scores[sorted(group)]
        assert_close(
            found[column], {"sum": values.sum(), "mean": values.mean(), "max": values.max()}[undirected], 1e-12
        )


# --- what a subgraph is -----------------------------------------------------------------------------------------------


def test_a_part_and_its_complement_are_the_whole():
    part = SIGNED.subgraph(k=2)
    rest = part.complement()
    assert sorted([*part.columns.tolist(), *rest.columns.tolist()]) == list(range(6))
    assert_close(part.explanation().scores + rest.explanation().scores, SIGNED.scores, 0.0)
    assert rest.complement().columns.tolist() == part.columns.tolist()
    assert part.as_mask().scores.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert part.nodes.tolist() == [0, 1, 3, 4]


def test_a_subgraph_of_the_data_keeps_nodes_and_attributes():
    data = Data(x=torch.rand(6, 2), edge_index=EDGES, edge_attr=torch.arange(6.0))
    small = SIGNED.subgraph(k=2).to_data(data)
    assert small.edge_index.tolist() == [[0, 4], [1, 3]]
    assert small.edge_attr.tolist() == [0.0, 3.0]
    assert small.num_nodes == 6
    with pytest.raises(ew.InputError, match="data that was explained"):
        SIGNED.subgraph(k=2).to_data(Data(x=data.x, edge_index=EDGES[:, :2]))


def test_explanations_stay_as_they_are():
    before = SIGNED.scores.clone()
    SIGNED.merged("max").subgraph(k=2, connected=True, undirected="sum").complement()
    assert torch.equal(SIGNED.scores, before)


def test_explanations_without_edges_have_empty_subgraphs():
    empty = Explanation(torch.zeros(0), torch.zeros(2, 0, dtype=torch.long), 3, index=1, target=0, value=1.0)
    for choice in ({"k": 3}, {"connected": True}, {"k": 2, "connected": True, "undirected": "sum"}):
        assert len(empty.subgraph(**choice)) == 0


@pytest.mark.parametrize(
    "choice",
    [{"k": -1}, {"k": 1.5}, {"by": "value"}, {"threshold": -1.0}, {"threshold": "high"}, {"undirected": "min"}],
)
def test_bad_choices_are_refused(choice):
    with pytest.raises(ew.SettingError):
        SIGNED.subgraph(**choice)


def test_nan_scores_have_no_rank():
    with pytest.raises(ew.InputError, match="NaN"):
        why(1.0, float("nan"), 0.0, 0.0, 0.0, 0.0).subgraph(k=1)
