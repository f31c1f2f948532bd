"""`--link`: the links to explain, as pairs on the command line or in a file, or those that the data bring along."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from edgewise.cli.options import CommonOptions
from edgewise.cli.read.graphs import Graphs
from edgewise.errors import FileError, InputError
from edgewise.files import is_file
from edgewise.question.pair_index import read_pairs


def read_links(asked: CommonOptions, graphs: Graphs, positions: Callable[[str, Graphs], list[int]]) -> Tensor:
    """The pairs `[targets, 2]` that `--link` names, in its order, each once; without it, the data's own `edge_label_index`.

    `positions` reads the ends as `--index` does: ids, numbers or names of nodes.
    """
    if graphs.task != "link":
        raise InputError(f"--link names pairs of nodes, which --task {graphs.task} does not explain. Use --task link.")
    if asked.index != "all":
        raise InputError(f"--index names nodes, got {asked.index!r} for --task link. Use --link 3:17, for example.")
    if not asked.link:
        return read_pairs(None, graphs.data.get("edge_label_index"), graphs.size)[0]
    found: list[tuple[int, int]] = []
    for part in (piece.strip() for text in asked.link for piece in _pair_texts(text)):
        ends = [_one_node(end.strip(), part, graphs, positions) for end in part.split(":")] if part else []
        if part and len(ends) != 2:
            raise InputError(f"--link must be two nodes with a colon between them, got {part!r}. Use --link 3:17.")
        found += [(ends[0], ends[1])] if part else []
    if not found:
        raise InputError("--link names no pair. Use --link 3:17, for example.")
    return torch.tensor(list(dict.fromkeys(found)))


def _pair_texts(text: str) -> list[str]:
    """`"3:17,4:5"` as its pairs; of a file, a pair from each line, with a comma, a colon or white space between the ends."""
    path = Path(text).expanduser()
    if path.suffix not in (".csv", ".txt"):
        return text.split(",")
    if not is_file(path):
        raise FileError(f"There is no file {path} with links.")
    lines = [
        re.split(r"[,;:\s]+", line.strip()) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    lines = [ends for ends in lines if not ends[0].startswith("#")]
    if lines and [end.lower() for end in lines[0]] in (["source", "target"], ["u", "v"], ["source", "receiver"]):
        lines = lines[1:]  # the heading of a table
    return [":".join(ends) for ends in lines]


def _one_node(end: str, part: str, graphs: Graphs, positions: Callable[[str, Graphs], list[int]]) -> int:
    """The one node that an end of a link names."""
    try:
        found = positions(end, replace(graphs, task="node")) if end and end != "all" else []
    except InputError as error:
        raise InputError(str(error).replace("--index", "--link")) from error
    if len(found) != 1:
        raise InputError(
            f"--link must name one node at each end, got {end!r} in {part!r}. Use --link 3:17, for example."
        )
    return found[0]
