"""The answer on top of a page: its sentences are what the model itself says, and they come first on every screen."""

import pytest
import torch
from torch_geometric.nn import GCNConv

import browser
import edgewise as ew
import zoo
from edgewise.question import pose
from edgewise.report.page.answer_words import Wording, percent
from edgewise.report.page.page_answer import BUDGET
from edgewise.report.page.silence import EVERY, certainty, outputs_without
from page_files import data_of, write

SIZES = {"memory": None, "batch_size": None}
FAST = {"methods": ["gradient", "occlusion"], "walks": 0}


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as found:
        yield found


def slow_output(model, data, index, columns):
    """The model with the messages of some columns at weight 0, one target at a time: the slow twin."""
    score = ew.Score(model, data, [index])
    weight = score.ones()
    for copy, column in enumerate(score.edge_id.tolist()):
        if columns == EVERY or column in columns:
            weight[:, copy] = 0
    return score.output(weight)[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["gcn", "gat", "gine"])
def test_outputs_without_edges_are_those_of_the_model_for_every_target_at_once(name, seed):
    generator = torch.Generator().manual_seed(seed)
    data, model = zoo.graph(torch.randint(0, 9, (24, 2), generator=generator).tolist(), 9), zoo.BY_NAME[name].build()
    question = pose(model, data, range(9))
    groups = [[(0,), (3, 5), EVERY], [], [(7,)], [(1, 2, 3)], [EVERY], [(20,)], [(23,)], [(11,), (12,)], [(4,)]]
    found = outputs_without(question, groups, SIZES)
    for index, some in enumerate(groups):
        assert found[index].shape == (len(some), 3)
        for row, columns in zip(found[index], some, strict=True):
            torch.testing.assert_close(row, slow_output(model, data, index, columns).double())


def test_certainty_is_the_log_odds_of_the_probability():
    rows = torch.randn(5, 4, dtype=torch.double)
    chance = rows.softmax(dim=1)[:, 2]
    torch.testing.assert_close(certainty(rows, "multiclass", 2), chance.logit())
    one = torch.randn(5, 1, dtype=torch.double)
    torch.testing.assert_close(certainty(one, "binary", 0), -one[:, 0])


def test_the_reasons_are_ranked_by_what_the_model_says_without_them(tmp_path):
    generator = torch.Generator().manual_seed(5)
    data, model = zoo.graph(torch.randint(0, 12, (40, 2), generator=generator).tolist(), 12), zoo.BY_NAME["gcn"].build()
    ew.write_page(tmp_path / "why.html", model, data, [0, 4, 7], check=False, **FAST)
    with torch.no_grad():
        truth = model(data.x, data.edge_index).softmax(dim=1)
    for record, index in zip(data_of(tmp_path / "why.html")["targets"], (0, 4, 7), strict=True):
        best = int(truth[index].argmax())
        chance = [float(slow_output(model, data, index, (c,)).softmax(0)[best].logit()) for c in range(40)]
        drop = float(truth[index, best].logit()) - torch.tensor(chance)
        first = record["answer"]["reasons"][0]
        source, receiver = data.edge_index[:, int(drop.argmax())].tolist()
        assert first["name"] == f"{source} → {receiver if receiver != source else 'itself'}"
        without = slow_output(model, data, index, (int(drop.argmax()),)).softmax(0)
        if int(without.argmax()) == best:
            assert percent(float(without[best])) in first["without"]
            assert not first["flips"]
        else:
            assert f"says “class {int(without.argmax())}”" in first["without"]
            assert first["flips"]
        assert record["answer"]["verdict"].startswith(f"Node {index}: the model says “class {best}”")


