"""SubgraphX: coalitions a second, ours side by side and one model run after another: `python -m benchmarks.subgraphs`.

The peer is written after DIG's SubgraphX: for each coalition it keeps the edges among its nodes and runs the model on that
graph. A GIN reads no degrees, so removed edges and edges of weight 0 give the same number, and the values are compared, too.
Ours is the search for the best subgraph of six nodes, everything counted but the loading of compiled loops, on planted
molecules. Time is process time. The figure counts the coalitions that the search asks for, and in brackets those that differ,
each of which is worked out once.
"""

import time

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgewise as ew
from edgewise.algorithms.subgraph_x import NodeGame, search
from edgewise.datasets.molecules import PooledGIN
from edgewise.random_numbers import seeded
from edgewise.score import Score

MOLECULES, PEER_SECONDS = 20, 10.0


@torch.no_grad()
def one_by_one(model: nn.Module, data: Data, nodes: Tensor, coalitions: Tensor, target: int) -> tuple[Tensor, float]:
    """The explained numbers of coalitions, as far as the time goes, and the seconds it took."""
    found, begin = [], time.process_time()
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    for coalition in coalitions:
        inside = torch.zeros(data.num_nodes, dtype=torch.bool)
        inside[nodes[coalition]] = True
        kept = inside[data.edge_index[0]] & inside[data.edge_index[1]]
        found.append(model(data.x, data.edge_index[:, kept], batch)[0, target])
        if time.process_time() - begin > PEER_SECONDS / MOLECULES:
            break
    return torch.stack(found), time.process_time() - begin


def main() -> None:
    """Print a line for each molecule, and the ratio of all of them."""
    torch.set_num_threads(1)
    with seeded(0):
        model = PooledGIN().eval()
    graphs = ew.datasets.load("toxic_groups", 0).data[:MOLECULES]
    search(Score(model, graphs[0], task="graph"), max_nodes=2, beam=32, samples=100, seed=0)  # loads the compiled loops
    asked, run, seconds, peer, off = 0, 0, 0.0, [0.0, 0.0], 0.0
    for number, data in enumerate(graphs):
        score = Score(model, data, task="graph")
        begin = time.process_time()
        best = search(score, max_nodes=6, beam=32, samples=100, seed=0)
        took = time.process_time() - begin
        game = NodeGame(score, 100, 0)
        with seeded(number):
            coalitions = torch.rand(2000, game.num_nodes) < 0.5
        expected, slow = one_by_one(model, data, game.nodes, coalitions, best.target)
        off = max(off, float((game.values(coalitions)[: len(expected)] - expected).abs().max()))
        asked, run, seconds = asked + best.coalitions, run + best.evaluations, seconds + took
        peer = [peer[0] + len(expected), peer[1] + slow]
        print(f"{data.num_nodes} nodes, {data.edge_index.size(1)} edges: {best}, {took:.2f} s", flush=True)
    slowly = peer[0] / peer[1]
    print(f"a second: {asked / seconds:,.0f} ({run / seconds:,.0f} different ones), one by one {slowly:,.0f}: ", end="")
    print(f"{asked / seconds / slowly:.0f} times ({run / seconds / slowly:.0f}); values differ by {off:.1e} (float32)")


if __name__ == "__main__":
    main()
