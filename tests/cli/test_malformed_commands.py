"""Whatever is typed, a command answers or refuses in one sentence with an exit code; with --json the refusal is JSON.

`make fuzz` draws many more command lines (`EDGEWISE_FUZZ`, how many).
"""

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from command_line import MINE, workshop
from edgewise.cli.app import app

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "40"))
FOLDER_COMMANDS = ("job status", "job resume", "job retry", "store info", "store build")
COMMANDS = ("explain", "walks", "features", "counterfactual", "check", "compare", "ask")
OPTIONS = (
    "--index", "--target", "--task", "--mode", "--of", "--output", "--method", "--level", "--set", "--seed", "--top",
    "--memory", "--batch-size", "--device", "--link", "--out", "--model", "--data", "--weights", "--sign", "--search", "--rule",
    "--to", "--by", "--threshold", "--seconds", "--budget", "--size", "--engine", "--workers", "--scheduler", "--audit",
    "--neighbors",
)  # fmt: skip
VALUES = (
    "", "nope", "-1", "0", "3", "1.5", "nan", "10" * 20, "a" * 300, "\x1b[31m", "é→", "seed=4", "epochs=0", "3:17", "3-1",
    "2,x", "all", "test", "paper:3", "nowhere.npz", "/", "../..", "cuda:9", "2GB", "-5GB", "class", "{}", "a=b=c", "--json",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("commands")
    before = Path.cwd()
    os.chdir(path)
    workshop(path)
    yield [*MINE, "--index", "1,2"]
    os.chdir(before)


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_malformed_command_is_refused_in_one_sentence(folder, data):
    command = data.draw(st.sampled_from([*COMMANDS, "job run"]))
    out = ["--out", str(Path("jobs") / str(uuid4()))] if command == "job run" else []
    wrong = data.draw(st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from(VALUES)), min_size=1, max_size=2))
    as_json = data.draw(st.booleans())
    line = [
        *command.split(),
        *folder,
        *out,
        *(part for pair in wrong for part in pair),
        *(["--json"] if as_json else []),
    ]
    found = CliRunner().invoke(app, line)
    assert found.exception is None or isinstance(found.exception, SystemExit), (line, found.exception)
    assert found.exit_code in (0, 1, 2, 3), (line, found.output)
    assert "Traceback" not in found.output
    assert "Unexpected error" not in found.output, (line, found.output)
    if found.exit_code in (1, 2):
        said = json.loads(found.stdout)["error"] if "--json" in line else found.stderr.strip().splitlines()[-1]
        assert said
        assert "\x1b" not in said


@given(data=st.data())
@settings(max_examples=EXAMPLES // 2)
def test_a_command_about_a_folder_that_is_none_is_refused_in_one_sentence(folder, data):
    command = data.draw(st.sampled_from(FOLDER_COMMANDS))
    paths = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2))
    options = data.draw(st.lists(st.tuples(st.sampled_from(OPTIONS[-5:]), st.sampled_from(VALUES)), max_size=1))
    line = [*command.split(), *paths, *(part for pair in options for part in pair)]
    found = CliRunner().invoke(app, line)
    assert found.exception is None or isinstance(found.exception, SystemExit), (line, found.exception)
    assert found.exit_code in (1, 2), (line, found.output)
    assert "Traceback" not in found.output
    assert "Unexpected error" not in found.output, (line, found.output)
    assert found.output.strip()
