"""Going on with a folder runs no code that it names, unless the user names it again or trusts the folder."""

import json
import pickle
from pathlib import Path

import pytest

from command_line import MINE, call, workshop
from edgewise.cli.job_data import _graphs

pytest.importorskip("pyarrow")
MODEL = ("--model", "net.py:Net")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A finished job, whose model and plugin leave a mark when they are imported; the folder of the marks."""
    monkeypatch.chdir(tmp_path)
    workshop(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    for name in ("net.py", "my_plugin.py", "other.py"):
        text = Path(name).read_text() if Path(name).exists() else ""
        Path(name).write_text(f"{text}\nimport pathlib\npathlib.Path({str(marks / name)!r}).touch()\n")
    call("job", "run", *MINE, "--out", "job")
    for mark in marks.iterdir():
        mark.unlink()
    return marks


def change(name, value):
    """Let the folder ask for something else."""
    path = Path("job/manifest.json")
    said = json.loads(path.read_text())
    said["identity"]["question"][name] = value
    path.write_text(json.dumps(said))


@pytest.mark.parametrize("command", ["resume", "retry"])
def test_no_code_runs_that_the_user_has_not_named(job, command):
    said = call("job", command, "job", code=1).stderr
    assert f"job asks to run code: the model net.py:Net with features=3, from {Path('net.py').resolve()}." in said
    assert "Nothing was imported. If that is yours, say so: --model net.py:Net, or --trust-folder." in said
    assert (
        "was begun with --model net.py:Net, not other.py:Net"
        in call("job", command, "job", "--model", "other.py:Net", code=1).stderr
    )
    assert list(job.iterdir()) == []
    for named in (MODEL, ("--trust-folder",)):
        done = call("job", command, "job", *named)
        assert f"Running the model net.py:Net with features=3, from {Path('net.py').resolve()}." in done.stderr
        assert [mark.name for mark in job.iterdir()] == ["net.py"]
        (job / "net.py").unlink()


class Unpickled:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def pickled(job):
    """The folder of a job that names a data set of PyG, whose raw files are pickles, and says that a target has failed."""
    raw = Path("root/Cora/raw")
    raw.mkdir(parents=True)
    for name in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(Unpickled(job / "unpickled")))
    (raw / "ind.cora.test.index").write_text("0\n")
    change("data", "cora")
    change("root", "root")
    return job


def test_a_data_set_that_would_be_unpickled_needs_trust_in_the_folder(pickled):
    said = call("job", "resume", "job", *MODEL, code=1).stderr
    assert f"the data set cora, which PyG unpickles, from {Path('root').resolve()}. Nothing was imported." in said
    assert said.strip().endswith("say so: --trust-folder.")
    assert list(pickled.iterdir()) == []
    call("job", "resume", "job", "--trust-folder", code=1)
    assert (pickled / "unpickled").exists()


@pytest.mark.parametrize("root", [None, "elsewhere", "."])
def test_who_only_looks_at_a_folder_unpickles_nothing_that_it_names(pickled, monkeypatch, root):
    if root is not None:
        monkeypatch.setenv("EDGEWISE_DATA", root)
    assert "Without names: PyG would unpickle cora in root." in call("page", "job").stderr
    assert _graphs(Path("job"))[0] is None  # for the names of targets that failed
    assert list(pickled.iterdir()) == []


def test_a_root_of_the_users_own_is_not_looked_for_where_the_folder_says(pickled, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEWISE_DATA", "root")
    change("root", None)
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert "Without names: There is no folder root/Cora/raw." in call("page", tmp_path / "job").stderr
    assert list(pickled.iterdir()) == []


def test_a_plugin_is_named_again_too(job, monkeypatch):
    change("plugin", ["my_plugin"])
    said = call("job", "resume", "job", *MODEL, code=1).stderr
    assert f"the plugin my_plugin, from {Path('my_plugin.py').resolve()}" in said
    assert "say so: --model net.py:Net --plugin my_plugin, or --trust-folder" in said
    assert list(job.iterdir()) == []
    call("job", "resume", "job", *MODEL, "--plugin", "my_plugin")
    assert {mark.name for mark in job.iterdir()} == {"net.py", "my_plugin.py"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 3), ("model", ["net.py:Net"]), ("plugin", "my_plugin"), ("plugin", [3]), ("seed", "0"), ("data", None),
        ("weights", ["weights.pt"]), ("settings", []), ("top", "3"), ("level", None), ("no_such_option", 1), ("json", True),
        ("model_args", {"features": 3}),
    ],
)  # fmt: skip
def test_a_folder_that_was_not_asked_by_a_command_is_refused(job, name, value):
    change(name, value)
    assert "job does not say how it was asked" in call("job", "resume", "job", "--trust-folder", code=1).stderr
    assert list(job.iterdir()) == []


@pytest.mark.parametrize(
    "model", ["\0.py:Net", "a\0b:Net", ":Net", "net", "no.such.module:Net", "x" * 5000 + ".py:Net"]
)
def test_a_model_that_is_nowhere_is_refused(job, model):
    change("model", model)
    assert "asks to run code" in call("job", "resume", "job", code=1).stderr
    assert list(job.iterdir()) == []


def test_a_command_that_a_folder_offers_is_quoted_for_the_shell(job):
    path = Path("job/manifest.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "cwd": "/tmp; touch owned"}))
    assert "Run: cd '/tmp; touch owned'" in call("job", "resume", "job", code=1).stderr
    path.write_text(json.dumps({**json.loads(path.read_text()), "cwd": str(Path.cwd())}))
    change("model", "net.py:Net; touch owned")
    assert "--model 'net.py:Net; touch owned', or" in call("job", "resume", "job", code=1).stderr


def test_a_generated_data_set_brings_its_own_model_and_nothing_has_to_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call("job", "run", "--data", "negative_evidence", "--index", "0,1", "--out", "job")
    assert "2 of 2 targets done" in call("job", "resume", "job").stdout
