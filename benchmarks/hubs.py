"""A target whose neighbourhood is far beyond the memory that it may take: worked off in parts, and as a whole.

    python -m benchmarks.hubs --folder DIR                  # 10⁶ nodes, 10⁷ edges and a hub with 10⁶: writes 0.6 GB there
    python -m benchmarks.hubs --folder DIR --nodes 100000   # smaller

64 features, in-degrees Poisson(10), senders by a power law; node 0 receives from every node. A GCN 3×64, layer gradients, top
50. Each budget is a process of its own; `memory` is the most anonymous memory (`RssAnon`) that the job added to what the
process had when libraries were loaded and a small target had been explained. The scores are compared with those of the largest
budget.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from benchmarks.stores import CLASSES, DEGREE, EXPONENT, FEATURES, SEED, measured

BUDGETS = ("128MB", "512MB", "16GB")


def build(folder: Path, nodes: int) -> dict[str, float]:
    """The store: a random graph, and an edge from every node to node 0."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    import edgewise as ew

    generator = np.random.default_rng(SEED)
    receiver = np.repeat(np.arange(nodes), generator.poisson(DEGREE, nodes))
    sender = generator.permutation(nodes)[(nodes * generator.random(len(receiver)) ** EXPONENT).astype(np.int64)]
    everyone = np.arange(1, nodes)
    edges = np.stack([np.concatenate([sender, everyone]), np.concatenate([receiver, np.zeros_like(everyone)])])
    x = torch.from_numpy(generator.standard_normal((nodes, FEATURES), dtype=np.float32))
    store = ew.GraphStore.build(folder / "hub.store", Data(x=x, edge_index=torch.from_numpy(edges)))
    return {"nodes": store.num_nodes, "edges": store.num_edges}


def explain(folder: Path, memory: str) -> dict[str, object]:
    """A job about the hub."""
    import torch
    from torch_geometric.nn import GCN

    import edgewise as ew

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = GCN(FEATURES, 64, 3, CLASSES).eval()
    store, out = ew.GraphStore(folder / "hub.store"), folder / f"job-{memory}-{time.time_ns()}"
    ew.jobs.run(model, store, [1, 2], out=f"{out}-first", level="layer", top=50, memory="16GB")
    before, most, ended = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], anonymous())

    threading.Thread(target=watch, daemon=True).start()
    begin, spent = time.perf_counter(), time.process_time()
    job = ew.jobs.run(model, store, [0], out=out, level="layer", top=50, memory=memory)
    seconds, spent = time.perf_counter() - begin, time.process_time() - spent
    ended.set()
    why = job[0]
    return {
        "budget": memory,
        "memory": round((most[0] - before) / 2**20, 1),
        "seconds": round(seconds, 1),
        "processor seconds": round(spent, 1),
        "in parts": why.settings.get("in_parts"),
        "value": why.value,
        "top": why.top(50, by="magnitude"),
    }


def anonymous() -> int:
    """Bytes of anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 2**10 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--budgets", nargs="+", default=BUDGETS)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage is not None:
        found = build(asked.folder, asked.nodes) if asked.stage == "build" else explain(asked.folder, asked.stage)
        print(json.dumps(found))
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    same = [sys.executable, "-m", "benchmarks.hubs", "--folder", str(asked.folder), "--nodes", str(asked.nodes)]
    if not (asked.folder / "hub.store").exists():
        print("build:", measured([*same, "--stage", "build"])[0], flush=True)
    found = {budget: measured([*same, "--stage", budget])[0] for budget in asked.budgets}
    whole = {tuple(where): score for score, *where in found[asked.budgets[-1]]["top"]}
    for told in found.values():
        ours = {tuple(where): score for score, *where in told.pop("top")}
        shared = ours.keys() & whole.keys()
        off = max(abs(ours[one] - whole[one]) for one in shared) / max(map(abs, whole.values()))
        print({**told, "of the strongest the same": len(shared), "largest difference": off}, flush=True)


if __name__ == "__main__":
    main()
