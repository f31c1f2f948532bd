"""Typed graphs on disk: the same numbers as in memory, by type."""

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import edgewise as ew

KNOWS = ("user", "knows", "user")


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 6), SAGEConv((-1, -1), 2)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def random_graph():
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.randn(40, 3), torch.randn(25, 5)
    data["movie"].y = torch.arange(25) % 2
    ends = torch.stack([torch.randint(0, 40, (100,)), torch.randint(0, 25, (100,))])
    data["user", "rates", "movie"].edge_index = ends
    data["movie", "rated_by", "user"].edge_index = ends.flip(0)
    data[KNOWS].edge_index = torch.randint(0, 40, (2, 60))
    data[KNOWS].edge_attr = torch.randn(60, 2)
    return data


@pytest.fixture
def asked(double):
    data = random_graph()
    model = to_hetero(Two(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    return model, data


def same(a, b):
    return all(torch.allclose(a.scores[kind], b.scores[kind], atol=1e-12) for kind in a.scores)


@pytest.mark.parametrize("index", [("movie", [3, 7, 20]), {"user": [0, 39]}])
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_explanations_are_those_of_the_graph_in_memory(tmp_path, asked, index, method):
    model, data = asked
    store = ew.GraphStore.build(tmp_path / "store", data)
    ours, theirs = (ew.explain(model, graph, index, method=method, level="layer") for graph in (store, data))
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    ours.save(tmp_path / "found.npz")
    assert ew.load(tmp_path / "found.npz")[0].top(3) == ours[0].top(3)


def test_other_targets_and_other_types(tmp_path, asked):
    model, data = asked
    ask = ew.Question(model, ew.GraphStore.build(tmp_path / "store", data), ("movie", 3))
    for index in (("movie", 9), ("user", 5)):
        assert same(ask.of(index).explain(), ew.explain(model, data, index))


def test_a_job_over_a_typed_store(tmp_path, asked):
    pytest.importorskip("pyarrow")
    model, data = asked
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, ("movie", range(25)), out=tmp_path / "job")
    theirs = ew.explain(model, data, ("movie", range(25)))
    assert all(same(job[position], theirs[position]) for position in range(25))
    assert job.of(("movie", 7)).index == ("movie", 7)


def test_a_typed_folder_of_tables(tmp_path):
    pytest.importorskip("pyarrow")
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "nodes_account.csv").write_text("id,age\na,1\nb,2\n")
    (tables / "nodes_shop.csv").write_text("id,size\nx,5\n")
    (tables / "edges_account__pays__shop.csv").write_text("source,target,weight\na,x,2\nb,x,3\n")
    store = ew.GraphStore.build(tmp_path / "store", tables)
    pays = ("account", "pays", "shop")
    assert store.edge_types == [pays]
    assert store.data[pays].edge_index.tolist() == [[0, 1], [0, 0]]
    assert store.data[pays].edge_weight.tolist() == [2.0, 3.0]
    assert store.node("b", "account") == 1


def test_nan_around_a_target_is_refused_and_elsewhere_not(tmp_path, asked):
    model, data = asked
    data["user"].x[5] = torch.nan
    store = ew.GraphStore.build(tmp_path / "store", data)
    with pytest.raises(ew.InputError, match="finite"):
        ew.explain(model, store, ("user", 5))
