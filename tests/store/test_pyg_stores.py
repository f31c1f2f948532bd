"""PyG's `FeatureStore` and `GraphStore` as data: the same numbers as in memory, and rows of the neighbourhood alone."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, SAGEConv, to_hetero
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import edgewise as ew

NODES = 120


class Watched(MyFeatureStore):
    """Writes down which rows it was asked for."""

    def __init__(self):
        super().__init__()
        self.__dict__["rows"] = set()

    def _get_tensor(self, attr):
        self.rows.update([] if attr.index is None else torch.as_tensor(attr.index).tolist())
        return super()._get_tensor(attr)


def stores_of(data, layout="coo"):
    """A pair of stores with the same nodes and edges."""
    features, graph = Watched(), MyGraphStore()
    groups = {None: data} if isinstance(data, Data) else {name: data[name] for name in data.node_types}
    for group, table in groups.items():
        features.put_tensor(table.x, group_name=group, attr_name="x", index=None)
    kinds = {("node", "to", "node"): data} if isinstance(data, Data) else {kind: data[kind] for kind in data.edge_types}
    for kind, table in kinds.items():
        first, last = (data, data) if isinstance(data, Data) else (data[kind[0]], data[kind[2]])
        graph.put_edge_index(table.edge_index, edge_type=kind, layout=layout, size=(first.num_nodes, last.num_nodes))
    return features, graph


def test_explanations_are_those_of_the_graph_in_memory(double):
    torch.manual_seed(0)
    data = Data(x=torch.randn(NODES, 4), edge_index=torch.randint(0, NODES, (2, 300)))
    model, (features, graph) = GCN(4, 6, 2, 3).eval(), stores_of(data)
    ours, theirs = (ew.explain(model, given, [3, 90], level="layer") for given in ((features, graph), data))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one.scores, other.scores, atol=1e-12)
        assert torch.equal(one.edge_index, data.edge_index)
    assert len(features.rows) < NODES


def test_typed_stores_too(double):
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.randn(30, 3), torch.randn(20, 5)
    ends = torch.stack([torch.randint(0, 30, (80,)), torch.randint(0, 20, (80,))])
    data["user", "rates", "movie"].edge_index = ends
    data["movie", "rated_by", "user"].edge_index = ends.flip(0)

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv((-1, -1), 6), SAGEConv((-1, -1), 2)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model = to_hetero(Two(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    ours, theirs = (ew.explain(model, given, ("movie", [3, 9])) for given in (stores_of(data), data))
    for kind in theirs[0].scores:
        assert torch.allclose(ours[0].scores[kind], theirs[0].scores[kind], atol=1e-12)


def test_jobs_ask_for_a_store_of_ours(tmp_path):
    data = Data(x=torch.randn(NODES, 4), edge_index=torch.randint(0, NODES, (2, 300)))
    with pytest.raises(ew.InputError, match=r"GraphStore\.build"):
        ew.jobs.run(GCN(4, 6, 2, 3), stores_of(data), [3], out=tmp_path / "job")
    with pytest.raises(ew.InputError, match="Scores of features"):
        ew.features(GCN(4, 6, 2, 3), stores_of(data), 3)
