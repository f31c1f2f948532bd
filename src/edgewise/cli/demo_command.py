"""`edgewise demo`: train a model on Infection, explain its nodes with every method, compare, save, draw.

Two tables: how fast the methods are and how much they agree (`ew.compare`), and which walk search finds the path along which
the infection travelled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.guard import guarded
from edgewise.text import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import edgewise as ew
    from edgewise.datasets.infection import TrainedInfection

EPILOG = """Example:

edgewise demo --nodes 100 --out demo-output"""

LEFT_OUT = ("shapley", "degree", "subgraphx")
"""Passes for every edge, or many for every node, take longer than everything else together."""
REFERENCES = ("positive_gradient", "occlusion")
"""The methods that the others are compared with."""
WALK_SEEDS = 5
"""Models that the walk searches are tried on, each with its own graphs."""
SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
PUBLISHED = {"dag": "99.1%", "amp_ave_additive": "91.1%"}
"""Shares of true paths found, as published."""
DRAWN_CLASS = 3
"""The picture shows a node this many steps from an infection."""


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the results and the picture.")] = Path("demo-output"),
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="How many nodes of the test graph.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the graphs and the training.", min=0, max=2**31)] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a model on Infection, explain its nodes with every method at both levels, compare, save, and draw one node."""
    with guarded(debug=debug):
        run(out, nodes, seed)


def run(out: Path, nodes: int, seed: int) -> None:
    """Train, compare, search, save and draw, and say on stdout what came out.

    Args:
        out: Folder for `gradient-input.npz` and `infection.png`; it is made if it is not there.
        nodes: How many nodes of the test graph are explained: the first ones.
        seed: Of the graphs and the training; the walk searches are tried on the seeds that follow it too.
    """
    import edgewise as ew
    from edgewise.datasets import infection_model
    from edgewise.random_numbers import one_thread

    out.mkdir(parents=True, exist_ok=True)
    with one_thread():
        start = time.perf_counter()
        trained = infection_model(seed)
        typer.echo(
            f"Infection: trained in {time.perf_counter() - start:.1f} s, test accuracy {trained.test_accuracy:.1%}"
        )
        methods = [name for name in ew.methods() if name not in LEFT_OUT]
        found = ew.compare(trained.model, trained.graphs.test, range(nodes), methods=methods, progress=True)
        typer.echo(f"\n{_method_table(found)}")
        others = (infection_model(seed + more) for more in range(1, WALK_SEEDS))
        typer.echo(f"\n{_walk_table([list(compare_searches(one)) for one in chain([trained], others)])}")
        why = ew.explain(trained.model, trained.graphs.test, range(nodes))
        assert isinstance(why, ew.ExplanationSet)  # a range was asked for
        why.save(out / "gradient-input.npz")
        _draw_one(trained, why, out / "infection.png")
    typer.echo(
        f"\nSaved in {out}: gradient-input.npz (all explanations) and the picture infection.png. To read it again:"
    )
    typer.echo(f"  edgewise.load({str(out / 'gradient-input.npz')!r})")


def _method_table(found: ew.Comparison) -> str:
    """A row for every method and level that ran: seconds, and the cosine to each of `REFERENCES`."""
    rows = [("method", "level", "seconds", *(f"cosine to {name}" for name in REFERENCES))]
    for one in found.running:
        if not one.absent:
            cosines = [found.pair(one.method, name, "cosine", one.level) for name in REFERENCES]
            cells = [f"{c.mean:.4f} ({c.value.numel() - c.defined} undefined)" for c in cosines]
            rows.append((one.method, one.level, f"{one.seconds:.2f}", *cells))
    return "\n".join(
        [
            columns(rows),
            "Cosines: means over the nodes, at the same level; undefined where all scores of one method are zero.",
            f"Not run, because it takes minutes here: {', '.join(LEFT_OUT)}.",
        ]
    )


def _draw_one(trained: TrainedInfection, shown: ew.ExplanationSet, path: Path) -> None:
    """Draw a node three steps from its only infection: the picture should show that path."""
    from edgewise.datasets import infection_paths
    from edgewise.report import draw

    graph = trained.graphs.test
    clear = [why for why in shown if why.target == DRAWN_CLASS and len(infection_paths(graph, why.index)) == 1]
    infected = graph.x[:, 1].nonzero().flatten().tolist()
    draw((clear or shown)[0], marked={"infected": infected}).savefig(path)


# --- Walks: which search finds the true path, which finds the truly best walk, and how fast ----------------------------


@dataclass(frozen=True)
class SearchRow:
    """How one search did on all nodes with a clear true path."""

    search: str
    recovered: float
    """Share of nodes whose best walk is the true path."""
    maximal: float
    """Share of nodes whose best walk is truly the most relevant one."""
    milliseconds: float
    """Time for each target."""
    nodes: int
    """How many nodes it was tried on."""


def compare_searches(trained: TrainedInfection, searches: Sequence[str] = SEARCHES) -> Iterator[SearchRow]:
    """Try every search on the nodes with a clear true path, and time it.

    The explained class is the node's own. A walk counts as truly best if the exact search, which proves its walks, found
    nothing better.
    """
    import edgewise as ew
    from edgewise.datasets.infection import clear_nodes, is_true_path

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
    """Whether a walk is the best one, or ties with it; walks of neurons have another score and are compared by nodes."""
    return walk.nodes == best.nodes or (walk.neurons is None and walk.score >= best.score - 1e-9 * abs(best.score))


def _walk_table(runs: Sequence[Sequence[SearchRow]]) -> str:
    """A row for every search: the first run, and over all runs (other seeds) the share of true paths found."""
    first, seeds = runs[0], len(runs)
    rows = [("walk search", "true path", f"over {seeds} seeds", "paper", "truly best", "ms per target")]
    for number, row in enumerate(first):
        shares = [run[number].recovered for run in runs]
        spread = f"{sum(shares) / seeds:.1%} ({min(shares):.1%}–{max(shares):.1%})"
        published = PUBLISHED.get(row.search, "")
        rows.append(
            (row.search, f"{row.recovered:.1%}", spread, published, f"{row.maximal:.1%}", f"{row.milliseconds:.3f}")
        )
    note = f"On the {first[0].nodes} nodes with one infected node within their distance."
    proof = "The exact search proves that its walks are the best; the best walk need not be the true path."
    return f"{columns(rows)}\n{note} {proof}"
