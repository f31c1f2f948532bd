"""Write the tables of docs/findings/ again from what the studies have measured: `python docs/draw_findings.py`."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
PART = re.compile(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", re.DOTALL)


def printed(study: str) -> str:
    """What the command of a study prints with `--table`."""
    module = import_module(f"benchmarks.findings.{study}")
    if not hasattr(module, "STUDY"):
        return str(module.tables())
    return str(module.STUDY.tables(json.loads(module.STUDY.file.read_text(encoding="utf-8"))["rows"]))


def written(page: str) -> str:
    """The page with its tables made anew."""
    return PART.sub(lambda found: f"<!-- begin {found[1]} -->\n\n{printed(found[1])}\n\n<!-- end {found[1]} -->", page)


if __name__ == "__main__":
    for path in sorted((HERE / "findings").glob("*.md")):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
