"""Every Python block of the documentation runs, page by page, in one namespace."""

import doc_pages

PAGES = (
    *("docs/how-to-explain.md", "README.md", "docs/metrics.md", "docs/datasets.md"),  # the first makes model and data
    *("docs/walks.md", "docs/why-algorithm-1-is-not-exact.md", "docs/pictures.md", "docs/page.md"),
    *("docs/relatives.md", "docs/sign-flips.md", "docs/trust.md"),
)


def test_every_python_block_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the blocks write files
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    assert all(doc_pages.run(page, names) for page in PAGES)
