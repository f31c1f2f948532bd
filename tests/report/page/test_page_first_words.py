"""What a reader sees first on pages where no edge speaks for the answer, or none of them decides it."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import browser
import edgewise as ew


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
        assert ("by how sure the model is" in found.page.inner_text("#edges-order")) == is_told
