"""Questions about a graph on disk: the same numbers as in memory, from a part of the files."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SAGEConv

import edgewise as ew
from edgewise.api.explain import explain_question
from edgewise.graph import cut
from edgewise.graph.source import cut_from
from edgewise.question.moved_model import ModelNeeded, MovedModel
from edgewise.store.store_source import StoreSource

NODES, TARGETS = 200, [5, 9, 30, 77]
MODELS = {
    "gcn": lambda: GCN(4, 6, 3, 3),
    "improved": lambda: GCN(4, 6, 2, 3, improved=True),
    "sage": lambda: GraphSAGE(4, 6, 3, 3),
    "sum": lambda: GraphSAGE(4, 6, 2, 3, aggr="sum", jk="cat"),
    "gin": lambda: GIN(4, 6, 2, 3),
    "gat": lambda: GAT(4, 6, 2, 3),
}
MOVING = ("gcn", "improved", "sage", "sum", "gin")


@pytest.fixture(autouse=True)
def _double(double):
    """Everything in float64."""


def random_graph(seed=0, loops=True):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, NODES, (2, 3 * NODES), generator=generator)
    own = torch.randint(0, NODES, (15,), generator=generator).repeat(2, 1) if loops else ends[:, :0]
    ends = torch.cat([ends, own, torch.tensor([[5, 5, 9], [5, 5, 9]]) if loops else ends[:, :0]], dim=1)
    ends = ends[:, torch.randperm(ends.size(1), generator=generator)]
    x = torch.randn(NODES, 4, generator=generator)
    return Data(x=x, edge_index=ends, y=torch.arange(NODES) % 3, test_mask=torch.arange(NODES) % 50 == 0)


def model_of(name):
    torch.manual_seed(1)
    return MODELS[name]().eval()


def largest(a, b):
    return max(float((one.scores - other.scores).abs().max()) for one, other in zip(a, b, strict=True))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_explanations_are_those_of_the_graph_in_memory(tmp_path, name, method):
    data, model = random_graph(), model_of(name)
    store = ew.GraphStore.build(tmp_path / "store", data)
    ours, theirs = (ew.explain(model, graph, TARGETS, method=method, level="layer") for graph in (store, data))
    assert largest(ours, theirs) < 1e-12
    assert torch.allclose(ours.value, theirs.value, atol=1e-12)
    assert torch.equal(ours.target, theirs.target)
    assert torch.allclose(ours[1].self_scores, theirs[1].self_scores, atol=1e-12)
    assert torch.equal(ours[0].edge_index, data.edge_index)


def test_other_verbs_take_a_store_too(tmp_path):
    data, model = random_graph(), model_of("gcn")
    store = ew.GraphStore.build(tmp_path / "store", data)
    walks = [[walk.nodes for walk in ew.walks(model, graph, 5, k=3)] for graph in (store, data)]
    assert walks[0] == walks[1]
    ours, theirs = (ew.Question(model, graph, "test") for graph in (store, data))
    assert ours.index == theirs.index == [0, 50, 100, 150]
    assert largest(ours.of([7, 9]).explain(), theirs.of([7, 9]).explain()) < 1e-12
    features = [ew.features(model, graph, 9).scores for graph in (store, data)]
    assert torch.allclose(*features, atol=1e-12)
    found = [ew.counterfactual(model, graph, 9, size=1) for graph in (store, data)]
    assert found[0].status == found[1].status
    assert ew.Score(model, store, [3, 4])(ew.Score(model, store, [3, 4]).ones()).shape == (2,)


def test_only_the_neighbourhood_is_read(tmp_path):
    path = torch.tensor([range(NODES - 1), range(1, NODES)])
    store = ew.GraphStore.build(tmp_path / "store", Data(x=torch.randn(NODES, 4), edge_index=path))
    x = store.nodes().attributes["x"]
    np.asarray(x)[150:] = np.nan  # far away from the target: reading them would be refused
    seen = []

    class Watched(np.ndarray):
        def __getitem__(self, rows):
            seen.extend(np.asarray(rows).reshape(-1).tolist())
            return np.asarray(super().__getitem__(rows))

    store.nodes().attributes["x"] = x.view(Watched)
    ew.explain(model_of("gcn"), store, 100)
    assert set(seen) <= {*range(96, 101), *range(6)}  # three hops, a rim, and the first few to find the layers on


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source", None])
@pytest.mark.parametrize("rim", ["", "nodes", "degrees"])
@pytest.mark.parametrize("seed", [0, 1])
def test_cuts_are_those_of_the_graph_in_memory(tmp_path, monkeypatch, flow, rim, seed):
    monkeypatch.setattr(cut, "_MOST", 2.0)
    data, targets = random_graph(seed), torch.tensor([3, 90])
    source = StoreSource(ew.GraphStore.build(tmp_path / "store", data, both_ways=True))
    ours, theirs = cut_from(source, targets, 2, flow=flow, rim=rim), cut.cut_out(data, targets, 2, flow=flow, rim=rim)
    assert torch.equal(ours.node_id, theirs.node_id)
    assert torch.equal(ours.edge_id, theirs.edge_id)
    assert torch.equal(ours.data.x, theirs.data.x)
    assert torch.equal(ours.data.edge_index[1], theirs.data.edge_index[1])
    differ = (ours.data.edge_index != theirs.data.edge_index).any(dim=0)
    assert not differ.any() or rim == "degrees"  # edges of the far node, which nobody sees, begin elsewhere
    assert bool((theirs.data.edge_index[0] == theirs.data.edge_index[1])[differ].all())
    again = cut_from(source, targets, 2, flow=flow, rim=rim)
    assert torch.equal(again.data.edge_index, ours.data.edge_index)  # the table was given back as zeros


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compared", [True, False])
def test_a_program_that_moves_gives_the_same_as_one_that_is_recorded(tmp_path, name, compared):
    data, model = random_graph(), model_of(name)
    asked = ew.Question(model, ew.GraphStore.build(tmp_path / "store", data), [60])._posed
    moved = asked.moved(TARGETS, compared=compared)
    assert isinstance(moved.node_model, MovedModel) == (name in MOVING)
    for method in ("gradient", "occlusion"):
        found = explain_question(moved, method=method, level="layer")
        assert largest(found, ew.explain(model, data, TARGETS, method=method, level="layer")) < 1e-12
    if name in MOVING:
        with pytest.raises(ModelNeeded):
            moved.copies(torch.arange(2))


class Clamped(torch.nn.Module):
    """Reads its features through a function that changes nothing around some nodes."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(x.clamp(min=-100.0), edge_index)


