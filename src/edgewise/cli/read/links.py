"""`--link`: the links to explain, as pairs on the command line or in a file, or those that the data bring along.

--link 3:17,8:90                 pairs of nodes, named as in --index
--link pairs.csv                 a pair in each line
--link rates:3:17,8:90           of a typed graph with the relation first, once or before every pair
--link rates:pairs.csv           a pair in each line; or relation, source and target in each line, and --link pairs.csv
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from edgewise.cli.options import CommonOptions
from edgewise.cli.read.graphs import Graphs
from edgewise.errors import FileError, InputError
from edgewise.files import is_file
from edgewise.graph.type_table import EdgeType
from edgewise.inner_paths import read_bytes, reading
from edgewise.question.pair_index import read_pairs, read_typed_pairs

Positions = Callable[[str, Graphs], list[int]]
"""Reads one end as `--index` does: an id, a number or the name of a node."""
_HEADS = ("relation", "source", "target", "u", "v", "receiver")
_BETWEEN = "__"  # as in the names of tables: user__rates__movie


def read_links(asked: CommonOptions, graphs: Graphs, positions: Positions) -> tuple[Graphs, Tensor]:
    """The pairs `[targets, 2]` that `--link` names, in its order, each once; without it, the data's own `edge_label_index`.

    The graphs come back with the edge type of the pairs, if they are typed.
    """
    if graphs.task != "link":
        raise InputError(f"--link names pairs of nodes, which --task {graphs.task} does not explain. Use --task link.")
    if asked.index != "all":
        raise InputError(f"--index names nodes, got {asked.index!r} for --task link. Use --link 3:17, for example.")
    if not asked.link:
        return _given(graphs)
    found: dict[tuple[int, int], None] = {}
    kinds: dict[EdgeType, None] = {}
    for named, part in _pair_texts(asked.link, graphs):
        kind = None if graphs.types is None else _edge_type(named, part, graphs.data)
        found[_ends(part, kind, graphs, positions)] = None
        kinds |= {} if kind is None else {kind: None}
    if not found:
        raise InputError(f"--link names no pair. Use --link {_example(graphs)}, for example.")
    if len(kinds) > 1:
        listed = " and ".join(_BETWEEN.join(kind) for kind in kinds)
        raise InputError(f"--link must name pairs of one edge type at a time, got {listed}. Use a command for each.")
    return (replace(graphs, link=next(iter(kinds))) if kinds else graphs), torch.tensor(list(found))


def _ends(part: str, kind: EdgeType | None, graphs: Graphs, positions: Positions) -> tuple[int, int]:
    """The two nodes of `"3:17"`; of a typed graph, numbers within the types of the ends."""
    ends, example = [end.strip() for end in part.split(":")], _example(graphs)
    if len(ends) != 2:
        raise InputError(f"--link must be two nodes with a colon between them, got {part!r}. Use --link {example}.")
    tables = [graphs, graphs] if kind is None else [graphs.of_type(kind[0]), graphs.of_type(kind[2])]
    u, v = (_one_node(end, part, of, positions, example) for end, of in zip(ends, tables, strict=True))
    return u, v


def _given(graphs: Graphs) -> tuple[Graphs, Tensor]:
    """The pairs that the data bring along."""
    if graphs.types is None:
        return graphs, read_pairs(None, graphs.data.get("edge_label_index"), graphs.size)[0]
    kind, pairs, _ = read_typed_pairs(None, graphs.data)
    return replace(graphs, link=kind), pairs


def _example(graphs: Graphs) -> str:
    return f"{graphs.data.edge_types[0][1]}:3:17" if graphs.types is not None and graphs.data.edge_types else "3:17"


# --- Texts --------------------------------------------------------------------------------------------------------------


def _pair_texts(texts: list[str], graphs: Graphs) -> Iterator[tuple[str | None, str]]:
    """Every pair as the relation that is named for it (None if there is none yet), and `"3:17"`."""
    for text in texts:
        named = None
        for piece in (piece.strip() for piece in text.split(",")):
            relation, rest = _split(piece, graphs)
            named = relation or named
            for part in _lines(rest) if Path(rest).suffix in (".csv", ".txt") else [rest]:
                own, pair = _split(part, graphs)
                if pair:
                    yield own or named, pair


def _split(text: str, graphs: Graphs) -> tuple[str | None, str]:
    """`"rates:3:17"` as relation and pair, where the data has such a relation and two ends (or a file) follow."""
    first, _, rest = text.partition(":")
    kinds = graphs.data.edge_types if isinstance(graphs.data, HeteroData) else []
    known = {name for kind in kinds for name in (kind[1], _BETWEEN.join(kind))}
    if rest and first.strip() in known:
        return first.strip(), rest.strip()
    if kinds and text.count(":") > 1:
        raise InputError(
            f"--link names the relation {first.strip()!r}, got {text!r}. The relations are "
            f"{', '.join(dict.fromkeys(kind[1] for kind in kinds))}: use --link {_example(graphs)}, for example."
        )
    return None, text


def _lines(text: str) -> list[str]:
    """A pair from each line of a file, with a comma, a colon or white space between the ends."""
    path = Path(text).expanduser()
    if not is_file(path):
        raise FileError(f"There is no file {path} with links.")
    with reading(path, "pairs of nodes"):
        text = read_bytes(path).decode("utf-8-sig")
    lines = [re.split(r"[,;:\s]+", line.strip()) for line in text.splitlines() if line.strip()]
    lines = [ends for ends in lines if not ends[0].startswith("#")]
    if lines and all(end.lower() in _HEADS for end in lines[0]):
        lines = lines[1:]  # the heading of a table
    return [":".join(ends) for ends in lines]


def _edge_type(named: str | None, part: str, data: HeteroData) -> EdgeType:
    """The one edge type of that name; without a name, the only one of the data."""
    kinds = [kind for kind in data.edge_types if named is None or named in (kind[1], _BETWEEN.join(kind))]
    if len(kinds) == 1:
        found: EdgeType = kinds[0]
        return found
    every = kinds or data.edge_types
    if named is None:
        raise InputError(
            f"--link must name the relation of a pair in a typed graph, got {part!r}. Use --link {every[0][1]}:{part}; the "
            f"relations are {', '.join(dict.fromkeys(kind[1] for kind in every))}."
        )
    raise InputError(
        f"--link names the relation {named!r}, which {len(every)} edge types have. Use --link "
        f"{_BETWEEN.join(every[0])}:{part}, for example."
    )


def _one_node(end: str, part: str, graphs: Graphs, positions: Positions, example: str) -> int:
    """The one node that an end of a link names."""
    try:
        found = positions(end, replace(graphs, task="node")) if end and end != "all" else []
    except InputError as error:
        raise InputError(str(error).replace("--index", "--link")) from error
    if len(found) != 1:
        raise InputError(
            f"--link must name one node at each end, got {end!r} in {part!r}. Use --link {example}, for example."
        )
    return found[0]
