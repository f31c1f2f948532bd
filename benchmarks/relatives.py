"""What the relatives cost: seconds and passes a target, on Infection and on molecules: `python -m benchmarks.relatives`.

Process time on one thread, the question asked before; the best of three runs. "passes" is that time in units of one gradient
pass over the same targets, so that rows can be compared between machines.
"""

import time

import torch

import edgewise as ew
from edgewise.datasets import infection_model

ROUNDS = 3
METHODS: dict[str, dict] = {
    "gradient": {},
    "occlusion": {},
    "integrated_gradients": {},
    "deep_lift": {},
    "degree": {},
    "shapley": {"samples": 20},
    "subgraphx": {"max_nodes": 4, "beam": 8, "samples": 20},
    "auto": {},
}


def seconds(ask: ew.Question, method: str, settings: dict) -> float:
    """Process seconds of the best of some runs."""
    found = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        ask.explain(method, **settings)
        found.append(time.process_time() - begin)
        if found[-1] > 20:
            break
    return min(found)


def main() -> None:
    """Print a markdown table."""
    torch.set_num_threads(1)
    trained, planted = infection_model(), ew.datasets.load("toxic_groups")
    model = planted.train().model
    asked = {
        "Infection, 20 nodes": ew.Question(trained.model, trained.graphs.test, range(20)),
        "molecules, 20 graphs": ew.Question(model, planted.data, range(20), task="graph"),
    }
    print("| method | " + " | ".join(f"{name}: ms a target | passes" for name in asked) + " |")
    print("|---|" + "---|" * 2 * len(asked))
    one = {name: seconds(ask, "gradient", {}) for name, ask in asked.items()}
    for method, settings in METHODS.items():
        cells = []
        for name, ask in asked.items():
            took = one[name] if method == "gradient" else seconds(ask, method, settings)
            cells += [f"{1000 * took / 20:.3g}", f"{took / one[name]:.3g}"]
        given = ", ".join(f"{key}={value}" for key, value in settings.items())
        print(f"| `{method}`{f' ({given})' if given else ''} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
