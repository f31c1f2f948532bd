"""`edgewise explain --out` survives: killed or out of space at any step, the same command goes on to the same bytes."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GCN

import edgewise as ew
from command_line import MINE, SOURCE, call, ring, workshop
from kills import contents, start

COMMAND = ("explain", *MINE, "--method", "gradient,full", "--out", "result.npz", "--page", "why.html", "--quiet")
STEPS = ("mkdir", "open", "fsync", "replace", "unlink", "rmdir", "write", "rename")
"""Functions of `os` that change what is on the disk, or say that it must be there."""


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """The current folder is a user's; shards are small, and the page is a text that is quick to write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgewise.jobs.plan.MOST_TARGETS", 5)

    def write_page(path, *_, **__):
        Path(path).write_text("an edgewise page")
        return Path(path)

    monkeypatch.setattr(ew, "write_page", write_page, raising=False)
    workshop(tmp_path)
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.fixture
def undisturbed(mine, tmp_path):
    """What a run leaves that nothing stops; it is removed again."""
    call(*COMMAND)
    found = contents(tmp_path, mine)
    for name in found:
        (tmp_path / name).unlink()
    assert sorted(found) == ["result.full.npz", "result.gradient.npz", "result.json", "why.html"]
    return found


class Steps:
    """Counts the steps of this process inside a folder, and does something at one of them."""

    def __init__(self, monkeypatch, folder, at=None, act=None):
        self.count = 0
        for name in STEPS:
            monkeypatch.setattr(os, name, self.counting(getattr(os, name), folder, at, act))

    def counting(self, function, folder, at, act):
        def counted(*arguments, **options):
            inside = isinstance(arguments[0], int) or str(Path(arguments[0]).resolve()).startswith(str(folder))
            if inside:
                self.count += 1
                if at == self.count:
                    act()
            return function(*arguments, **options)

        return counted


def full_disk():
    raise OSError(28, "No space left on device")


def steps_of_a_run(monkeypatch, mine, folder):
    with monkeypatch.context() as patch:
        steps = Steps(patch, folder)
        call(*COMMAND)
    for path in folder.iterdir():
        if path.name not in mine:
            path.unlink()
    assert steps.count > 40
    return steps.count


FEW = pytest.mark.parametrize("few", [3, pytest.param(None, marks=pytest.mark.slow)], ids=["some steps", "every step"])


def some(count, few):
    """All steps, or a few of them, spread over the run."""
    return range(1, count + 1) if few is None else [1 + count * place // few + place for place in range(few)]


@FEW
def test_killed_at_any_step_the_same_command_goes_on_to_the_same_bytes(monkeypatch, mine, undisturbed, tmp_path, few):
    for step in some(steps_of_a_run(monkeypatch, mine, tmp_path), few):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of the test runner stay behind, which is what we want
            child = os.fork()
        if child == 0:
            Steps(monkeypatch, tmp_path, step, lambda: os._exit(9))
            call(*COMMAND)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        call(*COMMAND)
        assert contents(tmp_path, mine) == undisturbed, step


@FEW
def test_with_a_full_disk_at_any_step_the_same_command_goes_on_to_the_same_bytes(
    monkeypatch, mine, undisturbed, tmp_path, few
):
    codes = set()
    for step in some(steps_of_a_run(monkeypatch, mine, tmp_path), few):
        with monkeypatch.context() as patch:
            Steps(patch, tmp_path, step, full_disk)
            code = None
            for code in (0, 1):
                try:
                    call(*COMMAND, code=code)
                    break
                except AssertionError:
                    continue
            codes.add(code)
        call(*COMMAND)
        assert contents(tmp_path, mine) == undisturbed, step
    assert 1 in codes


def test_a_disk_that_is_full_between_result_and_manifest_leaves_what_the_same_command_completes(
    monkeypatch, mine, undisturbed, tmp_path
):
    replace, moved = os.replace, []

    def once(source, target):
        if Path(target).parent.resolve() == tmp_path and len(moved) == 1:
            full_disk()
        if Path(target).parent.resolve() == tmp_path:
            moved.append(target)
        return replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", once)
        said = call(*COMMAND, code=1).stderr
    assert "24 of 24 targets are finished and kept in .result.npz.job. The same command resumes" in said
    call(*COMMAND)
    assert contents(tmp_path, mine) == undisturbed


@pytest.mark.parametrize("moment", ["write_whole", "digest_of", "add"])
def test_a_stop_right_after_a_step_of_the_first_shard_loses_nothing(monkeypatch, moment, tmp_path):
    from edgewise.jobs import shard_run
    from edgewise.jobs.journal import Journal
    from edgewise.results import storage

    owner = {"write_whole": storage, "digest_of": shard_run, "add": Journal}[moment]
    function = getattr(owner, moment)

    def stopping(*arguments, **options):
        function(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, stopping)
        said = call("explain", *MINE, "--out", "result.npz", code=130).stderr
    assert f"{5 if moment == 'add' else 0} of 12 targets are finished and kept in .result.npz.job." in said
    assert "5 of 12 targets are finished" in call("explain", *MINE, "--out", "result.npz").stderr


# Parts that are not what they should be ###############################################################################


@pytest.fixture
def stopped(monkeypatch, tmp_path):
    """Stopped when all shards but the last are finished; the folder of the shards."""
    explain, calls = ew.explain, []

    def interrupting(*arguments, **options):
        calls.append(arguments[2])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return explain(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ew, "explain", interrupting)
        call("explain", *MINE, "--out", "result.npz", code=130)
    return tmp_path / ".result.npz.job" / "shards"


def truncated(shards):
    path = shards / "gradient-00000.npz"
    path.write_bytes(path.read_bytes()[:-100])


def turned(shards):
    """The nodes in another order, the file sound and the journal content with it."""
    path = shards / "gradient-00000.npz"
    ew.load(path)[[1, 0, 2, 3, 4]].save(path)
    (shards.parent / "journal.jsonl").write_text("")


def foreign(shards):
    """The same targets of another model, the journal gone."""

    torch.manual_seed(5)
    other = ew.explain(GCN(3, 4, 2, 3).eval(), ring(), range(5))
    other.save(shards / "gradient-00000.npz")
    (shards.parent / "journal.jsonl").unlink()


def swapped(shards):
    one, other = shards / "gradient-00000.npz", shards / "gradient-00001.npz"
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def torn_journal(shards):
    journal = shards.parent / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])


