"""The networks of a question, some targets at a time: `read_rule` checks how blocks are made, `target_blocks` makes them.

In a node task all targets share one network, which is kept with the model for the next question; a block is a number of
explained nodes whose prefixes fit into memory. In a graph task a block is a number of graphs side by side, with a network of
its own. Blocks only group targets: their size changes no result.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import one_of, real_number
from edgewise.errors import EdgewiseError, SettingError
from edgewise.program.ir import Rows
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.question import GraphQuestion, LinkQuestion, NodeQuestion, PosedQuestion
from edgewise.question.block_growth import walk_counts
from edgewise.walk.attention_blocks import has_closed_form
from edgewise.walk.bounds import Box, boxes
from edgewise.walk.lrp import Rule
from edgewise.walk.network import AnyNetwork, Network
from edgewise.walk.part_network import PartNetwork
from edgewise.walk.prefixes import Front
from edgewise.walk.record import Recording, read_off, reuse

RULES = ("gradient", "lrp-epsilon", "lrp-gamma")
_BYTES_A_PREFIX = 64 * 8  # per number of a prefix's gradient: 8 bytes, for each of about 64 steps of a prefix
_BYTES_A_STEP = 8 * 6  # per number of a step whose relevance is summed up: gradients, rows, products, and sums of them
_BYTES_A_BLOCK = 8 * 4  # per number of a dense block: with copies while it is made, and with its bounds
_BYTES_A_COPY = 40  # per number of a sender's copy: in the model's type, its gradient, and both in float64
_BYTES_A_MESSAGE = 8 * 8  # per number of a message of attention: itself, its slopes and products of them
_BYTES_A_PAIR = 1600  # of a layer whose factors are enough: its numbers, their order and their bounds, as measured
_BYTES_A_NODE = 8 * 12288  # of a graph's network, per node and per edge


@dataclass(frozen=True)
class RelevanceRule:
    """How blocks are made: by which rule, with attention and norms over graphs differentiated or held fixed."""

    rule: Rule
    attention: str = "full"
    """`"full"` differentiates attention, `"fixed"` holds it."""
    norm: str | None = None
    """`"fixed"` holds the statistics of norms over whole graphs."""
    merged: bool = True
    """Whether parallel edges, and loops with staying, count as one step."""


def network_of(
    recording: Recording, how: RelevanceRule, loan: Callable[[], AbstractContextManager[None]]
) -> AnyNetwork:
    """The network of a recorded model: by one call of each depth, or by several side by side."""
    if recording.program.is_chain:
        return Network(recording, how.rule, how.attention, loan, merged=how.merged)
    return PartNetwork(recording, how.rule, how.attention, merged=how.merged)


def read_rule(rule: Any, epsilon: Any, gamma: Any, attention: Any, norm: Any, *, merged: bool = True) -> RelevanceRule:
    """Check the settings of a rule; γ per layer is counted by `target_blocks`, when the layers are known.

    >>> read_rule("lrp-epsilon", 0.1, 0.25, "fixed", None).rule
    Rule(name='lrp-epsilon', epsilon=0.1, gammas=0.0)
    >>> read_rule("gradient", 0.1, 0.25, "soft", None)
    Traceback (most recent call last):
    edgewise.errors.SettingError: Unknown attention 'soft'. Choose one of: full, fixed.
    """
    name = one_of("rule", rule, RULES)
    one_of("attention", attention, ("full", "fixed"))
    if norm is not None:
        one_of("norm", norm, ("fixed",), also="or None")
    epsilon = real_number("epsilon", epsilon, at_least=0, such_as=1e-9)
    several = isinstance(gamma, Sequence) and not isinstance(gamma, str)
    checked = tuple(real_number("gamma", g, at_least=0, such_as=0.25) for g in (gamma if several else [gamma]))
    gammas = (checked if several else checked[0]) if name == "lrp-gamma" else 0.0
    return RelevanceRule(Rule(name, epsilon if name == "lrp-epsilon" else 0.0, gammas), attention, norm, merged)


def _check_layers(how: RelevanceRule, num_layers: int) -> None:
    """Refuse a list of γ that does not have one for each layer."""
    gammas = how.rule.gammas
    if isinstance(gammas, tuple) and len(gammas) != num_layers:
        raise SettingError(
            f"`gamma` must be a number ≥ 0, or one for each of the {num_layers} layers, got {list(gammas)}. "
            f"Use gamma=0.25, for example."
        )


@dataclass(frozen=True, eq=False)
class TargetBlock:
    """T targets with their network: what a search needs, and what leads back to the user's numbering."""

    network: AnyNetwork
    front: Front
    """The ends of walks: the explained nodes, or every node of every graph."""
    owner: Tensor
    """`[P]`: the target (0 to T − 1) of each end of the front, rising."""
    positions: Tensor
    """`[T]`: the positions of the targets in the question."""
    first_node: Tensor
    """`[T]`: the number of a target's first node; graphs lie side by side, and the user numbers each from 0."""
    first_edge: Tensor
    """`[T]`: the same for its columns of `edge_index`."""
    of_graphs: bool
    """Whether this is a graph task."""
    boxes: list[Box | None]
    """What walks can still bring, per call (`bounds.boxes`); empty if not asked for."""
    columns: Callable[[Tensor], Tensor]
    """Columns of the user's graph, from columns of the network's."""
    nodes: Callable[[Tensor], Tensor]
    """Nodes of the user's graph, from nodes of the network's."""

    @property
    def num_targets(self) -> int:
        """How many targets the block has."""
        return len(self.positions)


