"""A folder of CSV or parquet files as data."""

import csv

import pytest
import torch

from command_line import error, printed, ring, workshop
from edgewise.cli.read.data import read_data

NET = ("--model", "net.py:Net", "--model-args", "features=3", "--weights", "weights.pt")
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jo", "Kim", "Lu"]


def write(folder, name, columns):
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


def nodes(**more):
    columns = {"id": [name.lower() for name in NAMES], "name": NAMES}
    columns |= {f"f{number}": ring().x[:, number].tolist() for number in range(3)}
    return (
        columns
        | {"y": [("good", "bad", "odd")[n % 3] for n in range(12)], "split": ["train"] * 9 + ["test"] * 3}
        | more
    )


def edges(**more):
    source, target = ring().edge_index.tolist()
    return {"source": [NAMES[n].lower() for n in source], "target": [NAMES[n].lower() for n in target]} | more


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    write(tmp_path / "people", "nodes", nodes())
    write(tmp_path / "people", "edges", edges())
    return tmp_path / "people"


def test_a_folder_of_tables_is_the_graph_that_it_says(folder):
    found = read_data(str(folder), None, None, 0)
    torch.testing.assert_close(found.data.x, ring().x)
    assert torch.equal(found.data.edge_index, ring().edge_index)
    assert found.class_names == ["bad", "good", "odd"]
    assert found.data.y[:3].tolist() == [1, 0, 2]
    assert found.parts["test"].tolist() == [9, 10, 11]
    assert (found.ids[1], found.names[1]) == ("bob", "Bob")


def test_parquet_gives_the_same_graph_as_csv(folder):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (folder.parent / "fast").mkdir()
    for name in ("nodes", "edges"):
        pandas.read_csv(folder / f"{name}.csv").to_parquet(folder.parent / "fast" / f"{name}.parquet")
    slow, fast = (read_data(str(place), None, None, 0) for place in (folder, folder.parent / "fast"))
    torch.testing.assert_close(slow.data.x, fast.data.x)
    assert torch.equal(slow.data.edge_index, fast.data.edge_index)
    assert (slow.ids, slow.names, slow.class_names) == (fast.ids, fast.names, fast.class_names)


def test_names_of_nodes_and_classes_choose_targets_and_come_back(folder):
    (one,) = printed("explain", *NET, "--data", "people", "--index", "bob", "--target", "odd")["targets"]
    assert (one["index"], one["name"], one["class"], one["class_name"]) == (1, "Bob", 2, "odd")
    edge = one["edges"][0]
    assert (edge["source_name"], edge["receiver_name"]) == (NAMES[edge["source"]], NAMES[edge["receiver"]])


def test_columns_of_nodes_name_the_features(folder):
    names = read_data(str(folder), None, None, 0).data.feature_names
    assert len(names) == ring().x.size(1)
    (one,) = printed("features", *NET, "--data", "people", "--index", "bob")["targets"]
    assert [row["name"] for row in one["features"]] == [names[row["feature"]] for row in one["features"]]
    assert one["features"][0]["node_name"] in NAMES


def test_weights_and_other_columns_of_edges_are_read(folder):
    amount = [float(n) for n in range(24)]
    write(folder, "edges", edges(weight=amount, amount=amount, hour=[2.0] * 24))
    data = read_data(str(folder), None, None, 0).data
    assert data.edge_weight.tolist() == amount
    assert data.edge_attr.tolist() == [[value, 2.0] for value in amount]


def test_without_ids_nodes_are_rows(folder):
    write(folder, "nodes", {"feature": [1.0, 2.0, 3.0], "note": ["a", "b", "c"]})
    write(folder, "edges", {"source": [0, 2], "target": [1, 1]})
    found = read_data(str(folder), None, None, 0)
    assert found.data.edge_index.tolist() == [[0, 2], [1, 1]]
    assert found.notes == ("Columns of texts, not used as features: note.",)
    write(folder, "edges", {"source": [0, 2], "target": [1, 3]})
    assert "edges.csv line 3 names 3 as target" in error("explain", *NET, "--data", "people")


def test_a_mistake_in_a_table_is_named_with_its_line(folder):
    def said(name, columns):
        before = (folder / f"{name}.csv").read_text()
        write(folder, name, columns)
        sentence = error("explain", *NET, "--data", "people")
        (folder / f"{name}.csv").write_text(before)
        return sentence

    strange = edges()
    strange["target"][4] = "zoe"
    assert "edges.csv line 6 names 'zoe' as target, which is not an id in" in said("edges", strange)
    assert "nodes.csv line 4 repeats the id 'ann'" in said("nodes", nodes(id=["ann", "bob", "ann", *NAMES[3:]]))
    assert "nodes.csv line 3: column f1 must hold numbers, got 'n/a'" in said(
        "nodes", nodes(f1=["1", "n/a", *["2"] * 10])
    )
    assert "must have the columns source and target, got source, to" in said(
        "edges", {"source": ["ann"], "to": ["bob"]}
    )
    assert "has no column of numbers for features" in said("nodes", {"id": ["ann"], "name": ["Ann"]})
    assert "nodes.csv line 2: column f1 must hold numbers, got 'nan'" in said("nodes", nodes(f1=["nan", *["2"] * 11]))
    (folder / "nodes.csv").write_text("id,f\n\nann,1\nbob\n")
    assert "nodes.csv line 4 must have 2 cells like the header, got 1" in error("explain", *NET, "--data", "people")
