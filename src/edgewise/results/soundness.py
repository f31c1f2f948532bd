"""Whether the arrays of a result file can be what they say: shapes against each other, every number within its range.

`check_shapes` looks at the claims of a file before anything is built; `check_values` at the numbers. Both refuse with a
sentence; a sound file gives a set of which every explanation can be read.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewise.archives import Claim, require
from edgewise.graph.type_table import TypeTable
from edgewise.results.container import About, Arrays, from_jsonable

LEVELS = ("input", "layer")
ENTRIES = ("edges", "own", "errors")
MOST_LAYERS = 10_000
_HEAD = ("index", "target", "value", "edge_index", "graph_edges", "graph_nodes")
NUMBERS = ("n_id", "e_id")
"""Arrays that only a sampled batch has: the numbers of its nodes and columns in the whole graph."""
_KINDS = {"i": "whole numbers", "f": "floats"}


def check_array(claims: Mapping[str, Any], name: str, kind: str, shape: tuple[int | None, ...]) -> None:
    """Refuse an array that is missing, of another type, or of another shape; None stands for any size."""
    require(name in claims, f"it has no array `{name}`")
    dtype, got = claims[name].dtype, tuple(claims[name].shape)
    fits = len(got) == len(shape) and all(want is None or have == want for have, want in zip(got, shape, strict=True))
    wanted = [size if size is not None else "any" for size in shape]
    require(fits, f"`{name}` must have the shape {wanted}, got {list(got)}")
    sized = dtype.itemsize in (4, 8) if kind == "f" else dtype.itemsize == 8
    require(dtype.kind == kind and sized and dtype.isnative, f"`{name}` must hold {_KINDS[kind]}, got {dtype}")


# --- Shapes -------------------------------------------------------------------------------------------------------------


def check_shapes(claims: Mapping[str, Claim], about: About) -> None:
    """Refuse arrays of an explanation set that do not fit each other, by their claims alone."""
    require("index" in claims and len(claims["index"].shape) in (1, 2), "it has no array `index` of targets")
    targets, pairs = claims["index"].shape[0], claims["index"].shape[1:]
    check_array(claims, "index", "i", (targets, 2) if pairs else (targets,))
    for name, kind in (("target", "i"), ("value", "f")):
        check_array(claims, name, kind, (targets,))
    check_array(claims, "edge_index", "i", (2, None))
    check_array(claims, "graph_nodes", "i", (None,))
    graphs = claims["graph_nodes"].shape[0]
    check_array(claims, "graph_edges", "i", (graphs,))
    shared = graphs == 1 or (graphs == 0 and targets == 0)
    require(shared or graphs == targets, f"it has {targets} targets and {graphs} graphs: one for all, or one for each")
    for name in NUMBERS:
        if name in claims:
            check_array(claims, name, "i", (None,))
    if "columns" in claims:  # of a graph on disk: what the file kept of it
        check_array(claims, "columns", "i", (claims["edge_index"].shape[1],))
        require(graphs == 1, "it speaks of a graph on disk, and of more than one graph")
        said = about.get("store")
        named = isinstance(said, dict) and all(isinstance(said.get(name), str) for name in ("path", "digest"))
        require(named, "it speaks of a graph on disk, and does not say where that is")
    known = {
        *_HEAD,
        "columns",
        *NUMBERS,
        *(f"{name}_{part}" for name in ENTRIES for part in ("start", "place", "score")),
    }
    unknown = sorted(set(claims) - known)
    require(not unknown, f"it has arrays that we do not know: {', '.join(unknown[:3])}")
    for name in ENTRIES:
        check_entry_shapes(claims, name, targets)
    _check_about(about)


def check_entry_shapes(claims: Mapping[str, Claim], name: str, targets: int) -> None:
    """Refuse sparse rows whose three arrays do not fit; a set may have none of them."""
    if not any(f"{name}_{part}" in claims for part in ("start", "place", "score")):
        return
    check_array(claims, f"{name}_start", "i", (targets + 1,))
    check_array(claims, f"{name}_place", "i", (None,))
    check_array(claims, f"{name}_score", "f", claims[f"{name}_place"].shape)


def _check_about(about: About) -> None:
    """Refuse a text that lacks something, or says what cannot be."""
    missing = [name for name in ("method", "level", "num_layers", "own_missing", "settings") if name not in about]
    require(not missing, f"its text says nothing about {', '.join(missing)}")
    require(isinstance(about["method"], str) and about["method"], "its method has no name")
    require(about["level"] in LEVELS, f"its level must be input or layer, got {about['level']!r}")
    check_number("num_layers", about["num_layers"], most=MOST_LAYERS)
    require(isinstance(about["settings"], dict), "its settings are not a table")
    missing = from_jsonable(about["own_missing"])
    fits = isinstance(missing, tuple) and all(type(one) is int and 0 <= one < about["num_layers"] for one in missing)
    require(fits, f"`own_missing` must name layers below {about['num_layers']}, got {missing!r}")


def check_number(name: str, value: Any, most: int) -> None:
    """Refuse what is not a whole number from 0 to `most`."""
    require(type(value) is int and 0 <= value <= most, f"`{name}` must be a whole number up to {most}, got {value!r}")


# --- Values -------------------------------------------------------------------------------------------------------------


def check_values(arrays: Arrays, about: About) -> None:
    """Refuse numbers of an explanation set that are outside their ranges; the shapes have been checked."""
    nodes, edges = arrays["graph_nodes"], arrays["graph_edges"]
    check_range("graph_nodes", nodes, 0, 2**48)
    if "columns" in arrays:
        check_range("graph_edges", edges, 0, 2**48)
        check_range("columns", arrays["columns"], 0, int(edges[0]))
        require(bool((np.diff(arrays["columns"]) > 0).all()), "`columns` must ascend")
        check_range("edge_index", arrays["edge_index"], 0, int(nodes[0]))
    else:
        check_range("graph_edges", edges, 0, arrays["edge_index"].shape[1] + 1)
        require(edges.sum() == arrays["edge_index"].shape[1], "its graphs do not have as many edges as `edge_index`")
        check_range("edge_index", arrays["edge_index"], 0, np.repeat(nodes, edges))
    check_range("target", arrays["target"], 0, 2**48)
    for name, size in (("n_id", nodes.sum()), ("e_id", edges.sum())):
        if name in arrays:
            require(len(arrays[name]) == size, f"`{name}` must have {size} numbers, got {len(arrays[name])}")
            check_range(name, arrays[name], 0, 2**62)
    _check_index(arrays, about)
    layers = about["num_layers"] if about["level"] == "layer" else 1
    each = slice(None) if len(nodes) > 1 else np.zeros(len(arrays["index"]), dtype=np.int64)
    width = {"edges": edges, "errors": edges, "own": nodes}
    for name in ENTRIES:
        if f"{name}_start" in arrays:
            check_entries(arrays, name, layers * width[name][each] if len(nodes) else np.zeros(0, dtype=np.int64))
    if "edges_start" not in arrays:
        seed = about["settings"].get("seed")
        require(type(seed) is int, f"scores that are drawn on demand need a whole number as seed, got {seed!r}")
    for position, types in enumerate(type_tables(about)):
        _check_types(types, arrays, position)


def check_range(name: str, values: np.ndarray, low: int, high: Any) -> None:
    """Refuse numbers outside `low <= value < high`; `high` is one number or one for each."""
    require(bool(((values >= low) & (values < high)).all()), f"`{name}` has numbers outside their range")


def _check_index(arrays: Arrays, about: About) -> None:
    """Targets of one graph are its nodes, those of several are numbers of graphs; of typed graphs, nodes of one type."""
    shared = about["settings"].get("task", "node") != "graph"
    require(not shared or len(arrays["graph_nodes"]) <= 1, "its targets are nodes of one graph, but it has several")
    high = int(arrays["graph_nodes"][0]) if shared and len(arrays["graph_nodes"]) else 2**48
    if "types" in about:
        types = type_tables(about)[0]
        high = high if types.link is not None else len(types.node_range(types.explained))
    check_range("index", arrays["index"], 0, high)


def check_entries(arrays: Arrays, name: str, size: np.ndarray) -> None:
    """Refuse rows that do not begin where the last one ended, places beyond `size` `[targets]`, and a place named twice."""
    start, place = arrays[f"{name}_start"], arrays[f"{name}_place"]
    rising = len(start) > 0 and start[0] == 0 and start[-1] == len(place) and bool((np.diff(start) >= 0).all())
    require(rising, f"`{name}_start` must rise from 0 to the {len(place)} entries")
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    check_range(f"{name}_place", place, 0, size[row])
    order = np.lexsort([place, row])
    same = (np.diff(row[order]) == 0) & (np.diff(place[order]) == 0)
    require(not same.any(), f"`{name}_place` names an entry twice")


# --- Types of a typed graph ---------------------------------------------------------------------------------------------


def type_tables(about: About) -> tuple[TypeTable, ...]:
    """The types of a typed graph (`types`), or of the graph of each target (`graph_types`); none for other graphs."""
    listed = about.get("types") or about.get("graph_types") or []
    plain = from_jsonable(listed)
    if isinstance(plain, tuple):  # as the first files of typed graphs have it
        return (_table(plain, of_nodes=True),)
    require(isinstance(listed, list), "its table of types is not one")
    return tuple(_table(from_jsonable(one), of_nodes="types" in about) for one in listed)


def _table(plain: Any, *, of_nodes: bool) -> TypeTable:
    """A table of types, if it can be one."""
    require(isinstance(plain, tuple) and len(plain) in (3, 4), "its table of types is not one")
    explained, nodes, edges, *link = plain
    for rows in (nodes, edges):
        pairs = isinstance(rows, tuple) and all(isinstance(row, tuple) and len(row) == 2 for row in rows)
        require(pairs and all(type(row[1]) is int and row[1] >= 0 for row in rows), "its table of types is not one")
    names = [name for name, _ in nodes]
    require(
        all(isinstance(name, str) for name in names) and len(set(names)) == len(names), "its node types are not names"
    )
    known = names if of_nodes else [""]
    require(explained in known, f"its table of types does not know the explained type {explained!r}")
    kinds = [kind for kind, _ in edges]
    fits = all(isinstance(kind, tuple) and len(kind) == 3 and {kind[0], kind[2]} <= set(names) for kind in kinds)
    require(fits and len(set(kinds)) == len(kinds), "its edge types do not fit its node types")
    ends = [part for kind in link for part in (kind[::2] if isinstance(kind, tuple) and len(kind) == 3 else (None,))]
    require(set(ends) <= set(names) and (not link or ends[0] == explained), "its links do not fit its node types")
    return TypeTable(*plain)


def _check_types(types: TypeTable, arrays: Arrays, position: int) -> None:
    """Refuse types that do not cover their graph, and columns whose ends are not of the types that they should be."""
    require(position < len(arrays["graph_nodes"]), "it has more tables of types than graphs")
    begin = int(arrays["graph_edges"][:position].sum())
    columns = arrays.get("columns", np.arange(begin, begin + int(arrays["graph_edges"][position])))
    graph = arrays["edge_index"] if "columns" in arrays else arrays["edge_index"][:, columns]
    columns = columns - begin
    total = sum(count for _, count in types.nodes), sum(count for _, count in types.edges)
    have = int(arrays["graph_nodes"][position]), int(arrays["graph_edges"][position])
    require(total == have, f"its types have {total[0]} nodes and {total[1]} edges, its graph {have[0]} and {have[1]}")
    for kind, own in ((kind, types.edge_range(kind)) for kind in types.edge_types):
        inside = slice(*np.searchsorted(columns, [own.start, own.stop]))
        for ends, name in zip(graph, (kind[0], kind[2]), strict=True):
            numbers = types.node_range(name)
            check_range(f"edge_index of {kind}", ends[inside], numbers.start, numbers.stop)
