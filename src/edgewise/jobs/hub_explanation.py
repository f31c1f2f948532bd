"""The explanation of a target whose neighbourhood is beyond the memory, worked off in parts; `top` says what is kept."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.method_settings import read_settings
from edgewise.algorithms.registry import find_method
from edgewise.graph.edge_blocks import nodes_within
from edgewise.graph.neighbour_sample import LargeNeighbourhoodError
from edgewise.graph.source import size_of
from edgewise.jobs.posed_targets import NEIGHBOURHOOD_SHARE
from edgewise.question.known_model import rim_of
from edgewise.question.memory import LEAST_CEILING, amount, read_memory
from edgewise.question.piecewise_question import PiecewiseQuestion
from edgewise.question.source_question import SourceQuestion
from edgewise.results.builder import SetBuilder
from edgewise.results.explanation_set import ExplanationSet
from edgewise.score import SparseScores

_METHODS = ("gradient",)
_AT_ONCE = 2**18  # edges that are read together
_ENTRY_BYTES = 80  # of a score that is kept: its number, its place, twice while parts are joined


def explained_in_parts(asked: SourceQuestion, index: Tensor, target: Any, how: Mapping[str, Any]) -> ExplanationSet:
    """The explanation of one node `[1]`; `how` are the arguments of `explain_question`.

    Raises:
        LargeNeighbourhoodError: If the method, or the model, cannot be worked off in parts.
    """
    level, top, seed = how.get("level", "input"), how.get("top"), how.get("seed", 0)
    method = find_method(how.get("method", "gradient"), level)
    memory = read_memory(how.get("memory"))
    ceiling = max(memory, LEAST_CEILING) // 2
    question = PiecewiseQuestion.about(asked, index, target, memory) if method.name in _METHODS else None
    if question is None:
        raise _too_large(asked, index)
    asked.check_slopes()
    parts = SetBuilder(question, method, level, top)
    with question.loan.taken():
        gradient, kept = question.gradient, 0
        gradient.pull_back(question.target.slope(question.target.truth))
        for block in gradient.scores():
            kept += block.of_edges.numel()
            if top is None and kept * _ENTRY_BYTES > ceiling:
                raise LargeNeighbourhoodError(
                    f"The scores of all edges of this neighbourhood take more than {amount(ceiling)}. Use top=50 to keep the "
                    "strongest, or a larger memory=."
                )
            parts.add_sparse(_entries(block.column, block.of_edges, level, of_self=False), "lowered")
            if any(question.separable):
                parts.add_sparse(_entries(block.node, block.of_own, level, of_self=True), "lowered")
    settings = {**read_settings(method, {}), **method.notes}
    notes = {**question.notes, "seed": seed, "top": top, "way": parts.way, "stopped": None}
    return parts.assemble({**settings, **notes})


def _too_large(asked: SourceQuestion, index: Tensor) -> LargeNeighbourhoodError:
    """A refusal that names the smallest budget, where that can be found: of edges that are followed one way."""
    other = "or neighbors=[25, 10] to explain a sample of such neighbourhoods."
    if asked.types is not None or asked.trace.flow != "source_to_target":
        return LargeNeighbourhoodError(f"The neighbourhood is too large for memory=. Use a larger one, {other}")
    hops = asked.num_layers + bool(rim_of(asked.subject.first))
    inside, ends = nodes_within(asked.source, int(index), hops, _AT_ONCE)
    edges, seen = (int(asked.source.counts(inside[:end]).sum()) for end in (ends[-2], ends[asked.num_layers]))
    sizes = size_of(asked.source, len(inside), edges), seen * asked.message_bytes, edges * asked.recorded_bytes
    taken = NEIGHBOURHOOD_SHARE * max(sizes)
    return LargeNeighbourhoodError(
        f"The neighbourhood has {len(inside)} nodes and {edges} edges, too many for memory=. Use "
        f"memory={amount(taken, quoted=True)}, {other}"
    )


def _entries(item: Tensor, scores: Tensor, level: str, *, of_self: bool) -> SparseScores:
    """What is not zero of scores `[layers, items]`, which at the input level are added up."""
    scores = scores if level == "layer" else scores.sum(dim=0, keepdim=True)
    layer, place = scores.nonzero().unbind(1)
    return SparseScores(torch.zeros_like(layer), layer, item[place], scores[layer, place], of_self)
