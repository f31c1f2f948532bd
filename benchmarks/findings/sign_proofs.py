"""Sign certificates beyond Cora: how many gradients are proved to keep their sign, on planted data, WebKB and CiteSeer.

python -m benchmarks.findings.sign_proofs --workers 16
"""

import time
from contextlib import suppress
from typing import Any

import torch
from torch.nn import functional as F
from torch_geometric.nn import GCN, GIN, GraphSAGE

from benchmarks.data import NoDataError, raw_folder
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.board.trained_network import make_network
from edgewise.datasets.planted_data import fit
from edgewise.random_numbers import one_thread
from edgewise.trust import certify, sign_flips

PLANTED = ("infection", "negative_evidence", "ba_shapes", "tree_grid", "ba_2motifs", "toxic_groups")
REAL = ("Cora", "CiteSeer", "Texas", "Cornell", "Wisconsin")
KINDS: dict[str, Any] = {"GCN": GCN, "SAGE": GraphSAGE, "GIN": GIN}
DEPTHS, WIDTH, EPOCHS, TARGETS = (2, 3), 32, 60, 20
EDGES = 1000
"""About so many pairs of a target and an edge are asked about, drawn at random where there are more."""


def items(networks: int) -> list[tuple[str, str, int, int]]:
    """Networks of planted data, and of the real data sets that are here: read once now, so that PyG prepares its files."""
    found = [(name, "its own", 0, seed) for name in PLANTED for seed in range(networks)]
    there = []
    for name in REAL:
        with suppress(NoDataError):
            _graph(name)
            there.append(name)
    return found + [
        (name, kind, depth, seed) for name in there for kind in KINDS for depth in DEPTHS for seed in range(networks)
    ]


def measure(item: tuple[str, str, int, int]) -> list[Row]:
    """One network: signs that are proved, those that flip on sampled weights, and the time of a proof."""
    name, kind, depth, seed = item
    with one_thread():
        model, data, index, task = _planted(name, seed) if name in PLANTED else _real(name, kind, depth, seed)
        start = time.perf_counter()
        proof = certify(model, data, index, task=task, edges=EDGES)
        seconds = time.perf_counter() - start
        flips = sign_flips(model, data, index, task=task, edges=EDGES)
    assert torch.equal(proof.edge_id, flips.edge_id), "both are asked about the same edges"
    assert torch.equal(proof.owner, flips.owner)
    real = ~proof.vanishes
    counted = flips.gradient != 0
    steady = counted & ~flips.flipped
    return [{
        "data": name, "model": kind if depth == 0 else f"{kind}, {depth} layers", "seed": seed, "seconds": seconds,
        "reason": proof.reason, "edges": int(counted.sum()), "steady": float(steady.sum() / counted.sum()),
        "proved": float((proof.keeps & steady & real).sum() / steady.sum()),
        "flips_proved": int((proof.flips & counted).sum()), "flips_sampled": int(flips.flipped.sum()),
        "wrong": int((proof.keeps & flips.flipped).sum()),
    }]  # fmt: skip


def _planted(name: str, seed: int) -> tuple[Any, Any, Any, str]:
    network = make_network(name, seed, TARGETS)
    graphs = isinstance(network.data, list)
    index = torch.arange(len(network.index)) if graphs else torch.tensor(network.index)
    return network.model, network.data, index, "graph" if graphs else "node"


def _graph(name: str) -> Any:
    from torch_geometric.datasets import Planetoid, WebKB

    folder = name if name in ("Cora", "CiteSeer") else name.lower()
    root = str(raw_folder(folder))
    return (Planetoid(root, name, split="geom-gcn") if folder == name else WebKB(root, name))[0]


def _real(name: str, kind: str, depth: int, seed: int) -> tuple[Any, Any, Any, str]:
    data = _graph(name)
    training, test = (data[mask][:, 0].bool() for mask in ("train_mask", "test_mask"))

    def losses(model: Any) -> Any:
        yield F.cross_entropy(model(data.x, data.edge_index)[training], data.y[training])

    def make() -> Any:
        return KINDS[kind](data.num_features, WIDTH, depth, int(data.y.max()) + 1)

    model = fit(make, losses, seed=seed, epochs=EPOCHS)
    order = torch.randperm(int(test.sum()), generator=torch.Generator().manual_seed(seed))[:TARGETS]
    return model, data, test.nonzero().view(-1)[order], "node"


def tables(rows: list[Row]) -> str:
    lines = []
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["model"]) == (data, model)]
        lines.append([
            data, model, str(len(mine)), str(sum(r["edges"] for r in mine)),
            spanned([r["steady"] for r in mine], 1, percent=True), spanned([r["proved"] for r in mine], 1, percent=True),
            str(sum(r["wrong"] for r in mine)), f"{sum(r['seconds'] for r in mine) / len(mine):.1f}",
        ])  # fmt: skip
    heads = ("data", "model", "networks", "gradients", "steady", "of these proved", "proved and yet flip", "seconds")
    return markdown(heads, lines)


STUDY = Study("sign_proofs", (__doc__ or "").splitlines()[0], items, measure, 3, tables)

if __name__ == "__main__":
    STUDY.run()
