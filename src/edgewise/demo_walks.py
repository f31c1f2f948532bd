"""The demo's table of walks: which search finds the true path, which finds the truly best walk, and how fast."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import edgewise as ew
from edgewise.datasets.infection import TrainedInfection
from edgewise.datasets.infection_walks import clear_nodes, is_true_path

SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
PUBLISHED = {"dag": "99.1%", "amp_ave_additive": "91.1%"}


@dataclass(frozen=True)
class SearchRow:
    """One search on all clear nodes."""

    search: str
    recovered: float
    """Share of nodes whose best walk is the true path."""
    maximal: float
    """Share of nodes whose best walk is truly the most relevant one."""
    milliseconds: float
    """For each target."""
    nodes: int


def compare_searches(trained: TrainedInfection, searches: Sequence[str] = SEARCHES) -> Iterator[SearchRow]:
    """Every search on the nodes with a clear true path; the explained class is the node's own."""
    graph, model = trained.graphs.test, trained.model
    index = clear_nodes(graph)
    exact = ew.walks(model, graph, index, target=graph.y[index])
    for search in searches:
        start = time.perf_counter()
        found = ew.walks(model, graph, index, target=graph.y[index], search=search)
        taken = time.perf_counter() - start
        right = [len(w) > 0 and is_true_path(graph, w.index, w[0].nodes) for w in found]
        best = [len(w) > 0 and _same(w[0], e[0]) for w, e in zip(found, exact, strict=True)]
        yield SearchRow(search, sum(right) / len(index), sum(best) / len(index), 1000 * taken / len(index), len(index))


def _same(walk: ew.Walk, best: ew.Walk) -> bool:
    return walk.nodes == best.nodes or (walk.neurons is None and walk.score >= best.score - 1e-9 * abs(best.score))


def walk_table(runs: Sequence[Sequence[SearchRow]]) -> list[str]:
    """As lines of text: the first run, and what the others (other seeds) recovered."""
    first, seeds = runs[0], len(runs)
    head = f"{'walk search':<18}{'true path':>10}{f'over {seeds} seeds':>22}{'paper':>9}{'truly best':>12}{'ms a target':>13}"
    lines = [head]
    for number, row in enumerate(first):
        shares = [run[number].recovered for run in runs]
        spread = f"{sum(shares) / seeds:.1%} ({min(shares):.1%}–{max(shares):.1%})"
        lines.append(
            f"{row.search:<18}{row.recovered:>10.1%}{spread:>22}{PUBLISHED.get(row.search, ''):>9}"
            f"{row.maximal:>12.1%}{row.milliseconds:>13.3f}"
        )
    note = f"On the {first[0].nodes} nodes with one infected node within their distance."
    return [*lines, f"{note} search='exact' proves its walks the best; the best need not be the true path."]
