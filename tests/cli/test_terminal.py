"""Tables in a terminal: names of nodes where the data has them, and rows that fit 80 columns."""

import pytest
import torch
from torch_geometric.data import Data

from command_line import call, error
from edgewise.cli.read.data import read_data
from edgewise.cli.terminal import fit, shortened

HEADS = [["link", "class", "probability", "edge", "score"]]
LONG = "customer 1203 –has_bought_more_than_once→ product 88"


def lines(cells):
    """How wide a table of these rows is: three columns between two cells, two around them."""
    return sum(max(map(len, column)) for column in zip(*HEADS, *cells, strict=True)) + 3 * len(HEADS[0]) + 1


@pytest.mark.parametrize("edge", [LONG, "user U0 –rates_very_highly_indeed→ movie M4", "a → b", "x" * 90])
def test_edges_are_shortened_until_a_table_fits(edge):
    rows = [["customer 1203 : product 7", "link", "100.0%", edge, "+12.34"], ["", "", "", "a → b", "+1"]]
    fit(HEADS, [rows], 80)
    assert lines(rows) <= 80
    assert rows[1][3] == "a → b"
    if edge == LONG:
        assert rows[0][3] == "customer 1203 –…→ product 88"


def test_ends_lose_types_before_a_relation_is_cut_and_walks_are_left_alone():
    rows = [["user U0 : movie M0", "link", "100.0%", "movie M14 –rated_by→ user U0", "+5.8"]]
    fit(HEADS, [rows], 75)
    assert rows[0][3] == "M14 –rated_by→ U0"
    walk = "movie 14 → user 2 → movie 3 → user 4 → movie 55 → user 6"
    rows = [["user 0", "link", "100.0%", walk, "+5.8"]]
    fit(HEADS, [rows], 60)
    assert rows[0][3] == walk


def test_ids_and_arrows_stay_where_names_are_long():
    edge = "ACC-1120 Omar Chen → ACC-1052 Paulo Vega"
    rows = [["ACC-1052 Paulo Vega", "mule", "100.0%", edge, "+2.973"]]
    fit(HEADS, [rows], 80)
    assert lines(rows) <= 80
    assert rows[0][0].startswith("ACC-1052")
    source, receiver = rows[0][3].split(" → ")
    assert (source[:8], receiver[:8]) == ("ACC-1120", "ACC-1052")


@pytest.mark.parametrize("room", range(12, 60))
def test_a_shortened_text_has_the_length_that_there_is(room):
    for text in (LONG, "y" * 70, "short"):
        assert len(shortened(text, room)) <= max(room, 0)


def test_names_of_nodes_in_a_file_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [Data(x=torch.ones(3, 2), edge_index=ring, node_names=["N0", "C1", "O2"]) for _ in range(2)]
    torch.save(graphs, "graphs.pt")
    torch.save(graphs[0], "one.pt")
    assert read_data("graphs.pt", None, None, 0).node_names == {0: ["N0", "C1", "O2"], 1: ["N0", "C1", "O2"]}
    assert read_data("one.pt", None, None, 0).names == ["N0", "C1", "O2"]
    text = "import torch\nfrom torch_geometric.nn import SAGEConv\n\ndef net():\n    return SAGEConv(2, 2).eval()\n"
    (tmp_path / "net.py").write_text(text)
    assert "N0 → C1" in call("explain", "--model", "net.py:net", "--data", "one.pt", "--index", "C1").stdout
    graphs[1].node_names = ["N0"]
    torch.save(graphs, "graphs.pt")
    told = error("explain", "--model", "net.py:net", "--data", "graphs.pt", "--index", "0")
    assert "`data[1].node_names` must be a list with a name for each of the 3 nodes, got 1" in told
