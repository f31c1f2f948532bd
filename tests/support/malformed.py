"""Public calls that work, and values that do not belong into them: what the fuzzer of arguments is made of."""

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise import datasets, metrics, report, trust
from malformed_tasks import Tasks


class Unprintable:
    """An object whose text cannot be made."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class _FakeInt:
    """Says that it is a number, and gives none."""

    def __index__(self) -> int:
        raise MemoryError

    __int__ = __index__


class _Hostile:
    """A sequence that raises whatever is asked of it."""

    def __len__(self) -> int:
        raise ZeroDivisionError("a length")

    def __getitem__(self, key: object) -> Any:
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


JUNK: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "3": lambda: 3,
    "too many": lambda: 70,
    "10 to the 30": lambda: 10**30,
    "1.5": lambda: 1.5,
    "-0.5": lambda: -0.5,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "1j": lambda: 1j,
    "empty text": lambda: "",
    "text": lambda: "abc",
    "long text": lambda: "a" * 300,
    "escape codes": lambda: "\x1b[31m\n\x00",
    "bytes": lambda: b"abc",
    "[]": lambda: [],
    "[1.5]": lambda: [1.5],
    "[nan]": lambda: [math.nan],
    "['a']": lambda: ["a"],
    "[None]": lambda: [None],
    "[[1], [2, 3]]": lambda: [[1], [2, 3]],
    "[99]": lambda: [99],
    "(0, 1)": lambda: (0, 1),
    "{}": dict,
    "{'a': 1}": lambda: {"a": 1},
    "{0, 1}": lambda: {0, 1},
    "an object": object,
    "an unprintable object": Unprintable,
    "a function": lambda: lambda *args, **options: 0,
    "a failing function": lambda: lambda *args, **options: 1 // 0,
    "a class": lambda: Data,
    "tensor 1.5": lambda: torch.tensor(1.5),
    "no numbers": lambda: torch.empty(0),
    "a matrix": lambda: torch.ones(2, 3),
    "a mask": lambda: torch.tensor([True, False]),
    "NaN of six": lambda: torch.full((6,), math.nan),
    "far index": lambda: torch.tensor([2**40]),
    "array of texts": lambda: np.array(["x"]),
    "float32": lambda: np.float32(2),
    "a mask of six that is empty": lambda: torch.zeros(6, dtype=torch.bool),
    "a mask of six": lambda: torch.tensor([True, False, False, True, False, False]),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "a jagged tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "a quantised tensor": lambda: torch.quantize_per_tensor(torch.ones(6), 0.1, 0, torch.qint8),
    "a meta tensor": lambda: torch.ones(6, device="meta"),
    "meta numbers": lambda: torch.ones(2, dtype=torch.long, device="meta"),
    "a sparse tensor": lambda: torch.eye(6).to_sparse(),
    "compressed rows": lambda: torch.eye(6).to_sparse_csr(),
    "a complex tensor": lambda: torch.ones(6, dtype=torch.complex64),
    "eight bits": lambda: torch.ones(6).to(torch.float8_e4m3fn),
    "a huge view": lambda: torch.ones(1).expand(10**12),
    "huge numbers in a view": lambda: torch.zeros(1, dtype=torch.long).expand(10**12),
    "an endless range": lambda: range(10**12),
    "a deep list": lambda: _deep(5000),
    "a list of itself": lambda: _of_itself(),
    "an endless iterator": lambda: itertools.count(),
    "a number for ever": lambda: itertools.repeat(0),
    "texts for ever": lambda: itertools.cycle("ab"),
    "pairs for ever": lambda: zip(itertools.count(), itertools.repeat(0), strict=False),
    "lists that hold a list": lambda: [[[[0] * 3000] * 3000] * 3000] * 3000,
    "an open bracket": lambda: "((1, 2",
    "open quotes": lambda: '"""a',
    "a lone surrogate": lambda: "\ud800",
    "digits": lambda: "9" * 5000,
    "a masked array": lambda: np.ma.masked_all(6),
    "an array of objects": lambda: np.array([None, object()], dtype=object),
    "an array of dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "a record": lambda: np.zeros(2, dtype=[("a", int), ("b", float)]),
    "an int that is none": _FakeInt,
    "a hostile sequence": _Hostile,
    "a missing path": lambda: Path("/nonexistent/folder/file"),
    "a folder": lambda: Path("."),
    "range(0)": lambda: range(0),
    "range(3)": lambda: range(3),
    "a slice": lambda: slice(None, None, -1),
    "an iterator": lambda: iter([1, 2]),
    "...": lambda: ...,
    "empty data": Data,
    "a linear layer": lambda: nn.Linear(2, 2),
    "data without features": lambda: Data(edge_index=ENDS.clone(), num_nodes=6),
    "data with NaN": lambda: Data(x=torch.full((6, 4), math.nan), edge_index=ENDS.clone()),
    "data with far ends": lambda: Data(x=torch.ones(6, 4), edge_index=ENDS + 3),
    "data with half ends": lambda: Data(x=torch.ones(6, 4), edge_index=ENDS + 0.5),
    "data with one row of ends": lambda: Data(x=torch.ones(6, 4), edge_index=ENDS[0]),
    "data of other widths": lambda: Data(x=torch.ones(6, 3), edge_index=ENDS.clone(), edge_attr=torch.ones(2, 2)),
    "data with NaN weights": lambda: _data(edge_weight=torch.full((8,), math.nan)),
    "data with more nodes than rows": lambda: _data(num_nodes=9),
    "data with fewer nodes than rows": lambda: _data(num_nodes=3),
    "meta data": lambda: _data().to("meta"),
    "data with nested features": lambda: _data(x=JUNK["a nested tensor"]()),
    "data with quantised features": lambda: _data(x=torch.quantize_per_tensor(torch.ones(6, 4), 0.1, 0, torch.qint8)),
    "data with sparse features": lambda: _data(x=torch.ones(6, 4).to_sparse()),
    "data with complex features": lambda: _data(x=torch.ones(6, 4, dtype=torch.complex64)),
    "data with sparse ends": lambda: _data(edge_index=ENDS.to_sparse()),
    "data with huge features": lambda: _data(x=torch.ones(1, 4).expand(10**11, 4)),
    "data of texts": lambda: Data(x=["a"] * 6, edge_index="no ends"),
    "an empty typed graph": HeteroData,
}


