"""The commands: what they print, what they exit with, what they complete, and that help needs no torch."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import MINE, ROOT, SOURCE, call, error, printed, ring, workshop
from edgewise.algorithms import own_methods, registry
from edgewise.cli import options
from edgewise.cli.guard import guarded
from edgewise.cli.options import CommonOptions, one_pair_each

COMMANDS = (
    "explain",
    "walks",
    "features",
    "counterfactual",
    "compare",
    "check",
    "ask",
    "job",
    "page",
    "store",
    "methods",
    "leaderboard",
    "demo",
    "reproduce",
)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The current folder is a user's, with a model, weights and data; the model."""
    monkeypatch.chdir(tmp_path)
    return workshop(tmp_path)


# Help and completion ##################################################################################################


def test_no_help_loads_torch_or_numpy():
    code = "import sys\nfrom typer.testing import CliRunner\nfrom edgewise.cli.app import app\n"
    code += f"for words in [[], *([name] for name in {COMMANDS})]:\n"
    code += "    done = CliRunner().invoke(app, [*words, '--help'])\n    assert done.exit_code == 0, done.output\n"
    code += "loaded = {'torch', 'numpy', 'torch_geometric', 'pandas'} & set(sys.modules)\nassert not loaded, loaded"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("edgewise explain --method occ", "occlusion"),
        ("edgewise explain --method gradient,occ", "gradient,occlusion"),
        ("edgewise check --data inf", "infection"),
        ("edgewise walks --search amp_ave_", "amp_ave_additive"),
        ("edgewise comp", "compare"),
        ("edgewise reproduce them", None),
        ("edgewise reproduce theo", "theorems"),
    ],
)
def test_the_shell_is_offered_names_without_torch(typed, offered):
    words = typed.split()
    code = "import sys\nfrom edgewise.cli import main\nsys.argv = ['edgewise']\n"
    code += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "_EDGEWISE_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ([offered] if offered else [])


def test_the_names_that_help_offers_are_those_of_the_library():
    from edgewise.algorithms.feature_methods import FEATURE_METHODS
    from edgewise.api.walks import SEARCHES, SIGNS
    from edgewise.graph.inputs import TASKS
    from edgewise.question.target import MODES, NUMBERS
    from edgewise.score import LEVELS

    assert list(options.METHODS) == list(ew.methods())
    assert list(options.FEATURE_METHODS) == list(FEATURE_METHODS)
    assert list(options.PLANTED) == ew.datasets.names()
    assert (options.LEVELS, options.TASKS, options.MODES, options.NUMBERS) == (LEVELS, TASKS, MODES, NUMBERS)
    assert (options.SEARCHES, tuple(options.SIGNS)) == (SEARCHES, tuple(SIGNS))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_and_every_command_has_an_example(command):
    import typer.main

    from edgewise.cli.app import app

    group = typer.main.get_command(app)
    found = group.get_command(group.make_context("edgewise", ["methods"]), command)
    assert all(option.help for option in found.params)
    assert f"edgewise {command}" in (found.epilog or "")


def test_every_command_of_the_documentation_can_be_typed():
    import re
    import shlex

    import typer.main

    from edgewise.cli import (
        counterfactual_command,
        demo_command,
        explain_command,
        features_command,
        question_commands,
        walks_command,
    )
    from edgewise.cli.app import METHODS_EPILOG, app
    from edgewise_paper import command

    pages = [ROOT / "docs" / "command-line.md", ROOT / "docs" / "reproduce.md", ROOT / "README.md"]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    asking = (question_commands.ASK_EPILOG, question_commands.COMPARE_EPILOG, question_commands.CHECK_EPILOG)
    modules = (demo_command, explain_command, features_command, counterfactual_command, walks_command, command)
    others = [module.EPILOG for module in modules]
    texts += [text.replace("\n--", " --") for text in (*asking, *others, METHODS_EPILOG)]
    group = typer.main.get_command(app)
    context = group.make_context("edgewise", ["methods"])
    typed = [line for text in texts for line in re.findall(r"^edgewise ([a-z].*)$", text, re.MULTILINE)]
    assert len(typed) > 10
    for line in typed:
        name, *rest = shlex.split(line)
        group.get_command(context, name).make_context(name, rest)


def test_version_is_printed():
    assert call("--version").stdout.startswith(f"edgewise {ew.__version__}\npython 3.")


