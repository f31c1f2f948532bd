"""Where the data has ids, everything that a command prints or writes carries them beside the names."""

import csv
import json

import pytest
import torch
from torch_geometric.data import Data

import edgewise as ew
import typed_tables
from command_line import call, printed, ring, workshop
from edgewise.cli.job_data import target_names, texts_of_job, whole_labels

IDS = [f"ACC-{1000 + 7 * n}" for n in range(12)]
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jo", "Kim", "Lu"]
NET = ("--model", "net.py:Net", "--model-args", "features=3", "--weights", "weights.pt", "--data", "people")
POOLED = ("--model", "net.py:Pooled", "--model-args", "features=3", "--weights", "weights.pt")
COMMANDS = ("explain", "walks", "features", "counterfactual")


@pytest.fixture(autouse=True)
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    columns = {"id": IDS, "name": NAMES, **{f"f{number}": ring().x[:, number].tolist() for number in range(3)}}
    typed_tables.write(tmp_path / "people", "nodes", {**columns, "y": [n % 3 for n in range(12)]})
    source, target = ([IDS[n] for n in ends] for ends in ring().edge_index.tolist())
    typed_tables.write(tmp_path / "people", "edges", {"source": source, "target": target})


def test_every_table_on_the_terminal_has_them():
    for command in COMMANDS:
        shown = call(command, *NET, "--index", IDS[4]).stdout
        assert f"{IDS[4]} Eve" in shown, command


def test_every_json_document_has_them():
    for command in (*COMMANDS, "ask"):
        (one,) = printed(command, *NET, "--index", IDS[4])["targets"]
        assert (one["id"], one["name"]) == (IDS[4], "Eve")
        for edge in one.get("edges", ()) if command == "explain" else ():
            assert [edge["source_id"], edge["receiver_id"]] == [IDS[edge["source"]], IDS[edge["receiver"]]]
        for walk in one.get("walks", ()):
            assert walk["ids"] == [IDS[node] for node in walk["nodes"]]
        for feature in one.get("features", ()):
            assert (feature["node_id"], feature["node_name"]) == (IDS[feature["node"]], NAMES[feature["node"]])
        if command == "counterfactual":
            ends = ring().edge_index[:, list(one["edges"])].t().tolist()
            assert one["edge_names"] == [f"{IDS[u]} {NAMES[u]} → {IDS[v]} {NAMES[v]}" for u, v in ends]


def test_check_names_the_worst_edges():
    found = printed("check", *NET, "--index", IDS[4])
    for layer in (*found["layers"], found["whole"]):
        worst = layer["worst"]
        assert (worst["index_id"], worst["index_name"]) == (IDS[4], "Eve")
        assert [worst["source_id"], worst["receiver_id"]] == [IDS[worst["source"]], IDS[worst["receiver"]]]
    worst = found["whole"]["worst"]
    ends = "→".join(f"{IDS[worst[end]]} {NAMES[worst[end]]}" for end in ("source", "receiver"))
    assert f"{ends} for {IDS[4]} Eve" in call("check", *NET, "--index", IDS[4]).stdout


def rows_of(file):
    if file.endswith(".csv"):
        with open(file) as table:
            return list(csv.DictReader(table))
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(file).to_pylist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_file_has_them(ending):
    for command in COMMANDS:
        file = f"{command}.{ending}"
        call(command, *NET, "--index", f"{IDS[4]},{IDS[1]}", "--out", file)
        rows = rows_of(file)
        assert rows, command
        for row in rows:
            if command == "counterfactual":
                assert (row["id"], row["name"]) == (IDS[int(row["index"])], NAMES[int(row["index"])])
                continue
            for column in {"index", "source", "receiver", "node", "node_0", "node_1", "item"} & set(row):
                node = int(row[column])
                assert (row[f"{column}_id"], row[f"{column}_name"]) == (IDS[node], NAMES[node]), (command, column)
    if ending == "parquet":
        assert ew.load("explain.parquet").index.tolist() == [4, 1]
        assert ew.load("features.parquet").index.tolist() == [4, 1]


def test_an_archive_has_them_and_can_be_read_again():
    import numpy as np

    for command in ("explain", "features"):
        call(command, *NET, "--index", IDS[4], "--out", f"{command}.npz")
        with np.load(f"{command}.npz") as found:
            assert json.loads(found["node_ids"].tobytes()) == IDS
            assert json.loads(found["node_names"].tobytes()) == NAMES
        assert ew.load(f"{command}.npz").index.tolist() == [4]


def test_the_page_of_a_job_has_them_and_so_have_lists_of_what_failed():
    call("job", "run", *NET, "--index", "all", "--out", "job")
    call("page", "job", "--out", "job.html")
    with open("job.html") as page:
        assert f"{IDS[4]} Eve" in page.read()
    assert target_names(ew.jobs.open("job"))(4) == f"{IDS[4]} Eve"


def test_the_page_of_a_job_of_a_typed_graph_says_which_predictions_are_wrong(tmp_path):
    typed_tables.written(tmp_path)
    asked = ("--model", "net.py:Net", "--weights", "weights.pt", "--data", "shop", "--index", "account:all")
    said = {one["index"][1]: one["predicted"] for one in printed("explain", *asked)["targets"]}
    call("job", "run", *asked, "--out", "job")
    labels = texts_of_job(tmp_path / "job")[0]["labels"].tolist()
    assert labels == [1, 0, 0] * 3  # fine, fraud in the order of the alphabet
    wrong = sum(labels[index] != predicted for index, predicted in said.items())
    assert 0 < wrong < 9
    call("page", "job", "--out", "job.html")
    page = (tmp_path / "job.html").read_text()
    assert f"{wrong} are predicted as another class than their label" in page
    assert "account a4 Eve" in page


def test_the_page_of_a_job_about_graphs_says_which_predictions_are_wrong(tmp_path):
    graphs = [ring(6, seed=seed) for seed in range(8)]
    said = [int(label) for label in _predicted(graphs)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([float((said[number] + (number in (2, 5))) % 3)])  # whole numbers, but no integers
    torch.save([Data(**graph.to_dict()) for graph in graphs], "graphs.pt")
    call("job", "run", *POOLED, "--data", "graphs.pt", "--index", "all", "--out", "job")
    call("page", "job", "--out", "job.html")
    assert "2 are predicted as another class than their label" in (tmp_path / "job.html").read_text()


def _predicted(graphs):
    torch.save([Data(**graph.to_dict()) for graph in graphs], "plain.pt")
    listed = printed("explain", *POOLED, "--data", "plain.pt", "--index", "all")["targets"]
    return [one["predicted"] for one in listed]


def test_labels_that_are_no_classes_are_left_out():
    assert whole_labels(torch.tensor([0.5, 1.0])) is None
    assert whole_labels(torch.tensor([2.0, float("nan")])).tolist() == [2, -1]
