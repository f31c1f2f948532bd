"""Subgraphs and merged directions of typed graphs: those of the union, told apart by type."""

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.transforms import ToUndirected

import edgewise as ew
from edgewise.graph.type_table import TypeTable, union_of
from edgewise.results.typed_subgraph import typed_pairs, way_back
from typed_zoo import FOLLOWS, HAS, KINDS, RATED, RATES, TAGS, typed_model


@pytest.fixture(params=["input", "layer"])
def why(request):
    model, data = typed_model("sage sum", 4)
    return data, ew.explain(model, data, ("movie", 2), level=request.param)


def test_the_strongest_edges_of_all_types_are_those_of_top(why):
    data, why = why
    part = why.subgraph(k=6, by="magnitude")
    assert len(part) == 6
    listed = {(entry.edge_type, *entry[3:]) for entry in why.top(6, by="magnitude")}
    found = {
        (kind, int(place[-1]), *place[:-1].tolist())
        for kind, mask in part.mask.items() for place in mask.nonzero()
    }  # fmt: skip
    assert found == listed
    kept, rest = part.explanation(), part.complement().explanation()
    for kind in KINDS:
        assert torch.equal(kept.scores[kind] + rest.scores[kind], why.scores[kind])
        assert torch.equal(part.edge_index[kind], data[kind].edge_index[:, part.columns[kind]])
    assert part.to_data(data)[RATES].edge_index.shape == part.edge_index[RATES].shape
    assert set(part.nodes) == set(data.node_types)
    del data[RATES]
    with pytest.raises(ew.InputError, match="Use the data that was explained"):
        part.to_data(data)


def test_connected_edges_hang_on_the_target(why):
    _, why = why
    part = why.subgraph(k=4, connected=True, by="magnitude")
    received = {("movie", 2)}
    left = {(kind, int(c)) for kind, columns in part.columns.items() for c in columns}
    while left:  # peel off what hangs on the target
        near = {(k, c) for k, c in left if (k[2], int(why.edge_index[k][1, c])) in received}
        assert near
        received |= {(k[0], int(why.edge_index[k][0, c])) for k, c in near}
        left -= near


def test_a_subgraph_is_a_mask_for_fidelity():
    model, data = typed_model("sage sum", 4)
    why = ew.explain(model, data, ("movie", 2))
    part = why.subgraph(k=3)
    mask = part.as_mask()
    assert sum(float(part.sum()) for part in mask.scores.values()) == 3.0
    ours, same = ew.metrics.fidelity(mask, model, data, k=3), ew.metrics.fidelity(why, model, data, k=3)
    torch.testing.assert_close(ours.plus.value, same.plus.value)


def test_merged_directions_are_sums_of_a_type_and_its_way_back():
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.randn(4, 2), torch.randn(3, 2)
    data[RATES].edge_index = torch.tensor([[0, 1, 1, 3], [0, 2, 2, 1]])
    data[FOLLOWS].edge_index = torch.tensor([[0, 1, 2], [1, 0, 3]])
    data = ToUndirected(merge=False)(data)
    rev = ("movie", "rev_rates", "user")
    types = TypeTable.of(data, "user")
    pair = typed_pairs(union_of(data, types).edge_index, types)
    at = {kind: pair[types.edge_range(kind).start : types.edge_range(kind).stop].tolist() for kind in data.edge_types}
    assert at[RATES] == at[rev]
    assert len(set(at[RATES])) == 4
    follows = ("user", "rev_follows", "user")
    assert at[FOLLOWS] == at[follows]  # 0 → 1 of follows belongs to 1 → 0 of rev_follows, not to that of follows
    assert len(set(pair.tolist())) == 7


@pytest.mark.parametrize("undirected", ["sum", "mean", "max"])
def test_merged_scores_of_an_explanation(undirected):
    model, data = typed_model("sage sum", 4)
    data[RATED].edge_index = data[RATES].edge_index.flip(0)[:, :12]
    why = ew.explain(model, data, ("movie", 2))
    found = why.merged(undirected)
    there, back = why.scores[RATES][:12], why.scores[RATED]
    expected = {"sum": there + back, "mean": (there + back) / 2, "max": torch.maximum(there, back)}[undirected]
    torch.testing.assert_close(found.scores[RATES][:12], expected)
    torch.testing.assert_close(found.scores[RATED], expected)
    torch.testing.assert_close(found.scores[RATES][12:], why.scores[RATES][12:])
    assert found.index == why.index
    both = why.subgraph(k=2, undirected=undirected, by="magnitude").columns
    assert set(both[RATED].tolist()) <= set(both[RATES].tolist()) | {12}


def test_a_way_back_that_cannot_be_told_is_refused():
    assert way_back([RATES, RATED, FOLLOWS, HAS, TAGS])[HAS] == TAGS
    assert way_back([RATES]) == {}
    rev = ("movie", "rev_rates", "user")
    assert way_back([RATES, rev, ("user", "likes", "movie")]) == {RATES: rev, rev: RATES}
    with pytest.raises(ew.InputError, match="cannot be told which one is the way back"):
        way_back([RATES, RATED, ("movie", "seen_by", "user")])
