"""SubgraphX (Yuan et al., ICML 2021): the connected subgraph whose nodes together have the highest Shapley value.

A coalition is a set of nodes; v(coalition) is the explained number with the edges among them alone (ω = 0 elsewhere, in the
manner of what the authors call "split"). A subgraph S plays as one player against the nodes within L hops of it, one each:

    φ(S) = Σ_T |T|! (n − |T| − 1)! / n! · [v(T ∪ S) − v(T)],   T any set of the n − 1 others

The authors prune the graph by Monte Carlo tree search, coalition after coalition. Here subgraphs grow node by node, the `beam`
best of each size going on, and all coalitions of a size are run side by side; where the beam holds every connected subgraph,
the best one is certain.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from edgewise import random_numbers
from edgewise.algorithms.coalitions import CoalitionValues, distinct, subsets
from edgewise.arguments import one_of, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.question import pose
from edgewise.score import CopyScores, Score
from edgewise.text import counted

EXACT_PLAYERS = 10
"""Up to so many others, every set of them is a coalition; beyond, sets are drawn."""
_AT_ONCE = 2**22  # entries of a table of coalitions


@dataclass(frozen=True, eq=False)
class ConnectedSubgraph:
    """The best subgraph of one target."""

    nodes: Tensor
    """Its nodes, in order; of a node task the explained one is among them."""
    columns: Tensor
    """The columns of `edge_index` between them that can reach the target."""
    index: int
    """The explained node or graph."""
    target: int
    """The explained class."""
    shapley: float
    """φ of the subgraph."""
    error: float
    """Its standard error; 0 where every coalition was run."""
    proven: bool
    """Whether no connected subgraph of at most that size has a higher φ: all of them were tried, with all their coalitions."""
    coalitions: int
    """How many coalitions the search asked about."""
    evaluations: int
    """How many different ones of them were run: equal ones are run once."""

    def __repr__(self) -> str:
        about = f"φ = {self.shapley:.4g}" + (f" ± {self.error:.2g}" if self.error else "")
        sure = "proven, " if self.proven else ""
        return (
            f"ConnectedSubgraph(index={self.index}, target={self.target}, {counted(len(self.nodes), 'node')}: {about}, {sure}"
            f"{counted(self.coalitions, 'coalition')})"
        )


@checked
def subgraph_x(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    max_nodes: int = 6,
    beam: int = 32,
    samples: int = 100,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    seed: int = 0,
) -> ConnectedSubgraph | list[ConnectedSubgraph]:
    """The connected subgraph of at most `max_nodes` nodes with the highest Shapley value, of each target.

    Args:
        model: As in `explain`.
        data: As in `explain`, with one type of nodes.
        index: As in `explain`; an int gives one subgraph, otherwise there is a list.
        max_nodes: The largest subgraph to try. Of a node task the explained node is in it.
        beam: How many subgraphs of each size go on growing.
        samples: Coalitions of a subgraph that has more than 10 others around it; with fewer, all of them are run.
        target: As in `explain`.
        task: `"node"` or `"graph"`.
        mode: As in `explain`.
        of: As in `explain`.
        output: As in `explain`.
        forward: As in `explain`.
        device: As in `explain`.
        seed: Random seed of the samples.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])                     # 0 ─2→ 1 ─3→ 2, so z = 6 with all three nodes
    >>> best = subgraph_x(model, data, 2)
    >>> best.nodes, best.shapley, best.proven
    (tensor([0, 1, 2]), 6.0, True)
    """
    settings = {
        name: whole_number(name, value, at_least=1, such_as=such_as)
        for name, value, such_as in (("max_nodes", max_nodes, 6), ("beam", beam, 32), ("samples", samples, 100))
    }
    one_of("task", task, ("node", "graph"))
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
        without_itself=False,
    )  # fmt: skip
    if question.types is not None:
        raise InputError(
            "`data` must have one type of nodes here. Use ew.explain(..., method='subgraphx') for typed graphs."
        )
    with question.borrowed():
        found = [
            search(Score.of_block(question, torch.tensor([place])), **settings, seed=whole_number("seed", seed))
            for place in range(len(question.index))
        ]
    return found[0] if question.single else found


def subgraph_scores(score: Score, level: str, *, max_nodes: int, beam: int, samples: int, seed: int) -> CopyScores:
    """φ of a target's best subgraph on the edges inside it, 0 elsewhere."""
    found = score.target.truth.new_zeros(len(score.owner))
    for owner in range(score.num_targets):
        best = search(score.single(owner), max_nodes=max_nodes, beam=beam, samples=samples, seed=seed)
        mine = (score.owner == owner).nonzero().view(-1)
        found[mine[torch.isin(score.edge_id[mine], best.columns.to(mine.device))]] = best.shapley
    return CopyScores(found)


