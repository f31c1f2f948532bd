"""Graphs that become stores from tables: folders with `nodes` and `edges` as CSV or parquet files, read batch by batch.

Columns mean what they mean to the command line (`cli/read/csv_folder.py`): of nodes `id`, `label` or `name`, `y` or `class`,
`train`, `val`, `test` or `split`; of edges `source`, `target` and `weight`; every other column of numbers is a feature. In
memory are one batch of rows and, where nodes have ids, the ids of one node type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.archives import open_parquet, refuse_long_texts
from edgewise.errors import FileError, InputError, missing_extra
from edgewise.store.store_builder import EdgeWriter, NodeWriter, StoreWriter

_ENDINGS = (".csv", ".parquet")
_PARTS = ("train", "val", "test")
_NAME_COLUMNS, _CLASS_COLUMNS = ("label", "name"), ("y", "class")
_MASKS = {name: part for part in _PARTS for name in (part, f"{part}_mask")}
_TEXTS = ("id", *_NAME_COLUMNS, "split")
_OF_NODES = {*_TEXTS, *_CLASS_COLUMNS, *_MASKS}
_OF_EDGES = {"source", "target", "weight"}
_YES = ("1", "true", "yes", "1.0")
_ROWS, _BLOCK = 2**16, 2**24


def write_tables(writer: StoreWriter, folder: Path) -> None:
    """The graph of a folder; `nodes_TYPE` and `edges_SOURCE__RELATION__TARGET` make a typed one."""
    typed = {prefix: _named(folder, prefix) for prefix in ("nodes_", "edges_")}
    if not typed["nodes_"] and not typed["edges_"]:
        ids = _write_nodes(writer, writer.nodes(), BatchTable.of(folder, "nodes"))
        _write_edges(writer.edges(), BatchTable.of(folder, "edges"), (ids, ids), writer)
        return
    writer.typed = True
    known = {
        name: _write_nodes(writer, writer.nodes(name), BatchTable.of(folder, f"nodes_{name}"))
        for name in typed["nodes_"]
    }
    for text in typed["edges_"]:
        table, parts = BatchTable.of(folder, f"edges_{text}"), text.split("__")
        if len(parts) != 3 or not {parts[0], parts[-1]} <= known.keys():
            raise FileError(
                f"{table.file} must name two node types and a relation with two underscores between them, as "
                f"edges_account__pays__merchant; the node types are {', '.join(known)}."
            )
        source, relation, target = parts
        _write_edges(writer.edges((source, relation, target)), table, (known[source], known[target]), writer)


def _named(folder: Path, prefix: str) -> list[str]:
    files = [path for path in folder.iterdir() if path.suffix in _ENDINGS and path.stem.startswith(prefix)]
    return sorted({path.stem.removeprefix(prefix) for path in files} - {""})


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("pyarrow", "table", "A store from tables") from error
    return pyarrow


@dataclass(frozen=True)
class BatchTable:
    """A CSV or parquet file, read batch by batch."""

    file: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> "BatchTable":
        """`name.csv` or, if there is none, `name.parquet`."""
        for ending in _ENDINGS:
            if (folder / f"{name}{ending}").is_file():
                return cls(folder / f"{name}{ending}")
        raise FileError(f"The folder {folder} has no {name}.csv and no {name}.parquet. Data must have nodes and edges.")

    def batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Its rows, some at a time, in order."""
        arrow = _arrow()
        try:
            if self.file.suffix == ".parquet":
                for batch in open_parquet(self.file, texts=True).iter_batches(_ROWS, columns=columns):
                    refuse_long_texts(batch, self.file)
                    yield batch
                return
            texts = {name: arrow.string() for name in (*_TEXTS, *_MASKS, *self._ends())}
            convert = arrow.csv.ConvertOptions(column_types=texts, include_columns=columns, strings_can_be_null=False)
            with arrow.csv.open_csv(
                self.file, arrow.csv.ReadOptions(block_size=_BLOCK), convert_options=convert
            ) as rows:
                yield from rows
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FileError(f"{self.file} cannot be read as a table ({str(error)[:200]}).") from error

    def _ends(self) -> list[str]:
        """Columns of edges that may hold ids, which are texts; as numbers they would lose leading zeros."""
        return ["source", "target"] if self.file.stem.startswith("edges") else []

    @property
    def schema(self) -> dict[str, Any]:
        """The columns and their types, by the first rows."""
        _arrow()
        if self.file.suffix == ".parquet":
            found = open_parquet(self.file).schema_arrow
        else:
            first = next(self.batches(), None)
            if first is None:
                raise FileError(f"{self.file} has no rows.")
            found = first.schema
        if len(set(found.names)) != len(found.names):
            raise InputError(f"{self.file} has two columns of one name: {', '.join(found.names)}.")
        return dict(zip(found.names, found.types, strict=True))


