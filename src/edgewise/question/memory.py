"""How many targets at once: blocks that fit a memory budget."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import shown
from edgewise.errors import SettingError
from edgewise.graph.computation_graph import InEdges, reach
from edgewise.program.lowering import Lowering
from edgewise.question import KEPT, GraphQuestion, NodeQuestion, PosedQuestion
from edgewise.question.freed_memory import FreedMemory
from edgewise.question.graph_question import BYTES_AT_ONCE

DEFAULT_MEMORY = 512 * 2**20
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALIKE = 48
_CHUNK = 256
_FIRST, _GROWTH = 128, 16
_TABLE = 2**25  # entries of the table that numbers (target, node) pairs
_TABLE_ENTRY = 4  # bytes
_PASSES_OF_THE_MODEL = 5.5  # scatters with gradients, such as a maximum, keep several times what a sum does
_PASSES_OF_A_PROGRAM = 1.5  # of a whole graph, under any method
_RECORDED = 0.6  # a pass without gradients, while every tensor is kept, takes this share of one with them
_TINY = 2**25  # bytes, at most, for which no budget is reckoned
_MARGIN = 1.25  # targets of the next block may share less than those of the last one did
LEAST_CEILING = 128 * 2**20
"""The smallest budget that is a ceiling: below it the libraries and the graph itself count, and blocks are merely small."""


class SmallBudgetError(SettingError):
    """A budget that is too small for one target."""


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


def default_budget(device: torch.device) -> int:
    """Where none is given: enough to keep a processor busy, or a quarter of what is free on a card."""
    return int(torch.cuda.mem_get_info(device)[0]) // 4 if device.type == "cuda" else DEFAULT_MEMORY


def room(question: PosedQuestion, memory: Any, more: int = 0, what: str = "") -> int:
    """What a budget leaves for blocks: without what the question itself holds, and `more` that is needed for all targets.

    Refused if the largest target does not fit into a budget that was given; `what` says what needs so much, if it is not a
    target. A budget below `LEAST_CEILING` only says how small blocks should be.
    """
    given = default_budget(question.device) if memory is None else read_memory(memory)
    nodes, edges = _whole_size(question)
    held, most = held_bytes(question) + more, max(given, LEAST_CEILING)
    if held + (nodes + edges) * len(question.index) * question.edge_bytes < _TINY:
        return given
    if memory is None:
        return max(given - held, given // 2)
    needed = held + _largest(question, most - held)
    if needed > most:
        lowered = question.engine_lowering is not None
        alone = "one target alone" if lowered else "one pass over the graph that the targets see"
        raise SmallBudgetError(
            f"memory is {amount(given)}, but {what or alone} takes about {amount(needed)}, with the graph. "
            f"Use memory={amount(needed, quoted=True)}."
        )
    return given if given < LEAST_CEILING else given - held


def amount(number: float, *, quoted: bool = False) -> str:
    """Bytes for people, rounded up, as `memory=` reads them.

    >>> amount(130 * 2**20), amount(2.5 * 2**30, quoted=True)
    ('130MB', "'2560MB'")
    """
    unit = "MB" if number >= 2**20 else "KB"
    text = f"{-(-int(number) // _UNITS[unit[0]])}{unit}"
    return repr(text) if quoted else text


def held_bytes(question: PosedQuestion) -> int:
    """About what a question holds: the graph that is run, once for the model and once for the program, and activations."""
    found = question.joined_bytes if isinstance(question, GraphQuestion) else 0
    if question.in_one_graph:  # graphs of a graph task are the user's own
        tensors = [value for value in question.graphs[0].to_dict().values() if isinstance(value, Tensor)]
        found = 2 * sum(value.numel() * value.element_size() for value in tensors)
    lowering = question.engine_lowering
    known = () if lowering is None else lowering.known.values()
    return found + 2 * sum(value.numel() * value.element_size() for value in known)


def _is_whole(question: PosedQuestion) -> bool:
    """Whether every target takes a pass over the whole graph."""
    return isinstance(question, NodeQuestion) and question.lowering is None and not question.node_model.local


def _largest(question: PosedQuestion, left: int) -> int:
    """About what the largest target needs: looked at closely only where a bound does not fit into what is left."""
    everyone, lowering = torch.arange(len(question.index)), question.engine_lowering
    if _is_whole(question):
        nodes, edges = (torch.tensor([n]) for n in _whole_size(question))
        return int(_bytes_of(question, nodes, edges).max())
    if not isinstance(question, NodeQuestion):
        if not isinstance(question, GraphQuestion):
            return 0
        passes = _PASSES_OF_A_PROGRAM if question.is_lowered else _PASSES_OF_THE_MODEL
        return int(_bytes_of(question, *question.run_sizes(everyone), passes).max())
    steps = question.num_layers + (question.node_model.rim if lowering is None else 0)
    each = question.edge_bytes * _PASSES_OF_THE_MODEL if lowering is None else lowering.copy_bytes
    bound = walk_counts(question.node_model.in_edges, steps)[question.places(everyone)].cpu() * each
    large = (bound > left).nonzero().view(-1)
    recorded = 0 if lowering is not None else int(_RECORDED * _whole_size(question)[1] * question.edge_bytes)
    if len(large) == 0:
        return recorded
    large = large[bound[large].argsort(descending=True)][:_CHUNK]
    if lowering is None:
        return max(recorded, int(_bytes(question, large).max()))
    near = reach(lowering.in_edges, question.places(large), question.num_layers)
    degree = lowering.in_edges.start.diff()[near.node] * (near.hops < question.num_layers)
    return int(int(torch.bincount(near.target, weights=degree.double()).max()) * each)


def _whole_size(question: PosedQuestion) -> tuple[int, int]:
    """Nodes and edges of the graph that is run (of several, of the first)."""
    lowering = question.engine_lowering
    if lowering is not None and question.in_one_graph:  # a graph takes longer to count its nodes
        return lowering.in_edges.num_nodes, len(lowering.in_edges.edge)
    graph = question.graphs[0]
    return graph.num_nodes, graph.edge_index.size(1)


def blocks(
    question: PosedQuestion, memory: int, batch_size: int | None, *, alike: bool = False, by_graph: bool = False
) -> Iterator[Tensor]:
    """Positions in `index`, block by block, in order; `alike`: graphs with about as many edges together.

    With `by_graph` compiled loops take one graph after another, if they can: then all that the model was run on together.
    """
    if len(question.index) == 1:  # nothing comes behind it
        yield torch.zeros(1, dtype=torch.long)
        return
    freed = FreedMemory(memory)
    for positions in _blocks(question, memory, batch_size, alike=alike, by_graph=by_graph):
        yield positions
        freed.give_back()


def _blocks(
    question: PosedQuestion, memory: int, batch_size: int | None, *, alike: bool, by_graph: bool
) -> Iterator[Tensor]:
    loops = by_graph and batch_size is None and memory >= BYTES_AT_ONCE and isinstance(question, GraphQuestion)
    if loops and isinstance(question, GraphQuestion) and question.is_chain:
        yield from question.parts
    elif alike and batch_size is None and isinstance(question, GraphQuestion):
        order = question.sizes(torch.arange(len(question.index)))[1].cpu().argsort(stable=True)
        for part in order.split(_ALIKE):
            fits = max(int((_bytes(question, part).cumsum(0) <= memory).sum()), 1)
            yield from part.split(fits)
    elif batch_size is None and question.engine_lowering is not None:
        yield from _growing_blocks(question, question.engine_lowering, memory)
    else:
        yield from _estimated_blocks(question, memory, batch_size)


def _growing_blocks(question: PosedQuestion, lowering: Lowering, memory: int) -> Iterator[Tensor]:
    """Blocks whose bytes fit, by a bound of what each target needs and by how far the last block stayed below it."""
    everyone, size = torch.arange(len(question.index)), lowering.in_edges.num_nodes
    bound = _bounds(question, lowering)  # [T], in edges
    table = _TABLE_ENTRY * size  # bytes a target
    most = max(_TABLE // size, 1)
    first = len(everyone) if question.device.type == "cuda" else max(1, min(_FIRST, _FIRST * memory // DEFAULT_MEMORY))
    rate, begin, last = float(lowering.copy_bytes), 0, first
    while begin < len(everyone):
        cost = (bound[begin : begin + last * _GROWTH] * rate + table).cumsum(0)
        fits = max(int((cost <= memory).sum()), 1)
        count = min(fits, most, last * (_GROWTH if begin else 1))
        yield everyone[begin : begin + count]
        used = lowering.last_block_bytes / max(float(bound[begin : begin + count].sum()), 1.0)
        rate, begin, last = max(used * _MARGIN, 1.0), begin + count, count


def _bounds(question: PosedQuestion, lowering: Lowering) -> Tensor:
    """`[T]`: no target sees more edges than it has walks of at most L steps that lead to it."""
    if not isinstance(question, NodeQuestion):
        return torch.ones(len(question.index), dtype=torch.double)
    return walk_counts(lowering.in_edges, lowering.program.num_calls)[
        question.places(torch.arange(len(question.index)))
    ].cpu()


def walk_counts(in_edges: InEdges, steps: int, start: Tensor | None = None) -> Tensor:
    """`[N]`: how many walks of at most so many steps lead to each node, and no more than all edges for each number of steps.

    With `start` `[N]` every walk counts as often as the node says that it begins in.

    >>> walk_counts(InEdges.of(torch.tensor([[0, 1, 0], [1, 2, 2]]), 3), 2)          # 0 → 1 → 2 and 0 → 2
    tensor([1., 2., 4.], dtype=torch.float64)
    """
    nodes, edges = in_edges.num_nodes, len(in_edges.edge)
    receiver = torch.repeat_interleave(torch.arange(nodes, device=in_edges.edge.device), in_edges.start.diff())
    count = torch.ones(nodes, dtype=torch.double, device=receiver.device) if start is None else start
    total = count
    for _ in range(steps):
        count = torch.zeros_like(count).index_add_(0, receiver, count[in_edges.sender]).clamp(max=edges + nodes)
        total = total + count
    return total


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
    freed = FreedMemory(memory)
    for positions in _estimated_blocks(question, memory, batch_size):
        yield positions
        freed.give_back()


def _estimated_blocks(question: PosedQuestion, memory: int, batch_size: int | None) -> Iterator[Tensor]:
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
    if _is_whole(question):
        nodes, edges = (torch.full((len(positions),), size) for size in _whole_size(question))
    elif isinstance(question, NodeQuestion):
        subject = question.node_model
        near = reach(subject.in_edges, question.places(positions), question.num_layers + subject.rim)
        degree = subject.in_edges.start.diff()[near.node] * (near.hops < question.num_layers + subject.rim)
        nodes = torch.bincount(near.target, minlength=len(positions))
        edges = torch.bincount(near.target, weights=degree.double(), minlength=len(positions)).long()
    else:
        nodes, edges = question.run_sizes(positions)
    return _bytes_of(question, nodes, edges)


def _bytes_of(question: PosedQuestion, nodes: Tensor, edges: Tensor, passes: float = _PASSES_OF_THE_MODEL) -> Tensor:
    """An estimate for graphs of so many nodes and edges, on which the model itself runs."""
    features = question.graphs[0].x[:1].numel()
    per_node = features + KEPT * question.trace.node_width
    size = question.trace.output.element_size()
    return (nodes * per_node * size + edges * question.edge_bytes * passes).cpu()