def target_blocks(
    question: PosedQuestion, how: RelevanceRule, memory: int, *, beam: int, bounded: bool = True
) -> Iterator[TargetBlock]:
    """The targets of a question in blocks.

    Args:
        question: The question.
        how: How blocks of the network are made.
        memory: A budget in bytes.
        beam: How many prefixes a target has at once, at least, in a search; more of them make smaller blocks.
        bounded: Whether boxes are needed (searches need them, sums do not: they take all that leads to a target at once).
    """
    _check_layers(how, question.num_layers)
    if isinstance(question, NodeQuestion):
        yield from _node_blocks(question, how, memory, beam, bounded=bounded)
    else:
        assert isinstance(question, (GraphQuestion, LinkQuestion))
        yield from _graph_blocks(question, how, memory, bounded=bounded)


def refusal_of_walks(question: PosedQuestion, memory: int) -> str:
    """Why `ew.walks` and LRP refuse a question: the sentence that they raise; empty if they do not."""
    if not len(question.index):
        return ""
    how = RelevanceRule(Rule("gradient", 0.0, 0.0))
    some = question.at(torch.zeros(1, dtype=torch.long)) if len(question.index) > 1 else question
    try:
        next(target_blocks(some, how, memory, beam=1, bounded=False))
    except EdgewiseError as error:
        return str(error)
    return ""