def _is_number(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _features(schema: dict[str, Any], known: set[str]) -> tuple[list[str], list[str]]:
    """The columns of numbers that mean nothing else, and those of texts."""
    rest = [name for name in schema if name not in known]
    return [name for name in rest if _is_number(schema[name])], [name for name in rest if not _is_number(schema[name])]


def _numbers(table: BatchTable, batch: Any, column: str) -> np.ndarray:
    """A column as float64; a hole, NaN or infinity in it is a mistake."""
    cells = batch.column(column)
    found: np.ndarray = (
        cells.cast("float64").to_numpy(zero_copy_only=False) if _is_number(cells.type) else np.array([np.nan])
    )
    if not np.isfinite(found).all():
        raise InputError(
            f"{table.file}: column {column} must hold finite numbers in every row. Fill it in, or remove it."
        )
    return found


def _matrix(table: BatchTable, batch: Any, columns: list[str]) -> np.ndarray:
    """`[rows, columns]` of float32."""
    return np.stack([_numbers(table, batch, name) for name in columns], axis=1).astype(np.float32)


def _texts(batch: Any, column: str) -> Any:
    """A column of texts without spaces around them; an empty cell is an empty text."""
    compute = _arrow().compute
    return compute.utf8_trim_whitespace(compute.fill_null(batch.column(column).cast("string"), ""))


# --- Nodes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeIds:
    """By what edges name nodes: ids, or row numbers."""

    file: Path
    count: int
    ids: Any
    """All ids as one array of pyarrow; None: nodes have none."""


def _write_nodes(writer: StoreWriter, nodes: NodeWriter, table: BatchTable) -> NodeIds:
    """The columns of a table of nodes by their names."""
    schema = table.schema
    features, ignored = _features(schema, _OF_NODES)
    if not features:
        raise InputError(f"{table.file} has no column of numbers for features. Add one, for instance a constant 1.")
    labels = next((name for name in _CLASS_COLUMNS if name in schema), None)
    classes = _class_names(table, labels) if labels and not _is_number(schema[labels]) else None
    count = 0
    used = [name for name in schema if name in (*features, *_CLASS_COLUMNS, *_MASKS, "split")]
    for batch in table.batches(used):
        nodes.add("x", _matrix(table, batch, features))
        if labels is not None:
            nodes.add("y", _labels(table, batch, labels, classes))
        for part, mask in _masks(batch, schema):
            nodes.add(f"{part}_mask", mask)
        count += len(batch)
    notes = nodes.notes if writer.typed else writer.notes
    notes |= {"feature_names": features} | ({} if classes is None else {"class_names": classes})
    if ignored:
        writer.said.append(f"Columns of texts of {table.file.name}, not used as features: {', '.join(ignored)}.")
    return NodeIds(table.file, count, _write_names(nodes, table, schema, count))


def _write_names(nodes: NodeWriter, table: BatchTable, schema: dict[str, Any], count: int) -> Any:
    """The ids and the names of nodes, as far as there are any; returns all ids in one array."""
    for column, what in (("id", "ids"), *((name, "names") for name in _NAME_COLUMNS if name in schema)):
        if column in schema:
            nodes.call((text for batch in table.batches([column]) for text in _texts(batch, column).to_pylist()), what)
            if what == "names":
                break
    if "id" not in schema:
        return None
    ids = _arrow().concat_arrays([_texts(batch, "id") for batch in table.batches(["id"])])
    if len(ids.unique()) != count:
        raise InputError(f"{table.file} has an id twice. Each node must have its own.")
    return ids


def _class_names(table: BatchTable, column: str) -> list[str]:
    """The different texts of a column, in the order of the alphabet."""
    return sorted({text for batch in table.batches([column]) for text in _texts(batch, column).unique().to_pylist()})


def _labels(table: BatchTable, batch: Any, column: str, classes: list[str] | None) -> np.ndarray:
    """`[rows]`: whole numbers, or the places of texts among all classes."""
    if classes is not None:
        place = {name: number for number, name in enumerate(classes)}
        return np.array([place[text] for text in _texts(batch, column).to_pylist()], dtype=np.int64)
    found = _numbers(table, batch, column)
    return found.astype(np.float32) if _arrow().types.is_floating(batch.column(column).type) else found.astype(np.int64)


def _masks(batch: Any, schema: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """The rows of `train`, `val` and `test`, from a column of each name, or from `split`."""
    for part in _PARTS:
        column = next((name for name, of in _MASKS.items() if of == part and name in schema), None)
        if column is not None:
            yield part, np.array([text.lower() in _YES for text in _texts(batch, column).to_pylist()], dtype=bool)
        elif "split" in schema:
            yield part, np.array([text.lower() == part for text in _texts(batch, "split").to_pylist()], dtype=bool)


# --- Edges --------------------------------------------------------------------------------------------------------------


def _write_edges(edges: EdgeWriter, table: BatchTable, nodes: tuple[NodeIds, NodeIds], writer: StoreWriter) -> None:
    """The columns of a table of edges by their names."""
    schema = table.schema
    if missing := {"source", "target"} - schema.keys():
        raise InputError(
            f"{table.file} must have the columns source and target; {' and '.join(sorted(missing))} is not there."
        )
    if "weight" in schema and not _is_number(schema["weight"]):
        raise InputError(f"{table.file}: column weight must hold numbers, got {schema['weight']}.")
    features, _ = _features(schema, _OF_EDGES)
    for batch in table.batches(["source", "target", *(["weight"] if "weight" in schema else []), *features]):
        edges.add_ends(0, _ends(table, batch, "source", nodes[0]))
        edges.add_ends(1, _ends(table, batch, "target", nodes[1]))
        if "weight" in schema:
            edges.add("edge_weight", _numbers(table, batch, "weight").astype(np.float32))
        if features:
            edges.add("edge_attr", _matrix(table, batch, features))
    notes, name = (edges.notes, "feature_names") if writer.typed else (writer.notes, "edge_feature_names")
    notes |= {name: features} if features else {}


def _ends(table: BatchTable, batch: Any, column: str, nodes: NodeIds) -> np.ndarray:
    """`[rows]`: the nodes that a column names by id, or by row number where nodes have no ids."""
    arrow = _arrow()
    if nodes.ids is None:
        try:
            found = batch.column(column).cast("int64")
        except arrow.ArrowException as error:
            raise InputError(
                f"{table.file} names nodes in column {column}, but {nodes.file.name} has no column id. Add one, or count."
            ) from error
        wrong = found.null_count or not all(0 <= one < nodes.count for one in _range(found))
        if wrong:
            raise InputError(
                f"{table.file}: column {column} must name rows 0 to {nodes.count - 1} of {nodes.file.name}."
            )
        return np.asarray(found.to_numpy(zero_copy_only=False))
    texts = _texts(batch, column)
    found = arrow.compute.index_in(texts, value_set=nodes.ids)
    if found.null_count:
        missing = texts.filter(found.is_null())[0].as_py()
        raise InputError(f"{table.file} names {missing!r} as {column}, which is not an id in {nodes.file}.")
    return np.asarray(found.cast("int64").to_numpy(zero_copy_only=False))


def _range(numbers: Any) -> list[int]:
    """The smallest and the largest of some whole numbers, if there are any."""
    found = _arrow().compute.min_max(numbers).as_py()
    return [one for one in found.values() if one is not None]