def test_pairs_may_follow_one_option():
    assert one_pair_each(["--set", "a=1", "b=2", "--model-args", "c=3"]) == [
        "--set",
        "a=1",
        "--set",
        "b=2",
        "--model-args",
        "c=3",
    ]
    assert one_pair_each(["--set", "a=1", "--out", "x=y", "z=1"]) == ["--set", "a=1", "--out", "x=y", "z=1"]


def test_wrong_usage_has_exit_code_2(mine):
    call("explain", code=2)
    call("explain", *MINE, "--no-such-option", code=2)
    call("explain", *MINE, "stray=1", code=2)


# Explain ##############################################################################################################


def test_explain_prints_what_the_library_says(mine):
    found = printed("explain", *MINE, "--index", "3,5", "--method", "occlusion", "--level", "layer", "--top", "4")
    expected = ew.explain(mine, ring(), [3, 5], method="occlusion", level="layer")
    assert [one["index"] for one in found["targets"]] == [3, 5]
    for one, why in zip(found["targets"], expected, strict=True):
        probabilities = mine(ring().x, ring().edge_index)[why.index].softmax(0).detach()
        assert one["class"] == one["predicted"] == why.target
        assert one["probability"] == pytest.approx(float(probabilities[why.target]), rel=1e-5)
        assert one["value"] == pytest.approx(why.value, rel=1e-5)
        edges = [
            (edge["score"], edge["source"], edge["receiver"], edge["column"], edge["layer"]) for edge in one["edges"]
        ]
        for ours, theirs in zip(edges, why.top(4, by="magnitude"), strict=True):
            assert ours[1:] == theirs[1:]
            assert ours[0] == pytest.approx(theirs[0], rel=1e-4)


def test_the_table_shows_the_strongest_edges_of_the_first_targets(mine):
    shown = call("explain", *MINE).stdout
    strongest = ew.explain(mine, ring(), 0).top(1, by="magnitude")[0]
    assert f"{strongest[1]} → {strongest[2]}" in shown
    assert f"{strongest[0]:+.4g}" in shown
    assert "the first 5 of 12 targets" in shown


def test_without_a_file_only_what_is_shown_is_explained(mine, monkeypatch):
    asked, explain = [], ew.explain
    monkeypatch.setattr(ew, "explain", lambda *a, **k: asked.append(len(a[2])) or explain(*a, **k))
    call("explain", *MINE)
    assert sum(asked) == 5


def test_classes_are_predicted_given_or_the_labels(mine):
    def classes(*more):
        return [one["class"] for one in printed("explain", *MINE, "--index", "0-5", *more)["targets"]]

    predicted = mine(ring().x, ring().edge_index).argmax(1)[:6].tolist()
    assert classes() == classes("--target", "predicted") == predicted
    assert classes("--target", "label") == ring().y[:6].tolist()
    assert classes("--target", "2") == [2] * 6
    assert "the model has 3, 0 to 2" in error("explain", *MINE, "--target", "7")
    assert "predicted, label, all, or the number" in error("explain", *MINE, "--target", "frog")


def test_every_class_is_explained_in_turn(mine):
    few = printed("explain", *MINE, "--index", "4,1", "--target", "all")["targets"]
    assert [(one["index"], one["class"]) for one in few] == [(i, c) for i in (4, 1) for c in range(3)]
    for one in few:
        why = ew.explain(mine, ring(), one["index"], target=one["class"])
        assert one["edges"][0]["score"] == pytest.approx(why.top(1, by="magnitude")[0][0], rel=1e-5)
    assert len(printed("features", *MINE, "--index", "4", "--target", "all")["targets"]) == 3
    assert len(printed("walks", *MINE, "--index", "4", "--target", "all")["targets"]) == 3
    call("job", "run", *MINE, "--index", "4,1", "--target", "all", "--out", "job")
    assert [why.target for why in ew.jobs.open("job")] == [0, 1, 2, 0, 1, 2]


def test_labels_that_contradict_the_model_name_the_mode(mine):
    data = ring()
    data.y = torch.linspace(-1.5, 2.5, data.num_nodes)
    torch.save(data, "values.pt")
    command = ["explain", "--model", "net.py:Net", "--model-args", "features=3", "classes=1", "--data", "values.pt"]
    assert "Use --mode regression" in error(*command, "--index", "4")
    assert "value" in printed(*command, "--index", "4", "--mode", "regression")["targets"][0]


