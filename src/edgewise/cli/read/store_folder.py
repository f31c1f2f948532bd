"""A graph store as data of a command: names are looked up on disk, and nothing is read before it is asked about."""

from pathlib import Path
from typing import Any

from edgewise.cli.read.graphs import Graphs, NodeNames, masks_of
from edgewise.store.graph_store import GraphStore


def read_store(path: Path) -> Graphs:
    """The graph of a store."""
    store = GraphStore(path)
    if store.is_typed:
        types = {kind: _called(store, kind, store.data[kind]) for kind in store.node_types}
        return Graphs(store, "node", store.digest, types=types)
    called = _called(store, "", store.data)
    return Graphs(store, "node", store.digest, **vars(called))


def _called(store: GraphStore, kind: str, table: Any) -> NodeNames:
    """The ids, names, classes and parts of the nodes of one type."""
    nodes = store.nodes(kind)
    notes = nodes.notes if store.is_typed else store.notes
    parts, _ = masks_of(table)
    names: Any = nodes.names or nodes.ids
    ids: Any = nodes.ids
    return NodeNames(ids, names, notes.get("class_names"), parts)
