"""Recorded answers: numbers of every method, kind of layer, task and kind of graph, as they were when they were last recorded.

    python tests/support/recorded_answers.py                      # which answers differ from the recorded ones, and by how much
    python tests/support/recorded_answers.py --write              # record them again: only lines that differ are replaced
    python tests/support/recorded_answers.py --diff OLD [NEW]     # compare two files of answers
    python tests/support/recorded_answers.py --show "node/gcn"    # today's numbers in full, of all answers that begin so

An answer is one line of `tests/recorded/answers.csv`: its name, how many numbers it has, the largest of them, and the numbers.
Of a long answer not the numbers themselves are kept but a few sums of all of them with fixed weights, which change whenever
one of them does. What is refused is recorded as refused, with the type of the error. Models, graphs and weights are made from
hashes (`recorded_models.py`), and every random number that a method draws is a hash too, so that the same numbers hold with
every version of torch.
"""

import argparse
import csv
import fnmatch
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
import recorded_models as zoo
from edgewise import metrics, trust

FILE = Path(__file__).parent.parent / "recorded" / "answers.csv"
TOLERANCE = 1e-9
"""Of the largest number of an answer: a million times what rounding of float64 makes of sums of this length."""
FLOOR = 1e-3
"""Numbers below this are compared as if the largest were as large: where all are rounding, there is nothing to compare."""
SHORT, SUMS = 6, 4

Answers = Iterator[tuple[str, Callable[[], object]]]
Asked = Callable[..., Answers]


# What is kept of an answer ############################################################################################


@dataclass(frozen=True)
class Answer:
    """One line of the file."""

    name: str
    size: int
    largest: float
    numbers: tuple[float, ...] = ()
    refused: str = ""

    @classmethod
    def of(cls, name: str, ask: Callable[[], object]) -> "Answer":
        """Ask, and keep the numbers or the type of the error."""
        try:
            answer = ask()
        except Exception as error:
            return cls(name, 0, 0.0, refused=type(error).__name__)
        found = torch.cat([torch.zeros(0, dtype=torch.double), *numbers_in(answer)])
        known = found.nan_to_num(-7.25, 8.25, -8.25)  # what is no number becomes one that nothing else is
        if len(known) > SHORT:
            kept = torch.stack([zoo.numbers(f"sum {number}", len(known)) for number in range(SUMS)]) @ known
        else:
            kept = known
        largest = found[found.isfinite()].abs()
        return cls(name, len(known), float(largest.max()) if len(largest) else 0.0, tuple(kept.tolist()))

    @classmethod
    def of_row(cls, row: list[str]) -> "Answer":
        name, size, largest, kept = row
        if size == "refused":
            return cls(name, 0, 0.0, refused=kept)
        return cls(name, int(size), float(largest), tuple(map(float, kept.split())))

    def row(self) -> list[str]:
        if self.refused:
            return [self.name, "refused", "", self.refused]
        return [self.name, str(self.size), f"{self.largest:.6g}", " ".join(f"{number:.15g}" for number in self.numbers)]

    def difference(self, other: "Answer") -> str:
        """In words how another answer differs from this one; empty if it does not."""
        if self.refused or other.refused:
            said = [f"refused ({one.refused})" if one.refused else f"{one.size} numbers" for one in (self, other)]
            return "" if said[0] == said[1] else f"{said[0]} → {said[1]}"
        if self.size != other.size or len(self.numbers) != len(other.numbers):
            return f"{self.size} numbers → {other.size} numbers"
        apart = [abs(a - b) for a, b in zip(self.numbers, other.numbers, strict=True)]
        scale = max(self.largest, other.largest, FLOOR)
        if all(one <= tolerance(self.name) * scale for one in apart):
            return ""
        share = f"{max(apart) / scale:.2g} of its largest number"
        return f"differs by {max(apart):.2g}, which is {share} (allowed: {tolerance(self.name):.0e})"


