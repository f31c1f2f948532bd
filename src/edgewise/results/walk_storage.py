"""Files of walks: the walk sets of many targets in one `.npz` that proves itself, lossless, whole or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgewise import __version__
from edgewise.archives import Claim, require
from edgewise.errors import EdgewiseError, FileError
from edgewise.files import write_whole
from edgewise.graph.type_table import TypeTable
from edgewise.results.container import (
    VERSION,
    About,
    Arrays,
    NpzFile,
    as_jsonable,
    from_jsonable,
    version_of,
    write_npz,
)
from edgewise.results.explanation import Settings
from edgewise.results.soundness import check_array, check_range
from edgewise.results.walk_set import Walk, WalkSet

WALK_FORMAT = "edgewise-walks-1"
_NUMBERS = {"target": "i", "value": "f", "exact": "i", "upper_bound": "f", "expansions": "i"}
"""One for each target, and whether they are whole."""


def save_walks(found: Sequence[WalkSet], path: Path, job: str | None = None) -> None:
    """Write the walk sets of some targets to a `.npz`; `job` is the key of the job that a shard belongs to."""
    walks = [walk for one in found for walk in one]
    shared = len({id(one.edge_index) for one in found}) == 1
    graphs = [(one.edge_index, one.num_nodes) for one in (found[:1] if shared else found)]
    arrays: Arrays = {
        "index": np.array([one.number for one in found], dtype=np.int64),
        "start": np.cumsum([0, *map(len, found)], dtype=np.int64),
        "score": np.array([walk.score for walk in walks], dtype=np.float64),
        "nodes": _table([one.numbers_of(walk) for one in found for walk in one]),
        "edge_index": torch.cat([edges.cpu() for edges, _ in graphs], dim=1).contiguous().numpy(),
        "graph_edges": np.array([edges.size(1) for edges, _ in graphs], dtype=np.int64),
        "graph_nodes": np.array([nodes for _, nodes in graphs], dtype=np.int64),
    }
    if walks and walks[0].neurons is not None:
        arrays["neurons"] = _table([walk.neurons or () for walk in walks])
    for name, kind in _NUMBERS.items():
        values = [getattr(one, name) for one in found]
        arrays[name] = np.array(values, dtype=np.int64 if kind == "i" else np.float64)
    about = {
        "format": WALK_FORMAT,
        "version": VERSION,
        "edgewise": __version__,
        "settings": [as_jsonable(one.settings) for one in found],
    }
    about |= {} if job is None else {"job": job}
    if found and found[0].types is not None:
        about["types"] = [as_jsonable(one.types.plain()) for one in (found[:1] if shared else found) if one.types]
    write_whole(path, lambda file: write_npz(file, arrays, about))


def _table(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """`[walks, steps + 1]`."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), -1 if rows else 0)


def load_walks(path: Path) -> tuple[list[WalkSet], str | None]:
    """The walk sets of a file, and the key of its job; a file that does not prove itself is refused."""
    try:
        file = NpzFile(path)
        version_of(file.about)
        require(file.about.get("format") == WALK_FORMAT, "it is not a file of walks")
        _check_shapes(file.shapes, file.about)
        arrays = file.read()
        _check_values(arrays)
        return _assemble(arrays, file.about), file.about.get("job")
    except EdgewiseError as error:
        raise FileError(f"{path.name} cannot be read as walks: {error}.") from error
    except Exception as error:  # a damaged file can make any part of a reader fail, each in its own way
        raise FileError(f"{path.name} cannot be read as walks ({error}). It may be truncated.") from error


