"""What is measured of an answer, target by target: is it the truth, and is it what the model used?

Edges are ranked by support (highest score first) and by magnitude. Equal scores are treated as equal, so that an answer
without any order has an AUROC of ½ and the precision of chance: yardsticks get a number wherever one can be given.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.board.entrants import EntrantAnswer
from edgewise.board.trained_network import BoardNetwork
from edgewise.metrics.faithfulness import fidelity, fidelity_curve
from edgewise.metrics.formulas import Ranking
from edgewise.metrics.planted_truth import path_recovery
from edgewise.results.explanation import strength
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_rows import ScoreRows, rows_of

ORDERS = ("support", "magnitude")
SIZES = (0.05, 0.1, 0.2, 0.4)
"""Shares of the edges that can reach a target, at which faithfulness is measured."""


class Metric(NamedTuple):
    """A column of the board."""

    name: str
    title: str
    about: str
    least: float = 0.0
    """The lowest value that it can have; the highest is 1."""


METRICS = (
    Metric("auroc", "AUROC", "The chance that a true edge ranks above another."),
    Metric(
        "average_precision", "average precision", "Precision, averaged over the true edges in the order of the scores."
    ),
    Metric("precision", "precision", "The share of true edges among the strongest, as many as are true."),
    Metric(
        "path",
        "path recovery",
        "Whether the strongest edges, or the best walk, are exactly the true path, on targets that have only one.",
    ),
    Metric(
        "faithfulness",
        "faithfulness",
        "What of the probability is lost without the strongest edges, minus what is lost with them alone: a mean over the "
        "strongest 5, 10, 20 and 40%.",
        least=-1.0,
    ),
    Metric(
        "fidelity",
        "fidelity of all",
        "The same for all edges with a positive score, as is often reported. The row of `full` shows what that is worth.",
        least=-1.0,
    ),
)


def measured(network: BoardNetwork, answer: EntrantAnswer, order: str) -> dict[str, list[float]]:
    """Every metric for every target; NaN where it has no meaning."""
    nothing = torch.full((len(network.index),), torch.nan)
    found: dict[str, Tensor] = {metric.name: nothing for metric in METRICS}
    if answer.walks is not None:
        if network.paths is not None:
            found["path"] = _one_path(
                network, path_recovery([list(walk) for walk in answer.walks], network.paths).value
            )
    elif answer.explained is not None:
        found |= _of_ranking(network, answer.explained, order)
        found |= _of_model(network, answer.explained, order)
        if network.paths is not None and order == "support":
            found["path"] = _paths(network, answer.explained)
    return {name: [round(float(v), 9) for v in value] for name, value in found.items()}


def _of_ranking(network: BoardNetwork, explained: ExplanationSet, order: str) -> Mapping[str, Tensor]:
    """How the true edges rank; NaN where all or none of the edges that can matter are true."""
    rows = rows_of(explained, edges_only=True)
    shift = torch.tensor([0, *(len(row) for row in network.truth[:-1])]).cumsum(0)
    true = torch.cat(list(network.truth))[shift[rows.row] + rows.column].double()
    row, score, true = _units(network, explained, rows, true) if network.both_ways else (rows.row, rows.score, true)
    wanted = true > 0 if order == "support" else true != 0
    ranking = Ranking(row, strength(score.double(), order), wanted, len(network.index))
    empty = (ranking.true_edges == 0) | (ranking.true_edges == ranking.edges)
    found = {
        "auroc": ranking.auroc(),
        "average_precision": ranking.average_precision(),
        "precision": ranking.precision(ranking.true_edges),
    }
    return {name: value.masked_fill(empty, torch.nan) for name, value in found.items()}


def _units(
    network: BoardNetwork, explained: ExplanationSet, rows: ScoreRows, true: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(target, score, truth) of undirected edges: the mean score of those of their two columns that can reach the target.

    Not their sum, which would rank edges at the rim, of which one direction alone arrives, below all others.
    """
    pairs = [(edge_index.cpu().min(dim=0).values, edge_index.cpu().max(dim=0).values, nodes)
             for edge_index, nodes in explained.graphs]  # fmt: skip
    names = [low * nodes + high for low, high, nodes in pairs]
    start = torch.tensor([0, *(len(one) for one in names)])[:-1].cumsum(0)
    start = start.expand(len(explained)) if len(names) == 1 else start
    name = torch.cat(names)[start[rows.row] + rows.column]
    _, unit = torch.stack([rows.row, name]).unique(dim=1, return_inverse=True)
    size = int(unit.max()) + 1 if len(unit) else 0
    score = torch.zeros(size, dtype=torch.double).index_add_(0, unit, rows.score.double())
    score /= torch.bincount(unit, minlength=size)
    known = torch.zeros(size, dtype=torch.double).index_copy_(0, unit, true)  # the same in both directions
    target = torch.zeros(size, dtype=torch.long).index_copy_(0, unit, rows.row)
    return target, score, known


def _of_model(network: BoardNetwork, explained: ExplanationSet, order: str) -> Mapping[str, Tensor]:
    """What the model loses without the strongest edges, minus what it loses with them alone, in probability."""
    curve = fidelity_curve(explained, network.model, network.data, fractions=SIZES, by=order, of="prob")
    whole = fidelity(explained, network.model, network.data, threshold=0.0, by=order, of="prob")
    return {
        "faithfulness": (curve.plus - curve.minus).mean(dim=1),
        "fidelity": whole.plus.value - whole.minus.value,
    }


def _paths(network: BoardNetwork, explained: ExplanationSet) -> Tensor:
    """Whether the strongest edges are a true path: not if all are equal. NaN where no other edge can reach the target."""
    assert network.paths is not None
    found = path_recovery(explained, network.paths).value
    others = rows_of(explained, edges_only=True).count() > torch.stack([(row != 0).sum() for row in network.truth])
    return _one_path(network, torch.where(found.isnan() & others, torch.zeros_like(found), found))


def _one_path(network: BoardNetwork, found: Tensor) -> Tensor:
    """NaN for targets that several paths lead to: the strongest edges may well be of two of them."""
    assert network.paths is not None
    return found.masked_fill(torch.tensor([len(paths) != 1 for paths in network.paths]), torch.nan)
