"""`--data`: one graph or several, with the names and parts that come with it.

`read_data` is the way in. It decides by what is given: a folder goes to `csv_folder`, a `.pt` or `.npz` file to
`tensor_files`. A name is a data set: those with a planted truth are generated, the others are read by PyG (`read_named`).
All of them give a `Graphs`, which is checked before anything long begins.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from edgewise import datasets
from edgewise.arguments import did_you_mean
from edgewise.cli import options
from edgewise.errors import FileError, InputError
from edgewise.files import VARIABLE, user_cache
from edgewise.graph.inputs import read_graph
from edgewise.jobs.digests import digest_of_tensors

PARTS = ("train", "val", "test")
_ENDINGS = (".pt", ".npz")
_WEBKB = ("Cornell", "Texas", "Wisconsin")
_TU = ("MUTAG", "PROTEINS")
_KEPT = ("x", "edge_index", "edge_attr", "y")  # of the graphs that PyG reads


@dataclass(frozen=True, eq=False)
class Graphs:
    """The data, and what is known about it besides tensors."""

    data: Any
    """A `Data`, whose nodes can be explained, or a list of them, each of which can be explained."""
    task: str
    """`"node"`, `"graph"` or `"link"`."""
    digest: str
    """SHA-256 of the files, or of the tensors where there are no files."""
    ids: list[str] | None = None
    """An id for every node, each once: where ids exist, `--index` means these."""
    names: list[str] | None = None
    """A name for every node, to show; names may repeat."""
    class_names: list[str] | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    """`train`, `val`, `test` and the like: the positions of their nodes or graphs."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, such as columns that were not read."""
    model: Callable[[], nn.Module] | None = None
    """Trains a model, if the data set brings one."""

    @property
    def is_one(self) -> bool:
        """Whether the data is one graph, whose nodes have ids and names: nodes and links are explained in one."""
        return self.task in ("node", "link")

    @property
    def size(self) -> int:
        """How many nodes, or graphs, there are."""
        return int(self.data.num_nodes) if self.is_one else len(self.data)

    @property
    def labels(self) -> Tensor | None:
        """`[size]`: the class of each node or graph; `None` if the data does not have one for each."""
        if self.is_one:
            y = self.data.get("y")
            return y.view(-1) if isinstance(y, Tensor) and y.numel() == self.size else None
        parts = [graph.get("y") for graph in self.data]
        if any(not isinstance(y, Tensor) or y.numel() != 1 for y in parts):
            return None
        return torch.cat([y.view(1) for y in parts])

    @property
    def shape_hint(self) -> str:
        """The sizes that a model's factory may ask for, as a sentence: features and classes."""
        graph = self.data if self.is_one else self.data[0]
        labels = self.labels
        classes = (
            f" and {int(labels.max()) + 1} classes" if labels is not None and not labels.is_floating_point() else ""
        )
        return f" The data has {graph.x.size(-1) if graph.x.dim() > 1 else 1} features{classes}."


def read_data(given: str, root: Path | None, task: str | None, seed: int) -> Graphs:
    """Read what `--data` names, and check it.

    Args:
        given: A file, a folder or the name of a data set.
        root: The folder of named data sets, see `read_named`.
        task: `"node"`, `"graph"`, `"link"`, or `None` to take what the data is.
        seed: For data sets that are generated.
    """
    path = Path(given).expanduser()
    if path.is_dir():
        from edgewise.cli.read.csv_folder import read_folder

        found = read_folder(path)
    elif path.suffix in _ENDINGS:
        found = _read_file(path)
    elif path.is_file():
        raise FileError(
            f"--data must be a .pt, an .npz, or a folder with nodes.csv and edges.csv; got {path}, which ends in "
            f"{path.suffix!r}."
        )
    else:
        found = read_named(given, root, seed)
    return checked(_as_task(found, task))


def _read_file(path: Path) -> Graphs:
    """Read a `.pt` or an `.npz`; a file that is not there is refused here, with the option's own words."""
    from edgewise.cli.read.tensor_files import read_arrays, read_torch

    if not path.is_file():
        raise FileError(f"There is no file {path} with data.")
    return read_arrays(path) if path.suffix == ".npz" else read_torch(path)


