"""Guards of the house: imports, documentation and size stay as docs/architecture.md says."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import PurePosixPath
from types import ModuleType

import pytest

import edgewise
from places import ROOT
from source_tree import PACKAGES, Import, Source, sizes, sources

PUBLIC = ("edgewise", "edgewise.metrics", "edgewise.trust", "edgewise.datasets", "edgewise.report", "edgewise.jobs")
INTERNALS = ("edgewise/torch_internals.py", "edgewise/pyg_internals.py")
FOREIGN = {"_data", "_store", "_mapping", "_C"}
"""Private names of torch or PyG that something of ours has, too."""
READ_ANYWHERE = {"_parameters", "_buffers", "_modules", "_version", "_indices", "_values"}
"""Of modules and tensors: without a public twin, named in torch's documentation, the same since torch 1."""
PYTHONS_PRIVATE_NAMES = {"_asdict", "_exit", "_fields", "_getframe", "_name_", "_replace", "_value_", "_source_stamp"}

SIZES = {
    "edgewise": (1872, 23),
    "edgewise/adapters": (1079, 11),
    "edgewise/algorithms": (2741, 25),
    "edgewise/api": (2008, 15),
    "edgewise/board": (808, 10),
    "edgewise/cli": (3787, 35),
    "edgewise/counterfactuals": (1895, 24),
    "edgewise/datasets": (668, 7),
    "edgewise/graph": (1304, 14),
    "edgewise/jobs": (2603, 32),
    "edgewise/metrics": (1297, 11),
    "edgewise/model": (6273, 47),
    "edgewise/program": (8239, 77),
    "edgewise/question": (4494, 34),
    "edgewise/report": (2901, 27),
    "edgewise/results": (3455, 29),
    "edgewise/store": (1549, 13),
    "edgewise/trust": (2659, 23),
    "edgewise/walk": (3038, 27),
    "edgewise_paper": (5156, 51),
}
"""Lines of code (without docstrings, comments and blank lines) and files of each package: numbers that only go down.

Lower a number when code was deleted. To raise one, leave it and add a row to RAISED that says why.
"""
RAISED: list[tuple[str, int, int, str]] = [
    ("edgewise", 13, 0, "files of torch.save are read with torch 2.4, which cannot take names off its list again"),
    (
        "edgewise",
        101,
        1,
        "iterators.py: an argument without end is refused by every public function, and no call hangs",
    ),
    ("edgewise/graph", 4, 0, "features that repeat a row 10¹¹ times are refused, where they would be read for minutes"),
    (
        "edgewise/model",
        12,
        0,
        "a forked process gives back models that other threads borrowed, and removes their hooks",
    ),
    (
        "edgewise/model",
        149,
        0,
        "sums over neighbours that reach a layer as weights of edges are refused, with their line",
    ),
    ("edgewise/question", 13, 0, "labels with other columns than the model gives are warned of"),
    ("edgewise/question", 22, 0, "decoders of links that compare pairs with one another are run with unequal rows"),
    ("edgewise/algorithms", 42, 0, "copies that change one another's output are refused for features, too"),
    ("edgewise/algorithms", 3, 0, "every pass of changed features is compared with one that is run alone"),
    ("edgewise/algorithms", 13, 0, "copies of a model that may know rows by number are compared in their other places"),
    ("edgewise", 9, 0, "lists that hold one list many times are counted before torch reads them number by number"),
    ("edgewise/model", 7, 0, "modules are walked without their names, which is faster"),
    ("edgewise/algorithms", 5, 0, "features that are set to 0 are tried on the whole graph unless a cut is proved"),
    ("edgewise/api", 3, 0, "Question.of puts the thread back after an interrupt, and works under inference mode"),
    ("edgewise/program", 9, 0, "the derivative of clamp at its bound is asked of torch: 2.15 has another one"),
    ("edgewise/model", 22, 0, "weights that forward makes from nodes are seen, since sums of them reach further"),
    ("edgewise/question", 13, 0, "weights made from nodes reach one hop further, so neighbourhoods are not enough"),
    ("edgewise/api", 1, 0, "walks that never end are refused before they are read"),
    ("edgewise/algorithms", 9, 0, "feature scores keep to memory=: each change is counted with what it copies"),
    ("edgewise/program", 10, 0, "what each target takes is counted by its own edges, not by the mean of a block"),
    ("edgewise/question", 2, 0, "a first call keeps to 1.5 times memory= for links, too: what it loads is left free"),
    ("edgewise/question", 6, 0, "blocks by what each entry costs, so that a hub cannot take several times the budget"),
]
"""Package, lines and files more than its number in SIZES, and the reason: what a user or the next engineer gets for them."""
SPARE_LINES, SPARE_SHARE = 80, 0.05
"""How far above the code a number may be: the larger of so many lines and this share of it."""
LONGEST_FILE = 700
WORDS = {
    "of ours": (28, "Edgewise's, or our own"),
    "front doors?": (18, "public function"),
    "yardsticks?": (34, "baseline"),
    "worked off": (16, "processed"),
    "speaks? for": (13, "supports"),
    "needed is": (5, "must be"),
    "the way back": (10, "the reverse pass"),
}
"""Regular expressions, how often pages and code may use them, and what is better: numbers that only go down."""
FILES = sources()
MODULES = {file.module: file for file in FILES}


