"""`ew.walks`: the question, checked, and the answer as walk sets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.blocks import read_memory
from edgewise.errors import SettingError
from edgewise.model.call import Forward
from edgewise.problem import GraphProblem, NodeProblem, Problem, pose
from edgewise.progress import progress_bar
from edgewise.settings import Settings
from edgewise.walk.amp import amp_ave, amp_ave_additive
from edgewise.walk.bounds import Box, boxes
from edgewise.walk.dag import dag
from edgewise.walk.exact import SIGNS, Found, Search, rounding, starting
from edgewise.walk.exhaustive import LIMIT, exhaustive
from edgewise.walk.network import Front, Network
from edgewise.walk.neurons import emp_neu
from edgewise.walk.recording import read_off
from edgewise.walk.results import Walk, WalkSet
from edgewise.walk.running import Rule

SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
RULES = ("gradient", "lrp-epsilon", "lrp-gamma")
_DEFAULT_MEMORY = 2**30


@dataclass(frozen=True)
class Asked:
    """The checked question about walks."""

    k: int
    search: str
    sign: str
    rule: Rule
    attention: str
    norm: str | None
    budget: int | None
    width: int
    limit: int
    memory: int


@dataclass(frozen=True, eq=False)
class Block:
    """Some targets with their network: `owner` says whose each end of the front is."""

    network: Network
    boxes: list[Box | None]
    front: Front
    owner: Tensor
    positions: Tensor
    first_node: Tensor
    """`[T]`: graph tasks number the nodes of each graph from 0."""
    of_graphs: bool

    @property
    def num_targets(self) -> int:
        """How many."""
        return len(self.positions)


def walks(
    model: Any,
    data: Any,
    index: Any = None,
    *,
    k: int = 1,
    search: str = "exact",
    sign: str = "positive",
    rule: str = "gradient",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    budget: int | None = None,
    epsilon: float = 1e-9,
    gamma: float | Sequence[float] = 0.25,
    attention: str = "full",
    norm: str | None = None,
    width: int = 1,
    limit: int = LIMIT,
    forward: Forward | None = None,
    memory: int | str | None = None,
    device: Any = None,
    progress: bool = False,
) -> Any:
    """The k most relevant walks of each target.

    Args:
        model: As for `explain`, like every argument that is not described here.
        data: The graph, or for a graph task the graphs.
        index: Which nodes or graphs.
        target: Class per index; the predicted one if not given.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"` or `"regression"`.
        of: `"logit"`, `"log_prob"` or `"prob"`.
        forward: How to call the model.
        device: Where to compute.
        k: How many walks.
        search: `"exact"` (proven), `"dag"` (Algorithm 1 of the paper), `"amp_ave"`, `"amp_ave_additive"`, `"emp_neu"`
            (neuron-level walks) or `"exhaustive"` (every walk).
        sign: `"positive"` walks support the class, `"negative"` ones oppose it, `"magnitude"` is both.
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: Of `"lrp-epsilon"`, absolute.
        gamma: Of `"lrp-gamma"`, a number or one per layer; it is meant for inputs that are not negative.
        budget: at most so many prefixes are expanded for a target; then `exact` may be False, and the bound still holds.
        attention: `"full"` differentiates attention too, `"fixed"` holds it.
        norm: `"fixed"` holds the statistics of norms over whole graphs.
        width: how many vectors `"dag"` keeps at a node.
        limit: how many walks of a target `"exhaustive"` goes through at most.
        memory: a budget such as `"2GB"`.
        progress: show a bar.

    Returns:
        A `WalkSet` for an int (or one graph), otherwise a list of them.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])     # 0 ─2→ 1 ─3→ 2, features 1, 0, 0
    >>> print(walks(model, data, 2))
    1 walks to 2 (class 1, 6), proven
      0 → 1 → 2: +6
    """
    asked = _read(k, search, sign, rule, epsilon, gamma, attention, norm, budget, width, limit, memory)
    problem = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    asked = _with_gammas(asked, gamma, problem.num_layers)
    found: list[WalkSet | None] = [None] * len(problem.index)
    with progress_bar(progress, len(problem.index), "walks") as advance:
        for block in _blocks(problem, asked):
            for walk_set in _answer(problem, asked, block):
                found[walk_set[0]] = walk_set[1]
            advance(block.num_targets)
    done = [one for one in found if one is not None]
    return done[0] if problem.single else done


def _read(
    k: Any, search: str, sign: str, rule: str, epsilon: Any, gamma: Any, attention: str, norm: Any, budget: Any,
    width: Any, limit: Any, memory: Any,
) -> Asked:  # fmt: skip
    for name, number in (("k", k), ("width", width), ("limit", limit)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise SettingError(f"{name} is {number!r}; needed is a whole number from 1 on.")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise SettingError(
            f"budget is {budget!r}; needed is a whole number of prefixes from 1 on, or None for no limit."
        )
    known: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "search": (search, SEARCHES),
        "sign": (sign, SIGNS),
        "rule": (rule, RULES),
    }
    known |= {"attention": (attention, ("full", "fixed")), "norm": (norm, (None, "fixed"))}
    for name, (given, names) in known.items():
        if given not in names:
            raise SettingError(f"{name} is {given!r}; known are {', '.join(map(repr, names))}.")
    if not isinstance(epsilon, (int, float)) or isinstance(epsilon, bool) or not epsilon >= 0:
        raise SettingError(f"epsilon is {epsilon!r}; needed is a number from 0 on.")
    chosen = Rule(rule, float(epsilon) if rule == "lrp-epsilon" else 0.0)
    return Asked(
        k, search, sign, chosen, attention, norm, budget, width, limit,
        _DEFAULT_MEMORY if memory is None else read_memory(memory),
    )  # fmt: skip


def _with_gammas(asked: Asked, gamma: Any, num_layers: int) -> Asked:
    if asked.rule.name != "lrp-gamma":
        return asked
    given = list(gamma) if isinstance(gamma, Sequence) and not isinstance(gamma, str) else [gamma] * num_layers
    numbers = [g for g in given if isinstance(g, (int, float)) and not isinstance(g, bool) and g >= 0]
    if len(numbers) != num_layers or len(given) != num_layers:
        raise SettingError(
            f"gamma is {gamma!r}; needed is a number from 0 on, or one for each of the {num_layers} layers."
        )
    return replace(asked, rule=Rule("lrp-gamma", 0.0, tuple(float(g) for g in numbers)))


# --- blocks of targets ------------------------------------------------------------------------------------------------


def _blocks(problem: Problem, asked: Asked) -> Iterator[Block]:
    """Targets in blocks that fit into memory; nodes of one graph share their network."""
    if isinstance(problem, NodeProblem):
        network, found = _node_network(problem, asked)
        everyone = torch.arange(len(problem.index))
        width = network.widest
        size = max(asked.memory // (64 * 8 * max(width, 8) * max(asked.k, 16)), 1)
        for positions in everyone.split(size):
            nodes = problem.index[positions].to(problem.device)
            chosen = problem.target.select(positions.to(problem.device))
            with problem.loan.taken():
                front = network.ends(chosen.value, nodes)
            zeros = torch.zeros(len(positions), dtype=torch.long)
            yield Block(
                network,
                found,
                front,
                torch.arange(len(positions), device=problem.device),
                positions,
                zeros,
                of_graphs=False,
            )
        return
    assert isinstance(problem, GraphProblem)
    for positions in _graph_blocks(problem, asked):
        batches = problem.copies(positions)
        for part, copies in zip(positions.split(len(positions) // len(batches)), batches, strict=True):
            with problem.loan.taken():
                recording = read_off(problem.call, problem.layers, copies.data, graphs=copies.self_owner)
                network = Network(recording, asked.rule, asked.attention, problem.loan.taken)
                front = network.ends(problem.target.select(part.to(problem.device)).value, None)
            count = torch.bincount(copies.self_owner, minlength=len(part)).cpu()
            yield Block(
                network, boxes(network), front, copies.self_owner, part, count.cumsum(0) - count, of_graphs=True
            )


def _graph_blocks(problem: GraphProblem, asked: Asked) -> Iterator[Tensor]:
    everyone = torch.arange(len(problem.index))
    if not problem.together:
        yield from everyone.split(1)
        return
    nodes, edges = problem.sizes(everyone)
    size = (nodes + edges).cpu().cumsum(0)
    part = (size - 1) // max(asked.memory // (8 * 4096), 1)
    yield from everyone.split(torch.bincount(part)[torch.bincount(part) > 0].tolist())


def _node_network(problem: NodeProblem, asked: Asked) -> tuple[Network, list[Box | None]]:
    """Kept with the subject: the next question about the same model and graph needs no new one."""
    subject, key = problem.subject, ("walks", asked.rule, asked.attention, asked.norm)
    if key not in subject.kept:
        with subject.loan.taken():
            recording = read_off(subject.call, subject.layers, subject.graph, graphs=None)
            network = Network(recording, asked.rule, asked.attention, subject.loan.taken)
        subject.kept[key] = (network, boxes(network))
    found: tuple[Network, list[Box | None]] = subject.kept[key]
    return found


# --- answers ----------------------------------------------------------------------------------------------------------


def _search(asked: Asked, block: Block) -> Found:
    network, front, owner, size = block.network, block.front, block.owner, block.num_targets
    slack = rounding(network, block.boxes, front, owner, size)
    if asked.search == "exact":
        width = network.widest
        at_once = max(asked.memory // (8 * 8 * max(width, 8)), 1)
        search = Search(network, block.boxes, size, asked.k, asked.sign, asked.budget, slack, at_once)
        return search.run(starting(network, front, owner))
    about = (network, block.boxes, front, owner, size, asked.k, asked.sign)
    if asked.search == "dag":
        return dag(*about, asked.width, graphs=block.of_graphs)
    if asked.search == "emp_neu":
        return emp_neu(*about)
    if asked.search != "exhaustive":
        return (amp_ave if asked.search == "amp_ave" else amp_ave_additive)(*about)
    return exhaustive(network, front, owner, size, asked.k, asked.sign, slack, asked.limit)


def _answer(problem: Problem, asked: Asked, block: Block) -> Iterator[tuple[int, WalkSet]]:
    found = _search(asked, block)
    target, score, nodes = found.target.cpu(), found.score.cpu().tolist(), found.nodes.cpu()
    rows = (nodes - block.first_node[target].view(-1, 1)).tolist()
    start = torch.searchsorted(target, torch.arange(block.num_targets + 1)).tolist()
    upper, exact, expansions = found.upper_bound.tolist(), found.exact.tolist(), found.expansions.tolist()
    neurons = None if found.neurons is None else found.neurons.tolist()
    chosen = problem.target.select(block.positions.to(problem.device))
    values, columns = chosen.value(chosen.truth).tolist(), chosen.column.tolist()
    counts, _ = problem.sizes(block.positions)
    settings = Settings(
        {"search": asked.search, "k": asked.k, "sign": asked.sign, "rule": asked.rule.name, "of": chosen.of}
    )
    for number, position in enumerate(block.positions.tolist()):
        span = range(start[number], start[number + 1])
        listed = tuple(Walk(tuple(rows[i]), score[i], None if neurons is None else tuple(neurons[i])) for i in span)
        yield position, WalkSet(
            listed, exact[number], upper[number], int(problem.index[position]), columns[number], values[number],
            settings, problem.source_edge_index(position), int(counts[number if len(counts) > 1 else 0]), expansions[number],
        )  # fmt: skip