def junk(kind: str, how: str = "as it is") -> Any:
    """A malformed argument; what torch warns of as it makes one is not the library's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WRAPPINGS[how](JUNK[kind]())


ENDS = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 0]])
WRAPPINGS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda junk: junk,
    "in a list": lambda junk: [junk],
    "after a number": lambda junk: (0, junk),
    "in a dict": lambda junk: {0: junk},
    "under a name": lambda junk: {"a": junk, "b": junk},
}


def _data(**changes: Any) -> Data:
    """A graph of six nodes that is well formed but for these."""
    return Data(**{"x": torch.ones(6, 4), "edge_index": ENDS.clone(), **changes})


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _of_itself() -> list[Any]:
    found: list[Any] = [0]
    found.append(found)
    return found


class Problem:
    """A small model with its data and results."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.data = Data(x=torch.randn(6, 4), edge_index=ENDS, y=torch.tensor([0, 1, 2, 0, 1, 2]))
        self.model = GCN(4, 5, 2, 3).eval()
        self.folder, self.made = folder, 0
        self.one, self.some = ew.explain(self.model, self.data, 2), ew.explain(self.model, self.data, [0, 3])
        self.sampled = ew.explain(self.model, self.data, 2, method="shapley")
        self.paths = ew.walks(self.model, self.data, 2, k=3)
        self.ask = ew.Question(self.model, self.data, [0, 3])
        self.compared = ew.compare(self.model, self.data, [0, 1, 2], methods=["gradient", "occlusion"])
        self.features = ew.features(self.model, self.data, 2)
        self.feature_set = ew.features(self.model, self.data, [0, 3])
        self.score = ew.Score(self.model, self.data, [2])
        self.checked = ew.check(self.model, self.data, [0, 3])
        self.flip = ew.counterfactual(self.model, self.data, 2)
        self.tasks = Tasks(folder)

    def calls(self) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
        """From a name to a function and arguments with which it works."""
        asked: dict[str, Any] = {"model": self.model, "data": self.data, "index": [0, 3]}
        about = {"explained": self.some, "model": self.model, "data": self.data}
        mask = torch.tensor([1, 0, 0, 1, 0, 0, 1, 0])
        tensors = {"score": torch.randn(8), "truth": mask.bool()}
        one, paths = self.one, self.paths
        return {
            "explain": (ew.explain, asked),
            "GNNExplainer": (ew.explain, {**asked, "method": "gnn_explainer", "epochs": 2}),
            "shapley": (ew.explain, {**asked, "method": "shapley", "samples": 2}),
            **{
                f"explain by {name}": (ew.explain, {**asked, "method": name}) for name in ("lrp", "random", "deep_lift")
            },
            "explain in steps": (ew.explain, {**asked, "method": "integrated_gradients", "steps": 2, "level": "layer"}),
            "features": (ew.features, asked),
            "counterfactual": (ew.counterfactual, {**asked, "budget": 2000}),
            "walks": (ew.walks, {**asked, "k": 2}),
            "walk_relevance": (ew.walk_relevance, {**asked, "index": 2, "walks": [(1, 1, 2)]}),
            "subgraph_relevance": (ew.subgraph_relevance, {**asked, "index": 2, "nodes": [1, 2]}),
            "check": (ew.check, asked),
            "compare": (ew.compare, {**asked, "methods": ["gradient", "random"]}),
            "write_page": (ew.write_page, {"path": self.folder / "page.html", **asked, "methods": ["gradient"]}),
            "similarity": (ew.similarity, {"a": self.some, "b": self.some}),
            "best_subgraph": (ew.best_subgraph, {"model": self.model, "data": self.data, "found": self.some}),
            "subgraph_x": (ew.subgraph_x, {**asked, "max_nodes": 3, "samples": 4}),
            "shapley_interactions": (ew.shapley_interactions, {**asked, "samples": 4}),
            "load": (ew.load, {"path": self.saved}),
            "GraphStore": (ew.GraphStore, {"path": self.stored.path}),
            "GraphStore.build": (ew.GraphStore.build, {"path": self.folder / "other.store", "data": self.data}),
            "GraphStore.node": (self.stored.node, {"name": "n3"}),
            "explain a store": (ew.explain, {**asked, "data": self.stored}),
            "jobs.run": (ew.jobs.run, {**asked, "out": self._new("job")}),
            "jobs.run on a store": (ew.jobs.run, {**asked, "data": self.stored, "out": self._new("job"), "top": 3}),
            "jobs.open": (ew.jobs.open, {"path": self.job.path}),
            "Job[]": (self.job.__getitem__, {"position": 0}),
            "Job.of": (self.job.of, {"index": 3}),
            "Job.to_frame": (self.job.to_frame, {}),
            "Job.page": (self.job.page, {"path": self.folder / "job.html"}),
            "from_pyg": (ew.from_pyg, {"algorithm": _pyg_algorithm()}),
            "heal": (ew.heal, {"model": self.model}),
            "methods": (ew.methods, {}),
            "Score": (ew.Score, asked),
            "Score()": (self.score, {"layer_weight": self.score.ones()}),
            "Score.output": (self.score.output, {"layer_weight": self.score.ones()}),
            "Question": (ew.Question, asked),
            "Question.of": (self.ask.of, {"index": 2}),
            "Question.explain": (self.ask.explain, {}),
            "Question.choose_method": (self.ask.choose_method, {}),
            "Question.walks": (self.ask.walks, {}),
            "Question.features": (self.ask.features, {}),
            "Question.counterfactual": (self.ask.counterfactual, {"budget": 2000}),
            "Counterfactual.sentence": (self.flip.sentence, {}),
            "Counterfactual.plot": (self.flip.plot, {}),
            "Counterfactual.save": (self.flip.save, {"path": self.folder / "flip.json"}),
            "Question.check": (self.ask.check, {}),
            "Question.compare": (self.ask.compare, {"methods": ["gradient", "random"]}),
            "Question.page": (self.ask.page, {"path": self.folder / "asked.html", "methods": ["gradient"]}),
            "Explanation.top": (one.top, {}),
            "Explanation.intervals": (self.sampled.intervals, {}),
            "Explanation.subgraph": (one.subgraph, {}),
            "Explanation.merged": (one.merged, {}),
            "Explanation.plot": (one.plot, {}),
            "Explanation.to_networkx": (one.to_networkx, {}),
            "Explanation.to_graphml": (one.to_graphml, {"path": self.folder / "one.graphml"}),
            "Explanation.to_rows": (one.to_rows, {}),
            "Explanation.to_frame": (one.to_frame, {}),
            "ExplanationSet[]": (self.some.__getitem__, {"item": 0}),
            "ExplanationSet.of": (self.some.of, {"index": 3}),
            "ExplanationSet.graph": (self.some.graph, {"position": 0}),
            "ExplanationSet.save": (self.some.save, {"path": self.folder / "some.npz"}),
            "ExplanationSet.to_rows": (self.some.to_rows, {}),
            "ExplanationSet.to_frame": (self.some.to_frame, {}),
            "FeatureScores.top": (self.features.top, {}),
            "FeatureSet[]": (self.feature_set.__getitem__, {"item": 0}),
            "FeatureSet.of": (self.feature_set.of, {"index": 3}),
            "FeatureSet.save": (self.feature_set.save, {"path": self.folder / "features.npz"}),
            "WalkSet.edge_scores": (paths.edge_scores, {}),
            "WalkSet.plot": (paths.plot, {}),
            "WalkSet.to_graphml": (paths.to_graphml, {"path": self.folder / "walks.graphml"}),
            "Comparison.pair": (self.compared.pair, {"first": "gradient", "second": "occlusion"}),
            "Comparison.matrix": (self.compared.matrix, {}),
            "Comparison.table": (self.compared.table, {}),
            "Comparison.plot": (self.compared.plot, {}),
            "Report.statement": (self.checked.statement, {"name": "Proposition 1"}),
            "fidelity": (metrics.fidelity, {**about, "k": 2, "by": "support"}),
            "fidelity_curve": (metrics.fidelity_curve, {**about, "ks": [1, 2]}),
            "unfaithfulness": (metrics.unfaithfulness, {**about, "k": 2, "by": "support"}),
            "sparsity": (metrics.sparsity, {"explained": self.some, "k": 2, "by": "support"}),
            "signs": (metrics.signs, {"explained": self.some}),
            "stability": (metrics.stability, {"runs": [self.some, self.some]}),
            "stability_under_seeds": (metrics.stability_under_seeds, {**asked, "seeds": [0, 1]}),
            "stability_under_noise": (metrics.stability_under_noise, {**asked, "draws": 2}),
            "recovery": (metrics.recovery, {"explained": self.some, "truth": mask.bool()}),
            "path_recovery": (metrics.path_recovery, {"found": self.some, "paths": [[(1, 2)], [(0, 3)]]}),
            "characterization": (metrics.characterization, {"plus": torch.rand(3), "minus": torch.rand(3)}),
            "area": (metrics.area, {"x": torch.tensor([0.0, 1.0]), "y": torch.tensor([0.5, 1.0])}),
            "auroc": (metrics.auroc, tensors),
            "average_precision": (metrics.average_precision, tensors),
            "precision_at": (metrics.precision_at, {**tensors, "k": 2}),
            "certify": (trust.certify, asked),
            "sign_flips": (trust.sign_flips, asked),
            "datasets.load": (datasets.load, {"name": "negative_evidence"}),
            "datasets.register": (datasets.register, {"name": self._new("data").name, "make": datasets.infection}),
            "infection": (datasets.infection, {"num_graphs": 3}),
            "draw": (report.draw, {"explanation": one}),
            "draw_walks": (report.draw_walks, {"walks": paths}),
            "infection_paths": (datasets.infection_paths, {"graph": self.data, "index": 3}),
            **self.tasks.calls(),
        }

    @cached_property
    def stored(self) -> ew.GraphStore:
        """The graph on disk."""
        names = [f"n{number}" for number in range(6)]
        return ew.GraphStore.build(self.folder / "graph.store", self.data, names=names)

    def _new(self, kind: str) -> Path:
        """A path that is not there, with a name that is not taken."""
        self.made += 1
        return self.folder / f"{kind}_{self.made}_malformed"

    @cached_property
    def job(self) -> ew.jobs.Job:
        """A job that is done."""
        return ew.jobs.run(self.model, self.data, [0, 3], out=self.folder / "finished")

    @cached_property
    def saved(self) -> Path:
        """A result as a file."""
        path = self.folder / "saved.npz"
        self.some.save(path)
        return path


def _pyg_algorithm() -> Any:
    from torch_geometric.explain import DummyExplainer

    return DummyExplainer()


def parameters(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """The names of a function's own parameters, and of the settings of the method that it is called with."""
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    own = [p.name for p in found if p.kind not in several and p.name != "self"]
    method = arguments.get("method")
    settings = ew.methods()[method].settings if isinstance(method, str) and method in ew.methods() else {}
    return [*dict.fromkeys([*own, *arguments, *settings])]
