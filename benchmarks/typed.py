"""A typed graph (users, movies, genres; five edge types) and a typed SAGE: gradients beside PyG's Saliency.

PyG's hetero explainer pushes its mask of ones through a sigmoid: it gives σ'(1) times the gradient at ω = σ(1). So its numbers
are compared with ours there, by `ew.Score`, and not with the explanations themselves.
"""

import copy
from functools import cache

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import CaptumExplainer, Explainer
from torch_geometric.nn import SAGEConv, to_hetero

import edgewise as ew
from benchmarks.deviation import Deviation, by_target
from benchmarks.peers import MULTICLASS
from benchmarks.timing import Case, Side
from edgewise.random_numbers import seeded

TARGETS, FEATURES, HIDDEN, CLASSES = 500, 32, 32, 4
NODES = {"user": 1500, "movie": 1000, "genre": 100}
EDGES = {
    ("user", "rates", "movie"): 8000,
    ("movie", "rated_by", "user"): 8000,
    ("movie", "has", "genre"): 1000,
    ("genre", "of", "movie"): 1000,
    ("user", "follows", "user"): 3000,
}


class Layers(nn.Module):
    """What `to_hetero` multiplies: two layers of SAGE."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = SAGEConv((-1, -1), HIDDEN), SAGEConv((-1, -1), CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.one(x, edge_index).relu(), edge_index)


class Movies(nn.Module):
    """The output of the movies alone: PyG's explainer wants one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: dict[str, Tensor], edge_index: dict[tuple[str, str, str], Tensor]) -> Tensor:
        rows: Tensor = self.model(x, edge_index)["movie"]
        return rows


@cache
def shop(times: int) -> tuple[nn.Module, HeteroData]:
    """An untrained model (its cost does not depend on the weights) and a random graph, `times` as large."""
    with seeded(0):
        data = HeteroData()
        nodes = {name: count * (1 if name == "genre" else times) for name, count in NODES.items()}
        for name, count in nodes.items():
            data[name].x = torch.randn(count, FEATURES)
        for kind, count in EDGES.items():
            ends = [torch.randint(0, nodes[end], (count * times,)) for end in (kind[0], kind[2])]
            data[kind].edge_index = torch.stack(ends)
        model = to_hetero(Layers(), data.metadata()).eval()
        with torch.no_grad():
            model(data.x_dict, data.edge_index_dict)
    return model, data


def typed_gradient(times: int) -> Case:
    """Layer gradients of 500 movies in one call; the peer explains one after the other."""
    model, data = shop(times)
    everyone = torch.arange(TARGETS)
    algorithm = CaptumExplainer("Saliency", abs=False)
    explainer = Explainer(
        Movies(copy.deepcopy(model)),
        algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config=MULTICLASS,
    )

    def ours(places: Tensor) -> ew.ExplanationSet:
        return ew.explain(model, data, index={"movie": places.tolist()}, level="layer")

    def theirs(places: Tensor) -> list[Tensor]:
        found = [explainer(data.x_dict, data.edge_index_dict, index=node) for node in places.tolist()]
        return [torch.cat([one[kind].edge_mask for kind in data.edge_types]) for one in found]

    def apart(_: ew.ExplanationSet, asked: Tensor, masks: list[Tensor], units: Tensor) -> Deviation:
        return by_target(_at_sigmoid(model, data, units), units, masks, units)

    side = Side("PyG Captum Saliency, hetero", "nodes", everyone, TARGETS, theirs)
    return Case(Side("edgewise", "nodes", everyone, TARGETS, ours), side, apart)


class _Scores:
    """Scores of the edges of one target, as `by_target` asks for them."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores

    def edge_scores(self) -> Tensor:
        return self._scores


def _at_sigmoid(model: nn.Module, data: HeteroData, nodes: Tensor) -> list[_Scores]:
    """σ'(1) times our gradients at ω = σ(1), summed over layers, for each node."""
    score = ew.Score(model, data, index={"movie": nodes.tolist()})
    at = torch.sigmoid(torch.tensor(1.0))
    weight = (score.ones() * at).requires_grad_()
    (gradient,) = torch.autograd.grad(score(weight).sum(), weight)
    found = torch.zeros(len(nodes), sum(data[kind].num_edges for kind in data.edge_types))
    found.index_put_((score.owner, score.edge_id), gradient.sum(dim=0) * at * (1 - at), accumulate=True)
    return [_Scores(row) for row in found]
