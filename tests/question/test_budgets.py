"""`memory=` is a ceiling: what a question holds counts, a target that does not fit is refused before the work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

import edgewise as ew
import zoo
from checks import assert_close, scores_of
from edgewise.graph import joined_graphs
from edgewise.graph.computation_graph import InEdges, reach
from edgewise.graph.copies import side_by_side
from edgewise.question import freed_memory, graph_question, subject
from edgewise.question.block_growth import walk_counts
from edgewise.question.memory import LEAST_CEILING, amount, blocks, held_bytes, room

ROOT = Path(__file__).parents[2]


def star(leaves, width):
    """Many nodes that all send to node 0, with wide features."""
    data = zoo.graph([(leaf, 0) for leaf in range(1, leaves + 1)], leaves + 1)
    data.x = torch.zeros(leaves + 1, width)
    return data


def chain(conv, width, **options):
    with torch.random.fork_rng():
        wide = 4 * options.get("heads", 1)
        return zoo.Chain(conv(width, 4, **options), conv(wide, 3, **options), act=torch.relu).eval()


def posed(model, data, index, **options):
    return ew.Score(model, data, index, **options)._question


@pytest.mark.parametrize("seed", range(4))
def test_no_target_sees_more_edges_than_walks_lead_to_it(seed):
    edges = torch.tensor(zoo.random_edges(40, 150, seed)).t()
    graph = InEdges.of(edges, 40)
    for steps in (1, 2, 3):
        near = reach(graph, torch.arange(40), steps)
        degree = graph.start.diff()[near.node] * (near.hops < steps)
        seen = torch.bincount(near.target, weights=degree.double(), minlength=40)
        assert (seen <= walk_counts(graph, steps)).all()


def test_every_target_is_in_one_block_and_blocks_keep_to_the_budget():
    data, model = star(400, 8), chain(GATv2Conv, 8, heads=8)
    question = posed(model, data, range(401))
    for memory in (2**16, 2**20, 2**24):
        sizes = []
        with question.borrowed():
            for block in blocks(question, memory, None):
                question.engine(block)
                sizes.append(block.tolist())
                table = 4 * question.lowering.in_edges.num_nodes * len(block)
                assert len(block) == 1 or question.lowering.last_block_bytes + table <= 1.1 * memory
        assert [position for block in sizes for position in block] == list(range(401))
        assert len(sizes) > 1 or memory == 2**24


def test_a_pass_that_does_not_fit_is_refused_with_the_budget_that_does():
    data, model = star(3000, 1500), chain(SAGEConv, 1500, aggr="max")  # not lowered: messages of 1,500 numbers
    with pytest.raises(ew.SettingError, match=r"memory is 128MB, but one .* Use memory='(\d+)MB'") as refused:
        ew.explain(model, data, [0], memory="128MB")
    enough = str(refused.value).split("'")[1]
    assert len(ew.explain(model, data, [0], memory=enough)) == 1
    assert len(ew.explain(model, data, [0])) == 1  # without a budget nothing is refused


def test_what_a_question_holds_counts():
    question = posed(chain(GCNConv, 3000), star(3000, 3000), range(10))
    held = held_bytes(question)
    assert held >= 3001 * 3000 * 4
    assert room(question, "512MB") == 512 * 2**20 - held - 24 * 2**20
    with pytest.raises(ew.SettingError, match="Use memory="):
        room(question, LEAST_CEILING, more=2**30)


def many_graphs(count):
    return [zoo.graph(zoo.random_edges(9, 20, seed), 9) for seed in range(count)]


def test_batches_of_a_long_list_are_those_of_a_short_one(monkeypatch):
    graphs, held = [Data(x=graph.x, edge_index=graph.edge_index) for graph in many_graphs(6)], {}
    for most in (2**24, 0):
        monkeypatch.setattr(joined_graphs, "MOST_KEPT", most)
        held[most] = joined_graphs.JoinedGraphs(graphs, simple=True)
    assert held[2**24]._joined is not None
    assert held[0]._joined is None
    for part in (torch.arange(6), torch.tensor([2, 3, 4]), torch.tensor([5]), torch.tensor([4, 1, 4])):
        one, other = (joined.take(part) for joined in held.values())
        by_pyg = side_by_side([graphs[i] for i in part.tolist()])
        assert torch.equal(one.data.edge_index, by_pyg.data.edge_index)
        assert torch.equal(one.edge_id, by_pyg.edge_id)
        assert torch.equal(one.self_node, by_pyg.self_node)
        assert one.data.to_dict().keys() == other.data.to_dict().keys()
        for name in ("x", "edge_index", "batch"):
            assert torch.equal(one.data[name], other.data[name])
        for name in ("rows", "edge_id", "owner", "edge_place", "self_node", "self_owner", "self_place"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_graphs_are_run_in_portions_and_give_the_same_scores(monkeypatch):
    model, graphs = zoo.GRAPH_BY_NAME["mean_pool"].build(), many_graphs(7)
    expected = ew.explain(model, graphs, task="graph", level="layer")
    question = posed(model, graphs, range(7), task="graph")
    monkeypatch.setattr(graph_question, "_PORTION", 2 * question.edge_bytes * 20)
    portions = [part.tolist() for part in question._portions()]
    assert [graph for part in portions for graph in part] == list(range(7))
    assert len(portions) > 2
    found = ew.explain(model, graphs, task="graph", level="layer")
    assert_close(scores_of(found), scores_of(expected), 1e-12)


def test_a_change_in_a_long_list_of_graphs_is_noticed_and_missing_labels_are_none(monkeypatch):
    monkeypatch.setattr(subject, "MOST_KEPT", 0)
    graphs = many_graphs(3)
    for graph in graphs:
        graph.y = torch.tensor([float("nan"), 1.0])
    mark = subject.DataMark(graphs)
    assert mark.changed(graphs) == ""
    graphs[1].x[0, 0] += 1
    assert mark.changed(graphs) == "data.x"


def _edited(name, value):
    def edit(graphs):
        graphs[1][name] = value(graphs[1])

    return edit


EDITS = {
    "a number": (_edited("x", lambda graph: graph.x.index_fill(0, torch.tensor([2]), 0.5)), "data.x"),
    "a type": (_edited("x", lambda graph: graph.x.float()), "data.x"),
    "a shape": (_edited("edge_index", lambda graph: graph.edge_index[:, 1:]), "data.edge_index"),
    "a new attribute": (_edited("weight", lambda graph: graph.x[0]), "data.weight"),
    "a plain value": (_edited("name", lambda graph: "b"), "data.name"),
    "a plain value's type": (_edited("count", lambda graph: True), "data.count"),
    "one graph less": (lambda graphs: graphs.pop(), "the number of graphs"),
}


@pytest.mark.parametrize("what", EDITS)
def test_any_change_in_a_short_list_of_graphs_is_noticed_and_named(what):
    graphs = many_graphs(3)
    for graph in graphs:
        graph.name, graph.count, graph.y = "a", 1, torch.tensor([float("nan"), 1.0])
    mark, (edit, named) = subject.DataMark(graphs), EDITS[what]
    assert mark._joined is not None
    assert mark.changed(graphs) == ""
    edit(graphs)
    assert mark.changed(graphs) == named


def test_freed_memory_is_asked_for_when_resident_memory_has_grown(monkeypatch):
    asked, size = [], iter([100, 108, 120, 120])
    monkeypatch.setattr(freed_memory, "_trim_function", lambda: asked.append)
    monkeypatch.setattr(freed_memory, "resident_bytes", lambda: next(size))
    freed = freed_memory.FreedMemory(80)  # an eighth of it is 10
    freed.give_back()
    assert asked == []
    freed.give_back()
    assert asked == [0]


def test_amounts_are_read_back():
    assert amount(130 * 2**20 + 1) == "131MB"
    assert amount(2000) == "2KB"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.skipif("EDGEWISE_DATA" not in os.environ, reason="needs Cora")
@pytest.mark.parametrize("model", ["GCN", "GATv2", "graph-wide norm", "links of Cora", "2,000 graphs, GCN"])
@pytest.mark.parametrize("case", ["gradient", "features", "gnn_explainer"])
def test_resident_memory_stays_within_the_budget(model, case):
    command = [sys.executable, "-m", "benchmarks.memory", model, case, "128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert '"holds": true' in done.stdout, done.stdout