def test_what_would_change_it_is_true_of_the_model(tmp_path):
    """Whatever is named, taking it away gives the class that is named."""
    flips = 0
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        data = zoo.graph(torch.randint(0, 10, (30, 2), generator=generator).tolist(), 10)
        model = zoo.BY_NAME["gcn"].build()
        ew.write_page(tmp_path / "why.html", model, data, check=False, **{**FAST, "methods": ["occlusion"]})
        with torch.no_grad():
            truth = model(data.x, data.edge_index).argmax(dim=1)
        for index, record in enumerate(data_of(tmp_path / "why.html")["targets"]):
            change = record["answer"]["change"]
            columns = tuple(change["columns"])
            if not columns:
                continue
            other = int(slow_output(model, data, index, columns).argmax())
            assert other != int(truth[index])
            assert f"“class {other}”" in change["text"]
            flips += 1
    assert flips > 2


def test_the_smallest_change_is_that_of_counterfactual(tmp_path):
    data, model = zoo.GRAPHS["directed"](), zoo.BY_NAME["gcn"].build()
    ew.write_page(tmp_path / "why.html", model, data, check=False, **{**FAST, "methods": ["occlusion"]})
    found = ew.counterfactual(model, data, range(data.num_nodes), budget=BUDGET)
    for flip, record in zip(found, data_of(tmp_path / "why.html")["targets"], strict=True):
        change = record["answer"]["change"]
        if flip.status == "open" and flip.flips_to is None:
            continue
        assert sorted(change["columns"]) == list(flip.edges)
        if flip.status == "none":
            assert flip.certainty in change["text"]
        elif flip.size == 1:
            assert change["text"].startswith("One edge is enough.")
        else:
            assert f"“class {flip.flips_to}”" in change["text"]


@pytest.mark.parametrize("kind", ["one_node", "no_edges", "one_logit", "regression", "several_graphs"])
def test_every_kind_of_target_has_an_answer_in_its_own_words(tmp_path, kind):
    write(tmp_path / "why.html", kind, methods=["gradient", "occlusion"], walks=0)
    for record in data_of(tmp_path / "why.html")["targets"]:
        answer = record["answer"]
        every = str(answer)
        assert answer["verdict"]
        assert answer["change"]["text"]
        assert answer["reasons"] or answer["against"] or answer["none"]
        if kind == "regression":
            assert "value" in answer["verdict"]
            assert not any(word in every for word in ("class", "logit", "support", "oppos", "sure"))


def test_labels_and_disagreement_are_said(tmp_path):
    data, model = zoo.graph([(0, 1), (1, 2), (2, 0), (2, 1)], 3), zoo.BY_NAME["gcn"].build()
    with torch.no_grad():
        data.y = model(data.x, data.edge_index).argmax(dim=1)
    data.y[2] = (data.y[2] + 1) % 3
    ew.write_page(tmp_path / "why.html", model, data, check=False, **FAST)
    told = [record["answer"]["trust"] for record in data_of(tmp_path / "why.html")["targets"]]
    assert not any("model is wrong here" in str(one) for one in told[:2])
    assert "model is wrong here" in str(told[2])
    assert told[2]["word"] != "Yes."


def test_a_class_that_was_not_predicted_is_said_to_be_another_one():
    data, model = zoo.graph([(0, 1)], 2), zoo.BY_NAME["gcn"].build()
    question = pose(model, data, [1])
    other = (int(question.target.column[0]) + 1) % 3
    asked = pose(model, data, [1], target=other)
    names = ["red", "green", "blue"]
    assert Wording("node 1", question.target, 0, names).explained() == ""
    assert f"why not “{names[other]}”" in Wording("node 1", asked.target, 0, names).explained()


def test_bonds_are_named_once_and_silenced_in_both_directions(tmp_path):
    from torch_geometric.utils import from_smiles

    data = from_smiles("CCO")
    data.x = data.x.float()
    torch.manual_seed(0)
    model = zoo.Pooled(GCNConv(9, 4), GCNConv(4, zoo.WIDTH)).eval()
    ew.write_page(tmp_path / "why.html", model, [data], check=False, **FAST)
    (record,) = data_of(tmp_path / "why.html")["targets"]
    assert record["title"] == "molecule 0"
    named = [one["name"] for one in [*record["answer"]["reasons"], *record["answer"]["against"]]]
    assert len({frozenset(name.split(" – ")) for name in named}) == len(named) > 0
    assert set(named) <= {"C0 – C1", "C1 – C0", "C1 – O2", "O2 – C1"}


