"""Files of explanation sets: `.npz` (numpy alone) and `.parquet` (for data frames); no pickles, nothing half-written.

A set becomes arrays (`_arrays`: index, target, value, the sparse scores as start, place and score, and the graphs one after
another) and a small text (`_about`: method, level, settings). A parquet file has a row for each score, and the rest in its
metadata. `load` puts both together again, lossless.
"""

import base64
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.contract import checked
from edgewise.errors import FileError, missing_extra
from edgewise.files import write_whole
from edgewise.graph.type_table import TypeTable
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.feature_storage import FEATURE_FORMAT, feature_places, features_from
from edgewise.results.typed_tables import NodeNames, named_columns, typed_columns, union_columns

_FORMAT = "edgewise-explanations-1"
"""Written into every file: what kind of file it is."""
_VERSION = 1
"""Of what is in the file. 0: no number is written (Edgewise 0.1.0), layers are calls. 1: layers are those of the depth."""
_NUMBERS = ("n_id", "e_id")
"""Arrays that only a sampled batch has."""
_PLAIN = ("method", "level", "num_layers", "own_missing", "settings")


def save(explained: ExplanationSet, path: str | Path, node_names: NodeNames = None) -> None:
    """Write a set to a file; its ending, `.npz` or `.parquet`, says how.

    With `node_names` (of the one graph of nodes or links; of a typed graph by node type) the rows of a `.parquet` also carry
    the names of the nodes.
    """
    path = Path(path)
    writers: dict[str, Callable[..., None]] = {".npz": write_npz, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise FileError(f"The name must end in .npz or .parquet, got {path.name!r}. Use save('all.npz'), for example.")
    arrays, about = _arrays(explained), _about(explained)
    write_whole(path, lambda file: writers[path.suffix](file, arrays, about, node_names))


@checked
def load(path: str | Path) -> Any:
    """Read the `ExplanationSet` or the `FeatureSet` that `save` wrote, `.npz` or `.parquet`.

    >>> import tempfile, torch; from torch_geometric.data import Data; from torch_geometric.nn import GCNConv
    >>> from edgewise.api.explain import explain
    >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     explain(GCNConv(1, 2), data, index=[1, 2]).save(Path(folder) / "why.npz")
    ...     load(Path(folder) / "why.npz").index
    tensor([1, 2])
    """
    path = Path(path)
    readers = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise FileError(f"The name must end in .npz or .parquet, got {path.name!r}.")
    if not path.is_file():
        raise FileError(f"There is no file {path}. Write one with explain(...).save(path).")
    try:
        arrays, about = readers[path.suffix](path)
        if about.get("format") == FEATURE_FORMAT:
            types = [_from_jsonable(one) for one in about.get("types", ())]
            return features_from(arrays, about, _from_jsonable(about["settings"]), types)
        if about.get("format") != _FORMAT:
            raise FileError(
                f"{path.name} must have the format {_FORMAT!r}, got {about.get('format')!r}. Explain again and save."
            )
        return _assemble(arrays, _brought_up(about, path.name))
    except FileError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        json.JSONDecodeError,
        IndexError,
        EOFError,
    ) as error:
        raise FileError(
            f"{path.name} cannot be read as explanations ({error}). It may be truncated, or another kind of file."
        ) from error


def _arrays(explained: ExplanationSet) -> dict[str, np.ndarray]:
    """Every tensor of the set as an array; graphs are joined, `graph_edges` and `graph_nodes` say where each ends."""
    arrays: dict[str, Tensor] = {"index": explained.index, "target": explained.target, "value": explained.value}
    for name, entries in (("edges", explained.edges), ("own", explained.own), ("errors", explained.errors)):
        if entries is not None:
            arrays |= {f"{name}_start": entries.start, f"{name}_place": entries.place, f"{name}_score": entries.score}
    arrays |= {name: part for name in _NUMBERS if (part := getattr(explained, name)) is not None}
    arrays["edge_index"] = torch.cat([edge_index for edge_index, _ in explained.graphs], dim=1)
    arrays["graph_edges"] = torch.tensor([edge_index.size(1) for edge_index, _ in explained.graphs])
    arrays["graph_nodes"] = torch.tensor([nodes for _, nodes in explained.graphs])
    return {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}


