"""Publication: the results of a job become visible together, from a folder of this run, under names that this run knows.

All files are written and flushed in the job's own folder first. Then those that they replace are removed, and the new ones are
renamed to their places, which needs no space on the disk: a reader never finds the manifest of one run beside the numbers of
another. Nothing on the disk says where a file goes. If the process ends in between, the finished shards are still there, and
the same command makes the files again.
"""

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from edgewise.disk import disk_error
from edgewise.files import sync_folder, write_whole
from edgewise.inner_paths import inside

STAGE = "stage"


def publish(folder: Path, files: Mapping[Path, Callable[[Path], None]]) -> None:
    """Write files and make all of them visible; the first ones become visible first.

    Args:
        folder: The folder of the job, which we have locked.
        files: Where each file goes, and what writes it to a path of the same name.
    """
    try:
        moves = _staged(inside(folder, STAGE), files)
    except OSError as error:
        raise disk_error(folder, error, "The results that were there are as they were.") from error
    try:
        _move(moves)
    except KeyboardInterrupt:  # a stop waits: what remains takes no time
        _move(moves)
        raise


def _staged(stage: Path, files: Mapping[Path, Callable[[Path], None]]) -> dict[Path, Path]:
    """Write the files into a fresh folder; where each is, and where it goes."""
    if stage.exists():
        shutil.rmtree(stage)
    moves = {}
    for number, (final, write) in enumerate(files.items()):
        staged = stage / str(number) / final.name
        staged.parent.mkdir(parents=True)
        write(staged)
        sync_folder(staged.parent)
        moves[staged] = final
    sync_folder(stage)
    return moves


def _move(moves: Mapping[Path, Path]) -> None:
    """Bring files to their places, those that are not there yet."""
    left = {staged: final for staged, final in moves.items() if staged.exists()}
    try:
        if len(left) == len(moves):
            for final in left.values():
                final.unlink(missing_ok=True)
        for staged, final in left.items():
            _rename(staged, final)
    except OSError as error:
        raise disk_error(final, error, "The same command makes it.") from error


def _rename(staged: Path, final: Path) -> None:
    """Move a file to its place; to another disk it is copied, whole or not at all."""
    try:
        os.replace(staged, final)
        sync_folder(final.parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(staged, final)
        with suppress(OSError):
            staged.unlink(missing_ok=True)


def copy(source: Path, path: Path) -> None:
    """Copy a file: whole, or not at all."""
    with source.open("rb") as content:
        write_whole(path, lambda file: shutil.copyfileobj(content, file))
