"""`--link` of typed tables: relations, names and files of pairs, from the tables to every command."""

import csv
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import call, error, printed
from edgewise.cli.read.data import read_data
from typed_tables import MODEL, PAYS, by_hand, tables, written

LINKER = """

class Linker(Net):
    def encode(self, x_dict, edge_index_dict):
        return self.forward(x_dict, edge_index_dict)

    def decode(self, z_dict, edge_label_index):
        return (z_dict["account"][edge_label_index[0]] * z_dict["merchant"][edge_label_index[1]]).sum(dim=-1)
"""
NET = ("--model", "net.py:Linker", "--weights", "weights.pt", "--data", "shop")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    Path("net.py").write_text(MODEL + LINKER)
    return tmp_path / "shop"


def linker():
    names: dict = {}
    exec(MODEL + LINKER, names)
    model = names["Linker"]()
    model.load_state_dict(torch.load("weights.pt", weights_only=True))
    return model.eval()


@pytest.mark.parametrize(
    "asked",
    [
        ("pays:a3:1,a5:0",),
        ("pays:a3:1", "account__pays__merchant:a5:0"),
        ("pays:pairs.csv",),
        ("triples.txt",),
    ],
)
def test_a_relation_and_two_ends_name_a_link(shop, asked):
    Path("pairs.csv").write_text("source,target\na3,1\na5,0\n")
    Path("triples.txt").write_text("# two pairs\nrelation source target\npays a3 1\npays a5 0\n")
    options = [part for text in asked for part in ("--link", text)]
    targets = printed("ask", *NET, *options)["targets"]
    assert [one["index"] for one in targets] == [[list(PAYS), [3, 1]], [list(PAYS), [5, 0]]]


@pytest.mark.parametrize("more", [(), ("--without-itself",)])
def test_the_command_gives_the_numbers_of_the_library_under_the_names_of_the_tables(shop, more):
    data = by_hand(tables())
    u, v = data[PAYS].edge_index[:, 0].tolist()
    why = ew.explain(
        linker(), read_data("shop", None, None, 0).data, (PAYS, (u, v)), task="link", without_itself=bool(more)
    )
    (found,) = printed("explain", *NET, "--link", f"pays:a{u}:{v}", *more)["targets"]
    assert found["index"] == [list(PAYS), [u, v]]
    assert found["name"].startswith("account ")
    assert f": merchant {v}" in found["name"]
    assert found["value"] == pytest.approx(why.value, rel=1e-5)
    assert found["class_name"] == "link"
    for edge, entry in zip(found["edges"], why.top(len(found["edges"]), by="magnitude"), strict=True):
        assert edge["score"] == pytest.approx(entry[0], rel=1e-4)
        assert (tuple(edge["source"]), tuple(edge["receiver"]), tuple(edge["type"])) == (
            entry[1],
            entry[2],
            entry.edge_type,
        )


def test_every_command_takes_typed_links(shop):
    link = ("--link", "pays:a3:1,a5:0")
    call("explain", *NET, *link, "--out", "why.csv", "--page", "why.html")
    row = next(csv.DictReader(Path("why.csv").read_text().splitlines()))
    assert (row["index_type"], row["index_to_type"], row["index_to"]) == ("account", "merchant", "1")
    assert "merchant 1" in Path("why.html").read_text()
    (first, _) = printed("features", *NET, *link, "--method", "gradient")["targets"]
    true = ew.features(linker(), read_data("shop", None, None, 0).data, (PAYS, (3, 1)), task="link", method="gradient")
    assert first["features"][0]["score"] == pytest.approx(true.top(1, by="magnitude")[0][0], rel=1e-4)
    assert printed("check", *NET, *link)["command"] == "check"
    assert printed("compare", *NET, *link, "--method", "gradient,occlusion")["command"] == "compare"


def test_the_pairs_of_a_typed_split_are_taken_without_a_link(shop):
    data = by_hand(tables())
    data[PAYS].edge_label_index = torch.tensor([[2, 4], [0, 3]])
    torch.save(data, "shop.pt")
    asked = ("--model", "net.py:Linker", "--weights", "weights.pt", "--data", "shop.pt", "--task", "link")
    assert [one["index"][1] for one in printed("ask", *asked)["targets"]] == [[2, 0], [4, 3]]


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("a3:1", "must name the relation of a pair in a typed graph, got 'a3:1'. Use --link pays:a3:1"),
        ("buys:a3:1", "the relation 'buys'"),
        ("pays:a3", "two nodes with a colon"),
        ("pays:a3:9", "there are 4"),
        ("pays:a77:1", "a77"),
        ("pays:a3:1,paid_by:1:a3", "one edge type at a time"),
        ("pays:nowhere.csv", "There is no file nowhere.csv"),
        (",", "names no pair"),
    ],
)
def test_a_mistake_in_a_typed_link_is_one_sentence(shop, link, text):
    assert text in error("ask", *NET, "--link", link)


def test_a_job_of_typed_links_is_the_explanation(shop, tmp_path):
    data, index = by_hand(tables()), {PAYS: [(3, 1), (5, 0)]}
    job = ew.jobs.run(linker(), data, index, task="link", out=tmp_path / "job")
    for mine, theirs in zip(job, ew.explain(linker(), data, index, task="link"), strict=True):
        assert mine.index == theirs.index == job.of(theirs.index).index
        torch.testing.assert_close(mine.scores[PAYS], theirs.scores[PAYS])