def _names_given(file):
    """The names that a file gives: to functions, classes, variables, fields and attributes of `self`."""
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


OUR_PRIVATE_NAMES = {name for file in FILES if file.name not in INTERNALS for name in _names_given(file)} - FOREIGN


def test_no_package_has_more_lines_or_files_than_its_number():
    today, over = sizes(), []
    assert today.keys() == SIZES.keys(), "a package is new or gone: change SIZES"
    for part, (lines, files) in today.items():
        most_lines, most_files = (
            SIZES[part][place] + sum(row[1 + place] for row in RAISED if row[0] == part) for place in (0, 1)
        )
        print(f"{part}: {lines} of {most_lines} lines of code, {files} of {most_files} files")
        if lines > most_lines or files > most_files:
            over.append(f"{part} has {lines} lines of code in {files} files, and may have {most_lines} in {most_files}")
    assert not over, "delete something, or say in RAISED why it is worth its lines"


def test_the_numbers_are_not_far_above_what_is_there():
    spare = {part: SIZES[part][0] - lines for part, (lines, _) in sizes().items()}
    spare = {part: left for part, left in spare.items() if left > max(SPARE_LINES, SPARE_SHARE * SIZES[part][0])}
    assert not spare, "lower the numbers in SIZES (python tests/support/source_tree.py prints them)"


def test_every_raised_number_has_a_reason():
    assert not [row for row in RAISED if row[0] not in SIZES or len(row[3].split()) < 5]


def test_the_count_of_lines_leaves_out_docstrings_comments_and_blank_lines(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(
        '"""Docstring."""\n\nX = [\n    1,  # one\n    # two\n]\n\n\ndef f():\n    """A\n\n    B."""\n    return """a\nb"""\n'
    )
    assert Source(file).code == 6


def test_no_file_is_longer_than_an_idea():
    assert not [file.name for file in FILES if len(file.path.read_text(encoding="utf-8").splitlines()) > LONGEST_FILE]


def test_words_that_readers_stumble_over_become_fewer():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(file.path for file in FILES)]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages if page.name != "CHANGELOG.md")
    found = {word: len(re.findall(rf"\b{word}\b", text)) for word in WORDS}
    more = {
        word: f"{times}, at most {WORDS[word][0]}: {WORDS[word][1]}"
        for word, times in found.items()
        if times > WORDS[word][0]
    }
    assert not more


def test_imports_point_one_way():
    rows = _rows()
    upwards = [
        f"{file.name} imports {used.name}"
        for file in FILES
        for used in _used(file)
        if _height(used, rows) > _height(file, rows)
    ]
    assert not upwards, "move the code down, or the file up in docs/architecture.md"


def test_every_name_in_the_order_of_the_folders_exists_and_every_file_has_a_place():
    rows = _rows()
    assert len(rows) > 15
    assert not [name for name in rows if not (ROOT / "src" / name).exists()]
    assert not [file.name for file in FILES if _height(file, rows) < 0]