def test_settings_of_a_method_reach_it(mine):
    few = printed("explain", *MINE, "--index", "1", "--method", "gnn_explainer", "--set", "epochs=3", "lr=0.5")
    why = ew.explain(mine, ring(), 1, method="gnn_explainer", epochs=3, lr=0.5)
    assert few["targets"][0]["edges"][0]["score"] == pytest.approx(why.top(1)[0][0], rel=1e-5)
    assert "has no setting 'epoch'" in error("explain", *MINE, "--method", "gnn_explainer", "--set", "epoch=3")


def test_the_number_of_threads_reaches_the_library_and_changes_no_score(mine, monkeypatch):
    seen, explain = [], ew.explain
    monkeypatch.setattr(
        ew, "explain", lambda *args, **options: seen.append(options["threads"]) or explain(*args, **options)
    )
    command = ["explain", *MINE, "--index", "2,3"]
    one, two, default = (printed(*command, *more) for more in (["--threads", "1"], ["--threads", "2"], []))
    assert seen == [1, 2, None]
    assert one["targets"] == two["targets"] == default["targets"]
    assert "--threads" in call(*command, "--threads", "0", code=2).output
    assert "--threads 3" in error(*command, "--set", "threads=3")


def test_what_the_library_says_in_python_is_said_for_a_terminal(mine):
    assert "--task graph" in error("explain", *MINE[:1], "net.py:Pooled", *MINE[2:])


def test_quiet_says_nothing_and_json_leaves_stdout_to_the_machine(mine):
    silent = call("explain", *MINE, "--quiet")
    assert silent.output == ""
    talkative = call("explain", "--model", "net.py:ready", "--data", "graph.npz", "--json")
    assert json.loads(talkative.stdout)["command"] == "explain"
    assert "No --weights" in talkative.stderr


def test_debug_shows_the_traceback_and_the_sentence(mine):
    from typer.testing import CliRunner

    from edgewise.cli.app import app

    done = CliRunner().invoke(app, ["explain", *MINE, "--index", "99", "--debug"])
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert done.stderr.strip().splitlines()[-1] == "Error: --index names node 99; there are 12 nodes, 0 to 11."


