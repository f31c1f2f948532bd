"""Batches of a `NeighborLoader`: explained as the graphs that they are, with nodes named as in the whole graph.

The loader itself needs pyg-lib or torch-sparse; the batches here are made by hand, with the attributes that it gives them.
"""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import k_hop_subgraph

import edgewise as ew
import typed_zoo
import zoo
from checks import assert_close

HOPS = 3


def sampled(data, seeds):
    """The neighbourhood of some nodes, these first, as a loader with all neighbours gives it."""
    near, _, _, inside = k_hop_subgraph(seeds, HOPS, data.edge_index, num_nodes=data.num_nodes)
    rest = near[~torch.isin(near, torch.tensor(seeds))]
    n_id = torch.cat([torch.tensor(seeds), rest])
    place = torch.full((data.num_nodes,), -1)
    place[n_id] = torch.arange(len(n_id))
    e_id = inside.nonzero().view(-1)
    return Data(
        x=data.x[n_id],
        edge_index=place[data.edge_index[:, e_id]],
        n_id=n_id,
        e_id=e_id,
        input_id=torch.arange(len(seeds)),
        batch_size=len(seeds),
        num_sampled_nodes=[len(seeds), len(rest)],
    )


@pytest.fixture
def problem():
    torch.manual_seed(0)
    data = Data(x=torch.randn(40, 5, dtype=torch.float64), edge_index=torch.randint(0, 40, (2, 90)))
    return zoo.BY_NAME["sage_mean"].build(), data, sampled(data, [31, 7, 12])


def test_without_an_index_the_seeds_are_explained(problem):
    model, _, batch = problem
    every = ew.explain(model, batch)
    assert every.index.tolist() == [0, 1, 2]
    assert ew.Question(model, batch, 5).of(None).index == [0, 1, 2]
    assert ew.features(model, batch).index.tolist() == [0, 1, 2]
    assert len(ew.explain(model, batch, range(batch.num_nodes))) == batch.num_nodes > 3


def test_scores_are_those_of_the_whole_graph_in_the_columns_of_the_batch(problem):
    model, data, batch = problem
    whole = ew.explain(model, data, [31, 7, 12])
    for mine, theirs in zip(ew.explain(model, batch), whole, strict=True):
        assert mine.scores.shape == (batch.num_edges,)
        assert_close(mine.scores, theirs.scores[batch.e_id], 1e-12)
        assert torch.equal(mine.e_id, batch.e_id)
        assert torch.equal(mine.to_pyg().e_id, batch.e_id)
        assert torch.equal(mine.to_pyg().n_id, batch.n_id)


def test_top_names_the_nodes_of_the_whole_graph(problem):
    model, data, batch = problem
    mine, theirs = ew.explain(model, batch, 1), ew.explain(model, data, 7)
    assert mine.index == 1
    for (a, source, receiver, column), (b, *ends, of_whole) in zip(
        mine.top(5, by="magnitude"), theirs.top(5, by="magnitude"), strict=True
    ):
        assert a == pytest.approx(b, abs=1e-12)
        assert [source, receiver] == ends
        assert int(batch.e_id[column]) == of_whole
    features = ew.features(model, batch, 1).top(5)
    assert [entry[1:] for entry in features] == [entry[1:] for entry in ew.features(model, data, 7).top(5)]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_file_keeps_the_numbers(problem, ending, tmp_path):
    model, _, batch = problem
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    every = ew.explain(model, batch)
    every.save(tmp_path / f"why.{ending}")
    again = ew.load(tmp_path / f"why.{ending}")
    assert torch.equal(again.n_id, batch.n_id)
    assert torch.equal(again.e_id, batch.e_id)
    assert again[2].top(3) == every[2].top(3)


def test_a_file_of_features_keeps_the_numbers(problem, tmp_path):
    model, _, batch = problem
    every = ew.features(model, batch)
    every.save(tmp_path / "why.npz")
    assert ew.load(tmp_path / "why.npz")[2].top(3) == every[2].top(3)


def test_the_numbers_are_a_copy(problem):
    model, _, batch = problem
    why = ew.explain(model, batch, 0)
    before = why.top(1)
    batch.n_id += 1000
    assert why.top(1) == before


def test_pictures_and_pages_show_the_nodes_of_the_whole_graph(problem, tmp_path):
    pytest.importorskip("bokeh")
    from edgewise.report.page.page_data import Names, contents
    from edgewise.report.page.page_run import find, read_page

    model, _, batch = problem
    question = ew.Question(model, batch, [1])._posed
    asked = read_page(
        methods=["gradient"], levels=("input",), walks=None, check=False, edges=5, seed=0, own_settings={}
    ).about(question, {"memory": None, "batch_size": None})
    (record,) = contents(asked, find(asked, progress=False), Names(None, None, None))["targets"]
    assert record["index"] == 7
    assert record["inside"][record["root"]] == "7"
    assert set(map(int, record["inside"])) <= set(batch.n_id.tolist())


def test_what_is_no_number_for_each_node_is_no_sample(problem):
    model, _, batch = problem
    batch.n_id = batch.n_id[:-1]
    assert ew.explain(model, batch, 1).n_id is None
    batch.n_id = None
    assert len(ew.explain(model, batch)) == batch.num_nodes


def shuffled(data):
    """A typed batch: all nodes of a typed graph in another order, the first two movies are the seeds."""
    batch, place = HeteroData(), {}
    for name in data.node_types:
        n_id = torch.randperm(data[name].num_nodes, generator=torch.Generator().manual_seed(1))
        place[name] = n_id.argsort()
        batch[name].x, batch[name].n_id = data[name].x[n_id], n_id
    for kind in data.edge_types:
        e_id = torch.arange(data[kind].num_edges).flip(0)
        source, receiver = data[kind].edge_index[:, e_id]
        batch[kind].edge_index = torch.stack([place[kind[0]][source], place[kind[2]][receiver]])
        batch[kind].e_id = e_id
    batch["movie"].batch_size = 2
    return batch


def test_a_typed_batch_too(tmp_path):
    model, data = typed_zoo.typed_model("to_hetero sage")
    batch = shuffled(data)
    every = ew.explain(model, batch)
    assert every.types.explained == "movie"
    assert every.index.tolist() == [0, 1] == ew.explain(model, batch, ("movie", None)).index.tolist()
    every.save(tmp_path / "why.npz")
    for mine, again in zip(every, ew.load(tmp_path / "why.npz"), strict=True):
        movie = int(batch["movie"].n_id[mine.index[1]])
        theirs = ew.explain(model, data, ("movie", movie), target=mine.target)
        for kind, scores in mine.scores.items():
            assert_close(scores, theirs.scores[kind][mine.e_id[kind]], 1e-12)
        assert [entry[1:3] for entry in mine.top(4)] == [entry[1:3] for entry in theirs.top(4)]
        assert again.top(4) == mine.top(4)
        assert torch.equal(mine.to_pyg()["user"].n_id, batch["user"].n_id)


def test_an_index_of_a_typed_batch_with_seeds_of_two_types_must_name_one():
    model, data = typed_zoo.typed_model("to_hetero sage")
    batch = shuffled(data)
    batch["user"].batch_size = 1
    with pytest.raises(ew.InputError, match="must name a node type"):
        ew.explain(model, batch)
