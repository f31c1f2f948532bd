"""`edgewise page DIR`: one HTML file about a whole job, with the names that its data has."""

import os
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.guard import guarded

EPILOG = """Examples:

edgewise page job

edgewise page job --out job.html --other occlusion-job --first 50"""


def page(
    *,
    folder: Annotated[Path, typer.Argument(help="The folder of the job, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; without it, the folder's name with .html.")
    ] = None,
    other: Annotated[
        Path | None,
        typer.Option(help="Another job about the same targets: where they disagree is where to look first."),
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="How many targets to look at first are shown.")] = 30,
    title: Annotated[str | None, typer.Option(help="The heading.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write one HTML page about a whole job: classes, completeness, frequent edges, and the targets to look at first."""
    with guarded(debug=debug):
        import edgewise as ew
        from edgewise.cli.terminal import print_json

        job = ew.jobs.open(folder)
        path = out or Path(f"{folder.resolve().name}.html")
        names, note = _names(folder)
        job.page(path, other=other, first=first, title=title, **names)
        if json:
            print_json({"command": "page", "folder": str(folder), "page": str(path), "names": note is None})
            return
        if note:
            typer.echo(note, err=True)
        typer.echo(f"Written: {path}")


def _names(folder: Path) -> tuple[dict[str, Any], str | None]:
    """Names and labels of the data that a job of the command line names, and otherwise why there are none."""
    from edgewise.cli.read.data import read_data
    from edgewise.errors import EdgewiseError
    from edgewise.jobs.job_folder import read_manifest

    found = read_manifest(folder)
    if found is None or found["identity"].get("kind") != "command line":
        return {}, None
    asked = found["identity"]["question"]
    root = None if asked.get("root") is None else Path(asked["root"])
    task = "link" if asked.get("link") and asked.get("task") is None else asked.get("task")
    try:
        with chdir(found.get("cwd") or os.getcwd()):
            graphs = read_data(asked["data"], root, task, asked["seed"])
    except (EdgewiseError, OSError) as error:
        return {}, f"Without names: {str(error).splitlines()[0]}"
    if graphs.digest != found["identity"]["hashes"].get("data"):
        return {}, "Without names: the data is not that of the job any more."
    labels = getattr(graphs.data, "y", None) if graphs.task == "node" and graphs.types is None else None
    one_graph = graphs.task != "graph"
    return {
        "class_names": graphs.class_names,
        "node_names": graphs.line_names if one_graph else None,
        "labels": labels if labels is not None and labels.dim() == 1 and not labels.is_floating_point() else None,
    }, None
