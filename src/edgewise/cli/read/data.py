"""`--data`: one graph or several, with the names and parts that come with it.

`read_data` is the way in. It decides by what is given: a folder goes to `csv_folder`, a `.pt` or `.npz` file to
`tensor_files`. A name is a data set: those with a planted truth are generated, the others are read by PyG (`read_named`).
All of them give a `Graphs` (`graphs.py`), which is checked before anything long begins.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from edgewise import datasets
from edgewise.arguments import did_you_mean
from edgewise.cli import options
from edgewise.cli.read.graphs import Graphs, as_task, checked
from edgewise.errors import FileError, InputError
from edgewise.files import VARIABLE, is_file, is_folder, user_cache
from edgewise.inner_paths import reading
from edgewise.jobs.digests import digest_of_tensors
from edgewise.store.manifest import FILE as MANIFEST

_ENDINGS = (".pt", ".npz")
_WEBKB = ("Cornell", "Texas", "Wisconsin")
_TU = ("MUTAG", "PROTEINS")
_KEPT = ("x", "edge_index", "edge_attr", "y")  # of the graphs that PyG reads


def read_data(given: str, root: Path | None, task: str | None, seed: int) -> Graphs:
    """Read what `--data` names, and check it.

    Args:
        given: A file, a folder or the name of a data set.
        root: The folder of named data sets, see `read_named`.
        task: `"node"`, `"graph"`, `"link"`, or `None` to take what the data is.
        seed: For data sets that are generated.
    """
    path = Path(given).expanduser()
    if is_file(path / MANIFEST):
        from edgewise.cli.read.store_folder import read_store

        with reading(path, "a graph store"):
            found = read_store(path)
    elif is_folder(path):
        from edgewise.cli.read.csv_folder import read_folder

        with reading(path, "tables of nodes and edges"):
            found = read_folder(path)
    elif path.suffix in _ENDINGS:
        with reading(path, "a graph"):
            found = _read_file(path)
    elif is_file(path):
        raise FileError(
            f"--data must be a .pt, an .npz, or a folder with nodes.csv and edges.csv; got {path}, which ends in "
            f"{path.suffix!r}."
        )
    else:
        found = read_named(given, root, seed)
    return checked(as_task(found, task))


def _read_file(path: Path) -> Graphs:
    """Read a `.pt` or an `.npz`; a file that is not there is refused here, with the option's own words."""
    from edgewise.cli.read.tensor_files import read_arrays, read_torch

    if not is_file(path):
        raise FileError(f"There is no file {path} with data.")
    return read_arrays(path) if path.suffix == ".npz" else read_torch(path)


# --- Data sets by name --------------------------------------------------------------------------------------------------


def read_named(given: str, root: Path | None, seed: int) -> Graphs:
    """A data set of `options.PLANTED` or `options.REAL`; capitals do not matter, and `-` may stand for `_`.

    Args:
        given: The name, as the user wrote it.
        root: The folder of PyG's data sets; `None` for `$EDGEWISE_DATA`, or our cache.
        seed: For data sets that are generated.
    """
    known = {options.data_key(name): name for name in (*options.REAL, *options.PLANTED)}
    key = options.data_key(given)
    if key not in known:
        raise InputError(
            f"There is no file or folder {given!r}, and no data set of that name. Choose one of: "
            f"{', '.join(known.values())}.{did_you_mean(given, known.values())}"
        )
    name = known[key]
    return _planted(name, seed) if name in options.PLANTED else _real(name, root)


def _planted(name: str, seed: int) -> Graphs:
    """Generate a data set; it brings a way to train a model for it, and `--index truth`."""
    found = datasets.load(name, seed)
    graphs = found.data if isinstance(found.data, list) else [found.data]
    note = (
        f"{name} is generated (seed {seed}). Use --index truth for the {found.task}s whose right explanation is known."
    )
    return Graphs(
        found.data, found.task, digest_of_tensors(graphs), parts={"truth": found.targets}, notes=(note,),
        model=lambda: found.train().model,
    )  # fmt: skip


def _real(name: str, root: Path | None) -> Graphs:
    """Read one of PyG's data sets; its graphs are cloned, because PyG's share the memory of the whole set."""
    with _folder_for_pyg(name, root) as (folder, shown):
        try:
            with redirect_stderr(StringIO()):  # PyG reports its own progress there
                found = _reader(name)(str(folder))
        except Exception as error:  # of the network, of a file that is cut short
            raise FileError(
                f"{name} could not be read from {shown} ({type(error).__name__}: {error}). Download it where there is a "
                f"network, and use --root DIR, or set {VARIABLE}=DIR: PyG's folder {_subfolder(name)}/raw must be in it."
            ) from error
        if name in _TU:
            graphs = [
                Data(**{key: graph[key].clone() for key in _KEPT if graph.get(key) is not None}) for graph in found
            ]
            return Graphs(graphs, "graph", digest_of_tensors(graphs))
        return Graphs(found[0], "node", digest_of_tensors([found[0]]))


def _subfolder(name: str) -> str:
    """The folder in which PyG looks for a data set."""
    return name.lower() if name in _WEBKB else name


def _reader(name: str) -> Callable[[str], Any]:
    """PyG's class for a data set, which is called with a folder."""
    from torch_geometric.datasets import Planetoid, TUDataset, WebKB

    kind = WebKB if name in _WEBKB else TUDataset if name in _TU else Planetoid
    return lambda folder: kind(folder, name)


@contextmanager
def _folder_for_pyg(name: str, root: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder where PyG may write, and the folder to name in errors.

    The first is a copy of the user's raw files, because PyG writes into the folder that it reads from; or our cache, into
    which PyG downloads.
    """
    given = root or os.environ.get(VARIABLE)
    if not given:
        yield user_cache(), user_cache()
        return
    folder = Path(given).expanduser() / _subfolder(name)
    if not (folder / "raw").is_dir():
        raise FileError(
            f"There is no folder {folder / 'raw'}. Check --root, or the variable {VARIABLE}: it must be the folder that "
            f"holds {_subfolder(name)}/raw, as PyG lays it out."
        )
    with tempfile.TemporaryDirectory() as copies:
        inside = Path(copies) / _subfolder(name) / "raw"
        inside.mkdir(parents=True)
        for file in (folder / "raw").iterdir():
            if file.is_file():
                shutil.copyfile(file, inside / file.name)
        yield Path(copies), folder
