"""The Python blocks of a page of the documentation, run."""

import re

from places import ROOT


def run(page: str, names: dict) -> int:
    """Run a page's blocks in a namespace; how many there are."""
    text, blocks = (ROOT / page).read_text(encoding="utf-8"), 0
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))  # so that an error names the line of the page
        exec(compile("\n" * line + block[1], page, "exec"), names)
        blocks += 1
    return blocks