def _about(explained: ExplanationSet) -> dict[str, Any]:
    """What is not an array, as plain data."""
    types = {}
    if explained.type_tables:
        types = {
            "types" if explained.types else "graph_types": [as_jsonable(one.plain()) for one in explained.type_tables]
        }
    plain = {name: as_jsonable(getattr(explained, name)) for name in _PLAIN}
    return {"format": _FORMAT, "version": _VERSION, **plain, **types}


def _types(about: dict[str, Any]) -> tuple[TypeTable, ...]:
    """The types of a typed graph, or of several, as `TypeTable.plain` gave them; none for other graphs."""
    listed = about.get("types") or about.get("graph_types") or []
    return tuple(TypeTable(*_from_jsonable(one)) for one in listed)


def _brought_up(about: dict[str, Any], name: str) -> dict[str, Any]:
    """The text of a file of any version so far, as this version would have written it; later versions are refused."""
    version = about.get("version", 0)
    if not isinstance(version, int) or version > _VERSION:
        raise FileError(
            f"{name} must have version {_VERSION} of the format or an older one, got {version!r}: a later Edgewise wrote it. "
            f"Run: pip install -U edgewise."
        )
    if version == 0 and about["level"] == "layer":  # a row for each message-passing call, in the order of the calls
        return {**about, "settings": {**about["settings"], "layers": "calls"}}
    return about


def as_jsonable(value: Any) -> Any:
    """The value in JSON's types; a tuple keeps its type as `{"tuple": [...]}`, other objects become their text."""
    if isinstance(value, Mapping):
        return {str(key): as_jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [as_jsonable(item) for item in value]}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _from_jsonable(value: Any) -> Any:
    """The inverse of `as_jsonable`."""
    if isinstance(value, dict) and set(value) == {"tuple"}:
        return tuple(_from_jsonable(item) for item in value["tuple"])
    return {key: _from_jsonable(item) for key, item in value.items()} if isinstance(value, dict) else value


