"""What the model says with the explanation alone, and without it: by weighting messages or by removing edges.

Weighting a message with 0 (masking) and dropping its column (removing) are two questions with two answers: with a removed
edge, degrees and attention change too. `intervene` asks either, for all targets and several choices of edges; `Removal`, at
the end, runs the model on graphs from which edges are really removed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.arguments import one_of
from edgewise.arrays import asked_index, plain_index
from edgewise.errors import InputError, ModelError
from edgewise.graph.copies import Copies
from edgewise.metrics.edge_choice import Choice, Chosen, choose
from edgewise.question import NodeQuestion, PosedQuestion, pose
from edgewise.question.equality import close, random_weight, warn_not_local
from edgewise.question.memory import blocks, estimated_blocks, read_batch_size, read_memory
from edgewise.question.target import Target
from edgewise.results.explanation import refuse_other_layers
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.metric_result import Conditions
from edgewise.results.score_rows import scores_at
from edgewise.score import Score

WAYS = ("masking", "removing")
_NEAR = 1e-3  # the model that was explained gives the explained number, up to rounding on another machine


@dataclass(frozen=True)
class Options:
    """How to run the model: the keyword arguments that all metrics with a model share."""

    how: str = "masking"
    forward: Callable[..., Tensor] | None = None
    device: Any = None
    memory: Any = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        one_of("`how`", self.how, WAYS)


@dataclass(frozen=True)
class Outcome:
    """The model's output `[targets, width]` under one choice of edges: with all edges, some, and the others."""

    target: Target
    full: Tensor
    """On the whole graph."""
    only: Tensor
    """With the explanation alone."""
    without: Tensor
    """With everything else."""
    size: Tensor
    """`[targets]`: how many edges are in the explanation."""
    possible: Tensor
    """`[targets]`: how many can matter."""
    undefined: Conditions


def ask(found: ExplanationSet, model: nn.Module, data: Any, options: Options) -> PosedQuestion:
    """The question that an explanation answered, put to the model again."""
    known = found.settings
    question = pose(
        model,
        data,
        asked_index(found.index) if found.types is None else found.types.asked(plain_index(found.index)),
        target=found.target,
        task=known.get("task", "node"),
        mode=known.get("mode"),
        of=known.get("of", "logit"),
        forward=options.forward,
        device=options.device,
        without_itself=known.get("without_itself", False),
    )
    _check_graphs(found, question)
    if found.level == "layer":
        refuse_other_layers(found.num_layers, question.num_layers, known)
    value = question.target.value(question.target.truth).double().cpu()
    other = (value - found.value.double()).abs() > _NEAR * value.abs().clamp(min=1)
    if bool(other.any()):
        first = int(other.nonzero()[0])
        raise InputError(
            f"The model gives {float(value[first]):.6g} for {plain_index(found.index)[first]}, but the explanation says "
            f"{float(found.value[first]):.6g}: it belongs to another model or other data. Explain again."
        )
    return question


def _check_graphs(found: ExplanationSet, question: PosedQuestion) -> None:
    """Refuse data whose edges are not those of the explanations."""
    for position in range(len(found.graphs)):
        mine, theirs = found.graph(position)[0], question.source_edge_index(position)
        if mine.shape != theirs.shape or not torch.equal(mine.cpu(), theirs.cpu()):
            raise InputError(
                f"The explanation of {plain_index(found.index)[position]} belongs to another graph: it has {mine.size(1)} "
                f"edges, data has {theirs.size(1)}, or they differ. Use the data that was explained."
            )


@torch.no_grad()
def intervene(
    found: ExplanationSet, model: nn.Module, data: Any, choices: Sequence[Choice | None], options: Options
) -> list[Outcome]:
    """The outputs for all targets and all choices: two forward passes of a block of targets for each choice."""
    if options.how == "removing" and found.level == "layer":
        raise InputError(
            "how='removing' takes an edge out of all layers, so it cannot follow a layerwise explanation. Use how='masking', "
            "or explain with level='input'."
        )
    question = ask(found, model, data, options)
    memory, batch_size = read_memory(options.memory), read_batch_size(options.batch_size)
    masking = options.how == "masking"
    outputs: list[list[tuple[Chosen, Tensor, Tensor]]] = [[] for _ in choices]
    for positions in (blocks if masking else estimated_blocks)(question, memory, batch_size):
        part = found[positions]
        both = (_Masking if masking else _Removing)(question, positions)
        for place, chosen in enumerate(choose(part, choices)):
            outputs[place].append((chosen, *both.outputs(chosen.mask)))
    return [_joined(question.target, parts) for parts in outputs]