def test_an_unexpected_error_is_a_sentence_too(mine, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr(ew, "explain", fail)
    assert "ZeroDivisionError: one. Unexpected error; run again with --debug" in error("explain", *MINE)
    monkeypatch.setattr(ew, "explain", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    assert "Out of memory" in error("explain", *MINE)


def test_names_from_the_data_cannot_steer_the_terminal(mine):
    import numpy as np

    arrays = dict(np.load("graph.npz"))
    np.savez("named.npz", **arrays, node_names=np.array([f"\x1b[31m[bold]{n}" for n in range(12)]))
    shown = call("explain", *MINE[:-1], "named.npz", "--index", "0").stdout
    assert "\x1b" not in shown
    assert "�[31m[bold]0" in shown


# Walks, compare, check, methods, demo #################################################################################


def test_walks_prints_what_the_library_says(mine):
    found = printed("walks", *MINE, "--index", "4", "--top", "3", "--sign", "magnitude")["targets"][0]
    expected = ew.walks(mine, ring(), 4, k=3, sign="magnitude")
    assert [tuple(walk["nodes"]) for walk in found["walks"]] == [walk.nodes for walk in expected]
    assert [walk["score"] for walk in found["walks"]] == pytest.approx([walk.score for walk in expected], rel=1e-5)
    assert found["exact"] is True
    assert " → ".join(map(str, expected[0].nodes)) in call("walks", *MINE, "--index", "4", "--sign", "magnitude").stdout
    assert "search 'fast'" in error("walks", *MINE, "--search", "fast")


def test_counterfactual_prints_what_the_library_says_and_writes_a_row_for_each_target(mine, tmp_path):
    data = ring()
    said = printed("counterfactual", *MINE, "--index", "1,4", "--undirected", "--budget", "5000")
    found = ew.counterfactual(mine, data, [1, 4], undirected=True, budget=5000)
    for one, flip in zip(said["targets"], found, strict=True):
        assert (one["status"], one["edges"], one["flips_to"]) == (flip.status, list(flip.edges), flip.flips_to)
        assert one["sentence"].startswith(("Without", "No set"))
    assert said["counts"] == found.counts()
    call("counterfactual", *MINE, "--index", "1,4", "--undirected", "--out", tmp_path / "flips.csv")
    lines = (tmp_path / "flips.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("index,name,class_name,status,size")
    assert (tmp_path / "flips.json").exists()
    assert "smallest changes" in call("counterfactual", *MINE, "--index", "1", "--to", "2", "--by", "removal").stdout
    assert "0 to 2" in error("counterfactual", *MINE, "--index", "1", "--to", "7")
    assert "number of a class" in error("counterfactual", *MINE, "--index", "1", "--to", "fraud")
    assert "weight" in error("counterfactual", *MINE, "--index", "1", "--by", "magic")
    assert ".csv or .parquet" in error("counterfactual", *MINE, "--index", "1", "--out", tmp_path / "flips.npz")


def test_features_prints_what_the_library_says_and_writes_every_score(mine, tmp_path):
    data = ring()
    said = printed("features", *MINE, "--index", "1,4", "--method", "occlusion", "--top", "2")
    found = ew.features(mine, data, [1, 4], method="occlusion", top=2)
    for one, why in zip(said["targets"], found, strict=True):
        assert [(row["node"], row["feature"]) for row in one["features"]] == [
            row[1:3] for row in why.top(2, "magnitude")
        ]
        assert one["value"] == pytest.approx(why.value)
        for row in one["features"]:
            assert row["feature_value"] == pytest.approx(float(data.x[row["node"], row["feature"]]))
    for ending in ("csv", "npz"):
        call("features", *MINE, "--index", "1,4", "--out", tmp_path / f"{ending}.{ending}")
    every = ew.features(mine, data, [1, 4])
    again = ew.load(tmp_path / "npz.npz")
    assert torch.equal(again[1].scores, every[1].scores)
    lines = (tmp_path / "csv.csv").read_text().splitlines()
    assert len(lines) == 1 + len(every.to_rows())
    assert "gradient_x_input" in call("features", *MINE, "--index", "1").stdout
    assert "integrated_gradients" in error("features", *MINE, "--method", "integrated")


def test_compare_prints_what_the_library_says_and_writes_every_pair(mine, tmp_path):
    wanted = ("--index", "0-3", "--method", "gradient,occlusion", "--level", "input", "--out", "pairs.csv")
    found = printed("compare", *MINE, *wanted)
    expected = ew.compare(mine, ring(), [0, 1, 2, 3], methods=["gradient", "occlusion"], levels=["input"])
    theirs = {(row["first"], row["second"], row["measure"]): row["mean"] or -1 for row in expected.rows()}
    ours = {(row["first"], row["second"], row["measure"]): row["mean"] or -1 for row in found["agreements"]}
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == len(theirs) + 1
    assert "cosine, input level" in call("compare", *MINE, *wanted[:-2]).stdout


def test_check_prints_what_the_library_says_and_3_is_its_exit_code_for_doubt(mine):
    found = printed("check", *MINE, "--index", "0-3")
    expected = {one.name: one.verdict for one in ew.check(mine, ring(), [0, 1, 2, 3]).statements}
    assert {one["name"]: one["verdict"] for one in found["statements"]} == expected
    failing = next(name for name, verdict in expected.items() if verdict in ("fails", "partly"))
    good = next(name for name, verdict in expected.items() if verdict in ("holds", "nearly"))
    call("check", *MINE, "--index", "0-3", "--require", good)
    assert failing in call("check", *MINE, "--index", "0-3", "--require", failing, code=3).stderr
    call("check", *MINE, "--index", "0-3", "--require", "all", code=3)
    assert "'Proposition 99'" in error("check", *MINE, "--index", "0-3", "--require", "Proposition 99")


def test_methods_are_listed_for_people_and_machines():
    assert "gnn_explainer" in call("methods").stdout
    assert json.loads(call("methods", "--json").stdout)["gnn_explainer"]["settings"]["epochs"] == 100


def test_demo_passes_its_options_on(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr("edgewise.cli.demo_command.run", lambda *arguments, full: given.append((*arguments, full)))
    call("demo", "--out", tmp_path, "--nodes", "7", "--seed", "3")
    assert given == [(tmp_path, 7, 3, False)]
    call("demo", "--nodes", "0", code=2)


def test_demo_says_what_it_does_and_ends_with_a_page_to_open(tmp_path):
    shown = call("demo", "--out", tmp_path / "new", "--nodes", "30").stdout.splitlines()
    assert shown[0].startswith("Edgewise demo:")
    assert shown[-1] == f"Open this: {(tmp_path / 'new' / 'why.html').resolve()}"
    assert "the model says" in (tmp_path / "new" / "why.html").read_text(encoding="utf-8")


def test_demo_compares_saves_and_draws(monkeypatch, tmp_path):
    monkeypatch.setattr("edgewise.cli.demo_command.WALK_SEEDS", 1)
    monkeypatch.setattr("edgewise.cli.demo_command.SEARCHES", ("exact", "dag"))
    monkeypatch.setattr("edgewise.cli.demo_command.LEFT_OUT", ("shapley", "gnn_explainer", "integrated_gradients"))
    shown = call("demo", "--out", tmp_path / "new", "--nodes", "3", "--full").stdout
    assert {"gradient", "eig_search", "goat_walks", "full"} <= {line.split()[0] for line in shown.splitlines() if line}
    assert "Not run, because it takes minutes here: shapley" in shown
    exact = next(line.split() for line in shown.splitlines() if line.startswith("exact "))
    assert "100.0%" in exact  # its walks are truly the best
    assert len(ew.load(tmp_path / "new" / "gradient.npz")) == 3
    assert (tmp_path / "new" / "infection.png").read_bytes().startswith(b"\x89PNG")


def test_a_generated_data_set_brings_its_model():
    found = printed("explain", "--data", "infection", "--index", "truth,0,1", "--top", "1")
    planted = ew.datasets.load("infection")
    assert [one["index"] for one in found["targets"]][: len(planted.targets)] == planted.targets.tolist()
    why = ew.explain(planted.train().model, planted.data, 0)
    value = next(one["value"] for one in found["targets"] if one["index"] == 0)
    assert value == pytest.approx(why.value, rel=1e-4)


def test_every_shared_option_is_an_option_of_every_question():
    import typer.main

    from edgewise.cli.app import app

    group = typer.main.get_command(app)
    context = group.make_context("edgewise", ["methods"])
    for command in ("explain", "walks", "features", "compare", "check"):
        assert set(CommonOptions.__dataclass_fields__) <= {
            option.name for option in group.get_command(context, command).params
        }


class ToProgrammers(UserWarning, DeprecationWarning):
    """As pyparsing has one, which an old matplotlib sets off."""


def test_what_a_library_says_to_programmers_is_not_said_to_users(capsys):
    with guarded(debug=False):
        warnings.warn("'parseString' deprecated", ToProgrammers, stacklevel=1)
        warnings.warn("Look here.", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: Look here.\n"


def test_a_model_that_is_not_local_is_explained_with_a_warning_in_one_line(mine, tmp_path):
    (tmp_path / "far.py").write_text(
        "import torch\nfrom torch_geometric.nn import GraphConv\n\n\nclass Far(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.conv = GraphConv(3, 3)\n\n"
        "    def forward(self, x, edge_index):\n        x = self.conv(x, edge_index)\n        return x - x.mean(0)\n"
    )
    done = call("explain", "--model", "far:Far", "--data", "graph.npz", "--index", "0")
    assert done.stderr.count("Warning: ") == 1
    assert "far.py" not in done.stderr


def test_global_random_state_is_left_alone(mine):
    before = torch.get_rng_state()
    call("explain", "--model", "net:Net", "--model-args", "features=3", "--data", "graph.npz", "-i", "0")
    assert torch.equal(before, torch.get_rng_state())


def test_auto_is_decided_once_for_all_shards_and_says_why(mine):
    found = printed("explain", *MINE, "--method", "auto", "--out", "auto.npz")
    assert found["method"] == "auto"
    loaded = ew.load("auto.npz")
    assert loaded.method in ("gradient", "occlusion", "integrated_gradients", "lrp")
    assert "cosine to occlusion" in loaded.settings["auto"]


def test_a_plugin_registers_methods_for_the_command_line(mine, monkeypatch):
    monkeypatch.setattr(registry, "registered_methods", {})
    monkeypatch.setattr(own_methods, "registered_methods", registry.registered_methods)
    Path("my_methods.py").write_text(
        "import edgewise as ew\n"
        "ew.register_method('tens', lambda score, *, level, seed: 10 * score.ones()[0], levels=['input'])\n"
    )
    found = printed("explain", *MINE, "-i", "1", "--plugin", "my_methods", "--method", "tens")
    assert {edge["score"] for edge in found["targets"][0]["edges"]} == {10.0}
    assert "no_such_module" in error("explain", *MINE, "--plugin", "no_such_module")
