"""The true top k walks of many targets, with a proof: branch and bound, all targets at once.

Prefixes are read from the explained node back. A prefix whose bound (its onward gradient against the sender's box) is below the
k-th best walk found so far cannot lead to a better one. A narrow beam finds good walks first; then everything that may still
matter is expanded, in batches that fit into memory.

Example: `edgewise.examples.triangle_model`, the best walk to node 2. The steps of node 2 in call 1 have the bounds 3 (from 0),
6 (from 1) and 0 (stay); `bounds.py` works them out.

    beam     keeps the two best bounds, 6 and 3, and follows them to the end: the walks (0, 1, 2) with 6, (0, 0, 2) with 3
    search   expands node 2 again; only the bound 6 reaches the best walk found, 6: the steps with 3 and 0 are left out
    search   expands (·, 1, 2) and finds (0, 1, 2) with 6 again; nothing waits any more, so 6 is proven
    bound    no walk that is not listed has more than 3, the largest bound that was left out (plus rounding)

Five prefixes are expanded: node 2 and two more by the beam, node 2 and one more by the search.

>>> import edgewise as ew
>>> from edgewise.examples import triangle_model
>>> model, data = triangle_model()
>>> found = ew.walks(model, data, 2, mode="regression", target=0)
>>> found[0].nodes, found[0].score, found.exact, round(found.upper_bound, 6), found.expansions
((0, 1, 2), 6.0, True, 3.0, 5)
"""

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.arrays import rank_in_group
from edgewise.walk.bounds import Box, reach, reach_of_steps
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front, Prefixes, joined, signed
from edgewise.walk.search.order import Incumbents, SearchResult, by_size, largest_of_each

_BEAM = 2  # prefixes that the beam keeps of each target, at least


