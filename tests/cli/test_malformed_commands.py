"""Whatever is typed, a command answers or refuses in one sentence with an exit code; with --json the refusal is JSON.

`make fuzz` draws many more command lines (`EDGEWISE_FUZZ`, how many).
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from command_line import MINE, workshop
from edgewise.cli.app import app

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "40"))
COMMANDS = ("explain", "walks", "features", "counterfactual", "check", "compare", "ask")
OPTIONS = (
    "--index", "--target", "--task", "--mode", "--of", "--output", "--method", "--level", "--set", "--seed", "--top",
    "--memory", "--batch-size", "--device", "--link", "--out", "--model", "--data", "--weights", "--sign", "--search", "--rule",
    "--to", "--by", "--threshold", "--seconds", "--budget", "--size",
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
    command = data.draw(st.sampled_from(COMMANDS))
    wrong = data.draw(st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from(VALUES)), min_size=1, max_size=2))
    as_json = data.draw(st.booleans())
    line = [command, *folder, *(part for pair in wrong for part in pair), *(["--json"] if as_json else [])]
    found = CliRunner().invoke(app, line)
    assert found.exception is None or isinstance(found.exception, SystemExit), (line, found.exception)
    assert found.exit_code in (0, 1, 2, 3), (line, found.output)
    assert "Traceback" not in found.output
    assert "Unexpected error" not in found.output, (line, found.output)
    if found.exit_code in (1, 2):
        said = json.loads(found.stdout)["error"] if "--json" in line else found.stderr.strip().splitlines()[-1]
        assert said
        assert "\x1b" not in said