LARGER: dict[str, tuple[float, str]] = {}
"""Names (with wildcards) of answers that need a larger tolerance: how large, and why."""


def tolerance(name: str) -> float:
    return next((found for pattern, (found, _) in LARGER.items() if fnmatch.fnmatch(name, pattern)), TOLERANCE)


def numbers_in(value: object) -> list[Tensor]:
    """Every number in a result, in a fixed order, float64; what is said in words is left out, except verdicts."""
    if value is None or isinstance(value, (bool, int, float)):
        return [torch.tensor([torch.nan if value is None else float(value)], dtype=torch.double)]
    if isinstance(value, Tensor):
        return [value.detach().double().reshape(-1)]
    return [found for part in _parts(value) for found in numbers_in(part)]


def _parts(value: Any) -> Iterable[Any]:
    for kind, reading in READINGS.items():
        if isinstance(value, kind):
            return reading(value)
    if hasattr(value, "per_feature"):  # scores of features, of a graph with or without types
        scored = value.per_node() if "cam" in value.method else (value.scores, value.edge_scores)
        return (value.target, value.value, scored)
    if is_dataclass(value) and not isinstance(value, Sequence):
        return [getattr(value, part.name) for part in fields(value)]
    return [value[key] for key in sorted(value, key=str)] if isinstance(value, Mapping) else value


VERDICTS = ("holds", "nearly", "partly", "fails", "does not apply", "open")
STATUSES = ("proven", "none", "open")
READINGS: dict[type, Callable[[Any], Iterable[Any]]] = {
    str: lambda words: (),
    ew.Explanation: lambda why: (why.target, why.value, why.scores, why.self_scores),
    ew.WalkSet: lambda found: (found.exact, [(found.numbers_of(walk), walk.score) for walk in found]),
    # which of several smallest sets is found is left open
    ew.Counterfactual: lambda found: (found.target, STATUSES.index(found.status), found.size, found.lower_bound),
    ew.Comparison: lambda found: [(row["mean"], row["deviation"], row["defined"]) for row in found.rows()],
    trust.Report: lambda report: (
        report.layers, report.whole, report.softmax, [VERDICTS.index(one.verdict) for one in report.statements]
    ),
    trust.Certificate: lambda found: (found.keeps, found.flips, found.vanishes),
    trust.SignFlips: lambda found: (found.gradient, found.lowest, found.highest),
    metrics.Measured: lambda found: (found.value,),
    metrics.Stability: lambda found: (found.mean, found.worst),
}  # fmt: skip


# What is asked ########################################################################################################

BOTH, INPUT, LAYER = ("input", "layer"), ("input",), ("layer",)
METHODS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "gradient": (BOTH, {}),
    "positive_gradient": (INPUT, {}),
    "occlusion": (BOTH, {}),
    "gnn_explainer": (BOTH, {"epochs": 5}),
    "gnn_explainer_fast": (INPUT, {"passes": 2, "epochs": 5}),
    "integrated_gradients": (BOTH, {"steps": 3}),
    "deep_lift": (LAYER, {}),
    "degree": (LAYER, {}),
    "lrp": (INPUT, {}),
    "goat_walks": (INPUT, {}),
    "eig_search": (INPUT, {"w_base": 0.5}),
    "shapley": (INPUT, {"samples": 2}),
    "subgraphx": (INPUT, {"max_nodes": 3, "beam": 2, "samples": 2}),
    "random": (INPUT, {}),
    "full": (LAYER, {}),
}
"""Every method but `auto`, which is one of them: the levels that every model is asked at, and settings that make it quick."""
QUICK = ("gradient", "occlusion", "gnn_explainer", "lrp")
FEATURES: dict[str, dict[str, Any]] = {
    "gradient": {},
    "occlusion": {},
    "gradient_x_input": {},
    "integrated_gradients": {"steps": 3},
    "cam": {},
    "grad_cam": {},
}
SEARCHES: list[dict[str, Any]] = [
    *({"search": search} for search in ("dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")),
    {"search": "dag", "width": 3},
    {"sign": "negative"},
    {"sign": "magnitude"},
    *(
        {**rule, "search": search}
        for rule in (
            {"rule": "lrp-epsilon", "epsilon": 0.1},
            {"rule": "lrp-gamma"},
            {"attention": "fixed"},
            {"norm": "fixed"},
        )
        for search in ("exact", "exhaustive")
    ),
]


