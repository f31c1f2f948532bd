"""Occlusion: what the explained number loses when one message is missing (its weight 0, degrees and attention unchanged).

`occlusion` asks a `Score` and works for any model; `lowered_occlusion` carries differences through a lowered model instead of
running it. `Repeated` evaluates many weightings of the same targets in one forward pass; Shapley values and subgraph searches
use it too.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from edgewise.arrays import LayerWeight, occurrence
from edgewise.program.perturbation import Differences, MissingMessages
from edgewise.program.perturbation_output import drops
from edgewise.program.slot_drops import SlotDrops
from edgewise.question import PosedQuestion
from edgewise.question.memory import growing_blocks, walk_counts
from edgewise.score import CopyScores, RowScores, Score, SparseScores, has_own_terms, in_computation_graph


def one_per_target(candidates: Tensor, owner: Tensor) -> Iterator[Tensor]:
    """The candidates in rounds, at most one of each target per round: one forward pass serves all targets.

    >>> owner = torch.tensor([0, 0, 1, 0])                             # copies 0, 1, 3 are of target 0, copy 2 of target 1
    >>> [places.tolist() for places in one_per_target(torch.tensor([0, 1, 2, 3]), owner)]
    [[0, 2], [1], [3]]
    """
    order = occurrence(owner[candidates]).argsort(stable=True)
    counts = torch.bincount(occurrence(owner[candidates]))
    yield from candidates[order].split(counts.tolist())


def _drops(evaluate: Callable[[Tensor], Tensor], candidates: Tensor, owner: Tensor) -> Tensor:
    """`[M]`: value − value without, for every candidate, 0 elsewhere; `evaluate(places)` gives the drops `[targets]`."""
    drop = torch.zeros(len(owner), device=owner.device)
    for places in one_per_target(candidates, owner):
        change = evaluate(places)[owner[places]]
        drop = drop.to(change.dtype)
        drop[places] = change
    return drop


@torch.no_grad()
def occlusion(score: Score, level: str) -> CopyScores:
    """z(1) − z(ω_e = 0), for every edge, or for every layer and edge.

    >>> from edgewise.examples import path_score
    >>> score = path_score(gains=[2.0, 3.0])      # 0 ─2→ 1 ─3→ 2: edge 0 acts in layer 0, edge 1 in layer 1
    >>> score.edge_id                              # copies come in the order of their distance from the target
    tensor([1, 0])
    >>> occlusion(score, "layer").edge
    tensor([[0., 6.],
            [6., 0.]])
    """
    edge = edge_drops(score, level)
    if not has_own_terms(score):
        return CopyScores(edge)
    value = score(score.ones())
    everyone = torch.arange(len(score.self_owner), device=score.self_owner.device)
    own = [_drops(_without_self(score, value, row), everyone, score.self_owner) for row in layer_groups(score, level)]
    return CopyScores(edge, _stack(own, level))


def layer_groups(score: Score, level: str) -> list[list[int]]:
    """Layers whose weights are changed together: each by itself, or all of them."""
    layers = list(range(score.num_layers))
    return [[layer] for layer in layers] if level == "layer" else [layers]


def players(score: Score, level: str) -> Tensor:
    """`[groups, M]`: which edge copies can change their target at all."""
    inside = in_computation_graph(score) if score.local else torch.ones_like(score.ones(), dtype=torch.bool)
    return inside if level == "layer" else inside.any(dim=0, keepdim=True)


@torch.no_grad()
def edge_drops(
    score: Score, level: str, weight: float = 0.0, partner: Tensor | None = None, among: Tensor | None = None
) -> Tensor:
    """z(1) − z(ω_e = weight), `[M]` or `[L, M]`.

    Args:
        score: The explained numbers as a function of edge weights.
        level: `"input"` changes an edge in all layers at once, `"layer"` in one.
        weight: The weight that an edge gets instead of 1.
        partner: `[M]`, another copy whose weight changes along with each (the reverse of an undirected edge).
        among: `[M]`, bool: only these copies are asked about; the others have 0.
    """
    value, found = score(score.ones()), []
    for row, inside in zip(layer_groups(score, level), players(score, level), strict=True):
        inside = inside if among is None else inside & among
        first = torch.arange(len(inside), device=inside.device)
        if partner is not None:  # one pass for both directions
            first = torch.minimum(first, partner)
        candidates = first[inside].unique()
        drop = _drops(_with_weight(score, value, row, weight, partner), candidates, score.owner)
        found.append(torch.where(inside, drop[first], 0.0))
    return _stack(found, level)


def _stack(rows: list[Tensor], level: str) -> Tensor:
    """`[L, M]` at layer level, `[M]` at input level."""
    return torch.stack(rows) if level == "layer" else rows[0]


def _with_weight(
    score: Score, value: Tensor, row: list[int], weight: float, partner: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """A function from places of edge copies to `[targets]`: value − value with these copies at `weight` in some layers."""

    def evaluate(places: Tensor) -> Tensor:
        changed = score.ones()
        for layer in row:
            changed[layer, places] = weight
            if partner is not None:
                changed[layer, partner[places]] = weight
        return value - score(changed)

    return evaluate


def _without_self(score: Score, value: Tensor, row: list[int]) -> Callable[[Tensor], Tensor]:
    """The same for self copies: value − value without their own terms."""

    def evaluate(places: Tensor) -> Tensor:
        own = score.self_ones()
        for layer in row:
            own[layer, places] = 0
        return value - score(score.ones(), own)

    return evaluate


_BYTES_AN_ENTRY = 80  # of the loss of a target: position, slot and number, twice as much room, and the same by targets
_BYTES_A_PAIR = 256  # of a (slot, node) pair: its change, with what a call makes of it
_SLOT_TABLE = 2**21  # slots × nodes in a block: small enough to stay in the cache


def lowered_occlusion(
    question: PosedQuestion, level: str, memory: int
) -> Iterator[tuple[int, SparseScores | RowScores]]:
    """Occlusion for all targets of a lowered model: differences instead of forward passes, slot by slot or in blocks."""
    differences = _differences(question)
    of_self = (False, True) if any(question.separable) else (False,)
    loops = _loops(differences, level, memory)
    if loops is None:
        return _block_drops(question, differences, level, memory, of_self)
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


def _loops(differences: Differences, level: str, memory: int) -> SlotDrops | None:
    """The compiled loops, if they can do it and if what they find fits into memory before it is sorted by targets."""
    if not SlotDrops.suits(differences):
        return None
    calls = differences.program.num_calls
    seen = int(walk_counts(differences.lowering.in_edges, calls)[differences.targets].sum())  # edges, at most
    return (
        None
        if seen * _BYTES_AN_ENTRY * (calls if level == "layer" else 1) > memory
        else SlotDrops.of(differences, seen)
    )


@torch.no_grad()
def _slot_rows(
    question: PosedQuestion, differences: Differences, loops: SlotDrops, level: str, of_self: tuple[bool, ...]
) -> Iterator[tuple[int, RowScores]]:
    """Drops target by target."""
    graph = differences.lowering.in_edges
    of_nodes, of_columns = question.sizes(torch.zeros(1, dtype=torch.long))
    for kind in of_self:
        lift = question.nodes if kind else question.columns
        number = lift(torch.arange(graph.num_nodes if kind else len(graph.edge)))
        found = loops.run(differences.slots(level, of_self=kind), number, int((of_nodes if kind else of_columns)[0]))
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
    degree = differences.lowering.in_edges.start.diff().double() + 1
    bound = walk_counts(differences.out_edges, differences.program.num_calls - 1, degree)
    cost = bound[slots.item if slots.of_self else differences.receiver[slots.item]].cpu() * each
    total, begin = cost.cumsum(0), 0
    while begin < len(slots):
        spent = float(total[begin - 1]) if begin else 0.0
        fits = int(torch.searchsorted(total, spent + memory, right=True)) - begin
        end = begin + max(1, min(fits, size))
        yield MissingMessages(slots.item[begin:end], slots.call[begin:end], slots.of_self)
        begin = end


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
_PASS = 2**26  # bytes of a pass: large enough to keep the processor busy, small enough for any memory


class Repeated:
    """Many weightings of the same targets in one forward pass: the targets lie side by side `times` times.

    Each repetition is a turn, with weights of its own. `turn` and `place`, `[copies]` each, say to which turn a copy of the
    repeated score belongs and which copy of the single one it repeats. `times` is at most `at_most`, and so that a pass fits
    into memory.
    """

    def __init__(self, score: Score, at_most: int) -> None:
        self.base = score
        self.times = max(1, min(at_most, _PASS // max(score.pass_bytes, 1)))
        self.score = score if self.times == 1 else score.repeated(self.times)
        owner, targets = self.score.owner, score.num_targets
        self.turn, position = owner // targets, owner % targets
        width = int(score.num_edges.max()) if score.num_edges.numel() else 0
        known, order = (score.owner * width + score.edge_id).sort()
        self.place = order[torch.searchsorted(known, position * width + self.score.edge_id)]

    def weights(self, weight: Tensor) -> LayerWeight:
        """`[L, copies]`: ω of the repeated score, from `[turns, L, M]` of the single one; turns left over have ω = 1."""
        spare = self.times - len(weight)
        if spare:
            weight = torch.cat([weight, torch.ones_like(weight[:1]).expand(spare, -1, -1)])
        return weight[self.turn, :, self.place].t()

    def rows(self, found: Tensor, turns: int) -> Tensor:
        """`[turns, targets]`: the explained numbers of the repeated score, turn by turn."""
        return found.view(self.times, -1)[:turns]

    def single(self, found: LayerWeight, turns: int) -> Tensor:
        """`[turns, L, M]` of the single score, from `[L, copies]` of the repeated one (gradients, for example)."""
        back = found.new_empty(self.times, len(found), self.base.edge_id.numel())
        back[self.turn, :, self.place] = found.t()
        return back[:turns]
