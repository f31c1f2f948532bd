"""A `.parquet` of explanations: a row for every stored edge score, found again by its own key columns, in whatever order.

Rows say `position` (in the set), `index` and `target`, at layer level `layer`, then `column`, `source`, `receiver`, `score`;
what is not a row travels in the file's metadata, with a digest of itself and, for every target, a sum of hashes of its rows. So
a table that was sorted is read right; one that was filtered by target gives the targets that are there, and says which are
not; rows that lack a part of a target, changed, doubled or came from another result are refused.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.archives import open_parquet, require
from edgewise.errors import missing_extra
from edgewise.inner_paths import parsed
from edgewise.results.container import About, Arrays, packed, unpacked, version_of, with_digest
from edgewise.results.soundness import type_tables
from edgewise.results.typed_tables import BETWEEN, NodeNames, named_columns, typed_columns, union_columns

_ROWS = ("edges_place", "edges_score")
"""Arrays that are rows; the others are in the metadata."""
_CHECK = "edges_check"
_FEW = 5


def pyarrow() -> Any:
    """The package, or the error that names the extra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A .parquet file") from error
    return pyarrow


# --- Writing ------------------------------------------------------------------------------------------------------------


def write_parquet(
    file: Any, arrays: Arrays, about: About, node_names: NodeNames = None, node_ids: NodeNames = None
) -> None:
    """The rows, readable by any data frame, and the rest as metadata."""
    arrow = pyarrow()
    rest = {name: packed(array) for name, array in arrays.items() if name not in _ROWS}
    if "edges_start" in arrays:
        rest[_CHECK] = packed(row_sums(arrays["edges_start"], arrays["edges_place"], arrays["edges_score"]))
    content = {"about": with_digest(arrays, about), "arrays": rest}
    table = arrow.table(named_columns(_typed(score_columns(arrays, about["level"]), about), node_names, node_ids))
    told = json.dumps({**content, "digest": _digest(content)})
    arrow.parquet.write_table(table.replace_schema_metadata({"edgewise": told}), file, write_page_checksum=True)


def _typed(columns: dict[str, np.ndarray], about: About) -> dict[str, np.ndarray]:
    """The rows of a typed graph with the types beside the numbers; those of other graphs as they are."""
    types = type_tables(about)
    return typed_columns(columns, types) if types else columns


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def row_sums(start: np.ndarray, place: np.ndarray, score: np.ndarray) -> np.ndarray:
    """`[targets]`: for every target the sum of a hash of each of its entries; the order of entries does not matter.

    >>> one = row_sums(np.array([0, 2]), np.array([4, 7]), np.array([0.5, -1.0]))
    >>> other = row_sums(np.array([0, 2]), np.array([7, 4]), np.array([-1.0, 0.5]))
    >>> bool(one == other), bool(one == row_sums(np.array([0, 2]), np.array([4, 7]), np.array([0.5, 1.0])))
    (True, False)
    """
    row = np.repeat(np.arange(len(start) - 1), np.diff(start)).astype(np.uint64)
    bits = score.view(np.uint32 if score.itemsize == 4 else np.uint64).astype(np.uint64)
    hashed = _mixed(_mixed(_mixed(row) ^ place.astype(np.uint64)) ^ bits)
    total = np.concatenate(
        [np.zeros(1, dtype=np.uint64), np.cumsum(hashed, dtype=np.uint64)]
    )  # wraps around, as it may
    return total[start[1:]] - total[start[:-1]]


