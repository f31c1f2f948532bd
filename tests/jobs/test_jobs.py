"""`ew.jobs.run` and `ew.jobs.open`, and `edgewise job`: the same as `ew.explain`, in a folder that survives interruptions."""

import json
import os
import socket
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import MINE, call, network, ring, workshop
from edgewise.folder_lock import FolderLock
from edgewise.jobs import plan
from edgewise.jobs.job_folder import read_manifest

pytest.importorskip("pyarrow")
import altered_files


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current folder is a user's, and shards are small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "MOST_TARGETS", 5)


def shard_bytes(folder="job"):
    return {path.name: path.read_bytes() for path in Path(folder, "shards").iterdir()}


@pytest.mark.parametrize("level", ["input", "layer"])
def test_a_job_holds_what_explain_gives(level):
    model, data = network(), ring()
    job = ew.jobs.run(model, data, out="job", level=level, method="occlusion", top=3)
    whole = ew.explain(model, data, level=level, method="occlusion", top=3)
    assert len(job) == len(whole) == 12
    assert len(job.shards) == 3
    for ours, theirs in zip(job, whole, strict=True):
        assert (ours.index, ours.target) == (theirs.index, theirs.target)
        torch.testing.assert_close(ours.scores, theirs.scores)
    torch.testing.assert_close(ew.jobs.open("job").of(7).scores, whole.of(7).scores)
    torch.testing.assert_close(job[-1].scores, whole[-1].scores)
    assert read_manifest(Path("job"))["digests"].keys() == {shard.name for shard in job.shards}


@pytest.mark.parametrize("kind", ["link", "typed", "graph"])
def test_links_typed_graphs_and_graphs_are_jobs_too(kind):
    torch.manual_seed(0)
    graphs = [altered_files.graph(n, n) for n in (4, 6, 5)]
    model, data, index, asked = {
        "link": (altered_files.Pairs().eval(), altered_files.graph(9, 1), [(0, 1), (4, 7)], {"task": "link"}),
        "typed": (altered_files.Typed().eval(), altered_files.typed_graph(), ("b", [0, 2]), {}),
        "graph": (altered_files.Pooled().eval(), graphs, None, {"task": "graph"}),
    }[kind]
    job, whole = ew.jobs.run(model, data, index, out="job", **asked), ew.explain(model, data, index, **asked)
    for ours, theirs in zip(job, whole, strict=True):
        assert ours.index == theirs.index
        ours, theirs = getattr(ours, "flat", ours), getattr(theirs, "flat", theirs)
        torch.testing.assert_close(ours.scores, theirs.scores)
    assert job.of(whole[1].index).index == whole[1].index


def test_classes_given_for_each_target_go_with_their_targets():
    target = [0, 1, 2] * 4
    job = ew.jobs.run(network(), ring(), out="job", target=target)
    assert [why.target for why in job] == target


def test_an_interrupted_job_goes_on_to_the_same_bytes(monkeypatch):
    model, data = network(), ring()
    ew.jobs.run(model, data, out="whole", seed=3, method="shapley", samples=4)
    from edgewise.jobs import live_question

    explain, calls = live_question.explain, []

    def interrupting(*arguments, **options):
        calls.append(arguments[2])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return explain(*arguments, **options)

    monkeypatch.setattr(live_question, "explain", interrupting)
    with pytest.raises(KeyboardInterrupt):
        ew.jobs.run(model, data, out="job", seed=3, method="shapley", samples=4)
    part = ew.jobs.open("job")
    assert (part.status.done, part.status.targets) == (5, 12)
    assert part[4].index == 4
    with pytest.raises(ew.InputError, match="Position 5 is not done yet: 5 of 12 targets done"):
        part[5]
    ew.jobs.run(model, data, out="job", seed=3, method="shapley", samples=4)
    assert [len(index) for index in calls] == [5, 5, 5, 2]
    assert shard_bytes("job") == shard_bytes("whole")