class _Found(NamedTuple):
    """A set of nodes `[n]`, bool, with its φ and standard error."""

    members: Tensor
    shapley: float
    error: float


@torch.no_grad()
def search(score: Score, *, max_nodes: int, beam: int, samples: int, seed: int) -> ConnectedSubgraph:
    """The best connected subgraph of a score's only target."""
    game = NodeGame(score, samples, seed)
    front, complete = game.starts(), True
    best = _Found(front.new_zeros(game.num_nodes), -math.inf if len(front) else 0.0, 0.0)  # a graph may have no edges
    for size in range(1, min(max_nodes, game.num_nodes) + 1):
        front = front if size == 1 else game.grown(front)
        if not len(front):
            break
        value, error = game.shapley(front)
        place = int(value.argmax())  # of equals the first, and the smallest
        if float(value[place]) > best.shapley:
            best = _Found(front[place], float(value[place]), float(error[place]))
        if len(front) > beam:
            complete = False
            front = front[value.argsort(descending=True, stable=True)[:beam]]
    members, value_of_best, error_of_best = best
    inside = game.inside(members.view(1, -1))[0]
    return ConnectedSubgraph(
        nodes=game.nodes[members].cpu(),
        columns=score.edge_id[inside].sort().values.cpu(),
        index=int(score.index[0]) if score.index.dim() == 1 else 0,
        target=int(score.target.column[0]),
        shapley=value_of_best,
        error=error_of_best,
        proven=complete and game.exact,
        coalitions=game.coalitions.asked,
        evaluations=game.coalitions.run,
    )


