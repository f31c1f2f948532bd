"""Shapley interactions (Grabisch and Roubens, 1999): what two edges, or two nodes, do together beyond what each does.

    I(i, j) = Σ_T |T|! (n − |T| − 2)! / (n − 1)! · [v(T ∪ ij) − v(T ∪ i) − v(T ∪ j) + v(T)],   T any set of the n − 2 others

v is the explained number with the edges of a coalition alone (ω = 0 elsewhere), or with those among its nodes. Positive: the
two need each other; negative: one does what the other does already. Up to 15 players every coalition is run; beyond, sets are
drawn.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise import random_numbers
from edgewise.algorithms.coalitions import CoalitionValues, subsets
from edgewise.algorithms.eig_search import reverses
from edgewise.algorithms.occlusion import players as players_of
from edgewise.arguments import one_of, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError, SettingError
from edgewise.question import pose
from edgewise.score import Score
from edgewise.text import counted

EXACT_PLAYERS, MOST_PLAYERS = 15, 120


@dataclass(frozen=True, eq=False)
class Interactions:
    """The interactions of the players of one target."""

    players: tuple[Any, ...]
    """Per player: a node, or the columns of an edge (two of an undirected one)."""
    of: str
    """`"edges"` or `"nodes"`."""
    matrix: Tensor
    """`[n, n]`, symmetric, 0 on the diagonal."""
    shapley: Tensor
    """`[n]`: the Shapley value of each player."""
    error: Tensor
    """`[n, n]`: standard errors of the interactions; 0 where every coalition was run."""
    exact: bool
    """Whether every coalition was run."""
    index: int
    """The explained node or graph."""
    target: int
    """The explained class."""
    evaluations: int
    """How many different coalitions were run."""

    @checked
    def top(self, k: int = 10) -> list[tuple[float, Any, Any]]:
        """The k strongest interactions, largest magnitude first: (interaction, player, player)."""
        k = whole_number("k", k, at_least=1, such_as=10)
        first, second = torch.triu_indices(len(self.players), len(self.players), offset=1)
        value = self.matrix[first, second]
        order = value.abs().argsort(descending=True, stable=True)[:k].tolist()
        return [(float(value[o]), self.players[int(first[o])], self.players[int(second[o])]) for o in order]

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"largest standard error {float(self.error.max()):.2g}"
        who = counted(len(self.players), self.of.removesuffix("s"))
        return f"Interactions(index={self.index}, target={self.target}, {who}: {how}, {counted(self.evaluations, 'coalition')})"


@checked
def shapley_interactions(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    players: str = "edges",
    undirected: bool = False,
    samples: int = 200,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    seed: int = 0,
) -> Interactions | list[Interactions]:
    """What pairs of edges or nodes do together, for targets with small computation graphs.

    Args:
        model: As in `explain`.
        data: As in `explain`, with one type of nodes.
        index: As in `explain`; an int gives one result, otherwise there is a list.
        players: `"edges"`, or `"nodes"` (an edge counts where both of its ends are in; the explained node is always in).
        undirected: Both directions of an edge are one player.
        samples: Sets that are drawn for each pair where there are more than 15 players.
        target: As in `explain`.
        task: `"node"` or `"graph"`.
        mode: As in `explain`.
        of: As in `explain`.
        output: As in `explain`.
        forward: As in `explain`.
        device: As in `explain`.
        seed: Random seed of the samples.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])                     # z = 6·ω₀·ω₁: neither edge does anything alone
    >>> found = shapley_interactions(model, data, 2)
    >>> found.matrix
    tensor([[0., 6.],
            [6., 0.]], dtype=torch.float64)
    >>> found.shapley
    tensor([3., 3.], dtype=torch.float64)
    """
    one_of("players", players, ("edges", "nodes"))
    one_of("task", task, ("node", "graph"))
    samples = whole_number("samples", samples, at_least=2, such_as=200)
    seed = whole_number("seed", seed)
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
        without_itself=False,
    )  # fmt: skip
    if question.types is not None:
        raise InputError("`data` must have one type of nodes here. Use data.to_homogeneous() and a model of it.")
    with question.borrowed(), torch.no_grad():
        scores = (Score.of_block(question, torch.tensor([place])) for place in range(len(question.index)))
        found = [_interactions(score, players, samples, seed, undirected=undirected) for score in scores]
    return found[0] if question.single else found


def _interactions(score: Score, of: str, samples: int, seed: int, *, undirected: bool) -> Interactions:
    """All pairs of one target."""
    game = _edge_game(score, undirected=undirected) if of == "edges" else _node_game(score)
    count = len(game.players)
    if count > MOST_PLAYERS:
        raise SettingError(
            f"Target {int(score.index[0])} has {count} {of} that can matter, and pairs of at most {MOST_PLAYERS} are possible. "
            f"Use players='nodes', undirected=True, or ew.explain(..., method='shapley')."
        )
    exact = count <= EXACT_PLAYERS
    matrix, error, shapley = _all(game, count) if exact else _sampled(game, count, samples, seed)
    return Interactions(
        game.players, of, matrix.cpu(), shapley.cpu(), error.cpu(), exact, int(score.index[0]), int(score.target.column[0]),
        game.coalitions.run,
    )  # fmt: skip


# --- Games --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Game:
    """n players of one target; `edges_of` maps sets of players `[sets, n]` to sets of edge copies `[sets, M]`."""

    players: tuple[Any, ...]
    keys: Tensor
    """`[n]`: a number of each player, from which random numbers are drawn."""
    coalitions: CoalitionValues
    edges_of: Callable[[Tensor], Tensor]

    def values(self, sets: Tensor) -> Tensor:
        """v of each set."""
        return torch.cat([self.coalitions.values(self.edges_of(part)) for part in sets.split(2**14)])


def _edge_game(score: Score, *, undirected: bool) -> _Game:
    """The edges that can reach the target; with `undirected` an edge and its reverse are one player."""
    inside = players_of(score, "input")[0]
    first = torch.arange(len(inside), device=inside.device)
    if undirected:
        first = torch.minimum(first, reverses(score.ends(), score.owner, score.edge_id))
    leads = first[inside].unique()
    leads = leads[score.edge_id[leads].argsort(stable=True)]
    number = torch.full_like(first, -1)
    number[leads] = torch.arange(len(leads), device=first.device)
    player = torch.where(inside, number[first], -1)  # [M]; −1: an edge that cannot matter, always on
    columns = [tuple(sorted(score.edge_id[player == one].tolist())) for one in range(len(leads))]
    named = tuple(one if undirected else one[0] for one in columns)

    def edges_of(sets: Tensor) -> Tensor:
        return sets[:, player.clamp(min=0)] | (player < 0) if len(leads) else sets.new_ones(len(sets), len(player))

    return _Game(named, score.edge_id[leads], CoalitionValues(score), edges_of)


def _node_game(score: Score) -> _Game:
    """The nodes that the target sees, apart from itself: an edge is on if both of its ends are."""
    ends = score.ends()
    own = score.index.to(ends.device) if score.task == "node" else ends.new_zeros(0)
    nodes = ends.view(-1).unique()
    nodes = nodes[~torch.isin(nodes, own)]
    always = torch.isin(ends, own)  # [2, M]
    place = torch.searchsorted(nodes, ends).clamp(max=max(len(nodes) - 1, 0))

    def edges_of(sets: Tensor) -> Tensor:
        if not len(nodes):
            return sets.new_ones(len(sets), ends.size(1))
        return (sets[:, place[0]] | always[0]) & (sets[:, place[1]] | always[1])

    return _Game(tuple(nodes.tolist()), nodes, CoalitionValues(score), edges_of)


# --- All coalitions, or drawn ones --------------------------------------------------------------------------------------


def _all(game: _Game, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(interactions, zeros, Shapley values) from the values of all 2^n coalitions; player i is bit i of their numbers."""
    sets = subsets(count, game.keys.device)
    value = game.values(sets) if count else torch.zeros(1, dtype=torch.double)
    size = sets.sum(dim=1)
    matrix = torch.zeros(count, count, dtype=torch.double, device=value.device)
    shapley = matrix.new_zeros(count)
    number = torch.arange(len(sets), device=value.device)
    single, pair = (_weights(count, less, value.device) for less in (1, 2))
    for i in range(count):
        without = number[~sets[:, i]]
        gain = value[without | (1 << i)] - value[without]  # [2^(n − 1)]: what i adds to every set without it
        shapley[i] = single[size[without]] @ gain
        if count > 1:
            rest = ~sets[without]  # the second difference: what j changes of what i adds
            of_set = torch.zeros_like(value)
            of_set[without] = gain
            for j in range(i + 1, count):
                base = without[rest[:, j]]
                matrix[i, j] = matrix[j, i] = pair[size[base]] @ (of_set[base | (1 << j)] - of_set[base])
    return matrix, torch.zeros_like(matrix), shapley