def test_another_question_is_refused_with_what_differs():
    model, data = network(), ring()
    ew.jobs.run(model, data, out="job")
    with pytest.raises(ew.FileError, match=r"job that differs: question.level was 'input', is 'layer'"):
        ew.jobs.run(model, data, out="job", level="layer")
    with pytest.raises(ew.FileError, match=r"hashes.data was"):
        ew.jobs.run(model, ring(seed=5), out="job")
    with torch.no_grad():
        model.first.lin_rel.weight[0, 0] += 1
    with pytest.raises(ew.FileError, match=r"hashes.model was"):
        ew.jobs.run(model, data, out="job")
    with pytest.raises(ew.FileError, match=r"index was"):
        ew.jobs.run(network(), data, range(4), out="job")
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("precious")
    with pytest.raises(ew.FileError, match=r"holds other things \(thesis.txt\)"):
        ew.jobs.run(network(), data, out="mine")
    with pytest.raises(ew.FileError, match="not the folder of a job"):
        ew.jobs.open("mine")
    with pytest.raises(ew.SettingError, match="Unknown engine 'cloud'"):
        ew.jobs.run(network(), data, out="new", engine="cloud")


def test_an_altered_shard_is_refused_by_readers_and_computed_again_by_the_job():
    model, data = network(), ring()
    job = ew.jobs.run(model, data, out="job")
    before, path = shard_bytes(), Path("job/shards/shard-00001.parquet")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ew.FileError, match="is not what was written"):
        job[5]
    ew.jobs.run(model, data, out="job")
    assert shard_bytes() == before
    path.unlink()
    with pytest.raises(ew.InputError, match="not done yet"):
        ew.jobs.open("job")[5]


def test_a_target_that_fails_fails_alone_and_can_be_tried_again(monkeypatch):
    from edgewise.jobs import live_question

    model, data, explain, calls = network(), ring(), live_question.explain, []

    def failing(model, data, index, **options):
        calls.append(index)
        if {7, 11} & set(index):
            raise ew.ModelError("The model gave NaN.")
        return explain(model, data, index, **options)

    with monkeypatch.context() as patch:
        patch.setattr(live_question, "explain", failing)
        job = ew.jobs.run(model, data, out="job")
        assert job.failed == dict.fromkeys([7, 11], "ModelError: The model gave NaN.")
        assert (job.status.done, job.status.failed) == (12, 2)
        assert str(job.status).startswith("12 of 12 targets done, 2 failed")
        with pytest.raises(ew.InputError, match=r"Position 7 failed: ModelError: The model gave NaN. Use retry"):
            job.of(7)
        assert set(job.to_frame()["index"]) == set(range(12)) - {7, 11}
        done = len(calls)
        ew.jobs.run(model, data, out="job")
        assert len(calls) == done  # a failure is done, too
    whole = ew.explain(model, data)
    for node in (5, 6, 8, 10):
        torch.testing.assert_close(job.of(node).scores, whole.of(node).scores)
    again = ew.jobs.run(model, data, out="job", retry=True)
    assert again.failed == {}
    torch.testing.assert_close(again.of(7).scores, whole.of(7).scores)


class Rooted(altered_files.Pooled):
    """NaN where a feature is negative."""

    def forward(self, x, edge_index, batch=None):
        return super().forward(x.sqrt(), edge_index, batch)


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")  # NaN differs from itself
@pytest.mark.parametrize("bad", [[5], [0, 1, 9], [5, 6, 7, 8, 9], list(range(11))], ids=str)
def test_a_target_for_which_the_model_says_nan_fails_alone(bad):
    torch.manual_seed(0)
    graphs, model, target = [altered_files.graph(4, seed) for seed in range(12)], Rooted().eval(), [0, 1] * 6
    for place, graph in enumerate(graphs):
        graph.x = -graph.x.abs() if place in bad else graph.x.abs()
    with pytest.raises(ew.ModelError):
        ew.explain(model, graphs, task="graph")
    job = ew.jobs.run(model, graphs, out="job", task="graph", target=target)
    assert sorted(job.failed) == bad
    assert all(why.startswith("ModelError: The model") for why in job.failed.values())
    good = [place for place in range(12) if place not in bad]
    whole = ew.explain(model, graphs, good, task="graph", target=[target[place] for place in good])
    for place in good:
        torch.testing.assert_close(job.of(place).scores, whole.of(place).scores)
        assert job.of(place).target == target[place]
    assert set(job.to_frame()["index"]) == set(good)
    again = ew.jobs.run(model, graphs, out="job", task="graph", target=target, retry=True)
    assert sorted(again.failed) == bad


