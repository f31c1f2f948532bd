"""Occlusion for all targets of a lowered model: differences instead of forward passes, slot by slot or in blocks of slots."""

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.program.attention_drops import AttentionDrops
from edgewise.program.perturbation import Differences, MissingMessages
from edgewise.program.perturbation_output import drops
from edgewise.program.slot_drops import SlotDrops
from edgewise.question import PosedQuestion
from edgewise.question.block_growth import growing_blocks, walk_counts
from edgewise.score import RowScores, SparseScores

_BYTES_AN_ENTRY = 80  # of the loss of a target: position, slot and number, twice as much room, and the same by targets
_BYTES_A_PAIR = 256  # of a (slot, node) pair: its change, with what a call makes of it
_FEW_EDGES = 2**17  # of a graph for which a held question keeps what the loops prepared
_SLOT_TABLE = 2**21  # slots × nodes in a block: small enough to stay in the cache


def lowered_occlusion(
    question: PosedQuestion, level: str, memory: int
) -> Iterator[tuple[int, SparseScores | RowScores]]:
    """Occlusion for all targets of a lowered model: differences instead of forward passes, slot by slot or in blocks."""
    of_self = (False, True) if any(question.separable) else (False,)
    calls = question.num_layers if level == "layer" else 1
    kept = question.__dict__.get("_slot_drops")
    if kept is not None and kept.is_of(question.lowering, question.target) and _fits(kept.work, calls, memory):
        return _slot_rows(question, kept.differences, kept, level, of_self)
    differences = _differences(question)
    loops = _loops(differences, calls, memory)
    if loops is None:
        return _block_drops(question, differences, level, memory, of_self)
    if type(loops) is SlotDrops and len(differences.sender) < _FEW_EDGES:
        question.__dict__["_slot_drops"] = loops  # to prepare them takes a quarter of the time
    return _slot_rows(question, differences, loops, level, of_self)


def lowered_drops(
    question: PosedQuestion, level: str, memory: int, of_self: tuple[bool, ...]
) -> Iterator[tuple[int, SparseScores]]:
    """Drops of a lowered model, block by block: of edges (`of_self=(False,)`), of own terms (`(True,)`), or of both."""
    return _block_drops(question, _differences(question), level, memory, of_self)


@torch.no_grad()
def _differences(question: PosedQuestion) -> Differences:
    lowering = question.lowering
    assert lowering is not None
    return Differences(lowering, question.places(torch.arange(len(question.index))), question.target)


def _fits(work: int, calls: int, memory: int) -> bool:
    """Whether what compiled loops find fits into memory before it is sorted by targets; `work` counts edges, at most."""
    return work * _BYTES_AN_ENTRY * calls <= memory


def _loops(differences: Differences, calls: int, memory: int) -> SlotDrops | None:
    """The compiled loops, if they can do it and if what they find fits into memory before it is sorted by targets."""
    way = next((way for way in (SlotDrops, AttentionDrops) if way.suits(differences)), None)
    if way is None:
        return None
    walks = walk_counts(differences.lowering.in_edges, differences.program.num_calls)
    seen = int(walks[differences.targets].sum())  # edges, at most
    return way.of(differences, seen) if _fits(seen, calls, memory) else None


@torch.no_grad()
def _slot_rows(
    question: PosedQuestion, differences: Differences, loops: SlotDrops, level: str, of_self: tuple[bool, ...]
) -> Iterator[tuple[int, RowScores]]:
    """Drops target by target."""
    graph = differences.lowering.in_edges
    of_nodes, of_columns = question.sizes(torch.zeros(1, dtype=torch.long))
    columns = (question.columns(torch.arange(len(graph.edge))), int(of_columns[0]))
    nodes = (question.nodes(torch.arange(graph.num_nodes)), int(of_nodes[0])) if len(of_self) > 1 else None
    for kind, found in zip(of_self, loops.run(level, columns, nodes), strict=True):
        yield 0 if kind else len(question.index), RowScores(*found, of_self=kind)