class Selective(torch.nn.Module):
    """Drops some edges before its layer."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index[:, edge_index[0] != edge_index[1]])


@pytest.mark.parametrize("kind", [Clamped, Selective])
def test_a_model_that_does_more_with_its_graph_is_not_moved(tmp_path, kind):
    data, model = random_graph(), kind()
    data.x[5] = -200.0
    asked = ew.Question(model, ew.GraphStore.build(tmp_path / "store", data), [60])._posed
    moved = asked.moved(TARGETS, compared=False)
    assert not isinstance(moved.node_model, MovedModel)
    assert largest(explain_question(moved), ew.explain(model, data, TARGETS)) < 1e-12


def test_values_that_differ_from_the_model_are_noticed(tmp_path, monkeypatch):
    data, model = random_graph(loops=False), model_of("gcn")
    asked = ew.Question(model, ew.GraphStore.build(tmp_path / "store", data), [60])._posed
    counts = asked.source.counts
    assert isinstance(asked.moved(TARGETS).node_model, MovedModel)  # the transfer is known by now
    monkeypatch.setattr(asked.source, "counts", lambda nodes: counts(nodes) + 1)
    found = asked.moved(TARGETS)
    assert not isinstance(found.node_model, MovedModel)
    monkeypatch.undo()
    assert largest(explain_question(found), ew.explain(model, data, TARGETS)) < 1e-12


def test_files_that_change_are_noticed(tmp_path):
    model, data = model_of("gcn"), random_graph()
    ask = ew.Question(model, ew.GraphStore.build(tmp_path / "store", data), 5)
    path = tmp_path / "store" / "nodes" / "x.npy"
    path.write_bytes(path.read_bytes())
    with pytest.raises(ew.StaleQuestionError, match=r"x\.npy"):
        ask.explain()


def test_a_model_against_the_edges_needs_a_store_of_both_ways(tmp_path):
    data, model = random_graph(), SAGEConv(4, 3, flow="target_to_source")
    with pytest.raises(ew.InputError, match="both_ways=True"):
        ew.explain(model, ew.GraphStore.build(tmp_path / "one", data), 5)
    store = ew.GraphStore.build(tmp_path / "both", data, both_ways=True)
    assert torch.allclose(ew.explain(model, store, 5).scores, ew.explain(model, data, 5).scores, atol=1e-12)


def test_a_model_that_is_not_local_is_run_on_all_of_a_small_store(tmp_path):
    class Global(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(4, 3)

        def forward(self, x, edge_index):
            return self.conv(x - x.mean(dim=0), edge_index)

    data, model = random_graph(), Global()
    store = ew.GraphStore.build(tmp_path / "store", data)
    with pytest.warns(ew.LocalityWarning):
        found = ew.explain(model, store, 5)
    assert torch.allclose(found.scores, ew.explain(model, data, 5).scores, atol=1e-12)


def test_results_of_a_store_keep_only_what_they_speak_of(tmp_path):
    pytest.importorskip("pyarrow")
    data, model = random_graph(), model_of("gcn")
    found = ew.explain(model, ew.GraphStore.build(tmp_path / "store", data), TARGETS, top=3)
    for name in ("found.npz", "found.parquet"):
        found.save(tmp_path / name)
        again = ew.load(tmp_path / name)
        assert torch.equal(again[2].scores, found[2].scores)
        assert torch.equal(again[2].edge_index, data.edge_index)
        assert again.top(2) == found.top(2)
    (tmp_path / "store" / "manifest.json").unlink()
    lost = ew.load(tmp_path / "found.npz")
    with pytest.raises(ew.FileError, match="speaks of the graph store"):
        lost[2].top(2)
    assert copy.copy(lost).index.tolist() == TARGETS


def test_other_tasks_are_refused_in_words(tmp_path):
    store = ew.GraphStore.build(tmp_path / "store", random_graph())
    with pytest.raises(ew.InputError, match="node by node"):
        ew.explain(model_of("gcn"), store, [(1, 2)], task="graph")
