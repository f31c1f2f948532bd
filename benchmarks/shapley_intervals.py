"""How often do 95 % intervals of `shapley` hold? Nodes of Infection, and made-up edges whose spread is known.

    python -m benchmarks.shapley_intervals                     # about ten minutes
    python -m benchmarks.shapley_intervals --nodes 40 --orders 400 --draws 50

Many orders of each node are kept. Then samples of them are drawn, with an interval each, and it is counted how often the mean
of all orders lies inside, for edges that act in at least a tenth of them: with plain standard errors, and as they have grown.
"""

import argparse
from types import SimpleNamespace

import torch
from torch import Tensor

import edgewise as ew
from edgewise.algorithms import shapley
from edgewise.datasets.infection import infection_model
from edgewise.student_intervals import student_quantile

SIZES = (8, 12, 20, 50, 100)


def orders_of(node: int, count: int) -> Tensor:
    """`[orders, edges]`: what each edge adds in each order."""
    trained, kept, add = infection_model(0), [], shapley._Moments.add

    def keep(moments: shapley._Moments, found: Tensor) -> None:
        kept.append(found[:, 0].clone())
        add(moments, found)

    shapley._Moments.add = keep  # type: ignore[method-assign]
    try:
        ew.explain(trained.model, trained.graphs.test, node, method="shapley", samples=count)
    finally:
        shapley._Moments.add = add  # type: ignore[method-assign]
    return torch.cat(kept)


def held(orders: Tensor, size: int, draws: int) -> tuple[float, float]:
    """The share of intervals that hold, with plain and with grown standard errors."""
    orders = orders[:, (orders != 0).double().mean(dim=0) >= 0.1].double()
    truth, draw = orders.mean(dim=0), torch.Generator().manual_seed(0)
    plain = grown = total = 0
    nothing = torch.zeros_like(truth)
    for _ in range(draws):
        sample = orders[torch.randint(len(orders), (size,), generator=draw)]
        halves = shapley._Moments(nothing), shapley._Moments(nothing)
        for parity, half in enumerate(halves):
            half.add(sample[parity::2])
        error = halves[0].with_(halves[1]).standard_error(nothing)
        one = SimpleNamespace(target=SimpleNamespace(truth=truth), num_targets=1, owner=torch.zeros_like(truth).long())
        more = float(shapley._tails(halves, one, nothing))  # type: ignore[arg-type]
        known, off = error > 0, (sample.mean(dim=0) - truth).abs() / error / student_quantile(0.975, size - 1)
        plain += int((off[known] <= 1).sum())
        grown += int((off[known] <= more).sum())
        total += int(known.sum())
    return plain / total, grown / total


def main() -> None:
    """A table: plain and grown, for every number of orders."""
    parser = argparse.ArgumentParser(description="How often do 95 % intervals of shapley hold?")
    parser.add_argument("--nodes", type=int, nargs="+", default=[0, 3, 10, 40, 50, 205])
    parser.add_argument("--orders", type=int, default=1200)
    parser.add_argument("--draws", type=int, default=250)
    options, draw = parser.parse_args(), torch.Generator().manual_seed(0)
    torch.set_num_threads(1)
    pools = {
        "20 normal edges": torch.randn(4000, 20, generator=draw),
        "300 normal edges": torch.randn(4000, 300, generator=draw),
        "30 log-normal edges": torch.randn(4000, 30, generator=draw).exp(),
    } | {f"Infection, node {node}": orders_of(node, options.orders) for node in options.nodes}
    for name, orders in pools.items():
        shares = (
            f"{size}: {plain:.0%} → {grown:.0%}"
            for size in SIZES
            for plain, grown in [held(orders, size, options.draws)]
        )
        print(f"{name}; orders: " + ", ".join(shares), flush=True)


if __name__ == "__main__":
    main()
