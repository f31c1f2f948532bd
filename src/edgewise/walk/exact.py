"""The true top k walks of many targets, with a proof: branch and bound, all targets at once.

Prefixes are read from the explained node back. A prefix whose bound (its onward gradient against the sender's box) is below the
k-th best walk found so far cannot lead to a better one. A narrow beam finds good walks first; then everything that may still
matter is expanded, in batches that fit into memory.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.walk.bounds import Box
from edgewise.walk.front import Front
from edgewise.walk.network import Network
from edgewise.walk.ordering import TIE, best, by_size, rank_in_group

_BEAM = 2
SIGNS = ("positive", "negative", "magnitude")


@dataclass(frozen=True, eq=False)
class Found:
    """Walks of many targets: ordered by target, best first; and for each target what is known about the others."""

    target: Tensor
    score: Tensor
    nodes: Tensor
    upper_bound: Tensor
    exact: Tensor
    expansions: Tensor
    neurons: Tensor | None = None


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


def rounding(network: Network, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int) -> Tensor:
    """`[T]`: how large rounding errors of a walk's score can be; a score below it is zero."""
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    sender = network.geometry(call).sender[pair]
    box = boxes[call]
    if box is None:
        size = network.scores(front, parent, pair).abs()
    else:
        size = box.most(network.onward(call, front, parent, pair), sender)
    largest = size.new_zeros(num_targets).scatter_reduce_(0, owner[parent], size, "amax")
    width = max(network.width(c) for c in range(network.num_calls))
    return 4 * network.num_calls * (width + 2) * 2.0**-53 * largest


