"""Graph tasks of typed graphs: scores by edge type of each graph are those of the user's own model on that graph alone."""

import pytest
import torch
from torch_geometric.data import Batch, Data

import edgewise as ew
from edgewise import metrics
from footprint import Footprint
from page_files import data_of
from typed_pool import KINDS, NEAR, WIDTHS, Pooled, graph


@pytest.fixture(scope="module")
def question():
    torch.manual_seed(0)
    model = Pooled().double().eval()
    return model, [graph(0), graph(1, drugs=2, genes=6), graph(2, edges=3), graph(3, drugs=7, genes=1)]


def own_value(model, data, target, weights):
    batch = {name: torch.zeros(data[name].num_nodes, dtype=torch.long) for name in WIDTHS}
    return model(data.x_dict, data.edge_index_dict, batch, weights)[0, target]


def ones(data):
    return {kind: torch.ones(2, data[kind].num_edges, dtype=torch.float64) for kind in KINDS}


def test_gradients_of_every_graph_are_those_of_the_model_on_that_graph(question):
    model, graphs = question
    tensors = [value for one in graphs for store in one.stores for value in store.values()]
    flat = Data(**{f"tensor_{number}": value for number, value in enumerate(tensors)})
    before = Footprint(model, flat)
    found = ew.explain(model, graphs, task="graph", level="layer")
    before.assert_unchanged()
    assert isinstance(found, ew.ExplanationSet)
    assert found.settings["way"] == "copies"
    assert [why.index for why in found] == [0, 1, 2, 3]
    for why, data in zip(found, graphs, strict=True):
        weights = {kind: weight.requires_grad_() for kind, weight in ones(data).items()}
        value = own_value(model, data, why.target, weights)
        assert float(value.detach()) == pytest.approx(why.value, abs=1e-10)
        for kind, true in zip(weights, torch.autograd.grad(value, list(weights.values())), strict=True):
            torch.testing.assert_close(why.scores[kind], true, rtol=0, atol=1e-10)
            assert float(true.abs().max()) > 1e-4
        assert set(why.self_scores) == set(WIDTHS)


def test_occlusion_is_a_run_without_the_message(question):
    model, graphs = question
    for why, data in zip(
        ew.explain(model, graphs, [1, 3], task="graph", method="occlusion"), graphs[1::2], strict=True
    ):
        with torch.no_grad():
            for kind in KINDS:
                for column in range(data[kind].num_edges):
                    weights = ones(data)
                    weights[kind][:, column] = 0
                    lost = why.value - float(own_value(model, data, why.target, weights))
                    assert float(why.scores[kind][column]) == pytest.approx(lost, abs=1e-9)


def test_one_graph_a_batch_and_a_forward_of_the_user_give_the_same(question):
    model, graphs = question
    several = ew.explain(model, graphs, task="graph")
    alone = ew.explain(model, graphs[2], task="graph")
    assert isinstance(alone, ew.Explanation)
    batched = ew.explain(model, Batch.from_data_list(graphs), task="graph")
    own = ew.explain(
        model,
        graphs,
        task="graph",
        forward=lambda m, d: m(d.x_dict, d.edge_index_dict, {n: d[n].batch for n in WIDTHS}),
    )
    for kind in KINDS:
        torch.testing.assert_close(alone.scores[kind], several[2].scores[kind], rtol=0, atol=1e-10)
        for one, other, third in zip(several, batched, own, strict=True):
            torch.testing.assert_close(one.scores[kind], other.scores[kind], rtol=0, atol=1e-10)
            torch.testing.assert_close(one.scores[kind], third.scores[kind], rtol=0, atol=1e-10)
    ask = ew.Question(model, graphs, [1], task="graph")
    torch.testing.assert_close(ask.of(2).explain().scores[NEAR], alone.scores[NEAR], rtol=0, atol=1e-10)
    assert ask.index == [1]
    changed = [*graphs]
    ask = ew.Question(model, changed, 0, task="graph")
    changed[0] = graph(9)
    with pytest.raises(ew.StaleQuestionError):
        ask.explain()


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_files_and_tables_name_types_of_each_graph(question, tmp_path, ending):
    model, graphs = question
    found = ew.explain(model, graphs, [3, 0, 2], task="graph", level="layer")
    found.save(tmp_path / f"typed.{ending}")
    again = ew.load(tmp_path / f"typed.{ending}")
    for one, other in zip(found, again, strict=True):
        assert one.index == other.index
        for kind in KINDS:
            assert torch.equal(one.scores[kind], other.scores[kind])
    for row in again[1:].to_rows():
        kind = tuple(row["edge_type"].split("__"))
        data = graphs[row["index"]]
        assert data[kind].edge_index[:, row["column"]].tolist() == [row["source"], row["receiver"]]
        assert (row["source_type"], row["receiver_type"]) == (kind[0], kind[2])
        assert float(again.of(row["index"]).scores[kind][row["layer"], row["column"]]) == row["score"]


