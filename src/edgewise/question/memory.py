"""How many targets at once: blocks that fit a memory budget."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import shown
from edgewise.errors import SettingError
from edgewise.graph.computation_graph import reach
from edgewise.program.lowering import Lowering
from edgewise.question import KEPT, GraphQuestion, NodeQuestion, PosedQuestion

DEFAULT_MEMORY = 512 * 2**20
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALIKE = 48
_CHUNK = 256
_FIRST, _GROWTH = 128, 16
_TABLE = 2**25  # entries of the table that numbers (target, node) pairs


def read_memory(memory: Any) -> int:
    """Bytes of `"2GB"`, `"500MB"`, or a number of bytes.

    >>> read_memory("2GB")
    2147483648
    """
    if memory is None:
        return DEFAULT_MEMORY
    given = str(memory) if type(memory) in (int, float, str) else ""
    text = re.fullmatch(r"\s*(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", given, re.IGNORECASE)
    if text is None or float(text[1]) <= 0:
        raise SettingError(f"memory is {shown(memory)}; needed is a budget such as '2GB' or '500MB'.")
    return int(float(text[1]) * _UNITS[text[2].upper()])


def read_batch_size(batch_size: Any) -> int | None:
    """A checked `batch_size`."""
    if batch_size is not None and (not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1):
        raise SettingError(f"batch_size is {shown(batch_size)}; needed is a whole number of at least 1, or None.")
    return batch_size


def blocks(question: PosedQuestion, memory: int, batch_size: int | None, *, alike: bool = False) -> Iterator[Tensor]:
    """Positions in `index`, block by block, in order; `alike`: graphs with about as many edges together."""
    if alike and batch_size is None and isinstance(question, GraphQuestion):
        order = question.sizes(torch.arange(len(question.index)))[1].cpu().argsort(stable=True)
        for part in order.split(_ALIKE):
            fits = max(int((_bytes(question, part).cumsum(0) <= memory).sum()), 1)
            yield from part.split(fits)
    elif batch_size is None and question.engine_lowering is not None:
        yield from _growing_blocks(question.engine_lowering, torch.arange(len(question.index)), memory)
    else:
        yield from estimated_blocks(question, memory, batch_size)


def _growing_blocks(lowering: Lowering, everyone: Tensor, memory: int) -> Iterator[Tensor]:
    """The first block is small; the next ones are as large as the last one says they may be."""
    first = max(1, min(_FIRST, _FIRST * memory // DEFAULT_MEMORY))
    most = max(_TABLE // lowering.in_edges.num_nodes, 1)
    for begin, end in growing_blocks(
        len(everyone), memory, lambda: lowering.last_block_bytes, first=first, growth=_GROWTH, most=most
    ):
        yield everyone[begin:end]


def growing_blocks(
    total: int,
    memory: int,
    bytes_of_last: Callable[[], float],
    *,
    first: int,
    growth: int | None = None,
    most: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Split 0 … total into blocks `begin:end`: a small first one, then as large as the last one says that they may be.

    Args:
        total: How many targets there are.
        memory: A budget in bytes.
        bytes_of_last: What the block that was just worked on took; called when the next one is asked for.
        first: The size of the first block.
        growth: A block is at most so many times as large as the one before it.
        most: No block is larger than this.

    >>> list(growing_blocks(10, 800, lambda: 200, first=1, growth=3))          # 200 bytes a block, whatever its size
    [(0, 1), (1, 4), (4, 10)]
    """
    begin, size = 0, first
    while begin < total:
        size = size if most is None else min(size, most)
        yield begin, min(begin + size, total)
        begin += size
        fits = int(memory * size / max(bytes_of_last(), 1))
        size = max(1, fits if growth is None else min(fits, size * growth))


def estimated_blocks(question: PosedQuestion, memory: int, batch_size: int | None) -> Iterator[Tensor]:
    """The same where the model itself is run, lowered or not."""
    everyone = torch.arange(len(question.index))
    if batch_size is not None:
        yield from everyone.split(batch_size)
        return
    begin = 0
    while begin < len(everyone):
        chunk = everyone[begin : begin + _CHUNK]
        fits = int((_bytes(question, chunk).cumsum(0) <= memory).sum())
        yield chunk[: max(fits, 1)]
        begin += max(fits, 1)


def _bytes(question: PosedQuestion, positions: Tensor) -> Tensor:
    """An estimate for each target."""
    if isinstance(question, NodeQuestion):
        subject = question.node_model
        near = reach(subject.in_edges, question.places(positions), question.num_layers + subject.rim)
        degree = subject.in_edges.start.diff()[near.node] * (near.hops < question.num_layers + subject.rim)
        nodes = torch.bincount(near.target, minlength=len(positions))
        edges = torch.bincount(near.target, weights=degree.double(), minlength=len(positions)).long()
    else:
        nodes, edges = question.run_sizes(positions)
    features = question.graphs[0].x[:1].numel()
    per_node = features + KEPT * question.trace.node_width
    return (nodes * per_node * question.trace.output.element_size() + edges * question.edge_bytes).cpu()
