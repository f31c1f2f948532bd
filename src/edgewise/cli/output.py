"""Where results go: claimed before the long work, written whole or not at all, with the story of the run beside them.

In the order of a run: `Output.claim` refuses files that could not be written in the end, or that are not ours;
`Destination` writes the result, or keeps finished parts as `result.partial.parquet` until then; `write_columns` writes a
table; `manifest` is the JSON beside a result: what was asked, of what, with which versions, and how long it took.

After `edgewise explain --out result.parquet ...` the folder has

    result.parquet            the scores
    result.json               the manifest

and, while the work is interrupted, `result.partial.parquet` and `result.partial.json` instead: the same command finds them,
checks that they answer the same question, and goes on from there.
"""

import csv
import hashlib
import importlib.util
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.cli.options import CommonOptions
from edgewise.errors import FileError, SettingError, missing_extra
from edgewise.files import versions, write_whole

if TYPE_CHECKING:
    import numpy as np

FORMAT = "edgewise-manifest-1"
ENDINGS = (".parquet", ".csv", ".npz")
_SAME = ("format", "command", "question", "hashes", "versions")  # of a manifest, if its parts can be used


# --- Before the work ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """The files that a command was asked to write."""

    out: Path | None
    """A table of results, by its ending (`ENDINGS`)."""
    page: Path | None
    """An HTML page."""
    force: bool
    """Whether files that we did not write may be replaced."""

    def claim(self, asked: CommonOptions) -> None:
        """Refuse what could not be written in the end: wrong endings, folders, foreign files, missing packages."""
        inputs = [Path(asked.data).expanduser(), *([asked.weights] if asked.weights else [])]
        if self.out is not None:
            claim_result(self.out, inputs, force=self.force)
            if self.out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
                raise missing_extra("pyarrow", "table", "A .parquet file")
        if self.page is not None:
            claim_page(self.page, inputs, force=self.force)
            if importlib.util.find_spec("bokeh") is None:
                raise missing_extra("bokeh", "page", "A page")


