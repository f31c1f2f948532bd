"""Shapley values of 100 Cora nodes, 20 orders, against a model run for every coalition: `python -m benchmarks.coalition_runs`.

The model is run again, with PyG's masks, for the nodes with the fewest edges: every coalition of all their orders. Of the
other nodes only the number of coalitions counts.
"""

import time

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

import edgewise as ew
from benchmarks import jobs
from edgewise.algorithms.occlusion import players
from edgewise.algorithms.shapley import _Orders
from edgewise.score import Score

NODES, ORDERS, CHECKED = 100, 20, 4
Runs = tuple[Tensor, int]


def rerun(model: nn.Module, data: Data, node: int, column: int) -> Runs:
    """`[E]`: Shapley values of one node, a forward pass of the whole graph for each coalition; and how many passes."""
    score = Score(model, data, [node])
    inside = players(score, "input")
    rank = _Orders(score, inside, 0).of(torch.arange(ORDERS))[:, 0]  # [orders, M]
    found, runs = torch.zeros(data.edge_index.size(1), dtype=torch.float64), 0
    for order in rank:
        mask, before = torch.ones(data.edge_index.size(1)), None
        mask[score.edge_id[inside[0]]] = 0.0
        for step in range(-1, int(inside.sum())):
            now = (order == step) & inside[0]
            mask[score.edge_id[now]] = 1.0
            value, runs = _value(model, data, mask, node, column), runs + 1
            if before is not None:
                found[score.edge_id[now]] += (value - before) / ORDERS
            before = value
    return found, runs


@torch.no_grad()
def _value(model: nn.Module, data: Data, mask: Tensor, node: int, column: int) -> float:
    set_masks(model, mask, data.edge_index, apply_sigmoid=False)
    try:
        return float(model(data.x, data.edge_index)[node, column])
    finally:
        clear_masks(model)


def main() -> None:
    q = jobs.cora("gcn")
    nodes = q.nodes[:NODES]
    best, found = float("inf"), None
    for _ in range(3):
        start = time.process_time()
        found = ew.explain(q.model, q.data, nodes, method="shapley", samples=ORDERS)
        best = min(best, time.process_time() - start)
    assert isinstance(found, ew.ExplanationSet)
    score = Score(q.model, q.data, nodes)
    sizes = torch.bincount(score.owner[players(score, "input")[0]], minlength=NODES)
    total = int((sizes + 1).sum()) * ORDERS
    worst, seconds, runs = 0.0, 0.0, 0
    for place in sizes.argsort()[:CHECKED].tolist():
        start = time.process_time()
        true, count = rerun(q.model, q.data, int(nodes[place]), int(found[place].target))
        seconds, runs = seconds + time.process_time() - start, runs + count
        worst = max(worst, float((true - found[place].scores).abs().max() / true.abs().max().clamp(min=1e-12)))
    print(
        f"shapley, {NODES} Cora nodes, GCN 3×32, {ORDERS} orders, {total:,} coalition values: {best:.2f} s; a model run each "
        f"{seconds / runs * total:,.0f} s ({runs} of them timed), ratio {seconds / runs * total / best:,.0f}×; largest "
        f"deviation of {CHECKED} nodes that were run again {worst:.0e}"
    )


if __name__ == "__main__":
    from benchmarks.threads import pin

    pin()
    main()
