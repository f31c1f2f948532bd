"""docs/architecture.md names every file, and no page names a file that is gone."""

import pkgutil
import re

import pytest

import draw_architecture
from places import ROOT
from source_tree import sources

PAGES = sorted(
    str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
)
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")


def test_the_table_of_files_is_up_to_date():
    page = draw_architecture.PAGE.read_text(encoding="utf-8")
    assert page == draw_architecture.written(page), "run: make docs-table"


def test_every_file_is_in_the_table():
    table = draw_architecture.table()
    for file in sources():
        folder, name = file.name.rsplit("/", 1)
        if name != "__init__.py":
            assert f"| `{name}` |" in table.split(f"**`{folder}/`**")[1].split("**`")[0]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_a_page_names_only_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    there = {f"/{path.relative_to(ROOT).as_posix()}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", text))
    gone = {name for name in named if not any(path.endswith(f"/{name}") for path in there)}
    assert not gone


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_a_page_names_only_modules_and_functions_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in set(re.findall(r"`(edgewise(?:_paper)?(?:\.[A-Za-z_]\w*)+)`", text)):
        if not re.search(r"\.(py|typed)$", name):
            pkgutil.resolve_name(name)  # raises if there is no such thing