def _said(settings: dict[str, Any]) -> str:
    return "".join(f", {key}={value}" for key, value in settings.items())


def explanations(ask: ew.Question, methods: Iterable[str] = METHODS, *, thorough: bool = False) -> Answers:
    for method in methods:
        levels, settings = METHODS[method]
        for level in BOTH if thorough else levels:
            yield f"explain {method}, {level}{_said(settings)}", partial(ask.explain, method, level, **settings)
    if thorough:
        yield "explain lrp, layer, rule=lrp-gamma", partial(ask.explain, "lrp", "layer", rule="lrp-gamma")


def features(ask: ew.Question, methods: Iterable[str] = ("gradient", "occlusion")) -> Answers:
    for method in methods:
        yield f"features {method}", partial(ask.features, method, **FEATURES[method])


def walks(ask: ew.Question, *, thorough: bool = False) -> Answers:
    for how in [{}, *(SEARCHES if thorough else [])]:
        yield f"walks{_said(how)}", partial(ask.walks, 3, **how)


def scores(score: ew.Score) -> Answers:
    """A score at weights that are hashes of layer, target and edge, and its gradients there."""
    edges, nodes = int(score.edge_id.max()) + 1, int(score.self_node.max()) + 1
    layers, targets = score.num_layers, score.num_targets
    edge_table, node_table = zoo.numbers("omega", layers, targets, edges), zoo.numbers("s", layers, targets, nodes)
    weight = (0.5 + 0.5 * edge_table[:, score.owner, score.edge_id]).requires_grad_()
    own = (0.5 + 0.5 * node_table[:, score.self_owner, score.self_node]).requires_grad_()
    value = score(weight, own)
    by_edge, by_node = torch.autograd.grad(value.sum(), (weight, own), allow_unused=True)
    edge_table, node_table = torch.zeros_like(edge_table), torch.zeros_like(node_table)
    edge_table[:, score.owner, score.edge_id] = by_edge
    node_table[:, score.self_owner, score.self_node] = 0.0 if by_node is None else by_node
    yield "score at random weights", lambda: (value, edge_table, node_table)


def everything(model, data, index, *, thorough: bool = False, slow: bool = False, **told) -> Answers:
    """All that can be asked of one model about some targets; of slow models a part of it."""
    ask = ew.Question(model, data, index, **told)
    yield "value", lambda: (ask.value, ask.target, ask.num_layers)
    yield from scores(ew.Score(model, data, index, **told))
    yield from explanations(ask, QUICK if slow else METHODS, thorough=thorough)
    yield from features(ask, FEATURES if thorough else ("gradient", "occlusion"))
    yield from walks(ask, thorough=thorough)
    for by in () if slow else ("weight", "removal"):
        size = 2 if thorough else 1
        yield f"counterfactual, {by}, size={size}", partial(ask.counterfactual, by=by, size=size, seconds=None)


def many(model, data, index, **told) -> Answers:
    """What compiled loops do, which are taken for many targets."""
    ask = ew.Question(model, data, index, **told)
    yield from explanations(ask, ("gradient", "occlusion", "gnn_explainer", "integrated_gradients", "lrp", "shapley"))
    yield from features(ask)
    yield from walks(ask)


def gradients_and_losses(model, data, index, **told) -> Answers:
    yield from explanations(ew.Question(model, data, index, **told), ("gradient", "occlusion"))


