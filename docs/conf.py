"""Settings of the documentation site, and the reference pages that are written when it is built.

`make docs` builds one static folder, `build/docs`, that opens from disk. Two pages are generated: the library, from docstrings
whose examples the tests run, and the command line, from the commands themselves.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

from edgewise import __version__  # noqa: E402 - the checkout's own

project, author, release = "Edgewise", "The Edgewise authors", __version__
copyright = f"2026, {author}"  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme, html_title = "furo", f"Edgewise {release}"
html_static_path: list[str] = []
html_copy_source = False
myst_heading_anchors = 4
suppress_warnings = [
    "myst.xref_missing",
    "myst.header",
]  # links into the checkout (README, benchmarks) are not of the site
autodoc_member_order, autodoc_typehints = "bysource", "none"
napoleon_google_docstring = True
smartquotes, add_module_names = False, False

GENERATED = HERE / "_generated"
GROUPS = {
    "Explaining": ("explain", "walks", "features", "counterfactual", "Question", "Score", "best_subgraph", "walk_relevance",
                   "subgraph_relevance"),
    "Results": ("Explanation", "ExplanationSet", "WalkSet", "Walk", "FeatureScores", "FeatureSet", "load", "similarity"),
    "For people": ("write_page", "molecule", "show_versions"),
    "Trust": ("check", "compare", "Comparison"),
    "Methods and other tools": ("methods", "register_method", "from_pyg", "EdgewiseExplainer", "heal"),
    "Errors and warnings": ("EdgewiseError", "InputError", "ModelError", "SettingError", "FileError", "ClusterError",
                            "MissingExtraError", "NoRoomError", "StaleQuestionError", "IncompleteWarning", "LocalityWarning",
                            "OutputWarning", "VersionWarning"),
}  # fmt: skip
"""The public names, in the order in which a reader needs them; names that are missing here come last."""


def write_library() -> str:
    """The reference of the library: an autodoc directive for each public name."""
    import edgewise as ew

    named = {name for names in GROUPS.values() for name in names}
    rest = tuple(name for name in ew.__all__ if name not in named and name != "__version__")
    groups = {**GROUPS, **({"Further": rest} if rest else {})}
    lines = [
        "# The library",
        "",
        "Every name is `ew.name` after `import edgewise as ew`. The examples run in the tests.",
        "",
    ]
    for title, names in groups.items():
        lines += [f"## {title}", ""]
        for name in (one for one in names if one in ew.__all__):
            found = getattr(ew, name)
            kind = "autoclass" if isinstance(found, type) else "autofunction"
            members = ["   :members:"] if kind == "autoclass" and not issubclass(found, (Exception, Warning)) else []
            where = f"{found.__module__}.{found.__qualname__}"
            lines += ["```{eval-rst}", f".. {kind}:: {where}", *members, "```", ""]
    return "\n".join(lines)


def write_commands() -> str:
    """The reference of the command line: the help of every command."""
    from typer.main import get_command

    from edgewise.cli.app import app

    lines = ["# The commands", "", "Written from the commands themselves; `edgewise COMMAND --help` says the same.", ""]
    group = get_command(app)
    for name, command in group.commands.items():
        for path, one in _leaves(name, command):
            lines += [f"## edgewise {path}", "", (one.help or "").strip(), "", "| option | |", "|---|---|"]
            for option in one.params:
                told = (getattr(option, "help", "") or "").replace("|", "\\|").replace("\n", " ")
                lines.append(f"| `{', '.join(option.opts)}` | {told} |")
            lines.append("")
    return "\n".join(lines)


def _leaves(name, command):
    """(words, command) of a command, or of every command of a group."""
    inner = getattr(command, "commands", None)
    if not inner:
        return [(name, command)]
    return [leaf for word, one in inner.items() for leaf in _leaves(f"{name} {word}", one)]


def as_text(app, what, name, found, options, lines):
    """Docstrings are plain Markdown: what stands in backticks is code, and a bar is a bar; examples stay as they are."""
    paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(one if one.lstrip().startswith(">>>") else _escaped(one) for one in paragraphs).split("\n")


def _escaped(paragraph):
    """A paragraph of Markdown for a reader of reStructuredText."""
    parts = re.split(r"(`+[^`]+`+)", paragraph)
    return "".join(_code(part) if part.startswith("`") else _plain(part) for part in parts).removeprefix("\\ ")


def _plain(part):
    """Words between pieces of code; one that follows code without a space, as in `Data`s, is kept apart from it."""
    return re.sub(r"(?=[|*])", r"\\", re.sub(r"^(?=\w)", "\\\\ ", part))


def _code(part):
    """Code between two backticks on each side, on one line."""
    return f"``{' '.join(part.strip('`').split())}``"


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", as_text, priority=400)


GENERATED.mkdir(exist_ok=True)
for _name, _write in (("library.md", write_library), ("commands.md", write_commands)):
    (GENERATED / _name).write_text(_write(), encoding="utf-8")
