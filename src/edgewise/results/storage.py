"""Files of explanation sets: `.npz` (numpy alone) and `.parquet` (for data frames); no pickles, nothing half-written.

A set becomes arrays (`_arrays`: index, target, value, the sparse scores as start, place and score, and the graphs one after
another) and a small text (`_about`: method, level, settings). `container.py` and `score_table.py` write and read them,
`soundness.py` checks them; `load` puts both together again, lossless, or refuses with a sentence.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise import __version__
from edgewise.archives import Claim, require
from edgewise.contract import checked
from edgewise.errors import EdgewiseError, FileError, IncompleteWarning, MissingExtraError, VersionWarning
from edgewise.files import is_file, write_whole
from edgewise.results.container import (
    VERSION,
    About,
    Arrays,
    NpzFile,
    as_jsonable,
    check_digest,
    from_jsonable,
    note_on_writer,
    version_of,
    write_npz,
)
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.feature_storage import FEATURE_FORMAT, check_feature_shapes, features_from
from edgewise.results.feature_table import read_feature_table
from edgewise.results.graph_list import GraphList
from edgewise.results.score_table import ScoreTable, score_columns, write_parquet
from edgewise.results.soundness import ENTRIES, NUMBERS, check_shapes, check_values, type_tables
from edgewise.results.typed_tables import NodeNames
from edgewise.store.stored_graph import StoredGraph

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMAT = "edgewise-explanations-1"
"""Written into every file: what kind of file it is."""
_PLAIN = ("method", "level", "num_layers", "own_missing", "settings")
_FEW = 5


def save(
    explained: ExplanationSet,
    path: str | Path,
    node_names: NodeNames = None,
    job: str | None = None,
    node_ids: NodeNames = None,
) -> None:
    """Write a set to a file; its ending, `.npz` or `.parquet`, says how.

    With `node_names` (of the one graph of nodes or links; of a typed graph by node type) the rows of a `.parquet` also carry
    the names of the nodes, with `node_ids` their ids. `job` is the key of the job that a shard belongs to.
    """
    path = Path(path)
    writers: dict[str, Callable[..., None]] = {".npz": write_npz, ".parquet": write_parquet}
    if path.suffix not in writers:
        raise FileError(f"The name must end in .npz or .parquet, got {path.name!r}. Use save('all.npz'), for example.")
    arrays, about = _arrays(explained), _about(explained) | ({} if job is None else {"job": job})
    write_whole(path, lambda file: writers[path.suffix](file, arrays, about, node_names, node_ids))


@checked
def load(path: str | Path) -> Any:
    """Read the `ExplanationSet` or the `FeatureSet` that `save` wrote, `.npz` or `.parquet`.

    A file proves itself: version, digest, shapes and ranges are checked, and what does not hold is refused. The rows of a
    `.parquet` are found by their key columns, in any order; of one that was filtered, the targets that are there are read, with
    an `ew.IncompleteWarning` and `settings["lacks"]`. A file that another version of Edgewise wrote is read as it is, with an
    `ew.VersionWarning`.

    >>> import tempfile, torch; from torch_geometric.data import Data; from torch_geometric.nn import GCNConv
    >>> from edgewise.api.explain import explain
    >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     explain(GCNConv(1, 2), data, index=[1, 2]).save(Path(folder) / "why.npz")
    ...     load(Path(folder) / "why.npz").index
    tensor([1, 2])
    """
    found, about = _read(path)
    if note := note_on_writer(about, Path(path).name):
        warnings.warn(note, VersionWarning, stacklevel=3)  # past the check of the call
    return found


def load_part(path: Any) -> tuple[Any, str | None]:
    """What `load` reads, and the key of the job that the file is a shard of; None if it is not one."""
    found, about = _read(path)
    return found, about.get("job")


def _read(path: Any) -> tuple[Any, About]:
    """What a file holds, and its text."""
    path = Path(path)
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise FileError(f"The name must end in .npz or .parquet, got {path.name!r}.")
    if not is_file(path):
        raise FileError(f"There is no file {path}. Write one with explain(...).save(path).")
    try:
        found, about = readers[path.suffix](path)
    except MissingExtraError:
        raise
    except EdgewiseError as error:
        raise FileError(f"{path.name} cannot be read as explanations: {error}.") from error
    except Exception as error:  # a damaged file can make any part of a reader fail, each in its own way
        raise FileError(
            f"{path.name} cannot be read as explanations ({error}). It may be truncated, or another kind of file."
        ) from error
    return found, about


def _read_npz(path: Path) -> tuple[Any, About]:
    """The set of a `.npz` file, and its text."""
    file = NpzFile(path)
    version_of(file.about)
    if file.about.get("format") == FEATURE_FORMAT:
        check_feature_shapes(file.shapes, file.about)
        return features_from(file.read(), file.about), file.about
    _check_format(file.about)
    check_shapes(file.shapes, file.about)
    arrays = file.read()
    check_values(arrays, file.about)
    return _assemble(arrays, _brought_up(file.about)), file.about


def _read_parquet(path: Path) -> tuple[Any, About]:
    """The set of a `.parquet` file, and its text; places and scores of edges come from its rows."""
    table = ScoreTable(path)
    about, rest = table.about, table.arrays
    if about.get("format") == FEATURE_FORMAT:
        arrays, about = read_feature_table(table.file, table.told)
        check_feature_shapes({name: Claim(array.dtype, array.shape) for name, array in arrays.items()}, about)
        return features_from(arrays, about), about
    _check_format(about)
    claims = {name: Claim(array.dtype, array.shape) for name, array in rest.items()}
    if "edges_start" in claims:
        count, dtype = int(rest["edges_start"][-1]) if rest["edges_start"].size else 0, np.dtype(np.float32)
        claims |= {"edges_place": Claim(np.dtype(np.int64), (count,)), "edges_score": Claim(dtype, (count,))}
    check_shapes(claims, about)
    check_values({name: array for name, array in rest.items() if name != "edges_start"}, _with_seed(about))
    arrays, there = table.rows()
    check_values(arrays, about)
    if there.all():
        check_digest(arrays, about)
    explained = _assemble(arrays, _brought_up(about))
    return (explained if there.all() else _lacking(explained, there, path.name)), about


def _with_seed(about: About) -> About:
    """The text as if scores were drawn: before the rows are read there are none."""
    return {**about, "settings": {"seed": 0, "task": about["settings"].get("task", "node")}}


def _check_format(about: About) -> None:
    got = about.get("format")
    require(got == _FORMAT, f"it must have the format {_FORMAT!r}, got {got!r}. Explain again and save")


def _lacking(explained: ExplanationSet, there: np.ndarray, name: str) -> ExplanationSet:
    """The targets that a filtered table still has, and what it lacks in words."""
    left_out = torch.from_numpy(~there).nonzero().view(-1)
    few = ", ".join(str(one) for one in explained.index[left_out[:_FEW]].tolist())
    lacks = f"{len(left_out)} of {len(there)} targets: {few}{' …' if len(left_out) > _FEW else ''}"
    warnings.warn(f"{name} was filtered: it lacks {lacks}.", IncompleteWarning, stacklevel=4)
    kept = explained[torch.from_numpy(there)]
    return replace(kept, settings=Settings({**kept.settings, "lacks": lacks}))


# --- A set as arrays and text -------------------------------------------------------------------------------------------


def _arrays(explained: ExplanationSet) -> Arrays:
    """Every tensor of the set as an array; graphs are joined, `graph_edges` and `graph_nodes` say where each ends."""
    arrays: dict[str, Tensor] = {"index": explained.index, "target": explained.target, "value": explained.value}
    for name in ENTRIES:
        entries: Entries | None = getattr(explained, name)
        if entries is not None:
            ordered = entries.in_order()
            arrays |= {f"{name}_{part}": getattr(ordered, part) for part in ("start", "place", "score")}
    arrays |= {name: part for name in NUMBERS if (part := getattr(explained, name)) is not None}
    arrays |= _stored_arrays(explained) if isinstance(explained.graphs, StoredGraph) else _graph_arrays(explained)
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}


def _graph_arrays(explained: ExplanationSet) -> dict[str, Tensor]:
    """The graphs one after another."""
    empty = torch.zeros(2, 0, dtype=torch.long)
    sizes = [(edge_index.size(1), nodes) for edge_index, nodes in explained.graphs]
    return {
        "edge_index": torch.cat([empty, *(edge_index.cpu() for edge_index, _ in explained.graphs)], dim=1),
        "graph_edges": torch.tensor([edges for edges, _ in sizes], dtype=torch.long),
        "graph_nodes": torch.tensor([nodes for _, nodes in sizes], dtype=torch.long),
    }


def _stored_arrays(explained: ExplanationSet) -> dict[str, Tensor]:
    """Of a graph on disk only the columns that scores speak of, and their ends: `columns` `[m]`, `edge_index` `[2, m]`."""
    graph = explained.graphs
    assert isinstance(graph, StoredGraph)
    parts = [one.place for one in (explained.edges, explained.errors) if one is not None]
    columns = np.unique(torch.cat([torch.empty(0, dtype=torch.long), *parts]).numpy() % max(graph.num_edges, 1))
    return {
        "columns": torch.from_numpy(columns),
        "edge_index": torch.from_numpy(np.array(graph.ends(columns))),
        "graph_edges": torch.tensor([graph.num_edges]),
        "graph_nodes": torch.tensor([graph.num_nodes]),
    }


def _about(explained: ExplanationSet) -> About:
    """What is not an array, as plain data."""
    types: dict[str, Any] = {}
    if explained.type_tables:
        types = {
            "types" if explained.types else "graph_types": [as_jsonable(one.plain()) for one in explained.type_tables]
        }
    if isinstance(explained.graphs, StoredGraph):
        types |= {"store": explained.graphs.about}
    plain = {name: as_jsonable(getattr(explained, name)) for name in _PLAIN}
    return {"format": _FORMAT, "version": VERSION, "edgewise": __version__, **plain, **types}


def _brought_up(about: About) -> About:
    """The text of a file of any version so far, as this version would have written it."""
    if (
        version_of(about) == 0 and about["level"] == "layer"
    ):  # a row for each message-passing call, in the order of the calls
        return {**about, "settings": {**about["settings"], "layers": "calls"}}
    return about


def _assemble(arrays: Arrays, about: About) -> ExplanationSet:
    """The set, from what `_arrays` and `_about` made of it."""
    tensors = {name: torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in arrays.items()}
    plain: dict[str, Any] = {name: from_jsonable(about[name]) for name in _PLAIN}
    plain["settings"] = Settings(plain["settings"])
    graphs: Any = GraphList(tensors["edge_index"], tensors["graph_edges"], tensors["graph_nodes"])
    if "columns" in arrays:
        sizes = (int(arrays["graph_edges"][0]), int(arrays["graph_nodes"][0]))
        graphs = StoredGraph(about["store"], sizes, arrays["columns"], arrays["edge_index"])
    return ExplanationSet(
        index=tensors["index"],
        target=tensors["target"],
        value=tensors["value"],
        graphs=graphs,
        edges=_entries(tensors, "edges"),
        own=_entries(tensors, "own"),
        errors=_entries(tensors, "errors"),
        types=type_tables(about)[0] if "types" in about else None,
        graph_types=type_tables(about) if "graph_types" in about else (),
        n_id=tensors.get("n_id"),
        e_id=tensors.get("e_id"),
        **plain,
    )


def _entries(tensors: dict[str, Tensor], name: str) -> Entries | None:
    """Sparse rows by their name: edges, own or errors; None if the set has none."""
    if f"{name}_start" not in tensors:
        return None
    return Entries.of_rows(*(tensors[f"{name}_{part}"] for part in ("start", "place", "score")))


def edge_columns(explained: ExplanationSet) -> dict[str, np.ndarray]:
    """A table with a row for every stored edge score: `position` in the set, `index`, `target`, edge and `score`."""
    return score_columns(_arrays(explained), explained.level)
