"""What the project promises about versions and packages is what is tested and what is written down."""

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from markdown_it import MarkdownIt

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
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", checkout]
    subprocess.run([*command, "--wheel-dir", tmp_path], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if ".dist-info/" not in name}
    (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    _check_index_text(zipfile.ZipFile(wheel).read(about).decode())
    source = checkout / "src"
    there = {
        path.relative_to(source).as_posix()
        for package in ("edgewise", "edgewise_paper")
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    assert {"edgewise/py.typed", "edgewise_paper/py.typed", "edgewise/report/page/static/page.html"} <= there
    assert inside == there


def _check_index_text(about):
    """The text of a package index is the README without links into the checkout."""
    fields, _, shown = about.partition("\n\n")
    assert "Description-Content-Type: text/markdown" in fields
    assert shown.startswith("# Edgewise\n")
    assert all(target.startswith("https://") for target in _targets(shown))
    assert "make demo" in shown
    assert "![" not in shown


def _targets(text):
    """Where the links and pictures of a Markdown text lead."""
    tokens = MarkdownIt().parse(text)
    inline = [child for token in tokens for child in token.children or []]
    return [child.attrs.get("href") or child.attrs["src"] for child in inline if child.type in ("link_open", "image")]


def test_with_an_address_all_links_of_the_readme_lead_there():
    index_text = runpy.run_path(str(ROOT / "setup.py"), run_name="text")["index_text"]
    readme, files = text("README.md"), "https://example.org/files"
    here = [target for target in _targets(readme) if not target.startswith("https://")]
    assert len(here) > 10
    assert all((ROOT / target.partition("#")[0]).exists() for target in here)
    there = _targets(index_text(readme, files))
    assert [target.removeprefix(files + "/") for target in there] == _targets(readme)
    assert all(target.startswith("https://") for target in there)


def test_the_sdist_holds_all_that_tests_read(tmp_path):
    checkout = tmp_path / "checkout"
    skipped = shutil.ignore_patterns(
        "__pycache__", "*.egg-info", "_generated", "_build", ".*", "build", "dist", "demo-output"
    )
    shutil.copytree(ROOT, checkout, ignore=skipped)
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=checkout, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("benchmarks", "docs", "examples", "src", "tests")
    there = {path.relative_to(checkout) for name in folders for path in (checkout / name).rglob("*") if path.is_file()}
    there = {path.as_posix() for path in there if not path.parent.name.endswith(".egg-info")}
    assert there | {"Makefile", "constraints.txt", ".ci/run", "setup.py", "CITATION.cff"} <= inside
