"""Public calls about links, whole graphs and typed graphs, and the verbs of their results: more for the fuzzer of arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from altered_files import Pairs, Pooled, Typed, graph, typed_graph
from edgewise import metrics, report, trust

Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]


class Tasks:
    """Small models of every task with their results."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.folder = folder
        link = {"model": Pairs().eval(), "data": graph(9, 1), "index": [(0, 1), (4, 7)], "task": "link"}
        whole = {"model": Pooled().eval(), "data": [graph(n, n) for n in (4, 6, 5)], "index": [0, 2], "task": "graph"}
        typed = {"model": Typed().eval(), "data": typed_graph(), "index": ("b", [0, 2])}
        self.asked: dict[str, dict[str, Any]] = {"links": link, "graphs": whole, "types": typed}
        self.found = {name: ew.explain(**asked) for name, asked in self.asked.items()}
        self.features = {name: ew.features(**asked) for name, asked in self.asked.items()}
        self.flips = ew.counterfactual(**whole)
        self.score = ew.Score(**link)
        self.chain = _molecule()
        self.atoms = ew.explain(GCN(7, 4, 2, 3).eval(), self.chain, 1)

    def calls(self) -> Calls:
        """From a name to a function and arguments with which it works."""
        found: Calls = {"Score of links": (self.score.output, {"layer_weight": self.score.ones()})}
        for name, asked in self.asked.items():
            found |= self._questions(name, asked) | self._results(name)
        graphs = {name: value for name, value in self.asked["graphs"].items() if name != "index"}
        types = {"model": self.asked["types"]["model"], "data": self.asked["types"]["data"]}
        found["page of types"] = (self.found["types"].page, {**types, "path": self.folder / "types.html"})
        found["EdgewiseExplainer"] = (ew.EdgewiseExplainer, {"method": "occlusion"})
        found["CounterfactualSet.save"] = (self.flips.save, {"path": self.folder / "flips.json"})
        found["walks of graphs"] = (ew.walks, {**graphs, "index": [0, 2], "k": 2})
        found["certify graphs"] = (trust.certify, {**graphs, "index": [0, 2]})
        found["molecule"] = (report.molecule, {"explanation": self.atoms, "data": self.chain})
        return found

    def _questions(self, name: str, asked: dict[str, Any]) -> Calls:
        """What is asked of a model."""
        return {
            f"explain {name}": (ew.explain, asked),
            f"explain {name} by masks": (ew.explain, {**asked, "method": "gnn_explainer", "epochs": 2}),
            f"features of {name}": (ew.features, asked),
            f"counterfactual of {name}": (ew.counterfactual, {**asked, "budget": 500}),
            f"Question about {name}": (ew.Question, asked),
            f"fidelity of {name}": (
                metrics.fidelity,
                {"explained": self.found[name], "model": asked["model"], "data": asked["data"], "k": 2},
            ),
        }

    def _results(self, name: str) -> Calls:
        """What a result is asked."""
        several = self.found[name]
        one = several[0]
        return {
            f"[] of {name}": (several.__getitem__, {"item": 0}),
            f"of {name}": (several.of, {"index": several.index[0] if name != "links" else (0, 1)}),
            f"graph of {name}": (several.graph, {"position": 0}),
            f"save {name}": (several.save, {"path": self.folder / f"{name}.parquet"}),
            f"top of {name}": (several.top, {"k": 3}),
            f"top of one of {name}": (one.top, {}),
            f"subgraph of {name}": (one.subgraph, {}),
            f"plot of {name}": (one.plot, {}),
            f"features of one of {name}": (self.features[name][0].top, {}),
        }


def _molecule() -> Data:
    """Four atoms in a row, their kinds as one-hot features."""
    ends = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    return Data(x=torch.eye(7)[:4], edge_index=ends, edge_attr=torch.eye(4)[[0, 0, 1, 1, 2, 2]])
