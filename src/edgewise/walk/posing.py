"""Networks for the targets of a question, in blocks that fit into memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.problem import GraphProblem, NodeProblem, Problem
from edgewise.walk.bounds import Box, boxes
from edgewise.walk.ends import ends
from edgewise.walk.front import Front
from edgewise.walk.network import Network
from edgewise.walk.recording import read_off, reuse
from edgewise.walk.running import Rule

RULES = ("gradient", "lrp-epsilon", "lrp-gamma")
_BYTES_A_PREFIX = 64 * 8
_BYTES_A_NODE = 8 * 4096


@dataclass(frozen=True)
class View:
    """How blocks are made: by which rule, with attention and norms over graphs moving along or held fixed."""

    rule: Rule
    attention: str = "full"
    norm: str | None = None
    merged: bool = True
    """Whether parallel edges, and loops with staying, count as one step."""


def read_view(rule: Any, epsilon: Any, gamma: Any, attention: Any, norm: Any, *, merged: bool = True) -> View:
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
    return View(Rule(rule, float(epsilon) if rule == "lrp-epsilon" else 0.0, gammas), attention, norm, merged)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _check_layers(view: View, num_layers: int) -> None:
    gammas = view.rule.gammas
    if isinstance(gammas, tuple) and len(gammas) != num_layers:
        raise SettingError(
            f"gamma is {list(gammas)}; needed is a number from 0 on, or one for each of the {num_layers} layers."
        )


@dataclass(frozen=True, eq=False)
class Block:
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

    @property
    def num_targets(self) -> int:
        """How many."""
        return len(self.positions)


def target_blocks(problem: Problem, view: View, memory: int, *, beam: int, bounded: bool = True) -> Iterator[Block]:
    """Targets in blocks; nodes of one graph share their network. `beam`: prefixes a target has at once, at least."""
    _check_layers(view, problem.num_layers)
    if isinstance(problem, NodeProblem):
        yield from _node_blocks(problem, view, memory, beam, bounded=bounded)
    else:
        assert isinstance(problem, GraphProblem)
        yield from _graph_blocks(problem, view, memory, bounded=bounded)


def _node_blocks(problem: NodeProblem, view: View, memory: int, beam: int, *, bounded: bool) -> Iterator[Block]:
    network, found = _node_network(problem, view, bounded=bounded)
    size = max(memory // (_BYTES_A_PREFIX * max(network.widest, 8) * beam), 1)
    for positions in torch.arange(len(problem.index)).split(size):
        place = positions.to(problem.device)
        with problem.loan.taken():
            front = ends(network.calls, problem.target.select(place).value, problem.index[positions].to(problem.device))
        zeros = torch.zeros_like(positions)
        yield Block(network, front, torch.arange(len(positions), device=problem.device), positions, zeros, zeros,
                    of_graphs=False, boxes=found)  # fmt: skip


def _node_network(problem: NodeProblem, view: View, *, bounded: bool) -> tuple[Network, list[Box | None]]:
    """Kept with the subject: the next question about the same model and graph needs no new one."""
    subject = problem.subject
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


def _graph_blocks(problem: GraphProblem, view: View, memory: int, *, bounded: bool) -> Iterator[Block]:
    alone = view.norm == "fixed"  # held statistics are those of one graph
    for positions in torch.arange(len(problem.index)).split(1) if alone else _batches(problem, memory):
        batches = problem.copies(positions)
        for part, copies in zip(positions.split(len(positions) // len(batches)), batches, strict=True):
            owner = copies.self_owner
            with problem.loan.taken():
                recording = read_off(problem.call, problem.layers, copies.data, graphs=owner, norm=view.norm)
                network = Network(recording, view.rule, view.attention, problem.loan.taken, merged=view.merged)
                front = ends(network.calls, problem.target.select(part.to(problem.device)).value, None)
            nodes, edges = (torch.bincount(of, minlength=len(part)).cpu() for of in (owner, copies.owner))
            starts = (nodes.cumsum(0) - nodes, edges.cumsum(0) - edges)
            yield Block(network, front, owner, part, *starts, of_graphs=True, boxes=boxes(network) if bounded else [])


def _batches(problem: GraphProblem, memory: int) -> Iterator[Tensor]:
    everyone = torch.arange(len(problem.index))
    if not problem.together:
        yield from everyone.split(1)
        return
    nodes, edges = problem.sizes(everyone)
    part = ((nodes + edges).cpu().cumsum(0) - 1) // max(memory // _BYTES_A_NODE, 1)
    sizes = torch.bincount(part)
    yield from everyone.split(sizes[sizes > 0].tolist())
