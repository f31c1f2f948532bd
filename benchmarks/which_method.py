"""Which method finds what the model looks at? Planted molecules, GIN and GCN: `python -m benchmarks.which_method`.

Every model is trained on `toxic_groups` (15 % of the labels are wrong), and the toxic molecules that were held out and are
found toxic are explained. AUROC: do the bonds of the toxic groups have higher scores than others? A mean over molecules, then
over trainings. "both ways" adds the scores of the two directions of a bond. Results go to `which_method.json`.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch
from torch_geometric.nn import GCN, GIN, global_add_pool

import edgewise as ew
from edgewise.datasets.planted_data import PlantedData, fit, share_right

RESULTS = Path(__file__).with_name("which_method.json")
WIDTH, LAYERS, EPOCHS, BATCH = 64, 4, 100, 50
METHODS: dict[str, tuple[str, dict]] = {
    "gradient": ("gradient", {}),
    "occlusion": ("occlusion", {}),
    "integrated_gradients": ("integrated_gradients", {}),
    "LRP-γ": ("lrp", {"rule": "lrp-gamma"}),
    "LRP-ε": ("lrp", {"rule": "lrp-epsilon"}),
    "deep_lift": ("deep_lift", {}),
    "degree": ("degree", {}),
    "gnn_explainer": ("gnn_explainer", {}),
    "auto": ("auto", {}),
}


class Pooled(nn.Module):
    """A GIN or a GCN whose node vectors are summed."""

    def __init__(self, kind: Callable[..., nn.Module], features: int) -> None:
        super().__init__()
        self.nodes, self.head = kind(features, WIDTH, LAYERS), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """`[graphs, 2]`: logits."""
        return self.head(global_add_pool(self.nodes(x, edge_index).relu(), batch))


MODELS = {"GIN": GIN, "GCN": GCN}


@dataclass(frozen=True)
class Row:
    """One method on one training."""

    model: str
    seed: int
    method: str
    chosen: str
    auroc: float
    both_ways: float
    seconds: float


def trained(planted: PlantedData, kind: str, seed: int) -> tuple[nn.Module, float]:
    """The model and its accuracy on held-out molecules."""

    def losses(model: nn.Module) -> Iterator[Tensor]:
        for part in planted.training[torch.randperm(len(planted.training))].split(BATCH):
            batch = Batch.from_data_list([planted.data[i] for i in part.tolist()])
            yield F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)

    make = partial(Pooled, MODELS[kind], planted.data[0].x.size(1))
    model = fit(make, losses, seed=seed, epochs=EPOCHS, last_lr=0.0)
    held = Batch.from_data_list([planted.data[i] for i in planted.test.tolist()])
    with torch.no_grad():
        return model, share_right(model(held.x, held.edge_index, held.batch).argmax(dim=1), held.y)


def both_ways(found: ew.ExplanationSet, planted: PlantedData) -> float:
    """The AUROC of bonds: the scores of both directions are added, and a bond is planted if either is."""
    values = []
    for why, truth in zip(found, planted.truth(found.index), strict=True):
        half = len(truth) // 2  # the second half of the columns are the first half the other way round
        bond = why.scores[:half] + why.scores[half:]
        higher, lower = bond[truth[:half] > 0], bond[truth[:half] == 0]
        pairs = (higher.view(-1, 1) > lower).double() + 0.5 * (higher.view(-1, 1) == lower).double()
        values.append(float(pairs.mean()))
    return sum(values) / len(values)


def rows(kind: str, seed: int) -> Iterator[Row]:
    """Every method on one training."""
    planted = ew.datasets.load("toxic_groups", seed)
    model, accuracy = trained(planted, kind, seed)
    held = [i for i in planted.test.tolist() if i in set(planted.targets.tolist())]
    predicted = ew.Question(model, planted.data, held, task="graph").target.tolist()
    ask = ew.Question(model, planted.data, [i for i, c in zip(held, predicted, strict=True) if c], task="graph")
    print(f"{kind}, seed {seed}: accuracy {accuracy:.3f}, {len(ask.index)} molecules explained", flush=True)
    for label, (method, settings) in METHODS.items():
        start = time.perf_counter()
        found = ask.explain(method, **settings)
        seconds = time.perf_counter() - start
        auroc = float(ew.metrics.recovery(found, planted.truth(found.index)).auroc.value.nanmean())
        yield Row(kind, seed, label, found.method, auroc, both_ways(found, planted), seconds)
        print(f"  {label}: {auroc:.3f}, both ways {both_ways(found, planted):.3f}, {found!r}", flush=True)


def table(found: list[dict]) -> str:
    """Means over trainings, with the lowest and the highest, as markdown."""
    lines = ["| method | " + " | ".join(f"{kind} | {kind}, both ways" for kind in MODELS) + " |"]
    lines.append("|---|" + "---|" * 2 * len(MODELS))
    for label in METHODS:
        cells = []
        for kind in MODELS:
            mine = [row for row in found if (row["model"], row["method"]) == (kind, label)]
            for name in ("auroc", "both_ways"):
                values = [row[name] for row in mine]
                cells.append(f"{sum(values) / len(values):.2f} ({min(values):.2f}–{max(values):.2f})" if values else "")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train, explain, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="only print the table of results that are there")
    asked = parser.parse_args()
    if not asked.table:
        found = [vars(row) for kind in MODELS for seed in range(asked.seeds) for row in rows(kind, seed)]
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
