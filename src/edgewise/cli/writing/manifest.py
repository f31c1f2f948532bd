"""The JSON beside a result: what was asked, of what, with which versions, and how long it took."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgewise.experiments.rows import versions
from edgewise.whole_files import write_whole

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
