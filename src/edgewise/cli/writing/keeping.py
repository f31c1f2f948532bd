"""A result under its final name once it is complete; finished parts beside it until then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.cli.writing.claims import manifest_of, partial
from edgewise.cli.writing.manifest import manifest, read_manifest, write_manifest

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