def test_a_model_that_fails_on_every_target_is_refused_before_the_job_begins():
    graphs = [altered_files.graph(4, seed) for seed in range(3)]
    for graph in graphs:
        graph.x = -graph.x.abs()
    with pytest.raises(ew.ModelError):
        ew.jobs.run(Rooted().eval(), graphs, out="job", task="graph")
    assert not Path("job").exists()


def test_a_shard_that_fails_as_a_whole_beside_others_that_fail_ends_the_job(monkeypatch):
    from edgewise.jobs import live_question

    def failing(*_, **__):
        raise ew.ModelError("The model is tired.")

    monkeypatch.setattr(live_question, "explain", failing)
    with pytest.raises(ew.ModelError, match=r"fails on a whole shard, .* first one: ModelError: The model is tired"):
        ew.jobs.run(network(), ring(), out="job")


def test_a_frame_reads_only_what_is_asked_for():
    pytest.importorskip("pandas")
    model, data = network(), ring()
    job, whole = ew.jobs.run(model, data, out="job"), ew.explain(model, data).to_frame()
    frame = job.to_frame()
    assert frame["position"].tolist() == whole["position"].tolist()
    assert frame["score"].tolist() == pytest.approx(whole["score"].tolist(), rel=1e-5)
    few = job.to_frame(columns=["source", "score"], filters=[("index", "==", 7)])
    assert list(few) == ["source", "score"]
    assert len(few) == (whole["index"] == 7).sum()


NAMED = ("--model", MINE[MINE.index("--model") + 1])
# The command line #####################################################################################################


@pytest.fixture
def mine(tmp_path):
    return workshop(tmp_path)


def test_the_command_line_runs_resumes_and_tells(mine, monkeypatch):
    explain, calls = ew.explain, []

    def interrupting(*arguments, **options):
        calls.append(arguments[2])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return explain(*arguments, **options)

    monkeypatch.setattr(ew, "explain", interrupting)
    asked = ("job", "run", *MINE, "--method", "gradient", "--level", "layer", "--out", "job")
    stopped = call(*asked, code=130).stderr
    assert "Stopped. 5 of 12 targets are finished. Run: edgewise job resume job" in stopped
    assert json.loads(call("job", "status", "job", "--json").stdout)["done"] == 5
    call("job", "resume", "job", *NAMED)
    assert [len(index) for index in calls] == [5, 5, 5, 2]
    monkeypatch.setattr(ew, "explain", explain)
    assert "12 of 12 targets done" in call("job", "status", "job").stdout
    assert "12 of 12 targets done" in call("job", "retry", "job", *NAMED).stdout
    torch.testing.assert_close(ew.jobs.open("job").of(7).scores, ew.explain(mine, ring(), 7, level="layer").scores)
    assert "differs: question.level" in call(*asked[:-4], "--level", "input", "--out", "job", code=1).stderr


def test_a_job_from_python_is_resumed_in_python(mine):
    ew.jobs.run(mine, ring(), out="job")
    said = call("job", "resume", "job", code=1).stderr
    assert "job was made from Python. Call ew.jobs.run(model, data, …, out='job') again" in said
    assert "nowhere is not the folder of a job" in call("job", "status", "nowhere", code=1).stderr


def test_a_second_command_says_who_works_there_and_the_lock_of_a_dead_owner_is_free(mine):
    asked = ("job", "run", *MINE, "--quiet", "--out", "job")
    call(*asked)
    lock = FolderLock.take(Path("job"))
    who = f"process {os.getpid()} on {socket.gethostname()}, since 20"
    assert f"job is being worked on by {who}" in call(*asked, code=1).stderr
    assert f"job is being worked on by {who}" in call("job", "resume", "job", *NAMED, code=1).stderr
    assert json.loads(call("job", "status", "job", "--json").stdout)["running"].startswith(who)
    lock.release()
    Path("job/lock").write_text(json.dumps({"host": "elsewhere", "process": 1, "since": "2020-01-01T00:00:00+00:00"}))
    assert json.loads(call("job", "status", "job", "--json").stdout)["running"] is None
    call("job", "resume", "job", *NAMED)
    assert json.loads(Path("job/lock").read_text())["process"] == os.getpid()
