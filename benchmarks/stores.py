"""A graph on disk that is explained without being loaded: how fast, and in how much memory.

    python -m benchmarks.stores --folder DIR                      # 2·10⁶ nodes, 2·10⁷ edges: writes 1.7 GB there
    python -m benchmarks.stores --folder DIR --nodes 100000       # smaller

The graph: 64 features, in-degrees Poisson(10), senders by a power law (degrees have the exponent 2.5). Each stage is a process
of its own, whose anonymous memory (`RssAnon`) is read fifty times a second: pages of mapped files belong to the system's cache
and are not counted. The page cache is warm: every file is read once before. The time is that of `ew.jobs.run` from the call to
the end, with the first question and the writing of shards, when libraries are loaded and files have been compared with their
digests; by the clock, and by the processor time of the one thread, which counts where others use the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

FEATURES, DEGREE, EXPONENT, CLASSES, SEED = 64, 10, 3.0, 4, 0
PIECE = 2**18
STAGES = ("generate", "build", "explain", "sampled")


def generate(folder: Path, nodes: int) -> dict[str, float]:
    """An `.npz` with `x` and `edge_index`, written in pieces; columns are in no order."""
    import numpy as np

    generator = np.random.default_rng(SEED)
    degree = generator.poisson(DEGREE, nodes)
    receiver = generator.permutation(np.repeat(np.arange(nodes), degree))
    rank = generator.permutation(nodes)
    sender = rank[(nodes * generator.random(len(receiver)) ** EXPONENT).astype(np.int64)]
    with zipfile.ZipFile(folder / "graph.npz", "w", zipfile.ZIP_STORED) as archive:
        with archive.open("edge_index.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, np.stack([sender, receiver]))
        with archive.open("x.npy", "w", force_zip64=True) as file:
            said = {"descr": "<f4", "fortran_order": False, "shape": (nodes, FEATURES)}
            np.lib.format.write_array_header_1_0(file, said)
            for begin in range(0, nodes, PIECE):
                rows = min(PIECE, nodes - begin)
                file.write(generator.standard_normal((rows, FEATURES), dtype=np.float32).tobytes())
    return {"edges": len(receiver)}


def build(folder: Path, nodes: int) -> dict[str, float]:
    """The store."""
    import edgewise as ew

    store = ew.GraphStore.build(folder / "graph.store", folder / "graph.npz")
    return {"nodes": store.num_nodes, "edges": store.num_edges, "bytes": store.num_bytes}


def explain(folder: Path, nodes: int, targets: int, audit: object = "every") -> dict[str, float]:
    """A job over the store: layer gradients of a GCN, the 50 strongest of each target."""
    import torch
    from torch_geometric.nn import GCN

    import edgewise as ew

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = GCN(FEATURES, 64, 3, CLASSES).eval()
    store = ew.GraphStore(folder / "graph.store")
    store.verify()  # and so every page is in the cache
    index = torch.randperm(nodes, generator=torch.Generator().manual_seed(SEED))[:targets].tolist()
    out, options = folder / f"job-{os.getpid()}", {} if audit == "every" else {"audit": audit}
    ew.jobs.run(model, store, index[-64:], out=f"{out}-first", level="layer", top=50)  # libraries are loaded
    begin, spent = time.perf_counter(), time.process_time()
    job = ew.jobs.run(model, store, index, out=out, level="layer", top=50, **options)
    seconds, spent = time.perf_counter() - begin, time.process_time() - spent
    return {
        "targets": targets,
        "failed": job.status.failed,
        "shards": len(job.shards),
        "seconds": seconds,
        "rate": targets / seconds,
        "processor seconds": spent,
        "rate by processor seconds": targets / spent,
    }


def measured(command: list[str]) -> tuple[dict[str, float], float, float]:
    """What a process printed, the most anonymous memory that it had, in GB, and its seconds."""
    begin, most = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            most = max([most, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))])
        except OSError:
            break
        time.sleep(0.02)
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return json.loads(printed.splitlines()[-1]), most / 2**20, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--only", choices=STAGES, nargs="+", default=STAGES)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage is None:
        asked.folder.mkdir(parents=True, exist_ok=True)
        for stage in asked.only:
            sizes = ["--folder", str(asked.folder), "--nodes", str(asked.nodes), "--targets", str(asked.targets)]
            found, memory, seconds = measured([sys.executable, "-m", "benchmarks.stores", *sizes, "--stage", stage])
            print(f"{stage}: {seconds:.1f} s, {memory:.2f} GB of anonymous memory; {found}", flush=True)
        return
    if asked.stage in ("generate", "build"):
        print(json.dumps({"generate": generate, "build": build}[asked.stage](asked.folder, asked.nodes)))
        return
    audit = "every" if asked.stage == "explain" else 20
    print(json.dumps(explain(asked.folder, asked.nodes, asked.targets, audit)))


if __name__ == "__main__":
    main()
