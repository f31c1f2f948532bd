"""The table of jobs: what we do at once, who does it otherwise, and how many times faster we want to be."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgewise as ew
from benchmarks import data, graph_jobs, models, more_jobs, peers
from benchmarks.deviation import Deviation, by_edge, by_target
from benchmarks.timing import Case, Side
from benchmarks.typed import typed_gradient

EPOCHS, STEPS, ALONE = 100, 50, 20


@dataclass(frozen=True)
class Job:
    """One row. `at_least` and `dream` are the ratios that we want; `make()` trains or loads what is needed."""

    name: str
    title: str
    make: Callable[[], Case]
    at_least: float | None = None
    dream: float | None = None
    quick: bool = True
    weight: float = 1.0
    """Share of the time of a run with a deadline."""


@dataclass(frozen=True)
class Question:
    """A model, its graph and the nodes to explain."""

    model: nn.Module
    data: Data
    nodes: Tensor


def infection() -> Question:
    trained = models.infection()
    return Question(trained.model, trained.graphs.test, torch.arange(trained.graphs.test.num_nodes))


def cora(architecture: str) -> Question:
    return Question(models.cora_model(architecture), data.cora(), data.cora_test_nodes())


def large() -> Question:
    return Question(models.large_model(), data.sender_hubs(), torch.arange(data.LARGE_NODES))


# --- a job for each method; units of ours are positions in `nodes` -----------------------------------------------------------


def _ours(q: Question, method: str, level: str, *, held: bool = False, **settings: object) -> Side:
    """A plain call; or `held`: the question was asked before, and asking is not timed."""
    question = ew.Question(q.model, q.data, q.nodes) if held else None

    def run(places: Tensor) -> ew.ExplanationSet:
        if question is not None and len(places) == len(q.nodes):
            return question.explain(method=method, level=level, **settings)
        return ew.explain(q.model, q.data, index=q.nodes[places], method=method, level=level, **settings)

    return Side("edgewise", "nodes", torch.arange(len(q.nodes)), len(q.nodes), run)


def _node_by_node(q: Question, name: str, explain: Callable[[int], Tensor]) -> Side:
    def run(places: Tensor) -> list[Tensor]:
        return [explain(node) for node in q.nodes[places].tolist()]

    return Side(name, "nodes", torch.arange(len(q.nodes)), len(q.nodes), run)


def gradient(ask: Callable[[], Question], captum_method: str = "Saliency", *, held: bool = False) -> Case:
    q, settings = ask(), {"abs": False} if captum_method == "Saliency" else {}
    peer = peers.captum(q.model, q.data, captum_method, **settings)
    ours = _ours(q, "gradient", "layer", held=held)
    return Case(ours, _node_by_node(q, f"PyG Captum {captum_method}", peer), by_target)


def integrated_gradients(ask: Callable[[], Question]) -> Case:
    q = ask()
    peer = peers.captum(q.model, q.data, "IntegratedGradients", n_steps=STEPS)
    name = f"PyG Captum IntegratedGradients({STEPS})"
    return Case(_ours(q, "integrated_gradients", "input", steps=STEPS), _node_by_node(q, name, peer), by_target)


def gnn_explainer(ask: Callable[[], Question], *, held: bool = False) -> Case:
    """Both from the same start."""
    q = ask()
    question = ew.Question(q.model, q.data, q.nodes) if held else None
    init = torch.stack([peers.start(q.data, node) for node in q.nodes.tolist()])

    def run(places: Tensor) -> ew.ExplanationSet:
        start = init if len(places) == len(init) else init[places]
        if question is not None and len(places) == len(init):
            return question.explain(method="gnn_explainer", epochs=EPOCHS, init=start)
        return ew.explain(q.model, q.data, index=q.nodes[places], method="gnn_explainer", epochs=EPOCHS, init=start)

    everyone = torch.arange(len(q.nodes))
    peer = _node_by_node(q, f"PyG GNNExplainer({EPOCHS})", peers.gnn_explainer(q.model, q.data, EPOCHS))
    return Case(Side("edgewise", "nodes", everyone, len(everyone), run), peer, by_target)


def occlusion(ask: Callable[[], Question], level: str, *, held: bool = False) -> Case:
    q = ask()
    loop = peers.OcclusionLoop(q.model, q.data, q.nodes, layerwise=level == "layer")
    units = q.data.num_edges * (loop.num_layers if level == "layer" else 1)
    unit = "edges" if level == "input" else "(layer, edge) pairs"
    peer = Side("one shared forward each", unit, torch.arange(units), units, loop)
    return Case(_ours(q, "occlusion", level, held=held), peer, by_edge, peer_follows=False)


def alone(ask: Callable[[], Question], *, held: bool, hops: int | None = None) -> Case:
    """A call for each of a few nodes: plain calls, everything counted, or a held question that was asked before.

    With `hops` the peer cuts out the neighbourhood by hand first.
    """
    q = ask()
    q = replace(q, nodes=q.nodes[torch.randperm(len(q.nodes), generator=torch.Generator().manual_seed(0))[:ALONE]])
    question = ew.Question(q.model, q.data, q.nodes[:1]) if held else None

    def run(places: Tensor) -> list[ew.Explanation]:
        nodes = q.nodes[places].tolist()
        if question is not None:
            return [question.of(node).explain(level="layer") for node in nodes]
        return [ew.explain(q.model, q.data, index=node, level="layer") for node in nodes]

    if hops is None:
        peer = _node_by_node(q, "PyG Captum Saliency", peers.captum(q.model, q.data, "Saliency", abs=False))
    else:
        peer = _node_by_node(q, "k_hop_subgraph + Captum", peers.captum_on_cut(q.model, q.data, hops))
    return Case(Side("edgewise", "nodes", torch.arange(ALONE), 1, run), replace(peer, total=1), by_target)


def graph_gradient(norm: str | None) -> Case:
    """All graphs; the peer explains the logit, we the predicted class: turn its sign where that is class 0."""
    graphs, model = data.proteins(), models.proteins_model(norm)
    everyone = torch.arange(len(graphs))
    peer = peers.captum_graph(model, graphs, "Saliency", abs=False)

    def run(places: Tensor) -> ew.ExplanationSet:
        return ew.explain(model, graphs, index=places, task="graph", level="layer")

    def turned(ours: ew.ExplanationSet, asked: Tensor, theirs: list[Tensor], units: Tensor) -> Deviation:
        place = {int(graph): i for i, graph in enumerate(asked)}
        signs = [1 if int(ours.target[place[unit]]) == 1 else -1 for unit in units.tolist()]
        return by_target(ours, asked, [sign * scores for sign, scores in zip(signs, theirs, strict=True)], units)

    def one_by_one(places: Tensor) -> list[Tensor]:
        return [peer(graph) for graph in places.tolist()]

    ours = Side("edgewise", "graphs", everyone, len(graphs), run)
    return Case(ours, Side("PyG Captum Saliency", "graphs", everyone, len(graphs), one_by_one), turned)


# --- the table ----------------------------------------------------------------------------------------------------------------


def _cora_rows(architecture: str, title: str, share: float) -> list[Job]:
    ask, where = partial(cora, architecture), f"cora-{architecture}"
    slow = architecture == "gin"  # a peer's mask takes 20 seconds
    return [
        Job(f"{where}/gradient", f"layer gradients, 497 Cora nodes, {title}", partial(gradient, ask), 250 * share, 500),
        Job(
            f"{where}/gradient-held",
            "the same, a held question",
            partial(gradient, ask, held=True),
            1000 * share,
            1500,
        ),
        Job(
            f"{where}/gnn_explainer",
            f"GNNExplainer({EPOCHS}), the same",
            partial(gnn_explainer, ask),
            250 * share,
            2000,
            quick=not slow,
            weight=3,
        ),
        Job(f"{where}/occlusion", "occlusion, the same", partial(occlusion, ask, "input"), 500 * share, 5000),
        Job(
            f"{where}/occlusion-held",
            "the same, a held question",
            partial(occlusion, ask, "input", held=True),
            3000 * share,
            5000,
        ),
        Job(
            f"{where}/layer_occlusion",
            "layerwise occlusion, the same",
            partial(occlusion, ask, "layer"),
            1500 * share,
            15000,
        ),
        Job(
            f"{where}/layer_occlusion-held",
            "the same, a held question",
            partial(occlusion, ask, "layer", held=True),
            8000 * share,
            15000,
        ),
        Job(
            f"{where}/gnn_explainer-held",
            f"GNNExplainer({EPOCHS}), the same",
            partial(gnn_explainer, ask, held=True),
            1500 * share,
            2000,
            quick=False,
            weight=3,
        ),
    ]


def _gatv2_rows() -> list[Job]:
    """Attention has ratios of its own."""
    wanted = {
        "gradient": (200, 400),
        "gradient-held": (600, 1000),
        "occlusion-held": (800, 5000),
        "layer_occlusion-held": (2000, 15000),
        "gnn_explainer-held": (500, 2000),
    }
    rows = _cora_rows("gatv2", "GATv2 3×32, 4 heads", 1 / 3)
    names = [row.name.split("/")[1] for row in rows]
    both = [wanted.get(name, (row.at_least, row.dream)) for name, row in zip(names, rows, strict=True)]
    return [replace(row, at_least=least, dream=most) for row, (least, most) in zip(rows, both, strict=True)]


def jobs() -> list[Job]:
    gcn = partial(cora, "gcn")
    return [
        Job("infection/gradient", "layer gradients, 1000 Infection nodes", partial(gradient, infection), 80, 500),
        Job(
            "infection/gradient-held",
            "the same, a held question",
            partial(gradient, infection, held=True),
            250,
            500,
        ),
        Job(
            "infection/input_x_gradient",
            "the same, vs InputXGradient",
            partial(gradient, infection, "InputXGradient"),
        ),
        Job(
            "infection/integrated_gradients",
            "integrated gradients, 1000 Infection nodes",
            partial(integrated_gradients, infection),
        ),
        Job("infection/occlusion", "occlusion, 1000 Infection nodes", partial(occlusion, infection, "input"), 70, 500),
        Job(
            "infection/layer_occlusion",
            "layerwise occlusion, the same",
            partial(occlusion, infection, "layer"),
            200,
            2000,
        ),
        Job(
            "infection/occlusion-held",
            "occlusion, a held question",
            partial(occlusion, infection, "input", held=True),
            250,
            500,
        ),
        Job(
            "infection/layer_occlusion-held",
            "layerwise occlusion, a held question",
            partial(occlusion, infection, "layer", held=True),
            800,
            2000,
        ),
        Job(
            "infection/gnn_explainer", f"GNNExplainer({EPOCHS}), the same", partial(gnn_explainer, infection), 200, 350
        ),
        Job("infection/alone", "one Infection node, layer gradients", partial(alone, infection, held=False), 0.5, 2),
        # A held question that moves to one new target runs the model once more, to be sure of it: its audit is the price.
        Job("infection/held", "the same, a held question", partial(alone, infection, held=True), 2, 8),
        *_cora_rows("gcn", "GCN 3×32", 1),
        Job(
            "cora-gcn/integrated_gradients",
            "integrated gradients, 497 Cora nodes, GCN",
            partial(integrated_gradients, gcn),
        ),
        Job("cora-gcn/alone", "one Cora node, layer gradients, GCN", partial(alone, gcn, held=False)),
        Job("cora-gcn/held", "the same, a held question", partial(alone, gcn, held=True)),
        *_gatv2_rows(),
        *_cora_rows("gin", "GIN 3×32", 1 / 3),
        Job(
            "proteins/gradient",
            "layer gradients, 1113 PROTEINS graphs, GIN 3×32",
            partial(graph_gradient, None),
            60,
            200,
        ),
        Job(
            "typed/gradient",
            "layer gradients, 500 nodes, typed SAGE 2×32, 21,000 edges",
            partial(typed_gradient, 1),
            100,
            300,
        ),
        Job(
            "typed/gradient-large",
            "the same, 210,000 edges",
            partial(typed_gradient, 10),
            100,
            1000,
            quick=False,
        ),
        Job(
            "large/alone",
            "one node of 169,343, layer gradients, GCN 3×128",
            partial(alone, large, held=False, hops=4),
            1.5,
            5,
        ),
        Job("large/held", "the same, a held question", partial(alone, large, held=True, hops=4), 2, 15),
        Job("proteins/layer_norm", "the same with LayerNorm (per graph)", partial(graph_gradient, "LayerNorm")),
        *(Job(*row) for row in (*graph_jobs.ROWS, *more_jobs.ROWS)),
    ]