@torch.no_grad()
def _block_drops(
    question: PosedQuestion, differences: Differences, level: str, memory: int, of_self: tuple[bool, ...]
) -> Iterator[tuple[int, SparseScores]]:
    """Drops block by block: a slot is one occlusion, an edge or a node's own term, in one layer or in all.

    Each block comes with how many targets' worth of work is done since the last one, for progress bars.
    """
    lowering = differences.lowering
    size = max(min(_SLOT_TABLE, memory // _BYTES_A_PAIR) // lowering.in_edges.num_nodes, 1)
    slots = [differences.slots(level, of_self=kind) for kind in of_self]
    total, done = max(sum(len(part) for part in slots), 1), 0
    for block in (block for part in slots for block in _slot_blocks(part, differences, size, memory)):
        found = drops(differences, block)
        layer = block.call[found.slot].clamp(min=0)
        lift = question.nodes if block.of_self else question.columns
        entries = SparseScores(found.position, layer, lift(block.item[found.slot]), found.score, of_self=block.of_self)
        before, done = done, done + len(block)
        yield done * len(question.index) // total - before * len(question.index) // total, entries


def _slot_blocks(slots: MissingMessages, differences: Differences, size: int, memory: int) -> Iterator[MissingMessages]:
    """Slots in blocks of a size, no more than fit into memory where layers are run again (attention); a GPU takes larger ones.

    What arrives at a node is spread over its out-walks, and at every node that it reaches all in-edges are looked at again.
    """
    layers, nodes = differences.program.layers, differences.lowering.in_edges.num_nodes
    if slots.item.is_cuda:
        yield from _blocks_of_a_card(slots, size, memory, nodes)
        return
    if not any(layer.numbers_on_edges for layer in layers):
        yield from _blocks_of_changes(slots, differences, size, memory)
        return
    each = max(layer.numbers_on_edges for layer in layers) * differences.value.element_size() + _EDGE_BYTES
    total = (_edges_again(slots, differences).cpu() + 1).cumsum(0) * each
    most, begin = size if size >= _MANY else _PAIRS, 0
    while begin < len(slots):
        spent = float(total[begin - 1]) if begin else 0.0
        fits = int(torch.searchsorted(total, spent + memory, right=True)) - begin
        end = begin + max(1, min(fits, most))
        yield MissingMessages(slots.item[begin:end], slots.call[begin:end], slots.of_self)
        begin = end


def _edges_again(slots: MissingMessages, differences: Differences) -> Tensor:
    """`[slots]`: how many in-edges are looked at again because of each slot, at most.

    The message itself is known, for most layers. In every later call the node that missed it and all that receive from changed
    ones look at all their in-edges again, as long as they are near enough to a target.
    """
    program, out = differences.program, differences.out_edges
    calls = program.num_calls
    degree = differences.lowering.in_edges.start.diff().double() + 1
    known = program.kinds is None and all(step.receiver is None for step in program.messages)
    known = known and all(layer.knows_messages for layer in program.layers if layer.numbers_on_edges)
    later = torch.zeros_like(degree) if known else degree
    from_node = torch.repeat_interleave(torch.arange(out.num_nodes, device=degree.device), out.start.diff())
    for call in range(calls - 1, 0, -1):
        here = torch.where(differences.distance < calls - call, degree + later, 0.0)
        later = here + torch.zeros_like(here).index_add_(0, from_node, here[out.sender])
    return later[slots.item if slots.of_self else differences.receiver[slots.item]]


def _blocks_of_changes(
    slots: MissingMessages, differences: Differences, size: int, memory: int
) -> Iterator[MissingMessages]:
    """Slots in blocks of a size; where that is small because the graph is large, as many as change few enough nodes."""
    if size >= _MANY or not differences.program.is_chain:
        yield from slots.split(size)
        return
    most, last = min(_PAIRS, memory // _BYTES_A_PAIR), lambda: differences.most_pairs
    for begin, end in growing_blocks(len(slots), most, last, first=_FIRST, growth=_GROWTH):
        differences.most_pairs = 0
        yield MissingMessages(slots.item[begin:end], slots.call[begin:end], slots.of_self)


def _blocks_of_a_card(slots: MissingMessages, size: int, memory: int, num_nodes: int) -> Iterator[MissingMessages]:
    """Slots in blocks as large as the budget allows on a GPU, by what the block before took at most.

    Half of the budget is for the table of slots and nodes, whose size is known; what changes in it shows.
    """
    device = slots.item.device
    before, taken = torch.cuda.memory_allocated(device), [1]
    most = max(memory // 2 // (4 * num_nodes), 1)
    blocks = growing_blocks(len(slots), memory, lambda: taken[0], first=max(size, _FIRST), growth=_GROWTH, most=most)
    for begin, end in blocks:
        torch.cuda.reset_peak_memory_stats(device)
        yield MissingMessages(slots.item[begin:end], slots.call[begin:end], slots.of_self)
        taken[0] = torch.cuda.max_memory_allocated(device) - before


_FIRST, _GROWTH = 256, 8  # slots of the first block, and how many times as large the next one may be
_MANY = 256  # slots that make a block worth its calls
_PAIRS = 2**17  # changed nodes of all slots of a block: their rows stay near the processor
_EDGE_BYTES = 100  # of an edge that is looked at again: where it comes from and goes to
