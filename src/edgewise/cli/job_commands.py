"""`edgewise job run`, `status`, `resume` and `retry`: explanations of many targets into a folder that survives interruptions.

As in the other commands, torch is loaded when a command runs. A job remembers how it was asked, so `resume` needs the folder,
and the model by name, since importing it runs its code; it is refused if the model, the weights, the data or the versions have
changed meanwhile.
"""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.folder_trust import asked_by, refuse_unnamed
from edgewise.cli.guard import Interrupted, guarded
from edgewise.cli.named_values import named_values
from edgewise.cli.options import CommonOptions, PairsCommand, import_plugins, with_common_options
from edgewise.cli.terminal import Voice
from edgewise.errors import FileError, SettingError
from edgewise.files import is_folder

if TYPE_CHECKING:
    import edgewise as ew
    from edgewise.jobs import JobStatus

JOB_EPILOG = """Examples:

edgewise job run --model my_model:GCN --weights weights.pt --data graph.npz --method occlusion --top 50 --out job

edgewise job status job

edgewise job resume job --model my_model:GCN --engine processes --workers 2

edgewise job resume job --trust-folder --engine dask --scheduler tcp://10.0.0.1:8786

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C or SIGTERM (resume goes on from what is finished)."""

job_app = typer.Typer(no_args_is_help=True, help="Explain many targets into a folder, interrupted and resumed at will.")
_Where = tuple[str, int | None, str | None]

Folder = Annotated[Path, typer.Argument(help="The folder of the job.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Engine = Annotated[
    str, typer.Option(help="Where shards are done: here, by processes of this machine, or by a dask cluster.")
]
Workers = Annotated[int | None, typer.Option(help="How many processes; without it, one for each core.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Of dask: the address of a cluster that runs, tcp://…; without it, one is made here.")
]

Named = Annotated[str | None, typer.Option("--model", help="The model that the job was begun with: its code runs.")]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", help="A plugin that the job was begun with: its code runs.")
]
Trusted = Annotated[
    bool, typer.Option("--trust-folder", help="Run the code that the folder names, without naming it again.")
]


@job_app.command(name="run", cls=PairsCommand, epilog=JOB_EPILOG)
@with_common_options
def job_run(
    asked: CommonOptions,
    *,
    out: Annotated[Path, typer.Option(help="The folder of the job; it is made if it is not there.")],
    method: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(options.METHODS)}.", autocompletion=options.completing(options.METHODS)),
    ] = "gradient",
    level: Annotated[
        str, typer.Option(help="input or layer.", autocompletion=options.completing(options.LEVELS))
    ] = "input",
    top: Annotated[int | None, typer.Option(help="Keep only this many of the strongest edges of each target.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE ...", help="Settings of the method: --set epochs=50 lr=0.1."),
    ] = None,
    audit: Annotated[
        int, typer.Option(help="Of a graph store: compare values with the model itself on one shard in so many.")
    ] = 1,
    neighbors: Annotated[
        str | None, typer.Option(help="Of a graph store: sample neighbourhoods that are too large, 25,10 edges by hop.")
    ] = None,
    engine: Engine = "here",
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Explain many targets into a folder, shard by shard; the same command, or `edgewise job resume`, goes on."""
    how: dict[str, Any] = {"method": method, "level": level, "top": top, "settings": named_values(set_, "--set")}
    how |= {"audit": audit} if audit != 1 else {}
    how |= {} if neighbors is None else {"neighbors": _sizes(neighbors)}
    _work(asked, out, how, (engine, workers, scheduler), retry=False)


def _sizes(text: str) -> list[int]:
    """The numbers of `--neighbors 25,10`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise SettingError(f"--neighbors must be whole numbers with commas, got {text!r}. Use --neighbors 25,10.")
    return [int(part) for part in parts]


@job_app.command(name="status")
def job_status(*, folder: Folder, json: Json = False, debug: Debug = False) -> None:
    """How far is it? Targets done and failed, the rate, the time left, and who works on it."""
    with guarded(debug=debug):
        import edgewise as ew

        job = ew.jobs.open(folder)
        _show(job, job.status, json=json)


