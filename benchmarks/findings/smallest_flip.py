"""How far are rankings from the smallest flip? Proven smallest sets beside the prefixes of rankings that do it.

python -m benchmarks.findings.smallest_flip --workers 16
"""

from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch

import edgewise as ew
from benchmarks.data import NoDataError
from benchmarks.findings.networks import planted_network, real_graph, real_network
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.counterfactuals.allowance import processor_time
from edgewise.random_numbers import one_thread
from edgewise_paper.smallest_flip import GREEDY, METHODS, prefix_sizes

REAL = tuple(product(("Cora", "CiteSeer"), (("GCN", 2), ("SAGE", 2), ("GIN", 2), ("GCN", 3))))
NODES, SECONDS = 25, 2.0
"""Nodes of a network, and seconds of processor time for the proof of each."""


def items(networks: int) -> list[tuple[str, str, int, int]]:
    """Infection, and the real data sets that are here: read once now, so that PyG prepares its files."""
    found = [("infection", "SAGE", 4, seed) for seed in range(networks)]
    for name, (kind, depth) in REAL:
        with suppress(NoDataError):
            real_graph(name)
            found += [(name, kind, depth, seed) for seed in range(networks)]
    return found


def measure(item: tuple[str, str, int, int]) -> list[Row]:
    """One network: proofs, and for nodes whose proven set has two edges or more, what each ranking takes."""
    name, kind, depth, seed = item
    with one_thread(), processor_time():
        model, data, index, _ = (
            planted_network(name, seed, NODES) if name == "infection" else real_network(name, kind, depth, seed, NODES)
        )
        found: Any = ew.counterfactual(model, data, index, undirected=True, seconds=SECONDS)
        row: Row = {"data": name, "model": f"{kind}, {depth} layers", "seed": seed, "nodes": len(found)}
        row |= {status: int(number) for status, number in found.counts().items()}
        proven = {one.index: float(one.size) for one in found if one.status == "proven" and (one.size or 0) >= 2}
        row |= {"several": len(proven), "rankings": {}}
        if proven:
            nodes = torch.tensor(sorted(proven))
            sizes = torch.tensor([proven[node] for node in nodes.tolist()], dtype=torch.double)
            context: Any = SimpleNamespace(explain=ew.explain)
            row["size"] = float(sizes.mean())
            for method, taken in prefix_sizes(model, data, nodes, context, {}).items():
                row["rankings"][method] = _summed(taken - sizes)
    return [row]


def _summed(extra: torch.Tensor) -> list[float]:
    """How many rankings take as few edges as can be, how many never flip, and how many edges too many the others take."""
    flips = extra[~extra.isnan()]
    return [float((extra == 0).sum()), float(extra.isnan().sum()), float(flips.sum()), float(len(flips))]


def tables(rows: list[Row]) -> str:
    kinds = list(dict.fromkeys((row["data"], row["model"]) for row in rows))
    proofs, rankings = [], []
    for kind in kinds:
        mine = [row for row in rows if (row["data"], row["model"]) == kind]
        total = sum(row["nodes"] for row in mine)
        shares = [[row[status] / row["nodes"] for row in mine] for status in ("proven", "none", "open")]
        several = [row for row in mine if row["several"]]
        counts = sum(row["several"] for row in several)
        mean = sum(row["size"] * row["several"] for row in several) / counts if counts else float("nan")
        proofs.append([
            ", ".join(kind), str(len(mine)), str(total), *(spanned(one, 1, percent=True) for one in shares), str(counts),
            f"{mean:.1f}",
        ])  # fmt: skip
        rankings.append([", ".join(kind), *(_ranking(several, method) for method in (GREEDY, *METHODS))])
    heads = ("network", "trainings", "nodes", "proven", "none", "open", "of two edges or more", "mean size")
    text = markdown(heads, proofs)
    titles = [method.replace("_", " ") for method in (GREEDY, *METHODS)]
    about = (
        "Share of rankings that flip with as few edges as can be; in brackets how many edges too many the flipping ones take "
        "on average, and the share that never flips:"
    )
    return f"{text}\n\n{about}\n\n{markdown(('network', *titles), rankings)}"


def _ranking(rows: list[Row], method: str) -> str:
    """Over all trainings of one kind of network: a share with its interval over trainings, then what is wasted."""
    found = [(row["several"], *row["rankings"][method]) for row in rows]
    if not found:
        return "–"
    extra, flips = sum(one[3] for one in found), sum(one[4] for one in found)
    never = sum(one[2] for one in found) / sum(one[0] for one in found)
    share = spanned([one[1] / one[0] for one in found], 0, percent=True)
    return f"{share} [{extra / flips if flips else float('nan'):.1f}, {never:.0%}]"


STUDY = Study("smallest_flip", (__doc__ or "").splitlines()[0], items, measure, 5, tables)

if __name__ == "__main__":
    STUDY.run()
