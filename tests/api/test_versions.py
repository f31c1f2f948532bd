"""What is installed, and results of another version."""

import json
import warnings

import numpy as np
import pytest
import torch

import edgewise as ew
from edgewise.api import show_versions as module
from edgewise.examples import path_model


def test_every_package_has_a_line(capsys):
    ew.show_versions()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"edgewise {ew.__version__}"
    assert lines[1].startswith("python 3.")
    (of_torch,) = (line for line in lines if line.startswith("torch "))
    assert f"torch {torch.__version__}".startswith(of_torch)  # a build for CUDA may add +cu121
    assert f"numpy {np.__version__}" in lines


def test_what_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr(module, "requires", lambda name: ["numpy>=1", 'nothing>=2; extra == "plot"', "edgewise[all]"])
    assert module.version_lines()[2:] == [f"numpy {np.__version__}", "nothing is not installed (edgewise[plot])"]


def saved(folder, ending, **about):
    model, data = path_model(gains=[2.0, 3.0])
    path = folder / f"why{ending}"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in about.items():
            patched.setattr(f"edgewise.results.storage.{name}", value)
        ew.explain(model, data, index=[2]).save(path)
    return path


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_results_of_this_version_load_silently(tmp_path, ending):
    path = saved(tmp_path, ending)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ew.load(path)[0].scores.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_results_of_another_version_load_and_say_so(tmp_path, ending):
    path = saved(tmp_path, ending, __version__="0.1.7")
    with pytest.warns(
        ew.VersionWarning, match=rf"why\{ending} was written by Edgewise 0.1.7; this is {ew.__version__}"
    ):
        assert ew.load(path)[0].scores.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("writer", [None, 3, "\x1b[31m", "x" * 100])
def test_a_version_that_is_none_is_not_repeated(tmp_path, writer):
    path = saved(tmp_path, ".npz", __version__=writer)
    with np.load(path) as archive:
        assert json.loads(archive["about"].tobytes())["edgewise"] == writer
    with pytest.warns(ew.VersionWarning, match=r"written by Edgewise 0\.2\.0 or older"):
        ew.load(path)
