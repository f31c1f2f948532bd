"""Features, attributes of edges and links on pages and pictures: numbers are those of the library, texts are only texts."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

import browser
import edgewise as ew
from link_models import Dot, make_model
from page_files import data_of, integers
from zoo import mlp, randomise

NAMES = ["age", "<b>debt</b>", "years"]
ATTRIBUTES = ["amount", "<i>days</i>"]


class Attributed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GINEConv(mlp(3, 4), edge_dim=2), GINEConv(mlp(4, 2), edge_dim=2)

    def forward(self, x, edge_index, edge_attr):
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, 12, (2, 30), generator=generator)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    attributes = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    found = Data(x=x, edge_index=ends, edge_attr=attributes)
    found.feature_names, found.edge_feature_names = NAMES, ATTRIBUTES
    return found


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as found:
        yield found


def test_a_page_tells_the_strongest_features_of_every_node_with_names_values_and_scores(tmp_path, data):
    model = randomise(Attributed())
    ew.write_page(tmp_path / "why.html", model, data, [3, 5], methods=["gradient"], check=False, walks=0)
    told = data_of(tmp_path / "why.html")
    names = dict(told["featureNames"])
    assert told["noFeatures"] == ""
    for record, why in zip(told["targets"], ew.features(model, data, [3, 5]), strict=True):
        for node, lines in zip(integers(record["nodes"]), record["features"], strict=True):
            expected = why.of_node(int(node))
            assert [names[feature] for feature, _, _ in lines] == [name for _, name, _ in expected]
            assert [value for _, value, _ in lines] == pytest.approx([value for _, _, value in expected], rel=1e-6)
            assert [score for _, _, score in lines] == pytest.approx([score for score, _, _ in expected], rel=1e-6)
        for column, lines in zip(integers(record["column"]), record["attributes"], strict=True):
            values = data.edge_attr[int(column)].tolist()
            assert lines == [f"{name} = {value:.4g}" for name, value in zip(ATTRIBUTES, values, strict=True)]


def test_readers_meet_features_and_attributes_when_they_hover(tmp_path, data, chromium):
    path = tmp_path / "why.html"
    ew.write_page(path, randomise(Attributed()), data, 3, methods=["gradient"], check=False, walks=0)
    with browser.opened(chromium, path) as found:
        root, edges = found.source("graph-root"), found.source("graph-edges")
        assert "strongest features:" in root["more"][0]
        assert all(f"{name} = " in edges["more"][0] for name in ATTRIBUTES)
        found.hover("graph", root["x"][0], root["y"][0])
        tips = found.page.locator(".bk-Tooltip div").filter(has_text="<b>debt</b> = ")  # a text, not markup
        assert tips.first.is_visible()
        table = found.page.locator("#features-table").inner_text()
        assert "Value" in table
        assert "<b>debt</b>" in table
        assert found.complaints == []


def test_a_page_of_links_marks_both_ends_and_draws_the_pair(tmp_path, data, chromium):
    path, model = tmp_path / "why.html", make_model("gcn, dot")
    ew.write_page(path, model, data, [(3, 7), (4, 4)], task="link", methods=["gradient"], check=False, walks=2)
    with browser.opened(chromium, path) as found:
        assert sorted(found.source("graph-root")["node"]) == [3, 7]
        assert sorted(set(found.source("layers-root")["node"])) == [3, 7]
        (line,) = found.source("graph-halo")["dash"]
        assert line == [7, 6]
        said = found.page.locator("#question").inner_text()
        assert said.startswith("link 3 – 7: the scores below explain the logit of “a link”")
        assert "ends of the link" in found.page.locator("#graph-legend").inner_text()
        found.page.select_option("#target", "1")  # a pair of a node with itself has no line
        assert found.source("graph-halo")["dash"] == []
        assert found.complaints == []


def test_what_has_no_features_says_why(tmp_path, data):
    class Frozen(Dot):
        def encode(self, x, edge_index):
            with torch.no_grad():
                x = x * 2
            return super().encode(x, edge_index)

    path = tmp_path / "why.html"
    ew.write_page(
        path, randomise(Frozen("sage")), data, (3, 7), task="link", methods=["gradient"], check=False, walks=0
    )
    told = data_of(path)
    assert "occlusion" in told["noFeatures"]
    assert told["targets"][0]["features"] is None


def test_pictures_write_the_features_below_and_square_both_ends(data):
    model = make_model("gcn, dot")
    why, features = (call(model, data, (3, 7), task="link") for call in (ew.explain, ew.features))
    figure = why.plot(features=features)
    words = figure.legends[0].get_title().get_text()
    score, name, value = features.of_node(3, 1)[0]
    assert f"{name} = {value:.4g} ({score:+.3g})".replace("-", "−") in words
    gids = {line.get_gid() for line in figure.axes[0].lines}
    assert "pair" in gids
    assert figure.get_suptitle().startswith("gradient: link 3 – 7, a link, logit")
    with pytest.raises(ew.InputError, match="explained target"):
        why.plot(features=ew.features(model, data, (3, 8), task="link"))
    assert ew.explain(model, data, (3, 7), task="link", level="layer").plot() is not None


def test_texts_of_edges_stand_beside_their_attributes(tmp_path, data):
    model, count = randomise(Attributed()), data.edge_index.size(1)
    few = {"methods": ["gradient"], "check": False, "walks": 0}
    texts = {"reference": [f"<INV-{column}>" if column else "" for column in range(count)]}
    ew.write_page(tmp_path / "why.html", model, data, 3, edge_texts=texts, **few)
    (record,) = data_of(tmp_path / "why.html")["targets"]
    for column, lines in zip(integers(record["column"]), record["attributes"], strict=True):
        assert (f"reference = <INV-{column}>" in lines) is (column > 0)
        assert lines[0].startswith("amount = ")
    for wrong in ({"reference": ["a"]}, ["a"] * count, "a"):
        with pytest.raises(ew.InputError, match=f"`edge_texts` must be .*{count} edges"):
            ew.write_page(tmp_path / "no.html", model, data, 3, edge_texts=wrong, **few)
