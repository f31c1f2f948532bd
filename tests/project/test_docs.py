"""Every Python block of the documentation runs: one test a page, and no page needs another."""

import copy
import traceback

import pytest

import doc_pages
import edgewise.datasets
from edgewise.algorithms import own_methods, registry
from places import ROOT

PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    if doc_pages.BLOCK.search(path.read_text(encoding="utf-8"))
]


@pytest.fixture
def names(trained_infection, tmp_path, monkeypatch):
    """What a page takes for granted. Training, which many pages begin with, gives a model that is trained already."""
    trained = copy.deepcopy(trained_infection)
    monkeypatch.setattr(edgewise.datasets, "infection_model", lambda: trained)
    monkeypatch.chdir(tmp_path)  # the blocks write files
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(registry, "registered_methods", {})  # a page may register one
    monkeypatch.setattr(own_methods, "registered_methods", registry.registered_methods)
    monkeypatch.setattr(edgewise.datasets, "_registered", {})
    return doc_pages.granted(trained)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_of_a_page_runs(page, names):
    assert doc_pages.run(page, names) > 0


def test_an_error_in_a_block_names_the_line_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nx += 1\nassert x == 3\n```\n")
    with pytest.raises(AssertionError) as raised:
        doc_pages.run(page, {})
    assert traceback.extract_tb(raised.value.__traceback__)[-1][:2] == ("page.md", 11)


def test_the_pages_with_python_are_found():
    assert {"README.md", "docs/how-to-explain.md", "docs/walks.md", "docs/trust.md"} <= set(PAGES)
