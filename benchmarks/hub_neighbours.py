"""Occlusion of one node beside a hub: `python -m benchmarks.hub_neighbours` (`--neighbours 100000`).

The hub sends to the node, so that every message into the hub can change it. Process seconds on one thread: a plain call, with
everything counted, and a held question.
"""

if __name__ == "__main__":
    from benchmarks.threads import pin

    pin()

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import edgewise as ew
from benchmarks.machine import describe
from edgewise.random_numbers import seeded
from edgewise.text import columns

WIDTH, CLASSES, TARGET, HUB, FIRST = 32, 7, 0, 1, 10


def graph(neighbours: int) -> Data:
    """The node, its hub with so many in-edges, and twice as many random edges among all others."""
    size = neighbours + neighbours // 5 + FIRST
    into_hub = torch.stack([torch.arange(FIRST, FIRST + neighbours), torch.full((neighbours,), HUB)])
    near = torch.tensor([[HUB, 2, 3], [TARGET, TARGET, TARGET]])
    others = torch.randint(FIRST, size, (2, 2 * neighbours))
    edges = torch.cat([into_hub, near, others], dim=1)
    return Data(x=torch.randn(size, WIDTH), edge_index=edges[:, edges[0] != edges[1]])


def models() -> Iterator[tuple[str, nn.Module]]:
    sizes = (WIDTH, WIDTH)
    yield "GCN, 2 layers", GCN(*sizes, 2, CLASSES)
    yield "GCN, 3 layers", GCN(*sizes, 3, CLASSES)
    yield "SAGE, 3 layers", GraphSAGE(*sizes, 3, CLASSES)
    yield "GIN, 3 layers", GIN(*sizes, 3, CLASSES)
    yield "GAT, 2 layers, 4 heads", GAT(*sizes, 2, CLASSES, heads=4)
    yield "GATv2, 2 layers, 4 heads", GAT(*sizes, 2, CLASSES, heads=4, v2=True)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hub_neighbours", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("--neighbours", type=int, default=100_000, help="in-edges of the hub (100000)")
    asked = parser.parse_args()
    rows = [["model", "edges that matter", "plain, s", "held, s"]]
    with seeded(0):
        data = graph(asked.neighbours)
        for name, model in models():
            model.eval()
            plain = seconds(lambda: ew.explain(model, data, TARGET, method="occlusion"))  # noqa: B023
            question = ew.Question(model, data, TARGET)
            found = question.explain("occlusion")
            held = seconds(lambda: question.explain("occlusion"))  # noqa: B023
            rows.append([name, f"{int((found.scores != 0).sum()):,}", f"{plain:.2f}", f"{held:.2f}"])
    print(columns(rows))
    print(", ".join(f"{name} {value}" for name, value in describe().items()))


if __name__ == "__main__":
    main()