def dense(model, data, index, **told) -> Answers:
    """A graph with so many edges that compiled loops are worth loading: for all targets, and for a few."""
    ask = ew.Question(model, data, index, **told)
    yield from explanations(ask, ("gradient", "occlusion"))
    yield "all, integrated gradients", partial(ask.explain, "integrated_gradients", "layer", steps=7)
    few = ask.of(index[:3])
    for name, answer in explanations(few, ("gnn_explainer", "integrated_gradients", "shapley")):
        yield f"few, {name}", answer
    one = ask.of(index[:1])
    for name, answer in (*explanations(one, ("subgraphx",)), *walks(one)):
        yield f"one, {name}", answer


def large(model, data, index) -> Answers:
    """A graph that is cut, in memory and on disk."""
    with tempfile.TemporaryDirectory() as folder:
        store = ew.GraphStore.build(Path(folder) / "store", data)
        for place, graph in (("cut", data), ("store", store)):
            ask = ew.Question(model, graph, index)
            for name, answer in (*explanations(ask, ("gradient", "occlusion", "gnn_explainer")), *walks(ask)):
                yield f"{place}, {name}", answer
            yield f"{place}, features occlusion", partial(ask.features, "occlusion", top=5)
            yield f"{place}, other targets", partial(ask.of([9]).explain, "occlusion", "layer")


def options() -> Answers:
    """Arguments that change what is asked, or how the work is cut, on one model; plain calls and held questions."""
    model, data, index = zoo.fill("node gcn", zoo.NODE_MODELS["gcn"]()), zoo.plain_graph(), [1, 4, 7]
    asked = (model, data, index)
    given: list[dict[str, Any]] = [
        *({"target": target} for target in ("all", 2, [0, 1, 2])),
        *({"of": of} for of in ("prob", "log_prob")),
        *({"mode": "multilabel"}, {"mode": "regression", "target": 1}, {"output": "log_prob"}),
        *({"top": 3}, {"batch_size": 1}, {"memory": "50MB"}),
    ]
    for settings in given:
        for method in ("gradient", "occlusion"):
            yield f"{method}{_said(settings)}", partial(ew.explain, *asked, method=method, level="layer", **settings)
    yield "one node", partial(ew.explain, model, data, 1)
    yield "all nodes", partial(ew.explain, model, data)
    yield "seed", partial(ew.explain, *asked, method="gnn_explainer", epochs=5, seed=3)
    yield "start", partial(ew.explain, *asked, method="gnn_explainer", epochs=5, init=zoo.numbers("start", 14))
    yield "undirected", partial(ew.explain, *asked, method="eig_search", undirected=True)
    yield "auto", partial(ew.explain, *asked, method="auto")
    ask = ew.Question(model, data, [0], target=1)
    yield "other targets", partial(ask.of(index).explain, "occlusion", "layer")
    positions = zoo.fill("node positions", zoo.NODE_MODELS["positions"]())
    yield "attribute", partial(ew.features, positions, data, index, attribute="pos", **zoo.TOLD["positions"])
    stopped = zoo.fill("node stopped", zoo.NODE_MODELS["stopped"]())
    yield "stopped", partial(ew.explain, stopped, data, index, stopped="keep")
    yield "undirected sets", partial(ew.counterfactual, *asked, undirected=True, seconds=None)
    yield "sets to a class", partial(ew.counterfactual, model, data, 1, to=2, size=3, seconds=None)
    taken = [(0, 1, 2, 1), (3, 0, 1, 1), (5, 3, 3, 1)]
    yield "walk relevance", partial(ew.walk_relevance, model, data, 1, walks=taken, rule="lrp-gamma")
    yield "subgraph relevance", partial(ew.subgraph_relevance, *asked, nodes=[0, 1, 3])
    yield "edges of walks", lambda: [found.edge_scores("layer") for found in ew.walks(*asked, k=5)]
    yield "subgraphs", lambda: [(s.nodes, s.shapley) for s in ew.subgraph_x(*asked, max_nodes=3, samples=20)]
    yield "interactions", lambda: ew.shapley_interactions(model, data, 1, players="nodes").matrix


