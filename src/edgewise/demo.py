"""The demo: train a model on Infection, explain its nodes with every method at both levels, compare, save, draw.

python -m edgewise.demo --out demo-output --nodes 1000
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import edgewise as ew
from edgewise.datasets import TrainedInfection, infection_model, infection_paths
from edgewise.datasets.infection import NUM_NODES
from edgewise.datasets.seeding import one_thread
from edgewise.demo_walks import compare_searches, walk_table
from edgewise.report import draw

LEFT_OUT = ("shapley",)  # fifty permutations of a thousand nodes take longer than everything else together
WALK_SEEDS = 5
REFERENCES = ("positive_gradient", "occlusion")  # what the others are compared with
DRAWN_METHOD, DRAWN_CLASS = "gradient", 3


@dataclass(frozen=True)
class Run:
    """One method at one level on all nodes."""

    method: str
    level: str
    seconds: float
    explanations: ew.ExplanationSet


def main() -> None:
    """Run the demo by `python -m edgewise.demo`."""
    options = _options()
    run(options.out, options.nodes, options.seed)


def run(out: Path, nodes: int, seed: int) -> None:
    """Everything on the first nodes of a test graph; results go into the folder."""
    out.mkdir(parents=True, exist_ok=True)
    with one_thread():
        trained = _train(seed)
        runs = list(_explain_with_every_method(trained, nodes))
        for one in runs:
            one.explanations.save(out / f"{one.method}-{one.level}.npz")
        print("", *_table(runs), sep="\n")
        others = (infection_model(seed + more) for more in range(1, WALK_SEEDS))
        print("", *walk_table([list(compare_searches(one)) for one in chain([trained], others)]), sep="\n")
        _draw_one(trained, runs, out / "infection.png")
    print(f"\nSaved in {out}: {len(runs)} results and the picture infection.png. To read one again:")
    print(f"  edgewise.load({str(out / 'gradient-input.npz')!r})")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m edgewise.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for the results (demo-output)")
    parser.add_argument("--nodes", type=_node_count, default=1000, help="how many nodes of the test graph (1000: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the graphs and the training (0)")
    return parser.parse_args()


def _node_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= NUM_NODES:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {NUM_NODES}")
    return int(text)


def _train(seed: int) -> TrainedInfection:
    start = time.perf_counter()
    trained = infection_model(seed)
    print(f"Infection: trained in {time.perf_counter() - start:.1f} s, test accuracy {trained.test_accuracy:.1%}")
    return trained


def _explain_with_every_method(trained: TrainedInfection, num_nodes: int) -> Iterator[Run]:
    for method, record in ew.methods().items():
        for level in record.levels if method not in LEFT_OUT else ():
            start = time.perf_counter()
            explanations = ew.explain(
                trained.model, trained.graphs.test, index=range(num_nodes), method=method, level=level, progress=True
            )
            assert isinstance(explanations, ew.ExplanationSet)  # a range was asked for
            yield Run(method, level, time.perf_counter() - start, explanations)


def _table(runs: Sequence[Run]) -> list[str]:
    references = {(run.method, run.level): run.explanations for run in runs if run.method in REFERENCES}
    heads = "".join(f"{'cosine to ' + name:>30}" for name in REFERENCES)
    lines = [f"{'method':<22}{'level':<7}{'seconds':>8}{heads}"]
    for run in runs:
        cosines = "".join(f"{_agreement(run.explanations, references[name, run.level]):>30}" for name in REFERENCES)
        lines.append(f"{run.method:<22}{run.level:<7}{run.seconds:>8.2f}{cosines}")
    return [
        *lines,
        "Cosines: means over the nodes, at the same level; undefined where all scores of one method are zero.",
        f"Left out because it takes minutes here: {', '.join(LEFT_OUT)}.",
    ]


def _agreement(one: ew.ExplanationSet, other: ew.ExplanationSet) -> str:
    cosine = ew.similarity(one, other)
    undefined = int(cosine.isnan().sum())
    return f"{float(cosine.nanmean()):.4f} ({undefined} undefined)"


def _draw_one(trained: TrainedInfection, runs: Sequence[Run], path: Path) -> None:
    """A node three steps from its only infection: the picture should show that path."""
    (shown,) = [run.explanations for run in runs if (run.method, run.level) == (DRAWN_METHOD, "input")]
    graph = trained.graphs.test
    clear = [why for why in shown if why.target == DRAWN_CLASS and len(infection_paths(graph, why.index)) == 1]
    infected = graph.x[:, 1].nonzero().flatten().tolist()
    draw((clear or shown)[0], marked={"infected": infected}).savefig(path)


if __name__ == "__main__":
    main()
