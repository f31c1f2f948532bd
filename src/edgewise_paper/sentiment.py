"""The experiment on sentiment trees, in place of Graph-SST2: sentences as graphs, with the labels of phrases as a human truth.

Graph-SST2 has 768 BERT features a word and cannot be had here. The Stanford Sentiment Treebank is a text task of the same kind
(`edgewise.datasets.phrase_trees`): word vectors are learned, edges lead from phrases to the phrase that they are part of, and
networks are trained by the authors' recipe for Graph-SST2 (train/train_sst2.py): 100 epochs, batches of 128, weight decay 1e-6,
gradients set to zero once an epoch (line 82). Numbers are not comparable with those published for Graph-SST2.

Rows: accuracy, the cosines of `authors_code/measures.py`, and how well edges from phrases of the sentence's own polarity are
ranked before the others (mean AUROC over sentences).
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

from edgewise.datasets.phrase_trees import FOLDER, phrase_truth, sentiment_trees
from edgewise.files import is_file
from edgewise.metrics.formulas import auroc
from edgewise.random_numbers import seeded
from edgewise_paper.authors_code import measures
from edgewise_paper.authors_code.maskable import explained
from edgewise_paper.authors_code.trainings import batch_orders, coded_logits
from edgewise_paper.context import Context
from edgewise_paper.data import Source
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import SENTENCE_EPOCHS, graph_network
from edgewise_paper.training.train import Collated, run_epochs

NAME = "sentiment-trees"
ARCHITECTURES, DEPTHS = ("GCN", "GIN"), (1, 2, 3)
BATCH, SENTENCES = 128, 200
"""Sentences in a batch; explained test sentences, the first positive ones."""
METHODS = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "random")


def tasks(options: PaperOptions) -> list[Task]:
    """One task for each network, if the treebank is there."""
    if not _is_there(options) or options.quick:
        return []
    grid = product(options.seeds_of(), ARCHITECTURES, DEPTHS)
    about = {"dataset": "sentiment trees", "epochs": SENTENCE_EPOCHS, "sentences": SENTENCES}
    return [
        Task(NAME, "network", {"architecture": name, "layers": layers, "seed": seed, **about}, 60.0 * layers)
        for seed, name, layers in grid
    ]


def _is_there(options: PaperOptions) -> bool:
    given = Source(options.data, options.out).given
    return given is not None and is_file(given / FOLDER / "train.txt")


def notes(options: PaperOptions) -> list[str]:
    """What is left out, and why."""
    if options.quick or _is_there(options):
        return []
    return [f"Sentiment trees are left out: there is no {FOLDER}/train.txt in the data folder."]


def run(task: Task, context: Context) -> TaskOutcome:
    """Train a network on sentences and explain positive test sentences."""
    found = sentiment_trees(0, folder=context.source.given)
    graphs: list[Data] = [Data(x=g.x, edge_index=g.edge_index, y=g.y, phrase_label=g.phrase_label) for g in found.data]
    model = _trained(task, [graphs[i] for i in found.training.tolist()])
    test = [graphs[i] for i in found.test.tolist()]
    rows = [task.row("accuracy", _accuracy(model, test), count=len(test))]
    chosen = [graph for graph in test if int(graph.y) == 1][: task.settings["sentences"]]
    plain = [Data(x=graph.x, edge_index=graph.edge_index, y=graph.y) for graph in chosen]
    seed = task.settings["seed"]
    for measured in (
        measures.input_cosines(model, plain, None, seed, task="graph"),
        measures.layer_cosines_of_graphs(model, plain, seed),
    ):
        rows += [task.row("cosine", value, count=count, **where) for where, value, count in measured]
    rows += _truth_rows(task, model, plain, [phrase_truth(graph) for graph in chosen])
    return TaskOutcome(rows)


def _trained(task: Task, graphs: list[Data]) -> nn.Module:
    """train/train_sst2.py, with trees in place of its graphs."""
    with seeded(task.settings["seed"]):
        model: Any = graph_network(task.settings["architecture"], graphs[0].num_features, task.settings["layers"], None)
        orders = batch_orders(len(graphs), task.settings["epochs"])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003, weight_decay=1e-6, fused=True)
        collated = Collated.of([Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in graphs], "cpu")

        def epoch() -> None:
            optimizer.zero_grad()
            for batch, labels in collated.batches(next(orders), BATCH):
                functional.binary_cross_entropy_with_logits(coded_logits(model, batch), labels).backward()
                optimizer.step()

        run_epochs(model, optimizer, epoch, task.settings["epochs"])
    return model


@torch.no_grad()
def _accuracy(model: Any, graphs: list[Data]) -> float:
    """The share of sentences that the network gets right, one by one, as they are explained."""
    collated = Collated.of([Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in graphs], "cpu")
    out = torch.cat([coded_logits(model, batch) for batch, _ in collated.batches(torch.arange(len(graphs)), 1)])
    return float(((out > 0) == (collated.y == 1)).double().mean())


def _truth_rows(task: Task, model: nn.Module, graphs: list[Data], truth: list[Tensor]) -> Iterator[Row]:
    """How well each method ranks edges from phrases of the sentence's polarity; sentences without both kinds are left out."""
    for method in METHODS:
        settings = measures.EXPLAINER if method == "gnn_explainer" else {}
        found = explained(model, graphs, None, task="graph", method=method, **settings)
        areas = [
            float(auroc(why.scores, own > 0))
            for why, own in zip(found, truth, strict=True)
            if bool((own > 0).any()) and not bool((own > 0).all())
        ]
        known = [area for area in areas if not math.isnan(area)]
        mean = sum(known) / len(known) if known else math.nan
        yield task.row("AUROC against phrase labels", mean, method=method, level="input", count=len(known))
