"""A result under its final name once it is complete; finished parts beside it until then."""

import csv
import hashlib
import importlib.util
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.cli.options import CommonOptions
from edgewise.environment import versions
from edgewise.errors import FileError, SettingError, missing_extra
from edgewise.files import write_whole

if TYPE_CHECKING:
    import numpy as np


# --- The JSON beside a result: what was asked, of what, with which versions, and how long it took ----------------------


FORMAT = "edgewise-manifest-1"


def digest_of(*files: Path) -> str:
    """SHA-256 of the files, one after another; of one file, what `sha256sum` prints."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            for block in iter(lambda: content.read(2**20), b""):
                whole.update(block)
    return whole.hexdigest()


def digest_of_tensors(graphs: Iterable[Any]) -> str:
    """SHA-256 of every tensor of some graphs, by name."""
    whole = hashlib.sha256()
    for graph in graphs:
        for name, value in sorted(graph.to_dict().items()):
            if hasattr(value, "numpy"):
                array = value.detach().cpu().contiguous().numpy()
                whole.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return whole.hexdigest()


def manifest(command: str, question: Mapping[str, Any], hashes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Ready for JSON."""
    written = datetime.now(timezone.utc).isoformat(timespec="seconds")
    head = {"format": FORMAT, "command": command, "question": dict(question), "hashes": dict(hashes)}
    return {**head, "versions": versions(), "written": written, **more}


def write_manifest(path: Path, content: Mapping[str, Any]) -> None:
    """Whole, or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def read_manifest(path: Path) -> dict[str, Any] | None:
    """What we wrote there; None if there is no such file, or if it is not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


# --- Where results go, looked at before the long work: endings, folders, and files that are somebody else's ------------


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


# --- The whole ---------------------------------------------------------------------------------------------------------


_SAME = ("format", "command", "question", "hashes", "versions")


@dataclass(frozen=True)
class Destination:
    """Where a result goes, and the story that goes with it."""

    path: Path
    command: str
    question: Mapping[str, Any]
    hashes: Mapping[str, Any]
    total: int

    def write(self, save: Callable[[Path], None], **more: Any) -> dict[str, Any]:
        """Everything is finished: the result, its manifest, and no parts any more."""
        content = self._write(self.path, save, self.total, more)
        unfinished = partial(self.path)
        for path in (unfinished, manifest_of(unfinished)):
            path.unlink(missing_ok=True)
        return content

    def keep(self, save: Callable[[Path], None], done: int, **more: Any) -> Path:
        """What is finished, under a name that says that it is not all."""
        path = partial(self.path)
        self._write(path, save, done, more)
        return path

    def kept(self) -> Path | None:
        """Finished parts of the very same question: same settings, files and versions."""
        path = partial(self.path)
        found = read_manifest(manifest_of(path))
        if found is None or not path.is_file() or path.suffix == ".csv":
            return None
        asked = manifest(self.command, self.question, self.hashes)
        return path if all(found[name] == asked[name] for name in _SAME) else None

    def _write(self, path: Path, save: Callable[[Path], None], done: int, more: Mapping[str, Any]) -> dict[str, Any]:
        finished = {"targets": done, "of": self.total}
        content = manifest(self.command, self.question, self.hashes, file=path.name, finished=finished, **more)
        save(path)
        write_manifest(manifest_of(path), content)
        return content


# --- Columns into a file whose ending says how: `.csv`, `.parquet` or `.npz` -------------------------------------------


Columns = Mapping[str, "np.ndarray | Sequence[Any]"]


def write_columns(path: Path, columns: Columns) -> None:
    """Whole, or not at all."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
    write_whole(path, lambda file: writers[path.suffix](file, columns))


def _csv(file: Any, columns: Columns) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text)
    rows.writerow(columns)
    rows.writerows(zip(*(_plain(column) for column in columns.values()), strict=True))
    text.flush()
    text.detach()


def _plain(column: "np.ndarray | Sequence[Any]") -> Sequence[Any]:
    return column.tolist() if hasattr(column, "tolist") else column


def _parquet(file: Any, columns: Columns) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    parquet.write_table(pyarrow.table(dict(columns)), file)


def _npz(file: Any, columns: Columns) -> None:
    import numpy as np

    np.savez_compressed(file, **dict(columns))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Output:
    """Where a command writes; looked at before the long work."""

    out: Path | None
    page: Path | None
    force: bool

    def claim(self, asked: CommonOptions) -> None:
        """Refuse what could not be written in the end."""
        inputs = [Path(asked.data).expanduser(), *([asked.weights] if asked.weights else [])]
        if self.out is not None:
            claim_result(self.out, inputs, force=self.force)
            if self.out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
                raise missing_extra("pyarrow", "table", "A .parquet file")
        if self.page is not None:
            claim_page(self.page, inputs, force=self.force)
            if importlib.util.find_spec("bokeh") is None:
                raise missing_extra("bokeh", "page", "A page")