def _assemble(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> ExplanationSet:
    """The set, from what `_arrays` and `_about` made of it."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    plain: dict[str, Any] = {name: _from_jsonable(about[name]) for name in _PLAIN}
    plain["settings"] = Settings(plain["settings"])
    parts = tensors["edge_index"].split(tensors["graph_edges"].tolist(), dim=1)
    return ExplanationSet(
        index=tensors["index"],
        target=tensors["target"],
        value=tensors["value"],
        graphs=tuple(zip(parts, tensors["graph_nodes"].tolist(), strict=True)),
        edges=_entries(tensors, "edges"),
        own=_entries(tensors, "own"),
        errors=_entries(tensors, "errors"),
        types=_types(about)[0] if "types" in about else None,
        graph_types=_types(about) if "graph_types" in about else (),
        n_id=tensors.get("n_id"),
        e_id=tensors.get("e_id"),
        **plain,
    )


def _entries(tensors: dict[str, Tensor], name: str) -> Entries | None:
    """Sparse rows by their name: edges, own or errors; None if the set has none."""
    if f"{name}_start" not in tensors:
        return None
    return Entries.of_rows(*(tensors[f"{name}_{part}"] for part in ("start", "place", "score")))


def write_npz(file: Any, arrays: dict[str, np.ndarray], about: dict[str, Any], node_names: NodeNames) -> None:
    """Arrays as they are; the text as bytes, because numpy would pickle an object."""
    names = dict(node_names) if isinstance(node_names, Mapping) else node_names and list(node_names)
    texts = {"about": about} | ({} if node_names is None else {"node_names": names})
    packed = {name: np.frombuffer(json.dumps(text).encode(), dtype=np.uint8) for name, text in texts.items()}
    np.savez_compressed(file, **packed, **arrays)  # type: ignore[arg-type]


def _read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the text of a `.npz` file; pickles are refused."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(arrays.pop("about").tobytes().decode())


def pyarrow_package() -> Any:
    """The package, or the error that names the extra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    return pyarrow


def _write_parquet(file: Any, arrays: dict[str, np.ndarray], about: dict[str, Any], node_names: NodeNames) -> None:
    """A row for every stored edge score, readable by any data frame; what is not a row travels in the file's metadata."""
    pyarrow = pyarrow_package()
    extra = {name: packed_text(array) for name, array in arrays.items() if name not in ("edges_place", "edges_score")}
    columns = _columns(arrays, about["level"])
    if types := _types(about):
        columns = typed_columns(columns, types)
    table = pyarrow.table(named_columns(columns, node_names))
    table = table.replace_schema_metadata({"edgewise": json.dumps({"about": about, "arrays": extra})})
    pyarrow.parquet.write_table(table, file)


def _columns(arrays: dict[str, np.ndarray], level: str) -> dict[str, np.ndarray]:
    """A table with a row for every stored score, `[entries]` each.

    A place is layer · E + column: with E = 3 edges, place 4 is column 1 in layer 1. The graphs of a graph task stand one
    after another in `edge_index`, so `offset` is added to the column to find its ends.
    """
    start = arrays.get("edges_start", np.zeros(len(arrays["index"]) + 1, dtype=np.int64))
    place = arrays.get("edges_place", np.zeros(0, dtype=np.int64))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    graph = row if len(arrays["graph_edges"]) > 1 else np.zeros_like(row)
    width = arrays["graph_edges"][graph] if len(row) else np.ones(0, dtype=np.int64)
    column = place % np.maximum(width, 1)
    offset = np.concatenate([[0], np.cumsum(arrays["graph_edges"])[:-1]]).astype(np.int64)
    ends = arrays["edge_index"][:, offset[graph] + column]
    layer = {"layer": place // np.maximum(width, 1)} if level == "layer" else {}
    return {
        "position": row,
        **index_columns(arrays["index"][row]),
        "target": arrays["target"][row],
        **layer,
        "column": column,
        "source": ends[0],
        "receiver": ends[1],
        "score": arrays.get("edges_score", np.zeros(0, dtype=np.float32)),
    }


def index_columns(index: np.ndarray) -> dict[str, np.ndarray]:
    """The explained targets as columns of a table: `index`, or for links the two ends, `index` and `index_to`.

    >>> index_columns(np.array([[3, 17]]))
    {'index': array([3]), 'index_to': array([17])}
    """
    return {"index": index} if index.ndim == 1 else {"index": index[:, 0], "index_to": index[:, 1]}


def edge_columns(explained: ExplanationSet) -> dict[str, np.ndarray]:
    """A table with a row for every stored edge score: `position` in the set, `index`, `target`, edge and `score`."""
    return _columns(_arrays(explained), explained.level)


def packed_text(array: np.ndarray) -> str:
    """An array as text: the bytes of a `.npy` file in base64."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _read_parquet(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the text of a `.parquet` file; places and scores of edges come from its rows."""
    table = pyarrow_package().parquet.read_table(path)
    extra = json.loads((table.schema.metadata or {}).get(b"edgewise", b"null"))
    if extra is None:
        raise FileError(f"{path.name} is a parquet file without explanations. Write one with explain(...).save(path).")
    packed = {name: base64.b64decode(text) for name, text in extra["arrays"].items()}
    arrays = {name: np.load(io.BytesIO(data), allow_pickle=False) for name, data in packed.items()}
    if extra["about"].get("format") == FEATURE_FORMAT:
        return arrays | feature_places(table, extra["about"]), extra["about"]
    if "edges_start" in arrays:
        row, column = table["position"].to_numpy(), table["column"].to_numpy()
        if types := _types(extra["about"]):
            column = union_columns(column, table["edge_type"].to_numpy(zero_copy_only=False), row, types)
        width = arrays["graph_edges"][row if len(arrays["graph_edges"]) > 1 else np.zeros_like(row)]
        layer = table["layer"].to_numpy() if extra["about"]["level"] == "layer" else 0
        arrays["edges_place"], arrays["edges_score"] = layer * width + column, table["score"].to_numpy()
    return arrays, extra["about"]
