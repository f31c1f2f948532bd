"""Is a claim of `ew.counterfactual` ever wrong? On the networks of the grid, every smaller set that searches find is tried.

    python -m benchmarks.flip_claims --data DIR --nodes 1000 --seconds 5 --workers 16 --limit 600 --out claims.jsonl

Nodes are drawn from all networks of `benchmarks.flip_grid` and asked for; open answers are left out. Where the answer is
"proven" with k units, or "none", the hooked model in float64 (not the lowered program of the proofs) is run
without all single units, all pairs, along greedy search and a beam of 16, with the units of ever more of a ranking, with random
sets, and with sets of k − 1 units whose units are swapped while the margin falls. None may change the prediction if it has
fewer than k units. Every line of the result is a node with its claim, the sets that were tried, and the size of a set that
contradicts the claim, or null.
"""

import argparse
import json
import random
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from benchmarks.flip_grid import networks, place_of, trained
from edgewise.counterfactuals.double_question import double_question
from edgewise.counterfactuals.question_goals import QuestionGoals
from edgewise.counterfactuals.set_answers import SilencedAnswers
from edgewise.question import pose

_PAIRS = 20_000
"""Pairs that are tried at most; of more, so many at random."""
_BEAM, _LONGEST, _RANDOM, _SWAPS = 16, 24, 2000, 12
_NODES = 200
"""Nodes of each network that are drawn from."""


class Attack:
    """Sets that might contradict a claim about one node: those with fewer than `size` units."""

    def __init__(self, model: Any, graph: Any, node: int, size: int | None, *, undirected: bool) -> None:
        question = double_question(pose(model, graph, [node]))
        self._answers = SilencedAnswers(question, 0, undirected=undirected)
        goal = QuestionGoals.of(question, None, None).goal(0)
        assert goal is not None
        self._goal, self._count = goal, self._answers.num_units
        self.size = self._count + 1 if size is None else size
        self._unit = torch.eye(self._count, dtype=torch.bool)
        self.tried = 0
        self.contradiction: int | None = None

    def run(self) -> None:
        """All searches in turn."""
        single = self._scores(self._unit)
        pairs = torch.combinations(torch.arange(self._count), 2)
        if len(pairs) > _PAIRS:
            pairs = pairs[torch.randperm(len(pairs))[:_PAIRS]]
        if self.size > 2:
            self._scores(self._unit[pairs].any(dim=1))
        self._scores(self._prefixes(single.argsort()))
        self._scores(torch.rand(_RANDOM, self._count) < torch.rand(_RANDOM, 1))
        for width in (1, _BEAM):
            best = self._beam(width)
        self._swap(best)

    def _prefixes(self, order: Tensor) -> Tensor:
        """`[U, U]`: the first units of a ranking, ever more of them."""
        sets = torch.zeros(self._count, self._count, dtype=torch.bool)
        sets[:, order] = torch.ones_like(sets).tril()
        return sets

    def _scores(self, sets: Tensor) -> Tensor:
        """How near each set is to a change; remembers a change that contradicts the claim."""
        found = []
        for part in sets.split(self._answers.at_once):
            margins = self._goal.margins(self._answers.outputs(part))
            verdict = self._goal.verdict(margins, self._answers.slack(self._goal))
            wrong = part[verdict == 1].sum(dim=1)
            wrong = wrong[wrong < self.size]
            if len(wrong):
                self.contradiction = int(wrong.min())
            found.append(self._goal.score(margins))
        self.tried += len(sets)
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.double)

    def _beam(self, width: int) -> Tensor:
        """Add one unit after the other to the best sets, until one more would be no contradiction; returns the best one."""
        states = torch.zeros(1, self._count, dtype=torch.bool)
        for _ in range(min(self.size - 1, _LONGEST, self._count)):
            row, unit = (~states).nonzero(as_tuple=True)
            grown = (states[row] | self._unit[unit]).unique(dim=0)
            states = grown[self._scores(grown).argsort()[:width]]
        return states[0]

    def _swap(self, best: Tensor) -> None:
        """Replace one unit by another while the margin falls."""
        last = torch.inf
        for _ in range(_SWAPS):
            inside, outside = best.nonzero().view(-1), (~best).nonzero().view(-1)
            pairs = torch.cartesian_prod(inside, outside)
            if len(pairs) == 0:
                return
            pairs = pairs[torch.randperm(len(pairs))[:_RANDOM]]
            sets = (best & ~self._unit[pairs[:, 0]]) | self._unit[pairs[:, 1]]
            scores = self._scores(sets)
            if float(scores.min()) >= last:
                return
            last, best = float(scores.min()), sets[int(scores.argmin())]


def attacked(piece: tuple[Any, ...]) -> list[Any] | None:
    """A claim, the sets that were tried against it, and the size of one that contradicts it; None: there is no claim."""
    number, place, options, store, start = piece
    model, graph, index = trained(number, options.data, store, _NODES)
    if place >= len(index) or time.time() - start > options.limit:
        return None
    torch.manual_seed(0)
    node, undirected = int(index[place]), not options.directed
    claim = ew.counterfactual(model, graph, node, undirected=undirected, seconds=options.seconds)
    assert isinstance(claim, ew.Counterfactual)
    if claim.status == "open":
        return None
    attack = Attack(model, graph, node, claim.size, undirected=undirected)
    attack.run()
    return [*place_of(number), node, claim.status, claim.size, attack.tried, attack.contradiction]


def main() -> None:
    """Ask, attack, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each node's claim")
    parser.add_argument("--directed", action="store_true", help="a unit for each column")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds after which no node is begun")
    parser.add_argument("--store", type=Path, help="a folder for trained networks")
    parser.add_argument("--out", type=Path, default=Path("flip_claims.jsonl"))
    options, start = parser.parse_args(), time.time()
    places = [(number, place) for number in range(len(networks())) for place in range(_NODES)]
    random.Random(1).shuffle(places)
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder, get_context("fork").Pool(options.workers) as pool:
        store = options.store or Path(folder)
        work = [(*one, options, store, start) for one in places[: options.nodes]]
        with options.out.open("w") as lines:
            for row in pool.imap_unordered(attacked, work):
                if row is not None:
                    rows.append(row)
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()  # a run that is stopped leaves what it has
    wrong = [row for row in rows if row[-1] is not None]
    print(f"{len(rows)} claims, {sum(row[-2] for row in rows):,} sets tried, {len(wrong)} contradicted")
    for row in wrong:
        print("contradicted:", row)


if __name__ == "__main__":
    main()
