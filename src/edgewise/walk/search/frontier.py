"""Walks under way."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.groups import rank_in_group
from edgewise.walk.calls import Front
from edgewise.walk.network import Network
from edgewise.walk.search.order import TIE, best


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Walks under way, all before the same call: whose they are, what they can reach at best, and where they went."""

    call: int
    front: Front
    target: Tensor
    bound: Tensor
    nodes: Tensor
    """`[P, L + 1]`; columns before `call + 1` are not filled yet."""

    def select(self, which: Tensor) -> "Prefixes":
        """Some of them."""
        front = self.front.select(which)
        return Prefixes(self.call, front, self.target[which], self.bound[which], self.nodes[which])

    def __len__(self) -> int:
        return len(self.target)


def starting(network: Network, front: Front, owner: Tensor) -> Prefixes:
    """Nothing but the explained nodes."""
    nodes = front.node.new_zeros(len(front), network.num_calls + 1)
    nodes[:, -1] = front.node
    bound = torch.full((len(front),), torch.inf, dtype=torch.double, device=nodes.device)
    return Prefixes(network.num_calls - 1, front, owner, bound, nodes)


def joined(parts: list[Prefixes]) -> Prefixes:
    """Those of several pieces, which nothing goes around yet."""
    fronts = [part.front for part in parts]
    front = Front(torch.cat([f.node for f in fronts]), torch.cat([f.summed for f in fronts]), None)
    columns = [torch.cat([getattr(part, name) for part in parts]) for name in ("target", "bound", "nodes")]
    return Prefixes(parts[0].call, front, *columns)


# --- The best walks that a search has found so far, and what can still be better ---------------------------------------


class BestSoFar:
    """The k best walks of every target, and a bound on what was left out. `repeats`: a walk may be found twice."""

    def __init__(self, k: int, sign: str, slack: Tensor, steps: int, *, repeats: bool) -> None:
        self.k, self.sign, self.slack, self._repeats = k, sign, slack, repeats
        device = slack.device
        self.target = torch.zeros(0, dtype=torch.long, device=device)
        self.key, self.score = (torch.zeros(0, dtype=torch.double, device=device) for _ in range(2))
        self.nodes = torch.zeros(0, steps, dtype=torch.long, device=device)
        self.worst = slack.clone()
        """`[T]`: the smallest key of the k best walks (tied ones are not ordered by key), or what counts as zero."""
        self.tolerance, self.last_tolerance = (torch.zeros_like(slack) for _ in range(2))
        """`[T]`: what is a tie, now and when the last of the k best was found; the best walk known only gets better."""
        self.full = torch.zeros(len(slack), dtype=torch.bool, device=device)
        self.last = torch.zeros(len(slack), steps, dtype=torch.long, device=device)
        self.left_out = torch.full_like(slack, -torch.inf)

    def wanted(self, target: Tensor, bound: Tensor, nodes: Tensor, filled: int) -> Tensor:
        """Whether prefixes can still lead to one of the best; columns of `nodes` from `filled` on are known."""
        worst, tolerance, slack = self.worst[target], self.tolerance[target], self.slack[target]
        wanted = (bound + slack >= worst - tolerance) & (bound > slack)
        tied = wanted & self.full[target] & (bound <= worst + self.last_tolerance[target])
        if bool(tied.any()):  # at best as good as the last of the best: then the order of nodes decides
            place = tied.nonzero().view(-1)
            late = _comes_later(nodes[place, filled:], self.last[target[place], filled:])
            wanted[place[late]] = False
        return wanted

    def leave_out(self, target: Tensor, bound: Tensor) -> None:
        """Walks that are not listed, or prefixes of such, and what they have at best."""
        self.left_out.scatter_reduce_(0, target, bound, "amax")

    def add(self, target: Tensor, score: Tensor, nodes: Tensor, parent: Tensor, source: Tensor) -> None:
        """Complete walks: `nodes[parent]` as far as they are known, and the sources."""
        key = score.abs() if self.sign == "magnitude" else score
        good = (key >= self.worst[target] - self.tolerance[target]) & (key > self.slack[target])
        self.leave_out(target[~good], key[~good])
        place = good.nonzero().view(-1)
        if len(place) == 0:
            return
        walks = nodes[parent[place]]
        walks[:, 0] = source[place]
        target, key, score = (torch.cat(both) for both in (
            (self.target, target[place]), (self.key, key[place]), (self.score, score[place])))  # fmt: skip
        walks = torch.cat([self.nodes, walks])
        if self._repeats:
            target, key, score, walks = _without_repeats(target, key, score, walks)
        order = best(target, key, walks, self.k, self.tolerance)
        rest = torch.ones_like(target, dtype=torch.bool)
        rest[order] = False
        self.leave_out(target[rest], key[rest])
        self.target, self.key, self.score, self.nodes = target[order], key[order], score[order], walks[order]
        self.tolerance.scatter_reduce_(0, self.target, TIE * self.key, "amax")
        last = rank_in_group(self.target) == self.k - 1
        full = self.target[last]
        smallest = torch.full_like(self.worst, torch.inf).scatter_reduce_(0, self.target, self.key, "amin")
        self.full[full] = True
        self.worst[full], self.last[full] = smallest[full], self.nodes[last]
        self.last_tolerance[full] = self.tolerance[full]

    def forget(self) -> None:
        """Drop the walks, not what is known about how good they are."""
        self.target, self.key, self.score, self.nodes = (
            column[:0] for column in (self.target, self.key, self.score, self.nodes)
        )


def _comes_later(nodes: Tensor, others: Tensor) -> Tensor:
    """Whether rows come after others, read from the last column back."""
    difference = (nodes - others).flip(1)
    first = (difference != 0).long().argmax(dim=1, keepdim=True)
    return difference.gather(1, first).view(-1) > 0


def _without_repeats(target: Tensor, key: Tensor, score: Tensor, walks: Tensor) -> tuple[Tensor, ...]:
    """The beam and the search may find the same walk."""
    rows, inverse = torch.unique(torch.cat([target.view(-1, 1), walks], dim=1), dim=0, return_inverse=True)
    if len(rows) == len(target):
        return target, key, score, walks
    place = torch.zeros(len(rows), dtype=torch.long, device=target.device)
    place[inverse] = torch.arange(len(target), device=target.device)
    return target[place], key[place], score[place], walks[place]
