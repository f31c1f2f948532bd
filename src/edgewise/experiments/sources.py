"""Where the data sets come from: the user's folder (never written to), or PyG's own download into a cache."""

import os
import shutil
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from edgewise.errors import FileError, InputError

VARIABLE = "EDGEWISE_DATA"


@dataclass(frozen=True)
class Raw:
    """The raw files of a data set: their folder under the root, as PyG lays them out, and where they can be had."""

    folder: str
    files: tuple[str, ...]
    url: str


def _splits(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_split_0.6_0.2_{number}.npz" for number in range(10))


def _planetoid(name: str) -> Raw:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    lower = name.lower()
    return Raw(
        f"{name}/geom-gcn/raw",
        (*(f"ind.{lower}.{part}" for part in parts), *_splits(lower)),
        "https://github.com/kimiyoung/planetoid (data/) and https://github.com/bingzhewei/geom-gcn (splits/)",
    )


def _webkb(name: str) -> Raw:
    lower = name.lower()
    return Raw(
        f"{lower}/raw",
        ("out1_node_feature_label.txt", "out1_graph_edges.txt", *_splits(lower)),
        f"https://github.com/bingzhewei/geom-gcn (new_data/{lower}/ and splits/)",
    )


def _tu(name: str, *parts: str) -> Raw:
    every = ("A", "graph_indicator", "graph_labels", "node_labels", *parts)
    files = tuple(f"{name}_{part}.txt" for part in every)
    return Raw(f"{name}/raw", files, f"https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip")


def _sentences(name: str) -> Raw:
    files = ("node_features.pkl", "edge_index.txt", "node_indicator.txt", "graph_labels.txt", "split_indices.txt")
    return Raw(
        f"{name}/raw", tuple(f"{name}_{file}" for file in files), "https://github.com/divelab/DIG (xgraph datasets)"
    )


RAW = {
    **{name: _planetoid(name) for name in ("Cora", "CiteSeer")},
    **{name: _webkb(name) for name in ("Cornell", "Texas", "Wisconsin")},
    "MUTAG": _tu("MUTAG", "edge_labels"),
    "PROTEINS": _tu("PROTEINS", "node_attributes"),
    "Graph-SST2": _sentences("Graph-SST2"),
}


def user_cache() -> Path:
    """Where downloads are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "data"


class Source:
    """Raw files as PyG wants them: under a root that may be written to."""

    def __init__(self, data: Path | None, cache: Path) -> None:
        given = data or os.environ.get(VARIABLE)
        self.given = Path(given).expanduser().resolve() if given else None
        self.root = cache if self.given else user_cache()
        if self.given and not self.given.is_dir():
            raise FileError(f"The data folder {self.given} does not exist. Check --data, or the variable {VARIABLE}.")

    def missing(self, name: str) -> list[str]:
        """Raw files that are not in the user's folder (without one: in the cache)."""
        raw = RAW[name]
        folder = (self.given or self.root) / raw.folder
        return [file for file in raw.files if not (folder / file).is_file()]

    def prepare(self, name: str) -> Path:
        """A root for PyG with the raw files of `name` in place; the user's files are linked, not touched."""
        if name not in RAW:
            raise InputError(f"There is no data set {name!r}; known are {', '.join(RAW)}.")
        if self.given is None:
            return self.root  # PyG downloads what is not there
        raw, missing = RAW[name], self.missing(name)
        if missing:
            raise _not_there(name, missing, self.given)
        inside = self.root / raw.folder
        inside.mkdir(parents=True, exist_ok=True)
        for file in raw.files:
            _link(self.given / raw.folder / file, inside / file)
        return self.root

    def read(self, name: str, reader: Any) -> Any:
        """`reader(root)`, quietly; a failed download says what to fetch by hand."""
        root = self.prepare(name)
        try:
            with redirect_stderr(StringIO()):  # PyG reports its own progress there
                return reader(str(root))
        except (OSError, RuntimeError) as error:
            missing = self.missing(name)
            if missing:
                raise _not_there(name, missing, self.given or self.root, error) from error
            raise


def _link(source: Path, link: Path) -> None:
    if link.is_file() and link.samefile(source):
        return
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(source)
    except OSError:  # a file system without links
        shutil.copyfile(source, link)


def _not_there(name: str, missing: list[str], where: Path, reason: Exception | None = None) -> FileError:
    raw = RAW[name]
    listed = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    because = f" (the download failed: {reason})" if reason else ""
    return FileError(
        f"{name} is not complete in {where}{because}: {listed} are missing. Fetch them from {raw.url}, put them into "
        f"DIR/{raw.folder}/ and say --data DIR, or set {VARIABLE}=DIR."
    )
