"""Data sets by name: those with a planted truth are generated, the others are PyG's."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from edgewise import datasets
from edgewise.cli import names
from edgewise.cli.reading.graphs import Graphs
from edgewise.cli.writing.manifest import digest_of_tensors
from edgewise.errors import FileError, InputError
from edgewise.experiments.sources import VARIABLE, user_cache

_WEBKB = ("Cornell", "Texas", "Wisconsin")
_TU = ("MUTAG", "PROTEINS")
_KEPT = ("x", "edge_index", "edge_attr", "y")


def read_named(given: str, root: Path | None, seed: int) -> Graphs:
    """A name of `names.PLANTED` or `names.REAL`, capitals do not matter."""
    plain = {name.lower(): name for name in (*names.REAL, *names.PLANTED)}
    key = given.lower().replace("-", "_")
    if key not in plain:
        near = get_close_matches(key, plain, n=1)
        hint = f" Did you mean {plain[near[0]]}?" if near else ""
        raise InputError(
            f"There is no file or folder {given!r}, and no data set of that name: {', '.join(plain.values())}.{hint}"
        )
    name = plain[key]
    return _planted(name, seed) if name in names.PLANTED else _real(name, root)


def _planted(name: str, seed: int) -> Graphs:
    found = datasets.load(name, seed)
    graphs = found.data if isinstance(found.data, list) else [found.data]
    note = f"{name} is generated (seed {seed}); --index truth are its {found.task}s with a known right explanation."
    return Graphs(
        found.data, found.task, digest_of_tensors(graphs), parts={"truth": found.targets}, notes=(note,),
        model=lambda: found.train().model,
    )  # fmt: skip


def _real(name: str, root: Path | None) -> Graphs:
    with _folder_for_pyg(name, root) as (folder, shown):
        try:
            with redirect_stderr(StringIO()):  # PyG reports its own progress there
                found = _reader(name)(str(folder))
        except Exception as error:  # of the network, of a file that is cut short
            raise FileError(
                f"{name} could not be read from {shown} ({type(error).__name__}: {error}). Fetch it where there is a network, "
                f"and say --root DIR, or set {VARIABLE}=DIR: PyG's folder {_subfolder(name)}/raw must be in it."
            ) from error
        if name in _TU:
            graphs = [
                Data(**{key: graph[key].clone() for key in _KEPT if graph.get(key) is not None}) for graph in found
            ]
            return Graphs(graphs, "graph", digest_of_tensors(graphs))
        return Graphs(found[0], "node", digest_of_tensors([found[0]]))


def _subfolder(name: str) -> str:
    return name.lower() if name in _WEBKB else name


def _reader(name: str) -> Callable[[str], Any]:
    from torch_geometric.datasets import Planetoid, TUDataset, WebKB

    kind = WebKB if name in _WEBKB else TUDataset if name in _TU else Planetoid
    return lambda folder: kind(folder, name)


@contextmanager
def _folder_for_pyg(name: str, root: Path | None) -> Any:
    """Where PyG may write: a copy of the user's raw files, or our cache, into which it downloads."""
    given = root or os.environ.get(VARIABLE)
    if not given:
        yield user_cache(), user_cache()
        return
    folder = Path(given).expanduser() / _subfolder(name)
    if not (folder / "raw").is_dir():
        raise FileError(f"There is no folder {folder / 'raw'}. Check --root, or the variable {VARIABLE}: it is the folder that "
                        f"holds {_subfolder(name)}/raw, as PyG lays it out.")  # fmt: skip
    with tempfile.TemporaryDirectory() as copies:
        inside = Path(copies) / _subfolder(name) / "raw"
        inside.mkdir(parents=True)
        for file in (folder / "raw").iterdir():
            if file.is_file():
                shutil.copyfile(file, inside / file.name)
        yield Path(copies), folder
