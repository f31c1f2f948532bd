"""What the project promises about versions and packages is what is tested and what is written down."""

import ast
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
from source_tree import sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
PYTHONS = ("3.11", "3.12", "3.13")
PROMISED = dict(
    one.split(">=")
    for one in (*PROJECT["project"]["dependencies"], *(one for extra in EXTRAS.values() for one in extra))
    if not one.startswith("edgewise")
)
"""Package → the oldest version that is promised."""


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_promised_minimum_is_the_one_that_make_test_oldest_installs():
    pinned = {}
    for name, version in re.findall(r"^([\w-]+)==([\d.]+)", text("constraints-oldest.txt"), re.MULTILINE):
        pinned.setdefault(name, version)  # the first line is for the oldest Python
    assert pinned.keys() == PROMISED.keys()
    assert not {name for name in PROMISED if not f"{pinned[name]}.".startswith(f"{PROMISED[name]}.")}
    assert "--constraint constraints-oldest.txt" in text("Makefile")


def test_no_version_for_a_newer_python_is_older_than_the_promise():
    lines = re.findall(r'^([\w-]+)==([\d.]+); python_version >= "3.13"', text("constraints-oldest.txt"), re.MULTILINE)
    assert dict(lines)["torch"].startswith("2.6")
    assert all(_numbers(version) > _numbers(PROMISED[name]) for name, version in lines)


def _numbers(version):
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/versions.md"])
def test_the_pages_name_the_promised_minimum(page):
    words = " ".join(text(page).split())
    assert "Python 3.11 to 3.13" in words
    assert f"torch {PROMISED['torch']}" in words
    assert f"torch_geometric {'.'.join(PROMISED['torch_geometric'].split('.')[:2])}" in words


def test_the_classifiers_name_every_python_that_is_tested():
    named = {one.rpartition(" :: ")[2] for one in PROJECT["project"]["classifiers"] if " :: Python :: 3." in one}
    assert named == set(PYTHONS)
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"


def test_a_python_of_another_version_gets_an_environment_of_its_own(tmp_path):
    def environment(version):
        python = tmp_path / f"python{version}"
        python.write_text(f"#!/bin/sh\necho {version}\n")
        python.chmod(0o755)
        command = ["make", "--dry-run", "--always-make", "test", f"PYTHON={python}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return set(re.findall(r"(\S+)/bin/python -m pytest", done.stdout))

    assert environment("3.11") == {".venv"}
    assert environment("3.12") == {"build/venv/3.12"}
    assert environment("3.13") == {"build/venv/3.13"}


def test_extras_are_for_users_and_groups_for_those_who_work_here():
    groups = PROJECT["dependency-groups"]
    assert not EXTRAS.keys() & groups.keys()
    assert {"test", "lint", "docs", "release", "dev"} == groups.keys()
    assert "--group dev" in text("Makefile")


def test_every_error_of_a_missing_package_names_an_extra_that_brings_it():
    found = [
        (file.name, *(word.value for word in call.args[:2]))
        for file in sources()
        for call in ast.walk(ast.parse(file.path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "missing_extra"
    ]
    assert len(found) > 10
    packages = {extra: {re.match(r"[\w-]+", one)[0] for one in names} for extra, names in EXTRAS.items()}
    spelled = {"RDKit": "rdkit"}
    assert not [one for one in found if spelled.get(one[1], one[1]).lower() not in packages.get(one[2], ())]


def test_every_extra_that_a_text_names_exists():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *(file.path for file in sources())]
    pages += ROOT.glob("tests/**/*.py")
    named = {
        (page.name, extra)
        for page in pages
        for group in re.findall(r"(?:edgewise|'\.|\"\.)\[([a-z,]+)\]", page.read_text(encoding="utf-8"))
        for extra in group.split(",")
    }
    assert len(named) > 10
    assert not {one for one in named if one[1] not in EXTRAS}


def test_the_extra_all_holds_every_other_extra():
    (every,) = EXTRAS["all"]
    assert set(re.search(r"\[(.*)\]", every)[1].split(",")) == set(EXTRAS) - {"all"}


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
    assert (
        there | {"Makefile", "constraints.txt", "constraints-oldest.txt", ".ci/run", "setup.py", "CITATION.cff"}
        <= inside
    )