def _going_on(*, retry: bool) -> Callable[..., None]:
    """`job resume` and `job retry`: the same options, told apart by what they do with targets that failed."""

    def going_on(
        *,
        folder: Folder,
        model: Named = None,
        plugin: Plugins = None,
        trust_folder: Trusted = False,
        engine: Engine = "here",
        workers: Workers = None,
        scheduler: Scheduler = None,
        json: Json = False,
        quiet: Quiet = False,
        debug: Debug = False,
    ) -> None:
        with guarded(debug=debug):
            report = {"json": json, "quiet": quiet, "debug": debug}
            asked, how = _asked_again(folder, report, retry=retry)
            code = refuse_unnamed(folder, asked, model, plugin or (), trusted=trust_folder)
            for one in () if quiet else code:
                typer.echo(f"Running {one}.", err=True)
            import_plugins(asked)
            _work(asked, folder, how, (engine, workers, scheduler), retry=retry)

    return going_on


job_app.command(name="resume", help="Go on with a job that was stopped.")(_going_on(retry=False))
job_app.command(name="retry", help="Try again what failed, and go on with what is left.")(_going_on(retry=True))


def _asked_again(folder: Path, report: dict[str, Any], *, retry: bool) -> tuple[CommonOptions, dict[str, Any]]:
    """The question of a folder, to be asked again."""
    from edgewise.jobs.job_folder import read_manifest

    found = read_manifest(folder) if is_folder(folder) else None
    if found is None:
        raise FileError(f"{folder} is not the folder of a job. Make one with edgewise job run … --out {folder}.")
    if found["identity"].get("kind") != "command line":
        raise FileError(
            f"{folder} was made from Python. Call ew.jobs.run(model, data, …, out={str(folder)!r}) again with the same "
            f"arguments{', and retry=True' if retry else ''}."
        )
    if (there := str(found.get("cwd"))) != os.getcwd():
        raise FileError(f"{folder} was made in another folder, whose files it names. Run: cd {shlex.quote(there)}")
    return asked_by(folder, found, report)


def _work(asked: CommonOptions, out: Path, how: dict[str, Any], where: _Where, *, retry: bool) -> None:
    """Read everything, do what is left, and say how far it is; `where` are the engine, its workers and their scheduler."""
    import edgewise as ew
    from edgewise.cli.job_work import job_question
    from edgewise.jobs.explanation_job import work_off
    from edgewise.jobs.job_folder import refuse_other_folder
    from edgewise.jobs.shard_run import engine_named

    engine = engine_named(*where)
    refuse_other_folder(out)
    voice = Voice(quiet=asked.quiet)
    job = job_question(asked, how, voice)
    try:
        with voice.progress(f"{how['method']} ({how['level']})", len(job.index)) as tell:
            work_off(out, job, engine, lambda done, _: tell(done), retry=retry)
    except KeyboardInterrupt as stop:
        raise Interrupted(_stopped(out, asked.model)) from stop
    done = ew.jobs.open(out)
    if not asked.quiet:
        _show(done, done.status, json=asked.json)


def _stopped(out: Path, model: str | None) -> str:
    """What is kept, in words."""
    import edgewise as ew

    try:
        status = ew.jobs.open(out).status
    except FileError:
        return "Stopped. Nothing was written."
    again = shlex.join(["edgewise", "job", "resume", str(out), *(["--model", model] if model else [])])
    return f"Stopped. {status.done} of {status.targets} targets are finished. Run: {again}"


def _show(job: "ew.jobs.Job", status: "JobStatus", *, json: bool) -> None:
    """Print how far a job is, and the first targets that failed."""
    if json:
        terminal.print_json({"command": "job", "folder": str(job.path), **status._asdict()})
        return
    typer.echo(f"{job.path}: {status}")
    failed = list(job.failed.items())[: terminal.SHOWN_TARGETS] if status.failed else []
    if failed:
        from edgewise.cli.job_data import target_names

        called = target_names(job)
        terminal.print_rows("failed", ["target", "why"], [[[called(index), reason] for index, reason in failed]])
