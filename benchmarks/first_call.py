"""A newcomer's first call on Infection, in a fresh process: `python -m benchmarks.first_call`.

Imports are not counted; everything else is. Each call is made with an empty cache of compiled loops, then with the one that it
left behind. Process time, on one thread.
"""

import json
import os
import subprocess
import sys
import tempfile

CALLS = {
    "gradients of one node": "ew.explain(model, data, 22)",
    "layerwise occlusion of one node": "ew.explain(model, data, 22, method='occlusion', level='layer')",
    "GNNExplainer of one node, 100 epochs": "ew.explain(model, data, 22, method='gnn_explainer')",
    "the best walk to one node": "ew.walks(model, data, 22)",
    "layer gradients of all 1000 nodes": "ew.explain(model, data, level='layer')",
    "layerwise occlusion of all 1000 nodes": "ew.explain(model, data, method='occlusion', level='layer')",
}
PROGRAM = """
from benchmarks.threads import pin
pin()
import sys, time
import edgewise as ew
from benchmarks.models import infection
ew.explain, ew.walks
model, data = infection().model, infection().graphs.test
start = time.process_time()
{call}
print(time.process_time() - start)
"""


def seconds(call: str, cache: str) -> float:
    """What the call takes in a process of its own."""
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(made.stdout.splitlines()[-1]))


def main() -> None:
    print("| first call | empty cache, s | full cache, s |\n|---|---|---|")
    for name, call in CALLS.items():
        with tempfile.TemporaryDirectory() as cache:
            cold, *warm = (seconds(call, cache) for _ in range(4))
        print(f"| {name}: `{call}` | {cold:.2f} | {min(warm):.2f} |", flush=True)


if __name__ == "__main__":
    main()