def claim_result(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a result file that could not be written, or that would replace a file which we did not write.

    A file is ours if a manifest beside it names it.
    """
    if path.suffix not in ENDINGS:
        raise SettingError(
            f"--out must end in {', '.join(ENDINGS)}, got {path}. Use --out result.parquet, for example."
        )
    beside = manifest_of(path)
    found = read_manifest(beside)
    ours = found is not None and found.get("file") == path.name
    for file in (path, beside):
        _claim(file, inputs, taken=not ours and not force)


def claim_page(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a page that could not be written, or that would replace a file which we did not write.

    Pages have no manifest; ours are recognised by their text.
    """
    if path.suffix not in (".html", ".htm"):
        raise SettingError(f"--page must end in .html, got {path}. Use --page why.html, for example.")
    ours = path.is_file() and b"edgewise" in path.read_bytes().lower()
    _claim(path, inputs, taken=not ours and not force)


def _claim(path: Path, inputs: Iterable[Path], *, taken: bool) -> None:
    """Refuse a path that is a folder, an input, or (if `taken`) there already; and a folder that is not writable."""
    if path.is_dir():
        raise FileError(f"{path} is a folder. Use the name of a file.")
    if any(given.exists() and path.exists() and given.samefile(path) for given in inputs):
        raise FileError(f"{path} is an input of this command. Use another name for the result.")
    if path.exists() and taken:
        raise FileError(
            f"{path} exists and is not a result of this command. Use --force to replace it, or another name."
        )
    _check_folder(path.parent)


def _check_folder(folder: Path) -> None:
    """Try to write: permissions, full disks and read-only file systems each refuse in their own way."""
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}. Run: mkdir -p {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        raise FileError(
            f"Nothing can be written into {folder.resolve()}: {error.strerror or error}. Use another folder."
        ) from error


def manifest_of(path: Path) -> Path:
    """Where the manifest of a result is: `result.json` for `result.parquet`."""
    return path.with_suffix(".json")


def partial(path: Path) -> Path:
    """Where finished parts of a result are kept: `result.partial.parquet` for `result.parquet`."""
    return path.with_suffix(f".partial{path.suffix}")


# --- The result ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Destination:
    """Where a result goes, and the story that goes with it."""

    path: Path
    command: str
    question: Mapping[str, Any]
    """What was asked, as `story_of` tells it."""
    hashes: Mapping[str, Any]
    """SHA-256 of the inputs, by name."""
    total: int
    """The number of targets."""

    def write(self, save: Callable[[Path], None], **more: Any) -> dict[str, Any]:
        """Write the complete result and its manifest, and remove kept parts; `more` goes into the manifest."""
        content = self._write(self.path, save, self.total, more)
        unfinished = partial(self.path)
        for path in (unfinished, manifest_of(unfinished)):
            path.unlink(missing_ok=True)
        return content

    def keep(self, save: Callable[[Path], None], done: int, **more: Any) -> Path:
        """Write what is finished, `done` targets, under a name that says that it is not all."""
        path = partial(self.path)
        self._write(path, save, done, more)
        return path

    def kept(self) -> Path | None:
        """Parts of the same question that an earlier run has kept; `None` if there are none that can be read back."""
        path = partial(self.path)
        found = read_manifest(manifest_of(path))
        if found is None or not path.is_file() or path.suffix == ".csv":
            return None
        asked = manifest(self.command, self.question, self.hashes)
        return path if all(found[name] == asked[name] for name in _SAME) else None

    def _write(self, path: Path, save: Callable[[Path], None], done: int, more: Mapping[str, Any]) -> dict[str, Any]:
        """Write a file and its manifest; what the manifest says."""
        finished = {"targets": done, "of": self.total}
        content = manifest(self.command, self.question, self.hashes, file=path.name, finished=finished, **more)
        save(path)
        write_manifest(manifest_of(path), content)
        return content


# --- Tables -------------------------------------------------------------------------------------------------------------


Columns = Mapping[str, "np.ndarray | Sequence[Any]"]
"""A table, column by column."""


def write_columns(path: Path, columns: Columns) -> None:
    """Write a table as `.csv`, `.parquet` or `.npz`, as the ending says: whole, or not at all."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    write_whole(path, lambda file: writers[path.suffix](file, columns))


def _csv(file: Any, columns: Columns) -> None:
    """Write rows of texts in UTF-8, the names of the columns first."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text)
    rows.writerow(columns)
    rows.writerows(zip(*(_plain(column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()  # the file is closed by who opened it


def _plain(column: "np.ndarray | Sequence[Any]") -> Sequence[Any]:
    """Python's own numbers, which `csv` writes without the names of numpy's types."""
    return column.tolist() if hasattr(column, "tolist") else column


def _parquet(file: Any, columns: Columns) -> None:
    """Write with pyarrow, which the extra `table` brings."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    parquet.write_table(pyarrow.table(dict(columns)), file)


def _npz(file: Any, columns: Columns) -> None:
    """Write an array for every column."""
    import numpy as np

    np.savez_compressed(file, **dict(columns))  # type: ignore[arg-type]


# --- The manifest -------------------------------------------------------------------------------------------------------


def manifest(command: str, question: Mapping[str, Any], hashes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The story of a run, ready for JSON: the question, hashes of the inputs, versions, the time, and `more`.

    >>> sorted(manifest("walks", {"index": "22"}, {"data": "9f86d0"}, seconds=0.4))
    ['command', 'format', 'hashes', 'question', 'seconds', 'versions', 'written']
    """
    written = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"format": FORMAT, "command": command, "question": dict(question), "hashes": dict(hashes)}
    return {**head, "versions": versions(), "written": written, **more}


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest: whole, or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def read_manifest(path: Path) -> dict[str, Any] | None:
    """A manifest that we wrote; `None` if there is no such file, or if it is not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def digest_of(*files: Path) -> str:
    """SHA-256 of the files, one after another; for one file, what `sha256sum` prints."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            for block in iter(lambda: content.read(2**20), b""):
                whole.update(block)
    return whole.hexdigest()


def digest_of_tensors(graphs: Iterable[Any]) -> str:
    """SHA-256 of every tensor of some graphs, in the order of their names; with names, types and shapes."""
    whole = hashlib.sha256()
    for graph in graphs:
        for name, value in sorted(graph.to_dict().items()):
            if hasattr(value, "numpy"):
                array = value.detach().cpu().contiguous().numpy()
                whole.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return whole.hexdigest()
