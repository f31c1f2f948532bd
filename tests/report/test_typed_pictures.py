"""Pictures and pages of typed graphs: a colour and a legend entry for each type, names by type, the library's numbers."""

import re

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import browser
import edgewise as ew
from edgewise.graph.type_table import TypeTable
from edgewise.report.appearance import GROUPS
from edgewise.report.typed_look import dash_of, type_colours
from page_files import data_of, integers, scores_of
from typed_zoo import COUNTS, KINDS, typed_model

NAMES = {"user": [f"Ann {n}" for n in range(COUNTS["user"])], "genre": {1: "<b>jazz</b>"}}


@pytest.fixture(scope="module")
def question():
    return typed_model("sage sum", 1)


@pytest.fixture(scope="module", params=["input", "layer"])
def why(request, question):
    return ew.explain(*question, ("movie", 3), level=request.param)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_shown_node_has_the_colour_of_its_type_and_its_number_in_it(why):
    figure = why.plot()
    colours = dict(zip(why.types.node_types, GROUPS, strict=False))
    spots = [part for part in figure.axes[0].collections if str(part.get_gid()).startswith("node-")]
    assert spots
    shown = set()
    for spot in spots:
        name, _ = why.types.node(int(spot.get_gid().split("-")[2]))
        assert to_hex(spot.get_facecolor()[0]) == colours[name]
        shown.add(name)
    assert shown <= set(legend(figure))
    assert "explained node" in legend(figure)
    written = [text.get_text() for text in figure.axes[0].texts]
    numbers = {str(why.types.node(int(spot.get_gid().split("-")[2]))[1]) for spot in spots}
    assert numbers <= set(written)
    assert "movie 3, class" in figure.get_suptitle()


def test_the_legend_names_the_edge_types_that_are_drawn(why):
    drawn = {entry.edge_type for entry in why.top(30, by="magnitude")}
    told = {text for text in legend(why.plot(edges=30)) if "→" in text}
    assert told == {f"{source} –{relation}→ {target}" for source, relation, target in drawn}


def test_names_are_given_by_type_and_marked_nodes_by_type_and_number(why):
    figure = why.plot(labels=NAMES, marked={"odd": [("movie", 3)]})
    assert any(text.get_text().startswith("Ann ") for text in figure.axes[0].texts)
    assert "odd" in legend(figure)
    for wrong in (["a"] * 4, {"film": ["a"]}):
        with pytest.raises(ew.InputError, match=r"must be a mapping .node type: names"):
            why.plot(labels=wrong)
    with pytest.raises(ew.InputError, match="must have one entry for each of the 9 nodes"):
        why.plot(labels={"user": ["Ann"]})
    with pytest.raises(ew.InputError, match="colours of their types"):
        why.plot(classes=[0])
    with pytest.raises(ew.InputError, match="by type and number"):
        why.plot(marked={"odd": [3]})


def test_relations_between_the_same_types_have_different_lines():
    torch.manual_seed(0)
    data, kinds = (
        HeteroData(),
        [("user", name, "item") for name in ("buys", "sees", "likes")] + [("item", "to", "item")],
    )
    data["user"].x, data["item"].x = torch.randn(4, 2), torch.randn(3, 2)
    for kind in kinds:
        data[kind].edge_index = torch.stack([torch.arange(3), torch.zeros(3, dtype=torch.long)])
    with pytest.warns(UserWarning, match="do not get updated"):
        model = HeteroConv({kind: SAGEConv((2, 2), 3) for kind in kinds}).eval()
    figure = ew.explain(model, data, ("item", 0)).plot()
    arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len({str(arrow.get_linestyle()) for arrow in arrows}) == 3
    dashes = dash_of(TypeTable.of(data, "item"))
    assert dashes[kinds[0]] == dashes[kinds[3]] == ()
    assert len({dashes[kind] for kind in kinds[:3]}) == 3


def test_every_one_of_many_types_has_a_colour_of_its_own():
    colours = type_colours(TypeTable("0", tuple((str(n), 1) for n in range(25)), ()))
    assert len(set(colours.values())) == 25