def _weights(count: int, less: int, device: torch.device) -> Tensor:
    """`[n]`: |T|! (n − |T| − less)! / (n − less + 1)!, for |T| from 0; 0 where there are no such sets."""
    total = max(count - less + 1, 0)
    found = [
        math.factorial(k) * math.factorial(count - k - less) / math.factorial(total) if k <= count - less else 0.0
        for k in range(count + 1)
    ]
    return torch.tensor(found, dtype=torch.double, device=device)


def _sampled(game: _Game, count: int, samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """(interactions, standard errors, Shapley values): means over sets T, those who come before a random moment.

    For a pair (i, j) the set is T without i and j, which is as likely as their joint player's predecessors in a random order. A
    sample runs T with none, one and two of its players switched: 1 + n + n (n − 1) / 2 coalitions.
    """
    device = game.keys.device
    first, second = torch.triu_indices(count, count, offset=1, device=device)
    ticks = torch.eye(count, dtype=torch.bool, device=device)
    switches = torch.cat([ticks[:1] & False, ticks, ticks[first] | ticks[second]])
    total = torch.zeros(len(first), dtype=torch.double, device=device)
    squares, shapley = torch.zeros_like(total), torch.zeros(count, dtype=torch.double, device=device)
    for sample in range(samples):
        drawn = _before(game, sample, seed)
        value = game.values(drawn ^ switches)
        none, one, two = value[:1], value[1 : count + 1], value[count + 1 :]
        sign = torch.where(drawn, -1.0, 1.0).double()  # switching who is in takes it out
        found = sign[first] * sign[second] * (two - one[first] - one[second] + none)
        total, squares = total + found, squares + found.square()
        shapley = shapley + sign * (one - none)
    mean = total / samples
    spread = ((squares / samples - mean.square()).clamp(min=0) / (samples - 1)).sqrt()
    matrix, error = torch.zeros(2, count, count, dtype=torch.double, device=device)
    matrix[first, second], error[first, second] = mean, spread
    return matrix + matrix.t(), error + error.t(), shapley / samples


def _before(game: _Game, sample: int, seed: int) -> Tensor:
    """`[n]`, bool: who comes before a random moment; drawn from the seed, the target, the sample and the player."""
    key, number = game.coalitions.score.key.to(game.keys.device), torch.tensor([sample], device=game.keys.device)
    moment = random_numbers.uniform(seed, key, number, torch.full_like(number, -1))
    return random_numbers.uniform(seed, key, number, game.keys) < moment
