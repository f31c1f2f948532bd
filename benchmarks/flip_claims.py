"""Is a claim of `ew.counterfactual` ever wrong? On the networks of the grid, every smaller set that searches find is tried.

    python -m benchmarks.flip_claims --data DIR --nodes 1150 --seconds 2 --workers 1 --store NETWORKS --out claims.jsonl

Nodes are drawn from all networks of `benchmarks.flip_grid` and asked for; nothing can be wrong about open answers. Where the
answer is "proven" with k units, or "none", PyG's own network is run in float64, with hooks that weight its messages, in place
of the lowered program of the proofs: with the claimed set, which has to change the prediction, and with sets of fewer than k
units, which may not: all single units, ever more of a ranking, random sets, greedy search, a beam, swaps while the margin
falls, and all pairs, as far as `--pairs` seconds go. No set is tried twice. Every line of the result is a node with its
claim, the number of units, the sets that were tried, whether all pairs were among them, and the size of a set that
contradicts the claim, or null. A run goes on where the lines of an earlier one end.
"""

import argparse
import copy
import json
import random
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

import edgewise as ew
from benchmarks.flip_grid import networks, place_of, trained
from edgewise.counterfactuals.allowance import processor_time
from edgewise.counterfactuals.double_question import double_question
from edgewise.counterfactuals.question_goals import QuestionGoals
from edgewise.counterfactuals.set_answers import SilencedAnswers
from edgewise.question import pose
from edgewise.score import Score

_PAIRS = 500
"""Pairs that are tried between two looks at the clock."""
_BEAM, _GROWN, _LONGEST, _RANDOM, _SWAPS = 8, 16, 12, 300, 6
_NODES = 200
"""Nodes of each network that are drawn from."""


class Attack:
    """Sets that might contradict a claim about one node: those with fewer than `size` units (None: any number)."""

    def __init__(self, model: Any, graph: Any, node: int, size: int | None, layers: int, *, undirected: bool) -> None:
        model, part, self._column = surroundings(model, graph, node, layers)
        question: Any = double_question(pose(model, part, [int(part.place)]))
        question.node_model.lowering = None  # from now on the model itself is run
        assert Score.of_block(question, torch.tensor([0])).way == "copies"
        self._answers = SilencedAnswers(question, 0, undirected=undirected)
        goal = QuestionGoals.of(question, None, None).goal(0)
        assert goal is not None
        self._goal, self.count = goal, self._answers.num_units
        self.size = self.count + 1 if size is None else size
        self._unit = torch.eye(self.count, dtype=torch.bool)
        self._known: dict[bytes, float] = {}
        self.contradiction: int | None = None
        self.all_pairs = True

    @property
    def tried(self) -> int:
        """How many sets were run."""
        return len(self._known)

    def run(self, claimed: tuple[int, ...] | None, seconds: float) -> None:
        """The claimed set of columns, then all searches in turn; pairs for some seconds of processor time."""
        if claimed is not None:
            units = torch.zeros(1, self.count, dtype=torch.bool)
            columns = self._column[list(claimed)]
            known = self._answers.units  # the way back of an edge may have no way to the node
            units[0, known.unit_of(columns[torch.isin(columns, known.column)])] = True
            if int(self._verdicts(units)[0]) != 1:
                self.contradiction = self.size
        if self.size < 2 or self.count == 0:  # smaller than one unit is the model itself
            return
        single = self._scores(self._unit)
        self._scores(self._prefixes(single.argsort()))
        self._scores(torch.rand(_RANDOM, self.count) < torch.rand(_RANDOM, 1))
        for width in (1, _BEAM):
            best = self._beam(width)
        self._swap(best)
        if self.size > 2:
            self._pairs(seconds)

    def _pairs(self, seconds: float) -> None:
        """All pairs, in random order, as far as the time goes."""
        begin, pairs = time.process_time(), torch.combinations(torch.arange(self.count), 2)
        for part in pairs[torch.randperm(len(pairs))].split(_PAIRS):
            if time.process_time() - begin > seconds:
                self.all_pairs = False
                return
            self._scores(self._unit[part].any(dim=1))

    def _prefixes(self, order: Tensor) -> Tensor:
        """`[U, U]`: the first units of a ranking, ever more of them."""
        sets = torch.zeros(self.count, self.count, dtype=torch.bool)
        sets[:, order] = torch.ones_like(sets).tril()
        return sets

    def _verdicts(self, sets: Tensor) -> Tensor:
        """1 for a changed prediction; remembers how near each set is to one, or how far beyond."""
        found = []
        for part in sets.split(self._answers.at_once):
            margins = self._goal.margins(self._answers.outputs(part))
            found.append(self._goal.verdict(margins, self._answers.slack(self._goal)))
            scores = self._goal.score(margins).tolist()
            self._known |= {_key(one): score for one, score in zip(part, scores, strict=True)}
        return torch.cat(found)

    def _scores(self, sets: Tensor) -> Tensor:
        """How near each set is to a change, ∞ for sets that cannot contradict; remembers a change that does."""
        small = sets[sets.sum(dim=1) < self.size]
        different = {_key(one): one for one in small}
        new = [one for key, one in different.items() if key not in self._known]
        if new:
            rows = torch.stack(new)
            wrong = rows[self._verdicts(rows) == 1].sum(dim=1)
            if len(wrong):
                self.contradiction = min(int(wrong.min()), self.contradiction or self.count + 1)
        return torch.tensor([self._known.get(_key(one), torch.inf) for one in sets], dtype=torch.double)

    def _beam(self, width: int) -> Tensor:
        """Add one unit after the other to the best sets, until one more would be no contradiction; returns the best one.

        A wide beam grows each set by the units that are best alone.
        """
        states = torch.zeros(1, self.count, dtype=torch.bool)
        order = self._scores(self._unit).argsort()
        for _ in range(min(self.size - 1, _LONGEST, self.count)):
            free = ~states
            if width > 1:
                free[:, order] &= free[:, order].cumsum(dim=1) <= _GROWN
            row, unit = free.nonzero(as_tuple=True)
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


