"""A `.parquet` of feature scores: a row for every score that is not zero, with names of features, found again by its keys.

`of` says whether a row is the score of a node's feature, of an edge's attribute (`item` is then a column of `edge_index`) or of
a node as a whole (`cam`, `grad_cam`). The rows may come in any order; a table that lacks some of them is refused.
"""

import json
from typing import Any

import numpy as np

from edgewise.archives import require
from edgewise.results.container import About, Arrays, check_digest, packed, unpacked, with_digest
from edgewise.results.feature_factors import stored_row
from edgewise.results.feature_scores import FeatureSet
from edgewise.results.score_table import index_columns, pyarrow
from edgewise.results.typed_tables import NodeNames, named_columns, typed_columns

KINDS = {"features": "feature", "attributes": "attribute", "nodes": "node"}
"""What a row of the table is called, for each kind of stored rows."""


def write_feature_table(
    file: Any,
    found: FeatureSet,
    arrays: Arrays,
    about: About,
    node_names: NodeNames = None,
    node_ids: NodeNames = None,
) -> None:
    """The rows, and what is not a row in the metadata; factors are multiplied."""
    arrow, table = pyarrow(), feature_columns(found)
    about = {**about, "kinds": [kind for kind in KINDS if getattr(found, kind) is not None]}
    content = {
        "about": with_digest({**arrays, **_places(table, about, len(found))}, about),
        "arrays": {name: packed(array) for name, array in arrays.items()},
    }
    called = _called(found, table, node_names, node_ids)
    rows = arrow.table({**table, **called}).replace_schema_metadata({"edgewise": json.dumps(content)})
    arrow.parquet.write_table(rows, file, write_page_checksum=True)


def _called(
    found: FeatureSet, table: dict[str, np.ndarray], node_names: NodeNames, node_ids: NodeNames
) -> dict[str, np.ndarray]:
    """Columns with names and ids of targets (`index_name`, …) and, where a row is about a node, of that (`item_name`, …)."""
    types = [one.types for one in found.types or ()]
    of_edge = table["of"] == KINDS["attributes"]  # such a row names no node, and any stands in for it here
    keys: list[str] = ["position", "index", "index_to"]
    known = {name: table[name] for name in keys if name in table}
    known["node"] = np.where(of_edge, 0, table["item"])
    known = typed_columns(known, types) if types else known
    added = {name: texts for name, texts in named_columns(known, node_names, node_ids).items() if name not in known}
    return {
        name.replace("node_", "item_"): np.where(of_edge, "", texts) if name.startswith("node_") else texts
        for name, texts in added.items()
    }


def feature_columns(found: FeatureSet) -> dict[str, np.ndarray]:
    """A table with a row for every score: `position`, `index`, `target`, `of`, `item`, `feature`, `name`, `score`."""
    parts = []
    for kind in (kind for kind in KINDS if getattr(found, kind) is not None):
        width = max({"features": found.num_features, "attributes": found.num_attributes, "nodes": 1}[kind], 1)
        names = np.array(found.feature_names or (), dtype=str) if kind == "features" else np.zeros(0, dtype=str)
        for position in range(len(found)):
            place, score = (part.cpu().numpy() for part in stored_row(getattr(found, kind), position))
            named = names[place % width] if len(names) else np.full(len(place), "")
            of = np.full(len(place), KINDS[kind])
            parts.append((np.full(len(place), position), of, place // width, place % width, named, score))
    row, of, item, feature, named, score = (np.concatenate(column) for column in zip(*parts, strict=True))
    index, target = found.index.cpu().numpy()[row], found.target.cpu().numpy()[row]
    table = {"position": row, **index_columns(index), "target": target, "of": of, "item": item, "feature": feature}
    return {**table, **({} if found.feature_names is None else {"name": named}), "score": score}


def read_feature_table(file: Any, told: dict[str, Any]) -> tuple[Arrays, About]:
    """The arrays and the text of such a table, `told` being its metadata; refused unless every row is as it was saved."""
    about: About = told["about"]
    arrays = {name: unpacked(name, text) for name, text in told["arrays"].items()}
    require(
        isinstance(about.get("kinds"), list) and set(about["kinds"]) <= set(KINDS), "its kinds of rows are not known"
    )
    wanted = ("position", "of", "item", "feature", "score")
    missing = [name for name in wanted if name not in file.schema_arrow.names]
    require(not missing, f"its rows have no column {', '.join(missing)}, by which scores are found")
    table = file.read(columns=list(wanted))
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in wanted}
    require("index" in arrays and columns["position"].dtype.kind == "i", "its positions are not whole numbers")
    targets = len(arrays["index"])
    inside = (columns["position"] >= 0) & (columns["position"] < targets)
    require(bool(inside.all()), "it has rows of targets that it does not know")
    arrays |= _places(columns, about, targets)
    check_digest(arrays, about)
    return arrays, about


def _places(columns: dict[str, np.ndarray], about: About, targets: int) -> Arrays:
    """Starts, places and scores of every kind of rows, in order, whatever the order of the table."""
    widths = {"features": about["num_features"], "attributes": about["num_attributes"], "nodes": 1}
    found: Arrays = {}
    for kind in about["kinds"]:
        mine = columns["of"].astype(str) == KINDS[kind]
        position, score = columns["position"][mine].astype(np.int64), columns["score"][mine]
        place = (columns["item"] * max(widths[kind], 1) + columns["feature"])[mine].astype(np.int64)
        order = np.lexsort([place, position])
        count = np.bincount(position, minlength=targets)
        found[f"{kind}_start"] = np.concatenate([[0], count.cumsum()]).astype(np.int64)
        found[f"{kind}_place"], found[f"{kind}_score"] = place[order], score[order]
    return found
