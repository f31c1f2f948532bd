"""The files of `src/` as the guards of the house read them: their names, imports and sizes, without importing them.

python tests/support/source_tree.py      # lines of code and files of each package, as `test_house.py` lists them
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from places import ROOT

PACKAGES = ("edgewise", "edgewise_paper")


@dataclass(frozen=True)
class Import:
    """One imported name: `from module import name`, or `import module` with an empty name."""

    module: str
    name: str

    @property
    def private(self) -> bool:
        """Whether the name belongs to the other file alone."""
        return self.name.startswith("_") and not self.name.startswith("__")


@dataclass(frozen=True)
class Source:
    """One file, such as `edgewise/api/explain.py`; `module` is then `edgewise.api.explain`."""

    path: Path

    @cached_property
    def name(self) -> str:
        """The path below `src/`, with slashes."""
        return self.path.relative_to(ROOT / "src").as_posix()

    @cached_property
    def module(self) -> str:
        """The dotted name."""
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def package(self) -> str:
        """`edgewise` or `edgewise_paper`."""
        return self.name.split("/")[0]

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def part(self) -> str:
        """The package that its lines are counted for: `edgewise/program`, `edgewise` for its root files, `edgewise_paper`."""
        folders = self.name.split("/")[:-1]
        return "/".join(folders[:2]) if folders[0] == "edgewise" else folders[0]

    @cached_property
    def code(self) -> int:
        """Lines of code: without docstrings, comments and blank lines."""
        text = self.path.read_text(encoding="utf-8")
        silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        lines = {
            line for token in tokens if token.type not in silent for line in range(token.start[0], token.end[0] + 1)
        }
        said = (
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        return len(lines - {line for node in said for line in range(node.lineno, node.end_lineno + 1)})

    def imports(self, *, everywhere: bool = False) -> list[Import]:
        """What the file imports when it is loaded, or (`everywhere`) at any time, for types too."""
        nodes = ast.walk(self.tree) if everywhere else _on_load(self.tree.body)
        return [item for node in nodes for item in _read(node)]

    def private_attributes(self) -> Iterator[str]:
        """`module._name` for every private name that is read through an imported module of ours."""
        ours = {
            alias.asname or alias.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
            for alias in node.names
        }
        reads = (node for node in ast.walk(self.tree) if isinstance(node, ast.Attribute))
        for node in reads:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private and isinstance(node.value, ast.Name) and node.value.id in ours:
                yield f"{node.value.id}.{node.attr}"


def sources() -> list[Source]:
    """Every Python file of both packages, in order."""
    return [Source(path) for package in PACKAGES for path in sorted((ROOT / "src" / package).rglob("*.py"))]


def sizes() -> dict[str, tuple[int, int]]:
    """Lines of code and files of each package."""
    lines, files = Counter(), Counter()
    for file in sources():
        lines[file.part] += file.code
        files[file.part] += 1
    return {part: (lines[part], files[part]) for part in sorted(lines)}


def _on_load(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The statements that run when a file is imported; not those that only type checkers read."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
                yield from _on_load(node.body)
            yield from _on_load(node.orelse)
        else:
            yield node


def _read(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (Import(node.module or "", alias.name) for alias in node.names)


if __name__ == "__main__":
    for part, (lines, files) in sizes().items():
        print(f'    "{part}": ({lines}, {files}),')
    print(f"{sum(lines for lines, _ in sizes().values())} lines of code in {len(sources())} files")
