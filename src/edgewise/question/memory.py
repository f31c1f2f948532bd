"""How many targets at once: blocks that fit a memory budget."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import shown
from edgewise.errors import SettingError
from edgewise.graph.computation_graph import reach
from edgewise.question import KEPT, GraphQuestion, NodeQuestion, PosedQuestion
from edgewise.question.block_growth import DEFAULT_MEMORY, budget_blocks, walk_counts
from edgewise.question.freed_memory import FreedMemory, give_back_now
from edgewise.question.graph_question import BYTES_AT_ONCE

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALIKE = 48
_CHUNK = 256
_PASSES_OF_THE_MODEL = 5.5  # scatters with gradients, such as a maximum, keep several times what a sum does
_PASSES_OF_A_PROGRAM = 1.5  # of a whole graph, under any method
_RECORDED = 0.6  # a pass without gradients, while every tensor is kept, takes this share of one with them
_LOADED = 24 * 2**20  # of what a first call loads (some 80 MB of code), this much is not taken for blocks
_TINY = 2**25  # bytes, at most, for which no budget is reckoned
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


def room(question: PosedQuestion, memory: Any, more: int = 0, what: str = "", *, passes: float = 0) -> int:
    """What a budget leaves for blocks: without what the question itself holds, and `more` that is needed for all targets.

    Refused if the largest target does not fit into a budget that was given; `what` says what needs so much, if it is not a
    target. Before the blocks, `passes` times the features of the whole graph are needed. A budget below
    `LEAST_CEILING` only says how small blocks should be.
    """
    given = default_budget(question.device) if memory is None else read_memory(memory)
    nodes, edges = _whole_size(question)
    held, most = held_bytes(question) + more, max(given, LEAST_CEILING)
    if held + (nodes + edges) * len(question.index) * question.edge_bytes < _TINY:
        return given
    if memory is None:
        return max(given - held, given // 2)
    give_back_now()
    first = int(passes * question.graphs[0].x.nbytes) if passes else 0
    needed = held + max(_largest(question, most - held), first)
    if needed > most:
        lowered = question.engine_lowering is not None
        alone = "one target alone" if lowered else "one pass over the graph that the targets see"
        raise SmallBudgetError(
            f"memory is {amount(given)}, but {what or alone} takes about {amount(needed)}, with the graph. "
            f"Use memory={amount(needed, quoted=True)}."
        )
    left = given - held
    return given if given < LEAST_CEILING else max(left - _LOADED, left // 2)


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


def is_whole(question: PosedQuestion) -> bool:
    """Whether every target takes a pass over the whole graph."""
    if isinstance(question, NodeQuestion) and question.lowering is None:
        question.copies(torch.zeros(1, dtype=torch.long))  # finds out whether the model is local
    return isinstance(question, NodeQuestion) and question.lowering is None and not question.node_model.local


def _largest(question: PosedQuestion, left: int) -> int:
    """About what the largest target needs: looked at closely only where a bound does not fit into what is left."""
    everyone, lowering = torch.arange(len(question.index)), question.engine_lowering
    if is_whole(question):
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
    for (positions,) in pieces(question, memory, batch_size, alike=alike, by_graph=by_graph):
        yield positions


def pieces(
    question: PosedQuestion,
    memory: int,
    batch_size: int | None,
    *,
    alike: bool = False,
    by_graph: bool = False,
    smallest: int | None = None,
) -> Iterator[list[Tensor]]:
    """The same in pieces of a block that may be worked on at the same time, where that is worth it (`budget_blocks`)."""
    if len(question.index) == 1:  # nothing comes behind it
        yield [torch.zeros(1, dtype=torch.long)]
        return
    freed = FreedMemory(memory)
    smallest = smallest if _can_share(question) else None
    for parts in _blocks(question, memory, batch_size, alike=alike, by_graph=by_graph, smallest=smallest):
        yield parts
        freed.give_back()


def _can_share(question: PosedQuestion) -> bool:
    """Whether blocks of a question may run at the same time: programs on the processor, of a model that is ours."""
    lowering = question.lowering
    if lowering is None or question.device.type != "cpu" or not isinstance(question, NodeQuestion):
        return False
    return question.loan.is_shared or not lowering.uses_model


def _blocks(
    question: PosedQuestion,
    memory: int,
    batch_size: int | None,
    *,
    alike: bool,
    by_graph: bool,
    smallest: int | None,
) -> Iterator[list[Tensor]]:
    loops = by_graph and batch_size is None and memory >= BYTES_AT_ONCE and isinstance(question, GraphQuestion)
    if loops and isinstance(question, GraphQuestion) and question.is_chain:
        yield from ([part] for part in question.parts)
    elif alike and batch_size is None and isinstance(question, GraphQuestion):
        order = question.sizes(torch.arange(len(question.index)))[1].cpu().argsort(stable=True)
        for part in order.split(_ALIKE):
            fits = max(int((_bytes(question, part).cumsum(0) <= memory).sum()), 1)
            yield from ([some] for some in part.split(fits))
    elif batch_size is None and question.engine_lowering is not None:
        yield from budget_blocks(question, question.engine_lowering, memory, smallest)
    else:
        yield from ([part] for part in _estimated_blocks(question, memory, batch_size))


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
    if is_whole(question):
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


def target_bytes(question: PosedQuestion, positions: Tensor) -> Tensor:
    """About what a pass of the model takes for each target."""
    return _bytes(question, positions)


def _bytes_of(question: PosedQuestion, nodes: Tensor, edges: Tensor, passes: float = _PASSES_OF_THE_MODEL) -> Tensor:
    """An estimate for graphs of so many nodes and edges, on which the model itself runs."""
    features = question.graphs[0].x[:1].numel()
    per_node = features + KEPT * question.trace.node_width
    size = question.trace.output.element_size()
    return (nodes * per_node * size + edges * question.edge_bytes * passes).cpu()
