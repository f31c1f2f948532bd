"""Blocks that grow: targets in blocks that fit a budget, each as large as the one before says that it may be."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.lowering import Lowering
from edgewise.question import NodeQuestion, PosedQuestion

DEFAULT_MEMORY = 512 * 2**20
_FIRST, _GROWTH = 128, 16
_PROBED = 64  # targets whose computation graphs are measured before any is run
_TABLE = 2**25  # entries of the table that numbers (target, node) pairs
_TABLE_ENTRY = 4  # bytes
_MARGIN = 1.25  # targets of the next block may share less than those of the last one did
_MOST_PIECES = 16


def budget_blocks(
    question: PosedQuestion, lowering: Lowering, memory: int, smallest: int | None = None
) -> Iterator[list[Tensor]]:
    """Positions whose bytes fit, by a bound of what each target needs and by how far the last block stayed below it.

    A block is a list of pieces that may be worked on at the same time: one, unless `smallest` says from how many bytes on two
    are worth it. Then the rate is not that of a first, small block but of some targets that are only looked at.
    """
    everyone, size = torch.arange(len(question.index)), lowering.in_edges.num_nodes
    bound = _bounds(question, lowering)  # [T], in edges
    table = _TABLE_ENTRY * size  # bytes a target
    most = max(_TABLE // size, 1)
    first = len(everyone) if question.device.type == "cuda" else max(1, min(_FIRST, _FIRST * memory // DEFAULT_MEMORY))
    rate, begin, last = float(lowering.copy_bytes), 0, first
    probed = smallest is not None and first >= _PROBED and float(bound.sum()) * rate > 2 * smallest
    if probed:
        rate, last = _probed_rate(question, lowering, bound), _PROBED
    while begin < len(everyone):
        cost = (bound[begin : begin + last * _GROWTH] * rate + table).cumsum(0)
        fits = max(int((cost <= memory).sum()), 1)
        count = min(fits, most, last * (_GROWTH if begin or probed else 1))
        block, share = everyone[begin : begin + count], bound[begin : begin + count]
        needed = float(share.sum()) * rate / _MARGIN
        yield _pieces(block, share, _number_of_pieces(needed, smallest) if probed and smallest else 1)
        used = lowering.last_block_bytes / max(float(share.sum()), 1.0)
        rate, begin, last = max(used * _MARGIN, 1.0), begin + count, count


def _probed_rate(question: PosedQuestion, lowering: Lowering, bound: Tensor) -> float:
    """About how many bytes a unit of the bound takes, by the computation graphs of some targets, evenly spread."""
    some = torch.linspace(0, len(bound) - 1, _PROBED).long().unique()
    lowering.engine(question.places(some))
    return max(lowering.last_block_bytes / max(float(bound[some].sum()), 1.0) * _MARGIN, 1.0)


def _number_of_pieces(needed: float, smallest: int) -> int:
    """Two where each is as large as the smallest that is worth it, and a power of two where they are four times as large.

    Every piece costs as many calls of torch as a whole block: on one core more of them would only cost time.

    >>> [_number_of_pieces(needed, 10) for needed in (19, 20, 159, 160, 10**9)]
    [1, 2, 2, 4, 16]
    """
    if needed < 2 * smallest:
        return 1
    most = int(needed / (4 * smallest))
    return min(max(2, 1 << max(most.bit_length() - 1, 0)), _MOST_PIECES)


def _pieces(block: Tensor, share: Tensor, number: int) -> list[Tensor]:
    """A block in at most so many parts of consecutive targets that take about the same.

    >>> _pieces(torch.arange(4), torch.tensor([3.0, 1.0, 1.0, 1.0]), 2)
    [tensor([0]), tensor([1, 2, 3])]
    """
    if number == 1:
        return [block]
    done = share.cumsum(0)
    place = ((done - share / 2) * (number / float(done[-1]))).long()
    return list(block.split(torch.bincount(place)[place.unique()].tolist()))


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


def fitting_blocks(cost: Tensor, memory: float, most: int) -> Iterator[tuple[int, int]]:
    """Split what costs so many bytes each, `[n]`, into blocks `begin:end` that fit together; one that does not stands alone.

    >>> list(fitting_blocks(torch.tensor([1.0, 2.0, 9.0, 1.0]), 3.0, most=10))
    [(0, 2), (2, 3), (3, 4)]
    """
    done, begin, spent = cost.double().cumsum(0), 0, 0.0
    while begin < len(cost):
        end = min(max(int(torch.searchsorted(done, spent + memory, right=True)), begin + 1), begin + most)
        yield begin, end
        begin, spent = end, float(done[end - 1])


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
