"""A neighbourhood beyond the memory is worked off in parts: the numbers of explain, marked, for the layers that are known."""

import re

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GCNConv, GraphConv, GraphSAGE, SAGEConv

import edgewise as ew
from edgewise.program.mapped_table import mapped_table

pytest.importorskip("pyarrow")
NODES, HUB, MEMORY = 120, 5, "16KB"


def hub_graph(seed=0, loops=False):
    """A node with 90 in-edges, some of them parallel, in a random graph."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, NODES, (2, 300), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    star = torch.stack([torch.randint(6, NODES, (90,), generator=generator), torch.full((90,), HUB)])
    own = torch.tensor([[HUB, 7, 7, 9], [HUB, 7, 7, 9]]) if loops else edges[:, :0]
    edges = torch.cat([edges, star, own], dim=1)
    order = torch.randperm(edges.size(1), generator=generator)
    return Data(x=torch.randn(NODES, 4, generator=generator, dtype=torch.float64), edge_index=edges[:, order])


class Residual(nn.Module):
    """Carries each node around a call, and reads both layers at the end."""

    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(4, 6, aggr="mean"), GraphConv(6, 6)
        self.end = nn.Linear(12, 3)

    def forward(self, x, edge_index):
        first = self.first(x, edge_index).tanh()
        second = (first + self.second(first, edge_index)).relu()
        return self.end(torch.cat([first, second], dim=1))


class Two(nn.Module):
    """A GCN without a loop of its own in the last layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(4, 6), SAGEConv(6, 1, root_weight=False, aggr="sum")

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


MODELS = {
    "gcn": lambda: GCN(4, 6, 3, 3),
    "sage": lambda: GraphSAGE(4, 6, 2, 3),
    "gin": lambda: GIN(4, 6, 2, 3),
    "jumping": lambda: GCN(4, 6, 2, 3, jk="cat", act="elu"),
    "residual": Residual,
    "two": Two,
    "one": lambda: GCN(4, 6, 1, 3),
}


def made(name):
    torch.manual_seed(3)
    return MODELS[name]().double().eval()


@pytest.mark.parametrize(("name", "loops"), [*((name, False) for name in MODELS), ("gcn", True), ("gin", True)])
def test_a_hub_in_parts_has_the_scores_of_explain(tmp_path, name, loops):
    model, data = made(name), hub_graph(loops=loops)
    store = ew.GraphStore.build(tmp_path / "store", data)
    for level in ("input", "layer"):
        job = ew.jobs.run(model, store, [0, HUB, 8], out=tmp_path / level, level=level, memory=MEMORY)
        assert not job.failed
        ours, theirs = job.of(HUB), ew.explain(model, data, HUB, level=level)
        assert "blocks of edges" in ours.settings["in_parts"]
        assert torch.allclose(ours.scores, theirs.scores, atol=1e-12)
        assert torch.allclose(ours.self_scores, theirs.self_scores, atol=1e-12, equal_nan=True)
        assert abs(ours.value - theirs.value) < 1e-12
        assert ours.target == theirs.target


def test_the_strongest_of_a_hub_are_those_of_explain(tmp_path):
    model, data = made("gcn"), hub_graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, [HUB], out=tmp_path / "job", level="layer", top=8, memory=MEMORY, target=2)
    ours, theirs = job.of(HUB), ew.explain(model, data, HUB, level="layer", top=8, target=2)
    assert torch.allclose(ours.scores, theirs.scores, atol=1e-12)
    assert int((ours.scores != 0).sum()) == 8
    assert set(job.to_frame()["in_parts"]) == {True}


def test_another_node_stands_in_for_targets_that_are_all_hubs(tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.jobs.posed_targets.LEAST_CEILING", 0)
    model, data = made("sage"), hub_graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, [HUB], out=tmp_path / "job", memory=MEMORY)
    assert torch.allclose(job.of(HUB).scores, ew.explain(model, data, HUB).scores, atol=1e-12)
    with pytest.raises(ew.ModelError, match="larger memory"):
        ew.jobs.run(model, store, [HUB], out=tmp_path / "none", memory=4)


def test_attention_is_not_worked_off_in_parts(tmp_path):
    torch.manual_seed(0)
    model = GAT(4, 6, 2, 3).double().eval()
    store = ew.GraphStore.build(tmp_path / "store", hub_graph())
    job = ew.jobs.run(model, store, [0, HUB], out=tmp_path / "job", memory=MEMORY)
    assert "neighbors=[25, 10]" in job.failed[HUB]
    named = re.search(r"edges, too many for memory=. Use memory='(\d+KB)'", job.failed[HUB])[1]
    assert not ew.jobs.run(model, store, [0, HUB], out=tmp_path / "more", memory=named).failed


def test_a_split_node_with_several_loops_is_refused(tmp_path):
    data = hub_graph()
    data.edge_index = torch.cat([data.edge_index, torch.full((2, 2), HUB)], dim=1)
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(made("gcn"), store, [0, HUB], out=tmp_path / "job", memory=MEMORY)
    assert "several of them are loops" in job.failed[HUB]


def test_a_full_disk_is_said_before_anything_is_written(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(ew.FileError, match="TMPDIR"):
        mapped_table((3, 2), torch.float32)
