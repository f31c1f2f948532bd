"""JobFolder: the folder of one job. Finished shards are on the disk, and a crash at any moment loses none of them.

    manifest.json     what the job is: its identity (the question, hashes, versions) and its shards
    journal.jsonl     a line for every shard that was finished, with the digest of its file, or that failed
    lock              who works here
    shards/           a file for every finished shard

Files appear whole or not at all, and every name that a file gives leads into the folder (`inner_paths.inside`). A shard counts
as finished if its file has the digest that the journal says, or, if the process ended between the two, if the file proves
itself to who wrote it (`known`).
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from edgewise.disk import disk_error
from edgewise.errors import FileError
from edgewise.files import digest_of, is_file, sync_folder, write_whole
from edgewise.folder_lock import FolderLock
from edgewise.inner_paths import inside, read_json
from edgewise.jobs.journal import Journal

FORMAT = "edgewise-job-1"
MANIFEST, JOURNAL, INDEX = "manifest.json", "journal.jsonl", "index.npy"
_OURS = {MANIFEST, JOURNAL, INDEX, "lock", "shards", "stage", "commit.json"}
"""The last one is of earlier versions, and never read."""
Identity = Mapping[str, Any]
"""What must be the same for a job to go on, ready for JSON."""


class JobFolder:
    """A folder whose lock we have; use it in a `with` block."""

    def __init__(self, path: Path) -> None:
        refuse_other_folder(path)
        self.path = path
        self._lock = FolderLock.take(path)
        self.journal = journal_of(path)

    def __enter__(self) -> "JobFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the lock; in a fork of the process that took it, only the fork's share in it."""
        self._lock.release()

    # --- what the job is ----------------------------------------------------------------------------------------------

    @property
    def manifest(self) -> dict[str, Any] | None:
        """What the job in the folder is; None if there is none, or nothing that we wrote."""
        return read_manifest(self.path)

    def begin(self, identity: Identity, shards: Sequence[Sequence[Any]], **more: Any) -> None:
        """Make the folder that of a job: what is there of another job is removed, what is there of this one stays."""
        asked = {"identity": json.loads(json.dumps(identity)), "shards": [list(shard) for shard in shards]}
        found = self.manifest
        if found is None or any(found[name] != asked[name] for name in asked):
            self.clear()
            self._write(key_of(identity), asked, more)
        self._make(self.shards)
        remove_unfinished(self.path)
        remove_unfinished(self.shards)

    def complete(self, digests: Mapping[str, str]) -> None:
        """Write the digests of all shards into the manifest, if it does not have them."""
        found = self.manifest
        assert found is not None
        if found.get("digests") != dict(digests):
            rest = {name: value for name, value in found.items() if name not in ("format", "key")}
            self._write(found["key"], {**rest, "digests": dict(digests)}, {})

    def _write(self, key: str, asked: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        content = {"format": FORMAT, "key": key, **asked, **more}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_whole(inside(self.path, MANIFEST), lambda file: file.write(text.encode()))

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise disk_error(folder, error) from error

    # --- shards -------------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> Path:
        """Where the files of finished shards are."""
        return shards_of(self.path)

    def has_files(self) -> bool:
        """Whether anything is finished: the file of a shard is there."""
        return self.shards.is_dir() and any(not path.name.endswith(".unfinished") for path in self.shards.iterdir())

    def file(self, name: str) -> Path:
        """Where the file of a shard is, or will be; what is there is refused if it is not a file of its own."""
        return inside(self.shards, name)

    def known(self) -> dict[str, str]:
        """The files that the journal knows as finished, and their digests."""
        return finished_files(self.journal)

    def is_kept(self, name: str, known: Mapping[str, str]) -> bool | None:
        """Whether a file is what the journal says; None if it is there, but the journal does not know it."""
        path = self.file(name)
        if not is_file(path):
            return False
        return digest_of(path) == known[name] if name in known else None

    def keep(self, name: str, write: Callable[[Path], None], **more: Any) -> None:
        """Write the file of a shard and then, when it is on the disk, the line of the journal."""
        write(self.file(name))
        self.note(name, **more)

    def note(self, name: str, digest: str | None = None, **more: Any) -> None:
        """Write down that the file of a shard is finished: it is on the disk. Who wrote it may know its digest."""
        self.journal.add(file=name, digest=digest or digest_of(self.file(name)), **more)

    # --- the end ------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove what a job has in it, but for the lock; links are removed, not what they lead to."""
        try:
            for path in sorted(self.path.iterdir(), key=lambda one: one.name == MANIFEST):
                if path == self._lock.path:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"{self.path} could not be emptied: {error.strerror or error}.") from error

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self.clear()
        self._lock.remove()
        try:
            self.path.rmdir()
        except OSError:  # somebody has come in already
            return
        sync_folder(self.path.parent)


def refuse_other_folder(path: Path) -> None:
    """Refuse a file, and a folder with things in it that are not ours: what we clear must be ours.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     refuse_other_folder(Path(folder))                 # empty
    """
    try:
        taken = path.exists() and not path.is_dir()
        others = [one.name for one in path.iterdir() if one.name not in _OURS] if path.is_dir() else []
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise FileError(f"{path} cannot be a folder: {said}. Use another name.") from error
    if taken:
        raise FileError(f"{path} is a file. Use the name of a folder.")
    others = [name for name in others if not name.endswith(".unfinished")]
    if others:
        raise FileError(f"{path} holds other things ({', '.join(others[:3])}). Use a folder that is empty or new.")


def shards_of(folder: Path) -> Path:
    """Where the files of finished shards of a job are."""
    return inside(folder, "shards")


def journal_of(folder: Path) -> Journal:
    """What was finished in the folder of a job."""
    return Journal(inside(folder, JOURNAL))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a job that we wrote; None if there is none, or if it is not ours, or not whole."""
    path = inside(folder, MANIFEST)
    try:
        found = read_json(path)
    except FileError:
        return None
    ours = isinstance(found, dict) and found.get("format") == FORMAT
    kinds = {"key": str, "identity": dict, "shards": list}
    return found if ours and all(isinstance(found.get(name), kind) for name, kind in kinds.items()) else None


def finished_files(journal: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The files that a journal knows as finished, and their digests: the last line about a file counts."""
    return {
        line["file"]: line["digest"]
        for line in journal
        if isinstance(line.get("file"), str) and isinstance(line.get("digest"), str)
    }


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder of ours."""
    for stale in folder.glob(".*.unfinished"):
        stale.unlink(missing_ok=True)


def key_of(identity: Identity) -> str:
    """A job's name for itself, which its shards carry: SHA-256 of its identity."""
    return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def differences(old: Identity, new: Identity) -> list[str]:
    """What differs between two identities, a sentence part each.

    >>> differences({"question": {"level": "input", "seed": 0}}, {"question": {"level": "layer", "seed": 0}})
    ["question.level was 'input', is 'layer'"]
    """
    before, after = dict(_leaves(old)), dict(_leaves(new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name} was {_short(before.get(name))}, is {_short(after.get(name))}" for name in names]


def _leaves(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """(path, value) of everything in nested tables; what is no table is its own leaf."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, item in value.items():
        yield from _leaves(item, f"{name}.{key}" if name else str(key))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
