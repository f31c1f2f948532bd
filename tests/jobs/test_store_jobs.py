"""Jobs over a graph on disk: the numbers of explain, the same bytes whoever does the shards, another graph refused."""

import pickle
import re

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise.graph.neighbour_sample import Bounds
from edgewise.jobs import plan, store_shards
from edgewise.jobs.digests import digest_of_model
from edgewise.jobs.live_store import LiveStore, live_store_work
from edgewise.question import moved_model

pytest.importorskip("pyarrow")
NODES = 150
INDEX = list(range(40, 100))


def random_graph(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(NODES, 4, generator=generator, dtype=torch.float64),
        edge_index=torch.randint(0, NODES, (2, 400), generator=generator),
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GCN(4, 6, 2, 3).double().eval()


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(plan, "MOST_EDGES", 320)
    monkeypatch.setattr(store_shards, "BLOCK_COST", 160)


def _bytes(folder):
    return {path.name: path.read_bytes() for path in (folder / "shards").iterdir()}


@pytest.mark.parametrize("audit", [1, 4])
def test_a_job_over_a_store_gives_what_explain_gives(tmp_path, model, small_shards, audit):
    data = random_graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, INDEX, out=tmp_path / "job", level="layer", top=8, audit=audit)
    assert len(job.shards) > 5
    theirs = ew.explain(model, data, INDEX, level="layer", top=8)
    for position in range(len(INDEX)):
        assert torch.allclose(job[position].scores, theirs[position].scores, atol=1e-12)
    compared = [job.part(shard).settings["compared"] for shard in job.shards]
    assert compared == [number % audit == 0 for number in range(len(job.shards))]
    others = ew.jobs.run(
        model, store, INDEX, out=tmp_path / "again", level="layer", top=8, audit=audit, engine="processes", workers=2
    )
    assert _bytes(job.path) == _bytes(others.path)


def test_the_model_itself_runs_on_the_shards_that_are_compared_alone(tmp_path, model, small_shards, monkeypatch):
    runs = []
    compare = moved_model.MovedModel.compare
    monkeypatch.setattr(moved_model.MovedModel, "compare", lambda self, graph: runs.append(1) or compare(self, graph))
    store = ew.GraphStore.build(tmp_path / "store", random_graph())
    every = ew.jobs.run(model, store, INDEX, out=tmp_path / "every")
    all_blocks, runs[:] = len(runs), []
    ew.jobs.run(model, store, INDEX, out=tmp_path / "some", audit=len(every.shards))
    assert 0 < len(runs) < all_blocks / 3


def test_a_job_goes_on_and_another_store_is_refused(tmp_path, model, small_shards):
    data = random_graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, INDEX, out=tmp_path / "job")
    before = _bytes(job.path)
    (tmp_path / "job" / "shards" / "shard-00001.parquet").unlink()
    ew.jobs.run(model, store, INDEX, out=tmp_path / "job")
    assert _bytes(job.path) == before
    data.x[0, 0] += 1
    with pytest.raises(ew.FileError, match=r"differs: hashes\.data"):
        ew.jobs.run(model, ew.GraphStore.build(tmp_path / "other", data), INDEX, out=tmp_path / "job")


def test_a_store_that_was_altered_is_refused_before_the_work(tmp_path, model, monkeypatch):
    monkeypatch.setattr("edgewise.store.graph_store._SMALL", 0)
    ew.GraphStore.build(tmp_path / "store", random_graph())
    path = tmp_path / "store" / "nodes" / "x.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ew.FileError, match="altered"):
        ew.jobs.run(model, ew.GraphStore(tmp_path / "store"), INDEX, out=tmp_path / "job")


def test_a_target_with_nan_around_it_fails_alone(tmp_path, model):
    data = random_graph()
    data.x[50] = torch.nan
    data.edge_index = data.edge_index[:, data.edge_index[0] != 50]  # nobody else sees it
    job = ew.jobs.run(model, ew.GraphStore.build(tmp_path / "store", data), INDEX, out=tmp_path / "job")
    assert list(job.failed) == [50]
    assert "finite" in job.failed[50]


def test_methods_that_run_the_model_itself_do(tmp_path, model):
    data = random_graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    job = ew.jobs.run(model, store, INDEX[:3], out=tmp_path / "job", method="gnn_explainer", epochs=3)
    theirs = ew.explain(model, data, INDEX[:3], method="gnn_explainer", epochs=3)
    assert torch.allclose(job[1].scores, theirs[1].scores, atol=1e-6)