@torch.no_grad()
def surroundings(model: Any, graph: Any, node: int, layers: int) -> tuple[Any, Data, Tensor]:
    """A network in float64 on the nodes around one, and `[E]`: the columns of that graph. `place` is the node there.

    There is a hop more than there are layers, so that degrees are right. Thousands of words would take most of the time of a
    run: what the first matrices make of them is worked out once, and put in their place.
    """
    ends = graph.edge_index
    nodes, inside, place, kept = k_hop_subgraph(node, layers + 1, ends, relabel_nodes=True, num_nodes=graph.num_nodes)
    x, small = graph.x[nodes].double(), copy.deepcopy(model).double()
    first = [one for one in small.parameters() if one.dim() == 2 and one.size(1) == x.size(1)]
    if sum(map(len, first)) < x.size(1):
        x = x @ torch.cat([one.data for one in first]).t()
        for one, rows in zip(
            first, torch.eye(x.size(1), dtype=x.dtype).split([len(one) for one in first]), strict=True
        ):
            one.data = rows.clone()
    part = Data(x=x, edge_index=inside, place=place)
    torch.testing.assert_close(
        small(part.x, inside)[place], model(graph.x, ends)[[node]].double(), rtol=1e-4, atol=1e-4
    )
    return small, part, kept.cumsum(0) - 1


def _key(one: Tensor) -> bytes:
    """A set of units, as it is remembered."""
    found: bytes = one.numpy().tobytes()
    return found


def attacked(piece: tuple[Any, ...]) -> list[Any] | None:
    """A claim, the sets that were tried against it, and the size of one that contradicts it; None: it was too late to ask."""
    number, place, options, store, start = piece
    model, graph, index = trained(number, options.data, store, _NODES)
    if place >= len(index) or time.time() - start > options.limit:
        return None
    torch.manual_seed(0)
    node, undirected = int(index[place]), not options.directed
    with processor_time():
        claim = ew.counterfactual(model, graph, node, undirected=undirected, seconds=options.seconds)
    assert isinstance(claim, ew.Counterfactual)
    found = [number, place, *place_of(number), node, claim.status, claim.size]
    if claim.status == "open":
        return [*found, claim.num_units, 0, False, None]
    attack = Attack(model, graph, node, claim.size, networks()[number]["layers"], undirected=undirected)
    attack.run(claim.edges if claim.status == "proven" else None, options.pairs)
    return [*found, attack.count, attack.tried, attack.all_pairs, attack.contradiction]


def main() -> None:
    """Ask, attack, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each node's claim")
    parser.add_argument("--pairs", type=float, default=5.0, help="seconds for the pairs of units of each claim")
    parser.add_argument("--directed", action="store_true", help="a unit for each column")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds after which no node is begun")
    parser.add_argument("--store", type=Path, help="a folder for trained networks")
    parser.add_argument("--out", type=Path, default=Path("flip_claims.jsonl"))
    options, start = parser.parse_args(), time.time()
    places = [(number, place) for number in range(len(networks())) for place in range(_NODES)]
    random.Random(1).shuffle(places)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    asked = {tuple(row[:2]) for row in rows}
    with tempfile.TemporaryDirectory() as folder, get_context("fork").Pool(options.workers) as pool:
        store = options.store or Path(folder)
        work = [(*one, options, store, start) for one in places[: options.nodes] if one not in asked]
        with options.out.open("a") as lines:
            for row in pool.imap_unordered(attacked, work):
                if row is not None:
                    rows.append(row)
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()  # a run that is stopped leaves what it has
    claims = [row for row in rows if row[7] != "open"]
    wrong = [row for row in claims if row[-1] is not None]
    tried, complete = sum(row[-3] for row in claims), sum(row[-2] for row in claims)
    print(f"{len(claims)} claims, {tried:,} sets tried, all pairs of {complete}, {len(wrong)} contradicted")
    for row in wrong:
        print("contradicted:", row)


if __name__ == "__main__":
    main()
