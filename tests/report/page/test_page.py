"""Pages: the numbers in the file are those of the library, texts are escaped, nothing is loaded, bad input leaves no file."""

import re
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid, TUDataset
from torch_geometric.nn import GCN, GCNConv
from torch_geometric.utils import from_smiles

import edgewise as ew
import page_files
import zoo
from footprint import Footprint
from page_files import data_of, floats, integers, scores_of

METHODS = ["gradient", "gnn_explainer", "random"]
pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=16)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "why.html"


@settings(max_examples=settings().max_examples // 4)  # a page takes a second
@given(edges=pairs, kept=st.integers(1, 4))
def test_a_page_holds_the_strongest_scores_of_every_method_as_explain_gives_them(tmp_path_factory, edges, kept):
    path, data = tmp_path_factory.mktemp("page") / "why.html", zoo.graph(edges, 6)
    model = zoo.BY_NAME["gcn"].build()
    ew.write_page(path, model, data, methods=METHODS, edges=kept, epochs=3, check=False, walks=0)
    told = data_of(path)
    for level in ("input", "layer"):
        found = [ew.explain(model, data, method=name, level=level, **_own(name)) for name in METHODS]
        matters = ew.explain(model, data, method="full", level=level)
        for position, record in enumerate(told["targets"]):
            shape = (1 if level == "input" else told["layers"], len(edges))
            dense = [part[position].scores.view(shape) for part in found]
            dense[2] = dense[2] * (matters[position].scores.view(shape) != 0)  # random is drawn on every edge
            _assert_kept(told, record, level, torch.stack(dense), kept)


def _own(name):
    return {"epochs": 3} if name == "gnn_explainer" else {}


def _assert_kept(told, record, level, dense, kept):
    columns, numbers = integers(record["column"]), scores_of(told, record, level)
    assert torch.equal(numbers[:2], dense[:2, :, columns].float())
    views = {level: dense.sum(dim=1)} | {f"layer {l}": dense[:, l] for l in range(dense.size(1)) if level == "layer"}
    for view, scores in views.items():
        for method, row in enumerate(scores):
            magnitude = row.abs()
            rest = magnitude[[column for column in range(len(magnitude)) if column not in columns]]
            assert rest.count_nonzero() == 0 or (magnitude[columns] >= rest.max()).sum() >= kept
            count, total, signed = record["totals"][view][method]
            assert count == row.count_nonzero()
            assert total == pytest.approx(float(magnitude.sum()), rel=1e-5, abs=1e-6)
            assert signed == pytest.approx(float(row.sum()), rel=1e-5, abs=1e-6)


@pytest.fixture(scope="module", params=page_files.KINDS)
def kind(request, tmp_path_factory):
    """(kind, model, data, what the page tells)."""
    path = tmp_path_factory.mktemp("page") / "why.html"
    return request.param, *page_files.write(path, request.param, walks=2), data_of(path)


def test_self_scores_are_those_of_explain(kind):
    name, model, data, told = kind
    options = {"task": told["task"], "mode": told["mode"], "target": [record["target"] for record in told["targets"]]}
    for level in ("input", "layer"):
        found = ew.explain(model, [data] if name == "one_graph" else data, level=level, **options)
        for record, why in zip(told["targets"], found, strict=True):
            nodes = [integers(record["nodes"])[place] for place in integers(record["ownNode"])]
            own = scores_of(told, record, level, "own")
            if why.self_scores is None:
                assert not nodes
                continue
            expected = why.self_scores.view(-1, why.num_nodes)
            torch.testing.assert_close(own[0], expected[:, nodes].float(), equal_nan=True)
            assert own[2].isnan().all()  # random has none
            assert set(expected.nan_to_num().nonzero()[:, 1].tolist()) <= set(nodes)


def test_walks_predictions_and_agreement_are_those_of_the_library(path):
    model, data = page_files.write(path, "loops_and_parallel_edges", walks=3, methods=["gradient", "occlusion"])
    told, index = data_of(path), range(data.num_nodes)
    with torch.no_grad():
        chances = model(data.x, data.edge_index).softmax(dim=1)
    compared = ew.compare(model, data, methods=["gradient", "occlusion"], yardsticks=False, by="magnitude")
    for record, walks, chance in zip(told["targets"], ew.walks(model, data, index, k=3), chances, strict=True):
        nodes = integers(record["nodes"])
        assert [tuple(nodes[place] for place in walk["nodes"]) for walk in record["walks"]] == [w.nodes for w in walks]
        assert [walk["score"] for walk in record["walks"]] == pytest.approx([w.score for w in walks], rel=1e-6)
        assert record["chances"] == pytest.approx(chance.tolist(), rel=1e-6)
        assert record["target"] == int(chance.argmax())
        assert record["certain"]
    assert len(told["agreement"]) == 4 * (1 + 1 + told["layers"])
    for part in told["agreement"]:
        pair = compared.pair("gradient", "occlusion", part["measure"], part["level"], part["layer"])
        each = floats(part["each"], len(index), 2, 2)[:, 0, 1]
        torch.testing.assert_close(each, pair.value[0].float(), equal_nan=True)
        mean = part["mean"][0][1]
        assert (torch.nan if mean is None else mean) == pytest.approx(pair.mean, rel=1e-6, nan_ok=True)


def test_every_kind_of_graph_gives_a_page_whose_places_fit(kind):
    for record in kind[-1]["targets"]:
        size = len(integers(record["nodes"]))
        assert len(record["inside"]) == len(record["fill"]) == size
        assert sorted(integers(record["rows"])) == list(range(size))
        ends = [*integers(record["source"]), *integers(record["receiver"]), *integers(record["ways"])]
        assert all(0 <= place < size for place in ends)
        assert floats(record["place"], size, 2).isfinite().all()
        for layouts in record["views"].values():
            assert all(0 <= place < size for nodes, _ in layouts for place in integers(nodes))
            assert all(floats(spots, -1, 2).isfinite().all() for _, spots in layouts)


def test_what_a_method_or_the_walks_refuse_is_said_on_the_page(path):
    model, data = zoo.BY_NAME["jumping_cat"].build(), zoo.GRAPHS["directed"]()
    ew.write_page(path, model, data, [3], methods=["gradient", "goat_walks"], check=False)
    told = data_of(path)
    assert [(name, level) for name, level, _ in told["absent"]] == [("goat_walks", "input"), ("goat_walks", "layer")]
    with pytest.raises(ew.ModelError) as refused:
        ew.walks(model, data, [3])
    assert told["noWalks"] == str(refused.value)
    assert not told["targets"][0]["walks"]
    with pytest.raises(ew.ModelError, match="early layers"):
        ew.write_page(path, model, data, [3], methods=["goat_walks"], levels=["input"])


def test_a_report_of_check_and_the_settings_stand_on_the_page(path):
    model, data = page_files.write(
        path, "loops_and_parallel_edges", check=True, settings={"data": "a<b>.pt"}, methods=["gnn_explainer"], epochs=2
    )
    text = path.read_text(encoding="utf-8")
    assert ew.check(model, data)._repr_html_() in text
    assert "epochs=2" in text
    assert "a&lt;b&gt;.pt" in text


EVIL = "<script>alert(1)</script>"


def test_texts_from_data_are_escaped(path):
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    texts = {"node_names": [EVIL] * 7, "node_classes": [EVIL] * 7, "class_names": [EVIL] * 3, "title": EVIL}
    ew.write_page(path, model, data, [1], **page_files.FEW, **texts, settings={EVIL: EVIL})
    text = path.read_text(encoding="utf-8")
    assert EVIL not in text
    told = data_of(path)
    assert told["title"] == told["classes"][0] == EVIL
    assert told["targets"][0]["outside"][0] == f"{EVIL} (0)"  # a name that is there twice has its number


def test_a_page_loads_nothing(path):
    page_files.write(path, "one_logit")
    text = path.read_text(encoding="utf-8")
    outside_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "default-src 'none'" in outside_scripts  # a browser refuses whatever a script would ask for
    assert not re.search(r"<(script|link|img|iframe)[^>]*\b(src|href)=", text.replace(_bokeh(), ""))
    assert not re.search(r"url\(|@import|https?:", outside_scripts)


def _bokeh():
    from edgewise.report.page.html import inline_script

    return inline_script()


@pytest.mark.slow
def test_thirty_nodes_of_cora_with_five_methods_stay_small(path, raw_data):
    data = Planetoid(raw_data("Cora"), "Cora", split="geom-gcn")[0]
    torch.manual_seed(0)
    hub = int(torch.bincount(data.edge_index[1]).argmax())
    ew.write_page(path, GCN(1433, 16, 3, 7), data, [hub, *range(29)], epochs=3)
    told = data_of(path)
    assert (len(told["targets"]), len(told["methods"])) == (30, 5)
    assert path.stat().st_size < 5e6
    assert max(len(integers(record["nodes"])) for record in told["targets"]) > 150  # the hub is not a toy


def test_molecules_are_drawn_with_a_colour_for_every_bond_and_atom(path, raw_data):
    data = TUDataset(raw_data("MUTAG"), "MUTAG")[[10]]
    model = _pooled(7)
    ew.write_page(path, model, data, **page_files.FEW)
    record = data_of(path)["targets"][0]
    bonds, atoms = data[0].edge_index.size(1) // 2, data[0].num_nodes
    assert set(re.findall(r"var\(--b(\d+),", record["molecule"]["svg"])) == {str(bond) for bond in range(bonds)}
    assert set(re.findall(r"var\(--a(\d+),", record["molecule"]["svg"])) == {str(atom) for atom in range(atoms)}
    nodes = integers(record["nodes"])
    drawn = {frozenset(nodes[place] for place in bond) for bond in record["molecule"]["bonds"]}
    assert drawn == {frozenset(pair) for pair in data[0].edge_index.t().tolist()}
    assert {re.sub(r"\d", "", name) for name in record["inside"]} <= {"C", "N", "O", "F", "I", "Cl", "Br"}


def _pooled(width):
    torch.manual_seed(0)
    return zoo.Pooled(GCNConv(width, 4), GCNConv(4, zoo.WIDTH)).eval()


@pytest.mark.parametrize(("smiles", "is_drawn"), [("CCO", True), ("CC", False), (None, False)])
def test_only_what_is_a_molecule_is_drawn_as_one(path, smiles, is_drawn):
    data = from_smiles("CCO")
    data.x, data.smiles = data.x.float(), smiles
    ew.write_page(path, _pooled(9), [data], **page_files.FEW)
    assert (data_of(path)["targets"][0]["molecule"] is not None) is is_drawn


def test_names_and_classes_of_graphs_belong_to_each_graph(path):
    page_files.write(path, "several_graphs", node_names={1: ["Ada"]}, class_names={0: "no"})
    told = data_of(path)
    assert [record["inside"] for record in told["targets"]][1] == ["Ada"]
    assert told["targets"][0]["inside"] == [str(node) for node in range(7)]
    assert told["classes"][:2] == ["no", "class 1"]


def test_classes_of_nodes_have_the_names_of_the_classes_and_a_title_has_room(path):
    title = "Why does the model believe that node 1 belongs to the first class of all?"
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    classes = {"node_classes": torch.tensor([0, 1, 2, 0, 1, 2, 7]), "class_names": ("red", "green", "blue")}
    ew.write_page(path, model, data, 1, title=title, **classes, **page_files.FEW)
    told = data_of(path)
    assert {name for name, _ in told["targets"][0]["groups"]} <= {"red", "green", "blue", "class 7"}
    assert {"red", "green"} <= {name for name, _ in told["targets"][0]["groups"]}
    assert told["title"] == title


def test_the_task_and_a_given_class_are_understood(path):
    model, data = zoo.GRAPH_BY_NAME["sum_pool"].build(), page_files.GRAPH_KINDS["several_graphs"][1]
    assert ew.write_page(str(path), model, data, [0, 2], target=1, **page_files.FEW) == path
    told = data_of(path)
    assert told["task"] == "graph"
    assert [(record["index"], record["target"]) for record in told["targets"]] == [(0, 1), (2, 1)]


MODEL, GRAPH = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
BIG = Data(x=torch.randn(100, zoo.FEATURES, dtype=torch.float64), edge_index=GRAPH.edge_index)


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (BIG, {}, "at most 60 targets of a page, got 100.*index=range"),
        (GRAPH, {"index": []}, "index"),
        (GRAPH, {"index": [99]}, "99"),
        (GRAPH, {"methods": ["gradiant"]}, "Did you mean 'gradient'"),
        (GRAPH, {"methods": []}, "at least one"),
        (GRAPH, {"epoch": 3}, "No method on the page has a setting 'epoch'.*epochs"),
        (GRAPH, {"epochs": 0}, "epochs.*0"),
        (GRAPH, {"levels": ["edge"]}, "level.*'edge'"),
        (GRAPH, {"target": "best"}, "'predicted'"),
        (GRAPH, {"edges": 0}, "`edges` must be an integer ≥ 1, got 0"),
        (GRAPH, {"walks": -1}, "`walks` must be an integer ≥ 0, got -1"),
        (GRAPH, {"class_names": ["a"]}, "each of the 3"),
        (GRAPH, {"node_names": ["a"]}, "7 nodes"),
        ([GRAPH], {"node_names": []}, "graph 0"),
    ],
)
def test_bad_input_names_the_fix_and_leaves_no_file(path, data, options, says):
    options = {"methods": ["gradient", "gnn_explainer"], "epochs": 2, "check": False, **options}
    if "epoch" in options:
        del options["epochs"]
    model = zoo.GRAPH_BY_NAME["sum_pool"].build() if isinstance(data, list) else MODEL
    with pytest.raises(ew.EdgewiseError, match=re.compile(says, re.DOTALL)):
        ew.write_page(path, model, data, **options)
    assert not list(path.parent.iterdir())


def test_a_folder_that_is_not_there_is_an_error_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.api.write_page.find", lambda *_, **__: pytest.fail("work was done"))
    with pytest.raises(ew.FileError, match="cannot be written"):
        ew.write_page(tmp_path / "nowhere" / "why.html", MODEL, GRAPH)


def test_a_page_needs_bokeh(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh.resources", None)
    with pytest.raises(ew.MissingExtraError, match=r"edgewise\[page\]"):
        ew.write_page(path, MODEL, GRAPH)


def test_a_page_leaves_no_trace(path):
    model, data = zoo.BY_NAME["gcn"].build().train(), zoo.GRAPHS["everything"]()
    before = Footprint(model, data)
    ew.write_page(path, model, data, [1], methods=["gradient", "gnn_explainer"], epochs=2)
    before.assert_unchanged()
    with pytest.raises(ew.InputError):
        ew.write_page(path, model, data, [1], methods=["gradient"], node_names=["too few"], check=False)
    before.assert_unchanged()
    assert [Path(name).name for name in path.parent.iterdir()] == ["why.html"]