def trusted(model, data, index, **told) -> Answers:
    """Reports, comparisons and proofs."""
    ask = ew.Question(model, data, index, **told)
    yield "check", partial(ask.check, edges=20)
    methods = ["gradient", "occlusion", ("integrated_gradients", {"steps": 3})]
    yield "compare", partial(ask.compare, methods=methods, k=3, yardsticks=False)
    for level in BOTH:
        yield f"certify, {level}", partial(trust.certify, model, data, index, level=level, pieces=2, **told)
        yield f"sign flips, {level}", partial(trust.sign_flips, model, data, index, level=level, **told)


def measured(model, data, index, **told) -> Answers:
    """Metrics of explanations."""
    ask = ew.Question(model, data, index, **told)
    flat, found, other = (ask.explain(*how) for how in (("gradient",), ("gradient", "layer"), ("occlusion", "layer")))
    explained = (flat, model, data)
    yield "similarity", partial(ew.similarity, found, other)
    yield "similarity by layer", partial(ew.similarity, found, other, per_layer=True)
    for how in ("masking", "removing"):
        for of in ("value", "prob", "label"):
            yield f"fidelity, {how}, {of}", partial(metrics.fidelity, *explained, k=3, how=how, of=of)
        yield f"fidelity curve, {how}", partial(metrics.fidelity_curve, *explained, fractions=[0.0, 0.5, 1.0], how=how)
    yield "unfaithfulness", partial(metrics.unfaithfulness, *explained, k=3)
    yield "sparsity", partial(metrics.sparsity, flat, threshold=0.01)
    yield "signs", partial(metrics.signs, found, threshold=0.01)
    seeds: dict[str, Any] = {"seeds": [0, 1], "method": "gnn_explainer", "epochs": 5, **told}
    yield "stability under seeds", partial(metrics.stability_under_seeds, model, data, index, **seeds)
    yield "stability under noise", partial(metrics.stability_under_noise, model, data, index, draws=2, **told)
    truth = [(zoo.numbers(f"truth {why.index}", why.edge_index.size(1)) > 0).long() for why in flat]
    yield "recovery", partial(metrics.recovery, flat, truth)
    yield "best subgraph", lambda: [(best.columns, best.alone, best.without) for best in _best(*explained)]


def _best(found, model, data):
    return ew.best_subgraph(model, data, found)


def through_pyg() -> Answers:
    """Edgewise as an algorithm of PyG's `Explainer`."""
    from torch_geometric.explain import Explainer

    model, data = zoo.fill("node gcn", zoo.NODE_MODELS["gcn"]()), zoo.plain_graph()
    for method in ("gradient", "occlusion"):
        explainer = Explainer(
            model,
            ew.EdgewiseExplainer(method),
            explanation_type="model",
            edge_mask_type="object",
            node_mask_type="attributes",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
        )
        yield method, partial(_masks, explainer, data)


def _masks(explainer, data):
    found = explainer(data.x, data.edge_index, index=1)
    return found.edge_mask, found.node_mask


# The groups ###########################################################################################################

THOROUGH = {
    "node": ("gcn", "sage mean", "gin", "gine", "gat", "gatv2 attributes", "residual", "own attention", "rgcn"),
    "graph": ("gin, max", "layer norm, mean"),
    "link": ("sage, mlp",),
    "typed": ("sage",),
}
"""What is asked every method at every level, and every search and rule of walks."""
SLOW = {
    "node": ("dir gcn", "dir sage", "film", "hypergraph"),
    "typed": ("mixed", "hgt", "han", "rgcn", "transformer attributes"),
    "typed graph": ("sage, sum", "gatv2, sum"),
    "link": ("layer norm, product",),
    "typed link": ("gat, mlp",),
}
"""Models whose every pass takes long: they are asked a part."""
MANY = (
    "gcn",
    "sage mean",
    "sage max",
    "gin",
    "gine",
    "gat",
    "gatv2 attributes",
    "transformer attributes",
    "batch norm",
)
MANY_GRAPHS = ("gcn, mean", "gin, max", "gine, sum", "gatv2, two pools")
DENSE = ("gcn", "sage mean", "gin", "gatv2", "batch norm")
LARGE = ("gcn", "sage mean", "gat", "gin")
TRUSTED = ("gcn", "gin", "gatv2", "log softmax")
MEASURED = ("gcn", "gatv2 attributes", "one logit", "gated graph")


