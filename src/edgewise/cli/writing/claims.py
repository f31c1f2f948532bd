"""Where results go, looked at before the long work: endings, folders, and files that are somebody else's."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from edgewise.cli.writing.manifest import read_manifest
from edgewise.errors import FileError, SettingError

ENDINGS = (".parquet", ".csv", ".npz")


def claim_result(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a result file that could not be written in the end, or that would replace a file which we did not write."""
    if path.suffix not in ENDINGS:
        raise SettingError(f"--out {path} ends in {path.suffix!r}; known are {', '.join(ENDINGS)}.")
    beside = manifest_of(path)
    found = read_manifest(beside)
    ours = found is not None and found.get("file") == path.name
    for file in (path, beside):
        _claim(file, inputs, taken=not ours and not force)


def claim_page(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """The same for a page; ours are recognised by their text."""
    if path.suffix not in (".html", ".htm"):
        raise SettingError(f"--page {path} ends in {path.suffix!r}; known is .html.")
    ours = path.is_file() and b"edgewise" in path.read_bytes().lower()
    _claim(path, inputs, taken=not ours and not force)


def manifest_of(path: Path) -> Path:
    """`result.json` for `result.parquet`."""
    return path.with_suffix(".json")


def partial(path: Path) -> Path:
    """Where finished parts are kept: `result.partial.parquet`."""
    return path.with_suffix(f".partial{path.suffix}")


def _claim(path: Path, inputs: Iterable[Path], *, taken: bool) -> None:
    if path.is_dir():
        raise FileError(f"{path} is a folder; needed is the name of a file.")
    if any(given.exists() and path.exists() and given.samefile(path) for given in inputs):
        raise FileError(f"{path} is what is read; give the result another name.")
    if path.exists() and taken:
        raise FileError(
            f"{path} is there already and is not a result of this command. Add --force to replace it, or another name."
        )
    _check_folder(path.parent)


def _check_folder(folder: Path) -> None:
    """By trying: permissions, full disks and read-only file systems all say no in their own way."""
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}. Type: mkdir -p {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        raise FileError(
            f"Nothing can be written into {folder.resolve()}: {error.strerror or error}. Choose another folder."
        ) from error
