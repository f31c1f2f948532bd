"""What the project promises about versions and packages is what is tested and what is written down."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OLDEST = {"python": PROJECT["project"]["requires-python"].removeprefix(">=")} | {
    name: version
    for name, _, version in (line.partition(">=") for line in PROJECT["project"]["dependencies"])
    if version
}


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_promised_minimum_is_one_that_a_command_tests():
    pinned = dict(re.findall(r"^(torch|torch_geometric)==(\d+\.\d+)", text("constraints.txt"), re.MULTILINE))
    oldest_pyg = re.search(r"^OLDEST_PYG := (\d+\.\d+)", text("Makefile"), re.MULTILINE)[1]
    assert OLDEST["torch"] == pinned["torch"]
    assert OLDEST["torch_geometric"] == oldest_pyg
    assert "test-oldest:" in text("Makefile")
    assert OLDEST["python"] == "3.11"  # the one that `.ci/run` has


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_pages_name_the_promised_minimum(page):
    words = " ".join(text(page).split())
    assert f"Python {OLDEST['python']}" in words
    assert f"torch {OLDEST['torch']}" in words
    assert f"torch_geometric {OLDEST['torch_geometric']}" in words


def test_no_classifier_promises_another_python():
    named = {one.rpartition(" :: ")[2] for one in PROJECT["project"]["classifiers"] if " :: Python :: 3." in one}
    assert named == {OLDEST["python"]}


def test_the_extra_all_holds_every_other_extra():
    extras = PROJECT["project"]["optional-dependencies"]
    (every,) = extras["all"]
    assert set(re.search(r"\[(.*)\]", every)[1].split(",")) == set(extras) - {"all"}


def test_the_wheel_holds_both_packages_with_all_that_they_read(tmp_path):
    checkout = tmp_path / "checkout"  # a build writes beside what it builds
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", checkout]
    subprocess.run([*command, "--wheel-dir", tmp_path], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = checkout / "src"
    there = {
        path.relative_to(source).as_posix()
        for package in ("edgewise", "edgewise_paper")
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    assert {"edgewise/py.typed", "edgewise_paper/py.typed", "edgewise/report/page/static/page.html"} <= there
    assert inside == there
