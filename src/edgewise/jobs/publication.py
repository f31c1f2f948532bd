"""Publication: the results of a job become visible as one step, which a crash can delay but not divide.

The files are written and flushed in the job's own folder first; then `commit.json` appears there, and from then on the step
is decided: the files are renamed to their places, and if the process ends before the last of them, whoever opens the job next
does the rest. Renaming needs no space on the disk.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from edgewise.errors import FileError
from edgewise.files import sync_folder, write_whole

_STAGE, _COMMIT = "stage", "commit.json"


def publish(folder: Path, files: Mapping[Path, Callable[[Path], None]]) -> None:
    """Write files and make all of them visible; the first ones become visible first.

    Args:
        folder: The folder of the job, which we have locked.
        files: Where each file goes, and what writes it to a path of the same name.
    """
    try:
        moves = _staged(folder, files)
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {error.strerror or error}.") from error
    text = json.dumps(moves)
    write_whole(folder / _COMMIT, lambda file: file.write(text.encode()))
    complete(folder)


def _staged(folder: Path, files: Mapping[Path, Callable[[Path], None]]) -> list[dict[str, str]]:
    """Write the files into the job's folder; from where to where each has to be moved."""
    stage, moves = folder / _STAGE, []
    shutil.rmtree(stage, ignore_errors=True)
    for number, (final, write) in enumerate(files.items()):
        staged = stage / str(number) / final.name
        staged.parent.mkdir(parents=True)
        write(staged)
        sync_folder(staged.parent)
        moves.append({"from": f"{number}/{final.name}", "to": os.path.relpath(final, folder.parent)})
    sync_folder(stage)
    return moves


def complete(folder: Path) -> bool:
    """Do what is left of a step that was decided; whether there was one."""
    try:
        moves = json.loads((folder / _COMMIT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    for move in moves:
        staged = folder / _STAGE / move["from"]
        if staged.is_file():
            _rename(staged, folder.parent / move["to"])
    (folder / _COMMIT).unlink(missing_ok=True)
    sync_folder(folder)
    return True


def _rename(staged: Path, final: Path) -> None:
    """Move a file to its place; to another disk it is copied, whole or not at all."""
    try:
        os.replace(staged, final)
        sync_folder(final.parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise FileError(f"{final} could not be written: {error.strerror or error}.") from error
        copy(staged, final)
        staged.unlink(missing_ok=True)


def copy(source: Path, path: Path) -> None:
    """Copy a file: whole, or not at all."""
    with source.open("rb") as content:
        write_whole(path, lambda file: shutil.copyfileobj(content, file))
