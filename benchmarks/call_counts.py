"""How much of the library one question goes through: `python -m benchmarks.call_counts`, a few seconds.

Files, functions, calls and changes of package of one plain call and of one held question, counted by Python's profiler: every
entry into a function of Edgewise (also a generator that goes on), and every one whose caller is in another package. One node
of a small GCN, after a call that has imported and compiled everything. The counts are a sign, not the aim.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from benchmarks.threads import pin

ROOT = str(Path(ew.__file__).parent) + "/"


@dataclass
class Counts:
    """What one call went through."""

    codes: set[CodeType] = field(default_factory=set)
    calls: int = 0
    changes: int = 0

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.codes}

    def row(self) -> tuple[int, int, int, int]:
        return len(self.files), len(self.codes), self.calls, self.changes

    def see(self, frame: FrameType, event: str, _: Any) -> None:
        """Python's profiler calls this for every function that is entered or left."""
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        self.codes.add(frame.f_code)
        self.calls += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        self.changes += caller is not None and _package(caller) != _package(frame)


def _package(frame: FrameType) -> str:
    """The folder below `edgewise/` that a function is in; empty for its root files."""
    below = frame.f_code.co_filename[len(ROOT) :]
    return below.split("/")[0] if "/" in below else ""


def count(call: Callable[[], Any]) -> Counts:
    """What a call goes through, when it is not the first."""
    call()
    counts = Counts()
    sys.setprofile(counts.see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def calls() -> dict[str, Callable[[], Any]]:
    """Plain calls and held questions about one node; a held question is asked about another node each time."""
    torch.manual_seed(0)
    model = GCN(8, 16, 2, 3).eval()
    data = Data(x=torch.randn(60, 8), edge_index=torch.randint(0, 60, (2, 240)))
    ask = ew.Question(model, data, 0)
    return {
        "plain `ew.explain`": lambda: ew.explain(model, data, 7),
        "held `ask.explain`": lambda: ask.explain(),
        "held, `ask.of(7).explain`": lambda: ask.of(7).explain(),
        "plain, occlusion by layer": lambda: ew.explain(model, data, 7, method="occlusion", level="layer"),
        "held, occlusion by layer": lambda: ask.explain("occlusion", "layer"),
        "`ew.features`": lambda: ew.features(model, data, 7),
        "`ew.walks`": lambda: ew.walks(model, data, 7),
        "`ew.counterfactual`": lambda: ew.counterfactual(model, data, 7, seconds=None, size=1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--files", action="store_true", help="print the files of the plain call, with their functions")
    given = parser.parse_args()
    pin()
    found = {name: count(call) for name, call in calls().items()}
    if given.json:
        print(json.dumps({name: counts.row() for name, counts in found.items()}, indent=1))
        return
    print("| one node of a small GCN | files | functions | calls | changes of package |\n|---|---|---|---|---|")
    for name, counts in found.items():
        print(f"| {name} | " + " | ".join(f"{number:,}" for number in counts.row()) + " |")
    if given.files:
        plain = next(iter(found.values()))
        for file in sorted(plain.files):
            names = sorted(code.co_qualname for code in plain.codes if code.co_filename == file)
            print(f"{file[len(ROOT) :]}: {', '.join(names)}")


if __name__ == "__main__":
    main()