def lost_manifest(shards):
    (shards.parent / "manifest.json").write_text("{")


@pytest.mark.parametrize("damage", [truncated, turned, foreign, swapped, torn_journal, lost_manifest])
def test_a_part_that_is_not_what_it_should_be_is_computed_again(damage, stopped, mine, tmp_path):
    damage(stopped)
    call("explain", *MINE, "--out", "result.npz", "--quiet")
    resumed = contents(tmp_path, mine)
    call("explain", *MINE, "--out", "result.npz", "--quiet")
    assert contents(tmp_path, mine) == resumed
    assert ew.load("result.npz").index.tolist() == list(range(12))


def test_stale_temporary_files_are_cleaned_up(stopped, tmp_path):
    (stopped / ".gradient-00002.npz.abc.unfinished").write_text("half")
    call("explain", *MINE, "--out", "result.npz", "--quiet")
    (tmp_path / ".result.npz.abc.unfinished").write_text("half")  # of a writer that was killed
    ew.load("result.npz").save("result.npz")
    assert not list(tmp_path.rglob("*.unfinished"))
    assert not (tmp_path / ".result.npz.job").exists()


def test_two_runs_for_one_result_do_not_meet(stopped, tmp_path):
    from edgewise.folder_lock import FolderLock

    lock = FolderLock.take(tmp_path / ".result.npz.job")
    said = call("explain", *MINE, "--out", "result.npz", code=1).stderr
    assert f".result.npz.job is being worked on by process {os.getpid()} on " in said
    lock.release()
    call("explain", *MINE, "--out", "result.npz")


def test_a_hidden_folder_that_is_not_ours_is_not_touched(tmp_path):
    (tmp_path / ".result.npz.job").mkdir()
    (tmp_path / ".result.npz.job" / "thesis.txt").write_text("precious")
    said = call("explain", *MINE, "--out", "result.npz", code=1).stderr
    assert ".result.npz.job holds other things (thesis.txt). Use a folder that is empty or new." in said
    assert (tmp_path / ".result.npz.job" / "thesis.txt").read_text() == "precious"


# The real thing #######################################################################################################


@pytest.mark.slow
def test_a_hundred_kills_of_all_cora_nodes_with_three_methods(raw_data, tmp_path):
    from torch_geometric.datasets import Planetoid

    folder = tmp_path / "work"
    folder.mkdir()
    torch.save(Planetoid(raw_data("Cora"), "Cora")[0], folder / "cora.pt")
    (folder / "net.py").write_text(
        "import torch\nfrom torch_geometric.nn import GCN\n\n\ndef make():\n    torch.manual_seed(0)\n"
        "    return GCN(1433, 16, 2, 7)\n"
    )
    asked = ("--model", "net.py:make", "--data", "cora.pt", "--method", "gradient,occlusion,gnn_explainer")
    script = Path(start.__code__.co_filename)
    done = subprocess.run(
        [sys.executable, script, folder, "100", "1", "--", "explain", *asked, "--out", "result.parquet", "--page", "why.html"],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert min(counts["SIGKILL"], counts["SIGTERM"], counts["SIGINT"]) > 15
    assert counts["resumed"] > 40
