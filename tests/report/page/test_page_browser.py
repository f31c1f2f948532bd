"""Pages as a reader meets them: in a browser."""

import math

import pytest
import torch
from torch_geometric.datasets import Planetoid, TUDataset
from torch_geometric.nn import GCN, GCNConv

import browser
import edgewise as ew
import page_files
import zoo
from edgewise.report.scene import flat_picture

METHODS = ["gradient", "occlusion", "random"]
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A model, a graph of some size, and the page about three of its nodes."""
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randint(0, 24, (90, 2), generator=generator).unique(dim=0).tolist()
    data, model = zoo.graph(pairs, 24), zoo.BY_NAME["gcn"].build()
    path = tmp_path_factory.mktemp("page") / "why.html"
    names = [EVIL, *(f"person {number}" for number in range(1, 24))]
    ew.write_page(path, model, data, [5, 0, 7], methods=METHODS, node_names=names)
    return model, data, path


@pytest.fixture
def shown(chromium, story):
    with browser.opened(chromium, story[2]) as found:
        found.page.select_option("#method", "0")
        yield found


def number(text):
    return math.nan if text == "–" else float(text.replace("−", "-"))


@pytest.mark.parametrize("kind", page_files.KINDS)
def test_a_page_of_every_kind_opens_without_errors_and_without_a_request(chromium, tmp_path, kind):
    path = tmp_path / "why.html"
    page_files.write(path, kind)
    with browser.opened(chromium, path) as found:
        for target in range(min(found.page.locator("#target option").count(), 3)):
            if found.page.locator("#target").is_visible():
                found.page.select_option("#target", str(target))
            found.page.select_option("#level", ["layer", "input"][target % 2])
            if found.page.locator("#next").is_enabled():
                found.page.click("#next")
        assert found.complaints == []
        assert found.requests == [path.as_uri()]
        assert found.page.locator("#prediction .explained").count() == 1


def test_a_page_cannot_reach_a_network(shown):
    refused = shown.page.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    assert "Content Security Policy" in " ".join(shown.complaints)


def test_the_slider_changes_how_many_edges_are_drawn_also_by_keyboard(shown):
    slider = shown.page.locator("#count")
    for count in (3, 11):
        slider.fill(str(count))
        assert [len(shown.source(f"{figure}-edges")["xs"]) for figure in ("graph", "layers")] == [count] * 2
        assert shown.page.locator("#edges-table tbody tr").count() == count
        assert f"The {count} strongest of" in shown.page.inner_text("#graph-note")
    slider.focus()
    shown.page.keyboard.press("ArrowRight")
    assert len(shown.source("graph-edges")["xs"]) == 12
    assert shown.page.inner_text("#count-value") == "12"


@pytest.mark.parametrize(("level", "layer"), [("input", None), ("layer", None), ("layer", 1)])
def test_hovering_an_edge_shows_its_numbers_under_every_method(shown, story, level, layer):
    model, data, _ = story
    shown.page.select_option("#level", level)
    if layer is not None:
        shown.page.select_option("#layer", str(layer))
    shown.page.locator("#count").fill("1")  # nothing in the way
    edges = shown.source("graph-edges")
    middle = len(edges["xs"][0]) // 2
    title, rows = shown.hover("graph", edges["xs"][0][middle], edges["ys"][0][middle])
    why = {name: ew.explain(model, data, 5, method=name, level=level) for name in METHODS}
    scores = {name: one.edge_scores() if layer is None else one.scores[layer] for name, one in why.items()}
    column = int(scores["gradient"].abs().argmax())
    source, receiver = data.edge_index[:, column].tolist()
    one, other = (EVIL if node == 0 else f"person {node}" for node in (source, receiver))
    assert title.startswith(f"{one} → {other}")
    assert list(rows) == METHODS
    for name in METHODS[:2]:
        assert number(rows[name]) == pytest.approx(float(scores[name][column]), rel=1e-3)


def test_hovering_a_step_of_the_unrolled_view_shows_that_layers_numbers(shown, story):
    model, data, _ = story
    shown.page.locator("#count").fill("1")
    steps = shown.source("layers-edges")
    title, rows = shown.hover("layers", sum(steps["xs"][0]) / 2, sum(steps["ys"][0]) / 2)
    why = ew.explain(model, data, 5, level="layer")
    every = torch.cat([why.scores, why.self_scores], dim=1)
    place = int(every.abs().argmax())
    assert number(rows["gradient"]) == pytest.approx(float(every.view(-1)[place]), rel=1e-3)
    assert f"(layer {place // every.size(1)})" in title


def test_choosing_a_walk_highlights_its_nodes_in_both_figures(shown, story):
    model, data, _ = story
    walks = ew.walks(model, data, 5, k=5)
    shown.page.locator("#walks-table tbody tr").nth(1).click()
    _assert_marked(shown, walks[1])
    assert shown.page.inner_text("#walk").startswith("Walk 2 of 5")
    shown.page.click("#next")
    _assert_marked(shown, walks[2])
    shown.page.focus("#previous")
    shown.page.keyboard.press("Enter")
    _assert_marked(shown, walks[1])
    row = shown.page.locator("#walks-table tbody tr").nth(1)
    assert row.get_attribute("aria-selected") == "true"
    assert number(row.locator(".number").inner_text()) == pytest.approx(walks[1].score, rel=1e-3)


def _assert_marked(shown, walk):
    for figure in ("graph", "layers"):
        parts = [shown.source(f"{figure}-{part}") for part in ("nodes", "root")]
        marked = [
            node for part in parts for node, is_marked in zip(part["node"], part["marked"], strict=True) if is_marked
        ]
        assert set(marked) == set(walk.nodes)
    assert len(marked) == len(walk.nodes)  # unrolled: a spot for every step, also where it stays


def test_choosing_an_edge_highlights_it_and_leaves_the_keyboard_where_it_was(shown):
    assert shown.source("graph-halo")["xs"] == []
    rows = shown.page.locator("#edges-table tbody tr")
    rows.first.focus()
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    assert rows.nth(1).get_attribute("aria-selected") == "true"
    assert rows.nth(1).evaluate("row => row === document.activeElement")
    edges = shown.source("graph-edges")
    assert shown.source("graph-halo")["xs"] == [edges["xs"][-2]]  # the strongest is drawn last
    shown.page.keyboard.press("Enter")
    assert shown.source("graph-halo")["xs"] == []


def test_selects_work_by_keyboard_and_every_control_has_a_name(shown):
    shown.page.focus("#method")
    shown.page.keyboard.press("ArrowDown")
    assert shown.page.inner_text("#graph-title") == "Graph: occlusion"
    shown.page.focus("#target")
    shown.page.keyboard.press("ArrowDown")
    assert shown.page.inner_text("#verdict").startswith(f"{EVIL}: the model says “")
    assert shown.page.locator("#layer").is_disabled()
    unnamed = shown.page.evaluate(
        """() => [...document.querySelectorAll("select, input, button")]
            .filter((one) => !(one.labels?.length || one.getAttribute("aria-label"))).map((one) => one.id)"""
    )
    assert unnamed == []


def test_the_tab_key_goes_from_the_controls_to_the_tables(shown):
    visited = []
    for _ in range(40):  # Bokeh's tools and the edges of the answer are on the way
        shown.page.keyboard.press("Tab")
        visited.append(shown.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    order = [name for name in visited if name in {"target", "method", "level", "count", "next", "TR", "SUMMARY"}]
    assert order[:7] == ["target", "method", "level", "count", "TR", "SUMMARY", "next"]


def test_markup_in_a_label_shows_as_text(shown):
    shown.page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    shown.page.select_option("#target", "1")
    assert EVIL in shown.page.inner_text("#question")
    assert EVIL in shown.page.inner_text("#target")
    assert f"{EVIL[:13]}…{EVIL[-8:]}" in shown.source("layers-texts")["text"]
    assert EVIL in shown.page.inner_text("#walks-table")
    root = shown.source("graph-root")
    shown.hover("graph", root["x"][0], root["y"][0])
    assert f"{EVIL} to itself" in shown.page.locator(".bk-Tooltip b").all_inner_texts()
    assert shown.page.locator("script").count() == 4  # the page's own


def test_the_agreement_of_the_methods_is_that_of_similarity(shown, story):
    model, data, _ = story
    one, other = (ew.explain(model, data, [5, 0, 7], method=name) for name in METHODS[:2])
    cosine = ew.similarity(one, other)
    cell = shown.page.locator("#matrix tbody tr").first.locator("td").nth(1)
    assert number(cell.inner_text()) == pytest.approx(float(cosine[0]), abs=0.0051)
    shown.page.select_option("#scope", "all")
    assert number(cell.inner_text()) == pytest.approx(float(cosine.mean()), abs=0.0051)


def test_probabilities_are_those_of_the_model(shown, story):
    model, data, _ = story
    with torch.no_grad():
        chances = model(data.x, data.edge_index)[5].softmax(dim=0)
    said = shown.page.locator("#prediction .explained").inner_text()
    assert said.split("\n")[0] == f"class {int(chances.argmax())}"
    assert f"{100 * float(chances.max()):.1f}%" in said


def places_in(found):
    """Node → where it stands in the graph."""
    parts = [found.source(f"graph-{part}") for part in ("nodes", "root")]
    return {node: spot for part in parts for node, *spot in zip(part["node"], part["x"], part["y"], strict=True)}


def test_nodes_stand_on_the_rings_of_the_picture_and_stay_when_fewer_edges_are_drawn(chromium, tmp_path, story):
    model, data, _ = story
    path = tmp_path / "why.html"
    ew.write_page(path, model, data, 5, methods=["gradient"], levels=["input"], walks=0, edges=100, check=False)
    expected = flat_picture(ew.explain(model, data, 5), edges=100).place
    with browser.opened(chromium, path) as found:
        found.page.locator("#count").fill("100")
        places = places_in(found)
        found.page.locator("#count").fill("4")
        few = places_in(found)
    assert set(places) == {node for _, node in expected}
    assert all(math.hypot(*places[node]) == pytest.approx(math.hypot(*spot)) for (_, node), spot in expected.items())
    assert few.keys() < places.keys()
    assert all(places[node] == spot for node, spot in few.items())


def test_where_many_nodes_are_kept_each_view_has_a_layout_and_a_chosen_edge_stays_in_the_picture(chromium, tmp_path):
    spokes = [(node, 0) for node in range(1, 81)] + [(0, node) for node in range(1, 41)]
    data, model = zoo.graph(spokes, 81), zoo.BY_NAME["gcn"].build()
    path = tmp_path / "why.html"
    ew.write_page(path, model, data, 0, methods=METHODS, edges=20, check=False, walks=2)
    record = page_files.data_of(path)["targets"][0]
    assert set(record["views"]) == {
        "input",
        "layer",
        *(f"layer {layer}" for layer in range(page_files.data_of(path)["layers"])),
    }
    nodes = page_files.integers(record["nodes"])
    with browser.opened(chromium, path) as found:
        found.page.locator("#count").fill("20")
        for number, method in enumerate(METHODS):
            found.page.select_option("#method", str(number))
            places, listed = places_in(found), record["views"]["input"][number]
            spots = page_files.floats(listed[1], -1, 2).tolist()
            told = {nodes[place]: spot for place, spot in zip(page_files.integers(listed[0]), spots, strict=True)}
            assert all(told[node] == pytest.approx(spot, abs=1e-6) for node, spot in places.items()), method
        found.page.locator("#edges-table tbody tr").last.click()  # of the random method
        found.page.select_option("#method", "0")
        assert len(found.source("graph-halo")["xs"]) == 1
        assert found.complaints == []


def test_a_molecule_has_the_colours_of_its_scores(chromium, tmp_path, raw_data):
    path, data = tmp_path / "why.html", TUDataset(raw_data("MUTAG"), "MUTAG")[[10]]
    model = zoo.Pooled(GCNConv(7, 4), GCNConv(4, zoo.WIDTH)).eval()
    ew.write_page(path, model, data, methods=["gradient", "occlusion"], check=False)
    best = ew.explain(model, data, [0], task="graph")[0]
    bonds = best.merged("sum")
    with browser.opened(chromium, path) as found:
        found.page.select_option("#method", "0")
        assert found.page.locator("#molecule svg").is_visible()
        colours = found.page.evaluate(
            "[...element.style].map((name) => [name, element.style.getPropertyValue(name)])".replace(
                "element", "document.getElementById('molecule')"
            )
        )
        box = found.page.locator("path.bond-0").first.bounding_box()
        found.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        said = found.page.locator("#tip tr").nth(1).locator("td").all_inner_texts()
        found.page.check("[name=drawn-as][value=graph]")
        assert found.page.locator("#graph").is_visible()
        assert len(found.source("graph-nodes")["x"]) == data[0].num_nodes
        assert found.complaints == []
    record = page_files.data_of(path)["targets"][0]
    nodes, colours = page_files.integers(record["nodes"]), dict(colours)
    for number_, (one, other) in enumerate(record["molecule"]["bonds"]):
        both = (data[0].edge_index.t() == torch.tensor([nodes[one], nodes[other]])).all(dim=1)
        score = float(bonds.scores[both])
        red, _, blue = (int(colours[f"--b{number_}"][start : start + 2], 16) for start in (1, 3, 5))
        assert (blue > red) if score > 0 else (red > blue)
        if number_ == 0:
            assert said[0] == "gradient"
            assert number(said[3]) == pytest.approx(score, rel=1e-3)


def test_a_page_of_thirty_nodes_of_cora_opens(chromium, tmp_path, raw_data):
    path, data = tmp_path / "why.html", Planetoid(raw_data("Cora"), "Cora", split="geom-gcn")[0]
    torch.manual_seed(0)
    hub = int(torch.bincount(data.edge_index[1]).argmax())
    ew.write_page(path, GCN(1433, 16, 3, 7), data, [hub, *range(29)], epochs=3, check=False)
    with browser.opened(chromium, path) as found:
        drawn = len(found.source("graph-edges")["xs"])
        assert drawn == 40  # of a hub, where they are not 95 % of the magnitude
        assert f"The {drawn} strongest of 2," in found.page.inner_text("#graph-note")
        assert any("more edges" in text for text in found.source("graph-texts")["text"])
        assert found.complaints == []