def test_a_notebook_shows_types(why):
    text = why._repr_html_()
    assert "<img" in text
    assert re.search(r"(user|genre|movie) \d+ –\w+→ (user|genre|movie) \d+", text)


# --- pages --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(question, tmp_path_factory):
    path = tmp_path_factory.mktemp("typed") / "why.html"
    options = {"methods": ["gradient", "occlusion"], "walks": 0, "check": False}
    return ew.write_page(path, *question, ("movie", [3, 0]), node_names=NAMES, **options)


def test_a_page_holds_the_scores_and_names_of_typed_edges(question, page):
    told = data_of(page)
    assert told["title"] == "Why these 2 nodes of type movie?"
    assert [kind["name"] for kind in told["kinds"]] == [f"{a} –{b}→ {c}" for a, b, c in KINDS]
    for record, number in zip(told["targets"], (3, 0), strict=True):
        assert record["title"] == f"movie {number}"
        for level in ("input", "layer"):
            scores = scores_of(told, record, level)
            for place, method in enumerate(told["methods"]):
                why = ew.explain(*question, ("movie", number), method=method, level=level)
                for item, (kind, column) in enumerate(
                    zip(integers(record["kind"]), integers(record["column"]), strict=True)
                ):
                    expected = why.scores[KINDS[kind]][..., column].reshape(-1)
                    torch.testing.assert_close(scores[place, :, item], expected.float(), rtol=1e-5, atol=1e-6)
        groups = dict(record["groups"])
        assert set(groups) <= {"user", "movie", "genre"}
        for name, colour in zip(record["names"], record["fill"], strict=True):
            assert groups[name.split()[0]] == colour
    assert "user Ann 5" in str(told["targets"])


def test_a_page_shows_walks_over_typed_edges(question, tmp_path):
    options = {"methods": ["gradient"], "levels": ["input"], "walks": 3, "check": False}
    told = data_of(ew.write_page(tmp_path / "walks.html", *question, ("movie", 3), **options))
    (record,) = told["targets"]
    walks = ew.walks(*question, ("movie", 3), k=3)
    assert [walk["score"] for walk in record["walks"]] == pytest.approx([walk.score for walk in walks], rel=1e-5)
    for shown, walk in zip(record["walks"], walks, strict=True):
        assert [record["names"][node] for node in shown["nodes"]] == [f"{kind} {number}" for kind, number in walk.nodes]


def test_a_page_of_one_typed_node_is_named_after_it(question, tmp_path):
    few = {"methods": ["gradient"], "levels": ["input"], "walks": 0, "check": False}
    path = ew.write_page(tmp_path / "one.html", *question, ("user", 2), node_names=NAMES, **few)
    assert data_of(path)["title"] == "Why user Ann 2?"
    assert "node task of type user" in path.read_text(encoding="utf-8")
    with pytest.raises(ew.InputError, match="colours of their types"):
        ew.write_page(tmp_path / "two.html", *question, ("user", 2), node_classes=[0] * 9, **few)


def test_a_browser_shows_types_in_legends_tables_and_tooltips(page):
    with browser.chromium() as chromium, browser.opened(chromium, page) as shown:
        assert shown.page.inner_text("#verdict").startswith("movie 3: the model says")
        assert shown.page.locator("#target option").all_inner_texts()[1].startswith("movie 0: class")
        told = shown.page.inner_text("#graph-legend")
        assert "explained node" in told
        assert "user" in told
        assert "user –rates→ movie" in told
        rows = shown.page.locator("#edges-table tbody tr td:nth-child(2)").all_inner_texts()
        assert rows
        assert all(re.fullmatch(r"\w+ .+ –\w+→ \w+ .+", row) for row in rows)
        lines = shown.source("graph-edges")
        strongest = len(lines["xs"]) - 1
        middle = len(lines["xs"][strongest]) // 2
        title, numbers = shown.hover("graph", lines["xs"][strongest][middle], lines["ys"][strongest][middle])
        assert title.startswith(rows[0])
        assert set(numbers) == {"gradient", "occlusion"}
        shown.page.select_option("#level", "layer")
        shown.page.select_option("#target", "1")
        assert shown.page.inner_text("#verdict").startswith("movie 0: the model says")
        assert shown.complaints == []