SCREENS = {"laptop": (1366, 768, False), "desk": (1920, 1080, True), "phone": (390, 844, False)}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A page with long names around a hub."""
    spokes = [(node, 0) for node in range(1, 30)] + [(0, node) for node in range(1, 9)]
    data, path = zoo.graph(spokes, 30), tmp_path_factory.mktemp("page") / "why.html"
    names = [f"ACC-{1000 + node} Somebody & Sons" for node in range(30)]
    ew.write_page(path, zoo.BY_NAME["gcn"].build(), data, [0, 3], node_names=names, **FAST)
    return path


@pytest.mark.parametrize("screen", SCREENS)
def test_the_answer_comes_first_and_nothing_is_cut_on_any_screen(chromium, named, screen):
    width, height, dark = SCREENS[screen]
    how = {"viewport": {"width": width, "height": height}, "color_scheme": "dark" if dark else "light"}
    with browser.opened(chromium, named, folded=True, **how) as found:
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        assert found.page.locator("#verdict").bounding_box()["y"] < 150
        if screen != "phone":  # the whole answer, before anybody scrolls
            box = found.page.locator(".cards").bounding_box()
            assert box["y"] + box["height"] <= height
            assert found.page.locator(".cards").bounding_box()["width"] > 0.85 * min(width, 1720)
        assert not found.page.locator("#layers").is_visible()
        assert found.page.locator("#edges-table").evaluate(
            "(table) => table.scrollWidth <= table.parentElement.clientWidth"
        )
        boxes = found.page.evaluate(OVERLAPPING)
        assert boxes == []
        found.page.locator("summary").click()
        found.page.wait_for_selector("body[data-layers]")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        assert found.complaints == []


OVERLAPPING = """() => {
    const source = Bokeh.documents.map((one) => one.get_model_by_name("graph-texts")).find((one) => one !== null).data;
    const plot = Bokeh.documents.map((one) => one.get_model_by_name("graph")).find((one) => one !== null);
    const [x, y] = [plot.x_range, plot.y_range];
    const boxes = Array.from(source.text, (text, i) => [text, source.align[i], source.x[i], source.y[i]])
        .filter(([, align]) => align === "left").map(([text, , px, py]) => {
            const left = (px - x.start) * plot.inner_width / (x.end - x.start);
            const top = (y.end - py) * plot.inner_height / (y.end - y.start);
            return [text, left, left + 6 * text.length, top];
        });
    return boxes.flatMap(([a, l, r, t], i) => boxes.slice(0, i)
        .filter(([, left, right, top]) => left < r && l < right && Math.abs(t - top) < 12).map(([b]) => [a, b]));
}"""
"""Pairs of names that stand on one another in the graph."""


def test_a_reason_marks_its_edge_and_paper_has_no_controls(chromium, tmp_path):
    path = tmp_path / "why.html"
    write(path, "loops_and_parallel_edges", walks=0)
    with browser.opened(chromium, path, folded=True) as found:
        found.page.locator("#reasons a").first.click()
        assert len(found.source("graph-halo")["xs"]) == 1
        found.page.emulate_media(media="print")
        found.page.set_viewport_size({"width": 703, "height": 1000})  # A4 without its margins
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 703
        assert found.page.locator("#controls").is_hidden()
        assert found.page.locator("#expert").is_hidden()
        assert found.page.locator("#edges-table").evaluate(
            "({ parentElement: box }) => box.scrollHeight <= box.clientHeight + 1"
        )  # nothing hides behind a scroll bar
