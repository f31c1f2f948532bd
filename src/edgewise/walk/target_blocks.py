"""Networks for the targets of a question, in blocks that fit into memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.question import GraphQuestion, NodeQuestion, Question
from edgewise.walk.bounds import Box, boxes
from edgewise.walk.calls import Front
from edgewise.walk.lrp import Rule
from edgewise.walk.network import Network
from edgewise.walk.node_jacobians import ends
from edgewise.walk.record import read_off, reuse

RULES = ("gradient", "lrp-epsilon", "lrp-gamma")
_BYTES_A_PREFIX = 64 * 8
_BYTES_A_NODE = 8 * 4096


@dataclass(frozen=True)
class RelevanceRule:
    """How blocks are made: by which rule, with attention and norms over graphs moving along or held fixed."""

    rule: Rule
    attention: str = "full"
    norm: str | None = None
    merged: bool = True
    """Whether parallel edges, and loops with staying, count as one step."""


def read_view(rule: Any, epsilon: Any, gamma: Any, attention: Any, norm: Any, *, merged: bool = True) -> RelevanceRule:
    """The checked view; γ per layer is checked when the layers are known."""
    known: dict[str, tuple[Any, tuple[Any, ...]]] = {"rule": (rule, RULES), "attention": (attention, ("full", "fixed"))}
    known["norm"] = (norm, (None, "fixed"))
    for name, (given, names) in known.items():
        if given not in names:
            raise SettingError(f"{name} is {given!r}; known are {', '.join(map(repr, names))}.")
    if not _is_number(epsilon):
        raise SettingError(f"epsilon is {epsilon!r}; needed is a number from 0 on.")
    several = isinstance(gamma, Sequence) and not isinstance(gamma, str)
    if not all(_is_number(g) for g in (gamma if several else [gamma])):
        raise SettingError(f"gamma is {gamma!r}; needed is a number from 0 on, or one for each layer.")
    gammas = (tuple(float(g) for g in gamma) if several else float(gamma)) if rule == "lrp-gamma" else 0.0
    return RelevanceRule(Rule(rule, float(epsilon) if rule == "lrp-epsilon" else 0.0, gammas), attention, norm, merged)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _check_layers(view: RelevanceRule, num_layers: int) -> None:
    gammas = view.rule.gammas
    if isinstance(gammas, tuple) and len(gammas) != num_layers:
        raise SettingError(
            f"gamma is {list(gammas)}; needed is a number from 0 on, or one for each of the {num_layers} layers."
        )


@dataclass(frozen=True, eq=False)
class TargetBlock:
    """Some targets with their network: `owner` says whose each end of the front is."""

    network: Network
    front: Front
    owner: Tensor
    positions: Tensor
    first_node: Tensor
    """`[T]`: where a target's nodes begin; graph tasks number the nodes of each graph from 0."""
    first_edge: Tensor
    of_graphs: bool
    boxes: list[Box | None]
    columns: Callable[[Tensor], Tensor]
    """Columns of the user's graph, from columns of the network's."""
    nodes: Callable[[Tensor], Tensor]
    """Nodes of the user's graph, from nodes of the network's."""

    @property
    def num_targets(self) -> int:
        """How many."""
        return len(self.positions)


def target_blocks(
    question: Question, view: RelevanceRule, memory: int, *, beam: int, bounded: bool = True
) -> Iterator[TargetBlock]:
    """Targets in blocks; nodes of one graph share their network. `beam`: prefixes a target has at once, at least."""
    _check_layers(view, question.num_layers)
    if isinstance(question, NodeQuestion):
        yield from _node_blocks(question, view, memory, beam, bounded=bounded)
    else:
        assert isinstance(question, GraphQuestion)
        yield from _graph_blocks(question, view, memory, bounded=bounded)


def _node_blocks(
    question: NodeQuestion, view: RelevanceRule, memory: int, beam: int, *, bounded: bool
) -> Iterator[TargetBlock]:
    network, found = _node_network(question, view, bounded=bounded)
    size = max(memory // (_BYTES_A_PREFIX * max(network.widest, 8) * beam), 1)
    for positions in torch.arange(len(question.index)).split(size):
        place = positions.to(question.device)
        with question.loan.taken():
            front = ends(
                network.calls, question.target.select(place).value, question.places(positions)
            )
        zeros = torch.zeros_like(positions)
        yield TargetBlock(network, front, torch.arange(len(positions), device=question.device), positions, zeros, zeros,
                    of_graphs=False, boxes=found, columns=question.columns, nodes=question.nodes)  # fmt: skip


def _node_network(question: NodeQuestion, view: RelevanceRule, *, bounded: bool) -> tuple[Network, list[Box | None]]:
    """Kept with the subject: the next question about the same model and graph needs no new one."""
    subject = question.node_model
    key = ("walks", view)
    if key not in subject.kept:
        with subject.loan.taken():
            recording = None
            if subject.lowering is not None and view.norm is None:
                recording = reuse(subject.trace, subject.lowering, subject.graph)
            if recording is None:
                recording = read_off(subject.call, subject.layers, subject.graph, graphs=None, norm=view.norm)
            subject.kept[key] = Network(recording, view.rule, view.attention, subject.loan.taken, merged=view.merged)
    network: Network = subject.kept[key]
    if bounded and (*key, "boxes") not in subject.kept:
        subject.kept[(*key, "boxes")] = boxes(network)
    return network, subject.kept.get((*key, "boxes"), [])


def _graph_blocks(question: GraphQuestion, view: RelevanceRule, memory: int, *, bounded: bool) -> Iterator[TargetBlock]:
    alone = view.norm == "fixed"  # held statistics are those of one graph
    for positions in torch.arange(len(question.index)).split(1) if alone else _batches(question, memory):
        batches = question.copies(positions)
        for part, copies in zip(positions.split(len(positions) // len(batches)), batches, strict=True):
            owner = copies.self_owner
            with question.loan.taken():
                recording = read_off(question.call, question.layers, copies.data, graphs=owner, norm=view.norm)
                network = Network(recording, view.rule, view.attention, question.loan.taken, merged=view.merged)
                front = ends(network.calls, question.target.select(part.to(question.device)).value, None)
            nodes, edges = (torch.bincount(of, minlength=len(part)).cpu() for of in (owner, copies.owner))
            starts = (nodes.cumsum(0) - nodes, edges.cumsum(0) - edges)
            yield TargetBlock(
                network, front, owner, part, *starts, of_graphs=True, boxes=boxes(network) if bounded else [],
                columns=question.columns, nodes=question.nodes,
            )


def _batches(question: GraphQuestion, memory: int) -> Iterator[Tensor]:
    everyone = torch.arange(len(question.index))
    if not question.together:
        yield from everyone.split(1)
        return
    nodes, edges = question.sizes(everyone)
    part = ((nodes + edges).cpu().cumsum(0) - 1) // max(memory // _BYTES_A_NODE, 1)
    sizes = torch.bincount(part)
    yield from everyone.split(sizes[sizes > 0].tolist())
