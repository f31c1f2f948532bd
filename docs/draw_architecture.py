"""Writes the table of files in architecture.md again: every file of `src/` and the first line of its docstring.

Run `make docs-table` after a file was added, renamed or given another first line; a test says when that is needed.
"""

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "architecture.md"
SOURCE = HERE.parent / "src"
BEGIN, END = "<!-- files: begin (make docs-table) -->", "<!-- files: end -->"


def idea(path: Path) -> str:
    """The first line of a file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{path} has no docstring. Begin it with a line that says what is in it.")
    return text.splitlines()[0].replace("|", "\\|")


def table() -> str:
    """One table for each folder, files in order; the folder's own line is that of its `__init__.py`."""
    folders = sorted(
        {path.parent for package in ("edgewise", "edgewise_paper") for path in (SOURCE / package).rglob("*.py")}
    )
    return "\n".join(_folder(folder) for folder in folders)


def written(page: str) -> str:
    """The page with its table as it should be now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.split(END)[1]}"


def _folder(folder: Path) -> str:
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    rows = [f"| `{path.name}` | {idea(path)} |" for path in files]
    title = f"**`{folder.relative_to(SOURCE).as_posix()}/`**: {idea(folder / '__init__.py')}"
    return "\n".join([title, "", "| file | what is in it |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: table written.")