def _node(name: str, what: Asked, data=None, index=zoo.NODES, **more) -> Answers:
    model, told = zoo.fill(f"node {name}", zoo.NODE_MODELS[name]()), zoo.TOLD.get(name, {})
    return what(model, zoo.plain_graph() if data is None else data, list(index), **told, **more)


def _many(name: str) -> Answers:
    return _node(name, many, zoo.drawn_graph("many", 120, 360), range(0, 120, 5))


def _dense(name: str) -> Answers:
    return _node(name, dense, zoo.drawn_graph("dense", 130, 2600, loops=False), range(130))


def _dense_graphs(name: str, what: Asked) -> Answers:
    model = zoo.fill(f"graph {name}", zoo.GRAPH_MODELS[name]())
    return what(
        model, [zoo.drawn_graph(f"dense {number}", 120, 1300) for number in range(12)], list(range(12)), task="graph"
    )


def _large(name: str) -> Answers:
    return _node(name, large, zoo.drawn_graph("large", 22_000, 40_000), (5, 77, 21_999))


def _graph(name: str, what: Asked, count: int = 3, **more) -> Answers:
    model = zoo.fill(f"graph {name}", zoo.GRAPH_MODELS[name]())
    return what(model, zoo.molecules(count), list(range(count)), task="graph", **more)


def _link(name: str, what: Asked, **more) -> Answers:
    model = zoo.fill(f"link {name}", zoo.LINK_MODELS[name]())
    return what(model, zoo.plain_graph(), list(zoo.PAIRS), task="link", **more)


def _typed(name: str, what: Asked, **more) -> Answers:
    model = zoo.fill(f"typed {name}", zoo.TYPED_MODELS[name]())
    return what(model, zoo.typed_graph(), ("movie", [0, 2]), **more)


def _typed_graph(name: str, what: Asked, **more) -> Answers:
    model = zoo.fill(f"typed graph {name}", zoo.TYPED_GRAPH_MODELS[name]())
    return what(model, [zoo.typed_graph("a", 5), zoo.typed_graph("b", 4)], [0, 1], task="graph", **more)


def _typed_link(name: str, what: Asked, **more) -> Answers:
    model = zoo.fill(f"typed link {name}", zoo.TYPED_LINK_MODELS[name]())
    return what(model, zoo.typed_graph(), {zoo.RATES: [(0, 1), (2, 3)]}, task="link", **more)


def _typed_store() -> Answers:
    model, data = zoo.fill("typed sage", zoo.TYPED_MODELS["sage"]()), zoo.typed_graph()
    with tempfile.TemporaryDirectory() as folder:
        ask = ew.Question(model, ew.GraphStore.build(Path(folder) / "store", data), ("movie", [0, 2]))
        yield from explanations(ask, ("gradient", "occlusion"))


def _named(
    task: str, names: Iterable[str], ask: Callable[..., Answers], what: Asked
) -> dict[str, Callable[[], Answers]]:
    found = {}
    for name in names:
        more = {key: True for key, table in (("thorough", THOROUGH), ("slow", SLOW)) if name in table.get(task, ())}
        found[f"{task}/{name}"] = partial(ask, name, what, **more)
    return found


