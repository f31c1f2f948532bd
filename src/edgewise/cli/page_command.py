"""`edgewise page DIR`: one HTML file about a whole job, with the names that its data has."""

from pathlib import Path
from typing import Annotated

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
        from edgewise.cli.job_data import texts_of_job
        from edgewise.cli.terminal import print_json

        job = ew.jobs.open(folder)
        path = out or Path(f"{folder.resolve().name}.html")
        names, note = texts_of_job(folder)
        job.page(path, other=other, first=first, title=title, **names)
        if json:
            print_json({"command": "page", "folder": str(folder), "page": str(path), "names": note is None})
            return
        if note:
            typer.echo(note, err=True)
        typer.echo(f"Written: {path}")
