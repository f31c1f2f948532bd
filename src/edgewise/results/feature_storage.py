"""Files of feature scores: `.npz` or `.parquet`, without pickles; lossless, whole or not at all. `ew.load` reads them.

A `.parquet` has a row for every score that is not zero, with names of features; `of` says whether it is that of a node's
feature, of an edge's attribute (`item` is then a column of `edge_index`) or of a node as a whole (`cam`, `grad_cam`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import FileError
from edgewise.files import write_whole
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.feature_factors import FeatureFactors, FeatureRows, stored_row
from edgewise.results.feature_scores import FeatureSet
from edgewise.results.typed_features import FeatureTable

FEATURE_FORMAT = "edgewise-features-1"
"""Written into every file: what kind of file it is."""
_ROWS = ("features", "attributes", "nodes")
_TENSORS = ("index", "target", "value", "sizes")
_PLAIN = ("method", "num_features", "num_attributes")
_SINGLE = {"features": "feature", "attributes": "attribute", "nodes": "node"}
"""What a row of a table is called, for each kind of stored rows."""


def save_features(found: FeatureSet, path: str | Path) -> None:
    """Write a set to a `.npz` or a `.parquet` file."""
    from edgewise.results.storage import as_jsonable, write_npz

    path = Path(path)
    if path.suffix not in (".npz", ".parquet"):
        raise FileError(
            f"Feature scores are written to a file that ends in .npz or .parquet, got {path.name!r}. Use save('features.npz'), "
            f"or to_rows() for a data frame."
        )
    names = found.feature_names
    about = {"format": FEATURE_FORMAT, **{name: getattr(found, name) for name in _PLAIN}}
    about |= {"feature_names": None if names is None else list(names), "settings": as_jsonable(found.settings)}
    if found.types:
        about["types"] = [as_jsonable(table.plain()) for table in found.types]
    arrays = {name: getattr(found, name) for name in _TENSORS}
    arrays |= {} if found.n_id is None else {"n_id": found.n_id}
    if path.suffix == ".parquet":
        write_whole(path, lambda file: _write_parquet(file, found, _numbers(arrays), about))
        return
    for name in _ROWS:
        arrays |= _arrays(name, getattr(found, name))
    write_whole(path, lambda file: write_npz(file, _numbers(arrays), about, None))


def _numbers(arrays: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}


def _write_parquet(file: Any, found: FeatureSet, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """The rows, and what is not a row in the metadata; factors are multiplied."""
    from edgewise.results.storage import packed_text, pyarrow_package

    pyarrow = pyarrow_package()
    about = {**about, "targets": len(found), "kinds": [name for name in _ROWS if getattr(found, name) is not None]}
    columns = feature_columns(found)
    extra = {name: packed_text(array) for name, array in arrays.items()}
    table = pyarrow.table(columns).replace_schema_metadata({"edgewise": json.dumps({"about": about, "arrays": extra})})
    pyarrow.parquet.write_table(table, file)


def feature_columns(found: FeatureSet) -> dict[str, np.ndarray]:
    """A table with a row for every score: `position`, `index`, `target`, `of`, `item`, `feature`, `name`, `score`."""
    from edgewise.results.storage import index_columns

    widths = {"features": found.num_features, "attributes": found.num_attributes, "nodes": 1}
    parts = []
    for kind in (kind for kind in _ROWS if getattr(found, kind) is not None):
        for position in range(len(found)):
            place, score = (part.cpu().numpy() for part in stored_row(getattr(found, kind), position))
            width = max(widths[kind], 1)
            names = found.feature_names if kind == "features" else None
            named = np.array(["" if names is None else names[f] for f in (place % width).tolist()], dtype=str)
            of = np.full(len(place), _SINGLE[kind])
            parts.append((np.full(len(place), position), of, place // width, place % width, named, score))
    row, of, item, feature, named, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    index, target = found.index.cpu().numpy()[row], found.target.cpu().numpy()[row]
    table = {"position": row, **index_columns(index), "target": target, "of": of, "item": item, "feature": feature}
    return {**table, **({} if found.feature_names is None else {"name": named}), "score": score}


def feature_places(table: Any, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Starts, places and scores of every kind of rows, from the table that `_write_parquet` wrote."""
    columns = {
        name: table[name].to_numpy(zero_copy_only=False) for name in ("position", "of", "item", "feature", "score")
    }
    widths = {"features": about["num_features"], "attributes": about["num_attributes"], "nodes": 1}
    targets = int(about["targets"])
    found = {}
    for kind in about["kinds"]:
        mine = columns["of"].astype(str) == _SINGLE[kind]
        count = np.bincount(columns["position"][mine].astype(np.int64), minlength=targets)
        found[f"{kind}_start"] = np.concatenate([[0], count.cumsum()]).astype(np.int64)
        found[f"{kind}_place"] = (columns["item"] * max(widths[kind], 1) + columns["feature"])[mine].astype(np.int64)
        found[f"{kind}_score"] = columns["score"][mine]
    return found


def _arrays(name: str, rows: FeatureRows | None) -> dict[str, Tensor]:
    """The tensors of stored rows, by name: entries have places and scores, factors nodes and two sides."""
    if rows is None:
        return {}
    if isinstance(rows, Entries):
        return {f"{name}_start": rows.start, f"{name}_place": rows.place, f"{name}_score": rows.score}
    found = {f"{name}_start": rows.start, f"{name}_node": rows.node, f"{name}_left": rows.left}
    return found if rows.right is None else {**found, f"{name}_right": rows.right}


def features_from(
    arrays: dict[str, np.ndarray], about: dict[str, Any], settings: dict[str, Any], types: Sequence[Any] = ()
) -> FeatureSet:
    """The set, from what `save_features` wrote; `types` are the tables of typed graphs."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    names = about["feature_names"]
    fields: dict[str, Any] = {name: tensors[name] for name in _TENSORS}
    fields |= {name: about[name] for name in _PLAIN} | {name: _rows(name, tensors) for name in _ROWS}
    fields["feature_names"] = None if names is None else tuple(names)
    tables = tuple(FeatureTable.of_plain(one) for one in types)
    return FeatureSet(**fields, settings=Settings(settings), types=tables, n_id=tensors.get("n_id"))


def _rows(name: str, tensors: dict[str, Tensor]) -> FeatureRows | None:
    if f"{name}_start" not in tensors:
        return None
    if f"{name}_place" in tensors:
        return Entries.of_rows(*(tensors[f"{name}_{part}"] for part in ("start", "place", "score")))
    start, node, left = (tensors[f"{name}_{part}"] for part in ("start", "node", "left"))
    return FeatureFactors(start, node, left, tensors.get(f"{name}_right"))