def _node_blocks(
    question: NodeQuestion, how: RelevanceRule, memory: int, beam: int, *, bounded: bool
) -> Iterator[TargetBlock]:
    """Explained nodes of one graph, as many at once as their prefixes leave room for."""
    network, found = _node_network(question, how, bounded=bounded)
    everyone, width = torch.arange(len(question.index)), max(network.widest, 8)
    if bounded:
        parts = everyone.split(max(memory // (_BYTES_A_PREFIX * width * beam), 1))
    else:  # all that leads to a target at once, not a beam of it
        steps = walk_counts(question.node_model.in_edges, network.num_calls)[question.places(everyone)].cpu()
        piece = (steps * _BYTES_A_STEP * width / memory).cumsum(0).long()
        parts = everyone.split(torch.unique_consecutive(piece, return_counts=True)[1].tolist())
    for positions in parts:
        place = positions.to(question.device)
        with question.loan.taken():
            front = network.ends(question.target.select(place).value, question.places(positions))
        zeros = torch.zeros_like(positions)
        yield TargetBlock(network, front, torch.arange(len(positions), device=question.device), positions, zeros, zeros,
                    of_graphs=False, boxes=found, columns=question.columns, nodes=question.nodes)  # fmt: skip


def dense_bytes(question: PosedQuestion, attention: str) -> int:
    """Bytes of the network of a graph: blocks `[pairs, out, in]` of layers differentiated as a whole, factors of the others."""
    if not isinstance(question, NodeQuestion) or question.lowering is None:
        return 0
    lowering, found, factors = question.lowering, 0, 0
    pairs = len(lowering.in_edges.edge) + lowering.in_edges.num_nodes
    for step in lowering.program.messages:
        fixed = isinstance(step.layer, AttentionLayer) and attention == "fixed"
        if fixed or isinstance(step.layer, (AffineLayer, EdgeReluLayer)):
            factors = pairs * lowering.program.num_calls * _BYTES_A_PAIR
            continue
        rows = step.source.tensor if isinstance(step.source, Rows) else lowering.known[step.source.value]
        first, width, out = isinstance(step.source, Rows), rows[:1].numel(), lowering.known[step.output][:1].numel()
        # of the features only products with them are kept, but each receiver may have copies of them while these are made
        found += pairs * _BYTES_A_BLOCK * out * (1 if first else width)
        if has_closed_form(step.layer):
            found += 8 * rows.numel() + pairs * _BYTES_A_MESSAGE * step.layer.conv.heads * step.layer.conv.out_channels
        else:
            found += pairs * _BYTES_A_COPY * width
    return found + factors


def _node_network(question: NodeQuestion, how: RelevanceRule, *, bounded: bool) -> tuple[AnyNetwork, list[Box | None]]:
    """The network and its boxes, kept with the subject: the next question about the same model and graph reuses them."""
    subject = question.node_model
    key = ("walks", how)
    if key not in subject.kept:
        with subject.loan.taken():
            recording = None
            if subject.lowering is not None and how.norm is None:
                recording = reuse(subject.trace, subject.lowering, subject.graph)
            if recording is None:
                recording = read_off(
                    subject.call, subject.layers, subject.graph, subject.output, graphs=None, norm=how.norm
                )
            subject.kept[key] = network_of(recording, how, subject.loan.taken)
    network: AnyNetwork = subject.kept[key]
    if bounded and (*key, "boxes") not in subject.kept:
        subject.kept[(*key, "boxes")] = boxes(network)
    return network, subject.kept.get((*key, "boxes"), [])


def _graph_blocks(
    question: GraphQuestion | LinkQuestion, how: RelevanceRule, memory: int, *, bounded: bool
) -> Iterator[TargetBlock]:
    """Graphs side by side, with a network for each batch of them; walks may end at any of their nodes.

    Of links: the neighbourhoods of pairs. Walks that do not end in a pair have no relevance.
    """
    alone = how.norm == "fixed"  # held statistics are those of one graph
    for positions in torch.arange(len(question.index)).split(1) if alone else _batches(question, memory):
        batches = question.copies(positions)
        for part, copies in zip(positions.split(len(positions) // len(batches)), batches, strict=True):
            owner = copies.self_owner if copies.near_owner is None else copies.near_owner
            with question.loan.taken():
                recording = read_off(
                    question.call, question.layers, copies.data, question.output, graphs=owner, norm=how.norm
                )
                network = network_of(recording, how, question.loan.taken)
                front = network.ends(question.target.select(part.to(question.device)).value, None)
            nodes, edges = (torch.bincount(of, minlength=len(part)).cpu() for of in (owner, copies.owner))
            starts = (nodes.cumsum(0) - nodes, edges.cumsum(0) - edges)
            in_copies = question.in_one_graph  # numbers are then those of the copies
            if in_copies:
                starts = (torch.zeros_like(nodes), torch.zeros_like(edges))
            yield TargetBlock(
                network,
                front,
                owner,
                part,
                *starts,
                of_graphs=True,
                boxes=boxes(network) if bounded else [],
                columns=_numbered(copies.column_edge, question.columns) if in_copies else question.columns,
                nodes=_numbered(copies.near_node, question.nodes) if in_copies else question.nodes,
            )


def _numbered(original: Tensor | None, then: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """From numbers of copies to the user's: first those of the graph that is run (None: they are), `then` the user's."""

    def numbers(local: Tensor) -> Tensor:
        return then(local if original is None else original.to(local.device)[local])

    return numbers


def _batches(question: GraphQuestion | LinkQuestion, memory: int) -> Iterator[Tensor]:
    """Positions of graphs that fit into memory together, by their nodes and edges; one by one if they may not be joined."""
    everyone = torch.arange(len(question.index))
    if not question.together:
        yield from everyone.split(1)
        return
    nodes, edges = question.run_sizes(everyone)
    part = ((nodes + edges).cpu().cumsum(0) - 1) // max(memory // _BYTES_A_NODE, 1)
    sizes = torch.bincount(part)
    yield from everyone.split(sizes[sizes > 0].tolist())