class Search:
    """The best walks found so far, and what was left out."""

    def __init__(
        self, network: Network, boxes: list[Box | None], num_targets: int, k: int, sign: str, budget: int | None,
        slack: Tensor, at_once: int,
    ) -> None:  # fmt: skip
        self.network, self.boxes, self.k, self.sign, self.budget, self.at_once = (
            network,
            boxes,
            k,
            sign,
            budget,
            at_once,
        )
        device, steps = slack.device, network.num_calls + 1
        self.slack = slack
        self.target = torch.zeros(0, dtype=torch.long, device=device)
        self.key, self.score = (torch.zeros(0, dtype=torch.double, device=device) for _ in range(2))
        self.nodes = torch.zeros(0, steps, dtype=torch.long, device=device)
        self.worst = slack.clone()
        """`[T]`: the smallest key of the k best walks (tied ones are not ordered by key), or what counts as zero."""
        self.tolerance, self.last_tolerance = (torch.zeros_like(slack) for _ in range(2))
        """`[T]`: what is a tie, now and when the last of the k best was found; the best walk known only gets better."""
        self.full = torch.zeros(num_targets, dtype=torch.bool, device=device)
        self.last = torch.zeros(num_targets, steps, dtype=torch.long, device=device)
        self.left_out, self.given_up = (torch.full_like(slack, -torch.inf) for _ in range(2))
        self.expansions = torch.zeros(num_targets, dtype=torch.long, device=device)

    def run(self, roots: Prefixes) -> Found:
        """Beam first, then all that may matter."""
        if self.sign == "negative":
            around = None if roots.front.around is None else -roots.front.around
            front = Front(roots.front.node, -roots.front.summed, around)
            roots = Prefixes(roots.call, front, roots.target, roots.bound, roots.nodes)
        if self.budget is not None:
            roots = self._bounded(roots)
        if roots.call > 0:
            self._beam(roots)
        waiting = [roots]
        while waiting:
            prefixes = self._still_wanted(waiting.pop())
            if len(prefixes):
                waiting += self._expand(prefixes)
        upper = torch.maximum(self.left_out, self.given_up)
        proven = self.given_up + self.slack < self.worst - self.tolerance
        exact = proven | (self.given_up == -torch.inf)
        score = -self.score if self.sign == "negative" else self.score
        upper = (upper + self.slack).clamp(min=0)
        return Found(self.target, score, self.nodes, upper, exact, self.expansions)

    # --- one step -----------------------------------------------------------------------------------------------------

    def _children(self, prefixes: Prefixes) -> Prefixes | None:
        """All steps of some prefixes; complete walks are put among the best."""
        network, call = self.network, prefixes.call
        parent, pair = network.children(call, prefixes.front.node)
        target, sender = prefixes.target[parent], network.geometry(call).sender[pair]
        self.expansions += torch.bincount(prefixes.target, minlength=len(self.expansions))
        if call == 0:
            self._complete(target, network.scores(prefixes.front, parent, pair), prefixes.nodes, parent, sender)
            return None
        box = self.boxes[call]
        assert box is not None
        reached = box.reached[sender]
        if not bool(reached.all()):
            kept = reached.nonzero().view(-1)
            parent, pair, target, sender = parent[kept], pair[kept], target[kept], sender[kept]
        gradient = network.onward(call, prefixes.front, parent, pair)
        bound = self._reach(box, gradient, sender)
        nodes = prefixes.nodes[parent]
        nodes[:, call] = sender
        return Prefixes(call, Front(sender, gradient, None), target, bound, nodes)  # not yet before call − 1: `_arrive`

    def _reach(self, box: Box, gradient: Tensor, node: Tensor) -> Tensor:
        """What walks that go on from some nodes can have at best, in the searched order."""
        bound = box.upper(gradient, node)
        return torch.maximum(bound, box.upper(-gradient, node)) if self.sign == "magnitude" else bound

    def _bounded(self, roots: Prefixes) -> Prefixes:
        """The roots with what they can have at best, so that a budget that ends with them leaves a bound."""
        network, call, box = self.network, roots.call, self.boxes[roots.call]
        parent, pair = network.children(call, roots.front.node)
        if box is None:
            key = network.scores(roots.front, parent, pair)
            key = key.abs() if self.sign == "magnitude" else key
        else:
            gradient = network.onward(call, roots.front, parent, pair)
            key = self._reach(box, gradient, network.geometry(call).sender[pair])
        bound = torch.full_like(roots.bound, -torch.inf).scatter_reduce_(0, parent, key, "amax")
        return Prefixes(call, roots.front, roots.target, bound, roots.nodes)

    def _arrive(self, children: Prefixes) -> Prefixes:
        front = self.network.arrive(children.call, children.front.node, children.front.summed)
        return Prefixes(children.call - 1, front, children.target, children.bound, children.nodes)

    def _expand(self, prefixes: Prefixes) -> list[Prefixes]:
        """What is to be expanded next, last first: the children that may still matter, after them what did not fit."""
        part, *rest = self._parts(prefixes)
        waiting, children = rest[::-1], self._children(part)
        if children is not None and len(children):
            wanted = self._wanted(children.target, children.bound, children.nodes, children.call)
            self._leave_out(children.target[~wanted], children.bound[~wanted])
            kept = wanted.nonzero().view(-1)
            if len(kept):
                waiting.append(self._arrive(children.select(kept)))
        return waiting

    def _parts(self, prefixes: Prefixes) -> list[Prefixes]:
        start = self.network.geometry(prefixes.call).in_pairs.start
        count = (start[prefixes.front.node + 1] - start[prefixes.front.node]).cumsum(0)
        if len(count) == 0 or int(count[-1]) <= self.at_once:
            return [prefixes]
        order = rank_in_group(prefixes.target[by_size(prefixes.target, prefixes.bound)])
        first = by_size(prefixes.target, prefixes.bound)[
            order.argsort(stable=True)
        ]  # everyone's best, then everyone's second
        prefixes = prefixes.select(first)
        count = (start[prefixes.front.node + 1] - start[prefixes.front.node]).cumsum(0)
        part = (count - 1) // self.at_once
        sizes = torch.bincount(part)
        pieces = torch.arange(len(prefixes), device=count.device).split(sizes[sizes > 0].tolist())
        return [prefixes.select(piece) for piece in pieces]

    # --- what still matters -------------------------------------------------------------------------------------------

    def _wanted(self, target: Tensor, bound: Tensor, nodes: Tensor, filled: int) -> Tensor:
        """Whether prefixes can still lead to one of the best; columns of `nodes` from `filled` on are known."""
        worst, tolerance, slack = self.worst[target], self.tolerance[target], self.slack[target]
        wanted = (bound + slack >= worst - tolerance) & (bound > slack)
        tied = wanted & self.full[target] & (bound <= worst + self.last_tolerance[target])
        if bool(tied.any()):  # at best as good as the last of the best: then the order of nodes decides
            place = tied.nonzero().view(-1)
            late = _comes_later(nodes[place, filled:], self.last[target[place], filled:])
            wanted[place[late]] = False
        return wanted

    def _still_wanted(self, prefixes: Prefixes) -> Prefixes:
        """Without those that were decided meanwhile, and within the budget."""
        wanted = self._wanted(prefixes.target, prefixes.bound, prefixes.nodes, prefixes.call + 1)
        if self.budget is not None:
            order = by_size(prefixes.target, torch.where(wanted, prefixes.bound, -torch.inf))
            rank = torch.empty_like(order)
            rank[order] = rank_in_group(prefixes.target[order])
            over = wanted & (rank >= (self.budget - self.expansions)[prefixes.target])
            self.given_up.scatter_reduce_(0, prefixes.target[over], prefixes.bound[over], "amax")
            wanted = wanted & ~over
        finite = ~wanted & torch.isfinite(prefixes.bound)
        self._leave_out(prefixes.target[finite], prefixes.bound[finite])
        return prefixes if bool(wanted.all()) else prefixes.select(wanted.nonzero().view(-1))

    def _leave_out(self, target: Tensor, bound: Tensor) -> None:
        self.left_out.scatter_reduce_(0, target, bound, "amax")

    # --- what was found -----------------------------------------------------------------------------------------------

    def _complete(self, target: Tensor, score: Tensor, nodes: Tensor, parent: Tensor, source: Tensor) -> None:
        key = score.abs() if self.sign == "magnitude" else score
        good = (key >= self.worst[target] - self.tolerance[target]) & (key > self.slack[target])
        self._leave_out(target[~good], key[~good])
        place = good.nonzero().view(-1)
        if len(place) == 0:
            return
        walks = nodes[parent[place]]
        walks[:, 0] = source[place]
        target, key, score = (torch.cat(both) for both in (
            (self.target, target[place]), (self.key, key[place]), (self.score, score[place])))  # fmt: skip
        walks = torch.cat([self.nodes, walks])
        if self.budget is not None:
            target, key, score, walks = _without_repeats(target, key, score, walks)
        order = best(target, key, walks, self.k, self.tolerance)
        rest = torch.ones_like(target, dtype=torch.bool)
        rest[order] = False
        self._leave_out(target[rest], key[rest])
        self.target, self.key, self.score, self.nodes = target[order], key[order], score[order], walks[order]
        self.tolerance.scatter_reduce_(0, self.target, TIE * self.key, "amax")
        last = rank_in_group(self.target) == self.k - 1
        full = self.target[last]
        smallest = torch.full_like(self.worst, torch.inf).scatter_reduce_(0, self.target, self.key, "amin")
        self.full[full] = True
        self.worst[full], self.last[full] = smallest[full], self.nodes[last]
        self.last_tolerance[full] = self.tolerance[full]

    def _beam(self, roots: Prefixes) -> None:
        """A few prefixes with the highest bounds, to the end."""
        width = max(_BEAM, self.k)
        if self.budget is not None:
            width = max(min(width, self.budget // (2 * self.network.num_calls)), 1)
            roots = roots.select(_few(roots.target, roots.bound, width))
        before, prefixes = self.left_out.clone(), roots
        while True:
            parts = [self._children(part) for part in self._parts(prefixes)]
            children = [part for part in parts if part is not None and len(part)]
            if not children:
                break
            kept = [part.select(_few(part.target, part.bound, width)) for part in children]
            joined = kept[0] if len(kept) == 1 else _join(kept)
            prefixes = self._arrive(joined.select(_few(joined.target, joined.bound, width)))
        self.left_out = before  # the beam decides nothing: all of this is gone through again
        if self.budget is None:
            self.target, self.key, self.score, self.nodes = (
                column[:0] for column in (self.target, self.key, self.score, self.nodes)
            )


def _few(target: Tensor, bound: Tensor, width: int) -> Tensor:
    order = by_size(target, bound)
    return order[rank_in_group(target[order]) < width]


def _join(parts: list[Prefixes]) -> Prefixes:
    fronts = [part.front for part in parts]
    front = Front(torch.cat([f.node for f in fronts]), torch.cat([f.summed for f in fronts]), None)
    columns = [torch.cat([getattr(part, name) for part in parts]) for name in ("target", "bound", "nodes")]
    return Prefixes(parts[0].call, front, *columns)


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
