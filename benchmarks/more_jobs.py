"""Rows about links and features on Cora, beside loops that people write by hand, or PyG's Captum explainer."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCNConv

import edgewise as ew
from benchmarks import data, models
from benchmarks.deviation import Deviation, of_target
from benchmarks.peers import MULTICLASS
from benchmarks.timing import Case, Side
from edgewise.random_numbers import seeded

PAIRS, STEPS, FEW = 500, 50, 12


# --- links ----------------------------------------------------------------------------------------------------------------


class Linker(nn.Module):
    """A GCN of two layers and a dot product, as in PyG's example of link prediction; untrained."""

    def __init__(self, features: int, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, width), GCNConv(width, width)

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Tensor:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


def link_pairs(graph: Data) -> Tensor:
    """`[2, 500]`: half of them links of the graph, half drawn at random."""
    generator = torch.Generator().manual_seed(0)
    links = graph.edge_index[:, torch.randperm(graph.num_edges, generator=generator)[: PAIRS // 2]]
    return torch.cat([links, torch.randint(0, graph.num_nodes, (2, PAIRS - links.size(1)), generator=generator)], dim=1)


def link_gradient(*, without_itself: bool) -> Case:
    """Edge gradients of pairs; the peer takes them one by one, with PyG's masks on the whole graph."""
    graph = data.cora()
    with seeded(0):
        model = Linker(graph.num_features).eval()
    pairs, own = link_pairs(graph), copy.deepcopy(model)

    def run(places: Tensor) -> ew.ExplanationSet:
        return ew.explain(model, graph, index=pairs[:, places], task="link", without_itself=without_itself)

    def one(place: int) -> Tensor:
        u, v = pairs[:, place].tolist()
        source, receiver = graph.edge_index
        itself = ((source == u) & (receiver == v)) | ((source == v) & (receiver == u))
        kept = ~itself if without_itself else torch.ones_like(itself)
        edges, weight = graph.edge_index[:, kept], torch.ones(int(kept.sum()), requires_grad=True)
        set_masks(own, weight, edges, apply_sigmoid=False)
        value = own.decode(own.encode(graph.x, edges), pairs[:, place : place + 1]).sum()
        (found,) = torch.autograd.grad(value, weight)
        clear_masks(own)
        return torch.zeros(graph.num_edges).masked_scatter(kept, found)

    def compare(ours: Sequence[Any], asked: Tensor, theirs: Sequence[Tensor], units: Tensor) -> Deviation:
        return _joined(ours, asked, theirs, units, lambda why: why.scores)

    everyone = torch.arange(PAIRS)
    peer = Side("autograd, pair by pair", "pairs", everyone, PAIRS, lambda places: [one(i) for i in places.tolist()])
    return Case(Side("edgewise", "pairs", everyone, PAIRS, run), peer, compare)


# --- features -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    model: nn.Module
    graph: Data
    nodes: Tensor


def _cora() -> _Asked:
    return _Asked(models.cora_model("gcn"), data.cora(), data.cora_test_nodes())


def feature_gradient(method: str, captum_method: str, **settings: Any) -> Case:
    """Feature scores of all test nodes; the peer is PyG's CaptumExplainer with a mask of node attributes."""
    asked = _cora()
    steps = {"steps": STEPS} if method == "integrated_gradients" else {}
    explainer = Explainer(
        copy.deepcopy(asked.model),
        CaptumExplainer(captum_method, **settings),
        explanation_type="model",
        node_mask_type="attributes",
        model_config=MULTICLASS,
    )

    def run(places: Tensor) -> ew.FeatureSet:
        return ew.features(asked.model, asked.graph, asked.nodes[places], method=method, **steps)

    def captum(places: Tensor) -> list[Tensor]:
        graph = asked.graph
        return [explainer(graph.x, graph.edge_index, index=i).node_mask for i in asked.nodes[places].tolist()]

    def compare(ours: Sequence[Any], places: Tensor, theirs: Sequence[Tensor], units: Tensor) -> Deviation:
        return _joined(ours, places, theirs, units, lambda why: why.scores)

    everyone = torch.arange(len(asked.nodes))
    peer = Side(f"PyG Captum {captum_method}", "nodes", everyone, len(everyone), captum)
    return Case(Side("edgewise", "nodes", everyone, len(everyone), run), peer, compare)


def feature_occlusion() -> Case:
    """All features of the neighbourhoods of a few nodes; the peer runs the whole graph without one feature after the other."""
    asked = _cora()
    few = asked.nodes[torch.randperm(len(asked.nodes), generator=torch.Generator().manual_seed(0))[:FEW]]
    graph, own = asked.graph, copy.deepcopy(asked.model)
    known = ew.features(asked.model, graph, few, method="occlusion")
    with torch.no_grad():
        output = own(graph.x, graph.edge_index)
    column = output[few].argmax(dim=1)
    owner = torch.repeat_interleave(torch.arange(FEW), torch.tensor([len(why.stored[0]) for why in known]))
    place = torch.cat([why.stored[0] for why in known])  # node · F + feature: what the loop sets to 0

    def run(_: Tensor) -> ew.FeatureSet:  # all of them: neighbourhoods differ in size, so a sample would say little
        return ew.features(asked.model, graph, few, method="occlusion")

    def loop(units: Tensor) -> Tensor:
        lost = []
        with torch.no_grad():
            for unit in units.tolist():
                x, of = graph.x.clone(), int(owner[unit])
                x.view(-1)[place[unit]] = 0.0
                lost.append(output[few[of], column[of]] - own(x, graph.edge_index)[few[of], column[of]])
        return torch.stack(lost)

    def compare(ours: Sequence[Any], _: Tensor, theirs: Tensor, units: Tensor) -> Deviation:
        found = Deviation()
        for target, why in enumerate(ours):
            mine, scores = owner[units] == target, why.scores.view(-1)
            found = found.joined(of_target(scores[place[units[mine]]], theirs[mine], float(scores.abs().max())))
        return found

    peer = Side("a forward pass for each feature", "features", torch.arange(len(place)), len(place), loop)
    return Case(Side("edgewise", f"{FEW} nodes", torch.arange(1), 1, run), peer, compare, peer_follows=False)


def _joined(
    ours: Sequence[Any], asked: Tensor, theirs: Sequence[Tensor], units: Tensor, scores: Callable[[Any], Tensor]
) -> Deviation:
    """The peer explained some of our targets: the deviation of each."""
    place, found = {int(target): i for i, target in enumerate(asked)}, Deviation()
    for unit, other in zip(units.tolist(), theirs, strict=True):
        mine = scores(ours[place[unit]])
        found = found.joined(of_target(mine, other, float(mine.abs().max()) if mine.numel() else 0.0))
    return found


ROWS: list[tuple[str, str, Callable[[], Case], float | None, float | None]] = [
    (
        "links/gradient",
        f"edge gradients, {PAIRS} pairs of Cora, GCN 2×32",
        partial(link_gradient, without_itself=False),
        50,
        150,
    ),
    (
        "links/without_itself",
        "the same without each pair's own link",
        partial(link_gradient, without_itself=True),
        None,
        None,
    ),
    (
        "features/gradient",
        "feature gradients, 497 Cora nodes, GCN 3×32",
        partial(feature_gradient, "gradient", "Saliency", abs=False),
        40,
        200,
    ),
    (
        "features/integrated_gradients",
        f"integrated feature gradients ({STEPS} steps), the same",
        partial(feature_gradient, "integrated_gradients", "IntegratedGradients", n_steps=STEPS),
        200,
        1000,
    ),
    ("features/occlusion", f"occlusion of all features around {FEW} Cora nodes", feature_occlusion, 100, 500),
]
"""Name, title, how the case is made, and the ratios that we want at least and dream of."""
