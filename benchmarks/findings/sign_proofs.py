"""Sign certificates beyond Cora: how many gradients are proved to keep their sign, on planted data, WebKB and CiteSeer.

python -m benchmarks.findings.sign_proofs --workers 16
"""

import time
from contextlib import suppress

import torch

from benchmarks.data import NoDataError
from benchmarks.findings.networks import KINDS, planted_network, real_graph, real_network
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.random_numbers import one_thread
from edgewise.trust import certify, sign_flips

PLANTED = ("infection", "negative_evidence", "ba_shapes", "tree_grid", "ba_2motifs", "toxic_groups")
REAL = ("Cora", "CiteSeer", "Texas", "Cornell", "Wisconsin")
DEPTHS, TARGETS = (2, 3), 20
EDGES = 1000
"""About so many pairs of a target and an edge are asked about, drawn at random where there are more."""


def items(networks: int) -> list[tuple[str, str, int, int]]:
    """Networks of planted data, and of the real data sets that are here: read once now, so that PyG prepares its files."""
    found = [(name, "its own", 0, seed) for name in PLANTED for seed in range(networks)]
    there = []
    for name in REAL:
        with suppress(NoDataError):
            real_graph(name)
            there.append(name)
    return found + [
        (name, kind, depth, seed) for name in there for kind in KINDS for depth in DEPTHS for seed in range(networks)
    ]


def measure(item: tuple[str, str, int, int]) -> list[Row]:
    """One network: signs that are proved, those that flip on sampled weights, and the time of a proof."""
    name, kind, depth, seed = item
    with one_thread():
        model, data, index, task = (
            planted_network(name, seed, TARGETS) if name in PLANTED else real_network(name, kind, depth, seed, TARGETS)
        )
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
