"""One published number along its training: GCN of two layers on MUTAG, cosine of gradients and Positive Gradients.

python -m benchmarks.findings.one_number --networks 20
"""

from dataclasses import replace
from statistics import fmean

import torch

from benchmarks.cache import cache_folder
from benchmarks.data import raw_folder
from benchmarks.findings.study import Row, Study, markdown
from edgewise.random_numbers import one_thread, seeded
from edgewise_paper.authors_code.maskable import explained
from edgewise_paper.authors_code.measures import mean_cosine
from edgewise_paper.authors_code.side_by_side import JointTraining
from edgewise_paper.authors_code.trainings import one_split
from edgewise_paper.data import Source, read_graph_set
from edgewise_paper.training.networks import Recipe
from edgewise_paper.verdicts import prediction_interval

PUBLISHED = 0.783
"""figure_input_similarity.csv of the paper, to three digits."""
AT_ONCE, EVERY = 10, 250
"""Networks that are trained side by side; epochs between two measurements."""


def items(networks: int) -> list[list[int]]:
    return [list(range(begin, min(begin + AT_ONCE, networks))) for begin in range(0, networks, AT_ONCE)]


def measure(seeds: list[int]) -> list[Row]:
    """Some seeds of the authors' recipe and split, measured every 250 epochs and after the last."""
    root = raw_folder("MUTAG")
    found = read_graph_set("MUTAG", Source(root, cache_folder() / "prepared"))
    recipe = Recipe.for_graphs("MUTAG", "GCN", 2, 0)
    chosen = [found.graphs[i] for i in one_split(found)[2].tolist() if int(found.graphs[i].y) == 1]
    rows = []
    with one_thread(), seeded(seeds[0]):
        training = JointTraining(replace(recipe, seed=seeds[0]), seeds, found, "cpu")
        while training.done < recipe.epochs:
            training.epoch()
            if training.done % EVERY == 0:
                for seed, model in zip(seeds, training.models(), strict=True):
                    gradient = explained(model, chosen, None, task="graph", method="gradient")
                    positive = explained(model, chosen, None, task="graph", method="positive_gradient")
                    value, _ = mean_cosine(gradient, positive, leave_out=True)
                    rows.append({"seed": seed, "epoch": training.done, "cosine": value})
    return rows


def tables(rows: list[Row]) -> str:
    lines = []
    for epoch in sorted({row["epoch"] for row in rows}):
        values = [row["cosine"] for row in rows if row["epoch"] == epoch]
        low, high = prediction_interval(values, "cosine")
        lines.append([
            str(epoch), f"{fmean(values):.3f}", f"{min(values):.3f} – {max(values):.3f}", f"{low:.3f} – {high:.3f}",
            f"{sum(value >= PUBLISHED for value in values)} of {len(values)}",
        ])  # fmt: skip
    heads = (
        "epoch",
        "mean",
        "lowest – highest network",
        "95% for one more network",
        f"networks at {PUBLISHED} or above",
    )
    return f"{markdown(heads, lines)}\n\n{_swings(rows)}"


def _swings(rows: list[Row]) -> str:
    """How far one network moves in the second half of its training, and how often it comes to the published number."""
    own: dict[int, list[float]] = {}
    for row in rows:
        if row["epoch"] >= max(other["epoch"] for other in rows) / 2:
            own.setdefault(row["seed"], []).append(row["cosine"])
    swings = torch.tensor([max(values) - min(values) for values in own.values()])
    near = sum(max(values) >= PUBLISHED for values in own.values())
    return (
        f"In the second half of its training a network moves by {float(swings.mean()):.3f} on average "
        f"({float(swings.min()):.3f} to {float(swings.max()):.3f}) between the measured epochs; {near} of {len(own)} networks "
        f"reach {PUBLISHED} at one of these epochs."
    )


STUDY = Study("one_number", (__doc__ or "").splitlines()[0], items, measure, 20, tables)

if __name__ == "__main__":
    STUDY.run()