def as_graphs(found: Any, digest: str, **more: Any) -> Graphs:
    """What a file held, as `Graphs`: a `Data` is a node task; a batch, a list or a `batch` vector is a graph task.

    `more` are further fields of `Graphs`, such as `names`. Nothing is checked here, see `checked`.
    """
    if isinstance(found, Batch):
        return Graphs(found.to_data_list(), "graph", digest, **more)
    if isinstance(found, (list, tuple)):
        return Graphs(list(found), "graph", digest, **more)
    if isinstance(found, Data) and isinstance(found.get("batch"), Tensor) and found.batch.numel():
        return Graphs(split(found), "graph", digest, **more)
    return Graphs(found, "node", digest, **more)


def split(data: Data) -> list[Data]:
    """The graphs that a `batch` vector tells apart, each with its nodes numbered from 0.

    A `y` with an entry for every graph is divided too: with `batch = [0, 0, 1]` and `y = [5, 7]`, the first graph has two
    nodes and `y = [5]`.
    """
    batch, ends = data.batch, data.edge_index
    if bool((batch[ends[0]] != batch[ends[1]]).any()):
        raise InputError("batch and edge_index of the data do not fit: some edges join two graphs.")
    count = int(batch.max()) + 1
    graphs = []
    for graph in range(count):
        part = data.subgraph(batch == graph)
        del part.batch
        if isinstance(data.get("y"), Tensor) and data.y.numel() == count != batch.numel():
            part.y = data.y.view(-1)[graph : graph + 1]
        graphs.append(part)
    return graphs


def _as_task(found: Graphs, task: str | None) -> Graphs:
    """The same data for the task that was asked for: one graph may be either."""
    if task is None or task == found.task:
        return found
    if task == "graph":
        return replace(found, data=[found.data], task="graph", parts={}, ids=None, names=None)
    if task == "link" and found.task == "node":
        return replace(found, task="link", parts={})
    if task in ("node", "link") and len(found.data) == 1:
        return replace(found, data=found.data[0], task=task, parts={})
    if task in ("node", "link"):
        raise InputError(f"--task {task} needs one graph, and the data has {len(found.data)}. Use --task graph.")
    return replace(found, task=task)  # unknown: `explain` lists the known ones


def checked(found: Graphs) -> Graphs:
    """Refuse what cannot be explained, and add the parts that the data's masks name."""
    graphs = found.data if isinstance(found.data, list) else [found.data]
    if not graphs:
        raise InputError("The data has no graphs. At least one is required.")
    for number, graph in enumerate(graphs):
        read_graph(graph, "data" if len(graphs) == 1 else f"data[{number}]")
    if found.task != "node" or found.parts:
        return found
    parts, notes = _masks(found.data)
    return replace(found, parts=parts, notes=(*found.notes, *notes))


def _masks(data: Data) -> tuple[dict[str, Tensor], list[str]]:
    """The positions of `train_mask`, `val_mask`, `test_mask`, and a note if they hold several splits."""
    parts: dict[str, Tensor] = {}
    notes: list[str] = []
    for part in PARTS:
        mask = data.get(f"{part}_mask")  # [nodes], or [nodes, splits]
        if not isinstance(mask, Tensor) or mask.size(0) != data.num_nodes:
            continue
        if mask.dim() == 2:
            notes = [f"The data has {mask.size(1)} splits; train, val and test are those of the first."]
            mask = mask[:, 0]
        parts[part] = mask.bool().nonzero().view(-1)
    return parts, notes


# --- Data sets by name --------------------------------------------------------------------------------------------------


def read_named(given: str, root: Path | None, seed: int) -> Graphs:
    """A data set of `options.PLANTED` or `options.REAL`; capitals do not matter, and `-` may stand for `_`.

    Args:
        given: The name, as the user wrote it.
        root: The folder of PyG's data sets; `None` for `$EDGEWISE_DATA`, or our cache.
        seed: For data sets that are generated.
    """
    known = {name.lower(): name for name in (*options.REAL, *options.PLANTED)}
    key = given.lower().replace("-", "_")
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
