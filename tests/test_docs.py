"""Every Python block of the documentation runs, page by page, in one namespace."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The other pages use the model and the data of the first one.
PAGES = (
    *("docs/how-to-explain.md", "README.md", "docs/metrics.md", "docs/datasets.md"),
    *("docs/relatives.md", "docs/sign-flips.md", "docs/pictures.md"),
)


def test_every_python_block_of_the_documentation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the blocks write files
    monkeypatch.setenv("MPLBACKEND", "agg")
    names, blocks = {}, 0
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start(1))  # so that an error names the line of the page
            exec(compile("\n" * line + block[1], page, "exec"), names)
            blocks += 1
    assert blocks > 5
