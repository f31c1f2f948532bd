"""What a reader sees first on pages where no edge speaks for the answer, or none of them decides it."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import browser
import edgewise as ew
import zoo
from edgewise.report.page.answer_words import percent
from page_files import data_of, integers


class Total(torch.nn.Module):
    """The sum of what the neighbours say; with two columns, a class and its opposite."""

    def __init__(self, columns=1):
        super().__init__()
        self.conv, self.signs = SimpleConv(aggr="sum"), torch.tensor([1.0, -1.0][:columns])

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) * self.signs


def star(values):
    """Nodes 1, 2, … send a number each to node 0."""
    count = len(values)
    edges = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])
    return Data(x=torch.tensor([0.0, *values]).view(-1, 1), edge_index=edges)


@pytest.fixture(scope="module")
def chromium():
    with browser.chromium() as found:
        yield found


def test_where_nothing_raises_a_value_the_first_card_has_what_lowers_it(chromium, tmp_path):
    path = tmp_path / "why.html"
    ew.write_page(path, Total(), star([-3.0, -1.0]), 0, mode="regression", methods=["gradient", "occlusion"])
    with browser.opened(chromium, path) as found:
        assert found.page.inner_text("#reasons-title") == "What lowers the value"
        assert found.page.inner_text("#reasons").startswith("1 → 0")
        assert not found.page.locator("#against-title").is_visible()


@pytest.mark.parametrize(("neighbours", "said"), [(100, "No edge decides alone: 100 edges add up"), (3, "")])
def test_where_many_edges_add_up_the_reasons_say_so(chromium, tmp_path, neighbours, said):
    path = tmp_path / "why.html"
    ew.write_page(path, Total(2), star([1.0] * neighbours), 0, methods=["gradient", "occlusion"])
    with browser.opened(chromium, path) as found:
        assert found.page.inner_text("#weak-reasons").startswith(said)
        assert bool(found.page.inner_text("#weak-reasons")) == bool(said)


@pytest.mark.parametrize(("second", "is_told"), [(-2.0, True), (2.0, False)])
def test_another_order_than_that_of_the_table_is_told(chromium, tmp_path, second, is_told):
    path, data = tmp_path / "why.html", star([0.0, 0.0])
    data.x = torch.tensor([[0.0, 0.0], [3.0, 2.0], [2.0, second]])
    ew.write_page(path, SimpleConv(aggr="sum"), data, 0, methods=["gradient", "occlusion"])
    with browser.opened(chromium, path) as found:
        assert ("by how much less sure the model is" in found.page.inner_text("#edges-order")) == is_told


def without(model, data, index, columns):
    """The model's row for a node without the messages of some columns: a score, asked directly."""
    score = ew.Score(model, data, [index])
    kept = [float(column not in columns) for column in score.edge_id.tolist()]
    return score.output(torch.tensor(kept).expand(score.num_layers, -1))[0].softmax(dim=0)


def test_edges_that_change_the_answer_together_are_named_and_fewer_of_them_do_not(tmp_path):
    """A class that is asked for takes the way of trials, where the first edges that do it together are the answer."""
    told = 0
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        data, model = (
            zoo.graph(torch.randint(0, 9, (40, 2), generator=generator).tolist(), 9),
            zoo.BY_NAME["gcn"].build(),
        )
        with torch.no_grad():
            says = model(data.x, data.edge_index).argmax(dim=1)
        ew.write_page(tmp_path / "why.html", model, data, target=says, check=False, methods=["occlusion"], walks=0)
        for index, record in enumerate(data_of(tmp_path / "why.html")["targets"]):
            change = record["answer"]["change"]
            columns = change["columns"]
            assert len(change["edges"]) == (len(columns) if len(columns) > 1 else 0)
            if len(columns) < 2:
                continue
            ends = data.edge_index[:, columns].t().tolist()
            assert [one["name"] for one in change["edges"]] == [f"{a} → {b if b != a else 'itself'}" for a, b in ends]
            flips = [
                int(without(model, data, index, columns[:n]).argmax()) != int(says[index])
                for n in range(len(columns) + 1)
            ]
            assert flips == [False] * len(columns) + [True]
            told += 1
    assert told > 1


def test_without_all_reasons_is_what_the_model_says_without_them(tmp_path):
    generator = torch.Generator().manual_seed(5)
    data, model = zoo.graph(torch.randint(0, 12, (40, 2), generator=generator).tolist(), 12), zoo.BY_NAME["gcn"].build()
    ew.write_page(tmp_path / "why.html", model, data, check=False, methods=["occlusion"], walks=0)
    told = 0
    for index, record in enumerate(data_of(tmp_path / "why.html")["targets"]):
        answer, column = record["answer"], integers(record["column"])
        reasons = [column[one["edge"]] for one in answer["reasons"]]
        assert bool(answer["allOfThem"]) == (len(reasons) > 1 and not any(one["flips"] for one in answer["reasons"]))
        if answer["allOfThem"]:
            row = without(model, data, index, reasons)
            best = int(row.argmax()) if "the model says" in answer["allOfThem"] else record["target"]
            assert percent(float(row[best])) in answer["allOfThem"]
            told += 1
    assert told > 1


def test_an_output_that_has_a_name_is_called_by_it(tmp_path):
    data, path = star([1.0, 2.0]), tmp_path / "why.html"
    ew.write_page(path, Total(1), data, 0, mode="regression", class_names=["price"], check=False, methods=["occlusion"])
    (record,) = data_of(path)["targets"]
    assert "the model's value (price) is" in record["answer"]["verdict"]
