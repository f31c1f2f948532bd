"""What is done stays done: results, models and explanations under the output folder, by the fingerprint of their settings.

out/cache/results/KEY.json         rows and pictures of a task
out/cache/models/KEY.pt            a trained network
out/cache/checkpoints/KEY.pt       a training that was interrupted
out/cache/explanations/KEY.npz     explanations that took long
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import FileError
from edgewise.files import is_file, write_whole
from edgewise.inner_paths import inside, read_json
from edgewise.text import for_json
from edgewise_paper.task import Row, Task, TaskOutcome

if TYPE_CHECKING:
    from edgewise.results.explanation_set import ExplanationSet

KINDS = ("results", "models", "checkpoints", "explanations")


class Store:
    """The cache of one output folder. Files appear whole or not at all: a run that is killed leaves nothing half done."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "cache"
        try:
            for kind in KINDS:
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"Nothing can be written into {out}: {error.strerror or error}. Choose another folder with --out."
            ) from error

    def path(self, kind: str, key: str) -> Path:
        """The file of an entry; `kind` is one of `KINDS`."""
        ending = {"results": "json", "explanations": "npz"}.get(kind, "pt")
        return inside(self.folder, f"{kind}/{key}.{ending}")

    # --- results ------------------------------------------------------------------------------------------------------

    def has(self, task: Task) -> bool:
        """Whether a task is done."""
        return is_file(self.path("results", task.key))

    def result(self, task: Task) -> TaskOutcome | None:
        """The outcome of a task that is done, or None; a file that is not a result counts as none."""
        try:
            kept = read_json(self.path("results", task.key))
            rows = [_row(values) for values in kept["rows"]]
            return TaskOutcome(rows, kept["pictures"])
        except (ValueError, KeyError, TypeError, AttributeError):  # absent, or not ours: computed again
            return None

    def keep_result(self, task: Task, outcome: TaskOutcome, seconds: float = 0.0) -> None:
        """Write a result, and the seconds that it took; NaN in a row becomes null, which is JSON."""
        rows = [for_json(row.plain()) for row in outcome.rows]
        kept = {"task": task.title, "seconds": round(seconds, 2), "rows": rows, "pictures": outcome.pictures}
        text = json.dumps(kept, allow_nan=False)
        write_whole(self.path("results", task.key), lambda file: file.write(text.encode()))

    # --- tensors and explanations -------------------------------------------------------------------------------------

    def tensors(self, kind: str, key: str) -> dict[str, Any] | None:
        """What `keep_tensors` wrote, or None; a damaged file counts as none. Only tensors and plain values are unpickled."""
        import torch

        path = self.path(kind, key)
        if not is_file(path):
            return None
        try:
            found = torch.load(path, weights_only=True, map_location="cpu")
        except Exception:  # torch raises whatever its readers raise: computed again
            return None
        return found if isinstance(found, dict) else None

    def keep_tensors(self, kind: str, key: str, values: Mapping[str, Any]) -> None:
        """Write a dict of tensors, numbers and texts."""
        import torch

        write_whole(self.path(kind, key), lambda file: torch.save(dict(values), file))

    def drop(self, kind: str, key: str) -> None:
        """Delete an entry that is not needed any more."""
        self.path(kind, key).unlink(missing_ok=True)

    def explanations(self, key: str) -> "ExplanationSet | None":
        """A kept set of explanations, or None; a file of another version counts as none."""
        from edgewise.results.storage import load

        path = self.path("explanations", key)
        try:
            return load(path) if is_file(path) else None
        except FileError:
            return None

    def keep_explanations(self, key: str, explained: "ExplanationSet") -> None:
        """Write a set of explanations."""
        explained.save(self.path("explanations", key))


def _row(values: dict[str, Any]) -> Row:
    """A row as it was before JSON: null is NaN again."""
    plain: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
    return Row(**plain)