def _joined(target: Target, parts: list[tuple[Chosen, Tensor, Tensor]]) -> Outcome:
    """The outcome for all targets, from (choice, output with it alone, output without it) of blocks of targets."""
    chosen, only, without = zip(*parts, strict=True)
    texts = dict.fromkeys(text for part in chosen for _, text in part.undefined)
    undefined = [(torch.cat([_condition(part, text) for part in chosen]), text) for text in texts]
    size, possible = (torch.cat([getattr(part, name) for part in chosen]) for name in ("size", "possible"))
    undefined.insert(0, (possible == 0, "no edge can matter"))
    alone, rest = torch.cat(only), torch.cat(without)
    broken = ~(torch.isfinite(alone) & torch.isfinite(rest)).all(dim=1).cpu()
    undefined.append((broken, "the model gives NaN or infinity without some of the edges"))
    return Outcome(target, target.truth, alone, rest, size, possible, undefined)


def _condition(chosen: Chosen, text: str) -> Tensor:
    """`[targets]`: where a choice is undefined for that reason; nowhere if it does not have the reason."""
    never = torch.zeros(len(chosen.size), dtype=torch.bool)
    return next((condition for condition, known in chosen.undefined if known == text), never)


class _Masking:
    """Runs of some targets with ω the mask, and 1 minus the mask; normalisation, attention and self edges stay."""

    def __init__(self, question: PosedQuestion, positions: Tensor) -> None:
        self._score = Score.of_block(question, positions)

    def outputs(self, mask: ExplanationSet) -> tuple[Tensor, Tensor]:
        """`[targets, width]` each: with the mask alone, and without it."""
        score = self._score
        owner, column = score.owner.cpu(), score.edge_id.cpu()
        layers = range(score.num_layers) if mask.level == "layer" else [0]
        rows = [scores_at(mask, owner, torch.full_like(owner, layer), column) for layer in layers]
        ones = score.ones()
        weight = torch.stack(rows).to(ones).expand_as(ones)
        return score.output(weight), score.output(1 - weight)


class _Removing:
    """Runs of some targets with columns dropped from `edge_index`."""

    def __init__(self, question: PosedQuestion, positions: Tensor) -> None:
        self._removal = Removal(question, positions)

    def outputs(self, mask: ExplanationSet) -> tuple[Tensor, Tensor]:
        """`[targets, width]` each: with the mask alone, and without it; the mask must be 0 or 1."""
        owner = self._removal.owner
        weight = scores_at(mask, owner, torch.zeros_like(owner), self._removal.edge_id)
        if bool(((weight != 0) & (weight != 1)).any()):
            raise InputError(
                "The scores are a soft mask, but an edge is either removed or not. Use how='masking', or choose the edges with "
                "k=10, fraction=0.1 or threshold=0.5."
            )
        kept = weight == 1
        return self._removal.output(kept), self._removal.output(~kept)


# --- The model on graphs from which edges are really removed: degrees and attention change with them -------------------


class Removal:
    """Some targets of a question, on graphs that keep only some of their columns; nodes stay, also isolated ones.

    Targets share a pass as disjoint copies of their neighbourhoods, if every copy still gives its target's output when half
    of the edges are gone; otherwise each target is run on the whole graph.
    """

    def __init__(self, question: PosedQuestion, positions: Tensor) -> None:
        self._question = question
        self._graphs = question.copies(positions)
        if isinstance(question, NodeQuestion) and len(self._graphs) == 1 and question.hops is not None:
            targets = question.places(positions)
            if not _stay_true(question, self._graphs[0], targets):
                warn_not_local("without some edges a copy gives another output", "target is run on the whole graph")
                self._graphs = question.node_model.wholes(targets)
        several = len(self._graphs) > 1
        owner = [graph.columns[1] + (i if several else 0) for i, graph in enumerate(self._graphs)]
        self.owner = torch.cat(owner).cpu()
        """`[columns]`: the target that each column belongs to, a position in `positions`."""
        self.edge_id = question.columns(torch.cat([graph.columns[0] for graph in self._graphs])).cpu()
        """`[columns]`: the column of the original graph."""

    def output(self, kept: Tensor) -> Tensor:
        """The model's output for every target, `[targets, width]`, on graphs that have the `kept` columns alone."""
        parts = kept.split([graph.data.edge_index.size(1) for graph in self._graphs])
        with self._question.loan.taken(), torch.no_grad():
            rows = [_run(self._question, g.data, part)[g.rows] for g, part in zip(self._graphs, parts, strict=True)]
        return torch.cat(rows)


def _run(question: PosedQuestion, graph: Data, kept: Tensor) -> Tensor:
    """The model's output on a graph with the `kept` columns alone."""
    return question.call(graph.edge_subgraph(kept.to(graph.edge_index.device)))


def _stay_true(question: NodeQuestion, copies: Copies, targets: Tensor) -> bool:
    """Whether every copy gives its target's true output on a graph that lost half of its edges."""

    def half(columns: Tensor) -> Tensor:
        return random_weight(columns, 1, question.trace.output)[0] < 0.5

    graph = question.graphs[0]
    everything = torch.arange(graph.edge_index.size(1), device=question.device)
    with question.loan.taken(), torch.no_grad():
        try:
            whole = _run(question, graph, half(everything))[targets]
            return close(_run(question, copies.data, half(copies.columns[0]))[copies.rows], whole)
        except ModelError:
            return False  # an error on this made-up graph is not the user's; on the user's own question it is raised