def _mixed(number: np.ndarray) -> np.ndarray:
    """Splitmix64: a hash of every number."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


def score_columns(arrays: Arrays, level: str) -> dict[str, np.ndarray]:
    """A table with a row for every stored score, `[entries]` each.

    A place is layer · E + column: with E = 3 edges, place 4 is column 1 in layer 1. The graphs of a graph task stand one
    after another in `edge_index`, so `offset` is added to the column to find its ends.
    """
    start = arrays.get("edges_start", np.zeros(len(arrays["index"]) + 1, dtype=np.int64))
    place = arrays.get("edges_place", np.zeros(0, dtype=np.int64))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    width, offset = _graph_of(row, arrays)
    column = place % np.maximum(width, 1)
    ends = ends_of(arrays, offset + column)
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


def ends_of(arrays: Arrays, column: np.ndarray) -> np.ndarray:
    """`[2, n]`: both ends of some columns; of a graph on disk the file has only those that scores speak of."""
    if "columns" not in arrays:
        return arrays["edge_index"][:, column]
    place = np.searchsorted(arrays["columns"], column)
    there = place < len(arrays["columns"])
    require(
        bool(there.all() and (arrays["columns"][place] == column).all()), "its rows name columns that it does not have"
    )
    return arrays["edge_index"][:, place]


def _graph_of(row: np.ndarray, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """`[rows]` each: how many edges the graph of a target has, and where they begin in `edge_index`."""
    if len(row) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    graph = row if len(arrays["graph_edges"]) > 1 else np.zeros_like(row)
    offset = np.concatenate([[0], np.cumsum(arrays["graph_edges"])[:-1]]).astype(np.int64)
    return arrays["graph_edges"][graph], offset[graph]


def index_columns(index: np.ndarray) -> dict[str, np.ndarray]:
    """The explained targets as columns of a table: `index`, or for links the two ends, `index` and `index_to`.

    >>> index_columns(np.array([[3, 17]]))
    {'index': array([3]), 'index_to': array([17])}
    """
    return {"index": index} if index.ndim == 1 else {"index": index[:, 0], "index_to": index[:, 1]}


# --- Reading ------------------------------------------------------------------------------------------------------------


class ScoreTable:
    """A `.parquet` whose metadata has been read; `rows` finds the scores by their keys."""

    def __init__(self, path: Path) -> None:
        pyarrow()
        self.file = open_parquet(path, page_checksum_verification=True)
        told = parsed((self.file.schema_arrow.metadata or {}).get(b"edgewise", b"null"), "its metadata")
        require(told is not None, "it is a parquet file without explanations; write one with explain(...).save(path)")
        require(isinstance(told, dict) and isinstance(told.get("arrays"), dict), "its metadata is not that of a result")
        require(isinstance(told.get("about"), dict), "its text `about` is not a table")
        self.about: About = told["about"]
        self.told: dict[str, Any] = told
        if version_of(self.about) >= 2 and "kinds" not in self.about:  # a table of features proves itself by its rows
            rest = {name: told[name] for name in ("about", "arrays")}
            require(told.get("digest") == _digest(rest), "its metadata is not what was saved: the digest differs")
        arrays = {name: unpacked(name, text) for name, text in told["arrays"].items()}
        self.sums = arrays.pop(_CHECK, None)
        self.arrays: Arrays = arrays

    def rows(self) -> tuple[Arrays, np.ndarray]:
        """The arrays with the scores of the rows, and whether each target is there, `[targets]`.

        Everything else in the arrays has been checked. A target that is not there has no scores.
        """
        everyone = np.ones(len(self.arrays["index"]), dtype=bool)
        if "edges_start" not in self.arrays:
            require(self.file.metadata.num_rows == 0, "it has rows, but its scores are drawn on demand")
            return self.arrays, everyone
        start = self.arrays["edges_start"]
        count, rows = int(start[-1]) if len(start) else 0, self.file.metadata.num_rows
        require(rows <= count, f"it has {rows} rows for {count} scores: some are there twice, or of another result")
        table = self._columns()
        position, place = self._keys(table)
        order = np.lexsort([place, position])
        position, place, score = position[order], place[order], table["score"][order]
        twice = (np.diff(position) == 0) & (np.diff(place) == 0)
        require(not twice.any(), "it has two rows for one score")
        found = np.bincount(position, minlength=len(everyone))
        there = self._present(found, np.diff(start))
        begin = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(found)])
        if self.sums is not None:
            fits = (row_sums(begin, place, score) == self.sums) | ~there
            require(fits.all(), f"the scores of {self._names(~fits)} are not those that were saved")
        return {**self.arrays, "edges_start": begin, "edges_place": place, "edges_score": score}, there

    def _present(self, found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Which targets have all of their rows; refuse a table in which one has only some of them."""
        partial = (found != wanted) & ((found > 0) | (self.sums is None))
        require(
            not partial.any(),
            f"{self._names(partial)} should have {wanted[partial].sum()} scores, it has {found[partial].sum()} of them. "
            f"Filter by target (index), not by row, or read it as a table with pandas",
        )
        return found == wanted

    def _names(self, chosen: np.ndarray) -> str:
        """Some targets in words."""
        index = self.arrays["index"][chosen]
        few = ", ".join(str(one) for one in index[:_FEW].tolist())
        return f"target {few}" if len(index) == 1 else f"targets {few}{' …' if len(index) > _FEW else ''}"

    def _columns(self) -> dict[str, np.ndarray]:
        """The key columns and the scores; refuse a table that lacks one, or has holes."""
        wanted = list(_typed(score_columns(_without_rows(self.arrays), self.about["level"]), self.about))
        have = self.file.schema_arrow.names
        missing = [name for name in wanted if have.count(name) != 1]
        require(not missing, f"its rows have no column {', '.join(missing)}, by which scores are found")
        table, types = self.file.read(columns=wanted), pyarrow().types
        found = {}
        for name in wanted:
            column, is_score, is_text = table[name], name == "score", name.endswith("_type")
            fits = (types.is_floating if is_score else types.is_string if is_text else types.is_integer)(column.type)
            what = "names" if is_text else "numbers"
            require(
                column.null_count == 0 and fits, f"its column {name} must hold {what} in every row, got {column.type}"
            )
            plain = column if is_score or is_text else column.cast("int64")
            found[name] = plain.to_numpy(zero_copy_only=False).astype(str) if is_text else plain.to_numpy()
        return found

    def _keys(self, table: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """`[rows]`: the position and the place of each score; every other key must say the same."""
        arrays, position = self.arrays, table["position"]
        require(
            ((position >= 0) & (position < len(arrays["index"]))).all(), "it has rows of targets that it does not know"
        )
        asked = {"position": position, **index_columns(arrays["index"][position]), "target": arrays["target"][position]}
        for name, expected in _typed(asked, self.about).items():
            require((table[name] == expected).all(), f"its column {name} differs from the targets of the result")
        width, offset = _graph_of(position, arrays)
        column, layer = self._union_columns(table), table.get("layer", np.zeros_like(position))
        layers = self.about["num_layers"] if self.about["level"] == "layer" else 1
        require(
            ((column >= 0) & (column < width)).all(), "its column `column` names edges that the graph does not have"
        )
        require(((layer >= 0) & (layer < layers)).all(), "its column layer names layers that the model does not have")
        source, receiver = ends_of(arrays, offset + column)
        keys = {"position": position, "index": table["index"], "column": column, "source": source, "receiver": receiver}
        for name, expected in _typed(keys, self.about).items():
            require((table[name] == expected).all(), f"its column {name} is not that of the graph")
        return position, layer * width + column

    def _union_columns(self, table: Mapping[str, np.ndarray]) -> np.ndarray:
        """`[rows]`: the columns of the graph that is stored, which for a typed graph is the union of its types."""
        types = type_tables(self.about)
        if not types:
            return table["column"]
        known = {BETWEEN.join(kind) for kind in types[0].edge_types}
        require(
            set(np.unique(table["edge_type"])) <= known, "its column edge_type names types that the graph does not have"
        )
        return union_columns(table["column"], table["edge_type"], table["position"], types)


def _without_rows(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith("edges_")}