GROUPS: dict[str, Callable[[], Answers]] = {
    **_named("node", zoo.NODE_MODELS, _node, everything),
    **_named("graph", zoo.GRAPH_MODELS, _graph, everything),
    **_named("link", zoo.LINK_MODELS, _link, everything),
    **_named("link without itself", ("gcn, product",), partial(_link, without_itself=True), everything),
    **_named("typed", zoo.TYPED_MODELS, _typed, everything),
    **_named("typed graph", zoo.TYPED_GRAPH_MODELS, _typed_graph, everything),
    **_named("typed link", zoo.TYPED_LINK_MODELS, _typed_link, everything),
    **{f"many/{name}": partial(_many, name) for name in MANY},
    **_named("many graphs", MANY_GRAPHS, partial(_graph, count=16), many),
    **{f"dense/{name}": partial(_dense, name) for name in DENSE},
    **_named("dense graphs", ("gcn, mean", "gin, max", "sage, sum"), _dense_graphs, gradients_and_losses),
    **{f"large/{name}": partial(_large, name) for name in LARGE},
    "typed store/sage": _typed_store,
    "options/gcn": options,
    **_named("trust", TRUSTED, _node, trusted),
    **_named("trust of graphs", ("gin, max",), partial(_graph, count=2), trusted),
    **_named("metrics", MEASURED, _node, measured),
    **_named("metrics of graphs", ("gin, max",), _graph, measured),
    "pyg/gcn": through_pyg,
}
"""Every group of answers by name: a group is one test."""


def today(group: str) -> dict[str, Answer]:
    """The answers of one group, as they are now."""
    found = {}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try:
            for label, ask in GROUPS[group]():
                name = f"{group}: {label}"
                assert name not in found, f"two answers are called {name}"
                found[name] = Answer.of(name, ask)
        except ew.EdgewiseError as error:  # the question itself is refused: there are no more answers
            found[f"{group}: question"] = Answer(f"{group}: question", 0, 0.0, refused=type(error).__name__)
    return found


# Files and the command ################################################################################################


def recorded(path: Path = FILE) -> dict[str, Answer]:
    """The answers of a file, by name."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)
        return {row[0]: Answer.of_row(row) for row in rows}


def differences(old: Mapping[str, Answer], new: Mapping[str, Answer]) -> dict[str, str]:
    """What differs, by name, in words."""
    found = dict.fromkeys(new.keys() - old.keys(), "is new") | dict.fromkeys(old.keys() - new.keys(), "is gone")
    both = {name: old[name].difference(new[name]) for name in old.keys() & new.keys()}
    return dict(sorted((found | {name: said for name, said in both.items() if said}).items()))


def _all_of_today(*, show_times: bool = False) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for group in GROUPS:
        start = time.process_time()
        found |= today(group)
        if show_times:
            print(f"{time.process_time() - start:6.2f} s  {group}", file=sys.stderr)
    return found


def _write(old: Mapping[str, Answer], new: Mapping[str, Answer]) -> None:
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["answer", "numbers", "largest", "kept"])
        for name, answer in new.items():
            same = name in old and not old[name].difference(answer)
            rows.writerow((old[name] if same else answer).row())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="record the answers of today")
    parser.add_argument(
        "--diff", nargs="+", type=Path, metavar="FILE", help="compare OLD with NEW, or with the recorded file"
    )
    parser.add_argument("--show", metavar="BEGIN", help="print today's numbers in full")
    parser.add_argument("--times", action="store_true", help="print the seconds of each group")
    given = parser.parse_args()
    if given.show:
        for group in [name for name in GROUPS if given.show.startswith(name) or name.startswith(given.show)]:
            for label, ask in GROUPS[group]():
                if f"{group}: {label}".startswith(given.show):
                    print(f"{group}: {label}", *[part.tolist() for part in numbers_in(ask())])
        return 0
    old = recorded(given.diff[0]) if given.diff else recorded() if FILE.exists() else {}
    new = (
        recorded(given.diff[1] if len(given.diff) > 1 else FILE)
        if given.diff
        else _all_of_today(show_times=given.times)
    )
    found = differences(old, new)
    for name, said in found.items():
        print(f"{name}  {said}")
    print(f"{len(new)} answers, {sum(len(one.numbers) for one in new.values())} numbers, {len(found)} differ")
    if given.write:
        _write(old, new)
        return 0
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
