"""A graph store as data of a command: names are looked up on disk, and nothing is read before it is asked about."""

from pathlib import Path
from typing import Any

from edgewise.cli.read.graphs import Graphs, NodeNames, masks_of
from edgewise.store.graph_store import GraphStore
from edgewise.store.name_table import NameTable


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
    both = nodes.ids is not None and nodes.names is not None
    names: Any = IdsAndNames(nodes.ids, nodes.names) if both else nodes.names or nodes.ids  # type: ignore[arg-type]
    ids: Any = nodes.ids
    return NodeNames(ids, names, notes.get("class_names"), parts)


class IdsAndNames(NameTable):
    """The id and the name of each node, where the name does not hold the id; found by the name alone."""

    def __init__(self, ids: NameTable, names: NameTable) -> None:
        super().__init__(names.letters, names.start, names.hashes, names.order)
        self.__dict__["_ids"] = ids

    def __getitem__(self, item: Any) -> Any:
        """As the command line tells them: `ACC-17 Ann`."""
        name = super().__getitem__(item)
        if isinstance(item, slice):
            return name
        own = self.__dict__["_ids"][item]
        return name if own.lower() in name.lower() else f"{own} {name}"

    def find(self, name: str) -> list[int]:
        """The nodes of that name, without their ids."""
        return NameTable(self.letters, self.start, self.hashes, self.order).find(name)