def test_audit_is_for_stores(tmp_path, model):
    with pytest.raises(ew.SettingError, match="GraphStore"):
        ew.jobs.run(model, random_graph(), INDEX, out=tmp_path / "job", audit=20)
    with pytest.raises(ew.SettingError, match="audit"):
        ew.jobs.run(model, random_graph(), INDEX, out=tmp_path / "job", audit=0)


@pytest.fixture
def hub():
    """A node with 120 in-edges; the others have few."""
    data = random_graph()
    star = torch.stack([torch.arange(20, 140), torch.full((120,), 5)])
    return Data(x=data.x, edge_index=torch.cat([data.edge_index, star], dim=1))


def test_a_neighbourhood_beyond_the_memory_fails_alone_and_names_the_way_out(tmp_path, model, hub):
    store = ew.GraphStore.build(tmp_path / "store", hub)
    job = ew.jobs.run(model, store, range(4, 8), out=tmp_path / "job", memory="44KB", method="occlusion")
    assert list(job.failed) == [5]
    assert "neighbors=[25, 10]" in job.failed[5]
    named = re.search(r"memory='(\d+KB)'", job.failed[5])[1]
    assert not ew.jobs.run(model, store, [5, 4], out=tmp_path / "more", memory=named, method="occlusion").failed


def test_a_neighbourhood_beyond_the_memory_is_sampled_where_that_was_asked_for(tmp_path, model, hub):
    store = ew.GraphStore.build(tmp_path / "store", hub)
    job = ew.jobs.run(model, store, range(4, 8), out=tmp_path / "job", memory="44KB", neighbors=[25, 10])
    assert not job.failed
    marked = ["sampled" in job.of(node).settings for node in range(4, 8)]
    assert marked == [False, True, False, False]
    assert "were left out" in job.of(5).settings["sampled"]
    assert torch.allclose(job.of(4).scores, ew.explain(model, hub, 4).scores, atol=1e-12)  # the others are exact
    frame = job.to_frame()
    assert set(frame[frame["sampled"]]["index"]) == {5}
    shown = hub.edge_index[:, job.of(5).scores != 0]
    assert int((shown[1] == 5).sum()) <= 25
    again = ew.jobs.run(model, store, [7, 5], out=tmp_path / "again", memory="44KB", neighbors=[25, 10])
    assert torch.allclose(again.of(5).scores, job.of(5).scores)  # whatever else is asked


def test_a_sample_is_explained_as_the_graph_that_it_is(tmp_path, model, hub):
    store = ew.GraphStore.build(tmp_path / "store", hub)
    job = ew.jobs.run(model, store, [5], out=tmp_path / "job", memory="1KB", neighbors=[25, 10])
    part = job.part(job.shards[0])
    asked = ew.Question(model, store, 4)._posed.within(Bounds(0, (25, 10)))
    sample = asked.of([5]).cut
    graph = Data(x=sample.data.x, edge_index=sample.data.edge_index)
    alone = ew.explain(model, graph, int(sample.places(torch.tensor([5]))))
    assert torch.allclose(alone.scores, part[0].scores[sample.edge_id], atol=1e-12)
    assert abs(alone.value - part[0].value) < 1e-12


@pytest.mark.parametrize("neighbors", [[0], [], ["a"], [True]])
def test_sizes_of_samples_are_checked(tmp_path, model, hub, neighbors):
    store = ew.GraphStore.build(tmp_path / "store", hub)
    with pytest.raises(ew.SettingError, match="neighbors"):
        ew.jobs.run(model, store, [5], out=tmp_path / "job", neighbors=neighbors)


def test_the_work_travels_to_a_worker_by_the_path_of_the_store(tmp_path, model, small_shards):
    store = ew.GraphStore.build(tmp_path / "store", random_graph())
    job = ew.jobs.run(model, store, INDEX, out=tmp_path / "job", top=8)
    found = job.part(job.shards[2])
    costs = plan.costs_of(store, job.index, "node")
    asked = {
        "task": "node",
        "mode": None,
        "of": "logit",
        "output": None,
        "forward": None,
        "device": None,
        "without_itself": False,
    }
    how = {"method": "gradient", "level": "input", "top": 8, "seed": 0, "memory": None, "batch_size": None}
    question = LiveStore(model, store, job.index, costs, None, None, asked, how, 1, ())
    sent = pickle.dumps(question)
    assert len(sent) < 50_000
    hashes = {"model": digest_of_model(model), "data": store.digest}
    work = live_store_work(pickle.loads(sent), "gradient", "input", hashes)  # noqa: S301 (our own bytes)
    again = work.compute(job.shards[2])
    assert torch.equal(again.value, found.value)
    assert torch.equal(again.edges.in_order().score, found.edges.in_order().score)
    with pytest.raises(ew.FileError, match="another graph"):
        live_store_work(question, "gradient", "input", hashes | {"data": "0"})
