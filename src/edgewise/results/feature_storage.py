"""Files of feature scores: `.npz`, without pickles; lossless, whole or not at all. `ew.load` reads them."""

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
from edgewise.results.feature_factors import FeatureFactors, FeatureRows
from edgewise.results.feature_scores import FeatureSet
from edgewise.results.typed_features import FeatureTable

FEATURE_FORMAT = "edgewise-features-1"
"""Written into every file: what kind of file it is."""
_ROWS = ("features", "attributes", "nodes")
_TENSORS = ("index", "target", "value", "sizes")
_PLAIN = ("method", "num_features", "num_attributes")


def save_features(found: FeatureSet, path: str | Path) -> None:
    """Write a set to a `.npz` file."""
    from edgewise.results.storage import as_jsonable, write_npz

    path = Path(path)
    if path.suffix != ".npz":
        raise FileError(
            f"Feature scores are written to a file that ends in .npz, got {path.name!r}. Use save('features.npz'), or "
            f"to_rows() for a data frame."
        )
    arrays = {name: getattr(found, name) for name in _TENSORS}
    for name in _ROWS:
        arrays |= _arrays(name, getattr(found, name))
    arrays |= {} if found.n_id is None else {"n_id": found.n_id}
    names = found.feature_names
    about = {"format": FEATURE_FORMAT, **{name: getattr(found, name) for name in _PLAIN}}
    about |= {"feature_names": None if names is None else list(names), "settings": as_jsonable(found.settings)}
    if found.types:
        about["types"] = [as_jsonable(table.plain()) for table in found.types]
    numbers = {name: tensor.detach().cpu().numpy() for name, tensor in arrays.items()}
    write_whole(path, lambda file: write_npz(file, numbers, about, None))


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
