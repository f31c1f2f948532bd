"""`edgewise demo`: train a model on Infection, explain its nodes, write a page about some of them.

With `--full` two tables: how fast the methods are and how much they agree (`ew.compare`), and which walk search finds the path
along which the infection travelled.
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
    out: Annotated[Path, typer.Option(help="Folder for the results, the picture and the page.")] = Path("demo-output"),
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="How many nodes of the test graph.")] = 1000,
    full: Annotated[
        bool, typer.Option("--full", help="Also compare every method and every walk search; that takes minutes.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the graphs and the training.", min=0, max=2**31)] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a small model, explain a thousand of its nodes, and write a page that says why for some of them."""
    with guarded(debug=debug):
        typer.echo(
            "Edgewise demo: people in a network, some of them infected; a model learns how far each is from an infection."
        )
        run(out, nodes, seed, full=full)


def run(out: Path, nodes: int, seed: int, *, full: bool = False) -> None:
    """Train, explain, save and draw, and say on stdout what is going on.

    Args:
        out: Folder for `gradient.npz`, `infection.png` and `why.html`; it is made if it is not there.
        nodes: How many nodes of the test graph are explained: the first ones.
        seed: Of the graphs and the training; the walk searches are tried on the seeds that follow it too.
        full: Whether every method and every walk search is compared.
    """
    typer.echo("1. Training (a few seconds, the first time a little more) ...")
    from edgewise.datasets import infection_model
    from edgewise.random_numbers import one_thread

    out.mkdir(parents=True, exist_ok=True)
    with one_thread():
        start = time.perf_counter()
        trained = infection_model(seed)
        typer.echo(f"   done in {time.perf_counter() - start:.1f} s, test accuracy {trained.test_accuracy:.1%}")
        why = _explained(trained, nodes)
        why.save(out / "gradient.npz")
        drawn = _clear_one(trained, why)
        _draw_one(trained, drawn, out / "infection.png")
        if full:
            _compare_all(trained, nodes, seed)
        typer.echo("3. Writing a page about three of them: five methods, walks, checks, what would change it ...")
        _write_page(trained, [drawn, *(one for one in why[:3] if one.index != drawn.index)][:3], out / "why.html")
    typer.echo(f"   Also in {out}: infection.png, and gradient.npz, which ew.load reads.")
    typer.echo(f"\nOpen this: {(out / 'why.html').resolve()}")


def _explained(trained: TrainedInfection, nodes: int) -> ew.ExplanationSet:
    """Explain the nodes with two methods, and say how long it took and how far they agree."""
    import edgewise as ew

    found = {}
    typer.echo(f"2. Explaining {nodes} nodes, every edge that can reach each of them ...")
    for method in ("gradient", "occlusion"):
        start = time.perf_counter()
        found[method] = ew.explain(trained.model, trained.graphs.test, range(nodes), method=method)
        typer.echo(f"   {method}: {time.perf_counter() - start:.1f} s")
    cosines = ew.similarity(found["gradient"], found["occlusion"])
    typer.echo(f"   they agree: mean cosine {float(cosines[~cosines.isnan()].mean()):.3f}")
    assert isinstance(found["gradient"], ew.ExplanationSet)  # a range was asked for
    return found["gradient"]


def _compare_all(trained: TrainedInfection, nodes: int, seed: int) -> None:
    """Print two tables: how fast the methods are and how much they agree, and which walk search finds the true path."""
    import edgewise as ew
    from edgewise.datasets import infection_model

    typer.echo("   Comparing every method at both levels (minutes) ...")
    methods = [name for name in ew.methods() if name not in LEFT_OUT]
    found = ew.compare(trained.model, trained.graphs.test, range(nodes), methods=methods, progress=True)
    typer.echo(f"\n{_method_table(found)}")
    others = (infection_model(seed + more) for more in range(1, WALK_SEEDS))
    typer.echo(f"\n{_walk_table([list(compare_searches(one)) for one in chain([trained], others)])}\n")


def _write_page(trained: TrainedInfection, some: Sequence[ew.Explanation], path: Path) -> None:
    """The page about some nodes, in the words of the data."""
    import edgewise as ew

    graph = trained.graphs.test.clone()
    graph.feature_names = ["healthy", "infected"]
    names = [f"person {node}{' (infected)' if ill else ''}" for node, ill in enumerate(graph.x[:, 1].bool().tolist())]
    steps = ["infected", "1 step away", *(f"{count} steps away" for count in range(2, 5)), "not reached"]
    ew.write_page(
        path, trained.model, graph, [why.index for why in some], node_names=names, class_names=steps, epochs=30,
        title=f"Why {names[some[0].index]}? How far from an infection, according to the model",
    )  # fmt: skip


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


def _clear_one(trained: TrainedInfection, shown: ew.ExplanationSet) -> ew.Explanation:
    """A node three steps from its only infection: the picture should show that path."""
    from edgewise.datasets import infection_paths

    graph = trained.graphs.test
    clear = (why for why in shown if why.target == DRAWN_CLASS and len(infection_paths(graph, why.index)) == 1)
    return next(clear, shown[0])


def _draw_one(trained: TrainedInfection, why: ew.Explanation, path: Path) -> None:
    """Draw a node with the infected ones marked."""
    from edgewise.report import draw

    infected = trained.graphs.test.x[:, 1].nonzero().flatten().tolist()
    draw(why, marked={"infected": infected}).savefig(path)


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
