"""Files of feature scores: `.npz`, or `.parquet` (`feature_table.py`), without pickles; lossless, whole or not at all.

`ew.load` reads and checks them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise import __version__
from edgewise.archives import Claim, require
from edgewise.errors import FileError
from edgewise.files import write_whole
from edgewise.results.container import VERSION, About, Arrays, as_jsonable, from_jsonable, write_npz
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.feature_factors import FeatureFactors, FeatureRows
from edgewise.results.feature_scores import FeatureSet
from edgewise.results.feature_table import write_feature_table
from edgewise.results.soundness import check_array, check_entries, check_entry_shapes, check_number, check_range
from edgewise.results.typed_features import FeatureTable
from edgewise.results.typed_tables import NodeNames

FEATURE_FORMAT = "edgewise-features-1"
"""Written into every file: what kind of file it is."""
_ROWS = ("features", "attributes", "nodes")
_TENSORS = ("index", "target", "value", "sizes")
_PLAIN = ("method", "num_features", "num_attributes")
_MOST = 2**40  # features, or attributes


def save_features(
    found: FeatureSet, path: str | Path, node_names: NodeNames = None, node_ids: NodeNames = None
) -> None:
    """Write a set to a `.npz` or a `.parquet` file, with names and ids of the nodes where they are known."""
    path = Path(path)
    if path.suffix not in (".npz", ".parquet"):
        raise FileError(
            f"Feature scores are written to a file that ends in .npz or .parquet, got {path.name!r}. Use save('features.npz'), "
            f"or to_rows() for a data frame."
        )
    names = found.feature_names
    about = {
        "format": FEATURE_FORMAT,
        "version": VERSION,
        "edgewise": __version__,
        **{name: getattr(found, name) for name in _PLAIN},
    }
    about |= {"feature_names": None if names is None else list(names), "settings": as_jsonable(found.settings)}
    if found.types:
        about["types"] = [as_jsonable(table.plain()) for table in found.types]
    arrays = {name: getattr(found, name) for name in _TENSORS}
    arrays |= {} if found.n_id is None else {"n_id": found.n_id}
    if path.suffix == ".parquet":
        write_whole(path, lambda file: write_feature_table(file, found, _numbers(arrays), about, node_names, node_ids))
        return
    for name in _ROWS:
        arrays |= _arrays(name, getattr(found, name))
    write_whole(path, lambda file: write_npz(file, _numbers(arrays), about, node_names, node_ids))


def _numbers(arrays: Mapping[str, Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}


def _arrays(name: str, rows: FeatureRows | None) -> dict[str, Tensor]:
    """The tensors of stored rows, by name: entries have places and scores, factors nodes and two sides."""
    if rows is None:
        return {}
    if isinstance(rows, Entries):
        return {f"{name}_start": rows.start, f"{name}_place": rows.place, f"{name}_score": rows.score}
    found = {f"{name}_start": rows.start, f"{name}_node": rows.node, f"{name}_left": rows.left}
    return found if rows.right is None else {**found, f"{name}_right": rows.right}


# --- Reading ------------------------------------------------------------------------------------------------------------


def check_feature_shapes(claims: Mapping[str, Claim], about: About) -> None:
    """Refuse arrays of a feature set that do not fit each other, by their claims alone, and a text that cannot be."""
    require("index" in claims and len(claims["index"].shape) in (1, 2), "it has no array `index` of targets")
    targets, pairs = claims["index"].shape[0], claims["index"].shape[1:]
    check_array(claims, "index", "i", (targets, 2) if pairs else (targets,))
    if "n_id" in claims:
        check_array(claims, "n_id", "i", (None,))
    for name, kind in (("target", "i"), ("value", "f")):
        check_array(claims, name, kind, (targets,))
    check_array(claims, "sizes", "i", (None, 2))
    graphs = claims["sizes"].shape[0]
    require(graphs in (1, targets), f"it has {targets} targets and {graphs} graphs: one for all, or one for each")
    missing = [name for name in (*_PLAIN, "feature_names", "settings") if name not in about]
    require(not missing, f"its text says nothing about {', '.join(missing)}")
    for name in ("num_features", "num_attributes"):
        check_number(name, about[name], most=_MOST)
    _check_text(about)
    known = {
        *_TENSORS,
        "n_id",
        *(f"{name}_{p}" for name in _ROWS for p in ("start", "place", "score", "node", "left", "right")),
    }
    unknown = sorted(set(claims) - known)
    require(not unknown, f"it has arrays that we do not know: {', '.join(unknown[:3])}")
    require("features_start" in claims or "nodes_start" in claims, "it has scores of neither features nor nodes")
    for name, width in _widths(about).items():
        _check_row_shapes(claims, name, targets, width)


def _check_text(about: About) -> None:
    """Refuse a method without a name, settings that are no table, and names that are not one for each feature."""
    require(isinstance(about["method"], str) and about["method"], "its method has no name")
    require(isinstance(about["settings"], dict), "its settings are not a table")
    names = about["feature_names"]
    fits = names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
    require(fits and len(names or ()) in (0, about["num_features"]), "it must name every feature, or none")


def _widths(about: About) -> dict[str, int]:
    """How many scores a row of each kind has."""
    return {"features": about["num_features"], "attributes": about["num_attributes"], "nodes": 1}


def _check_row_shapes(claims: Mapping[str, Claim], name: str, targets: int, width: int) -> None:
    """Refuse entries or factors whose arrays do not fit."""
    parts = {part for part in ("place", "score", "node", "left", "right") if f"{name}_{part}" in claims}
    if "node" not in parts:
        require(not parts & {"left", "right"}, f"the factors of `{name}` have no nodes")
        check_entry_shapes(claims, name, targets)
        return
    require(not parts & {"place", "score"}, f"`{name}` has both entries and factors")
    check_array(claims, f"{name}_start", "i", (targets + 1,))
    check_array(claims, f"{name}_node", "i", (None,))
    inner = None if "right" in parts else width
    check_array(claims, f"{name}_left", "f", (claims[f"{name}_node"].shape[0], inner))
    if "right" in parts:
        check_array(claims, f"{name}_right", "f", (claims[f"{name}_left"].shape[1], width))


def features_from(arrays: Arrays, about: About) -> FeatureSet:
    """The set, from what `save_features` wrote; the shapes have been checked, the numbers are here."""
    check_range("sizes", arrays["sizes"], 0, 2**48)
    check_range("index", arrays["index"], 0, 2**48)
    check_range("target", arrays["target"], 0, 2**48)
    for name, width in _widths(about).items():
        _check_rows(arrays, name, width)
    tensors = {name: torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in arrays.items()}
    names = about["feature_names"]
    fields: dict[str, Any] = {name: tensors[name] for name in _TENSORS}
    fields |= {name: about[name] for name in _PLAIN} | {name: _rows(name, tensors) for name in _ROWS}
    fields["feature_names"] = None if names is None else tuple(names)
    tables = tuple(FeatureTable.of_plain(from_jsonable(one)) for one in about.get("types", ()))
    require(len(tables) in (0, 1, len(arrays["index"])), "its tables of types must be one, or one for each target")
    settings = Settings(from_jsonable(about["settings"]))
    return FeatureSet(**fields, settings=settings, types=tables, n_id=tensors.get("n_id"))


def _check_rows(arrays: Arrays, name: str, width: int) -> None:
    """Refuse places and nodes beyond the graph of their target."""
    if f"{name}_start" not in arrays:
        return
    sizes = arrays["sizes"][:, 1 if name == "attributes" else 0]
    each = np.broadcast_to(sizes, len(arrays["index"])) if len(sizes) == 1 else sizes
    if f"{name}_node" in arrays:
        renamed = {f"{name}_start": arrays[f"{name}_start"], f"{name}_place": arrays[f"{name}_node"]}
        check_entries(renamed, name, each)
    else:
        check_entries(arrays, name, each * width)


def _rows(name: str, tensors: dict[str, Tensor]) -> FeatureRows | None:
    if f"{name}_start" not in tensors:
        return None
    if f"{name}_place" in tensors:
        return Entries.of_rows(*(tensors[f"{name}_{part}"] for part in ("start", "place", "score")))
    start, node, left = (tensors[f"{name}_{part}"] for part in ("start", "node", "left"))
    return FeatureFactors(start, node, left, tensors.get(f"{name}_right"))