def test_metrics_similarity_check_and_pages_take_typed_graphs(question, tmp_path):
    model, graphs = question
    found = ew.explain(model, graphs, task="graph")
    assert torch.allclose(ew.similarity(found, found), torch.ones(4, dtype=torch.float64))
    result = metrics.fidelity(found, model, graphs, k=2)
    why, weights = found[1], ones(graphs[1])
    for row in why.top(2):
        column, kind = row.column, row.edge_type
        weights[kind][:, column] = 0
    with torch.no_grad():
        lost = why.value - float(own_value(model, graphs[1], why.target, weights))
    assert float(result.plus.value[1]) == pytest.approx(lost, abs=1e-9)
    result = metrics.fidelity(found, model, graphs, k=2, how="removing")
    gone = graphs[1].clone()
    for kind in KINDS:
        kept = torch.ones(gone[kind].num_edges, dtype=torch.bool)
        kept[[row.column for row in why.top(2) if row.edge_type == kind]] = False
        gone[kind].edge_index = gone[kind].edge_index[:, kept]
    with torch.no_grad():
        lost = why.value - float(own_value(model, gone, why.target, None))
    assert float(result.plus.value[1]) == pytest.approx(lost, abs=1e-9)
    assert "gene" in str(ew.check(model, graphs, [0, 1], task="graph", edges=20))
    names = [{"drug": [f"d{n}" for n in range(one["drug"].num_nodes)]} for one in graphs]
    few = {"methods": ["gradient"], "check": False, "node_names": names}
    told = data_of(ew.write_page(tmp_path / "typed.html", model, graphs, [0, 3], **few))
    assert told["title"] == "Why these 2 graphs?"
    assert "drug d3" in told["targets"][0]["names"]
    assert {name for name, _ in told["targets"][0]["groups"]} == {"drug", "gene"}
    assert "explained" not in found[0].plot(labels=names[0]).legends[0].get_texts()[0].get_text()
    assert told["noWalks"] == ""


def test_graphs_of_other_types_and_outputs_by_node_are_refused(question):
    model, graphs = question
    other = graph(5)
    del other[NEAR]
    with pytest.raises(ew.InputError, match=r"data\[1\].*must have the edge types of data\[0\]"):
        ew.explain(model, [graphs[0], other], task="graph")
    with pytest.raises(ew.InputError, match=r"data\[1\].*must be a HeteroData"):
        ew.explain(model, [graphs[0], None], task="graph")
    by_node = lambda m, d: m.one(d.x_dict, d.edge_index_dict)  # noqa: E731
    with pytest.raises(ew.ModelError, match=r"gives a dictionary.*one row for each graph"):
        ew.explain(model, graphs, task="graph", forward=by_node)
    with pytest.raises(ew.ModelError, match="rows for one graph"):
        ew.explain(model, graphs, task="graph", forward=lambda m, d: by_node(m, d)["gene"])
