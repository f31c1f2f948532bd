"""A folder as a typed graph: a table for each node type and each edge type, named by their files.

    nodes_account.csv                     the accounts
    nodes_merchant.csv                    the merchants
    edges_account__pays__merchant.csv     who pays whom: `source` is an account, `target` a merchant

Columns mean what they mean in a folder of one type (`csv_folder.py`), in each table by itself; two underscores separate the
three parts of an edge type. Types come in the order of the alphabet.
"""

from pathlib import Path

from torch_geometric.data import HeteroData

from edgewise.cli.read.csv_folder import NodeColumns, read_edge_features, read_ends, read_nodes, unused_columns
from edgewise.cli.read.graphs import Graphs
from edgewise.cli.read.tables import ENDINGS, read_table
from edgewise.errors import FileError
from edgewise.files import digest_of

_NODES, _EDGES, _BETWEEN = "nodes_", "edges_", "__"


def is_typed(folder: Path) -> bool:
    """Whether a folder holds a typed graph: it has tables of single node types, or of single edge types."""
    return bool(_tables(folder, _NODES) or _tables(folder, _EDGES))


def read_typed_folder(folder: Path) -> Graphs:
    """The typed graph of a folder.

    Raises:
        FileError: A table is missing or cannot be read, or the name of a file does not name an edge type.
        InputError: As for a folder of one type; the text names file, line and column.
    """
    _refuse_both(folder)
    nodes = {name: read_nodes(read_table(folder, f"{_NODES}{name}")) for name in _tables(folder, _NODES)}
    if not nodes:
        raise FileError(
            f"The folder {folder} has tables of edge types, but none of nodes. Add nodes_account.csv, for example."
        )
    data, files = HeteroData(), [found.table.file for found in nodes.values()]
    for name, found in nodes.items():
        for key, value in found.attributes.items():
            data[name][key] = value
    for text in _tables(folder, _EDGES):
        edges = read_table(folder, f"{_EDGES}{text}")
        kind = _edge_type(edges.file, text, nodes)
        attributes, names = read_edge_features(edges)
        data[kind].edge_index = read_ends(edges, nodes[kind[0]], nodes[kind[2]])
        for key, value in attributes.items():
            data[kind][key] = value
        if names:
            data[kind].feature_names = names
        files.append(edges.file)
    ignored = [f"{column} of {name}" for name, found in nodes.items() for column in found.ignored]
    types = {name: found.called for name, found in nodes.items()}
    return Graphs(data, "node", digest_of(*files), notes=unused_columns(ignored), types=types)


def _tables(folder: Path, prefix: str) -> list[str]:
    """What follows the prefix in the names of the folder's tables, in the order of the alphabet, each once."""
    files = [path for path in folder.iterdir() if path.suffix in ENDINGS and path.stem.startswith(prefix)]
    return sorted({path.stem.removeprefix(prefix) for path in files} - {""})


def _refuse_both(folder: Path) -> None:
    """A folder is a graph of one type or of several, not both."""
    plain = [folder / f"{name}{ending}" for name in ("nodes", "edges") for ending in ENDINGS]
    if found := next((path for path in plain if path.is_file()), None):
        raise FileError(
            f"The folder {folder} has {found.name}, a table of one type, beside tables of several types (nodes_…, edges_…). "
            f"Remove one of them."
        )


def _edge_type(file: Path, text: str, nodes: dict[str, NodeColumns]) -> tuple[str, str, str]:
    """`account__pays__merchant` as an edge type, both ends of which have a table."""
    parts = text.split(_BETWEEN)
    if len(parts) != 3 or not all(parts):
        raise FileError(
            f"{file} must name a source type, a relation and a target type with two underscores between them, got {text!r}. "
            f"Use edges_account__pays__merchant{file.suffix}, for example."
        )
    source, relation, target = parts
    for end in (source, target):
        if end not in nodes:
            raise FileError(
                f"{file} joins {source} and {target}, but there is no nodes_{end}.csv and no nodes_{end}.parquet. The node "
                f"types are {', '.join(nodes)}."
            )
    return source, relation, target