class Search:
    """Branch and bound for T targets: what is expanded, and what a budget gives up.

    Args of the constructor: the network; its `boxes`; how many targets; `k`; `sign`; `budget`, how many prefixes of a target
    may be expanded (None: all that matter); `slack` `[T]`, what counts as zero; `at_once`, how many steps are looked at
    together; `is_over`, whether time is over (None: it never is). The beam is always followed to its end.

    `given_up` `[T]` is the largest bound that a budget left aside, `expansions` `[T]` how many prefixes were expanded.
    """

    def __init__(
        self, network: AnyNetwork, boxes: list[Box | None], num_targets: int, k: int, sign: str, budget: int | None,
        slack: Tensor, at_once: int, is_over: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        self.network, self.boxes, self.sign, self.budget, self.at_once = network, boxes, sign, budget, at_once
        self.is_over, self.may_end = is_over, budget is not None or is_over is not None
        self.best = Incumbents(k, sign, slack, network.num_calls + 1, repeats=self.may_end)
        self.given_up = torch.full_like(slack, -torch.inf)
        self.expansions = torch.zeros(num_targets, dtype=torch.long, device=slack.device)

    def run(self, roots: Prefixes) -> SearchResult:
        """Search from the explained nodes: the beam first, then everything that may still matter, depth first.

        A result is proven if nothing was given up, or only prefixes whose bound is below the k-th walk.
        """
        roots = Prefixes(roots.call, signed(roots.front, self.sign), roots.target, roots.bound, roots.nodes)
        if self.may_end:
            roots = self._bounded(roots)
        if roots.call > 0:
            self._beam(roots)
        waiting = [roots]
        while waiting:
            prefixes = self._still_wanted(waiting.pop())
            if len(prefixes):
                waiting += self._expand(prefixes)
        best = self.best
        upper = torch.maximum(best.left_out, self.given_up)
        proven = self.given_up + best.slack < best.worst - best.tolerance
        exact = proven | (self.given_up == -torch.inf)
        score = -best.score if self.sign == "negative" else best.score
        upper = (upper + best.slack).clamp(min=0)
        return SearchResult(best.target, score, best.nodes, upper, exact, self.expansions)

    def _children(self, prefixes: Prefixes) -> Prefixes | None:
        """All steps of some prefixes, with their bounds; in the first call the complete walks go to the incumbents.

        The children's gradients are those at the senders' states (`onward`); `_arrive` takes those that are wanted further.
        """
        network, call = self.network, prefixes.call
        parent, pair = network.children(call, prefixes.front.node)  # [n] each
        target, sender = prefixes.target[parent], network.geometry(call).sender[pair]
        self.expansions += torch.bincount(prefixes.target, minlength=len(self.expansions))
        if call == 0:
            self.best.add(target, network.scores(prefixes.front, parent, pair), prefixes.nodes, parent, sender)
            return None
        box = self.boxes[call]
        assert box is not None
        reached = box.reached[sender]
        if not bool(reached.all()):
            kept = reached.nonzero().view(-1)
            parent, pair, target, sender = parent[kept], pair[kept], target[kept], sender[kept]
        gradient = network.onward(call, prefixes.front, parent, pair)  # [n, state]
        bound = reach(box, gradient, sender, self.sign)  # [n]
        nodes = prefixes.nodes[parent]
        nodes[:, call] = sender
        return Prefixes(call, Front(sender, gradient, None), target, bound, nodes)

    def _bounded(self, roots: Prefixes) -> Prefixes:
        """The roots with what they can have at best, so that a budget that ends with them leaves a bound."""
        parent, key = reach_of_steps(self.network, self.boxes, roots.front, self.sign)
        bound = torch.full_like(roots.bound, -torch.inf).scatter_reduce_(0, parent, key, "amax")
        return Prefixes(roots.call, roots.front, roots.target, bound, roots.nodes)

    def _arrive(self, children: Prefixes) -> Prefixes:
        """Children as prefixes that wait before the call before: their gradients pass what happens at the nodes."""
        front = self.network.arrive(children.call, children.front.node, children.front.summed)
        return Prefixes(children.call - 1, front, children.target, children.bound, children.nodes)

    def _expand(self, prefixes: Prefixes) -> list[Prefixes]:
        """What is to be expanded next, last first: the children that may still matter, after them what did not fit."""
        part, *rest = self._parts(prefixes)
        waiting, children = rest[::-1], self._children(part)
        if children is not None and len(children):
            wanted = self.best.wanted(children.target, children.bound, children.nodes, children.call)
            self.best.leave_out(children.target[~wanted], children.bound[~wanted])
            kept = wanted.nonzero().view(-1)
            if len(kept):
                waiting.append(self._arrive(children.select(kept)))
        return waiting

    def _parts(self, prefixes: Prefixes) -> list[Prefixes]:
        """Prefixes in parts with about `at_once` steps each, every target's best bounds first.

        Then the first part serves all targets, and what it finds may make later parts superfluous.
        """
        start = self.network.geometry(prefixes.call).in_pairs.start
        count = (start[prefixes.front.node + 1] - start[prefixes.front.node]).cumsum(0)
        if len(count) == 0 or int(count[-1]) <= self.at_once:
            return [prefixes]
        order = by_size(prefixes.target, prefixes.bound)
        rank = rank_in_group(prefixes.target[order])
        prefixes = prefixes.select(order[rank.argsort(stable=True)])  # each target's best, then its second, …
        count = (start[prefixes.front.node + 1] - start[prefixes.front.node]).cumsum(0)
        part = (count - 1) // self.at_once  # [P]: the part of each prefix, rising
        sizes = torch.bincount(part)
        pieces = torch.arange(len(prefixes), device=count.device).split(sizes[sizes > 0].tolist())
        return [prefixes.select(piece) for piece in pieces]

    def _still_wanted(self, prefixes: Prefixes) -> Prefixes:
        """The prefixes that can still lead to one of the best walks, within the budget (best bounds first)."""
        wanted = self.best.wanted(prefixes.target, prefixes.bound, prefixes.nodes, prefixes.call + 1)
        if self.may_end:
            over = wanted & self._beyond(prefixes, wanted)
            self.given_up.scatter_reduce_(0, prefixes.target[over], prefixes.bound[over], "amax")
            wanted = wanted & ~over
        finite = ~wanted & torch.isfinite(prefixes.bound)
        self.best.leave_out(prefixes.target[finite], prefixes.bound[finite])
        return prefixes if bool(wanted.all()) else prefixes.select(wanted.nonzero().view(-1))

    def _beyond(self, prefixes: Prefixes, wanted: Tensor) -> Tensor:
        """`[P]`: which prefixes time or the budget no longer allows; of those that are `wanted` the best come first."""
        if self.is_over is not None and self.is_over():
            return torch.ones_like(wanted)
        if self.budget is None:
            return torch.zeros_like(wanted)
        order = by_size(prefixes.target, torch.where(wanted, prefixes.bound, -torch.inf))
        rank = torch.empty_like(order)
        rank[order] = rank_in_group(prefixes.target[order])
        return rank >= (self.budget - self.expansions)[prefixes.target]

    def _beam(self, roots: Prefixes) -> None:
        """Follow a few prefixes of each target with the highest bounds to the end, so that good walks are known early.

        The beam decides nothing: what it leaves out is forgotten, and where nothing ends the search its walks are found again.
        """
        width = max(_BEAM, self.best.k)
        if self.budget is not None:
            width = max(min(width, self.budget // (2 * self.network.num_calls)), 1)
            roots = roots.select(largest_of_each(roots.target, roots.bound, width))
        before, prefixes = self.best.left_out.clone(), roots
        while True:
            parts = [self._children(part) for part in self._parts(prefixes)]
            children = [part for part in parts if part is not None and len(part)]
            if not children:
                break
            kept = [part.select(largest_of_each(part.target, part.bound, width)) for part in children]
            together = kept[0] if len(kept) == 1 else joined(kept)
            prefixes = self._arrive(together.select(largest_of_each(together.target, together.bound, width)))
        self.best.left_out = before
        if not self.may_end:
            self.best.forget()