def test_no_files_import_each_other_in_a_circle():
    left = {file.module: {used.module for used in _used(file)} - {file.module} for file in FILES}
    while leaves := [module for module, used in left.items() if not used & left.keys()]:
        for module in leaves:
            del left[module]
    assert not left


def test_the_core_imports_the_paper_only_when_a_command_asks_for_it():
    core = [file for file in FILES if file.package == "edgewise"]
    assert not [file.name for file in core if any(_of_paper(item) for item in file.imports())]
    asking = {file.name for file in core if any(_of_paper(item) for item in file.imports(everywhere=True))}
    assert asking <= {"edgewise/cli/app.py"}


def test_private_names_stay_in_their_file():
    crossing = [
        f"{file.name}: {item.module}.{item.name}"
        for file in FILES
        for item in file.imports(everywhere=True)
        if item.private and item.module.split(".")[0] in PACKAGES and f"{item.module}.{item.name}" not in MODULES
    ]
    crossing += [f"{file.name}: {name}" for file in FILES for name in file.private_attributes()]
    assert not crossing, "make the name public"


def test_private_names_of_torch_and_pyg_are_read_in_one_file_each():
    found = {(file.name, name) for file in FILES for name in _foreign_private_names(file)}
    assert {name for file, name in found if file == INTERNALS[0]} >= {"_pytree", "_C", "_cdata"}
    assert {name for file, name in found if file == INTERNALS[1]} >= {"_edge_mask", "_loop_mask"}
    assert not {one for one in found if one[0] not in INTERNALS}


def _foreign_private_names(file):
    """Private names that a file imports from torch or PyG, or reads from something else than itself, and nobody here gave."""
    known = OUR_PRIVATE_NAMES | PYTHONS_PRIVATE_NAMES | READ_ANYWHERE
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"torch(_geometric)?\b", node.module or ""):
            yield from (p for p in (*node.module.split("."), *(a.name for a in node.names)) if p.startswith("_"))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            yield from {node.attr} - known if re.fullmatch("_[A-Za-z].*", node.attr) else ()


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_documented_and_every_public_function_has_an_example(package):
    module = importlib.import_module(package)
    names = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    assert not [name for name, value in names.items() if not value.__doc__]
    functions = {name: value for name, value in names.items() if inspect.isfunction(value)}
    assert not [name for name, value in functions.items() if ">>>" not in inspect.getdoc(value)]


def test_no_submodule_takes_the_place_of_a_public_name():
    for found in pkgutil.walk_packages(edgewise.__path__, "edgewise."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    shadowed = [
        f"{package}.{name}"
        for package in PUBLIC
        for name in importlib.import_module(package).__all__
        if isinstance(getattr(importlib.import_module(package), name), ModuleType)
    ]
    assert not shadowed


def _used(file: Source) -> list[Source]:
    """The files that a file imports when it is loaded; the package itself is `__init__.py`, unless for its version alone."""
    used = []
    for item in file.imports():
        if item.module in PACKAGES and item.name == "__version__":
            continue
        module = f"{item.module}.{item.name}" if f"{item.module}.{item.name}" in MODULES else item.module
        if module in MODULES:
            used.append(MODULES[module])
    return used


def _rows() -> dict[str, int]:
    """From docs/architecture.md: a folder or file below `src/`, and how far up its row is."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("## Who may import whom")[1].split("\n## ")[0]
    rows = [re.findall("`([^`]+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    return {
        (name if name.startswith("edgewise_paper") else f"edgewise/{name}").rstrip("/"): height
        for height, names in enumerate(reversed(rows))
        for name in names
    }


def _height(file: Source, rows: dict[str, int]) -> int:
    """The row of a file: its own, else that of the nearest folder above it; -1 if it has none."""
    path = PurePosixPath(file.name)
    return next((rows[str(place)] for place in (path, *path.parents) if str(place) in rows), -1)


def _of_paper(item: Import) -> bool:
    return item.module.split(".")[0] == "edgewise_paper"
