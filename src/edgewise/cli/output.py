"""Where results go: claimed before the long work, written whole or not at all, with the story of the run beside them.

In the order of a run: `Output.claim` refuses files that could not be written in the end, or that are not ours; `Destination`
knows where everything goes and makes it visible in one step; `manifest` is the JSON beside a result: what was asked, of what,
with which versions, and how long it took.

After `edgewise explain --out result.parquet ...` the folder has

    result.parquet            the scores
    result.json               the manifest

and, as long as the work is not finished, the hidden folder `.result.parquet.job`: a job (`edgewise.jobs`) with what is done.
With several methods there is a file for each: `result.gradient.parquet`, `result.occlusion.parquet`.
"""

import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgewise.cli.options import CommonOptions
from edgewise.errors import FileError, SettingError, missing_extra
from edgewise.files import is_file, is_folder, versions, write_whole
from edgewise.inner_paths import inside, read_json
from edgewise.jobs.job_folder import JobFolder
from edgewise.jobs.publication import publish

FORMAT = "edgewise-manifest-1"
ENDINGS = (".parquet", ".csv", ".npz")


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
    methods: Sequence[str] = ()
    """If the results are those of several methods, their names: each has a file."""

    def claim(self, asked: CommonOptions) -> None:
        """Refuse what could not be written in the end: wrong endings, folders, foreign files, missing packages."""
        inputs = [Path(asked.data).expanduser(), *([asked.weights] if asked.weights else [])]
        if self.out is not None:
            claim_result(self.out, inputs, self.methods, force=self.force)
            if self.out.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
                raise missing_extra("pyarrow", "table", "A .parquet file")
        if self.page is not None:
            claim_page(self.page, inputs, force=self.force)
            if importlib.util.find_spec("bokeh") is None:
                raise missing_extra("bokeh", "page", "A page")


def claim_result(path: Path, inputs: Iterable[Path], methods: Sequence[str] = (), *, force: bool) -> None:
    """Refuse result files that could not be written, or that would replace files which we did not write.

    A file is ours if a manifest beside it names it.
    """
    if path.suffix not in ENDINGS:
        raise SettingError(
            f"--out must end in {', '.join(ENDINGS)}, got {path}. Use --out result.parquet, for example."
        )
    beside, inputs = manifest_of(path), list(inputs)
    found = read_manifest(beside)
    ours = [] if found is None else [beside.name, found.get("file"), *_values(found.get("files"))]
    for file in (*files_of(path, methods).values(), beside):
        _claim(file, inputs, taken=file.name not in ours and not force)


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else []


def claim_page(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a page that could not be written, or that would replace a file which we did not write.

    Pages have no manifest; ours are recognised by their text.
    """
    if path.suffix not in (".html", ".htm"):
        raise SettingError(f"--page must end in .html, got {path}. Use --page why.html, for example.")
    ours = is_file(path) and b"edgewise" in path.read_bytes().lower()
    _claim(path, inputs, taken=not ours and not force)


def _claim(path: Path, inputs: Iterable[Path], *, taken: bool) -> None:
    """Refuse a path that is a folder, an input, or (if `taken`) there already; and a folder that is not writable."""
    if is_folder(path):
        raise FileError(f"{path} is a folder. Use the name of a file.")
    if any(is_file(given) and is_file(path) and given.samefile(path) for given in inputs):
        raise FileError(f"{path} is an input of this command. Use another name for the result.")
    if is_file(path) and taken:
        raise FileError(
            f"{path} exists and is not a result of this command. Use --force to replace it, or another name."
        )
    _check_folder(path.parent)


def _check_folder(folder: Path) -> None:
    """Try to write: permissions, full disks and read-only file systems each refuse in their own way."""
    if not is_folder(folder):
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


def files_of(path: Path, methods: Sequence[str]) -> dict[str, Path]:
    """Where the results of each method go: with several, each has a file of its own.

    >>> [str(file) for file in files_of(Path("result.csv"), ["gradient", "full"]).values()]
    ['result.gradient.csv', 'result.full.csv']
    """
    if len(methods) < 2:
        return dict.fromkeys(methods or [""], path)
    return {method: path.with_suffix(f".{method}{path.suffix}") for method in methods}


def hidden_job(path: Path) -> Path:
    """The folder of the job that makes a result: `.result.parquet.job` for `result.parquet`; never a link to another one."""
    return inside(path.parent, f".{path.name}.job")


# --- The result ---------------------------------------------------------------------------------------------------------

Save = Callable[[Path], None]
"""Writes a file to a path, whole or not at all."""


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

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for an interrupted run to go on."""
        head = {"command": self.command, "question": dict(self.question), "hashes": dict(self.hashes)}
        return {**head, "versions": versions()}

    def write(self, save: Save, **more: Any) -> dict[str, Any]:
        """Write a result that was computed in one go, and its manifest, as one step; `more` goes into the manifest."""
        with JobFolder(hidden_job(self.path)) as folder:
            try:
                return self.publish(folder, {"": save}, {}, more)
            finally:
                folder.remove()

    def publish(
        self, folder: JobFolder, saves: Mapping[str, Save], beside: Mapping[Path, Save], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make results, what belongs `beside` them and their manifest visible in one step; what the manifest says.

        Args:
            folder: The folder of the job.
            saves: What writes the result of each method, by its name; one result may be called "".
            beside: Further files, such as a page.
            more: Goes into the manifest.
        """
        files = files_of(self.path, list(saves))
        named = {"file": self.path.name} if len(files) == 1 else {"files": {m: file.name for m, file in files.items()}}
        finished = {"targets": self.total, "of": self.total}
        content = manifest(self.command, self.question, self.hashes, **named, finished=finished, **more)
        results = {file: saves[method] for method, file in files.items()}
        publish(folder.path, {manifest_of(self.path): lambda path: write_manifest(path, content), **results, **beside})
        return content


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
        found = read_json(path)
    except FileError:
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None