class NodeGame:
    """Coalitions of the n nodes that a target sees; sets of nodes are rows of bools, `[sets, n]`."""

    def __init__(self, score: Score, samples: int, seed: int) -> None:
        self.score, self.seed, self.samples = score, seed, samples
        own = [] if score.task == "graph" else [score.index.to(score.owner.device).view(-1)]
        self.nodes = torch.cat([score.ends().view(-1), *own]).unique()
        self.num_nodes = len(self.nodes)
        self._ends = torch.searchsorted(self.nodes, score.ends())  # [2, M]
        self._explained = torch.searchsorted(self.nodes, own[0]) if score.task == "node" else None
        adjacent = torch.eye(self.num_nodes, dtype=torch.bool, device=self.nodes.device)
        adjacent[self._ends[0], self._ends[1]] = adjacent[self._ends[1], self._ends[0]] = True
        self._adjacent, reach = adjacent, adjacent
        for _ in range(score.num_layers - 1):
            reach = (reach.double() @ adjacent.double()) > 0
        self._reach = reach  # [n, n]: within L hops
        self.exact, self.coalitions = True, CoalitionValues(score, samples * self.num_nodes)

    def starts(self) -> Tensor:
        """Subgraphs of one node: the explained one, or each node of a graph."""
        every = torch.eye(self.num_nodes, dtype=torch.bool, device=self.nodes.device)
        return every if self._explained is None else every[self._explained]

    def grown(self, sets: Tensor) -> Tensor:
        """Every set with one more node that is bound to it, each once."""
        border = ((sets.double() @ self._adjacent.double()) > 0) & ~sets
        row, node = border.nonzero().unbind(1)
        found = sets[row].clone()
        found[torch.arange(len(row), device=row.device), node] = True
        return found.unique(dim=0)

    def inside(self, sets: Tensor) -> Tensor:
        """`[sets, M]`: the edges with both ends in a set."""
        by_node = sets.t().contiguous()  # whole rows are quicker to take than columns
        return (by_node.index_select(0, self._ends[0]) & by_node.index_select(0, self._ends[1])).t()

    # --- Shapley values -------------------------------------------------------------------------------------------------

    def shapley(self, sets: Tensor) -> tuple[Tensor, Tensor]:
        """φ of each set `[sets]`, and its standard error; all coalitions of all of them in few passes."""
        others = ((sets.double() @ self._reach.double()) > 0) & ~sets  # [sets, n]
        value, error = (torch.zeros(len(sets), dtype=torch.double, device=sets.device) for _ in range(2))
        count = others.sum(dim=1)
        kind = count.clamp(max=EXACT_PLAYERS + 1)  # sets with more others than that have equally many coalitions
        for size in kind.unique().tolist():
            rows = (kind == size).nonzero().view(-1)
            per_set = 2**size if size <= EXACT_PLAYERS else self.samples
            for part in rows.split(max(1, _AT_ONCE // (per_set * max(self.num_nodes, 1)))):
                value[part], error[part] = self._of_equal_size(sets[part], others[part], size)
        return value, error

    def _of_equal_size(self, sets: Tensor, others: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """For sets with the same number of others: φ is a weighted sum over subsets, or a mean over drawn ones."""
        if size <= EXACT_PLAYERS:
            subset = subsets(size, sets.device)  # [2^size, size]
            allies = torch.zeros(len(sets), len(subset), self.num_nodes, dtype=torch.bool, device=sets.device)
            place = others.nonzero()[:, 1].view(len(sets), size)
            allies.scatter_(2, place.unsqueeze(1).expand(-1, len(subset), -1), subset.expand(len(sets), -1, -1))
            gain = self._gains(sets, allies)
            weight = _weights(size, sets.device)[subset.sum(dim=1)]
            return gain @ weight, torch.zeros(len(sets), dtype=torch.double, device=sets.device)
        self.exact = False
        gain = self._gains(sets, others.unsqueeze(1) & self._drawn())
        return gain.mean(dim=1), gain.std(dim=1) / math.sqrt(self.samples)

    def _drawn(self) -> Tensor:
        """`[samples, n]`: who comes before the subgraph in a random order of all players, the same for every subgraph."""
        sample = torch.arange(self.samples, device=self.nodes.device).view(-1, 1)
        key = self.score.key.to(sample.device)
        ticket = random_numbers.uniform(self.seed, key, sample, self.nodes.view(1, -1))
        own = random_numbers.uniform(self.seed, key, sample, torch.full_like(sample, -1))
        return ticket < own

    def _gains(self, sets: Tensor, allies: Tensor) -> Tensor:
        """`[sets, coalitions]`: v(T ∪ S) − v(T), from `allies` `[sets, coalitions, n]`."""
        both = torch.cat([allies | sets.unsqueeze(1), allies], dim=1)
        value = self.values(both.view(-1, self.num_nodes)).view(len(sets), 2, -1)
        return value[:, 0] - value[:, 1]

    def values(self, coalitions: Tensor) -> Tensor:
        """`[coalitions]`: the explained number with the edges inside each coalition alone."""
        different, place = distinct(coalitions)  # there are fewer nodes than edges to compare
        self.coalitions.asked += len(coalitions) - len(different)
        return self.coalitions.values(self.inside(different))[place]


def _weights(others: int, device: torch.device) -> Tensor:
    """`[others + 1]`: the weight of a coalition of k others, k! (n − k − 1)! / n! with n = others + 1.

    >>> _weights(2, torch.device("cpu"))
    tensor([0.3333, 0.1667, 0.3333], dtype=torch.float64)
    """
    n = others + 1
    found: Sequence[float] = [math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n) for k in range(n)]
    return torch.tensor(found, dtype=torch.double, device=device)
