"""Texts that come from data cannot act: not as formulas in a spreadsheet, not as codes in a terminal."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import MINE, call, workshop
from edgewise.cli.table_files import plain_cell, safe_cell, write_columns

NASTY = ["=1+1", "+2", "-3", "@SUM(A1)", "\t=1", "\r=2", "'=3", "''", "plain", "=cmd|' /C calc'!A0", "", "5"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)


@given(st.text(alphabet="=+-@'\t\r a1", max_size=5))
def test_a_cell_is_read_back_as_it_was_and_never_begins_a_formula(text):
    assert plain_cell(safe_cell(text)) == text
    assert not safe_cell(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_numbers_stay_numbers():
    write_columns(Path("table.csv"), {"=n": np.array([-1.5, 2.0]), "m": [-3, 4], "text": ["-3", "x"]})
    assert Path("table.csv").read_text().splitlines() == ["'=n,m,text", "-1.5,-3,'-3", "2.0,4,x"]


def test_names_of_nodes_in_a_csv_cannot_act_and_can_be_read_back():
    np.savez("named.npz", **dict(np.load("graph.npz")), node_names=np.array(NASTY))
    call("explain", *MINE[:-1], "named.npz", "--out", "result.csv", "--quiet")
    with Path("result.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert row["source_name"][:1] not in ("=", "+", "-", "@", "\t", "\r")
        assert plain_cell(row["source_name"]) == NASTY[int(row["source"])]
        assert float(row["score"])
    assert any(float(row["score"]) < 0 for row in rows)  # a negative number is no formula


@pytest.mark.parametrize(
    "command", [["explain", "--index", "a1"], ["features", "--index", "a1"], ["explain", "--json"]]
)
def test_codes_in_the_names_of_columns_and_nodes_do_not_reach_the_terminal(command):
    folder = Path("table")
    folder.mkdir()
    head = "id,one\x1b[31m,two\x9bm,three\x07,label,note\x1b[2J"
    (folder / "nodes.csv").write_text(f"{head}\na1,1,2,3,x\x1b[31my,text\nb2,4,5,6,z\x9b2J,text\n", encoding="utf-8")
    (folder / "edges.csv").write_text("source,target,odd\x1b[2J\na1,b2,text\nb2,a1,text\n")
    done = call(*command, *MINE[:-1], str(folder))
    for stream in (done.stdout, done.stderr):
        assert not set(stream) & {"\x1b", "\x9b", "\x07"}


def test_before_the_work_it_is_said_what_is_asked_and_what_it_will_cost():
    done = call("explain", *MINE, "--index", "0-5")
    assert done.stderr.startswith(
        "6 nodes; the model returns logits, and the logit (multiclass) is explained; 2 layers.\n"
    )
    assert "Estimated: gradient (input) " in done.stderr
    assert call("explain", *MINE, "--index", "0-5", "--quiet").stderr == ""


def test_predictions_that_are_mostly_wrong_raise_a_question_about_the_scale_of_the_data():
    arrays = dict(np.load("graph.npz"))
    said = call("explain", *MINE, "--index", "all", "--target", "predicted", "--json").stdout
    classes = [target["class"] for target in json.loads(said)["targets"]]
    for shift, question in ((0, False), (1, True)):
        np.savez("labelled.npz", **{**arrays, "y": (np.array(classes) + shift) % 3})
        done = call("explain", *MINE[:-1], "labelled.npz", "--index", "all")
        right = 0 if question else len(classes)
        assert f"Predictions agree with y on {right} of {len(classes)} nodes" in done.stderr
        assert ("is the data scaled as in training?" in done.stderr) is question


def test_where_nodes_have_an_id_and_a_name_both_are_shown():
    folder = Path("table")
    folder.mkdir()
    rows = "\n".join(f"ACC-{node},Ann,{node},1,2" for node in range(4))
    (folder / "nodes.csv").write_text(f"id,name,one,two,three\n{rows}\n")
    (folder / "edges.csv").write_text("source,target\nACC-0,ACC-1\nACC-1,ACC-2\nACC-2,ACC-3\n")
    assert "ACC-0 Ann → ACC-1 Ann" in call("explain", *MINE[:-1], str(folder), "--index", "ACC-1").stdout