def _check_shapes(claims: Mapping[str, Claim], about: About) -> None:
    require("index" in claims and len(claims["index"].shape) in (1, 2), "it has no array `index` of targets")
    targets = claims["index"].shape[0]
    check_array(claims, "index", "i", (targets, 2)[: len(claims["index"].shape)])
    check_array(claims, "start", "i", (targets + 1,))
    for name, kind in _NUMBERS.items():
        check_array(claims, name, kind, (targets,))
    check_array(claims, "score", "f", (None,))
    check_array(claims, "nodes", "i", (claims["score"].shape[0], None))
    if "neurons" in claims:
        check_array(claims, "neurons", "i", (claims["score"].shape[0], None))
    check_array(claims, "edge_index", "i", (2, None))
    check_array(claims, "graph_edges", "i", (None,))
    check_array(claims, "graph_nodes", "i", claims["graph_edges"].shape)
    require(claims["graph_edges"].shape[0] in (1, targets), "it must have one graph for all targets, or one for each")
    settings = about.get("settings")
    fits = isinstance(settings, list) and len(settings) == targets and all(isinstance(one, dict) for one in settings)
    require(fits, "it must have settings for every target")
    types = about.get("types", [])
    require(
        isinstance(types, list) and len(types) in (0, claims["graph_edges"].shape[0]), "its types are not its graphs'"
    )


def _check_values(arrays: Arrays) -> None:
    start, edges, nodes = arrays["start"], arrays["graph_edges"], arrays["graph_nodes"]
    rising = start[0] == 0 and start[-1] == len(arrays["score"]) and (np.diff(start) >= 0).all()
    require(rising, "`start` must rise from 0 to the number of walks")
    check_range("graph_edges", edges, 0, arrays["edge_index"].shape[1] + 1)
    require(edges.sum() == arrays["edge_index"].shape[1], "its graphs do not have as many edges as `edge_index`")
    check_range("edge_index", arrays["edge_index"], 0, np.repeat(nodes, edges))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    check_range("nodes", arrays["nodes"], 0, nodes[row if len(nodes) > 1 else row * 0][:, None])
    check_range("exact", arrays["exact"], 0, 2)
    check_range("target", arrays["target"], 0, 2**48)


def _assemble(arrays: Arrays, about: About) -> list[WalkSet]:
    edges = torch.from_numpy(np.require(arrays["edge_index"], requirements=["C", "W"])).split(
        arrays["graph_edges"].tolist(), dim=1
    )
    nodes, walks = arrays["graph_nodes"].tolist(), _walks(arrays)
    types = [TypeTable(*from_jsonable(one)) for one in about.get("types", ())]
    fits = [sum(count for _, count in one.nodes) for one in types] == nodes[: len(types)]
    require(fits, "its types do not have as many nodes as its graphs")
    found = []
    for place, (begin, end) in enumerate(zip(arrays["start"][:-1].tolist(), arrays["start"][1:].tolist(), strict=True)):
        index: Any = arrays["index"][place].tolist()
        graph = place if len(nodes) > 1 else 0
        of = types[graph] if types else None
        if of is not None:
            index = of.asked(tuple(index) if of.link else index) if of.explained else index
            typed = [tuple(map(of.node, walk.nodes)) for walk in walks[begin:end]]
            walks[begin:end] = [replace(walk, nodes=row) for walk, row in zip(walks[begin:end], typed, strict=True)]
        found.append(
            WalkSet(
                walks=tuple(walks[begin:end]),
                exact=bool(arrays["exact"][place]),
                upper_bound=float(arrays["upper_bound"][place]),
                index=tuple(index) if isinstance(index, list) else index,
                target=int(arrays["target"][place]),
                value=float(arrays["value"][place]),
                settings=Settings(from_jsonable(about["settings"][place])),
                edge_index=edges[graph],
                num_nodes=nodes[graph],
                expansions=int(arrays["expansions"][place]),
                types=of,
            )
        )
    return found


def _walks(arrays: Arrays) -> list[Walk]:
    neurons: list[Any] = [None] * len(arrays["score"])
    if "neurons" in arrays:
        neurons = [tuple(row) for row in arrays["neurons"].tolist()]
    rows = zip(arrays["nodes"].tolist(), arrays["score"].tolist(), neurons, strict=True)
    return [Walk(tuple(nodes), score, own) for nodes, score, own in rows]
